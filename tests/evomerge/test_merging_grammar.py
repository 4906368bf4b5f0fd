"""mergekit's YAML: what is read, and where an error is."""

# ruff: noqa: E501  a config a line

from __future__ import annotations

import pytest

from evomerge.errors import ConfigError
from evomerge.merging import methods
from evomerge.merging.grammar import Document, Map, Reference, parse
from evomerge.merging.parameters import Settings, evaluate, gradient

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


def one(text: str) -> Document:
    (document,) = parse(text)
    return document


def test_a_config_of_whole_models_is_one_slice() -> None:
    document = one(TIES)
    assert document.method == "ties"
    assert [str(r) for r in document.references()] == ["a", "b@main", "c+lora"]
    assert document.slices[0].parts[2].reference == Reference("c", "lora")
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
    assert document.slices[0].base == Reference("a")
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("- a\n", "a merge is a mapping"),
        ("models: [\n", "line 2: this is not YAML"),
        ("models: []\nmerge_method: ties\n", "exactly one of models, slices and modules: this has none"),
        ("models: [{model: a}]\nslices: [{sources: []}]\nmerge_method: x\n", "this has models and slices"),
        ("models: [{model: a}]\n", "line 1: the key merge_method is missing"),
        ("merge_method: ties\nmodels:\n  - parameters: {}\n", "line 3: the key model is missing"),
        ("merge_method: ties\nmodels: a\n", "line 2: models is a list"),
        ("merge_method: ties\nmerge_method: slerp\nmodels: [{model: a}]\n", "line 2: the key merge_method stands twice"),
        ("merge_method: [1]\nmodels: [{model: a}]\n", "line 1: merge_method is a word"),
        ("merge_method: ties\nmodels: [{model: 3}]\n", "line 2: model names a model"),
        ("merge_method: p\nslices:\n  - sources:\n    - {model: a, layer_range: [4, 2]}\n", "line 4: layer_range is"),
        ("merge_method: p\nslices:\n  - sources:\n    - {model: a, layer_range: [0, 2]}\n    - {model: b, layer_range: [0, 3]}\n", "same number of layers, not \\[2, 3\\]"),
        ("merge_method: p\nmodels: [{model: a}]\nparameters: 3\n", "line 3: parameters is a mapping"),
        ("merge_method: p\nmodels: [{model: a}]\ntokenizer: {pad_to_multiple_of: 0}\n", "line 3: pad_to_multiple_of"),
        ("merge_method: p\nmodels: [{model: a}]\ntokenizer_source: base\ntokenizer: {}\n", "exclude each other"),
        ("merge_method: p\nmodels: [{model: a}]\ntokenizer: {tokens: {x: {source: {kind: odd}}}}\n", "line 3: the source of token x"),
        ("merge_method: p\nmodules: {a: {models: []}, b: {}}\n", "models of one module"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(text)


def test_what_is_not_known_is_a_warning_that_names_it() -> None:
    text = "merge_method: ties\nmodels: [{model: a, wieght: 1}]\nbase_model: a\ncolour: red\nparameters: {int8_mask: true, tt: 1}\n"
    document = one(text)
    told = "\n".join([*document.warnings, *methods.unread(document)])
    for words in (
        "line 2: the key models.wieght",
        "line 4: the key colour",
        "line 5: the parameter int8_mask",
        "parameter tt is not read by ties",
    ):
        assert words in told, told


@pytest.mark.parametrize(("method", "key"), [
    ("ties", "lambda"), ("ties", "normalize"), ("dare_ties", "rescale"), ("slerp", "t"), ("dfs", "epsilon"),
    ("linear-ties-dfs", "density"),
])  # fmt: skip
def test_what_belongs_to_the_whole_is_not_read_of_one_model(method: str, key: str) -> None:
    """It would change nothing, and nobody would know."""
    text = "merge_method: {}\nmodels:\n  - model: a\n    parameters:\n      {}: 0.5\n".format
    (told,) = methods.unread(one(text(method, key)))
    assert told.endswith(
        f", line 5: parameter {key} is not read in a model's own parameters by {method}."
    )
    whole = f"merge_method: {method}\nmodels: [{{model: a}}]\nparameters: {{{key}: 0.5}}\n"
    assert not methods.unread(one(whole))


def test_a_method_that_is_not_there_is_an_error_with_all_that_are() -> None:
    with pytest.raises(ConfigError, match=r"line 1: there is no merge_method 'magic'.*linear"):
        methods.method(one("merge_method: magic\nmodels: [{model: a}]\n"))


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
    setting = [
        {"filter": "mlp", "value": [0.0, 1.0]},
        {"filter": "norm", "value": 0.2},
        {"value": 0.5},
    ]
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
    settings = Settings("f", maps, "x", 0.0)
    assert [settings.number(key) for key in ("weight", "density", "t")] == [1, 3, 6]
    with pytest.raises(ConfigError, match=r"f: parameter gamma is missing for tensor x"):
        settings.number("gamma")
    with pytest.raises(ConfigError, match=r"f, line 7: parameter weight: it is a number"):
        Settings("f", (given(weight="much"),), "x", 0.0).number("weight")
