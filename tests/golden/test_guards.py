"""What no change of the house may move: weights, scores, exit codes, shapes of `--json`.

Noted in guards.json. `FORGE_NOTE_GUARDS=1 pytest tests/golden/test_guards.py` notes them anew, which
is right only where behaviour is meant to change. Weights of merges are the same on every machine.
Scores and trained weights are those of one kind of machine: elsewhere they are skipped, and say so.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from agent_forge.evaluation.autotune import machine_profile
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.home import Home
from testing.models.toys import Toys
from testing.worlds import runs
from testing.worlds.finished_run import FinishedRun
from tests.integration.cli.test_forge import call, fails, succeeds

NOTED = Path(__file__).parent / "guards.json"
STRATEGIES = ("elite-loser", "auto", "tournament", "nsga2")

#: Method → what its config has beside models and method.
MERGES: dict[str, dict[str, Any]] = {
    "linear": {"weight": [0.5, 0.3, 0.2]},
    "task_arithmetic": {"weight": [0.4, 0.4, 0.4], "base": True},
    "ties": {"weight": [1.0, 0.5, 0.7], "density": 0.4, "base": True},
    "dare_ties": {"weight": [0.6, 0.6, 0.6], "density": 0.5, "base": True},
    "dare_linear": {"weight": [0.6, 0.6, 0.6], "density": 0.5, "base": True},
    "della": {"weight": [0.6, 0.6, 0.6], "density": 0.5, "epsilon": 0.1, "base": True},
    "breadcrumbs": {"weight": [0.6, 0.6, 0.6], "density": 0.8, "gamma": 0.05, "base": True},
    "sce": {"select_topk": 0.3, "base": True},
    "model_stock": {"base": True},
    "karcher": {},
    "multislerp": {"weight": [0.4, 0.3, 0.3]},
    "ram": {"base": True},
}


def config(method: str, toys: Toys) -> str:
    """A merge of all three sources, in mergekit's words."""
    settings = dict(MERGES[method])
    weights = settings.pop("weight", None)
    based = settings.pop("base", False)
    models = [
        {"model": str(s), **({"parameters": {"weight": weights[i]}} if weights else {})}
        for i, s in enumerate(toys.sources)
    ]
    return json.dumps(
        {
            "merge_method": method,
            "models": models,
            "parameters": settings,
            "dtype": "float32",
            **({"base_model": str(toys.base)} if based else {}),
        }
    )


def weights_digest(folder: Path) -> str:
    """SHA-256 over names, shapes, dtypes and bytes of a folder's tensors."""
    whole = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        for name, tensor in sorted(load_file(file).items()):
            whole.update(f"{name} {tensor.shape} {tensor.dtype}".encode())
            whole.update(tensor.tobytes())
    return whole.hexdigest()


def merges(toys: Toys, folder: Path) -> dict[str, str]:
    """Method → digest of what `forge merge` writes."""
    found = {}
    for method in MERGES:
        file = folder / f"{method}.yaml"
        file.write_text(config(method, toys), "utf-8")
        result = call(folder / "home", "merge", str(file), str(folder / method))
        assert result.exit_code == 0, (method, result.output, result.exception)
        found[method] = weights_digest(folder / method)
    return found


def candidates(state: RunState) -> dict[str, str]:
    """generation/slot → digest of the weights; and the champion's."""
    found = {f"{g}/{s}": state.built[c.recipe_id][0] for (g, s), c in state.candidates.items()}
    assert state.champion
    return found | {"champion": state.built[state.champion][0]}


def scores(state: RunState) -> dict[str, str]:
    """generation/slot → fitness on the search slice, to the last digit; and those on the test slice."""
    found = {}
    for (g, s), candidate in state.candidates.items():
        fitness = state.fitness((candidate.recipe_id, "search", g))
        found[f"{g}/{s}"] = repr(fitness.scalar) if fitness else ""
    assert state.completed
    found |= {f"test/{r.name}": repr(r.scalar) for r in state.completed.rivals}
    return found | {"test/champion": repr(state.completed.test.scalar)}


