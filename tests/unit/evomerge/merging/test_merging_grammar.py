"""mergekit's YAML: what is read, and where an error is."""

# ruff: noqa: E501  a config a line

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_forge.evomerge.mergekit import method_map
from agent_forge.evomerge.mergekit.method_map import LookupMaps, evaluate, gradient
from agent_forge.evomerge.mergekit.parser import Map, MergeSpec, ModelPath, parse, read
from agent_forge.runs.errors import ConfigError

TIES = """
models:
  - model: a
  - model: b@main
    parameters:
      density: [0.1, 0.5]
  - model: c+lora
merge_method: ties
base_model: a
parameters:
  normalize: true
dtype: bfloat16
"""


def one(text: str) -> MergeSpec:
    (document,) = parse(text)
    return document


def test_a_config_of_whole_models_is_one_slice() -> None:
    document = one(TIES)
    assert document.method == "ties"
    assert [str(r) for r in document.references()] == ["a", "b@main", "c+lora"]
    assert document.slices[0].parts[2].reference == ModelPath("c", "lora")
    assert (document.dtype, document.whole, document.warnings) == ("bfloat16", True, ())


def test_slices_modules_and_the_long_form_of_a_model_are_read() -> None:
    text = """
modules:
  default:
    slices:
      - sources:
          - model: {model: {path: a, revision: r}, lora: {path: l}}
            layer_range: [0, 4]
        base_model: a
        parameters: {t: 0.5}
merge_method: slerp
out_dtype: float16
"""
    document = one(text)
    part = document.slices[0].parts[0]
    assert (str(part.reference), part.layers) == ("a@r+l", (0, 4))
    assert document.slices[0].parameters == {"t": 0.5}
    assert document.slices[0].base == ModelPath("a")
    assert document.dtype == "float16"


def test_several_documents_need_names() -> None:
    two = TIES + "name: first\n---\n" + TIES
    with pytest.raises(ConfigError, match=r"line 16.*needs a name"):
        parse(two)
    assert [d.name for d in parse(two + "name: second\n")] == ["first", "second"]


@pytest.mark.parametrize("names", [("x", "x"), ("x", "../out"), ("..", "y")])
def test_names_are_folders_of_their_own(names: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"a folder's name, each once"):
        parse("---\n".join(TIES + f"name: {name}\n" for name in names))


def test_merge_keys_of_yaml_are_read() -> None:
    text = "merge_method: ties\nmodels:\n  - model: a\n    parameters: &p {density: 0.5, weight: 1}\n  - model: b\n    parameters: {<<: *p, density: 0.3}\nbase_model: a\n"
    assert one(text).slices[0].parts[1].parameters == {"density": 0.3, "weight": 1}


def merge_keys(lines: int) -> str:
    """Each line a mapping that merges in the one before ten times."""
    text = "m0: &m0 {a: 1, b: 2}\n"
    for n in range(1, lines):
        text += f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 10)}]}}\n"
    return text


def test_merge_keys_that_multiply_are_refused_in_time() -> None:
    """Nine lines stand for two billion keys: it was killed after 90 s, and by then had the memory."""
    with pytest.raises(ConfigError, match=r"line \d+: merge keys .* bring in more than 100,000 keys"):
        parse(merge_keys(10) + TIES)
    assert len(parse(merge_keys(4) + TIES)) == 1


#: Each line a list of the one before seven times: a9 stands for 282 million texts.
LISTS = "a0: &a0 [x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 7)}]\n" for n in range(1, 10)
)
#: Few aliases, of a long text.
LONG = f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 1000)}]\n"


@pytest.mark.parametrize(
    "text",
    [
        LISTS + "merge_method: ties\nmodels: [{model: {path: *a9}}]\n",
        LISTS + "? *a9\n: 1\n",
        LISTS.replace("[", "{k: [").replace("]", "]}") + TIES,
        LONG + TIES,
        "---\n".join(["a: &a [x, x]\nb: [" + "*a, " * 100 + "]\n"] * 1000),
    ],
    ids=["a value", "a key", "mappings", "a long text", "many documents"],
)
def test_aliases_that_multiply_are_refused_in_time(text: str) -> None:
    """Ten lines took more than a minute to write out, or 52 MB of a message."""
    with pytest.raises(ConfigError, match=r"line \d+: .* aliases .* bring in more than 100,000"):
        parse(text)


