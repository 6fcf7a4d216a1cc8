"""Log lines: a message and named facts, as text for people or JSON for machines."""

import logging
import sys
import threading
from typing import Any, TextIO, cast

import structlog

from penstock.core.visible_text import visible, visible_line


def configure_logs(log_format: str) -> None:
    """Log to standard error; standard output is for answers."""
    forms: dict[str, list[structlog.typing.Processor]] = {
        "json": [structlog.processors.JSONRenderer(ensure_ascii=True)],
        "text": [_show_controls, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())],
    }
    common: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    _LIBRARIES.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=common,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *forms[log_format],
            ],
        )
    )
    structlog.configure(
        processors=[*common, *forms[log_format]],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _StandardError())),
        cache_logger_on_first_use=True,
    )


def log_everything() -> None:
    """Log what libraries say too, and unexpected errors."""
    logging.getLogger().addHandler(_LIBRARIES)
    logging.captureWarnings(True)
    sys.excepthook = lambda *crash: _log_crash("the process crashed", crash)
    threading.excepthook = lambda crash: _log_crash(
        "a thread crashed", (crash.exc_type, crash.exc_value, crash.exc_traceback)
    )
    sys.unraisablehook = lambda crash: _log_crash(
        "an error was ignored", (crash.exc_type, crash.exc_value, crash.exc_traceback)
    )


def _log_crash(event: str, crash: Any) -> None:
    structlog.get_logger().error(event, exc_info=crash)


def _show_controls(
    _logger: Any, _method: str, facts: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Escape control characters in facts, so that none begins a line that looks like an entry."""
    return {
        name: (visible if name == "exception" else visible_line)(value)
        if isinstance(value, str)
        else value
        for name, value in facts.items()
    }


class _StandardError:
    """Standard error as it is when something is written."""

    def write(self, text: str) -> None:
        sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


_LIBRARIES = logging.StreamHandler(cast(TextIO, _StandardError()))
