"""In a process of its own: a task's documents → rows of items. Imports the harness.

    python -m evomerge.harness.reader SPEC OUT

Multiple choice becomes questions, tokenised and normalised as the harness does; generation becomes
problems that the harness judges; texts stay texts. The prompts are those that the harness builds,
few-shot examples included.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from evomerge.harness import specs
from evomerge.harness.specs import Spec

Row = dict[str, Any]

#: A metric of multiple choice → what log-likelihoods are divided by.
CHOICE_METRICS = {
    "acc": lambda choice: 1,
    "acc_norm": len,
    "acc_bytes": lambda choice: len(choice.encode()),
    "acc_mutual_info": lambda choice: 1,
}
#: Metrics of replies that are not from 0 to 1, or not of one document.
NOT_SHARES = frozenset({"bleu", "chrf", "ter", "perplexity", "bypass"})


class Refused(Exception):
    """A task that cannot be items, and why."""


@lru_cache(maxsize=8)
def tasks(task: str) -> list[Any]:
    """The tasks of a name or a file. Raises Refused."""
    from lm_eval.tasks import TaskManager

    file = Spec(task).file
    manager = TaskManager(include_defaults=file is None)
    try:
        found = manager.load([task])["tasks"]
    except KeyError as error:
        raise Refused("lm-evaluation-harness has no task of that name") from error
    return [found[name] for name in sorted(found)]


def read(spec: Spec) -> tuple[list[Row], list[str]]:
    """(rows, names of tasks and datasets). Raises Refused and what the harness raises."""
    rows: list[Row] = []
    names = []
    for task in tasks(spec.task):
        names += [str(task.config.task), str(task.config.dataset_path or "")]
        if task.config.dataset_name:
            names.append(str(task.config.dataset_name))
        task.build_all_requests(limit=spec.count)
        kind = _KINDS.get(task.OUTPUT_TYPE)
        if kind is None:
            raise Refused(
                f"it is of the kind {task.OUTPUT_TYPE}; items are made of {', '.join(_KINDS)}"
            )
        name = str(task.config.task)
        for number, requests in groupby(task.instances, key=lambda request: request.doc_id):
            about = {"id": f"{name}/{number}", "domain": name}
            rows.append({**about, **kind(spec, task, list(requests))})
    return rows, names


def _choices(spec: Spec, task: Any, requests: list[Any]) -> Row:
    metric = metric_of(spec, task, CHOICE_METRICS)
    doc = requests[0].doc
    if callable(task.config.process_results) or task.multiple_input or task.multiple_target:
        raise Refused("it has several prompts or right choices a document, or judges them itself")
    choices = task.doc_to_choice(doc)
    gold = task.doc_to_target(doc)
    gold = choices.index(gold) if isinstance(gold, str) else int(gold)
    return {
        "prompt": requests[0].args[0],
        "choices": [request.args[1] for request in requests[: len(choices)]],
        "answer": gold,
        "normalise": "mutual" if metric == "acc_mutual_info" else "none",
        "sizes": [max(1, CHOICE_METRICS[metric](choice)) for choice in choices],
        "encoding": "harness",
    }


def _reply(spec: Spec, task: Any, requests: list[Any]) -> Row:
    prompt, how = requests[0].args
    if how.get("do_sample") or len(requests) > 1 or (task.config.repeats or 1) > 1:
        raise Refused("it samples replies; only the most likely reply is a measurement here")
    limit = next(
        (how[k] for k in ("max_gen_toks", "max_new_tokens", "max_tokens") if k in how), 256
    )
    until = how.get("until") or []
    until = [until] if isinstance(until, str) else until
    metric = metric_of(spec, task, None)
    options = {"task": spec.task, "name": str(task.config.task), "metric": metric}
    return {
        "prompt": prompt,
        "check": {"kind": "scorer", "scorer": "lm-eval",
                  "options": {**options, "doc": dict(requests[0].doc)}},
        "max_tokens": int(limit),
        "stop": [stop for stop in until if stop],
        "encoding": "harness",
    }  # fmt: skip


def _text(spec: Spec, task: Any, requests: list[Any]) -> Row:
    return {"text": requests[0].args[0]}


_KINDS = {
    "multiple_choice": _choices, "generate_until": _reply, "loglikelihood_rolling": _text
}  # fmt: skip


def metric_of(spec: Spec, task: Any, known: Any) -> str:
    """The metric that is asked for, or the first that can be an item's. Raises Refused."""
    better = task.higher_is_better()
    own = [
        name
        for name in task._metric_fn_list
        if better.get(name) and name not in NOT_SHARES and (known is None or name in known)
    ]
    if not own:
        raise Refused(f"none of its metrics ({', '.join(better)}) is a share of an item")
    if spec.metric not in (None, *own):
        raise Refused(f"it has no metric {spec.metric!r} for items: it has {', '.join(own)}")
    return spec.metric or own[0]


def _plain(value: Any) -> Any:
    raise Refused(f"a document holds a {type(value).__name__}, which is no text and no number")


def written(spec: Spec) -> Iterator[str]:
    """The answer, as JSON."""
    try:
        rows, names = read(spec)
        yield json.dumps({"rows": rows, "names": names}, default=_plain)
    except Exception as error:  # the harness raises anything; whoever asked is told
        said = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
        yield json.dumps({"error": f"{said.strip().splitlines()[0][:500]}."})


if __name__ == "__main__":
    Path(sys.argv[2]).write_text("".join(written(specs.parse(sys.argv[1]))), "utf-8")
