"""Scorer (`evaluation.verifiers.scorer`) that judges replies by a task of lm-evaluation-harness."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from agent_forge.evaluation.lm_eval import reader, spec
from agent_forge.evaluation.lm_eval.spec import Spec
from agent_forge.runs.errors import UnavailableError


def judge(reply: str, item: dict[str, Any]) -> float:
    """Return the task's metric, 0 to 1, of one reply, after the first of the task's filters.

    `item["options"]` has `task` (name or file), `name` (of the single task in it), `metric`, `doc`,
    and `pin`, the digest of everything that judges (`reader.pin`). Raises UnavailableError if the
    task is not on this machine or its digest differs, and any error that the task raises.
    """
    options = item["options"]
    task = _task(options["task"], options["name"], options["pin"])
    return reader.judged(task, options["metric"], item["prompt"], options["doc"], reply)


@lru_cache(maxsize=8)
def _task(named: str, name: str, pinned: str) -> Any:
    """Return the task (of lm-evaluation-harness) if its digest is `pinned`. Raises UnavailableError."""
    try:
        spec.check(Spec(named))
        task = {str(task.config.task): task for task in reader.tasks(named)}[name]
        digest = reader.pin(task)
    except UnavailableError:
        raise
    except Exception as error:
        raise UnavailableError(f"task {named} cannot be read on this machine: {error}") from error
    if digest != pinned:
        raise UnavailableError(
            f"task {named} judges otherwise than when its documents were read, or this is another "
            "version of lm-evaluation-harness. Put the old one back, or start a new run."
        )
    return task
