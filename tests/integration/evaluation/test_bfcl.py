"""The Berkeley Function Calling Leaderboard as data: its files, the items, and how models are asked.

The rows here are our own, in the layout of the package `bfcl-eval`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_forge.evaluation import kept_items
from agent_forge.evaluation.data import bfcl, function_templates, packing
from agent_forge.evaluation.data import items as data_items
from agent_forge.evaluation.data.items import Problem, Text, from_rows
from agent_forge.evaluation.data.packing import PackedProblem
from agent_forge.evaluation.evaluate import Judge
from agent_forge.evaluation.loading import load_items
from agent_forge.runs.errors import DataError
from testing.models import toy_models

PAINT = {
    "name": "house.paint",
    "description": "Paint a wall.",
    "parameters": {
        "type": "dict",
        "properties": {
            "colour": {"type": "string", "description": "The colour."},
            "litres": {"type": "float", "description": "How much paint."},
            "corner": {"type": "tuple", "items": {"type": "float"}, "description": "Where."},
            "note": {"type": "any", "description": "Anything.", "default": ""},
            "options": {
                "type": "dict",
                "description": "How.",
                "properties": {"coats": {"type": "integer", "description": "Layers."}},
            },
        },
        "required": ["colour", "litres"],
    },
}
RIGHT = {
    "house.paint": {
        "colour": ["red", "dark red"],
        "litres": [2.0],
        "corner": [[0.5, 1.5], ""],
        "note": [""],
        "options": [{"coats": [2]}, ""],
    }
}


def question(
    id_: str, content: str = "Paint it red, with two litres.", **fields: Any
) -> dict[str, Any]:
    """Return a row of a category."""
    return {
        "id": id_,
        "question": [[{"role": "user", "content": content}]],
        "function": [PAINT],
        **fields,
    }


def written(folder: Path, name: str, rows: Sequence[Any], answers: Sequence[Any] | None) -> Path:
    """Write a category in the layout of the unpacked package; return the package's folder."""
    data = folder / "bfcl_eval" / "data"
    (data / "possible_answer").mkdir(parents=True, exist_ok=True)
    for place, lines in ((data, rows), (data / "possible_answer", answers)):
        if lines is not None:
            text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
            (place / f"BFCL_v4_{name}.json").write_text(text, "utf-8")
    return folder


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """A folder with the categories simple_python and irrelevance."""
    answers = [{"id": "simple_python_0", "ground_truth": [RIGHT]}]
    written(tmp_path, "simple_python", [question("simple_python_0")], answers)
    return written(tmp_path, "irrelevance", [question("irrelevance_0", "What is love?")], None)


def items(place: str) -> list[Problem]:
    every = load_items((data_items.absolute(place),), needed=("test",))
    return [item for item in every if isinstance(item, Problem)]


def test_rows_become_problems(unpacked: Path) -> None:
    """The schema is OpenAI's; the check has the leaderboard's types."""
    (item,) = items(f"bfcl:{unpacked}/simple_python")
    assert (item.id, item.domain, item.slice) == ("simple_python_0", "simple_python", "test")
    assert (item.prompt, item.max_tokens) == ("Paint it red, with two litres.", 256)
    function = cast("Any", item.functions[0]["function"])
    assert function["name"] == "house_paint"
    assert (
        function["description"]
        == "Paint a wall. Note that the provided function is in Python 3 syntax."
    )
    assert function["parameters"] == {
        "type": "object",
        "properties": {
            "colour": {"type": "string", "description": "The colour."},
            "litres": {
                "type": "number",
                "format": "float",
                "description": "How much paint. This is a float type value.",
            },
            "corner": {"type": "array", "items": {"type": "number"}, "description": "Where."},
            "note": {"type": "string", "description": "Anything.", "default": ""},
            "options": {
                "type": "object",
                "description": "How.",
                "properties": {"coats": {"type": "integer", "description": "Layers."}},
            },
        },
        "required": ["colour", "litres"],
    }
    assert item.check.model_dump()["allowed"][0] == {
        "name": "house_paint",
        "arguments": {key: tuple(values) for key, values in RIGHT["house.paint"].items()},
        "types": {
            "colour": "string",
            "litres": "float",
            "corner": "tuple of float",
            "note": "any",
            "options": "dict",
        },
        "required": ("colour", "litres"),
    }


