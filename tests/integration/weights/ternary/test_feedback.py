"""Rounding with error feedback: each step by hand, and what it is for."""

from __future__ import annotations

import pytest
import torch

from agent_forge.runs.errors import ConfigError, NotFiniteError, SourceChangedError
from agent_forge.runs.system import pace
from agent_forge.weights import operations
from agent_forge.weights.codecs.feedback import calibration
from agent_forge.weights.operations import ternary_feedback, ternary_pack
from agent_forge.weights.recipes import Transform
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.ternary import quantiser
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.windows import stream_digest
from testing.models.toy_training import model, streams

DIGESTS = {name: stream_digest(ids) for name, ids in streams().items()}


def recipe(**params: object) -> Transform:
    given = {"data": DIGESTS, "context": 12, "windows": 8} | params
    return operations.complete(
        Transform(operation="ternary-feedback@1", inputs={"of": "1" * 64}, params=given)
    )


def test_the_error_of_a_column_moves_the_next_one() -> None:
    """H = [[2, 1], [1, 1]]: with the first rounded, the least error has w₂ + H₁₂ / H₂₂ · e₁.

    w = [0.7, 0.2], s = 1: t₁ = 1, e₁ = −0.3, so the second aims at 0.2 + 1 · (−0.3) = −0.1, t₂ = 0.
    w = [0.6, −0.2]: e₁ = −0.4, it aims at −0.6, t₂ = −1; rounding alone gives 0.
    """
    gram = torch.tensor([[2.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    weight = torch.tensor([[0.7, 0.2], [0.6, -0.2]])
    one = torch.ones(1, 1)
    found = ternary_feedback.fed_back(weight, one, gram, 1e-9)
    assert found.tolist() == [[1, 0], [1, -1]]
    assert ternary_pack.nearest(weight, one).tolist() == [[1, 0], [1, 0]]


def test_without_correlations_it_is_plain_rounding() -> None:
    weight = torch.randn(6, 5, generator=torch.Generator().manual_seed(2))
    scale = torch.tensor([[1.3]])
    plain = ternary_pack.nearest(weight, scale)
    unit = torch.eye(5, dtype=torch.float64)
    assert torch.equal(ternary_feedback.fed_back(weight, scale, unit, 0.01), plain)
    assert torch.equal(ternary_feedback.fed_back(weight, scale, 0 * unit, 0.01), plain)


def test_outputs_are_nearer_than_by_rounding_alone() -> None:
    """On inputs that are correlated: Σ ‖x (W − W̃)ᵀ‖²."""
    generator = torch.Generator().manual_seed(4)
    inputs = torch.randn(200, 3, generator=generator) @ torch.randn(3, 16, generator=generator)
    inputs += 0.3 * torch.randn(200, 16, generator=generator)
    weight = torch.randn(8, 16, generator=generator)
    scale = 1.8 * ternary_pack.deviation(weight)
    gram = (inputs.double().T @ inputs.double()) / 200
    errors = []
    for trits in (
        ternary_feedback.fed_back(weight, scale, gram, 0.01),
        ternary_pack.nearest(weight, scale),
    ):
        errors.append(float((inputs @ (weight - trits * scale).T).square().sum()))
    assert errors[0] < errors[1] / 2


def test_a_model_is_rounded_on_its_own_layers_inputs() -> None:
    """The first layer's queries: H from the embeddings and their norm, by hand."""
    made = operations.apply(recipe(windows=4), {"of": model()}, streams)
    name = "model.layers.0.self_attn.q_proj.weight"
    module = modules.build(model()).eval()
    from agent_forge.weights.training.windows import Batches

    rows = Batches(streams(), dict.fromkeys(DIGESTS, 1.0), 4, 12, (0, "calibration")).rows(0)
    with torch.no_grad():
        states = module.model.embed_tokens(torch.from_numpy(rows)[:, :-1])
        x = module.model.layers[0].input_layernorm(states).flatten(0, 1).double()
    weight = model().weights[name]
    scale = 1.8 * ternary_pack.deviation(weight)
    trits = ternary_feedback.fed_back(weight, scale, x.T @ x / len(x), 0.01)
    assert torch.equal(made.weights[name], ternary_pack.assembled(trits, scale))
    changed = [n for n, t in model().weights.items() if not torch.equal(t, made.weights[n])]
    assert len(changed) == 14
    for one in changed:
        quantiser.parts(one, made.weights[one])


def test_other_data_or_none_is_refused() -> None:
    given = {"of": model()}
    with pytest.raises(ConfigError, match="lacks the data even"):
        operations.apply(recipe(), given)
    with pytest.raises(SourceChangedError, match="'odd' is not the data"):
        operations.apply(recipe(), given, lambda: {**streams(), "odd": streams()["even"]})
    wrong = recipe().model_copy(update={"inputs": {"start": "1" * 64}})
    with pytest.raises(ConfigError, match="reads the input of"):
        operations.apply(wrong, {"start": Tensors({}, {})}, streams)


def test_weights_and_inputs_that_are_not_finite_are_named() -> None:
    """The matrix itself, before any pass; and the first layer that an embedding of NaN reaches."""
    name = "model.layers.1.self_attn.q_proj.weight"
    for broken, said in ((name, f"{name} holds NaN"), ("model.embed_tokens.weight", "inputs of")):
        given = dict(model().weights)
        given[broken] = torch.full_like(given[broken], float("nan"))
        with pytest.raises(NotFiniteError, match=said):
            operations.apply(recipe(), {"of": Tensors(model().config, given)}, streams)


def test_who_waits_reads_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show the pace of what takes minutes for a model of 135 million parameters: batches, blocks."""
    monkeypatch.setattr(calibration, "BLOCKS", 1)
    noted: list[tuple[str, int, int]] = []
    monkeypatch.setattr(pace, "note", lambda *what: noted.append(what))
    operations.apply(recipe(windows=4), {"of": model()}, streams)
    assert noted == [("pieces", 1, 1), ("pieces", 1, 2), ("pieces", 2, 2)]
