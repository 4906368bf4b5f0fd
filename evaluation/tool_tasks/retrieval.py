"""Family `retrieval`: a fact of one document among many."""

from __future__ import annotations

from dataclasses import dataclass

from evaluation.task_families.base import Draws
from evaluation.tool_tasks.base import ToolItem
from evaluation.tools.calls import Call
from evaluation.tools.toolbox import World

NAMES = (
    *("Ada", "Ben", "Cora", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "Jane", "Kurt", "Lea"),
    *("Max", "Nora", "Otto", "Pia", "Quin", "Rosa", "Sam", "Tess", "Uwe", "Vera", "Will", "Zoe"),
)
PLACES = (
    *("Bonn", "Cork", "Derby", "Essen", "Fulda", "Genoa", "Hanoi", "Izmir", "Jena", "Kyoto"),
    *("Lima", "Malta", "Nice", "Oslo", "Porto", "Quito", "Riga", "Siena", "Tunis", "Vaduz"),
)
TRADES = ("a baker", "a doctor", "a farmer", "a painter", "a teacher")


@dataclass(frozen=True)
class Retrieval:
    """`town of Nora` → `Oslo`. Level: corpora of 4, 8, … documents, at most one for each name."""

    what = "a fact of one document among many"
    tools = ("search",)

    def item(self, level: int, draws: Draws) -> ToolItem:
        """Return a random corpus and a name that it has."""
        left, people = [*NAMES], list[tuple[str, str]]()
        for _ in range(min(2 << level, len(NAMES))):
            name = left.pop(draws.below(len(left)))
            people.append((name, PLACES[draws.below(len(PLACES))]))
        documents = tuple(
            f"{name} is {TRADES[draws.below(len(TRADES))]}. Home: {place}" for name, place in people
        )
        name, answer = people[draws.below(len(people))]
        calls, world = ((Call("search", name),),), World(documents=documents)
        return ToolItem("retrieval", level, (f"town of {name}",), answer, world, calls, self.tools)
