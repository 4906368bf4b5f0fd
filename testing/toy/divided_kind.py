"""A kind of run whose tasks are loops of pieces, as long tasks of real kinds are.

FORGE_KINDS=divided=testing.toy.divided_kind:Divided     makes it known; the tests set the variable
FORGE_TOY_PIECES=FILE                                    gets a line for each piece that is begun
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from agent_forge.events import Event
from agent_forge.runs.kinds.decide import Start
from agent_forge.weights import pieces
from testing.toy.toy_kind import Toy, ToyContext
from testing.toy.toy_state import ToyState

if TYPE_CHECKING:
    import torch

#: The value of FORGE_KINDS that makes the kind known.
KNOWN = "divided=testing.toy.divided_kind:Divided"
#: The variable that names the file of pieces.
FILE = "FORGE_TOY_PIECES"
#: Pieces of a task, and how often each takes the time of `slow`.
PIECES, TIMES = 12, 10


@dataclass
class DividedState(ToyState):
    """State of a run whose tasks have pieces."""

    kind: ClassVar[str] = "divided"


class DividedContext(ToyContext):
    """Counting in pieces that take `TIMES` times `slow` seconds each."""

    def carry_out(self, task: Any) -> Event:
        """Return the task's event. Raises ArithmeticError if a piece has another task's result."""
        if not isinstance(task, Start):
            with pieces.divided():
                results = pieces.each(PIECES, lambda number: self._piece(task.key, number))
            read = [(int(result["number"]), int(result["length"])) for result in results]
            if read != [(number, len(task.key)) for number in range(PIECES)]:
                raise ArithmeticError(f"{task.key} has the pieces {read}")
        return super().carry_out(task)

    def _piece(self, key: str, number: int) -> dict[str, torch.Tensor]:
        import torch

        if name := os.environ.get(FILE):
            with Path(name).open("a") as file:
                file.write(f"{self.state.run}/{key}/{number}\n")
        time.sleep(self.state.submitted.config.slow * TIMES)
        return {"number": torch.tensor(number), "length": torch.tensor(len(key))}


class Divided(Toy):
    """Counting in pieces."""

    name = "divided"
    title = "a run of long tasks"
    line = "count, in pieces that take a while"
    state = DividedState

    def context(self, state: ToyState, cache: Any) -> ToyContext:
        """Return the work on the run's tasks."""
        return DividedContext(state)
