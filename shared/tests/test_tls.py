"""TLS to PostgreSQL means the same for the pool and for raw connections."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.support.connecting import Connect, both
from e2e.support.tls_front import Authority, installed_programs, installed_server, tls_front
from fern.runtime.postgres import TemporaryServer
from messaging.database import describe, is_transient
from messaging.errors import SettingsError
from messaging.tls import is_protected, split_tls

ENCRYPTED = "SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="module", params=["front", "installed"])
def port(request: pytest.FixtureRequest, postgres: TemporaryServer, authority: Authority) -> Iterator[int]:
    """The port of a server that accepts only TLS and whose certificate is for `localhost`."""
    chain, programs = authority.issue("localhost"), installed_programs()
    if request.param == "front":
        with tls_front((postgres.host, postgres.port), chain) as port:
            yield port
    elif programs is None:
        pytest.skip("no PostgreSQL is installed on this system; the embedded one has no TLS")
    else:
        with installed_server(programs, chain) as port:
            yield port


def at(host: str, port: int, parameters: str = "") -> str:
    return f"postgresql+asyncpg://postgres:postgres@{host}:{port}/postgres{parameters}"


@both
async def test_a_verified_server_is_used_and_the_connection_is_encrypted(
    connect: Connect, port: int, authority: Authority, request: pytest.FixtureRequest
) -> None:
    url = at("localhost", port, f"?sslmode=verify-full&sslrootcert={authority.file}")

    assert await connect(url) == "postgres"
    if request.node.callspec.params["port"] == "installed":  # behind a front the server itself sees no TLS
        assert await connect(url, ENCRYPTED) == "true"
    with pytest.raises(Exception, match=r"connection was closed|no pg_hba\.conf entry"):  # it accepts nothing else
        await connect(at("localhost", port, "?sslmode=disable"))


@both
async def test_a_certificate_of_another_authority_is_refused(connect: Connect, port: int, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")

    for parameters in (f"?sslmode=verify-full&sslrootcert={other.file}", "?sslmode=verify-full"):
        with pytest.raises(ssl.SSLCertVerificationError) as refused:
            await connect(at("localhost", port, parameters))

        assert is_transient(refused.value)  # a renewed certificate helps
        assert describe(refused.value).startswith("its certificate is refused: ")


@both
async def test_a_certificate_for_another_host_name_is_refused(
    connect: Connect, port: int, authority: Authority
) -> None:
    given = f"&sslrootcert={authority.file}"

    with pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for '127\.0\.0\.1'"):
        await connect(at("127.0.0.1", port, f"?sslmode=verify-full{given}"))

    assert await connect(at("127.0.0.1", port, f"?sslmode=verify-ca{given}")) == "postgres"


@both
@pytest.mark.parametrize("mode", ["require", "verify-full"])
async def test_a_server_without_tls_is_refused(connect: Connect, postgres: TemporaryServer, mode: str) -> None:
    with pytest.raises(ConnectionError, match="rejected SSL upgrade"):
        await connect(at("localhost", postgres.port, f"?sslmode={mode}"))


@both
@pytest.mark.parametrize("parameters", ["", "?sslmode=disable", "?sslmode=prefer"])
async def test_a_url_that_does_not_ask_for_tls_works_without_it(
    connect: Connect, postgres: TemporaryServer, parameters: str
) -> None:
    assert await connect(at("127.0.0.1", postgres.port, parameters)) == "postgres"


@both
@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ("?ssl=verify-full", "the parameter ssl: write sslmode=verify-full"),
        ("?ssl=disable&sslmode=verify-full", "the parameter ssl: write"),
        ("?sslmode=disable&sslmode=verify-full", "sslmode more than once"),
        ("?sslmode=verify", "unknown sslmode: write one of disable, prefer, require, verify-ca, verify-full"),
        ("?sslmode=prefer&sslrootcert=ca.pem", "sslrootcert, which this sslmode does not use"),
        ("?sslrootcert=ca.pem", "sslrootcert, which this sslmode does not use"),
        ("?sslmode=verify-ca", "without an authority of your own"),
        ("?sslmode=verify-full&sslrootcert=/no/ca.pem", "/no/ca.pem cannot be used .No such file"),
        ("?sslmode=verify-full&sslcert=client.pem", "the parameter sslcert"),
    ],
)
async def test_what_is_contradictory_or_unknown_is_refused(connect: Connect, parameters: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as refused:
        await connect(at("db.example", 5432, parameters))

    assert "postgres:postgres" not in str(refused.value)


def test_a_file_without_a_certificate_is_no_authority(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN NOTHING-----")

    with pytest.raises(SettingsError, match="name a PEM file"):
        split_tls(at("db.example", 5432, f"?sslmode=verify-full&sslrootcert={tmp_path}/ca.pem"))


@pytest.mark.parametrize(
    ("address", "protected"),
    [
        ("db.example/n?sslmode=verify-full", True),
        ("db.example/n?sslmode=verify-full&sslrootcert=system", True),
        ("db.example/n?sslmode=require", False),
        ("db.example/n", False),
        ("127.0.0.1/n", True),
        ("[::1]:5432/n", True),
        ("localhost/n?sslmode=disable", True),
        ("/n?host=/cloudsql/project:region:instance", True),
        ("/n?host=db.example", False),
        ("127.0.0.1/n?host=db.example", False),
        ("/n?host=127.0.0.1&host=db.example", False),
        ("/n?host=127.0.0.1,db.example", False),
        ("localhost.example/n", False),
        ("/n", False),
    ],
)
def test_protected_is_a_verified_server_or_one_on_this_machine(address: str, protected: bool) -> None:
    assert is_protected(f"postgresql+asyncpg://n:n@{address}") is protected
