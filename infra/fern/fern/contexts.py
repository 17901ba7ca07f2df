"""The systems that the operators' commands can work on: `fern --context NAME`, or FERN_CONTEXT.

`local` is the system on this machine, and the default. Any other is a table of a TOML file, FERN_CONTEXTS or
~/.config/fern/contexts.toml, which contains no secret:

[staging]
labour = "https://labour-operators.staging.example.org"              the operators' listener of each service
notification = "https://notification-operators.staging.example.org"
pubsub_project = "fern-staging"                                      for topology and dead letters; optional
pubsub_emulator = "127.0.0.1:8404"                                   if the project is an emulator's
read_token = { file = "~/.config/fern/staging-read" }                for GET; optional if there is a write token
write_token = { env = "STAGING_WRITE_TOKEN" }                        for every other request; optional
identity_token = { env = "STAGING_IDENTITY" }                        Google's, for listeners on Cloud Run; optional

A token is the secret alone, without its name. Its file may be readable by its owner only (0600). A URL without TLS is accepted on
loopback only, where a tunnel ends, and so is an emulator.
"""

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fern.errors import LOCAL, ContextInvalid, OnlyLocal

_SERVICES = ("labour", "notification")
_TEXTS = (*_SERVICES, "pubsub_project", "pubsub_emulator")
_TOKENS = ("read_token", "write_token")
_SECRETS = (*_TOKENS, "identity_token")


@dataclass(frozen=True)
class Secret:
    """Where a token is. It is read when it is needed, and never printed."""

    kind: str  # "env" or "file"
    place: str

    def __str__(self) -> str:
        return f"${self.place}" if self.kind == "env" else self.place

    def problem(self) -> str | None:
        if self.kind == "env":
            return None if os.environ.get(self.place, "").strip() else "not set"
        try:
            mode = self._path.stat().st_mode
            if mode & 0o077:
                return f"readable by others (mode {mode & 0o777:04o}); chmod 600 {self.place}"
            return None if self._path.read_text().strip() else "empty"
        except (OSError, UnicodeDecodeError) as error:
            return str(getattr(error, "strerror", None) or "not text").lower()

    def read(self) -> str:
        return (os.environ[self.place] if self.kind == "env" else self._path.read_text()).strip()

    @property
    def _path(self) -> Path:
        return Path(self.place).expanduser()


@dataclass(frozen=True)
class Context:
    name: str
    labour: str
    notification: str
    pubsub_project: str | None = None
    pubsub_emulator: str | None = None
    read_token: Secret | None = None
    write_token: Secret | None = None
    identity_token: Secret | None = None

    def url(self, service: str) -> str:
        return {"labour": self.labour, "notification": self.notification}[service]

    def token(self, *, writing: bool) -> str:
        """The write token if `writing`, else the read token. Raises `ContextInvalid` if it is missing or cannot be read."""
        secret = self.write_token if writing else self.read_token or self.write_token
        if secret is None:
            raise self._invalid("has no write_token, so nothing can be changed with it.")
        return self._read(secret)

    def headers(self, *, writing: bool) -> dict[str, str]:
        """The tokens of a request: the operator's, and for Cloud Run, which checks it first, that of Google's identity."""
        headers = {"Authorization": f"Bearer {self.token(writing=writing)}"}
        if self.identity_token:
            headers["X-Serverless-Authorization"] = f"Bearer {self._read(self.identity_token)}"
        return headers

    def _read(self, secret: Secret) -> str:
        if problem := secret.problem():
            raise self._invalid(f"has a token that cannot be used: {secret} is {problem}.")
        return secret.read()

    def use_bus(self) -> str:
        """Point Google's client at the bus of the context. Returns the project."""
        if not self.pubsub_project:
            raise self._invalid("names no pubsub_project, which this command needs.")
        os.environ.pop("PUBSUB_EMULATOR_HOST", None)  # it may be that of another system
        if self.pubsub_emulator:
            os.environ["PUBSUB_EMULATOR_HOST"] = self.pubsub_emulator
        return self.pubsub_project

    def _invalid(self, what: str) -> ContextInvalid:
        return ContextInvalid(f"the context {self.name} {what}", command=f"fern context show {self.name}")


