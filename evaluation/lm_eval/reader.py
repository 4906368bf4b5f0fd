"""Program that turns a task's documents into rows of items; imports lm-evaluation-harness.

    python -m evaluation.lm_eval.reader SPEC OUT

It runs in a process of its own. Multiple choice becomes questions, tokenised and normalised as in
the harness. Generation becomes problems that the harness judges; texts stay texts. The harness
builds the prompts, few-shot examples included.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager, nullcontext
from functools import lru_cache
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from agent_forge.evaluation.lm_eval import spec as lm_eval_spec
from agent_forge.evaluation.lm_eval.spec import Spec

Row = dict[str, object]

#: A metric of multiple choice → the number by which a choice's log-likelihood is divided.
CHOICE_METRICS = {
    "acc": lambda choice: 1,
    "acc_norm": len,
    "acc_bytes": lambda choice: len(choice.encode()),
    "acc_mutual_info": lambda choice: 1,
}
#: The seeds that the harness itself evaluates with.
SEED, FEWSHOT_SEED = 0, 1234


class BadTask(Exception):
    """A task cannot become items, with the reason."""


@lru_cache(maxsize=8)
def tasks(task: str) -> list[Any]:
    """Return the list of tasks of a name or file, sorted by name, with seeds set. Raises BadTask."""
    import numpy as np
    import torch
    from lm_eval.tasks import TaskManager

    random.seed(SEED)
    np.random.seed(FEWSHOT_SEED)
    torch.manual_seed(FEWSHOT_SEED)
    file = Spec(task).file
    paths = os.environ.get(lm_eval_spec.FOLDERS, "").split(os.pathsep)
    folders: list[str | Path] = [Path(folder).resolve() for folder in paths if folder]
    manager = TaskManager(include_path=folders or None, include_defaults=file is None)
    if file is None and task not in manager.task_index:  # it would be taken for a path
        raise BadTask("lm-evaluation-harness has no task of that name")
    with _nowhere() if file is None else nullcontext():
        loaded = manager.load([task if file is None else str(file.resolve())])["tasks"]
    ordered_tasks = [loaded[name] for name in sorted(loaded)]
    for each in ordered_tasks:
        if getattr(each, "UNSAFE_CODE", False):
            raise BadTask("it runs code that models write, and not in our sandbox")
        if getattr(each, "MULTIMODAL", False):
            raise BadTask("it has pictures or sound, which language models do not read")
        each.set_fewshot_seed(FEWSHOT_SEED)
    return ordered_tasks


@contextmanager
def _nowhere() -> Iterator[None]:
    """Work in an empty folder, so that a data set `OWNER/NAME` is the Hub's, not a local folder."""
    with tempfile.TemporaryDirectory() as empty, chdir(empty):
        yield


@lru_cache(maxsize=64)
def pin(task: Any) -> str:
    """Return the hex SHA-256 of everything that judges: the task's settings and code, the harness."""
    text = json.dumps(task.dump_config(), sort_keys=True, default=str)
    plain = re.sub(r" at 0x[0-9a-f]+", "", text)  # memory addresses
    return hashlib.sha256(f"{version('lm-eval')}\0{plain}".encode()).hexdigest()


def judged(task: Any, metric: str, prompt: str, doc: Any, reply: str) -> float:
    """Return the task's metric of one reply, after the first of the task's filters."""
    from lm_eval.api.instance import Instance

    request = Instance("generate_until", doc, (prompt, {}), 0)
    request.resps = [reply]
    (first, *_) = task._filters
    first.apply([request])
    return float(task.process_results(doc, [request.filtered_resps[first.name]])[metric])


