"""The settings of the Notification service, from environment variables: a class for each process. No process reads the secrets of
another one. The relay's are in servicekit/worker_settings.py.

NOTIFICATION_DATABASE_URL   postgresql+asyncpg://…?sslmode=verify-full, the service's own database. TLS, and
                          Cloud SQL without a proxy, as for LABOUR_DATABASE_URL
PUBSUB_PROJECT_ID         the project of the topics and subscriptions
OPERATOR_READ_TOKENS, OPERATOR_WRITE_TOKENS, NOTIFICATION_OPERATORS_…   the tokens of operators, and the address of their
                          listener: servicekit/http/operator_access.py
NOTIFICATION_API_HOST, NOTIFICATION_API_PORT   the address at which the API listens (127.0.0.1, 8402)
PUBLIC_URL                the URL at which the provider reaches the API, https unless local; callbacks are signed with it
TWILIO_ACCOUNT_SID, TWILIO_FROM   the account, and the sending number
TWILIO_AUTH_TOKEN         the secret of the account, with which the API checks the signature of callbacks
TWILIO_BASE_URL           the URL of a stand-in for Twilio; refused outside local mode
SMS_POLICIES              the policy for each event type, e.g. labour.begun=at_most_once,labour.completed=ask (ask for all)
SMS_QUARANTINE_SECONDS    seconds in doubt after which a message that the provider does not list is absent (900; local 5)
SMS_ASK_SECONDS           seconds between questions about a message in doubt (30; local 1)
SMS_LEASE_SECONDS         how long a row belongs to one dispatcher, in seconds (30; local 8)
SMS_TIMEOUT_SECONDS       how long a call may take, in seconds; at most half a lease (10; local 3)
SMS_PER_SECOND            calls a second of the sending number, by all dispatchers together (1; local 100)
SMS_MOST_WAITING          announcements of one labour that may wait to be sent; more are failed (500)
SMS_SEGMENTS_PER_NUMBER   SMS segments a day (UTC) to one number, about all labours; births up to twice that (40; local 10000)
SMS_COUNTRIES             the countries whose numbers are called, as for the Labour service, which checks them when they are
                          added. Messages to other ones are failed, also if they were added under a longer list (all)
SMS_CONSENT               required: a number gets only the question for consent until its owner agrees; assumed: no number is
                          asked, refused outside local mode (required; local assumed)
SMS_CONSENT_HOURS         how long a message waits for that consent, in hours (48)
SMS_RESTORED_AT           when the database was restored from a backup, e.g. 2031-05-20T14:30 (UTC): the provider is
                          asked about every message of an earlier event before it is sent (never)
PUSH_AUDIENCE, PUSH_SERVICE_ACCOUNT   the audience and the account of push tokens. Push is disabled without an audience;
                          with one, the account is required (`fern topology apply` reads both, and PUSH_URL, its address)
PUSH_JWKS_URL             the address of the keys of push tokens, https unless local (Google's)
PUSH_ISSUER               the issuer of push tokens of an emulator; refused outside local mode, where it is Google
HTTP_…                    how much the API accepts at a time: servicekit/http/http_limits.py
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from messaging.errors import SettingsError
from notification.domain.consent import Mode
from notification.domain.notification import MOST_WAITING, Policy
from servicekit.countries import load_countries
from servicekit.http.http_limits import HttpLimits
from servicekit.http.operator_access import OperatorSettings
from servicekit.settings import Environment
from servicekit.worker_settings import (
    load_database_url,
    load_project,
    load_replay_horizon_days,
    load_retention_days,
)

GOOGLE = ("https://accounts.google.com", "accounts.google.com")  # the issuers of push tokens
ACCOUNT_SID, AUTH_TOKEN = re.compile(r"AC[0-9a-f]{32}"), re.compile(r"[0-9a-f]{32}")
SENDER = re.compile(
    r"\+[1-9][0-9]{6,14}|[0-9]{5,6}"
)  # a number or a short code: to a name a person cannot reply YES or STOP


@dataclass(frozen=True, slots=True)
class ApiSettings:
    local: bool
    database_url: str
    project_id: str
    operators: OperatorSettings
    api_host: str
    api_port: int
    public_url: str
    twilio_auth_token: str
    most_waiting: int
    consent: Mode
    consent_seconds: float
    push_audience: str
    push_issuers: tuple[str, ...]
    push_jwks_url: str
    push_service_account: str
    retention_days: int
    replay_horizon_days: int
    http: HttpLimits

    @classmethod
    def load(cls, variables: Mapping[str, str] = os.environ) -> "ApiSettings":
        environment = Environment(variables)
        push_jwks_url = environment.optional("PUSH_JWKS_URL", "https://www.googleapis.com/oauth2/v3/certs")
        push_issuer = environment.local_only("PUSH_ISSUER")
        settings = cls(
            local=environment.local,
            database_url=load_database_url(environment, "notification"),
            project_id=load_project(environment),
            operators=OperatorSettings.load(environment, "NOTIFICATION", port=8408),
            api_host=environment.optional("NOTIFICATION_API_HOST", "127.0.0.1"),
            api_port=environment.number("NOTIFICATION_API_PORT", 8402, int, least=1),
            public_url=_public_url(environment),
            twilio_auth_token=_auth_token(environment),
            most_waiting=_most_waiting(environment),
            consent=_consent(environment),
            consent_seconds=_consent_seconds(environment),
            push_audience=environment.optional("PUSH_AUDIENCE"),
            push_issuers=(push_issuer,) if push_issuer else GOOGLE,
            push_jwks_url=environment.url("PUSH_JWKS_URL", push_jwks_url),
            push_service_account=environment.optional("PUSH_SERVICE_ACCOUNT"),
            retention_days=load_retention_days(environment),
            replay_horizon_days=load_replay_horizon_days(environment),
            http=HttpLimits.load(environment),
        )
        if settings.push_audience and not settings.push_service_account:
            environment.refuse(
                "PUSH_SERVICE_ACCOUNT is not set, and any Google account can get a token for PUSH_AUDIENCE: "
                "export PUSH_SERVICE_ACCOUNT=… (that of the push subscriptions), or unset PUSH_AUDIENCE to disable push"
            )
        environment.check()
        return settings


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    database_url: str
    project_id: str
    consent: Mode
    most_waiting: int

    @classmethod
    def load(cls, variables: Mapping[str, str] = os.environ) -> "ConsumerSettings":
        environment = Environment(variables)
        settings = cls(
            database_url=load_database_url(environment, "notification"),
            project_id=load_project(environment),
            consent=_consent(environment),
            most_waiting=_most_waiting(environment),
        )
        environment.check()
        return settings


@dataclass(frozen=True, slots=True)
class DispatcherSettings:
    database_url: str
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
    segments_per_number: int
    countries: frozenset[str]
    consent_seconds: float
    restored_at: datetime | None

    @classmethod
    def load(cls, variables: Mapping[str, str] = os.environ) -> "DispatcherSettings":
        environment = Environment(variables)
        local = environment.local
        settings = cls(
            database_url=load_database_url(environment, "notification"),
            public_url=_public_url(environment),
            twilio_account_sid=_checked(
                environment, "TWILIO_ACCOUNT_SID", ACCOUNT_SID, "AC and 32 digits from 0 to f", local="AC" + "0" * 32
            ),
            twilio_auth_token=_auth_token(environment),
            twilio_from=_checked(
                environment,
                "TWILIO_FROM",
                SENDER,
                "a number such as +12025550100, or a short code: people must be able to reply",
                local="+15005550006",
            ),
            twilio_base_url=environment.url("TWILIO_BASE_URL", environment.local_only("TWILIO_BASE_URL")),
            policies=_policies(environment.optional("SMS_POLICIES")),
            quarantine_seconds=environment.number("SMS_QUARANTINE_SECONDS", 5.0 if local else 900.0, float),
            ask_seconds=environment.number("SMS_ASK_SECONDS", 1.0 if local else 30.0, float, least=0.01),
            lease_seconds=environment.number("SMS_LEASE_SECONDS", 8.0 if local else 30.0, float, least=0.1),
            timeout_seconds=environment.number("SMS_TIMEOUT_SECONDS", 3.0 if local else 10.0, float, least=0.05),
            per_second=environment.number("SMS_PER_SECOND", 100.0 if local else 1.0, float, least=0.01),
            segments_per_number=environment.number("SMS_SEGMENTS_PER_NUMBER", 10_000 if local else 40, int, least=1),
            countries=load_countries(environment, default=""),
            consent_seconds=_consent_seconds(environment),
            restored_at=_restored_at(environment),
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


def _public_url(environment: Environment) -> str:
    return environment.url("PUBLIC_URL", environment.text("PUBLIC_URL", local="http://127.0.0.1:8402")).rstrip("/")


def _auth_token(environment: Environment) -> str:
    if environment.local:  # the sandbox accepts any token
        return environment.text("TWILIO_AUTH_TOKEN", local="local-twilio-token", secret=True)
    return _checked(environment, "TWILIO_AUTH_TOKEN", AUTH_TOKEN, "32 digits from 0 to f", local="local-twilio-token")


def _checked(environment: Environment, name: str, pattern: re.Pattern[str], form: str, *, local: str) -> str:
    """Refuse a value that is not in Twilio's format, which would otherwise show only when a text is refused. A missing value is
    reported already. No message repeats the value.
    """
    value = environment.text(name, local=local, secret=True)
    if value and not pattern.fullmatch(value):
        environment.refuse(f"{name} is not in Twilio's format: {form}")
    return value


def _most_waiting(environment: Environment) -> int:
    return environment.number("SMS_MOST_WAITING", MOST_WAITING, int, least=1)


def _consent_seconds(environment: Environment) -> float:
    return 3600 * environment.number("SMS_CONSENT_HOURS", 48.0, float, least=0.01)


def _consent(environment: Environment) -> Mode:
    text = environment.optional("SMS_CONSENT", Mode.ASSUMED if environment.local else Mode.REQUIRED)
    if text not in [*Mode]:
        environment.refuse(f"SMS_CONSENT is {text!r}: write one of {', '.join(Mode)}")
        return Mode.REQUIRED
    if text == Mode.ASSUMED and not environment.local:
        environment.refuse(
            "SMS_CONSENT=assumed is for local runs only, because it texts people who did not agree: "
            "export SMS_CONSENT=required"
        )
    return Mode(text)


def _restored_at(environment: Environment) -> datetime | None:
    if not (text := environment.optional("SMS_RESTORED_AT")):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        environment.refuse(f"SMS_RESTORED_AT is {text!r}: write a time like 2031-05-20T14:30 (UTC)")
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


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
