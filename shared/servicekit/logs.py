"""Structured logs: a constant sentence plus fields, one JSON object a line, and no personal data in any of it.

Masking is the last step before a line is written. It covers our fields, other libraries' messages and the text of exceptions:
fields with a personal name, such as `phone`, are replaced, and everything that looks like a phone number is masked.
"""

import logging
import sys
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from messaging.masking import mask

_PRIVATE_FIELDS = frozenset(
    {"phone", "to", "from", "from_", "body", "text", "name", "mother_name", "person_name", "payload"}
)


def mask_value(value: Any) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {key: "[private]" if key in _PRIVATE_FIELDS else mask_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [mask_value(item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return mask(str(value))


def _mask_everything(_: WrappedLogger, __: str, fields: EventDict) -> EventDict:
    masked: EventDict = mask_value(dict(fields))
    return masked


def configure(process: str, level: str = "INFO") -> None:
    """Call once per process. Records of other libraries are formatted and masked like ours."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _mask_everything,
                structlog.processors.JSONRenderer(sort_keys=False),
            ],
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
