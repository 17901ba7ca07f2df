"""A stand-in for what a process on Google Cloud talks to: the metadata server, which gives tokens, and pubsub.googleapis.com,
which asks for them over TLS. The services are not changed for it and find it as they find Google's.

gRPC reaches pubsub.googleapis.com through a proxy here (`grpc_proxy`), whose only destination is this machine. What arrives with
the right token is forwarded to our emulator.
"""

import json
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import grpc

from e2e.support.tls_front import Authority

HOST = "pubsub.googleapis.com"
THREADS = 100  # each stream has one
TOKEN = "a-token-of-the-metadata-server"
ACCOUNT = "fern@fern-local.iam.gserviceaccount.com"
METADATA = {
    "/": "",
    "/computeMetadata/v1/project/project-id": "fern-local",
    "/computeMetadata/v1/universe/universe-domain": "googleapis.com",
    "/computeMetadata/v1/instance/service-accounts/default/": json.dumps(
        {"email": ACCOUNT, "scopes": [], "aliases": ["default"]}
    ),
    "/computeMetadata/v1/instance/service-accounts/default/token": json.dumps(
        {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}
    ),
}


class PubSubApi(grpc.GenericRpcHandler):
    """Forwards every method, also those of one message: on the wire they are streams, too."""

    def __init__(self, emulator: str) -> None:
        self.accepts, self.methods, self.refused = TOKEN, set[str](), 0
        self._channel: Any = grpc.insecure_channel(emulator)

    def service(self, details: Any) -> Any:
        metadata = [pair for pair in details.invocation_metadata if pair[0] == "x-goog-request-params"]
        token = dict(details.invocation_metadata).get("authorization")

        def forward(requests: Any, context: Any) -> Iterator[bytes]:
            if token != f"Bearer {self.accepts}":
                self.refused += 1
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not valid")
            self.methods.add(details.method.rpartition("/")[2])
            call = self._channel.stream_stream(details.method)(requests, metadata=metadata)
            context.add_callback(call.cancel)
            try:
                yield from call
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())

        return grpc.stream_stream_rpc_method_handler(forward)


class _MetadataServer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = METADATA.get(self.path.partition("?")[0].replace(ACCOUNT, "default"))
        self.send_response(404 if body is None else 200)
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Type", "application/json" if body and body.startswith("{") else "text/plain")
        self.end_headers()
        self.wfile.write((body or "").encode())

    def log_message(self, *_: Any) -> None:
        pass


def _proxy_to(port: int) -> type[StreamRequestHandler]:
    class Proxy(StreamRequestHandler):
        rbufsize = 0  # what follows the headers is for the tunnel

        def handle(self) -> None:
            line = self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            if not line.startswith(f"CONNECT {HOST}:443 ".encode()):
                self.wfile.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
                return
            with socket.create_connection(("127.0.0.1", port)) as server:
                self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
                back = threading.Thread(target=_copy, args=(server, self.request), daemon=True)
                back.start()
                _copy(self.request, server)
                back.join()

    return Proxy


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


class _Proxies(ThreadingTCPServer):
    daemon_threads = True


@contextmanager
def google_cloud(directory: Path, emulator: str) -> Iterator[tuple[PubSubApi, dict[str, str]]]:
    """Yields the API, and the variables with which a process finds it. `emulator` is where our Pub/Sub emulator is."""
    authority, api = Authority(directory, "authority"), PubSubApi(emulator)
    chain = authority.issue(HOST).read_bytes()
    server = grpc.server(ThreadPoolExecutor(THREADS), handlers=[api])
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(chain, chain)]))
    server.start()
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), _MetadataServer) as metadata,
        _Proxies(("127.0.0.1", 0), _proxy_to(port)) as proxy,
    ):
        for one in (metadata, proxy):
            threading.Thread(target=one.serve_forever, daemon=True).start()
        where = f"127.0.0.1:{metadata.server_address[1]}"
        try:
            yield (
                api,
                {
                    "PUBSUB_EMULATOR_HOST": "",
                    "grpc_proxy": f"http://127.0.0.1:{proxy.server_address[1]}",
                    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": os.fspath(authority.file),
                    "GCE_METADATA_HOST": where,
                    "GCE_METADATA_IP": where,
                    "CLOUDSDK_CONFIG": os.fspath(directory),  # no credentials of the person who runs the tests
                    "GOOGLE_APPLICATION_CREDENTIALS": "",
                },
            )
        finally:
            server.stop(0).wait()
            for one in (metadata, proxy):
                one.shutdown()