def shape(value: Any) -> Any:
    """The keys and types of a JSON value; of a list, those of its first element."""
    if isinstance(value, dict):
        if value and all(re.fullmatch("[0-9a-f]{64}", key) for key in value):
            return {"ID": shape(next(iter(value.values())))}  # by recipe
        return {key: shape(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


#: Parts that depend on the machine: scores and trained weights.
OF_MACHINES = ("cognate", "runs")


def machine() -> str:
    """What trained weights and scores depend on."""
    profile = machine_profile("cpu")
    return "|".join((profile.machine, profile.torch, profile.transformers, profile.numpy))


def noted(part: str, found: Any) -> Any:
    """Return what golden/guards.json has of a part; write it first if asked to.

    What machines compute differently stands there by machine, and a machine that is not noted skips.
    """
    whole = json.loads(NOTED.read_text("utf-8")) if NOTED.exists() else {}
    machines = whole.setdefault("machines", {})
    place = machines.setdefault(machine(), {}) if part in OF_MACHINES else whole
    if os.environ.get("FORGE_NOTE_GUARDS"):
        place[part] = found
        NOTED.write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n", "utf-8")
    elif part in OF_MACHINES and not place:
        pytest.skip(f"noted on {', '.join(m for m in machines if machines[m])}; this is {machine()}")
    return place.get(part)


def only_here() -> None:
    """Skip before the work if this kind of machine has nothing noted."""
    if not os.environ.get("FORGE_NOTE_GUARDS"):
        noted(OF_MACHINES[0], None)


@pytest.fixture(scope="module")
def ended(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Home, RunState]]:
    """A run of every strategy, carried to its end."""
    found = {}
    for strategy in STRATEGIES:
        home = Home(tmp_path_factory.mktemp(strategy))
        runs.submit(home, toys, strategy=strategy)
        found[strategy] = home, runs.finish(home)
    return found


def test_merges_write_the_same_bits(toys: Toys, tmp_path: Path) -> None:
    """A config that somebody merged last year gives the same model."""
    found = merges(toys, tmp_path)
    assert found == noted("merges", found)


@pytest.mark.slow
def test_candidates_of_a_run_have_the_same_weights_and_scores(ended) -> None:
    """Every strategy proposes what it proposed, and it is built and measured as it was."""
    only_here()
    found = {
        name: {"weights": candidates(state), "scores": scores(state)}
        for name, (_, state) in ended.items()
    }
    assert found == noted("runs", found)


@pytest.mark.slow
def test_training_gives_the_same_weights(tmp_path: Path, monkeypatch) -> None:
    """`forge cognate`: base and specialists, with the optimiser that the presets began with."""
    only_here()
    words = ("cognate", "--preset", "mini", "--optimiser", "adamw", "--out", str(tmp_path / "models"))
    succeeds(tmp_path / "home", *words)
    folders = sorted(p.parent for p in (tmp_path / "models").glob("*/config.json"))
    found = {folder.name: weights_digest(folder) for folder in folders}
    assert len(found) == 4
    assert found == noted("cognate", found)


def test_commands_end_with_the_same_codes(toys: Toys, tmp_path: Path) -> None:
    """Scripts depend on them: 2 usage, 3 unavailable, 5 not found."""
    models = ("--base-models", toys.names, "--base-model", str(toys.base))
    fails(tmp_path, 5, "show", "no-such-run")
    fails(tmp_path, 5, "verify", "no-such-run")
    fails(tmp_path, 2, "check", "--base-models", str(tmp_path / "none"))
    fails(tmp_path, 2, "check", *models, "--strategy", "none")
    fails(tmp_path, 2, "evo", *models, "--gens", "-1")
    (tmp_path / "file").write_text("x")
    fails(tmp_path / "file", 3, "runs")
    succeeds(tmp_path, "runs")


@pytest.mark.slow
def test_json_has_the_same_shape(finished_run: FinishedRun) -> None:
    """Programs read it: no key goes, none changes its type."""
    home, _ = finished_run(strategy="auto")
    found = {}
    for words in (("runs",), ("show", "r"), ("queue",), ("verify", "r"), ("lineage", "r")):
        result = succeeds(home.folder, *words, "--json")
        found[words[0]] = shape(json.loads(result.stdout))
    assert lost(noted("json", found), found) == []


def lost(before: Any, now: Any, at: str = "") -> list[str]:
    """The keys of a shape that another one lacks, and those whose value has another type."""
    if isinstance(before, dict) and isinstance(now, dict):
        gone = [f"{at}/{key}" for key in before if key not in now]
        both = (key for key in before if key in now)
        return [*gone, *(one for key in both for one in lost(before[key], now[key], f"{at}/{key}"))]
    if isinstance(before, list) and isinstance(now, list) and before and now:
        return lost(before[0], now[0], at)
    return [] if before == now or [] in (before, now) else [at]


def test_the_check_of_shapes_can_fail() -> None:
    """A new key is none of its business."""
    before = {"a": "int", "b": [{"c": "str"}]}
    assert lost(before, {"a": "int", "b": [{"c": "str", "d": "int"}], "e": {}}) == []
    assert lost(before, {"b": [{"c": "int"}]}) == ["/a", "/b/c"]
    assert lost(before, {"a": "int", "b": {"c": "str"}}) == ["/b"]
