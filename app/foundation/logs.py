"""The log: one format for all lines on standard error.

Lines of Usher (structlog) and of libraries (logging: gunicorn, APScheduler, Alembic, SQLAlchemy) are text on a
terminal, otherwise one JSON object per line. Secrets are masked: values of keys that name one, and passwords and tokens
inside texts.
"""

import logging
import logging.config
import re
import sys
from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any, Literal, TextIO

import orjson
import structlog
from structlog.typing import EventDict, Processor

from app.foundation.configuration.schema import SettingsSection
from app.foundation.secrets import MASK

_SECRET_KEY = re.compile(r"(token|api_?key|secret|password|authorization|cookie|credential)s?$", re.IGNORECASE)
_SECRET_IN_TEXT = re.compile(r"(://[^:/?#@\s]*:)[^@/\s]*(?=@)|(\bbearer\s+)[\w.~+/=-]+", re.IGNORECASE)

_FIRST_KEYS = ("timestamp", "level", "event")

_QUIET = ("alembic", "apscheduler", "sqlalchemy", "urllib3", "asyncio", "filelock")
"""Libraries whose lines at INFO do not help an operator."""


class LogSettings(SettingsSection):
    """The section ``log``."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged. ``-v`` on the command line means debug."""
    format: Literal["auto", "text", "json"] = "auto"
    """``auto``: text on a terminal, JSON otherwise."""


def configure_logs(settings: LogSettings, *, stream: TextIO | None = None) -> None:
    """Sends all log lines of this process to ``stream`` (default: standard error)."""
    stream = stream or sys.stderr
    as_text = settings.format == "text" or (settings.format == "auto" and stream.isatty())
    level = settings.level.upper()
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S" if as_text else "iso", utc=not as_text),
        structlog.processors.StackInfoRenderer(),
    ]
    text_renderer = structlog.dev.ConsoleRenderer(
        colors=stream.isatty(), pad_event_to=34, exception_formatter=structlog.dev.plain_traceback, sort_keys=False
    )
    render = text_renderer if as_text else _render_json
    last: list[Processor] = [structlog.processors.format_exc_info, mask_secrets, render]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.DEBUG if level == "DEBUG" else logging.WARNING)
    if level == "DEBUG":
        # At DEBUG, SQLAlchemy logs the rows: personal data, and URLs with secrets.
        logging.getLogger("sqlalchemy").setLevel(logging.INFO)
    logging.captureWarnings(capture=True)
    # Usher's own lines bypass the standard logging module, which takes longer than a small response.
    structlog.configure(
        processors=[*shared, *last],
        logger_factory=lambda *names: _Writer(stream, *names),
        wrapper_class=structlog.make_filtering_bound_logger(level.lower()),
        # A service that reloads its settings may have used loggers of modules with the previous ones.
        cache_logger_on_first_use=False,
    )


class _Writer(structlog.WriteLogger):
    """Writes rendered lines, and has the name that ``add_logger_name`` adds to them."""

    def __init__(self, stream: TextIO, name: str = "app") -> None:
        super().__init__(stream)
        self.name = name


def _render_json(_logger: Any, _method: str, event: EventDict) -> str:
    """One JSON object, the most important keys first."""
    event = {key: event[key] for key in _FIRST_KEYS if key in event} | dict(event)
    return orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def mask_secrets(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """A structlog processor that masks secrets at any depth."""
    return {key: _masked(key, value) for key, value in event.items()}


@lru_cache(maxsize=1024)
def _names_a_secret(key: str) -> bool:
    return _SECRET_KEY.search(key) is not None


def _masked(key: Any, value: Any) -> Any:
    if isinstance(key, str) and _names_a_secret(key) and value not in (None, "", [], 0, False):
        return MASK
    if isinstance(value, str):
        if "://" not in value and "earer" not in value.lower():
            return value
        return _SECRET_IN_TEXT.sub(lambda match: (match[1] or match[2]) + MASK, value)
    if isinstance(value, MutableMapping):
        return {inner: _masked(inner, item) for inner, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_masked(None, item) for item in value]
    return value