def read(spec: Spec) -> tuple[list[Row], list[str]]:
    """Return (rows, names of tasks and datasets). Raises BadTask, and any error of the harness."""
    rows: list[Row] = []
    names = []
    for task in tasks(spec.task):
        name = str(task.config.task)
        names += [name, str(task.config.dataset_path or ""), str(task.config.dataset_name or "")]
        kind = _KINDS.get(task.OUTPUT_TYPE)
        if kind is None:
            raise BadTask(
                f"it is of the kind {task.OUTPUT_TYPE}; items are made of {', '.join(_KINDS)}"
            )
        task.build_all_requests(limit=spec.count)
        for number, requests in groupby(task.instances, key=lambda request: request.doc_id):
            about = {"id": f"{name}/{number}", "domain": name}
            try:
                rows.append({**about, **kind(spec, task, list(requests))})
            except (ValueError, TypeError, KeyError) as error:
                raise BadTask(f"document {number} of {name}: {error}") from error
    return rows, names


def _choices(spec: Spec, task: Any, requests: list[Any]) -> Row:
    metric = metric_of(spec, task, CHOICE_METRICS)
    doc = requests[0].doc
    if callable(task.config.process_results) or task.multiple_input or task.multiple_target:
        raise BadTask("it has several prompts or right choices a document, or judges them itself")
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
    from lm_eval.models.utils import normalize_gen_kwargs

    prompt, settings = requests[0].args
    how: dict[str, Any] = dict(normalize_gen_kwargs(settings))
    if how.get("do_sample") or len(requests) > 1 or (task.config.repeats or 1) > 1:
        raise BadTask("it samples replies; only the most likely reply is a measurement here")
    if (how.get("num_beams") or 1) > 1:
        raise BadTask("it searches with beams; only the most likely token after the other is read")
    metric, doc = metric_of(spec, task, None), dict(requests[0].doc)
    if requests[0].doc_id == 0:
        _try(task, metric, prompt, doc)
    options = {"task": spec.task, "name": str(task.config.task), "metric": metric}
    return {
        "prompt": prompt,
        "check": {
            "kind": "scorer",
            "scorer": "lm-eval",
            "options": {**options, "pin": pin(task), "doc": doc},
        },
        "max_tokens": int(how["max_gen_toks"]),
        "stop": [stop for stop in how["until"] if stop],
        "encoding": "harness",
    }


def _try(task: object, metric: str, prompt: str, doc: dict[str, object]) -> None:
    """Raise BadTask if the metric fails on a single reply or is not from 0 to 1."""
    try:
        score = judged(task, metric, prompt, doc, "a reply")
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise BadTask(f"its metric {metric} is none of a single reply ({what})") from error
    if not 0 <= score <= 1:
        raise BadTask(f"its metric {metric} gave {score:g}, and an item's is from 0 to 1")


def _text(spec: Spec, task: object, requests: list[Any]) -> Row:
    if spec.metric:
        raise BadTask("it is text, measured by perplexity and bits per byte: leave out the metric")
    return {"text": requests[0].args[0]}


_KINDS = {"multiple_choice": _choices, "generate_until": _reply, "loglikelihood_rolling": _text}


def metric_of(spec: Spec, task: Any, allowed_names: object) -> str:
    """Return the requested metric's name, or the first that fits single items. Raises BadTask."""
    better = task.higher_is_better()
    metrics = [
        name
        for name in task._metric_fn_list
        if better.get(name) and (allowed_names is None or name in allowed_names)
    ]
    if not metrics:
        raise BadTask(f"none of its metrics ({', '.join(better)}) is a share of an item")
    if spec.metric not in (None, *metrics):
        raise BadTask(f"it has no metric {spec.metric!r} for items: it has {', '.join(metrics)}")
    return spec.metric or metrics[0]


def _plain(value: object) -> object:
    raise BadTask(f"a document holds a {type(value).__name__}, which is no text and no number")


def written(spec: Spec) -> str:
    """Return JSON text for the caller: {"rows", "names"} of a task, or {"error"} with a sentence."""
    try:
        rows, names = read(spec)
        return json.dumps({"rows": rows, "names": names}, default=_plain)
    except Exception as error:  # the harness can raise any error; the caller gets its text
        message = str(error) if isinstance(error, BadTask) else f"{type(error).__name__}: {error}"
        return json.dumps({"error": f"{' '.join(message.split())[:500].rstrip('.')}."})


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(written(lm_eval_spec.parse(sys.argv[1])), "utf-8")
