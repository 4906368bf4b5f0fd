"""Codecs one after the other."""

from __future__ import annotations

import pytest
import torch

from agent_forge.runs.errors import ConfigError, SourceError, UnknownAlgorithmError
from agent_forge.weights import codecs, randomness
from agent_forge.weights.codecs import Coded, chain


def gaussian(rows: int, columns: int) -> torch.Tensor:
    values = randomness.gaussian(rows * columns, "chain").reshape(rows, columns)
    return torch.from_numpy(values).float()


def test_each_codec_codes_what_the_one_before_decodes() -> None:
    """SeedLM, VPTQ, Hyper-compression: the bytes of the last, the errors of all."""
    matrix = gaussian(32, 32)
    expected = matrix
    for name in ("seedlm@1", "vptq@1", "hyper@1"):
        last = codecs.encode(name, expected, {}, seed=5)
        expected = codecs.decode(name, last)
    coded = codecs.encode("chain@1", matrix, {}, seed=5)
    assert coded.parts.keys() == last.parts.keys()
    assert all(torch.equal(coded.parts[part], last.parts[part]) for part in last.parts)
    assert torch.equal(codecs.decode("chain@1", coded), expected)
    alone = codecs.decode("hyper@1", codecs.encode("hyper@1", matrix, {}))
    assert (expected - matrix).norm() > 1.4 * (alone - matrix).norm()


def test_settings_of_steps_are_written_out() -> None:
    params = chain.Params.model_validate({"steps": [{"codec": "seedlm@1"}]})
    assert params.steps[0].params == {"bits": 4}
    assert [step.codec for step in chain.Params().steps] == ["seedlm@1", "vptq@1", "hyper@1"]
    assert chain.Params().steps[2].params["direction"] == "grid"


def test_steps_that_are_no_codecs_are_refused() -> None:
    matrix = gaussian(4, 4)
    with pytest.raises(UnknownAlgorithmError, match="zip@1"):
        codecs.encode("chain@1", matrix, {"steps": [{"codec": "zip@1"}]})
    with pytest.raises(ConfigError, match="step of a chain"):
        codecs.encode("chain@1", matrix, {"steps": [{"codec": "chain@1"}]})
    with pytest.raises(ConfigError, match="bits"):
        codecs.encode("chain@1", matrix, {"steps": [{"codec": "seedlm@1", "params": {"bits": 9}}]})
    with pytest.raises(ConfigError, match="steps"):
        codecs.encode("chain@1", matrix, {"steps": []})


def test_a_header_of_another_codec_is_refused() -> None:
    coded = codecs.encode("chain@1", gaussian(4, 4), {})
    for name in ("chain@1", "zip@1", None, 3):
        with pytest.raises(SourceError, match="no codec that ends a chain"):
            codecs.decode("chain@1", Coded(coded.shape, coded.header | {"codec": name}, coded.parts))
