"""A scorer (`evomerge.verifiers.scorer`): what a task of lm-evaluation-harness says of a reply."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from evomerge.errors import UnavailableError
from evomerge.harness import items, reader
from evomerge.harness.specs import Spec


def judge(reply: str, item: dict[str, Any]) -> float:
    """The task's metric of one reply, after the first of its filters.

    `item["options"]` has `task` (name or file), `name` (the task of it), `metric` and `doc`. Raises
    UnavailableError where the task cannot be read here, and what the task raises.
    """
    from lm_eval.api.instance import Instance

    options = item["options"]
    task, doc = _task(options["task"], options["name"]), options["doc"]
    request = Instance("generate_until", doc, (item["prompt"], {}), 0)
    request.resps = [reply]
    (first, *_) = task._filters
    first.apply([request])
    found = task.process_results(doc, [request.filtered_resps[first.name]])
    return float(found[options["metric"]])


@lru_cache(maxsize=8)
def _task(named: str, name: str) -> Any:
    """The task itself, to judge by."""
    try:
        items.check(Spec(named))
        found = {str(task.config.task): task for task in reader.tasks(named)}
        return found[name]
    except UnavailableError:
        raise
    except Exception as error:
        raise UnavailableError(f"task {named} cannot be read on this machine: {error}") from error
