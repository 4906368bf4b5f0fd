"""Families of reasoning-gym: items by key, verifiers that fail, generators that loop or break.

A stand-in with the package's interface takes its place, in the process that makes the items; the last
tests are of the package itself, where it is installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from agent_forge.evaluation import task_families
from agent_forge.evaluation.task_families import gym, item, items, slice_of_prompt, verify
from agent_forge.runs.errors import ConfigError, DataError, UnavailableError
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.runs.system import packages
from agent_forge.worker.commands import submit
from testing.miniatures import curriculum_runs
from testing.models.toys import Toys

STAND_IN = '''
"""Data sets by name: sums of some terms, and sets that misbehave."""

import os, random, sys, time
from types import SimpleNamespace


class Curriculum:
    def __init__(self, name):
        steps = {"terms": [2, 3, 4], "digits": [1, 2]}
        self.name = name
        self.attributes = {key: SimpleNamespace(levels=some) for key, some in steps.items()}
        self.at = dict.fromkeys(steps, 0)

    def set_attr_level(self, name, level):
        assert 0 <= level < len(self.attributes[name].levels)
        self.at[name] = level

    def generate_configuration(self, defaults):
        if self.name == "invalid":
            raise AssertionError("min must be lte max")
        own = {key: self.attributes[key].levels[at] for key, at in self.at.items()}
        return SimpleNamespace(**own, **defaults)


class Sums:
    def __init__(self, name, terms, digits, seed, size):
        self.name, self.terms, self.digits, self.seed, self.size = name, terms, digits, seed, size

    def __getitem__(self, number):
        print("noise on standard output")
        if self.name == "loops":
            time.sleep(600)
        if self.name == "dies":
            os._exit(3)
        if self.name == "breaks":
            raise RuntimeError("no puzzle found")
        draws = random.Random(f"{self.seed}/{number}")
        some = [draws.randrange(10**self.digits) for _ in range(self.terms)]
        answer = None if self.name == "unanswered" and number % 2 else str(sum(some))
        return {"question": " + ".join(map(str, some)) + " = ", "answer": answer, "metadata": {}}

    def score_answer(self, answer, entry):
        if self.name == "zero":
            return 0.0
        return 1.0 if int(answer) == int(entry["answer"]) else 0.01


NAMES = ("sums", "loops", "dies", "breaks", "zero", "unanswered", "invalid", "flat")
DATASETS = dict.fromkeys(NAMES)
CURRICULA = {name: Curriculum for name in NAMES if name != "flat"}


def create_curriculum(name):
    return Curriculum(name)


def create_dataset(name, **config):
    return Sums(name, **config)
'''


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the stand-in before the package, and forget what other tests were given."""
    package = tmp_path / "reasoning_gym"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "factory.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path[1:]])
    forget()
    yield
    forget()


def forget() -> None:
    """End the process, and forget the items that it made."""
    gym._made.cache_clear()
    for one in gym._process(os.getpid()):
        one.close()
    gym._process.cache_clear()


def test_items_follow_from_their_key(stand_in: None) -> None:
    """The same again in a new process; others for another seed, number or level."""
    made = [item("gym-sums", 1, 0, number) for number in (0, 1, 60)]
    assert all(one is not None and one.answer == str(eval(one.prompt[:-1])) for one in made)
    forget()
    assert [item("gym-sums", 1, 0, number) for number in (0, 1, 60)] == made
    others = [item("gym-sums", *key) for key in ((1, 1, 0), (1, 0, 2), (2, 0, 0))]
    assert len({one.prompt for one in (*made, *others) if one}) == 6


def test_a_level_is_the_step_of_every_attribute_or_its_last(stand_in: None) -> None:
    """Two, three and four terms; one digit, then at most two."""
    for level, terms in ((1, 2), (2, 3), (3, 4)):
        one = item("gym-sums", level, 0, 0)
        assert one is not None
        assert one.prompt.count("+") == terms - 1
        assert one.prompt.endswith("=")  # without a blank at the end


def test_replies_are_scored_by_the_package_and_errors_count_as_wrong(stand_in: None) -> None:
    """`int("zzz")` fails in the verifier; "007" is right to it, and no text of the item."""
    one = item("gym-sums", 1, 0, 3)
    assert one is not None
    assert verify(one, one.answer)
    assert verify(one, f" 00{one.answer}\n")
    assert not verify(one, "zzz")
    assert not verify(one, f"{one.answer}1")


def test_an_item_whose_own_answer_is_not_right_is_left_out(stand_in: None) -> None:
    found = [item("gym-unanswered", 1, 0, number) for number in range(4)]
    assert [one is None for one in found] == [False, True, False, True]
    some = items("gym-unanswered", 1, 0, "train", 5)
    assert len(some) == 5
    assert {slice_of_prompt("gym-unanswered", one.prompt) for one in some} == {"train"}
    assert items("gym-zero", 1, 0, "train", 5) == []


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("breaks", "cannot make gym-breaks: RuntimeError: no puzzle found"),
        ("invalid", "cannot make gym-invalid: AssertionError: min must be lte max"),
        ("dies", "the generator of gym-dies ended its process"),
        ("loops", "the generator of gym-loops took longer than 1.5 s"),
    ],
)
def test_a_generator_that_fails_is_named_and_the_next_one_works(
    stand_in: None, monkeypatch: pytest.MonkeyPatch, name: str, what: str
) -> None:
    with monkeypatch.context() as patch:
        if name == "loops":
            patch.setattr(gym, "PATIENCE", 1.5)
        with pytest.raises(DataError, match=what):
            item(f"gym-{name}", 1, 0, 0)
    assert item("gym-sums", 1, 0, 0) is not None


def test_families_that_cannot_be_are_refused(stand_in: None, toys: Toys) -> None:
    model = {"model": [str(toys.base)]}

    def refused(match: str, family: str, **settings: Any) -> None:
        own = {**curriculum_runs.QUICK, "families": [family], **settings}
        with pytest.raises(ConfigError, match=match):
            submit.check(submit.plan(RunRequest("curriculum", own, model)))

    refused("gym-codeio is left out: its items are not the same", "gym-codeio")
    refused("gym-graph_color is left out: its items have no answer", "gym-graph_color")
    refused("there is no task family 'gym-Chain Sum'", "gym-Chain Sum")
    refused("cannot make gym-poetry: ValueError: there is no such data set", "gym-poetry")
    refused("cannot make gym-flat: ValueError: the data set has no levels", "gym-flat")
    refused("gym-sums has 3 levels, and levels is 4", "gym-sums", levels=4)


def test_without_the_package_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"pip install 'reasoning-gym>="):
        task_families.find("gym-chain_sum")


@pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["chain_sum", "spell_backward", "prime_factorization"])
def test_the_package_itself(name: str) -> None:
    """Items of every level; the same in a process with another process's past; errors are wrong."""
    forget()
    found = [item(f"gym-{name}", level, 0, number) for level in (1, 2) for number in range(5)]
    assert all(found)
    for one in found:
        assert one is not None
        assert verify(one, one.answer)
        assert not verify(one, "zzz")
    forget()
    again = [item(f"gym-{name}", level, 0, number) for level in (1, 2) for number in range(5)]
    assert again == found
