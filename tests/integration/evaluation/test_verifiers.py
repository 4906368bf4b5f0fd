"""What counts as a right reply, verifier by verifier, and what tries to be counted as one."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from agent_forge.evaluation.verifiers import number, program, scorer
from agent_forge.evaluation.verifiers import verifier as structured
from agent_forge.evaluation.verifiers import verifier as verifiers_verifier
from agent_forge.evaluation.verifiers.program import fenced
from agent_forge.evaluation.verifiers.scorer import Scorer
from agent_forge.evaluation.verifiers.verifier import AnyCheck, Verifier
from agent_forge.runs.errors import UnavailableError

ITEM: dict[str, Any] = {"id": "i", "domain": "d", "prompt": ""}


def check(**fields: Any) -> Any:
    """A check as a data file has it."""
    return TypeAdapter(AnyCheck).validate_json(json.dumps(fields))


@pytest.fixture(scope="module")
def verifier() -> Verifier:
    """One for all, as an evaluation has."""
    return Verifier()


# ---- exact ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "score"),
    [("Paris", 1), (" Paris\n", 1), ("Lutetia", 1), ("paris", 0), ("Pari", 0), ("", 0)],
)
def test_exact_takes_any_of_the_answers(verifier: Verifier, reply: str, score: int):
    """Blanks around it do not count, case does."""
    asked = check(kind="exact", answer=["Paris", "Lutetia "])
    assert verifier.verify(asked, reply, ITEM).score == score


def test_exact_can_ignore_case(verifier: Verifier):
    """As Unicode folds it."""
    asked = check(kind="exact", answer="Straße", ignore_case=True)
    assert verifier.verify(asked, "STRASSE", ITEM).score == 1


# ---- number --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("42", "42"),
        (" 19\n", "19"),
        ("2 + 2 = 4", "4"),
        ("-7.", "-7"),
        ("1,234,567 people", "1234567"),
        ("1, 2, 3", "3"),
        ("3/4", "3/4"),
        ("1.50", "3/2"),
        ("2e3", "2000"),
        ("5 - 3", "3"),
        ("The answer is 12. There were 3 of them.", "12"),
        ("#### 8 because 9", "8"),
        (r"so \boxed{-5} and 6", "-5"),
        ("Answer: 4\nNo! Answer: 5 of 9", "5"),
        ("answer: none, but 17", "17"),
        ("x5 v2.0b", None),
        ("", None),
        ("1/0", None),
        ("310km, or 12.5cm", "25/2"),
        ("3/4th", "3/4"),
        ("−5", "-5"),
        ("is .5", "1/2"),
        ("####" * 20_000, None),
        ("answer is " * 20_000 + "7", "7"),
        ("9" * 5000, None),
    ],
)
def test_the_result_of_a_reply(reply: str, said: str | None):
    """The first number after the last sign of an answer, else the last number."""
    assert number.result(reply) == (None if said is None else number.parse(said))


@given(st.fractions(max_denominator=1000), st.sampled_from(["{}", "so it is {}", "{} \n"]))
def test_a_number_is_found_as_it_was_written(value: Any, form: str):
    """Fractions and integers, negative ones too."""
    assert number.result(form.format(value)) == value


def test_numbers_are_compared_exactly_or_within_a_tolerance(verifier: Verifier):
    """0.1 is a tenth, not a float; a tolerance is absolute."""
    assert verifier.verify(check(kind="number", answer="0.3"), "3/10", ITEM).score == 1
    assert verifier.verify(check(kind="number", answer="0.3"), "0.30001", ITEM).score == 0
    near = check(kind="number", answer=10, tolerance=0.5)
    assert [verifier.verify(near, r, ITEM).score for r in ("10.5", "9.4")] == [1, 0]


# ---- structured ----------------------------------------------------------------------------

PERSON = {"name": "ada", "age": 36, "tags": ["x", "y"], "active": True}


@pytest.mark.parametrize(
    ("form", "reply", "score"),
    [
        ("json", json.dumps(PERSON), 1),
        ("json", "```json\n" + json.dumps(PERSON) + "\n```\nDone.", 1),
        ("json", json.dumps({**PERSON, "age": "36"}), 4 / 5),  # a text is no number
        ("json", json.dumps({**PERSON, "active": 1}), 4 / 5),  # 1 is not true
        ("json", json.dumps({**PERSON, "age": 36.0}), 1),
        ("json", json.dumps({**PERSON, "more": 1}), 5 / 6),  # what is too much counts
        ("json", json.dumps({"name": "ada"}), 1 / 5),
        ("json", json.dumps({**PERSON, "tags": ["y", "x"]}), 3 / 5),
        ("json", "{", 0),
        ("json", "[" * 100_000, 0),
        ("json", "", 0),
        ("yaml", "name: ada\nage: 36\ntags: [x, y]\nactive: true\n", 1),
        ("yaml", "a: &a [1]\nb: *a", 0),
        ("yaml", "  name: ada\n  age: 36\n  tags: [x, y]\n  active: true\n", 1),
        ("yaml", "a: !!bool x", 0),
        ("yaml", "a: !!int ''", 0),
        ("yaml", "a: !!timestamp x", 0),
        ("yaml", "!!python/object/apply:os.system ['true']", 0),
        ("toml", 'name = "ada"\nage = 36\ntags = ["x", "y"]\nactive = true', 1),
        ("toml", "name = ", 0),
    ],
)
def test_data_is_compared_field_by_field(verifier: Verifier, form: str, reply: str, score: float):
    """Five fields: name, age, tags 0, tags 1, active."""
    asked = check(kind="data", format=form, answer=PERSON)
    assert verifier.verify(asked, reply, ITEM).score == pytest.approx(score)


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("id,name\n1,ada\n2,ben", 1),
        ('id,name\n1,"ada"\n2,ben\n', 1),
        ("name,id\nada,1\nben,2", 1),
        ("id,name\n1,ada\n2,bob", 3 / 4),
        ("id,name\n1,ada", 2 / 4),
        ("id,name\n1,ada,3\n2,ben", 0),
        ("id,name\n1\n2,ben", 0),
    ],
)
def test_csv_is_rows_of_texts(verifier: Verifier, reply: str, score: float):
    """Columns in any order; rows of another length are no table."""
    rows = [{"id": 1, "name": "ada"}, {"id": 2, "name": "ben"}]
    asked = check(kind="data", format="csv", answer=rows)
    assert verifier.verify(asked, reply, ITEM).score == pytest.approx(score)


LEAF = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3)
TREE = st.recursive(
    LEAF, lambda t: st.lists(t, max_size=3) | st.dictionaries(st.text(max_size=2), t, max_size=3)
)


@pytest.mark.slow
@given(TREE, TREE)
def test_the_share_of_fields_is_fair(first: Any, second: Any):
    """What is asked for scores 1, and which side is asked for does not matter."""
    one = check(kind="data", format="json", answer=first)
    other = check(kind="data", format="json", answer=second)
    assert structured.verify(one, json.dumps(first)).score == 1
    there, back = (
        structured.verify(one, json.dumps(second)),
        structured.verify(other, json.dumps(first)),
    )
    assert there.score == pytest.approx(back.score)


# ---- programs ------------------------------------------------------------------------------

TESTS = ["assert add(2, 3) == 5", "assert add([1], [2]) == [1, 2]", "assert not add(0, 0)"]
PROMPT = "def add(a, b):\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reply", "score", "why"),
    [
        ("    return a + b", 1, ""),
        ("    return a - b", 0, r"add\(2, 3\) is -1, not 5"),
        ("    return a * 2.5 if a == 2 else a + b", 1, ""),  # 5.0 == 5, as Python says
        ("    return a + b\n\nThat is all there is to", 1, ""),  # prose, and a line that was cut
        ("    return a + b\n\nExample:\n```python\nadd(1, 2)\n```", 1, ""),
        ("    retrun a", 0, "SyntaxError"),
        ("    while True: pass", 0, "ran out of time"),
        ("```python\ndef add(a, b):\n    return a + b\n```", 1, ""),
        ("```python\ndef plus(a, b):\n    return a + b\n```", 0, "NameError"),
        ("    class Any:\n        def __eq__(self, o): return True\n    return Any()", 0, "is <"),
        ("    return a + b\nbool = lambda x: False\n", 1, ""),
        ("    return 5\nimport os\nos._exit(0)", 0, "without an answer"),
    ],
)
def test_programs_are_run_against_tests(verifier: Verifier, reply: str, score: int, why: str):
    """A reply continues the prompt; a code block stands for itself."""
    asked = check(kind="program", tests=TESTS)
    found = verifier.verify(asked, reply, {**ITEM, "prompt": PROMPT})
    assert found.score == score, found.why
    assert re.search(why, found.why), found.why


def test_a_program_that_stands_alone(verifier: Verifier):
    """As a chat model answers."""
    asked = check(kind="program", tests=["assert f() == {'a': (1, 2.0)}"], completes=False)
    prompt = {**ITEM, "prompt": "Write f."}
    assert verifier.verify(asked, "def f(): return {'a': (1, 2 + 1e-12)}", prompt).score == 1
    assert verifier.verify(asked, "def f(): return {'a': [1, 2.0]}", prompt).score == 0


def test_kinds_of_literals_count_as_what_they_are(verifier: Verifier):
    """Counters, default dictionaries and named tuples come from honest solutions."""
    tests = ["assert f('aab') == {'a': 2, 'b': 1}", "assert g() == [(1, 2)]"]
    reply = (
        "from collections import Counter, namedtuple\nP = namedtuple('P', 'x y')\n"
        "def f(s): return Counter(s)\ndef g(): return [P(1, 2)]\n"
    )
    asked = check(kind="program", tests=tests, completes=False)
    assert verifier.verify(asked, reply, ITEM).score == 1


@pytest.mark.parametrize(
    ("returned", "meant"),
    [
        ("10**400", "0.5"),
        ("[10**400]", "[0.5]"),
        ("10**4299", "0.5"),
        ("-10**400", "-0.5"),
        ("{1: 10**400}", "{1: 0.5}"),
        ("0.5", "10**400"),
        ("1e400", "10**400"),
    ],
)
def test_a_number_beyond_floats_is_another_number(verifier: Verifier, returned: str, meant: str):
    """It raised OverflowError in the judge, three times, and the run had failed for good."""
    meant = meant.replace("10**400", "1" + "0" * 400)
    asked = check(kind="program", tests=[f"assert f() == {meant}"], completes=False)
    found = verifier.verify(asked, f"def f(): return {returned}", ITEM)
    assert (found.score, found.scored) == (0, True), found.why


def test_a_verifier_that_breaks_over_a_reply_counts_nothing_and_is_logged(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A model's text must not end a run; a defect of ours must not be silent."""

    def broken(*_: object) -> None:
        raise OverflowError("int too large")

    monkeypatch.setattr("agent_forge.evaluation.verifiers.exact.verify", broken)
    found = verifier.verify(check(kind="exact", answer="a"), "a", {**ITEM, "id": "item-7"})
    assert (found.score, found.scored) == (0, False)
    assert found.why == "the verifier raised OverflowError: int too large"
    assert "item-7" in caplog.text
    assert "Traceback" in caplog.text


