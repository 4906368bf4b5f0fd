"""The built-in items of the four domains: right answers are right, wrong ones wrong, slices apart."""

from __future__ import annotations

import ast
import itertools
import random
import subprocess
import sys
import textwrap
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_forge.evaluation.data import domains
from agent_forge.evaluation.data import items as data_items
from agent_forge.evaluation.data.builtin import corpus, phrase_grammar
from agent_forge.evaluation.data.domains import code, code_long_tasks, common, math, structured
from agent_forge.evaluation.data.items import Item, Problem, Question, Text
from agent_forge.evaluation.sandbox.sandbox import Sandbox
from agent_forge.evaluation.verifiers import program
from agent_forge.evaluation.verifiers.verifier import Verifier
from agent_forge.evomerge import data_settings


@pytest.fixture(scope="module")
def items() -> list[Item]:
    """All of them, checked as a user's file is."""
    found = data_items.from_rows(domains.items(0))
    data_items.check(found)
    data_settings.check_weights(found, dict.fromkeys(domains.DOMAINS, 0.25))
    return found


def test_every_domain_has_enough_of_every_grade_in_every_slice(items: list[Item]):
    """At least 200 measured items a domain, besides text; no slice without one of a grade."""
    for domain in domains.DOMAINS:
        asked = [i for i in items if i.domain == domain and not isinstance(i, Text)]
        assert len(asked) >= 200
        grades = Counter((i.slice, i.grade) for i in asked if isinstance(i, Question | Problem))
        assert min(grades[s, g] for s in ("search", "selection", "test") for g in range(4)) >= 10
    assert len({item.id for item in items}) == len(items)


def test_nothing_is_asked_in_two_slices(items: list[Item]):
    """A test slice that the search has seen says nothing."""
    asked: dict[tuple[str, str], set[str]] = {}
    for item in items:
        if not isinstance(item, Text):
            asked.setdefault((item.domain, item.prompt), set()).add(item.slice)
    assert max(map(len, asked.values())) == 1


def test_one_function_under_two_names_is_in_one_slice(items: list[Item]):
    """Names and wordings vary; what is to be written is the same task."""
    right: dict[str, set[str]] = {}
    for item in items:
        if isinstance(item, Question) and item.domain == "code":
            task = common.FunctionTask(
                "f", item.prompt.split("(")[1].split(")")[0], "", "", ("", "", ""), ()
            )
            body = textwrap.dedent(item.choices[item.answer]).rstrip()
            right.setdefault(replace(task, right=body).about, set()).add(item.slice)
    assert max(map(len, right.values())) == 1
    assert len(right) > 100
    first, second = code_long_tasks._gcd(random.Random(1)), code_long_tasks._gcd(random.Random(5))
    assert first.name != second.name
    assert (
        first.about
        == second.about
        == ("def f(v0, v1):\n    while v1:\n        v0, v1 = (v1, v0 % v1)\n    return v0")
    )


def test_items_are_made_of_the_seed_alone():
    """Every machine measures the same; another seed gives others."""
    first, again, other = ({i["id"]: i for i in math.items(seed)} for seed in (0, 0, 1))
    assert first == again
    assert sum(first[id_] == other[id_] for id_ in first) < len(first) / 5


@pytest.mark.slow
@pytest.mark.parametrize("maker", [m for grade in code.TASKS for m in grade], ids=lambda m: m.__name__)
def test_right_bodies_pass_and_wrong_bodies_fail(maker: Any):
    """Otherwise a wrong choice would be right, or a test prove nothing. In the sandbox, as ever."""
    with Sandbox.open(cpu=1) as sandbox:
        for seed in range(12):
            task = maker(random.Random(seed))
            check = program.Program(kind="program", tests=tuple(task.tests()))
            bodies = [task.right, *task.wrong]
            assert len(set(bodies)) == 4
            for body in bodies:
                found = program.verify(check, task.prompt, common.indented(body), sandbox)
                assert found.score == (body == task.right), (task, body, found.why)


@pytest.mark.slow
def test_items_do_not_depend_on_the_process():
    """Texts hash differently in every process: nothing may be drawn from a set."""
    code = (
        "from agent_forge.evaluation.data import domains\n"
        "from agent_forge.evaluation.data import items as data\n"
        "print(data.digest(data.from_rows(domains.items())))"
    )
    root = Path(__file__).resolve().parents[3]
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1


def test_results_of_mathematics_follow_from_their_texts():
    """Sums are evaluated again from what the question says."""
    for make in math.TASKS[0] + math.TASKS[1][:3]:
        for seed in range(20):
            text, result = make(random.Random(seed))
            assert eval(text.removeprefix("What is ").removesuffix("?")) == result


