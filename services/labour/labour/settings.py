"""The settings of the Labour API, read from environment variables. The workers' are in servicekit/worker_settings.py."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from labour.application.allowances import Allowances
from servicekit.countries import load_countries
from servicekit.http.http_limits import HttpLimits
from servicekit.http.operator_access import OperatorSettings
from servicekit.settings import Environment
from servicekit.worker_settings import load_database_url, load_replay_horizon_days, load_retention_days

LOCAL_SECRET = "local-secret-for-tokens-on-this-machine"  # noqa: S105  (used in local mode only)


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """LABOUR_DATABASE_URL   postgresql+asyncpg://…?sslmode=verify-full, the service's own database. Outside local mode TLS with
                             a verified server is required, unless it is at a unix socket or loopback; messaging/tls.py.
                             For an instance of Cloud SQL without a proxy:
                             postgresql+asyncpg://USER@/DATABASE?cloudsql=PROJECT:REGION:INSTANCE; messaging/cloud_sql.py
    PUBSUB_PROJECT_ID        the project of our topics and subscriptions, for the workers
    OPERATOR_READ_TOKENS, OPERATOR_WRITE_TOKENS, LABOUR_OPERATORS_…   the tokens of operators, and the address of their
                             listener: servicekit/http/operator_access.py
    JWKS_URL, TOKEN_ISSUER   the address of the keys that verify callers' tokens, and their issuer; required unless local.
                             Outside local mode the address must be https
    TOKEN_AUDIENCE           the audience that tokens must name (fernlabour)
    TOKEN_SECRET             the shared secret of local tokens; ignored outside local mode
    LABOUR_API_HOST, LABOUR_API_PORT   the address of the API (127.0.0.1, 8401)
    SMS_COUNTRIES            countries whose mobile numbers may be texted, as ISO 3166 codes separated by commas (North
                             America, Australia, New Zealand and most of western Europe: servicekit/countries.py)
    LABOURS_PER_DAY, PEOPLE_PER_DAY, SEGMENTS_PER_DAY   what an account may use in a day, over all its labours:
                             labours planned (5), people added (60), segments of announcements (1000); local 1000, 10000, 1000000
    CORS_ORIGINS             origins of pages that may call the API from a browser, separated by commas (none)
    RATE_LIMIT_PER_MINUTE    changes that one caller may request in a minute (120; local 6000)
    READ_LIMIT_PER_MINUTE    reads that one caller may request in a minute (1200; local 60000)
    SECURITY_LOG_KEY         key of the hash that names a caller in the security log (random for each process, so set it to
                             recognise a caller across processes and restarts)
    HTTP_…                   how much the API accepts at a time: servicekit/http/http_limits.py
    """

    local: bool
    database_url: str
    operators: OperatorSettings
    jwks_url: str
    token_issuer: str
    token_audience: str
    token_secret: str
    cors_origins: tuple[str, ...]
    api_host: str
    api_port: int
    rate_limit_per_minute: int
    read_limit_per_minute: int
    retention_days: int
    replay_horizon_days: int
    security_log_key: str
    http: HttpLimits
    allowances: Allowances

    @classmethod
    def load(cls, variables: Mapping[str, str] = os.environ) -> "ApiSettings":
        environment = Environment(variables)
        settings = cls(
            local=environment.local,
            database_url=load_database_url(environment, "labour"),
            operators=OperatorSettings.load(environment, "LABOUR", port=8407),
            jwks_url=environment.url("JWKS_URL", environment.text("JWKS_URL", local="")),
            token_issuer=environment.text("TOKEN_ISSUER", local=""),
            token_audience=environment.optional("TOKEN_AUDIENCE", "fernlabour"),
            token_secret=environment.secret("TOKEN_SECRET", LOCAL_SECRET) if environment.local else "",
            cors_origins=tuple(filter(None, environment.optional("CORS_ORIGINS").replace(" ", "").split(","))),
            api_host=environment.optional("LABOUR_API_HOST", "127.0.0.1"),
            api_port=environment.number("LABOUR_API_PORT", 8401, int, least=1),
            rate_limit_per_minute=environment.number(
                "RATE_LIMIT_PER_MINUTE", 6000 if environment.local else 120, int, least=1
            ),
            read_limit_per_minute=environment.number(
                "READ_LIMIT_PER_MINUTE", 60_000 if environment.local else 1200, int, least=1
            ),
            retention_days=load_retention_days(environment),
            replay_horizon_days=load_replay_horizon_days(environment),
            security_log_key=environment.secret("SECURITY_LOG_KEY"),
            http=HttpLimits.load(environment),
            allowances=_allowances(environment),
        )
        environment.check()
        return settings


def _allowances(environment: Environment) -> Allowances:
    default = Allowances(labours=1000, people=10_000, segments=1_000_000) if environment.local else Allowances()
    return Allowances(
        load_countries(environment),
        labours=environment.number("LABOURS_PER_DAY", default.labours, int, least=1),
        people=environment.number("PEOPLE_PER_DAY", default.people, int, least=1),
        segments=environment.number("SEGMENTS_PER_DAY", default.segments, int, least=1),
    )
