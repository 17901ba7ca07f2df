"""Structured logs: a constant sentence plus fields, one JSON object a line, and no personal data in any of it.

Masking is the last step before a line is written. It covers our fields, other libraries' messages and the text of exceptions:
fields with a personal name, such as `phone`, are replaced, and everything that looks like a phone number is masked, in one pass
over the whole line.
"""

import json
import logging
import sys
from datetime import datetime
from typing import Any

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from messaging import clock
from messaging.masking import mask

_PRIVATE_FIELDS = frozenset(
    {"phone", "to", "from", "from_", "body", "text", "name", "mother_name", "person_name", "payload"}
)
_SCALARS = frozenset({str, int, float, bool, type(None), datetime})


def mask_value(value: Any) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {key: "[private]" if key in _PRIVATE_FIELDS else mask_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [mask_value(item) for item in value]
    if value is None or isinstance(value, bool | int | float | datetime):
        return value
    return mask(str(value))


def _add_time(_: WrappedLogger, __: str, fields: EventDict) -> EventDict:
    fields["timestamp"] = clock.now()
    return fields


def _to_line(_: WrappedLogger, __: str, fields: EventDict) -> str:
    if not (_PRIVATE_FIELDS.isdisjoint(fields) and _SCALARS.issuperset(map(type, fields.values()))):
        fields = mask_value(fields)
    try:
        line = msgspec.json.encode(fields).decode()
    except (TypeError, ValueError, OverflowError):  # half of a surrogate pair, or a key or number that is not JSON's
        line = json.dumps(fields, default=str, skipkeys=True)
    return mask(line)


class _Output:
    """Writes each line at once. A line that cannot be written, because the disk is full or the reader is gone, is dropped: a log
    line never fails its caller.
    """

    def write(self, line: str) -> None:
        try:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except (OSError, ValueError):
            pass

    debug = info = warning = error = critical = exception = write


def configure(process: str, level: str = "INFO") -> None:
    """Call once per process. Records of other libraries are formatted and masked like ours."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        _add_time,
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, _to_line],
        logger_factory=lambda *_: _Output(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _to_line],
        )
    )
    root = logging.getLogger()
    root.handlers, root.level = [handler], logging.getLevelName(level)
    for noisy in ("uvicorn.access", "httpx", "twilio.async_http_client", "twilio.http_client"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    for propagating in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(propagating).handlers.clear()
        logging.getLogger(propagating).propagate = True
    structlog.contextvars.bind_contextvars(process=process)