@pytest.mark.parametrize("inside", ["", "bfcl_eval", "bfcl_eval/data"])
def test_any_folder_of_the_package_is_taken(
    unpacked: Path, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users name the folder that they see; a relative one is pinned in full."""
    monkeypatch.chdir(unpacked)
    place = f"bfcl:{inside or '.'}/irrelevance"
    assert data_items.absolute(place) == f"bfcl:{unpacked.resolve() / inside}/irrelevance"
    assert [item.id for item in items(place)] == ["irrelevance_0"]


def test_the_questions_are_a_text_as_well(unpacked: Path) -> None:
    """Every measurement needs text; more data may stand beside the leaderboard's."""
    (unpacked / "more.jsonl").write_text('{"id": "t", "text": "Words.", "slice": "test"}', "utf-8")
    places = (
        f"bfcl:{unpacked}/simple_python",
        f"bfcl:{unpacked}/irrelevance",
        f"{unpacked}/more.jsonl",
    )
    texts = [item for item in load_items(places, needed=("test",)) if isinstance(item, Text)]
    assert [(text.id, text.text) for text in texts] == [
        ("irrelevance/questions", "What is love?"),
        ("simple_python/questions", "Paint it red, with two litres."),
        ("t", "Words."),
    ]


@pytest.mark.parametrize("place", ["multiple", "simple_java", "simple_python/multiple"])
def test_a_missing_category_is_named_with_those_that_are_there(unpacked: Path, place: str) -> None:
    """A typing error is corrected at a glance."""
    what = "It has simple_python, irrelevance" if "/" not in place else "It has none: give bfcl:FOLDER"
    with pytest.raises(DataError, match=rf"no category '{place.rpartition('/')[2]}' .* {what}"):
        items(f"bfcl:{unpacked}/{place}")


GOOD = {"id": "multiple_0", "ground_truth": [RIGHT]}


@pytest.mark.parametrize(
    ("row", "answer", "where", "why"),
    [
        ("{", GOOD, "BFCL_v4_multiple.json:2: not JSON", ""),
        (question("multiple_9"), GOOD, "BFCL_v4_multiple.json:2", "'multiple_9'"),
        (question("multiple_0", function=[]), GOOD, "BFCL_v4_multiple.json:2", "'house.paint'"),
        (question("multiple_0", question=[]), GOOD, "BFCL_v4_multiple.json:2", "not enough values"),
        ({"id": "multiple_0"}, GOOD, "BFCL_v4_multiple.json:2", "'question'"),
        (
            question("multiple_0"),
            {"id": "multiple_0"},
            "possible_answer/BFCL_v4_multiple.json:1",
            "truth",
        ),
        (
            question("multiple_0"),
            {**GOOD, "ground_truth": [{"house.paint": {"colour": "red"}}]},
            "BFCL_v4_multiple.json:2",
            "valid tuple",
        ),
    ],
)
def test_malformed_rows_are_named(tmp_path: Path, row: Any, answer: Any, where: str, why: str) -> None:
    """By file and line, with the reason."""
    written(tmp_path, "multiple", ["", row], [answer])
    with pytest.raises(DataError) as error:
        items(f"bfcl:{tmp_path}/multiple")
    assert where in str(error.value)
    assert why in str(error.value)


def test_the_answers_must_be_there(tmp_path: Path) -> None:
    """A folder may be copied without them."""
    written(tmp_path, "multiple", [question("multiple_0")], None)
    with pytest.raises(DataError, match=r"possible_answer/BFCL_v4_multiple\.json cannot be read"):
        items(f"bfcl:{tmp_path}/multiple")


def test_runs_find_the_folder_on_the_machine(unpacked: Path) -> None:
    """Without it, a run waits for the items that another machine has kept."""
    supply = cast("Any", SimpleNamespace(items_again=lambda path: False))
    assert kept_items.pinned(supply, (f"bfcl:{unpacked}/simple_python",), None) is None
    with pytest.raises(Exception, match="the data is not on this machine"):
        kept_items.pinned(supply, ("bfcl:/nowhere/simple_python",), None)


# ---- how models are asked ------------------------------------------------------------------------


class Answering:
    """A model whose replies to problems are written in the test."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def replies(self, problems: Sequence[PackedProblem], tokenizer: object) -> list[str]:
        return list(self.texts)


def test_replies_are_judged_from_file_to_score(unpacked: Path) -> None:
    """From the leaderboard's file through packing to a rating, without a chat template of a model."""
    tokenizer: Any = toy_models.tokenizer()
    every = load_items(
        (f"bfcl:{unpacked}/simple_python", f"bfcl:{unpacked}/irrelevance"), needed=("test",)
    )
    data = packing.pack(every, tokenizer, 2048)["test"]
    assert {domain: pack.pool().problems for domain, pack in data.items()} == {
        "simple_python": 1,
        "irrelevance": 1,
    }
    (posed,) = data["simple_python"].problems
    text = cast("str", tokenizer.decode(posed.ids))
    schema = json.dumps(cast("Any", posed.problem.functions[0])["function"], ensure_ascii=False)
    assert text.startswith("<|im_start|>system\nYou can call functions.")
    assert f"\n<tools>\n{schema}\n</tools>\n" in text
    assert text.endswith(
        "<|endoftext|>\n<|im_start|>user\nPaint it red, with two litres.<|endoftext|>\n"
        "<|im_start|>assistant\n"
    )
    right = (
        '<tool_call>{"name": "house_paint", "arguments": {"colour": "Red", "litres": 2}}</tool_call>'
    )
    for reply, score, silent in ((right, 1, 0), ("I cannot paint.", 0, 1)):
        for domain, expected in (("simple_python", score), ("irrelevance", silent)):
            problems = data[domain].problems
            ((_, rating),) = Judge(tokenizer).judge(cast("Any", Answering(reply)), problems)
            assert (rating.score, rating.scored) == (expected, True)


def templated(template: str) -> Any:
    tokenizer: Any = toy_models.tokenizer()
    tokenizer.chat_template = template
    return tokenizer


OWN_CALLS = (
    "{%- for t in tools or [] %}F:{{ t.function | tojson }}\n{%- endfor %}"
    "{%- for m in messages %}{{ m.role }}:{{ m.content }}"
    "{%- for c in m.tool_calls or [] %}{{ c.function | tojson }}{%- endfor %}\n{%- endfor %}"
)


@pytest.mark.parametrize(
    ("template", "start"),
    [(OWN_CALLS, 'F:{"'), ("{%- for m in messages %}{{ m.content }}{%- endfor %}", "<|im_start|>")],
    ids=["writes functions", "words only"],
)
def test_a_model_s_template_is_used_if_it_writes_functions(template: str, start: str) -> None:
    """A model was trained on its own; a template without functions would not show them."""
    schema = {"type": "function", "function": {"name": "f"}}
    text = function_templates.question(templated(template), "Do it.", [schema])
    assert text.startswith(start)
    assert "Do it." in text


def problem(**fields: Any) -> dict[str, Any]:
    check = {"kind": "calls", "allowed": [{"name": "f", "arguments": {}}]}
    return {"id": "p", "domain": "d", "slice": "test", "prompt": "Do it.", "check": check, **fields}


def test_a_problem_that_does_not_fit_is_left_out_with_its_functions() -> None:
    """The schemas take most of the context."""
    tokenizer: Any = toy_models.tokenizer()
    schema = {"type": "function", "function": {"name": "f"}}
    plain, called = from_rows([problem(), problem(id="q", functions=[schema])])
    (ids,) = [p.ids for p in packing.pack([called], tokenizer, 1000)["test"]["d"].problems]
    assert packing.fitting([plain, called], tokenizer, len(ids) + 64) == [plain, called]
    assert packing.fitting([plain, called], tokenizer, len(ids) + 63) == [plain]
    with pytest.raises(DataError, match=f"its prompt has {len(ids)} tokens"):
        packing.pack([called], tokenizer, len(ids) + 63)


def test_items_without_functions_are_written_as_before() -> None:
    """Digests of earlier runs stay."""
    (item,) = from_rows([problem()])
    assert "functions" not in item.model_dump(mode="json", exclude_defaults=True)


@pytest.mark.parametrize("schema", [{"name": "f"}, {"type": "function", "function": {}}])
def test_a_function_that_is_not_in_openai_s_form_is_refused(schema: Any) -> None:
    """A template would write nonsense."""
    with pytest.raises(DataError, match=r"functions\.0.*a function is"):
        from_rows([problem(functions=[schema])])


def test_other_places_are_not_the_leaderboard_s() -> None:
    """A path may begin as it likes."""
    assert not bfcl.is_place("data/bfcl:x")
    assert bfcl.folder("a/b.jsonl") == Path("a/b.jsonl")
