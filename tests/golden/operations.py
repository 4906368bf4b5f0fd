"""Digests of algorithms on fixed tiny inputs; `python -m tests.golden.operations` notes new ones.

operations.json has, for each name and version of a table, its parameters' defaults and, by profile, a
digest of what it computes. A recorded digest is never written again: a changed algorithm needs a new
version, so that recorded recipes keep their meaning.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel

from agent_forge.events import canonical_json
from agent_forge.runs import keys
from agent_forge.weights import algorithms, codecs, operations, svf
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.operations.average import role
from agent_forge.weights.recipes import Algorithm, Transform
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training import objectives, optimisers, schedules
from agent_forge.weights.training.loop import pinned, segment
from agent_forge.weights.training.windows import stream_digest
from testing.models import titans_toys, toy_baking, toy_training
from tests.golden.test_guards import machine

NOTED = Path(__file__).parent / "operations.json"

#: Table → its entries, and where a class has its parameters.
TABLES: dict[str, tuple[dict[str, str], Callable[[str], Any], str]] = {
    "operation": (operations.OPERATIONS, operations.of, "Params"),
    "objective": (objectives.OBJECTIVES, objectives.of, "Params"),
    "optimiser": (optimisers.OPTIMISERS, optimisers.of, "Settings"),
    "schedule": (schedules.SCHEDULES, schedules.of, ""),
}


def parameters(table: str, name: str) -> type[BaseModel]:
    """Return the class of an entry's parameters."""
    _, of, attribute = TABLES[table]
    return getattr(of(name), attribute) if attribute else of(name)


