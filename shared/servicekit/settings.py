"""Reads settings from the environment and reports all invalid ones in one message.

Development defaults exist only in local mode (`FERN_MODE=local`). Elsewhere a missing setting, or a secret with its development
value, keeps the process from starting.

A secret NAME can be given as NAME_FILE, the path of a file that contains it: an environment is inherited by child processes and
shown by many tools. Whitespace at the end of the file is removed. The file is read once, when the process starts.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from stat import S_IROTH, S_IWGRP, S_IWOTH
from typing import TypeVar
from urllib.parse import urlsplit

from structlog import get_logger

from messaging.cloud_sql import find_instance
from messaging.errors import SettingsError
from messaging.tls import VERIFIED, is_protected

T = TypeVar("T")
log = get_logger()


class Environment:
    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables, self._problems = variables, list[str]()
        self.local = variables.get("FERN_MODE", "") == "local"
        self.local_only("FERN_CRASH_AT")
        if self.number("FERN_CLOCK_OFFSET", 0.0, float, least=-1e9) and not self.local:
            self._problems.append("FERN_CLOCK_OFFSET is for local runs only: unset it")

    def text(self, name: str, *, local: str | None = None, secret: bool = False) -> str:
        """`local` is the value for local mode. A `secret` can be in a file, and outside local mode it must not be `local`."""
        value = self.secret(name) if secret else self.optional(name)
        reported = secret and self.optional(f"{name}_FILE")  # what is wrong with the file
        if not value and self.local and local is not None:
            return local
        if not value and not reported:
            self._problems.append(f"{name} is not set: export {name}=…")
        elif secret and not self.local and value == local:
            self.refuse(f"{name} has its development value: set a real one")
        return value

    def optional(self, name: str, default: str = "") -> str:
        return self._variables.get(name, "").strip() or default

    def secret(self, name: str, default: str = "") -> str:
        """The value of NAME, or what is in the file NAME_FILE. No message repeats it."""
        value, path = self.optional(name), self.optional(f"{name}_FILE")
        if not path:
            return value or default
        if value:
            self.refuse(f"{name} and {name}_FILE are both set: unset one")
            return ""
        try:
            mode, content = Path(path).stat().st_mode, Path(path).read_text().rstrip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            self.refuse(f"{name}_FILE={path} cannot be read: {reason}")
            return ""
        if not content:
            self.refuse(f"{name}_FILE={path} is empty: write the secret into it")
        elif not self.local and mode & (S_IWGRP | S_IWOTH):
            self.refuse(f"{name}_FILE={path} can be changed by other users: chmod go-w {path}")
        elif not self.local and mode & S_IROTH:
            log.warning("a file with a secret can be read by every user", setting=f"{name}_FILE", path=path)
        return content

    def database_url(self, name: str) -> str:
        """Outside local mode the connection must be verified TLS, made by Google's connector, or end on this machine."""
        value = self.text(name, secret=True)
        try:
            if value and not (find_instance(value) or is_protected(value)) and not self.local:
                self.refuse(
                    f"{name} does not verify its server: add ?sslmode={VERIFIED} (and &sslrootcert=FILE for an authority "
                    "of your own), connect to a proxy such as Cloud SQL's at 127.0.0.1 or a unix socket, or name an instance of "
                    "Cloud SQL: ?cloudsql=PROJECT:REGION:INSTANCE"
                )
        except SettingsError as error:
            self.refuse(f"{name} is wrong: {error}")
        return value

    def url(self, name: str, value: str) -> str:
        """Check the URL that was read for a setting: http or https, and outside local mode https only."""
        try:
            parts = urlsplit(value)
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            known = False
        if value and not known:
            self.refuse(f"{name} is no URL: export {name}=https://…")
        elif value and not self.local and parts.scheme != "https":
            self.refuse(f"{name} is not encrypted: export {name}=https://…")
        return value

    def local_only(self, name: str) -> str:
        """A setting that is refused outside local mode; empty if it is not set."""
        value = self.optional(name)
        if value and not self.local:
            self.refuse(f"{name} is for local runs only: unset it")
        return value

    def refuse(self, problem: str) -> None:
        """Report a problem together with all others, once. It must not contain a secret."""
        if problem not in self._problems:
            self._problems.append(problem)

    def number(self, name: str, default: T, parse: Callable[[str], T], *, least: float = 0) -> T:
        text = self._variables.get(name, "").strip()
        if not text:
            return default
        try:
            value = parse(text)
        except ValueError:
            self._problems.append(f"{name}={text!r} is not a number: export {name}={default}")
            return default
        if not least <= float(value) < math.inf:  # type: ignore[arg-type]  # also refuses nan
            self._problems.append(f"{name}={text} is not a number of at least {least:g}: export {name}={default}")
        return value

    def check(self) -> None:
        if self._problems:
            raise SettingsError("the settings are wrong:\n" + "\n".join(f"  - {problem}" for problem in self._problems))
