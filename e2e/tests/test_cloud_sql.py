"""Google's connector, as it is, connects the services to an instance of Cloud SQL: see e2e/support/cloud_sql.py."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from ssl import SSLCertVerificationError
from urllib.parse import quote

import asyncpg
import pytest
from alembic.command import upgrade
from alembic.config import Config
from google.cloud.sql.connector import connector
from sqlalchemy import make_url

from e2e.support.cloud_sql import IAM_USER, INSTANCE, LOGIN, CloudSql, cloud_sql
from e2e.support.connecting import Connect, both
from e2e.support.databases import connect as connect_directly
from e2e.support.databases import fresh_database
from e2e.support.tls_front import Authority
from e2e.support.waiting import eventually
from fern.audit.auditor import audit
from fern.runtime.postgres import TemporaryServer
from fern.settings import PROJECT_ROOT
from messaging.cloud_sql import ConnectorFailed, find_instance
from messaging.database import connect_raw, create_engine, describe, driver_connection, is_transient
from messaging.errors import SettingsError
from messaging.wakeups import Listener, Waker
from servicekit.settings import Environment

IAM = quote(f"{IAM_USER}.gserviceaccount.com")
PATIENCE = 60.0  # seconds
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND application_name = $2"
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND application_name = $2"


def find(monkeypatch: pytest.MonkeyPatch, cloud: CloudSql) -> None:
    """Let Google's library find the stand-in where it would find Google."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(cloud.credentials))
    monkeypatch.setattr(connector, "_DEFAULT_SCHEME", "http://")
    monkeypatch.setattr(connector, "_SQLADMIN_HOST_TEMPLATE", cloud.api)


@pytest.fixture
def cloud(postgres: TemporaryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CloudSql]:
    with cloud_sql(tmp_path, (postgres.host, postgres.port)) as cloud:
        find(monkeypatch, cloud)
        yield cloud


@pytest.fixture
async def database(postgres: TemporaryServer) -> str:
    """The name of a database of the Labour service, which an IAM user may open."""
    name = str(make_url(await fresh_database(postgres, "labour")).database)
    admin = await connect_directly(postgres.dsn())
    if not await admin.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", IAM_USER):
        await admin.execute(f'CREATE ROLE "{IAM_USER}" LOGIN IN ROLE labour')
        let_in(IAM_USER, Path(await admin.fetchval("SHOW hba_file")))
        await admin.fetchval("SELECT pg_reload_conf()")
        await eventually(lambda: is_let_in(postgres.dsn(name, quote(IAM_USER), "none")))
    await admin.close()
    return name


def let_in(user: str, rules: Path) -> None:
    rules.write_text(f'host all "{user}" 127.0.0.1/32 trust\n{rules.read_text()}')


async def is_let_in(dsn: str) -> bool:
    try:
        await (await connect_directly(dsn)).close()
    except asyncpg.PostgresError:
        return False
    return True


@pytest.fixture
async def admin(postgres: TemporaryServer) -> AsyncIterator[asyncpg.Connection]:
    connection = await connect_directly(postgres.dsn())
    yield connection
    await connection.close()


def at(database: str, user: str = "labour:labour", parameters: str = "") -> str:
    return f"postgresql+asyncpg://{user}@/{database}?cloudsql={INSTANCE}{parameters}"


@both
@pytest.mark.parametrize(
    ("user", "role", "login"), [("labour:labour", "labour", None), (IAM, IAM_USER, LOGIN)], ids=["password", "iam"]
)
async def test_a_process_logs_in_with_its_password_or_without_one_as_an_iam_user(
    connect: Connect, user: str, role: str, login: str | None, cloud: CloudSql, database: str
) -> None:
    assert await connect(at(database, user)) == role

    assert cloud.logins == [login]


async def test_a_connection_that_only_listens_is_woken_before_and_after_it_was_cut(
    cloud: CloudSql, database: str, admin: asyncpg.Connection
) -> None:
    woken = asyncio.Event()

    async def wait_for_it() -> None:
        await asyncio.wait_for(woken.wait(), PATIENCE)
        woken.clear()

    listener = Listener(at(database), "work", woken.set, process="test")
    waker = Waker(at(database), "work", process="test")
    async with running(listener, waker):
        await wait_for_it()  # it listens
        waker.wake()
        await wait_for_it()
        assert await admin.fetchval(CUT, database, "test:listen")
        await wait_for_it()  # it listens again
        waker.wake()
        await wait_for_it()


@asynccontextmanager
async def running(*both: Listener | Waker) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(one.run()) for one in both]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_the_pool_replaces_a_connection_that_was_cut(
    cloud: CloudSql, database: str, admin: asyncpg.Connection
) -> None:
    engine = create_engine(at(database), process="pool", pool_size=1, connect_timeout=PATIENCE)
    async with driver_connection(engine) as connection:
        await connection.execute("SELECT")

        assert await admin.fetchval(CUT, database, "pool")
        with pytest.raises(Exception) as cut:  # noqa: PT011  (which one depends on what the driver was doing)
            await connection.execute("SELECT")

    assert is_transient(cut.value)
    async with driver_connection(engine) as connection:
        assert await connection.fetchval("SELECT current_user") == "labour"
    await engine.dispose()


