"""Log lines: a message and named facts, as text for people or JSON for machines."""

import logging
import sys
from typing import Any, TextIO, cast

import structlog

from penstock.visible_text import visible, visible_line


def configure_logs(log_format: str) -> None:
    """Log lines go to standard error; standard output is for answers."""
    forms: dict[str, list[structlog.typing.Processor]] = {
        "json": [structlog.processors.JSONRenderer(ensure_ascii=True)],
        "text": [_show_controls, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())],
    }
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *forms[log_format],
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _StandardError())),
        cache_logger_on_first_use=True,
    )


def _show_controls(
    _logger: Any, _method: str, facts: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Facts are often texts of others: they hold no control characters, and begin no line that
    looks like another entry. A traceback has lines."""
    return {
        name: (visible if name == "exception" else visible_line)(value)
        if isinstance(value, str)
        else value
        for name, value in facts.items()
    }


class _StandardError:
    """Whatever standard error is at the time: who runs a command in a process may change it."""

    def write(self, text: str) -> None:
        sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()
