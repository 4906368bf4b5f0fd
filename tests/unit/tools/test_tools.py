"""Tools: exact arithmetic, tables, BM25, memory in files; forms of calls; bounds."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.tools import calls
from agent_forge.tools.calculator import Calculator, evaluate
from agent_forge.tools.calls import FORMS, LONGEST_OUTPUT, Call, ToolError, cut
from agent_forge.tools.search import Index, SearchTool
from agent_forge.tools.toolbox import (
    NAMES,
    SLOTS,
    Memory,
    RecallTool,
    Remember,
    TableTool,
    Toolbox,
    World,
    split,
)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("17 + 5", "22"),
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("-2 ** 2", "-4"),
        ("2 ** 3 ** 2", "512"),
        ("2 ** -1", "0.5"),
        ("0.1 + 0.2", "0.3"),
        ("1 / 3", "1/3"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("-0.05 * 1", "-0.05"),
        ("- - 3", "3"),
        ("99999999999 * 99999999999", "9999999999800000000001"),
    ],
)
def test_arithmetic_is_exact(expression: str, value: str) -> None:
    assert Calculator().run(expression) == value


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("1 / 0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("9 ** 9 ** 9", "too large"),
        ("2 ** 0.5", "must be whole"),
        ("1 +", "ends too early"),
        ("(1", "not closed"),
        ("1 2", "unexpected '2'"),
        ("__import__('os')", "unexpected '_'"),
        ("(" * 300 + "1" + ")" * 100, "nested too deep"),
        ("1+" * 400 + "1", "longer than"),
    ],
)
def test_what_cannot_be_computed_is_an_error(expression: str, why: str) -> None:
    with pytest.raises(ToolError, match=why):
        evaluate(expression)


_NUMBERS = st.integers(0, 999).map(str)
_EXPRESSIONS = st.recursive(
    _NUMBERS,
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner),
    max_leaves=8,
)


@given(_EXPRESSIONS)
def test_arithmetic_agrees_with_python(expression: str) -> None:
    assert evaluate(expression) == Fraction(eval(expression))


def test_a_table_has_its_keys_alone() -> None:
    table = TableTool({"ab": "12"})
    assert table.run(" ab ") == "12"
    with pytest.raises(ToolError, match="no key 'x'"):
        table.run("x")


def test_bm25_is_the_formula() -> None:
    """Three documents of 2, 2 and 4 words; "cat" is in two of them, once and twice."""
    index = Index(["cat dog", "sun moon", "cat cat sea sky"])
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    mean = 8 / 3
    first = idf * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 2 / mean))
    third = idf * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 4 / mean))
    assert index.scores("Cat?") == pytest.approx([first, 0.0, third])
    assert index.best("cat", 5) == ["cat cat sea sky", "cat dog"]
    assert SearchTool(["cat dog", "sun moon"]).run("the MOON") == "sun moon"
    with pytest.raises(ToolError, match="no document"):
        SearchTool([]).run("cat")


def test_memory_is_kept_in_files_and_bounded(tmp_path: Path) -> None:
    """A second process that opens the folder reads what the first one kept."""
    memory = Memory(tmp_path)
    memory.put("semantic", "a", "1")
    memory.put("semantic", "a", "2")
    assert Memory(tmp_path).get("semantic", "a") == "2"
    for text in ("met Ada", "met Ben"):
        memory.put("episodic", "monday", text)
    assert memory.search("episodic", "ada") == ["monday met Ada"]
    assert memory.get("episodic", "monday") == "met Ben"
    for number in range(SLOTS):
        memory.put("working", str(number), "x")
    memory.get("working", "0")  # used now, so 1 is the oldest
    memory.put("working", "new", "x")
    assert memory.get("working", "0") == "x"
    with pytest.raises(ToolError, match="nothing is kept under '1'"):
        memory.get("working", "1")
    with pytest.raises(ToolError, match="no memory 'other'"):
        memory.get("other", "a")
    (tmp_path / "semantic.json").write_text("{")
    with pytest.raises(ToolError, match="holds no memory"):
        memory.get("semantic", "a")


def test_a_full_memory_of_facts_says_so(tmp_path: Path) -> None:
    rows = [[str(n), "x"] for n in range(256)]
    (tmp_path / "semantic.json").write_text(json.dumps(rows))
    with pytest.raises(ToolError, match="full: it holds 256"):
        Remember(Memory(tmp_path)).run("one more = 1")
    assert Remember(Memory(tmp_path)).run("7 = 1") == "kept"
    assert RecallTool(Memory(tmp_path)).run("7") == "1"


def test_a_program_is_split_before_its_last_expression() -> None:
    assert split("x = 3; x * x") == ("x = 3", "x * x")
    for text, why in (("x = 3", "ends with no expression"), ("(", "not Python")):
        with pytest.raises(ToolError, match=why):
            split(text)


def test_megabytes_are_cut_and_said() -> None:
    assert cut("ab", 2) == "ab"
    assert cut("x" * 2_000_000) == "x" * LONGEST_OUTPUT + f" [cut: {2_000_000 - 400} more characters]"


@given(
    st.sampled_from(sorted(FORMS)),
    st.sampled_from(NAMES),
    st.text(st.characters(codec="ascii", exclude_characters="<>[]\n\r"), min_size=1).map(str.strip),
)
def test_a_written_call_is_parsed_again(form: str, tool: str, arguments: str) -> None:
    """All but text with the words form's own closing word."""
    call = Call(tool, arguments)
    written = FORMS[form].written(call)
    if form != "words" or " end" not in f" {arguments}":
        assert FORMS[form].parse(f"so: {written}") == call


def test_what_is_no_call_is_told_from_a_malformed_one() -> None:
    for form in FORMS.values():
        assert form.parse("the answer is 4") is None
        assert form.parse(f"{form.written(Call('calc', '1'))} and more") is None
    half = r'<tool_call>{"name": "put", "arguments": {"input": "a = \ud800"}}</tool_call>'
    malformed = (("<call>4 + 4</call>", "tags"), ("<tool_call>[1]</tool_call>", "chat"), (half, "chat"))
    for text, form in malformed:
        with pytest.raises(ToolError, match="a call is"):
            FORMS[form].parse(text)
    with pytest.raises(ToolError, match="at most"):
        calls.TAGS.parse(calls.TAGS.written(Call("calc", "1" * 5_000)))


@pytest.mark.parametrize("program", ["1" + "+1" * 1_500, "-" * 1_500 + "1", "a" + ".b" * 1_500])
def test_a_program_that_is_nested_too_deep_is_an_error_of_the_tool(program: str) -> None:
    with pytest.raises(ToolError, match="not Python"):
        split(program)


def test_errors_of_tools_are_texts(tmp_path: Path) -> None:
    def none() -> None:
        raise AssertionError("no sandbox is needed")

    box = Toolbox(World(table={"a": "1" * 1_000}), tmp_path, none)  # pyright: ignore
    assert tuple(box.tools) == NAMES
    assert box.answer(Call("calc", "2 *")).output.startswith("error: the expression ends")
    assert not box.answer(Call("calc", "2 *")).ran
    assert not box.answer(Call("rm", "-rf")).ran
    long = box.answer(Call("table", "a"))
    assert long.ran
    assert long.output.endswith("[cut: 600 more characters]")