def file() -> Path:
    return Path(os.environ.get("FERN_CONTEXTS") or "~/.config/fern/contexts.toml").expanduser()


def current() -> Context | None:
    """The chosen context; None if it is the local one."""
    name = chosen()
    return None if name == LOCAL else find(name)


def chosen() -> str:
    return os.environ.get("FERN_CONTEXT") or LOCAL


def require_local(command: str) -> None:
    if (name := chosen()) != LOCAL:
        what = f"`fern {command}` works on the system of this machine only, and the context is {name}."
        raise OnlyLocal(what, command=f"fern --context {LOCAL} {command}")


def find(name: str) -> Context:
    contexts = declared()
    if name not in contexts:
        known = ", ".join((LOCAL, *contexts))
        raise ContextInvalid(f"there is no context {name} in {file()}; there are: {known}.", command="fern context ls")
    return _context(name, contexts[name])


def declared() -> dict[str, Any]:
    """The contexts that the file declares, as parsed TOML. The local context is not one of them."""
    try:
        content = tomllib.loads(file().read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ContextInvalid(f"{file()} cannot be read: {error}.", command=f"cat {file()}") from None
    if LOCAL in content:
        raise ContextInvalid(f"{file()} declares {LOCAL}, which is the system of this machine.")
    return content


def _context(name: str, content: Any) -> Context:
    def refuse(what: str) -> ContextInvalid:
        return ContextInvalid(f"the context {name} in {file()} {what}", command=f"grep -n -A 8 '{name}' {file()}")

    if not isinstance(content, Mapping):
        raise refuse("is not a table.")
    if unknown := sorted(content.keys() - {*_TEXTS, *_SECRETS}):
        raise refuse(f"has unknown keys: {', '.join(unknown)}.")  # never their values: one may be a secret
    texts = {key: content[key] for key in _TEXTS if key in content}
    if wrong := [key for key, value in texts.items() if not isinstance(value, str)]:
        raise refuse(f"has a {wrong[0]} that is not text.")
    if missing := [key for key in _SERVICES if key not in texts]:
        raise refuse(f"has no URL of the operators' listener of {' and '.join(missing)}.")
    for key in _SERVICES:
        texts[key] = texts[key].rstrip("/")
        if problem := _problem_with(texts[key]):
            raise refuse(f"has a URL for {key} that {problem}.")
    if (emulator := texts.get("pubsub_emulator")) and not _is_loopback(urlsplit(f"//{emulator}").hostname):
        raise refuse("has a pubsub_emulator that is not on loopback: an emulator has no TLS.")
    tokens = {key: content[key] for key in _SECRETS if key in content}
    for key, where in tokens.items():
        if not (isinstance(where, Mapping) and len(where) == 1 and {*where} <= {"env", "file"}):
            raise refuse(f'needs {key} = {{ env = "NAME" }} or {{ file = "PATH" }}; the file must not contain secrets.')
    if not tokens.keys() & {*_TOKENS}:
        raise refuse("has neither read_token nor write_token.")
    secrets = {key: Secret(*map(str, next(iter(where.items())))) for key, where in tokens.items()}
    reading, writing, identity = map(secrets.get, _SECRETS)
    return Context(name, **texts, read_token=reading, write_token=writing, identity_token=identity)


def _problem_with(url: str) -> str | None:
    parts = urlsplit(url)
    if parts.username or parts.password:
        return "contains a user name or a password"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "does not begin with https:// and a host"
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        return "has no TLS: use https://, or a tunnel that ends at 127.0.0.1"
    return None


def _is_loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