@pytest.mark.parametrize("domain", [math, structured])
def test_the_right_choice_solves_the_problem_and_no_other_does(domain: Any):
    """One task asked both ways: what the question calls right the problem's verifier accepts."""
    verifier, compared = Verifier(), 0
    for seed in range(200):
        asked = domain._question(random.Random(seed), seed % 4)
        row = {
            "id": "p",
            "domain": "d",
            "slice": "test",
            **domain._problem(random.Random(seed), seed % 4),
        }
        if asked is None:
            continue
        (posed,) = data_items.from_rows([row])
        assert isinstance(posed, Problem)
        assert asked["prompt"] == posed.prompt
        for place, choice in enumerate(asked["choices"]):
            assert (verifier.verify(posed.check, choice, {}).score == 1) == (place == asked["answer"])
        compared += 1
    assert compared > 150


def test_written_data_is_read_as_it_is_meant():
    """For every format, one record or several: the verifier's parser gives the fields back."""
    verifier = Verifier()
    for seed in range(60):
        r = random.Random(seed)
        for grade in range(4):
            _, records, form = structured._task(r, grade)
            check = {
                "kind": "data",
                "format": form,
                "answer": structured.meant(records, form, grade < 2),
            }
            row = {"id": "p", "domain": "d", "slice": "test", "prompt": "x", "check": check}
            (item,) = data_items.from_rows([row])
            assert isinstance(item, Problem)
            said = structured.write(records, form, grade < 2)
            assert verifier.verify(item.check, said, {}).score == 1
            damaged = structured.write(structured._damaged(r, records), form, grade < 2)
            assert verifier.verify(item.check, damaged, {}).score < 1


def test_every_phrase_is_there_in_every_language():
    """And no two phrases of a part are the same in one: a wrong sentence must be another one."""
    for part, phrases in phrase_grammar.PHRASES.items():
        for language in phrase_grammar.LANGUAGES:
            said = [phrase[language] for phrase in phrases]
            assert all(said)
            assert len(set(said)) == len(said)
            assert all((part == "does") == ("|" in phrase) for phrase in said)


def test_sentences_keep_each_language_s_order():
    """By hand: German and Dutch put time and place before the object."""
    sentence = (1, 7, 3, 1)
    assert [phrase_grammar.say(sentence, language) for language in phrase_grammar.LANGUAGES] == [
        "The man sings a song in the kitchen every morning.",
        "Der Mann singt jeden Morgen in der Küche ein Lied.",
        "L'homme chante une chanson dans la cuisine chaque matin.",
        "El hombre canta una canción en la cocina cada mañana.",
        "L'uomo canta una canzone in cucina ogni mattina.",
        "De man zingt elke ochtend in de keuken een lied.",
        "O homem canta uma canção na cozinha todas as manhãs.",
    ]


def test_lessons_are_pairs_of_taught_sentences():
    """Both lines of a pair say the same; what lessons are measured on is never taught."""
    sentences = list(itertools.product(*(range(len(p)) for p in phrase_grammar.PHRASES.values())))
    meaning = {(n, phrase_grammar.say(s, n)): s for s in sentences for n in phrase_grammar.LANGUAGES}
    assert 0.4 < sum(map(phrase_grammar.taught, sentences)) / len(sentences) < 0.6
    lessons = list(phrase_grammar.documents(30_000, 0))
    assert 30_000 <= sum(len(d.text) for d in lessons) < 32_000
    seen = set()
    for lesson in lessons:
        lines = [tuple(line.split(": ", 1)) for line in lesson.text.splitlines()]
        assert len(lines) == 2 * phrase_grammar.PAIRS
        for first, second in zip(lines[::2], lines[1::2], strict=True):
            assert first[0] != second[0]
            assert meaning[first] == meaning[second]
            assert phrase_grammar.taught(meaning[first]) is (lesson.slice() == "train")
            seen.add(first[0])
    assert seen == set(phrase_grammar.LANGUAGES)
    assert [d.text for d in phrase_grammar.documents(30_000, 0)] == [d.text for d in lessons]
    assert next(phrase_grammar.documents(1, 1)).text != lessons[0].text


def test_lessons_are_a_domain_with_questions_of_its_own():
    (split,) = corpus.corpus(0, 60_000, ["multilingual"]).values()
    rows = list(corpus.items({"multilingual": split}, 0))
    assert any("text" in row for row in rows)
    asked = [row for row in rows if "choices" in row]
    assert asked
    data_items.from_rows(rows)


def test_choices_differ_and_one_of_them_is_right(items: list[Item]):
    """The right one is nowhere by habit."""
    places = Counter()
    for item in items:
        if isinstance(item, Question):
            assert len(set(item.choices)) == 4
            places[item.answer] += 1
    assert min(places.values()) > sum(places.values()) / 5


def test_tests_of_code_can_be_read(items: list[Item]):
    """Every value that a test expects is a literal."""
    for item in items:
        if isinstance(item, Problem) and item.domain == "code":
            assert isinstance(item.check, program.Program)
            for test in item.check.tests:
                program.parse(test)
            ast.parse(item.prompt + "    pass\n")