@both
async def test_an_instance_with_the_certificate_of_another_authority_is_refused(
    connect: Connect, postgres: TemporaryServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Authority(tmp_path, "other")

    with cloud_sql(tmp_path, (postgres.host, postgres.port), certified_by=other) as imposter:
        find(monkeypatch, imposter)
        with pytest.raises(SSLCertVerificationError) as refused:
            await connect(at(database))

    assert is_transient(refused.value)
    assert describe(refused.value).startswith("its certificate is refused: ")


async def test_a_refusal_of_the_api_is_transient_and_named_for_all_attempts_at_once(
    cloud: CloudSql, database: str
) -> None:
    cloud.refuses = "missing permission cloudsql.instances.connect"

    failed = await asyncio.gather(
        *(connect_raw(at(database), process="test") for _ in range(10)), return_exceptions=True
    )

    assert {type(error) for error in failed} == {ConnectorFailed}
    for error in failed:
        assert isinstance(error, ConnectorFailed)
        assert is_transient(error)
        assert "missing permission cloudsql.instances.connect" in describe(error)
    cloud.refuses = ""
    connection = await connect_raw(at(database), process="test")
    await connection.close()


async def test_attempts_that_were_given_up_while_the_api_was_silent_spoil_none_and_leave_no_session(
    cloud: CloudSql, database: str, admin: asyncpg.Connection
) -> None:
    engine = create_engine(at(database), process="pool", pool_size=30, connect_timeout=1)
    cloud.answers.clear()

    given_up = await asyncio.gather(*(engine.connect() for _ in range(30)), return_exceptions=True)
    cloud.answers.set()

    assert {type(error) for error in given_up} == {TimeoutError}
    connection = await connect_raw(at(database), process="test")  # with the certificate that they asked for
    assert cloud.asked == 2
    await connection.close()
    await eventually(lambda: admin.fetchval(SESSIONS, database, "pool"), lambda count: count == 0)
    await engine.dispose()


async def test_migrations_and_the_audit_connect_like_the_services(
    cloud: CloudSql, postgres: TemporaryServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = make_url(await fresh_database(postgres, "labour", "template0"))
    monkeypatch.setenv("LABOUR_DATABASE_URL", at(str(empty.database)))

    await asyncio.to_thread(upgrade, Config(PROJECT_ROOT / "services/labour/alembic.ini"), "head")

    migrated = await connect_directly(empty.render_as_string(hide_password=False))
    assert await migrated.fetchval("SELECT count(*) FROM outbox") == 0
    await migrated.close()
    notification = make_url(await fresh_database(postgres, "notification"))
    audited = {"labour": at(database), "notification": at(str(notification.database), "notification:notification")}
    report = await audit(audited, sandbox=None)
    assert report.clean


PROGRAM = """
import sys, uvloop
from messaging.database import connect_raw

direct, through_the_connector, api = sys.argv[1:]

async def main():
    await (await connect_raw(direct, process="test")).close()
    assert "google.cloud.sql.connector" not in sys.modules

    from google.cloud.sql.connector import connector
    connector._DEFAULT_SCHEME, connector._SQLADMIN_HOST_TEMPLATE = "http://", api
    connection = await connect_raw(through_the_connector, process="test")
    print(await connection.fetchval("SELECT current_user"))
    await connection.close()

uvloop.run(main())
"""


def test_the_library_is_imported_for_an_instance_only_and_closed_with_the_loop(
    cloud: CloudSql, labour_url: str, database: str
) -> None:
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", PROGRAM, labour_url, at(database), cloud.api]

    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "labour\n", "")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("n@/n?cloudsql=instance", "not the name of an instance: write cloudsql=PROJECT:REGION:INSTANCE"),
        ("n@/n?cloudsql=p:r:i&cloudsql=p:r:j", "not the name of an instance"),
        ("n@/n?cloudsql_ip=public", "not the name of an instance"),
        ("n@/n?cloudsql=p:r:i&cloudsql_ip=any", "unknown cloudsql_ip: write one of private, public, psc"),
        ("n@/n?cloudsql=p:r:i&cloudsql_iam=yes", "the parameter cloudsql_iam"),
        ("n@db.example/n?cloudsql=p:r:i", "beside a host"),
        ("n@/n?cloudsql=p:r:i&host=db.example", "beside a host"),
        ("n@/n?cloudsql=p:r:i&sslmode=verify-full", "beside a host or sslmode"),
        ("/n?cloudsql=p:r:i", "without a user or a database"),
        ("n@?cloudsql=p:r:i", "without a user or a database"),
    ],
)
def test_a_url_that_is_contradictory_or_incomplete_is_refused(url: str, reason: str) -> None:
    environment = Environment({"LABOUR_DATABASE_URL": f"postgresql+asyncpg://{url}"})

    environment.database_url("LABOUR_DATABASE_URL")

    with pytest.raises(SettingsError, match=f"LABOUR_DATABASE_URL is wrong: .*{reason}"):
        environment.check()


def test_an_instance_needs_no_sslmode_but_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = find_instance("postgresql+asyncpg://n@/n?cloudsql=example.com:p:r:i&cloudsql_ip=psc&timezone=UTC")
    assert instance
    assert (instance.name, instance.ip_type, dict(instance.url.query)) == (
        "example.com:p:r:i",
        "psc",
        {"timezone": "UTC"},
    )
    environment = Environment({"LABOUR_DATABASE_URL": at("labour")})
    environment.database_url("LABOUR_DATABASE_URL")
    environment.check()

    monkeypatch.setitem(sys.modules, "google.cloud.sql.connector", None)
    environment.database_url("LABOUR_DATABASE_URL")

    with pytest.raises(SettingsError, match="the library is missing: pip install"):
        environment.check()
