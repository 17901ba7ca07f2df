"""What the emulator refuses, and why.

PubSubError
├── Refused            an RPC answered with a gRPC status; the message names the field
│   └── StaleAckIds    exactly-once: some ack ids are no longer valid
└── DataFolderError    the process cannot start on this folder
    ├── DataFolderInUse
    └── DataFolderCorrupt
"""

from collections.abc import Sequence

from grpc import StatusCode


class PubSubError(Exception):
    pass


class Refused(PubSubError):
    def __init__(self, code: StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class StaleAckIds(Refused):
    def __init__(self, ack_ids: Sequence[str]) -> None:
        super().__init__(StatusCode.INVALID_ARGUMENT, "ack_ids: some are expired or were already used")
        self.ack_ids = ack_ids


def invalid(message: str) -> Refused:
    return Refused(StatusCode.INVALID_ARGUMENT, message)


def not_found(message: str) -> Refused:
    return Refused(StatusCode.NOT_FOUND, message)


class PortInUse(PubSubError):
    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"{host}:{port}")
        self.port = port


class DataFolderError(PubSubError):
    exit_code = 1


class DataFolderInUse(DataFolderError):
    exit_code = 3


class DataFolderCorrupt(DataFolderError):
    exit_code = 4
