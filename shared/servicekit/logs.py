"""Structured logs: a constant sentence plus fields, one JSON object a line, and no personal data in any of it.

Masking is the last step before a line is written. It covers our fields, other libraries' messages and the text of exceptions:
fields with a personal name, such as `phone`, are replaced, and everything that looks like a phone number is masked, in one pass
over the whole line.
"""

import json
import logging
import os
import sys
from datetime import datetime
from typing import Any

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from messaging import clock, telemetry
from messaging.masking import mask

_PRIVATE_FIELDS = frozenset(
    {"phone", "to", "from", "from_", "body", "text", "name", "mother_name", "baby_name", "person_name", "payload"}
)
_SEVERITIES = {"exception": "ERROR", "warn": "WARNING", "fatal": "CRITICAL"}  # others are named as their method
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


def _add_origin(project: str) -> Processor:
    """Adds the severity, the time and the current span. With a `project`, also under the names that Cloud Logging reads."""

    def add(_: WrappedLogger, method: str, fields: EventDict) -> EventDict:
        fields["severity"] = _SEVERITIES.get(method) or method.upper()
        fields["timestamp"] = clock.now()
        if span := telemetry.current_ids():
            fields["trace_id"], fields["span_id"] = span.trace_id, span.span_id
            if project:
                fields["logging.googleapis.com/trace"] = f"projects/{project}/traces/{span.trace_id}"
                fields["logging.googleapis.com/spanId"] = span.span_id
                fields["logging.googleapis.com/trace_sampled"] = span.sampled
        return fields

    return add


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
        _add_origin("" if os.environ.get("PUBSUB_EMULATOR_HOST") else os.environ.get("PUBSUB_PROJECT_ID", "")),
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
    # Other libraries describe their own work at DEBUG: connections, frames, retries.
    root.handlers, root.level = [handler], max(logging.getLevelName(level), logging.INFO)
    for noisy in ("uvicorn.access", "httpx", "twilio.async_http_client", "twilio.http_client"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    for propagating in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(propagating).handlers.clear()
        logging.getLogger(propagating).propagate = True
    structlog.contextvars.bind_contextvars(process=process)