def test_a_program_never_sees_what_it_should_compute():
    """Only calls go into the sandbox: nothing to look up there."""
    sent: list[Any] = []

    class Spy:
        def run(self, source: str, calls: list[str]) -> Any:
            sent.append((source, calls))
            raise StopIteration

    asked = check(kind="program", tests=["assert f(1) == 987654"])
    with pytest.raises(StopIteration):
        program.verify(asked, "", "", Spy())  # pyright: ignore[reportArgumentType]
    assert sent == [("", ["f(1)"])]


@pytest.mark.parametrize(
    "value", ["1", "-1.5", "'a'", "b'a'", "None", "True", "(1,)", "[1, [2]]", "{1, 2}", "{'a': {}}"]
)
def test_every_literal_is_itself_and_nothing_else(value: str):
    """By type too; but for numbers, which are equal as Python says."""
    import ast

    one = ast.literal_eval(value)
    assert program.same(one, ast.literal_eval(value))
    others = [1, -1.5, "a", b"a", None, (1,), [1, [2]], {1, 2}, {"a": {}}]
    assert sum(program.same(one, other) for other in others) == 1
    assert program.same(1, 1.0 + 1e-12)
    assert not program.same(10**20, 10**20 + 1)


# ---- what is no check ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "taste"}, "does not match any of the expected tags"),
        ({"kind": "exact"}, "answer"),
        ({"kind": "exact", "answer": []}, "answer"),
        ({"kind": "exact", "answer": ""}, "answer"),
        ({"kind": "exact", "answer": " "}, "answer"),
        ({"kind": "program", "tests": ["assert f() == {[1]: 2}"]}, r"with a literal VALUE"),
        ({"kind": "number", "answer": "twelve"}, "'twelve' is not a number"),
        ({"kind": "number", "answer": 1, "tolerance": -1}, "tolerance"),
        ({"kind": "data", "format": "xml", "answer": 1}, "format"),
        ({"kind": "data", "format": "csv", "answer": {"a": 1}}, "one for each row"),
        ({"kind": "program", "tests": []}, "tests"),
        ({"kind": "program", "tests": ["f(1) == 2"]}, r"is not `assert CALL == VALUE`"),
        ({"kind": "program", "tests": ["assert f(1) == g(2)"]}, r"with a literal VALUE"),
        ({"kind": "program", "tests": ["assert f(1) =="]}, r"with a literal VALUE"),
        ({"kind": "scorer", "scorer": "nobody"}, "no entry point 'nobody' in group evomerge.scorers"),
        ({"kind": "exact", "answer": "a", "colour": "red"}, "colour"),
    ],
)
def test_a_bad_check_is_refused_with_a_reason(fields: dict[str, Any], message: str):
    """Before anything is measured."""
    with pytest.raises(ValidationError, match=message):
        check(**fields)