def test_aliases_that_repeat_a_little_are_read() -> None:
    """As people write configs: one list of weights for every model, and a text twice."""
    text = "w: &w [0.1, 0.2]\nt: &t " + "word " * 2000 + "\nu: *t\nmerge_method: ties\nmodels:\n"
    text += "".join(f"  - {{model: m{n}, parameters: {{weight: *w}}}}\n" for n in range(500))
    assert one(text + "base_model: a\n").slices[0].parts[499].parameters == {"weight": [0.1, 0.2]}


def test_an_alias_in_what_it_stands_for_is_refused() -> None:
    with pytest.raises(ConfigError, match="line 2: an alias stands in what it stands for"):
        parse("x: 1\ny: &y [1, *y]\n" + TIES)


@pytest.mark.parametrize(
    ("model", "what"),
    [
        ("{path: [a]}", "path"),
        ("{path: 3}", "path"),
        ("{path: a, revision: 12}", "revision"),
        ("{revision: main}", "path"),
    ],
)
def test_a_model_is_named_by_text(model: str, what: str) -> None:
    """A list became a path of brackets, and revision 010 became 8."""
    text = f"merge_method: ties\nmodels: [{{model: {{model: {model}}}}}]\nbase_model: a\n"
    with pytest.raises(ConfigError, match=rf"line 2: model: its {what} is no text"):
        parse(text)


def test_an_adapter_is_named_by_text() -> None:
    text = "merge_method: ties\nmodels: [{model: {model: a, lora: [b]}}]\nbase_model: a\n"
    with pytest.raises(ConfigError, match="line 2: model: its lora is no text"):
        parse(text)


DEEP = {
    "lists": "x: " + "[" * 20_000 + "]" * 20_000 + "\n",
    "blocks": "x:\n" + "".join("  " * n + " - \n" for n in range(1, 600)),
    "a mapping that merges in itself": "x: &x {<<: *x}\n",
    "a number beyond floats": "x: !!float '" + "1:" * 400 + "1.5'\n",
    "a date that is none": "x: !!timestamp abc\n",
    "a number without end": "x: " + "9" * 5000 + "\n",
}


@pytest.mark.parametrize("name", DEEP)
def test_yaml_that_breaks_its_reader_is_an_error_in_words(name: str) -> None:
    """The library raises whatever comes; a user must see that it is the file."""
    with pytest.raises(ConfigError, match=r"^config"):
        parse(DEEP[name] + "models: 3\n")


def test_a_file_without_end_is_no_config(tmp_path: Path) -> None:
    """Nor a file of gigabytes."""
    file = tmp_path / "large.yml"
    file.touch()
    os.truncate(file, 1 << 40)
    with pytest.raises(ConfigError, match="more than the 4,194,304 that are read"):
        read(file)


@pytest.mark.parametrize("name", ['"a\\0b"', '"a\\nb"', '"\\e[31m"', "a" * 201, '""'])
def test_a_name_is_one_that_a_folder_can_have(name: str) -> None:
    """A null byte raised in the middle, a line end broke the card."""
    with pytest.raises(ConfigError, match="a folder's name"):
        parse(TIES + f"name: {name}\n")


def test_a_result_has_no_more_layers_than_any_model() -> None:
    """Ten thousand slices took more than a minute, and a disk."""
    slice_ = "  - sources: [{model: a, layer_range: [0, 2]}]\n"
    whole = "merge_method: passthrough\nslices:\n"
    assert len(one(whole + slice_ * 1_000).slices) == 1_000
    with pytest.raises(ConfigError, match="line 1003: the slices have more than 2,000 layers"):
        parse(whole + slice_ * 1_001)