def form(table: str, name: str) -> str:
    """Return the parameters' schema as canonical JSON: types, bounds and defaults, no prose."""

    def plain(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {k: plain(v) for k, v in value.items() if k not in ("title", "description")}

    return canonical_json(plain(parameters(table, name).model_json_schema()))


def tensors(*key: str) -> dict[str, torch.Tensor]:
    """Return two tensors of fixed numbers."""
    shapes = {"a": (3, 4), "b": (5,)}
    drawn = {n: keys.generator("golden", *key, n).standard_normal(s) for n, s in shapes.items()}
    return {name: torch.from_numpy(values).float() for name, values in drawn.items()}


def interpolated() -> str:
    """Return the digest of a model at 0.3 of the way between two."""
    roles = {"start": "1" * 64, "end": "2" * 64}
    recipe = Transform(operation="interpolate@1", inputs=roles, params={"place": 0.3})
    inputs = {role: Tensors({}, tensors(role)) for role in roles}
    return digest(operations.apply(recipe, inputs).weights)


def averaged() -> str:
    """Return the digest of an average of three models."""
    roles = {role(place): f"{place + 1}" * 64 for place in range(3)}
    shares = {"factors": [0.5, 0.3, 0.2]}
    recipe = Transform(operation="average@1", inputs=roles, params=shares)
    inputs = {name: Tensors({}, tensors(name)) for name in roles}
    return digest(operations.apply(recipe, inputs).weights)


def widened() -> str:
    """Return the digest of a bfloat16 model in float32."""
    recipe = Transform(operation="float32@1", inputs={"of": "1" * 64}, params={})
    half = {name: tensor.bfloat16() for name, tensor in tensors("of").items()}
    return digest(operations.apply(recipe, {"of": Tensors({}, half)}).weights)


def initialised() -> str:
    """Return the digest of a fresh Qwen2 model."""
    return digest(toy_training.model().weights)


def drawn() -> str:
    """Return the digest of new weights for the toy model."""
    recipe = Transform(operation="fresh@1", inputs={"of": "1" * 64}, seed=5)
    return digest(operations.apply(recipe, {"of": toy_training.model()}).weights)


def shrunk() -> str:
    """Return the digest of new weights for a model of the toy's family that is half as wide."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "layer_types": ["full_attention"]}
    params = {"changes": sizes}
    recipe = Transform(operation="resized@1", inputs={"of": "1" * 64}, params=params, seed=5)
    return digest(operations.apply(recipe, {"of": toy_training.model()}).weights)


def fed_back() -> str:
    """Return the digest of the toy model, rounded with error feedback."""
    digests = {name: stream_digest(ids) for name, ids in toy_training.streams().items()}
    recipe = operations.complete(
        Transform(
            operation="ternary-feedback@1",
            inputs={"of": "1" * 64},
            params={"data": digests, "context": 12, "windows": 8},
        )
    )
    given = {"of": toy_training.model()}
    with pinned(1):
        return digest(operations.apply(recipe, given, toy_training.streams).weights)


def rounded() -> str:
    """Return the digest of the toy model with ternary matrices, by every method."""
    made = {}
    for method in ("absmean", "least-squares", "sigma"):
        recipe = Transform(
            operation="ternary-pack@1",
            inputs={"of": "1" * 64},
            params={"method": method, "group": 8, "sigmas": 1.6},
        )
        model = operations.apply(recipe, {"of": toy_training.model()})
        made |= {f"{method}/{name}": tensor for name, tensor in model.weights.items()}
    return digest(made)


def encoded() -> Transform:
    """Return the recipe of a matrix in 3 bits."""
    params = algorithms.complete(codecs.of("rtn@1").Params, {"bits": 3, "group": 32}, "rtn@1")
    told = {"tensor": "a", "codec": "rtn@1", "params": params}
    return Transform(operation="encode@1", inputs={"model": "1" * 64}, params=told)


def coded() -> str:
    """Return the digest of a coded matrix."""
    return digest(operations.apply(encoded(), {"model": Tensors({}, tensors("of"))}).weights)


def decoded() -> str:
    """Return the digest of a model with a decoded matrix, and the rest in 16 bits."""
    model = Tensors({}, tensors("of"))
    part = operations.apply(encoded(), {"model": model})
    recipe = Transform(
        operation="decode@1",
        inputs={"model": "1" * 64, "0000": encoded().id},
        params={"tensors": ["a"], "rest": "float16"},
    )
    return digest(operations.apply(recipe, {"model": model, "0000": part}).weights)


SVD = operations.complete(Transform(operation="svf-decompose@1", inputs={"of": toy_training.INIT.id}))


def factored() -> Tensors:
    """Return the toy model's decomposition."""
    return operations.apply(SVD, {"of": toy_training.model()})


def vectors(purpose: str) -> Tensors:
    """Return vectors of fixed numbers for the toy model's matrices."""
    ones = svf.ones(factored().weights)
    drawn = {n: keys.generator("golden", purpose, n).random(len(z)) for n, z in ones.items()}
    return Tensors({}, {name: torch.from_numpy(2 * values).float() for name, values in drawn.items()})


def mixed() -> str:
    """Return the digest of the toy model with a further model and two experts."""
    moved = {name: tensor * 1.25 for name, tensor in toy_training.model().weights.items()}
    inputs = {
        "of": toy_training.model(),
        "svd": factored(),
        "model-0000": Tensors({}, moved),
        "expert-0000": vectors("a"),
        "expert-0001": vectors("b"),
    }
    params = {"models": [0.5], "experts": [0.75, -0.25]}
    roles = dict.fromkeys(inputs, "1" * 64)
    recipe = Transform(operation="mixture@1", inputs=roles, params=params)
    return digest(operations.apply(recipe, inputs).weights)


def mixed_in_halves() -> str:
    """Return the digest of the toy model in bfloat16 with a further model."""
    base = toy_training.model().weights
    halved = {name: tensor.bfloat16() for name, tensor in base.items()}
    moved = {name: tensor * 1.25 for name, tensor in base.items()}
    inputs = {"of": Tensors({}, halved), "model-0000": Tensors({}, moved)}
    roles = dict.fromkeys(inputs, "1" * 64)
    params = {"models": [0.5], "experts": []}
    recipe = Transform(operation="mixture@2", inputs=roles, params=params)
    return digest(operations.apply(recipe, inputs).weights)


def halved() -> str:
    """Return the digest of a model rounded to the dtypes of another, which lacks a tensor."""
    like = {"a": tensors("like")["a"].half()}
    roles = {"of": "1" * 64, "like": "2" * 64}
    recipe = Transform(operation="rounded@1", inputs=roles, params={"others": "bfloat16"})
    inputs = {"of": Tensors({}, tensors("of")), "like": Tensors({}, like)}
    return digest(operations.apply(recipe, inputs).weights)


def unchanged() -> str:
    """Return the digest of the vectors that change nothing."""
    recipe = Transform(operation="svf-ones@1", inputs={"svd": SVD.id})
    return digest(operations.apply(recipe, {"svd": factored()}).weights)


THINKING = operations.complete(
    Transform(operation="thoughts-init@1", inputs={"of": toy_training.INIT.id}, seed=2)
)


def thoughtful() -> Tensors:
    """Return the toy model with a part for thoughts."""
    return operations.apply(THINKING, {"of": toy_training.model()})


def thoughtless() -> str:
    """Return the digest of the toy model, whose part for thoughts was removed again."""
    recipe = Transform(operation="thoughts-removed@1", inputs={"of": THINKING.id})
    return digest(operations.apply(recipe, {"of": thoughtful()}).weights)


#: Operation → its digest. Every entry of the table needs a line.
OPERATIONS: dict[str, Callable[[], str]] = {
    "decode@1": decoded,
    "encode@1": coded,
    "float32@1": widened,
    "fresh@1": drawn,
    "average@1": averaged,
    "interpolate@1": interpolated,
    "mixture@1": mixed,
    "mixture@2": mixed_in_halves,
    "qwen2-init@1": initialised,
    "resized@1": shrunk,
    "rounded@1": halved,
    "svf-decompose@1": lambda: digest(factored().weights),
    "svf-ones@1": unchanged,
    "ternary-feedback@1": fed_back,
    "ternary-pack@1": rounded,
    "thoughts-init@1": lambda: digest(thoughtful().weights),
    "thoughts-removed@1": thoughtless,
    "titans-mag-init@1": lambda: digest(titans_toys.initial().weights),
}
#: Objective → what a training with it has beside the toy's fields.
OBJECTIVES: dict[str, dict[str, Any]] = {
    "answers@1": {
        "data_digests": {name: stream_digest(ids) for name, ids in toy_training.answers().items()}
    },
    "answers@2": {
        "data_digests": {name: stream_digest(ids) for name, ids in toy_training.answers().items()},
        "params": {
            "noise": {"scale": 0.3, "first": 2, "upto": 5},
            "self_model": {"weight": 0.1, "layer": 1},
        },
    },
    "bake@1": {
        name: getattr(toy_baking.recipe(), name)
        for name in ("inputs", "params", "data", "data_digests")
    },
    "bake@2": {
        name: getattr(toy_baking.recipe(), name)
        for name in ("inputs", "params", "data", "data_digests")
    },
    "cem@1": {
        "optimiser": "none@1",
        "params": {"objective": "lm@1", "points": 4, "elite": 2, "spread": 0.01},
    },
    "distil@1": {"inputs": {"teacher": toy_training.INIT.id}, "params": {"temperature": 2.0}},
    "lm@1": {},
    "lora@1": {"params": {"objective": "lm@1", "rank": 4}},
    "lora@2": {"params": {"objective": "lm@1", "rank": 4}},
    "preference@1": {
        "data": {"own": 1.0},
        "data_digests": {"own": stream_digest(toy_training.replies())},
        "inputs": {"writer": toy_training.INIT.id},
        "params": {"samples": 2, "rewards": [1.0, 0.0, 0.0, 1.0], "kl": 0.1},
    },
    "reinforce@1": {
        "data_digests": {name: stream_digest(ids) for name, ids in toy_training.ended().items()},
        "inputs": {"reference": toy_training.INIT.id},
        "params": {"kl": 0.2},
    },
    "reinforce@2": {
        "data": {"own": 1.0},
        "data_digests": {"own": stream_digest(toy_training.replies())},
        "inputs": {"writer": toy_training.INIT.id},
        "params": {"samples": 2, "rewards": [1.0, 0.0, 0.0, 1.0], "kl": 0.1},
    },
    "sft@1": {
        "data_digests": {name: stream_digest(ids) for name, ids in toy_training.packed().items()}
    },
    "svf@1": {"inputs": {"of": toy_training.INIT.id, "svd": SVD.id}, "params": {"pull": 0.1}},
    "svf@2": {
        "data_digests": {name: stream_digest(ids) for name, ids in toy_training.ended().items()},
        "inputs": {"of": toy_training.INIT.id, "svd": SVD.id},
        "params": {"objective": "reinforce@1", "params": {"kl": 0.0}, "pull": 0.1},
    },
    "ternary@1": {},
    "thoughts@1": {
        "inputs": {"teacher": toy_training.INIT.id},
        "params": {"lengths": [3, 2], "policy": 0.5},
    },
}


def trained(**fields: Any) -> str:
    """Return the digest of weights, state, losses and norms after 8 steps of the toy training."""
    recipe = toy_training.recipe(**fields)
    read = dict.fromkeys(recipe.inputs, toy_training.model())
    objective = str(fields.get("objective"))
    answers, ended = objective.startswith("answers@"), objective in ("reinforce@1", "svf@2")
    streams = toy_training.answers() if answers else toy_baking.streams()
    streams = toy_training.ended() if ended else streams
    streams = toy_training.packed() if objective == "sft@1" else streams
    streams = (
        {"own": toy_training.replies()} if objective in ("reinforce@2", "preference@1") else streams
    )
    start = toy_training.model()
    if objective.startswith("svf@"):
        read["svd"], start = factored(), Tensors({}, svf.ones(factored().weights))
    if fields.get("objective") == "thoughts@1":
        start = thoughtful()
    made = segment(recipe, start, None, streams, 0, 8, inputs=read, threads=1)
    told = torch.tensor([made.losses, made.norms, made.rates], dtype=torch.float64)
    return digest(made.weights | made.optimiser | {"told": told})


def profile(table: str, name: str) -> str:
    """Return what the digest of an entry depends on; "any" if every machine computes it alike."""
    exact = {"svf-ones@1", "float32@1", "interpolate@1", "encode@1", "decode@1", "average@1"}
    exact |= {"rounded@1", "mixture@2"}
    return "any" if table == "operation" and name in exact else machine()


def compute(table: str, name: str) -> str:
    """Return the digest of what an entry computes on its fixed input."""
    if table == "operation":
        return OPERATIONS[name]()
    if table == "objective":
        return trained(objective=name, **OBJECTIVES[name])
    if table == "optimiser":
        return trained(optimiser=name)
    given = {"peak": 1e-2, "warmup": 0.3}
    if name == "cosine-burst@1":
        given |= {"factor": 3.0, "first": 3, "upto": 5}
    return trained(schedule=Algorithm(name=name, params=given))


def noted() -> dict[str, Any]:
    """Return what operations.json has."""
    return json.loads(NOTED.read_text("utf-8")) if NOTED.exists() else {}


def main() -> None:
    """Note the entries and profiles that operations.json lacks; change no others."""
    whole = noted()
    for table, (entries, _, _) in TABLES.items():
        for name in sorted(entries):
            own = whole.setdefault(f"{table} {name}", {"parameters": form(table, name)})
            own.setdefault("digests", {}).setdefault(profile(table, name), compute(table, name))
    NOTED.write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
