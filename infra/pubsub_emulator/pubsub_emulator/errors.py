"""The errors of the emulator: refused requests, and reasons for which it cannot start.

PubSubError
├── CallRefused           an RPC is answered with a gRPC status; the message names the field
│   └── StaleAckIds       exactly-once: some ack ids are no longer valid
├── BadFault              (in `faults`) a fault cannot be set as asked
├── UnknownFault          (in `faults`) there is no fault of this name
├── BodyTooLarge          a request to the HTTP port has more bytes than it may
└── CannotStart           the process ends with `exit_code`; `command` shows more, or helps
    ├── DataFolderInUse    3
    ├── DataFolderCorrupt  4
    └── PortInUse         10
"""

import subprocess
from collections.abc import Sequence

from grpc import StatusCode


class PubSubError(Exception):
    pass


class CallRefused(PubSubError):
    def __init__(self, code: StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class StaleAckIds(CallRefused):
    def __init__(self, ack_ids: Sequence[str]) -> None:
        super().__init__(StatusCode.INVALID_ARGUMENT, "ack_ids: some are expired or were already used")
        self.ack_ids = ack_ids


def invalid(message: str) -> CallRefused:
    return CallRefused(StatusCode.INVALID_ARGUMENT, message)


def not_found(message: str) -> CallRefused:
    return CallRefused(StatusCode.NOT_FOUND, message)


class BodyTooLarge(PubSubError):
    def __init__(self, limit: int) -> None:
        super().__init__(f"the body has more than {limit} bytes")


class CannotStart(PubSubError):
    exit_code = 1
    command = ""


class DataFolderInUse(CannotStart):
    exit_code = 3


class DataFolderCorrupt(CannotStart):
    exit_code = 4


class PortInUse(CannotStart):
    exit_code = 10

    def __init__(self, host: str, port: int) -> None:
        holder = _listener_on(port)
        super().__init__(f"cannot listen on {host}:{port}" + (f": {holder} has the port." if holder else "."))
        self.command = f"lsof -i :{port}"


def _listener_on(port: int) -> str:
    """The program that listens on the port; empty if `lsof` is missing or may not see it."""
    command = ["lsof", "-nP", f"-iTCP:{port}", "-sTCP:LISTEN", "-Fpc"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{lines[1][1:]} (pid {lines[0][1:]})" if len(lines) > 1 else ""  # p1234, cpython
