"""TLS to PostgreSQL: one meaning of the database URL for the pool and for every other connection.

sslmode       disable, prefer, require, verify-ca or verify-full, as in libpq. Without it the driver tries TLS and falls back to
              plaintext, as with `prefer`
sslrootcert   file with the certificate authority that signed the server's certificate; without it, or with `system`, the
              authorities of the operating system count. It is read once: restart the process after a change

The driver's own parameter `ssl` and all other parameters that begin with `ssl` are refused, because the pool and the raw
connections read them differently. A unix socket is never encrypted, whatever `sslmode` is.
"""

import ssl
from functools import lru_cache
from ipaddress import ip_address
from typing import Literal

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from messaging.errors import SettingsError

VERIFIED = "verify-full"
_MODES = ("disable", "prefer", "require", "verify-ca", VERIFIED)
_ALPN = "postgresql"  # the server demands it if TLS begins without a request, as with PGSSLNEGOTIATION=direct

# What the driver takes as `ssl`. With None it decides itself.
Tls = ssl.SSLContext | Literal["disable", "prefer"] | None


def split_tls(url: str) -> tuple[URL, Tls]:
    """The URL without its parameters for TLS, and what they mean. Raises `SettingsError`, which never repeats the URL."""
    parsed, mode, authority = _parse(url)
    plain = parsed.difference_update_query(["sslmode", "sslrootcert"])
    match mode:
        case "":
            return plain, None
        case "disable":
            return plain, "disable"
        case "prefer":
            return plain, "prefer"
        case _:
            return plain, _context(mode, authority)


def is_protected(url: str) -> bool:
    """True if no network can read or change what is sent: the server is verified, or it is on this machine."""
    parsed, mode, _ = _parse(url)
    split_tls(url)  # an authority that cannot be read is reported now
    given = parsed.query.get("host", ())
    hosts = [*(given.split(",") if isinstance(given, str) else given), *([parsed.host] if parsed.host else [])]
    return mode == VERIFIED or (bool(hosts) and all(map(_is_here, hosts)))


def parse(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        raise SettingsError("it is no database URL: write postgresql+asyncpg://user:password@host/database") from None


def _parse(url: str) -> tuple[URL, str, str]:
    parsed = parse(url)
    given = {name: value for name, value in parsed.query.items() if name.startswith("ssl")}
    for name, value in given.items():
        if name not in ("sslmode", "sslrootcert"):
            raise SettingsError(
                f"it has the parameter {name}: write sslmode={VERIFIED}, and sslrootcert=FILE if needed"
            )
        if not isinstance(value, str):
            raise SettingsError(f"it has {name} more than once: keep one")
    mode, authority = str(given.get("sslmode", "")), str(given.get("sslrootcert", ""))
    if mode not in ("", *_MODES):
        raise SettingsError(f"it has an unknown sslmode: write one of {', '.join(_MODES)}")
    if authority and mode not in ("require", "verify-ca", VERIFIED):
        raise SettingsError(f"it has sslrootcert, which this sslmode does not use: write sslmode={VERIFIED}")
    if mode == "verify-ca" and authority in ("", "system"):
        raise SettingsError(
            "it has sslmode=verify-ca without an authority of your own, which accepts any certificate of a public one: "
            f"write sslmode={VERIFIED}, or add sslrootcert=FILE"
        )
    return parsed, mode, authority


@lru_cache
def _context(mode: str, authority: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=None if authority in ("", "system") else authority)
    except OSError as error:  # also for a file that has no certificate
        raise SettingsError(
            f"sslrootcert={authority} cannot be used ({error.strerror or type(error).__name__}): "
            "name a PEM file with the certificate of the authority"
        ) from None
    context.check_hostname = mode == VERIFIED
    if mode == "require" and not authority:
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([_ALPN])
    return context


def _is_here(host: str) -> bool:
    """True for a unix socket and for loopback, where a Cloud SQL Auth Proxy listens."""
    if host.startswith("/") or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
