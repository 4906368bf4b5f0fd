"""Runs in miniature of all studies, for the tests that every study passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_forge.runs.home import Home
from testing.kind_runs import KindRuns
from testing.miniatures import (
    bake_runs,
    baking_runs,
    bitnet_runs,
    cognate_runs,
    compression_runs,
    curriculum_runs,
    experts_runs,
    quietstar_runs,
    student_runs,
    tune_runs,
)
from testing.models import symbol_models
from testing.models.toys import Toys
from testing.worlds.finished_run import once

#: The name that each run has.
RUN = "r"
_RUNS = KindRuns[Any]("measure", RUN)
carried, rows = _RUNS.finish, _RUNS.rows


@dataclass(frozen=True)
class Miniature:
    """A run of seconds of one kind, and where it is killed."""

    name: str
    #: (home, the toys, a folder that all tests share) submits the run `RUN`.
    submit: Callable[[Home, Toys, Path], object]
    #: The failpoint of each kill: the first in every run of the tests, the others before a release.
    points: tuple[str, ...]
    #: Steps of a segment of the run that is killed; None: a training is one segment.
    steps: str | None = "2"


def _prompted(home: Home, folder: Path, **settings: Any) -> None:
    model = once(folder / "prompted", bake_runs.model) / "base"
    bake_runs.submit(home, model, RUN, **settings)


def _baking(home: Home, toys: Toys, folder: Path) -> None:
    baking_runs.submit(home, once(folder / "able", baking_runs.able), RUN)


def _cognate(home: Home, toys: Toys, folder: Path) -> None:
    data = bitnet_runs.texts(home.folder / "texts")
    mix = {"sums": 1.0, "rows": 1.0}
    cognate_runs.submit(home, RUN, toys.base, data, specialist_tokens=4_000, batch=2, mix=mix)


def _compression(home: Home, toys: Toys, folder: Path) -> None:
    items = compression_runs.data(_made(home.folder / "texts"))
    compression_runs.submit(home, toys.sources[0], items, RUN)


def _beside(home: Home, toys: Toys, folder: Path) -> None:
    model = once(folder / "symbols", symbol_models.write)
    curriculum_runs.submit(home, model, RUN, **curriculum_runs.BESIDE)


def _experts(home: Home, toys: Toys, **settings: Any) -> None:
    experts_runs.submit(home, toys.base, toys.sources[:2], RUN, **settings)


def _measure(home: Home, toys: Toys, folder: Path) -> None:
    items = _made(home.folder / "texts") / "texts.jsonl"
    lines = (json.dumps(text) for text in compression_runs.TEXTS)
    items.write_text("\n".join(lines), "utf-8")
    models = {"model": [toys.sources[0]], "against": [toys.base]}
    _RUNS.submit(home, RUN, {"context": 16}, models, [str(items)], check=False)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


#: Experts that learn from rewards of replies, without a search.
_REWARDED = experts_runs.TASKS | {"evaluations": 0, "lora": False}
EVERY = (
    Miniature(
        "bake",
        lambda home, toys, folder: _prompted(home, folder),
        ("sampled-kept:1", "snapshot-kept:3", "made-kept:1", "advanced-kept:4", "task-appended:3"),
    ),
    Miniature(
        "bake-several",
        lambda home, toys, folder: _prompted(home, folder, **bake_runs.SEVERAL),
        ("sampled-kept:2", "advanced-kept:5"),
        None,
    ),
    Miniature(
        "bake-adapters",
        lambda home, toys, folder: _prompted(home, folder, **bake_runs.ADAPTED),
        ("snapshot-kept:4", "segment-trained:2", "advanced-kept:7", "task-appended:6"),
        "1",
    ),
    Miniature("baking", _baking, ("snapshot-kept:2", "sampled-kept:2", "facts-appended:3"), None),
    Miniature(
        "bitnet",
        lambda home, toys, folder: bitnet_runs.submit(home, toys.base, RUN),
        ("snapshot-kept:3", "made-kept:1", "advanced-kept:4", "task-appended:5"),
    ),
    Miniature("cognate", _cognate, ("snapshot-kept:3", "made-kept:1", "task-appended:4"), "8"),
    Miniature(
        "compression",
        _compression,
        ("model-packed:2", "made-kept:3", "task-appended:7", "coded-tensor-written:9"),
    ),
    Miniature(
        "curriculum",
        lambda home, toys, folder: curriculum_runs.submit(home, toys.base, RUN),
        ("snapshot-kept:5", "made-kept:1", "facts-appended:4", "task-appended:9"),
    ),
    Miniature("curriculum-beside", _beside, ("dreamed-kept:1", "snapshot-kept:20"), None),
    Miniature(
        "experts",
        lambda home, toys, folder: _experts(home, toys),
        ("snapshot-kept:3", "made-kept:2", "task-appended:20", "task-appended:30"),
    ),
    Miniature(
        "experts-rewarded",
        lambda home, toys, folder: experts_runs.submit(home, toys.base, (), RUN, **_REWARDED),
        ("snapshot-kept:4",),
        "1",
    ),
    Miniature("measure", _measure, ("task-appended:2",), None),
    Miniature(
        "quietstar",
        lambda home, toys, folder: quietstar_runs.submit(home, toys.base, RUN),
        ("snapshot-kept:4", "made-kept:2", "advanced-kept:3", "task-appended:3"),
        "1",
    ),
    Miniature(
        "student",
        lambda home, toys, folder: student_runs.submit(home, toys.base, RUN),
        ("snapshot-kept:3", "made-kept:1", "advanced-kept:4", "task-appended:5"),
    ),
    Miniature(
        "tune",
        lambda home, toys, folder: tune_runs.submit(home, toys.base, RUN),
        ("snapshot-kept:3", "made-kept:2", "advanced-kept:2", "task-appended:4"),
    ),
)
