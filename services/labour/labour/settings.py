"""The settings of the Labour service, read from environment variables."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from servicekit.http_limits import HttpLimits
from servicekit.settings import Environment

LOCAL_SECRET = "local-secret-for-tokens-on-this-machine"  # noqa: S105  (used in local mode only)


@dataclass(frozen=True, slots=True)
class Settings:
    """LABOUR_DATABASE_URL   postgresql+asyncpg://…, the service's own database
    PUBSUB_PROJECT_ID        the project of our topics and subscriptions
    OPERATIONS_TOKEN         bearer token of the operations routes
    JWKS_URL, TOKEN_ISSUER   the address of the keys that verify callers' tokens, and their issuer; required unless local
    TOKEN_AUDIENCE           the audience that tokens must name (fernlabour)
    TOKEN_SECRET             the shared secret of local tokens; ignored outside local mode
    LABOUR_API_HOST, LABOUR_API_PORT   the address of the API (127.0.0.1, 8401)
    CORS_ORIGINS             origins of pages that may call the API from a browser, separated by commas (none)
    RATE_LIMIT_PER_MINUTE    changes that one caller may request in a minute (120; local 6000)
    RELAY_POLL_SECONDS       interval at which the relay polls when no wake-up arrives (1)
    RETENTION_DAYS, REPLAY_HORIZON_DAYS   days for which published events are kept (90), and days that a replay may go back (30)
    HTTP_…                   how much the API accepts at a time: servicekit/http_limits.py
    """

    database_url: str
    project_id: str
    operations_token: str
    jwks_url: str
    token_issuer: str
    token_audience: str
    token_secret: str
    cors_origins: tuple[str, ...]
    api_host: str
    api_port: int
    rate_limit_per_minute: int
    relay_poll_seconds: float
    retention_days: int
    replay_horizon_days: int
    http: HttpLimits

    @classmethod
    def load(cls, variables: Mapping[str, str] = os.environ) -> "Settings":
        environment = Environment(variables)
        settings = cls(
            database_url=environment.text("LABOUR_DATABASE_URL"),
            project_id=environment.text("PUBSUB_PROJECT_ID", local="fern-local"),
            operations_token=environment.text("OPERATIONS_TOKEN", local="local-operations", secret=True),
            jwks_url=environment.text("JWKS_URL", local=""),
            token_issuer=environment.text("TOKEN_ISSUER", local=""),
            token_audience=environment.optional("TOKEN_AUDIENCE", "fernlabour"),
            token_secret=environment.optional("TOKEN_SECRET", LOCAL_SECRET) if environment.local else "",
            cors_origins=tuple(filter(None, environment.optional("CORS_ORIGINS").replace(" ", "").split(","))),
            api_host=environment.optional("LABOUR_API_HOST", "127.0.0.1"),
            api_port=environment.number("LABOUR_API_PORT", 8401, int, least=1),
            rate_limit_per_minute=environment.number(
                "RATE_LIMIT_PER_MINUTE", 6000 if environment.local else 120, int, least=1
            ),
            relay_poll_seconds=environment.number("RELAY_POLL_SECONDS", 1.0, float, least=0.01),
            retention_days=environment.number("RETENTION_DAYS", 90, int, least=1),
            replay_horizon_days=environment.number("REPLAY_HORIZON_DAYS", 30, int, least=1),
            http=HttpLimits.load(environment),
        )
        environment.check()
        return settings
