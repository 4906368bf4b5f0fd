"""Task families: tasks that a program makes and checks, in ten levels of difficulty.

An item is a function of (family, level, seed, number), so that nothing has to be stored. `find` gives a
family by its name; `automaton-RULE` has a family for every rule, `gym-NAME` one for every data set of
reasoning-gym. All but the last are pure.

Sets of different items to train on, to choose by and to test on never overlap: the digest of an item's
prompt says its slice, so an item has the same slice in every run, of any seed. Cells of short tasks
have few prompts in all: such a set has as many as are found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count, islice
from string import ascii_lowercase, digits

from agent_forge.evaluation.data.slices import Slice, slice_of
from agent_forge.evaluation.task_families import gym
from agent_forge.evaluation.task_families.brackets import Brackets
from agent_forge.evaluation.task_families.families import (
    LEVELS,
    RULES,
    Addition,
    Automaton,
    Chain,
    Exercise,
    Family,
    IntegerDraws,
    KeyLookup,
    Recall,
    Reversal,
    Sorting,
    Subtraction,
)
from agent_forge.evaluation.task_families.gym import Gym
from agent_forge.runs.errors import ConfigError

#: Name → family.
FAMILIES: Mapping[str, Family] = {
    "addition": Addition(),
    "brackets": Brackets(),
    "chain": Chain(),
    "lookup": KeyLookup(),
    "recall": Recall(),
    "reversal": Reversal(),
    "sort-digits": Sorting(digits),
    "sort-letters": Sorting(ascii_lowercase),
    "subtraction": Subtraction(),
}
#: Beginning of the names of families whose tasks need a tool.
TOOLS = "tool-"
#: Shares of the prompts of a cell.
SHARES: Mapping[Slice, float] = {"train": 0.6, "search": 0.0, "selection": 0.2, "test": 0.2}
#: Items in a row that bring nothing new, after which a cell counts as used up.
LULL = 1000
_AUTOMATON = re.compile(r"automaton-(0|[1-9][0-9]{0,2})")


def find(name: str) -> Family | Gym:
    """Return the family with this name: a `Family`, or a `Gym` for "gym-NAME".

    Raises ConfigError if no family has it, UnavailableError if the family's package is missing.
    """
    if name in FAMILIES:
        return FAMILIES[name]
    if name.startswith(gym.START):
        return gym.find(name)
    match = _AUTOMATON.fullmatch(name)
    if match and int(match[1]) < RULES:
        return Automaton(int(match[1]))
    raise ConfigError(
        f"there is no task family {name!r}: there are {', '.join(FAMILIES)}, automaton-0 to "
        f"automaton-{RULES - 1}, and {gym.START}NAME with the data sets of reasoning-gym."
    )


def uses_tools(family: str) -> bool:
    """Return True if the tasks of a family need a tool: `tools/tasks/` makes those."""
    return family.startswith(TOOLS)


def item(family: str, level: int, seed: int, number: int) -> Exercise | None:
    """Return the Exercise with this number, the same in every call; None if the number has none.

    Only families of reasoning-gym lack some. Raises ConfigError for an unknown family, ValueError for
    an unknown level, DataError for a generator that fails.
    """
    if not 1 <= level <= LEVELS:
        raise ValueError(f"level {level}: there are levels 1 to {LEVELS}")
    task_family = find(family)
    if isinstance(task_family, Gym):
        return task_family.item(level, seed, number)
    prompt = task_family.prompt(level, IntegerDraws("task-families", family, level, seed, number))
    return Exercise(family, level, prompt, task_family.answer(prompt))


def slice_of_prompt(family: str, prompt: str) -> Slice:
    """Return the slice of a prompt of a family, by its digest."""
    return slice_of(f"task-families/{family}/{prompt}", SHARES)


def items(family: str, level: int, seed: int, on: Slice, limit: int) -> list[Exercise]:
    """Return up to `limit` different items of a slice, in the order of their numbers.

    There are fewer if the cell has fewer prompts. Raises ConfigError for an unknown family.
    """
    return list(islice(_new(family, level, seed, on), limit))


def _new(family: str, level: int, seed: int, on: Slice) -> Iterator[Exercise]:
    """Yield the slice's items whose prompt is new, until `LULL` numbers in a row bring none."""
    prompts, last = set[str](), 0
    for number in count():
        task = item(family, level, seed, number)
        if task and task.prompt not in prompts and slice_of_prompt(family, task.prompt) == on:
            prompts.add(task.prompt)
            last = number
            yield task
        if number - last >= LULL:
            return


def verify(item: Exercise, reply: str) -> bool:
    """Return True if a reply is the right answer to the item's prompt.

    Blanks do not count. The answer is computed from the prompt; an error in this counts as wrong.
    """
    try:
        task_family = find(item.family)
        if isinstance(task_family, Gym):
            return task_family.right(item, reply)
        right = task_family.answer(item.prompt)
        return "".join(reply.split()) == "".join(right.split())
    except Exception:  # any error of a verifier means that the reply is not shown to be right
        return False
