"""Scorers that users install: functions `(reply: str, item: dict) -> float` in [0, 1], found by
name among the entry points of the group `evomerge.scorers`.

    [project.entry-points."evomerge.scorers"]
    politeness = "my_package.scoring:politeness"

A scorer is the user's own, installed code and runs with the rights of the worker, but each scorer
has a process of its own. A scorer that hangs is ended, and an error that it raises is reported: the
item counts 0 and its event says why. The process gets none of the worker's secrets
(`runs/system/child_environment.py`). `item` has the item's `id`, `domain`, `prompt` and the check's
`options`.
"""

from __future__ import annotations

import json
import math
import os
import sys
from importlib.metadata import entry_points
from typing import Annotated, Literal

from pydantic import Field, JsonValue, field_validator

from agent_forge.evaluation.lm_eval import spec
from agent_forge.evaluation.verifiers.program import ItemCheck, Rating
from agent_forge.runs.errors import UnavailableError
from agent_forge.runs.system.child_environment import child_environment
from agent_forge.runs.system.line_process import Respondent

GROUP = "evomerge.scorers"
#: Most seconds for one reply, and for a process's first reply, which includes loading the scorer.
PATIENCE, LOADING = 60.0, 600.0


class Scored(ItemCheck):
    """`scorer` is the entry point's name; `options` is handed to it."""

    kind: Literal["scorer"]
    scorer: Annotated[str, Field(min_length=1)]
    options: dict[str, JsonValue] = {}

    @field_validator("scorer")
    @classmethod
    def _exists(cls, value: str) -> str:
        names = sorted(point.name for point in entry_points(group=GROUP))
        if value not in names:
            there = f"there are {', '.join(names)}" if names else "none is installed"
            raise ValueError(f"no entry point {value!r} in group {GROUP}: {there}")
        return value


class Scorer:
    """One installed scorer, in a process of its own."""

    def __init__(self, name: str, patience: float = PATIENCE) -> None:
        """Prepare the scorer; its process starts with the first reply."""
        self._name = name
        self._patience = patience
        self._process: Respondent | None = None

    def verify(self, reply: str, item: dict[str, object]) -> Rating:
        """Return the scorer's Rating of a reply, 0 if it fails; end the scorer if it is not in time.

        Raises UnavailableError if the scorer does, because something that it needs is not on this
        machine, and OSError or MemoryError if this machine cannot start or ask the scorer.
        """
        process, patience = self._process, self._patience
        if process is None or not process.living:
            start = [sys.executable, "-c", f"from {__name__} import serve; serve({self._name!r})"]
            kind = "task" if self._name == spec.SCORER else "scorer"
            process = self._process = Respondent(start, env=child_environment(kind))
            patience = max(LOADING, patience)
        try:
            answer = process.ask([reply, item], patience)
        except TimeoutError:
            return _failed(f"scorer {self._name} did not answer in {patience:g} s")
        except (ConnectionError, ValueError):
            return _failed(f"scorer {self._name} ended without an answer")
        if isinstance(answer, dict):
            raise UnavailableError(f"scorer {self._name}: {answer['unavailable']}")
        if isinstance(answer, str):
            return _failed(f"scorer {self._name} raised {answer}")
        if not (math.isfinite(answer) and 0 <= answer <= 1):
            return _failed(f"scorer {self._name} gave {answer}, which is not from 0 to 1")
        return Rating(float(answer), "" if answer == 1 else f"scorer {self._name} gave {answer:g}")

    def close(self) -> None:
        """End the scorer's process."""
        if self._process is not None:
            self._process.close()


def _failed(why: str) -> Rating:
    return Rating(0.0, why, scored=False)


def serve(name: str) -> None:
    """Answer requests in the scorer's process: a line in, a line out. Its prints go to stderr."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    (point,) = entry_points(group=GROUP, name=name)
    function = point.load()
    for line in sys.stdin:
        number, (reply, item) = json.loads(line)
        try:
            answer: object = float(function(reply, item))
        except UnavailableError as error:
            answer = {"unavailable": str(error)}
        except (MemoryError, BlockingIOError) as error:  # not the reply's fault
            answer = {"unavailable": f"{type(error).__name__}: {error}"[:200]}
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"[:200]
        out.write(json.dumps([number, answer]) + "\n")
        out.flush()
