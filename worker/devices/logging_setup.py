"""Logs of workers: JSON lines, or text for a terminal, with run, task and position as fields."""

from __future__ import annotations

import logging
import os
import re
import sys
from typing import Literal

import structlog

from agent_forge.runs.system.durations import duration
from agent_forge.runs.system.plain_text import visible

#: Fields of log records beside their message.
FIELDS = ("run", "run_name", "task", "what", "candidate", "position", "ended", "seconds", "why")

#: A digest; people need its first twelve digits.
DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


def set_up(form: Literal["json", "text"], level: int = logging.INFO) -> None:
    """Write log records to stderr: of `worker` from `level` on, of all other loggers warnings."""
    shared = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(FIELDS),
        structlog.processors.TimeStamper(fmt="iso" if form == "json" else "%H:%M:%S", utc=True),
        _without_nothing,
    ]
    if form == "json":
        last = [structlog.processors.JSONRenderer(sort_keys=True)]
    else:
        colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        last = [
            _for_people,
            structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=0, pad_level=False),
        ]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("worker").setLevel(level)


def _without_nothing(_logger: object, _name: str, event: dict) -> dict:
    return {key: value for key, value in event.items() if value is not None}


def _for_people(_logger: object, _name: str, event: dict) -> dict:
    """Return a record in words: how a task ended in one sentence, and digests cut short."""
    if what := event.pop("what", None):
        ended, seconds = event.pop("ended"), event.pop("seconds", 0.0)
        why = event.pop("why", "")
        name = event.pop("run_name", event["run"])
        sentence = f"{name}: {what}: {ended} in {duration(seconds)}"
        event = {
            name: value
            for name, value in event.items()
            if name not in ("run", "task", "candidate", "position")
        }
        event["event"] = f"{sentence}: {why}" if why else sentence
    return {
        name: DIGEST.sub(r"\1", visible(value))
        if name in ("event", *FIELDS) and isinstance(value, str)
        else value
        for name, value in event.items()
    }