def test_fences_that_are_never_closed():
    """A reply that was cut."""
    assert fenced("```python\nx = 1\ny = 2") == "x = 1\ny = 2"
    assert fenced("no fence") is None


# ---- scorers -------------------------------------------------------------------------------

SCORERS = """
import os, sys, time
def length(reply, item):
    print("to stdout")
    return min(1.0, len(reply) / item["options"].get("most", 10))
def broken(reply, item):
    raise KeyError("lost")
def slow(reply, item):
    time.sleep(0 if reply == "quick" else 600)
    return 1.0
def large(reply, item):
    return 7
def silent(reply, item):
    sys.exit(3)
def spy(reply, item):
    return float(reply in os.environ)
def crowded(reply, item):
    raise MemoryError
def forking(reply, item):
    raise BlockingIOError(11, "no process can be started")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A package with scorers, as pip would have installed it."""
    place = tmp_path_factory.mktemp("site")
    (place / "my_scorers.py").write_text(SCORERS)
    info = place / "my_scorers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-scorers\nVersion: 1.0\n")
    names = ("length", "broken", "slow", "large", "silent", "spy", "crowded", "forking")
    lines = "\n".join(f"{name} = my_scorers:{name}" for name in names)
    (info / "entry_points.txt").write_text(f"[{scorer.GROUP}]\n{lines}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(place))
        root = str(Path(__file__).resolve().parents[3])
        patch.setenv("PYTHONPATH", f"{place}:{root}")
        yield


def test_a_scorer_of_the_user_s_own(installed: None, verifier: Verifier):
    """Found by its entry point; what it prints does not disturb."""
    asked = check(kind="scorer", scorer="length", options={"most": 4})
    scores = [verifier.verify(asked, reply, ITEM).score for reply in ("", "ab", "abcdef")]
    assert scores == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("broken", r"raised KeyError: 'lost'"),
        ("large", r"gave 7\.0, which is not from 0 to 1"),
        ("silent", "ended without an answer"),
    ],
)
def test_a_scorer_that_fails_is_told(installed: None, name: str, why: str):
    """Never a silent zero; and the next reply is scored again."""
    judge = Scorer(name)
    for _ in range(2):
        found = judge.verify("reply", ITEM)
        assert (found.score, found.scored) == (0.0, False)
        assert why.replace("\\", "") in found.why
    judge.close()


