"""Genome files of mergekit-evolve start runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import BertConfig, BertForSequenceClassification, BertModel

from agent_forge.cli.evomerge import evo
from agent_forge.evomerge.config import parse
from agent_forge.runs.errors import ConfigError, SourceError
from testing.models.toys import Toys

GENOME = """
genome:
  models: [{a}, {b}, {c}]
  merge_method: {method}
  base_model: {base}
  layer_granularity: 8
  normalize: true
tasks:
  - name: gsm8k
    weight: 1.0
limit: 100
"""


def written(toys: Toys, folder: Path, method: str = "dare_ties") -> str:
    a, b, c = toys.sources
    file = folder / "genome.yml"
    file.write_text(GENOME.format(a=a, b=b, c=c, base=toys.base, method=method))
    return str(file)


def test_a_genome_names_models_base_and_technique(
    toys: Toys, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a run cannot take over is named, never dropped silently."""
    made = evo.make({"config_file": written(toys, tmp_path), "data": [str(toys.data)]})
    assert [s.path for s in made.fields["sources"]] == [str(s.resolve()) for s in toys.sources]
    assert made.fields["base"] is not None
    assert made.fields["base"].path == str(toys.base.resolve())
    assert made.config.strategy == "auto"
    assert made.config.flat()["species"] == ["dare_ties"]
    told = capsys.readouterr().err
    for key in ("genome.layer_granularity", "tasks has no effect", "limit"):
        assert key in told
    assert evo.check(made).parameters > 0


def test_options_outweigh_a_genome_and_other_methods_leave_the_usual_ones(
    toys: Toys, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"config_file": written(toys, tmp_path, "model_stock"), "gens": 3, "seed": 5}
    made = evo.make(given)
    assert (made.config.generations, made.config.seed) == (3, 5)
    assert made.config.flat()["species"] == parse({}).flat()["species"]
    assert "model_stock is not among the techniques" in capsys.readouterr().err
    evo.make({"config_file": written(toys, tmp_path, "linear")})
    assert "linear: task_arithmetic says all that it says" in capsys.readouterr().err


def test_models_and_base_may_be_mappings_as_mergekit_writes_them(tmp_path: Path) -> None:
    """With a revision, too; what a mapping says that has no counterpart is refused with the reason."""
    file = tmp_path / "g.yml"
    file.write_text(
        "genome: {models: [{model: a}, {model: {path: o/b, revision: r}}, c], "
        "base_model: {model: {path: d}}, merge_method: ties}\n"
    )
    read = evo.read_file(str(file))
    assert (read["base_models"], read["base_model"]) == (["a", "o/b@r", "c"], "d")
    for one, why in [
        ("model: a, lora: x", "adapter"),
        ("model: {path: a, revision: 010}", "revision 8 is no text"),
    ]:
        file.write_text(f"genome: {{models: [{{{one}}}, b], merge_method: ties}}\n")
        with pytest.raises(ConfigError, match=why):
            evo.read_file(str(file))


def test_the_example_of_bert_classifiers_is_read_and_its_models_are_named_as_what_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """mergekit-evolve's examples/evo_bert_large.yml: encoders have no next token to be measured on."""
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 10}
    config = BertConfig(intermediate_size=8, max_position_embeddings=8, **small)
    BertModel(config).save_pretrained(tmp_path / "base")
    for name in ("a", "b"):
        BertForSequenceClassification(config).save_pretrained(tmp_path / name)
    capsys.readouterr()  # transformers' bars
    file = tmp_path / "evo_bert.yml"
    file.write_text(
        f"genome: {{models: [{tmp_path}/a, {tmp_path}/b], merge_method: dare_ties, "
        f"layer_granularity: 0, base_model: {{model: {tmp_path}/base, "
        "override_architecture: BertModel}}\n"
    )
    made = evo.make({"config_file": str(file)})
    assert made.fields["base"] is not None
    assert made.fields["base"].path == str(tmp_path / "base")
    told = capsys.readouterr().err
    assert "genome.base_model.override_architecture has no effect" in told
    with pytest.raises(SourceError, match="holds a BertModel, which does not predict"):
        evo.check(made)


@pytest.mark.slow
def test_slerp_of_two_models_without_tasks_lies_between_both(
    toys: Toys, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The base of slerp in mergekit is an end of the path and no ancestor."""
    a, b, _ = toys.sources
    file = tmp_path / "g.yml"
    for base in (f", base_model: {a}", ""):
        file.write_text(f"genome: {{models: [{a}, {b}], merge_method: slerp{base}}}\n")
        made = evo.make({"config_file": str(file), "data": [str(toys.data)]})
        assert [s.path for s in made.fields["sources"]] == [str(a.resolve()), str(b.resolve())]
        assert made.fields["base"] is None
        assert made.config.flat()["species"] == ["slerp"]
        assert evo.check(made).parameters > 0
        assert ("both are sources" in capsys.readouterr().err) == bool(base)


@pytest.mark.parametrize("text", ["genome: 3\n", "genome: {models: 3}\n", "genome: {models: [1]}\n"])
def test_a_genome_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "g.yml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"genome"):
        evo.read_file(str(file))


def test_settings_may_be_yaml(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("generations: 7\n")
    assert evo.read_file(str(file)) == {"generations": 7}
    file.write_text("a: [\n")
    with pytest.raises(ConfigError, match="is not valid"):
        evo.read_file(str(file))