@pytest.mark.parametrize("multiple", ["1000000000000", "65537", "true", "1.5"])
def test_an_embedding_is_padded_within_reason(multiple: str) -> None:
    """A list was made with a place for every row."""
    text = f"{TIES}tokenizer: {{pad_to_multiple_of: {multiple}}}\n"
    with pytest.raises(ConfigError, match="a whole number from 1 to 65,536"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("- a\n", "a merge is a mapping"),
        ("models: [\n", "line 2: this is not YAML"),
        (
            "models: []\nmerge_method: ties\n",
            "exactly one of models, slices and modules: this has none",
        ),
        (
            "models: [{model: a}]\nslices: [{sources: []}]\nmerge_method: x\n",
            "this has models and slices",
        ),
        ("models: [{model: a}]\n", "line 1: the key merge_method is missing"),
        ("merge_method: ties\nmodels:\n  - parameters: {}\n", "line 3: the key model is missing"),
        ("merge_method: ties\nmodels: a\n", "line 2: models is a list"),
        (
            "merge_method: ties\nmerge_method: slerp\nmodels: [{model: a}]\n",
            "line 2: the key merge_method stands twice",
        ),
        ("merge_method: [1]\nmodels: [{model: a}]\n", "line 1: merge_method is a word"),
        ("merge_method: ties\nmodels: [{model: 3}]\n", "line 2: model names a model"),
        (
            "merge_method: p\nslices:\n  - sources:\n    - {model: a, layer_range: [4, 2]}\n",
            "line 4: layer_range is",
        ),
        (
            "merge_method: p\nslices:\n  - sources:\n    - {model: a, layer_range: [0, 2]}\n    - {model: b, layer_range: [0, 3]}\n",
            "same number of layers, not \\[2, 3\\]",
        ),
        ("merge_method: p\nmodels: [{model: a}]\nparameters: 3\n", "line 3: parameters is a mapping"),
        (
            "merge_method: p\nmodels: [{model: a}]\ntokenizer: {pad_to_multiple_of: 0}\n",
            "line 3: pad_to_multiple_of",
        ),
        (
            "merge_method: p\nmodels: [{model: a}]\ntokenizer_source: base\ntokenizer: {}\n",
            "exclude each other",
        ),
        (
            "merge_method: p\nmodels: [{model: a}]\ntokenizer: {tokens: {x: {source: {kind: odd}}}}\n",
            "line 3: the source of token x",
        ),
        ("merge_method: p\nmodules: {a: {models: []}, b: {}}\n", "models of one module"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(text)


def test_what_is_not_known_is_a_warning_that_names_it() -> None:
    text = "merge_method: ties\nmodels: [{model: a, wieght: 1}]\nbase_model: a\ncolour: red\nparameters: {int8_mask: true, tt: 1}\n"
    document = one(text)
    told = "\n".join([*document.warnings, *method_map.unread(document)])
    for words in (
        "line 2: the key models.wieght",
        "line 4: the key colour",
        "line 5: the parameter int8_mask",
        "parameter tt is not read by ties",
    ):
        assert words in told, told


@pytest.mark.parametrize(
    ("method", "key"),
    [
        ("ties", "lambda"),
        ("ties", "normalize"),
        ("dare_ties", "rescale"),
        ("slerp", "t"),
        ("dfs", "epsilon"),
        ("linear-ties-dfs", "density"),
    ],
)
def test_what_belongs_to_the_whole_is_not_read_of_one_model(method: str, key: str) -> None:
    """It would change nothing, and nobody would know."""
    text = "merge_method: {}\nmodels:\n  - model: a\n    parameters:\n      {}: 0.5\n".format
    (told,) = method_map.unread(one(text(method, key)))
    assert told.endswith(
        f", line 5: parameter {key} is not read in a model's own parameters by {method}."
    )
    whole = f"merge_method: {method}\nmodels: [{{model: a}}]\nparameters: {{{key}: 0.5}}\n"
    assert not method_map.unread(one(whole))


def test_a_method_that_is_not_there_is_an_error_with_all_that_are() -> None:
    with pytest.raises(ConfigError, match=r"line 1: there is no merge_method 'magic'.*linear"):
        method_map.method(one("merge_method: magic\nmodels: [{model: a}]\n"))


def test_scientific_numbers_are_numbers() -> None:
    """YAML 1.1 reads 1e-5 as text."""
    document = one("merge_method: nearswap\nmodels: [{model: a}]\nparameters: {t: 1e-5}\n")
    assert document.parameters["t"] == 1e-5


# ---- parameters ----------------------------------------------------------------------------


def test_a_gradient_is_piecewise_linear_over_depth() -> None:
    """Three points: t = 0, ½, 1; ¼ is half-way between the first two."""
    assert [gradient([0, 1, 3], t) for t in (0, 0.25, 0.5, 0.75, 1)] == [0, 0.5, 1, 2, 3]
    assert gradient([7], 0.3) == 7


def test_the_first_filter_that_matches_counts() -> None:
    setting = [{"filter": "mlp", "value": [0.0, 1.0]}, {"filter": "norm", "value": 0.2}, {"value": 0.5}]
    assert evaluate(setting, "model.layers.1.mlp.up_proj.weight", 0.25) == 0.25
    assert evaluate(setting, "model.norm.weight", 0.0) == 0.2
    assert evaluate(setting, "lm_head.weight", 0.0) == 0.5
    assert evaluate(setting[:1], "lm_head.weight", 0.0) is None


def test_embedding_and_head_have_values_of_their_own() -> None:
    """Not the first value of a gradient, as "t = 0" makes it."""
    setting = [
        {"filter": "embedding", "value": 0.1},
        {"filter": "head", "value": 0.9},
        {"value": [0.4, 0.6]},
    ]
    assert evaluate(setting, "model.embed_tokens.weight", 0) == 0.1
    assert evaluate(setting, "lm_head.weight", 0) == 0.9
    assert evaluate(setting, "model.layers.3.mlp.up_proj.weight", 1) == 0.6


@pytest.mark.parametrize("setting", [[], "half", [1, "a"], [{"valeu": 1}], float("nan"), [[1]]])
def test_a_setting_that_is_none_is_refused(setting: object) -> None:
    with pytest.raises(ValueError, match=r"it is a number|has the keys|not a finite"):
        evaluate(setting, "x", 0)


def test_a_part_outweighs_its_slice_and_that_the_whole() -> None:
    def given(**values: object) -> Map:
        made = Map.empty(7)
        made.update(values)
        return made

    maps = (given(weight=1), given(weight=2, density=3), given(weight=4, density=5, t=6))
    settings = LookupMaps("f", maps, "x", 0.0)
    assert [settings.number(key) for key in ("weight", "density", "t")] == [1, 3, 6]
    with pytest.raises(ConfigError, match=r"f: parameter gamma is missing for tensor x"):
        settings.number("gamma")
    with pytest.raises(ConfigError, match=r"f, line 7: parameter weight: it is a number"):
        LookupMaps("f", (given(weight="much"),), "x", 0.0).number("weight")


def test_a_folder_with_a_plus_in_its_name_is_meant_before_an_adapter(tmp_path: Path) -> None:
    """`c++ models/code` is one name if it is there, with an adapter behind it, too."""
    model, lora = tmp_path / "c++ models" / "code", tmp_path / "lo+ra"
    for folder in (model, lora):
        folder.mkdir(parents=True)
    assert ModelPath.parse(str(model)) == ModelPath(str(model))
    assert ModelPath.parse(f"{model}+{lora}") == ModelPath(str(model), str(lora))
    assert ModelPath.parse(f"{model} + lora") == ModelPath(str(model), "lora")
    assert ModelPath.parse("org/a+org/b@main") == ModelPath("org/a", "org/b@main")
    text = f'merge_method: passthrough\nmodels: [{{model: {{model: "{model}", lora: "{lora}"}}}}]\n'
    assert parse(text)[0].references() == [ModelPath(str(model), str(lora))]
