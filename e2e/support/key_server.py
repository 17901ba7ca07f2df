"""An identity provider for tests: it publishes its keys at an address, and they can be added and withdrawn."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class KeyServer:
    """`fetches` counts the requests for its keys. While `answers` is False it answers 500."""

    def __init__(self) -> None:
        self.url, self.fetches, self.answers = "", 0, True
        self.keys: dict[str, dict[str, Any]] = {}
        self.add("one")

    def add(self, key_id: str, **more: str) -> None:
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
        self.keys[key_id] = {**public, "kid": key_id, "use": "sig", **more}

    def withdraw(self, key_id: str) -> None:
        del self.keys[key_id]

    def token(self, key_id: str = "one", **claims: Any) -> str:
        """Claims that are None are left out."""
        everyone = {"iss": self.url, "exp": datetime.now(UTC) + timedelta(hours=1)}
        given = {name: value for name, value in {**everyone, **claims}.items() if value is not None}
        return jwt.encode(given, KEY, algorithm="RS256", headers={"kid": key_id})


@contextmanager
def key_server() -> Iterator[KeyServer]:
    provider = KeyServer()

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.fetches += 1
            self.send_response(200 if provider.answers else 500)
            self.end_headers()
            self.wfile.write(json.dumps({"keys": [*provider.keys.values()]}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Keys) as server:
        provider.url = f"http://127.0.0.1:{server.server_address[1]}"
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield provider
        finally:
            server.shutdown()
