"""Sources whose tokens have other meanings than the base's: refused if most have, else a warning."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_forge.runs.errors import SourceError
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import submit
from agent_forge.worker.tasks import runner
from testing.models.toys import Toys


def asked(toys: Toys, tmp_path: Path, turned: int, **settings: Any) -> RunRequest:
    """Return a merge whose second source has its first `turned` tokens in the opposite order."""
    other = Path(shutil.copytree(toys.sources[1], tmp_path / "other"))
    file = other / "tokenizer.json"
    said = json.loads(file.read_text("utf-8"))
    vocabulary = said["model"]["vocab"]
    known = sorted(vocabulary, key=vocabulary.__getitem__)
    turned = min(turned, len(known))
    order = [*reversed(known[:turned]), *known[turned:]]
    said["model"]["vocab"] = {token: number for number, token in enumerate(order)}
    file.write_text(json.dumps(said), "utf-8")
    models = {"base": [str(toys.base)], "sources": [str(toys.sources[0]), str(other)]}
    return RunRequest("evomerge", {"generations": 1, **settings}, models, [str(toys.data)])


def test_most_other_tokens_are_refused_by_a_check_and_at_the_start(toys: Toys, tmp_path: Path) -> None:
    """The start looks itself: a model of an earlier phase is not there when a pipeline is checked."""
    plan = submit.plan(asked(toys, tmp_path, 1 << 30))
    with pytest.raises(SourceError, match="base and other have other tokenizers: "):
        submit.check(plan)
    home = Home(tmp_path / "home")
    with closing(home.open_store()) as store:
        submit.submit(store, plan, "r")
        with pytest.raises(SourceError, match="Only models that read text alike can be merged"):
            runner.finish(runner.WorkerProcess(store, Artifacts.of(home)), "r")


def test_a_few_other_tokens_are_a_warning(toys: Toys, tmp_path: Path) -> None:
    wanted = asked(toys, tmp_path, 2)
    (told,) = (w for w in submit.check(submit.plan(wanted)).warnings if "tokenizers" in w)
    assert told.startswith("base and other have other tokenizers: 2 of ")
    assert told.endswith(". base's are kept.")
    strict = RunRequest(wanted.kind, {**wanted.config, "strict": True}, wanted.models, wanted.data)
    with pytest.raises(SourceError, match="--strict refuses"):
        submit.check(submit.plan(strict))
