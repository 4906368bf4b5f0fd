"""Parts of model cards: what names the models of a Hub, and the lines that load a model."""

from __future__ import annotations

from agent_forge.weights.folders import model_card


def test_only_models_of_a_hub_are_named() -> None:
    """The Hub reads these lines; a folder's path means nothing elsewhere."""
    assert model_card.merged_from([]) == []
    assert model_card.merged_from(["org/a", "org/b", "org/a"]) == [
        "base_model:",
        '- "org/a"',
        '- "org/b"',
        "base_model_relation: merge",
    ]


def test_the_lines_are_those_of_the_folder() -> None:
    """Three, for weights and for coded weights; a model of our own architecture needs its code."""
    plain = model_card.lines("m", ["model.safetensors"], {"model_type": "qwen2"})
    assert plain[1] == 'model = AutoModelForCausalLM.from_pretrained("m")'
    own = model_card.lines("m", ["model.safetensors"], {"model_type": "titans_mag"})
    assert own[1].endswith('("m", trust_remote_code=True)')
    coded = model_card.lines("m", ["README.md", "model.forge"], {})
    assert coded[1] == 'model = load("m/model.forge")'
    assert [len(lines) for lines in (plain, own, coded)] == [3, 3, 3]
    assert model_card.lines("m", ["notes.txt"], {}) == []