def test_a_scorer_does_not_see_our_secrets(installed: None, monkeypatch: pytest.MonkeyPatch):
    """It is others' code; a key of its own is given to it by name."""
    monkeypatch.setenv("FORGE_SCORER_ENVIRONMENT", "JUDGE_KEY")
    for name in ("FORGE_ARTIFACT_KEY", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "JUDGE_KEY"):
        monkeypatch.setenv(name, "secret")
    judge = Scorer("spy")
    asked = ("FORGE_ARTIFACT_KEY", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "JUDGE_KEY", "PYTHONPATH")
    seen = {name: judge.verify(name, ITEM).score for name in asked}
    assert [name for name in asked if seen[name]] == ["JUDGE_KEY", "PYTHONPATH"]
    judge.close()


def test_a_scorer_that_hangs_is_ended(installed: None, monkeypatch: pytest.MonkeyPatch):
    """It is started anew for the next reply."""
    judge = Scorer("slow")
    assert judge.verify("quick", {**ITEM, "options": {}}).score == 1.0
    judge._patience = 0.5
    found = judge.verify("long", {**ITEM, "options": {}})
    assert not found.scored
    assert "did not answer in 0.5 s" in found.why
    assert judge.verify("quick", {**ITEM, "options": {}}).score == 1.0
    judge.close()


