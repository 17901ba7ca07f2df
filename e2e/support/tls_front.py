"""A PostgreSQL with TLS. The embedded server is built without it, so a front does the handshake and forwards to the server.

It begins as the server does: the client asks for TLS, the front answers `S`, and the handshake follows. A client that does not
ask is cut off, so whatever gets through was encrypted. If the system has a PostgreSQL of its own, that one does TLS itself.

As an instance of Cloud SQL it begins with the handshake, and the client has a certificate, too: `e2e.support.cloud_sql`.
"""

import select
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from e2e.support.ports import free_port_base
from fern.runtime.postgres import server_account

PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey
TLS_REQUEST = struct.pack("!ll", 8, 80877103)


class Authority:
    """A certificate authority. `file` has its certificate."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._key = directory, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        certificate = _unsigned(self._name, self._name, self._key.public_key()).add_extension(
            constraints, critical=True
        )
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(self._sign(certificate))

    def issue(self, host: str) -> Path:
        """A file with the key and the certificate of a server named `host`."""
        key = ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        chain = self._directory / f"{host}.pem"
        chain.write_bytes(private + self.certify(host, key.public_key()))
        return chain

    def certify(self, name: str, key: PublicKey) -> bytes:
        """A certificate for the key of a client or server that keeps its private half."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        return self._sign(_unsigned(subject, self._name, key).add_extension(names, critical=False))

    def _sign(self, certificate: x509.CertificateBuilder) -> bytes:
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = certificate.add_extension(identifier, critical=False)
        return certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _unsigned(subject: x509.Name, issuer: x509.Name, key: PublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


@contextmanager
def tls_front(
    target: tuple[str, int], chain: Path, *, at: tuple[str, int] = ("127.0.0.1", 0), clients: Authority | None = None
) -> Iterator[int]:
    """Yields the port of the front. With `clients` it asks for a certificate of theirs, and TLS begins without a request."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.file)
    with socket.create_server(at) as listener:

        def accept() -> None:
            with suppress(OSError):  # closed
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=_serve, args=(client, target, context, not clients), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts


def _serve(client: socket.socket, target: tuple[str, int], context: ssl.SSLContext, asks: bool) -> None:
    """One thread for both directions: a TLS connection must not be used by two at once."""
    with (
        suppress(OSError),
        client,
        socket.create_connection(target) as server,
    ):  # a refused certificate is an OSError too
        if asks:
            if client.recv(len(TLS_REQUEST), socket.MSG_WAITALL) != TLS_REQUEST:
                return
            client.sendall(b"S")
        with context.wrap_socket(client, server_side=True) as encrypted:
            while True:
                ready = [encrypted] if encrypted.pending() else select.select([encrypted, server], [], [])[0]
                for source in ready:
                    if not (data := source.recv(65536)):
                        return
                    (server if source is encrypted else encrypted).sendall(data)


def installed_programs() -> Path | None:
    """The directory of a PostgreSQL that the system's package manager installed; Debian's have TLS."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found else None


@contextmanager
def installed_server(programs: Path, chain: Path) -> Iterator[int]:
    """Yields the port of a server of its own, which accepts TLS only, and every user without a password."""
    with tempfile.TemporaryDirectory(prefix="fern-tls-") as directory:
        account, data, port = server_account(), Path(directory) / "data", free_port_base()
        if account:
            shutil.chown(directory, account)
        run = partial(subprocess.run, check=True, capture_output=True, timeout=60, user=account, cwd="/")
        run([programs / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-sync", "--locale=C"])
        (data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 trust\n")
        pair = data / "server.pem"
        pair.write_bytes(chain.read_bytes())
        pair.chmod(0o600)
        if account:
            shutil.chown(pair, account)
        options = f"-c ssl=on -c ssl_cert_file={pair} -c ssl_key_file={pair} -c fsync=off -c listen_addresses=127.0.0.1"
        options += f" -c port={port} -c unix_socket_directories="
        run([programs / "pg_ctl", "start", "-w", "-D", data, "-l", data / "log", "-o", options])
        try:
            yield port
        finally:
            run([programs / "pg_ctl", "stop", "-m", "immediate", "-D", data])
