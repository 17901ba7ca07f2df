"""The settings of the Notification service, from environment variables."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from messaging.errors import SettingsError
from notification.domain.notification import Policy
from servicekit.http_limits import HttpLimits
from servicekit.settings import Environment


@dataclass(frozen=True, slots=True)
class Settings:
    """NOTIFICATION_DATABASE_URL   postgresql+asyncpg://…, the service's own database
    PUBSUB_PROJECT_ID         the project of the topics and subscriptions
    OPERATIONS_TOKEN          bearer token of the operations routes
    NOTIFICATION_API_HOST, NOTIFICATION_API_PORT   the address at which the API listens (127.0.0.1, 8402)
    PUBLIC_URL                the URL at which the provider reaches the API; the signature of a callback covers it
    TWILIO_ACCOUNT_SID, TWILIO_AUTH_TOKEN, TWILIO_FROM   the account, its secret, and the sending number
    TWILIO_BASE_URL           the URL of a stand-in for Twilio, for local runs
    SMS_POLICIES              the policy for each event type, e.g. labour.begun=at_most_once,labour.completed=ask (ask for all)
    SMS_QUARANTINE_SECONDS    seconds in doubt after which a message that the provider does not list is absent (900; local 5)
    SMS_ASK_SECONDS           interval between questions about a message in doubt (30; local 1)
    SMS_LEASE_SECONDS         how long a row belongs to one sender (30; local 8)
    SMS_TIMEOUT_SECONDS       how long a call may take; at most half a lease (10; local 3)
    SMS_PER_SECOND            calls a second by one dispatcher (1; local 100)
    PUSH_AUDIENCE, PUSH_JWKS_URL, PUSH_SERVICE_ACCOUNT   for the push endpoint, which is disabled without an audience
                              (`fern topology apply` reads the first and the last as well, and PUSH_URL, its address)
    RELAY_POLL_SECONDS, RETENTION_DAYS, REPLAY_HORIZON_DAYS   as in the Labour service (1, 90, 30)
    HTTP_…                    how much the API accepts at a time: servicekit/http_limits.py
    """

    database_url: str
    project_id: str
    operations_token: str
    api_host: str
    api_port: int
    public_url: str
    twilio_account_sid: str
    twilio_auth_token: str
    twilio_from: str
    twilio_base_url: str
    policies: Mapping[str, Policy]
    quarantine_seconds: float
    ask_seconds: float
    lease_seconds: float
    timeout_seconds: float
    per_second: float
    push_audience: str
    push_jwks_url: str
    push_service_account: str
    relay_poll_seconds: float
    retention_days: int
    replay_horizon_days: int
    http: HttpLimits

    @classmethod
    def load(cls, variables: Mapping[str, str] = os.environ) -> "Settings":
        environment = Environment(variables)
        local = environment.local
        settings = cls(
            database_url=environment.text("NOTIFICATION_DATABASE_URL"),
            project_id=environment.text("PUBSUB_PROJECT_ID", local="fern-local"),
            operations_token=environment.text("OPERATIONS_TOKEN", local="local-operations", secret=True),
            api_host=environment.optional("NOTIFICATION_API_HOST", "127.0.0.1"),
            api_port=environment.number("NOTIFICATION_API_PORT", 8402, int, least=1),
            public_url=environment.text("PUBLIC_URL", local="http://127.0.0.1:8402").rstrip("/"),
            twilio_account_sid=environment.text("TWILIO_ACCOUNT_SID", local="AC" + "0" * 32, secret=True),
            twilio_auth_token=environment.text("TWILIO_AUTH_TOKEN", local="local-twilio-token", secret=True),
            twilio_from=environment.text("TWILIO_FROM", local="+15005550006", secret=True),
            twilio_base_url=environment.optional("TWILIO_BASE_URL"),
            policies=_policies(environment.optional("SMS_POLICIES")),
            quarantine_seconds=environment.number("SMS_QUARANTINE_SECONDS", 5.0 if local else 900.0, float),
            ask_seconds=environment.number("SMS_ASK_SECONDS", 1.0 if local else 30.0, float, least=0.01),
            lease_seconds=environment.number("SMS_LEASE_SECONDS", 8.0 if local else 30.0, float, least=0.1),
            timeout_seconds=environment.number("SMS_TIMEOUT_SECONDS", 3.0 if local else 10.0, float, least=0.05),
            per_second=environment.number("SMS_PER_SECOND", 100.0 if local else 1.0, float, least=0.01),
            push_audience=environment.optional("PUSH_AUDIENCE"),
            push_jwks_url=environment.optional("PUSH_JWKS_URL", "https://www.googleapis.com/oauth2/v3/certs"),
            push_service_account=environment.optional("PUSH_SERVICE_ACCOUNT"),
            relay_poll_seconds=environment.number("RELAY_POLL_SECONDS", 1.0, float, least=0.01),
            retention_days=environment.number("RETENTION_DAYS", 90, int, least=1),
            replay_horizon_days=environment.number("REPLAY_HORIZON_DAYS", 30, int, least=1),
            http=HttpLimits.load(environment),
        )
        environment.check()
        if settings.lease_seconds < 2 * settings.timeout_seconds:
            raise SettingsError(
                "SMS_LEASE_SECONDS must be at least twice SMS_TIMEOUT_SECONDS, or a call could outlive its lease: "
                f"export SMS_LEASE_SECONDS={2 * settings.timeout_seconds:g}"
            )
        return settings

    @property
    def call_within(self) -> float:
        """Seconds. A call that begins within this time ends, or times out, before its lease does."""
        return (self.lease_seconds - self.timeout_seconds) / 2


def _policies(text: str) -> dict[str, Policy]:
    policies = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        event_type, _, policy = entry.partition("=")
        try:
            policies[event_type.strip()] = Policy(policy.strip())
        except ValueError:
            known = ", ".join(Policy)
            raise SettingsError(f"SMS_POLICIES has {entry!r}; write event-type=policy with one of {known}") from None
    return policies
