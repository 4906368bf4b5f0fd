"""Logs of workers: JSON lines, or text for a terminal, with run, task and position as fields."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog

#: Fields of log records beside their message.
FIELDS = ("run", "task", "candidate", "position", "ended", "seconds", "why")


def set_up(form: Literal["json", "text"], level: int = logging.INFO) -> None:
    """Write log records to stderr: of `worker` from `level` on, of all other loggers warnings."""
    shared = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(FIELDS),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _without_nothing,
    ]
    last = (
        structlog.processors.JSONRenderer(sort_keys=True)
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("worker").setLevel(level)


def _without_nothing(_logger: object, _name: str, event: dict) -> dict:
    return {key: value for key, value in event.items() if value is not None}
