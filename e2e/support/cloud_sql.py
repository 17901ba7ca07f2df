"""A stand-in for one instance of Cloud SQL and for what Google's connector asks about it: the token endpoint and the Admin API.

The port of an instance is 3307, and the connector knows no other. So the instance has a loopback address of its own, in front of
the PostgreSQL of the tests. A real instance also checks the token in the certificate of an IAM user; here, PostgreSQL lets in the
IAM user without a password.
"""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from e2e.support.tls_front import Authority, tls_front

PORT = 3307
INSTANCE = "fern-project:europe-west1:labour"
IAM_USER = "fern-api@fern-project.iam"
ADMIN, LOGIN = (f"https://www.googleapis.com/auth/sqlservice.{scope}" for scope in ("admin", "login"))


class CloudSql:
    """`api` is the address of the Admin API, and `credentials` a file as GOOGLE_APPLICATION_CREDENTIALS names it."""

    def __init__(self, directory: Path, address: str) -> None:
        self.address, self.api, self.credentials = address, "", directory / "credentials.json"
        self.authority, self.clients = Authority(directory, "instance"), Authority(directory, "clients")
        self.refuses = ""  # the reason, if the API answers 403
        self.answers = threading.Event()  # cleared: the API does not answer
        self.answers.set()
        self.asked = 0  # requests
        self.logins = list[str | None]()  # the scope of the token in each client certificate
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def serve_at(self, api: str) -> None:
        self.api = api
        pem = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        account = {
            "type": "service_account",
            "project_id": "fern-project",
            "client_email": f"{IAM_USER}.gserviceaccount.com",
        }
        account |= {"token_uri": f"http://{api}/token", "private_key": pem.decode()}
        self.credentials.write_text(json.dumps(account))

    def token(self, body: bytes) -> dict[str, Any]:
        """For the scope in the signed request."""
        [assertion] = parse_qs(body.decode())["assertion"]
        claims = jwt.decode(assertion, self._key.public_key(), ["RS256"], options={"verify_aud": False})
        return {"access_token": f"for {claims['scope']}", "expires_in": 3600, "token_type": "Bearer"}

    def settings(self) -> dict[str, Any]:
        return {
            "region": "europe-west1",
            "databaseVersion": "POSTGRES_18",
            "ipAddresses": [{"type": "PRIVATE", "ipAddress": self.address}],
            "serverCaCert": {"cert": self.authority.file.read_text()},
        }

    def certificate(self, body: bytes) -> dict[str, Any]:
        asked = json.loads(body)
        self.logins.append(asked["access_token"].removeprefix("for ") if "access_token" in asked else None)
        key = serialization.load_pem_public_key(asked["public_key"].encode())
        assert isinstance(key, rsa.RSAPublicKey)
        return {"ephemeralCert": {"cert": self.clients.certify("client", key).decode()}}


def _api(cloud: CloudSql) -> type[BaseHTTPRequestHandler]:
    instance = "/sql/v1beta4/projects/fern-project/instances/labour"

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])))

        def _answer(self, body: bytes) -> None:
            if self.path == "/token":
                return self._send(200, cloud.token(body))
            cloud.asked += 1
            cloud.answers.wait(60)
            if self.headers["Authorization"] != f"Bearer for {ADMIN}":
                return self._send(401, {"error": {"message": "the token is not valid"}})
            if cloud.refuses:
                return self._send(403, {"error": {"message": cloud.refuses}})
            if self.path == f"{instance}/connectSettings":
                return self._send(200, cloud.settings())
            if self.path == f"{instance}:generateEphemeralCert":
                return self._send(200, cloud.certificate(body))
            return self._send(404, {"error": {"message": f"no such instance: {self.path}"}})

        def _send(self, status: int, answer: dict[str, Any]) -> None:
            with suppress(OSError):  # a client that gave up
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None:
            pass

    return Api


@contextmanager
def cloud_sql(directory: Path, target: tuple[str, int], *, certified_by: Authority | None = None) -> Iterator[CloudSql]:
    """An instance in front of the PostgreSQL at `target`. Its certificate is of the authority that the API names, or another."""
    cloud = CloudSql(directory, _free_address())
    chain = (certified_by or cloud.authority).issue("server")
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), _api(cloud)) as api,
        tls_front(target, chain, at=(cloud.address, PORT), clients=cloud.clients),
    ):
        threading.Thread(target=api.serve_forever, daemon=True).start()
        cloud.serve_at(f"127.0.0.1:{api.server_address[1]}")
        try:
            yield cloud
        finally:
            cloud.answers.set()
            api.shutdown()


def _free_address() -> str:
    """A loopback address whose port is free. macOS has only the first."""
    for last in range(1, 255):
        with suppress(OSError), socket.create_server((f"127.0.0.{last}", PORT)):
            return f"127.0.0.{last}"
    raise OSError(f"port {PORT} is taken at every loopback address")
