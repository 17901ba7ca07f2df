"""Reads settings from the environment and reports all invalid ones in one message.

Development defaults exist only in local mode (`FERN_MODE=local`). Elsewhere a missing setting, or a secret with its development
value, keeps the process from starting.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from messaging.errors import SettingsError

T = TypeVar("T")


class Environment:
    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables, self._problems = variables, list[str]()
        self.local = variables.get("FERN_MODE", "") == "local"
        if variables.get("FERN_CRASH_AT") and not self.local:
            self._problems.append("FERN_CRASH_AT is for local runs only: unset it")
        if self.number("FERN_CLOCK_OFFSET", 0.0, float, least=-1e9) and not self.local:
            self._problems.append("FERN_CLOCK_OFFSET is for local runs only: unset it")

    def text(self, name: str, *, local: str | None = None, secret: bool = False) -> str:
        """`local` is the value for local mode; with `secret` it is also refused as a value anywhere else."""
        value = self._variables.get(name, "").strip()
        if not value and self.local and local is not None:
            return local
        if not value:
            self._problems.append(f"{name} is not set: export {name}=…")
        elif secret and not self.local and value == local:
            self._problems.append(f"{name} has its development value: set a real one")
        return value

    def optional(self, name: str, default: str = "") -> str:
        return self._variables.get(name, "").strip() or default

    def number(self, name: str, default: T, parse: Callable[[str], T], *, least: float = 0) -> T:
        text = self._variables.get(name, "").strip()
        if not text:
            return default
        try:
            value = parse(text)
        except ValueError:
            self._problems.append(f"{name}={text!r} is not a number: export {name}={default}")
            return default
        if float(value) < least:  # type: ignore[arg-type]
            self._problems.append(f"{name}={text} is below {least:g}: export {name}={default}")
        return value

    def check(self) -> None:
        if self._problems:
            raise SettingsError("the settings are wrong:\n" + "\n".join(f"  - {problem}" for problem in self._problems))