@pytest.mark.parametrize("short", [MemoryError(), BlockingIOError(11, "no process can be started")])
def test_a_machine_that_is_short_of_something_scores_no_reply(
    installed: None, short: Exception, monkeypatch: pytest.MonkeyPatch
):
    """A score is recorded for good: the task is done again when there is memory."""

    def fail(*_: object, **__: object) -> None:
        raise short

    monkeypatch.setattr(verifiers_verifier.exact, "verify", fail)
    with pytest.raises(type(short)):
        Verifier().verify(check(kind="exact", answer="a"), "a", ITEM)
    monkeypatch.setattr(scorer, "Respondent", fail)
    with pytest.raises(type(short)):
        Verifier().verify(check(kind="scorer", scorer="length"), "a", ITEM)


@pytest.mark.parametrize("name", ["crowded", "forking"])
def test_a_scorer_that_is_short_of_something_scores_no_reply(
    installed: None, verifier: Verifier, name: str
):
    """Its process has the same machine as ours."""
    asked = check(kind="scorer", scorer=name)
    with pytest.raises(UnavailableError, match=f"scorer {name}: (MemoryError|BlockingIOError)"):
        verifier.verify(asked, "reply", ITEM)


def test_an_error_over_the_reply_itself_counts_0(verifier: Verifier, monkeypatch: pytest.MonkeyPatch):
    """A model's text must not end a run."""

    def fail(*_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(verifiers_verifier.exact, "verify", fail)
    found = verifier.verify(check(kind="exact", answer="a"), "a", ITEM)
    assert (found.score, found.scored) == (0.0, False)
    assert "KeyError" in found.why


def test_without_a_sandbox_a_program_is_not_run(monkeypatch: pytest.MonkeyPatch):
    """Not counted as wrong either."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(verifiers_verifier.SandboxUnavailableError):
        Verifier().verify(check(kind="program", tests=TESTS), "x", ITEM)
