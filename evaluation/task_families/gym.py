"""Families `gym-NAME`: the data sets of the package reasoning-gym, which is an extra.

The package works in a process of its own (`gym_process.py`): a generator may loop, and some depend on
the order of sets. Level n of a family sets every attribute of the data set's curriculum to its nth
step, or its last one; the package's ranges are cumulative, so a level has tasks of lower ones, too.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from agent_forge.evaluation.task_families.families import LEVELS, Exercise
from agent_forge.runs.errors import ConfigError, DataError
from agent_forge.runs.system import packages
from agent_forge.runs.system.child_environment import child_environment
from agent_forge.runs.system.line_process import Respondent

#: Beginning of the families' names, and what a name is.
START = "gym-"
_NAME = re.compile(r"[a-z0-9_]+")
#: Items that are made together, and seconds that they may take, the start of the process included.
CHUNK, PATIENCE = 50, 120.0
#: Data set → why it is left out.
LEFT_OUT = {
    **dict.fromkeys(("codeio", "list_functions"), "its items are not the same for the same seed"),
    **dict.fromkeys(
        ("boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"),
        "its items have no answer that its own verifier accepts",
    ),
}
_CHILD = Path(__file__).with_name("gym_process.py")


@dataclass(frozen=True)
class Gym:
    """A data set of reasoning-gym as a family."""

    name: str

    @property
    def what(self) -> str:
        """The family, in words."""
        return f"the data set {self.name} of reasoning-gym"

    @property
    def family(self) -> str:
        """The family's name."""
        return f"{START}{self.name}"

    def check(self, levels: int) -> None:
        """Raise ConfigError unless the package has the data set with as many levels."""
        there = min(LEVELS, _ask({"levels": self.name}, ConfigError))
        if levels > there:
            raise ConfigError(f"the family {self.family} has {there} levels, and levels is {levels}.")

    def item(self, level: int, seed: int, number: int) -> Exercise | None:
        """Return the Exercise of this number; None if the package's verifier refuses its own answer.

        Raises DataError for a generator that fails or takes too long.
        """
        chunk, place = divmod(number, CHUNK)
        pair = _made(self.name, level, seed, chunk)[place]
        if pair is None:
            return None
        prompt, answer = pair
        return Exercise(self.family, level, prompt, answer, (seed, number))

    def right(self, item: Exercise, reply: str) -> bool:
        """Return True if the package's verifier gives a reply the full score; False if it fails."""
        if item.origin is None:
            return reply.strip() == item.answer
        seed, number = item.origin
        request = {**_key(self.name, item.level, seed), "number": number, "reply": reply.strip()}
        return bool(_ask({"right": request}, DataError))


def find(family: str) -> Gym:
    """Return the Gym of the data set whose name follows "gym-".

    Raises ConfigError for a data set that is left out, UnavailableError without the package.
    """
    name = family.removeprefix(START)
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"there is no task family {family!r}: the families of reasoning-gym are "
            f"{START}NAME, for example {START}chain_sum."
        )
    if name in LEFT_OUT:
        raise ConfigError(f"the family {family} is left out: {LEFT_OUT[name]}.")
    packages.require(f"the family {family}", "reasoning_gym")
    return Gym(name)


def _key(name: str, level: int, seed: int) -> dict[str, object]:
    """Return {name, level, seed} for a question to the process; the seed is their own, below 2³¹."""
    digest = hashlib.sha256(f"task-families/{START}{name}/{level}/{seed}".encode()).digest()
    return {"name": name, "level": level, "seed": int.from_bytes(digest[:4], "big") >> 1}


@lru_cache(maxsize=4096)
def _made(name: str, level: int, seed: int, chunk: int) -> tuple[tuple[str, str] | None, ...]:
    """Return (prompt, answer) of each item of a chunk; None for an item without a valid answer."""
    request = {**_key(name, level, seed), "first": chunk * CHUNK, "count": CHUNK}
    return tuple(pair and (pair[0], pair[1]) for pair in _ask({"make": request}, DataError))


@cache
def _process(owner: int) -> list[Respondent]:
    """Return the list that holds the package's process; each `owner` (process id) has its own list."""
    return []


def _ask(question: dict[str, Any], error: type[ConfigError] | type[DataError]) -> Any:
    """Return the answer of the process, which is started again if it has ended.

    Raises `error` for what the package refuses, DataError if there is no answer in time.
    """
    place = _process(os.getpid())
    if not (place and place[0].living):
        environment = child_environment("task", hub=False) | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONHASHSEED": "0",
        }
        place[:] = [Respondent([sys.executable, "-P", str(_CHILD)], env=environment)]
    (what,) = question
    details = question[what]
    name = f"{START}{details if isinstance(details, str) else details['name']}"
    try:
        answer = place[0].ask(question, PATIENCE)
    except TimeoutError:
        raise DataError(
            f"the generator of {name} took longer than {PATIENCE:g} s. Leave the family out."
        ) from None
    except (OSError, ValueError) as gone:
        raise DataError(f"the generator of {name} ended its process ({gone}).") from gone
    if "error" in answer:
        raise error(f"reasoning-gym cannot make {name}: {answer['error']}")
    return answer["answer"]
