"""Families whose tasks need a tool: demonstrations to train on, and episodes to measure by.

A demonstration is one turn of a solution with all that stands before it: a call, or the answer after
its result. Results and questions are read and not learned. A task is solved if a call ran without an
error in each of its sessions and the answer is right (`tools/tasks/episodes.py`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from agent_forge.evaluation import task_families
from agent_forge.evaluation.answers import EncodedItem
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.sandbox.sandbox import Sandbox
from agent_forge.phases.curriculum.mixing.frontier_rule import cell
from agent_forge.phases.curriculum.settings import CurriculumConfig
from agent_forge.tools import tasks as tool_tasks
from agent_forge.tools.tasks import episodes
from agent_forge.tools.tasks.base import ToolItem
from agent_forge.tools.tasks.episodes import Bounds, Player, Speech
from agent_forge.tools.toolbox import Toolbox, usable
from agent_forge.weights.folders.vocabularies import Tokenizer

#: Tokens of a turn beyond the longest of a solution, and calls of a session.
SPARE, CALLS = 8, 2
#: What a model says at the end of a session whose question has no answer.
NOTED = "kept"
#: Items by which a form of calls is chosen.
TRIED = 64

Cells = Mapping[str, Sequence[ToolItem]]


def families(config: CurriculumConfig) -> list[str]:
    """Return the names of the run's families that use tools, sorted."""
    return sorted(filter(task_families.uses_tools, config.families))


def items(config: CurriculumConfig, family: str, level: int, on: Slice, count: int) -> list[ToolItem]:
    """Return up to `count` tasks of a cell, from a slice."""
    name = family.removeprefix(task_families.TOOLS)
    return tool_tasks.of_level(name, level, config.seed, on, count)


def held_out(config: CurriculumConfig, on: Slice) -> dict[str, list[ToolItem]]:
    """Return cell → tasks of a slice to measure on, "selection" or "test"."""
    count = config.selection_items if on == "selection" else config.test_items
    return {
        cell(family, level): items(config, family, level, on, count)
        for family in families(config)
        for level in range(1, config.levels + 1)
    }


def digest(config: CurriculumConfig) -> str | None:
    """Return the digest of all tasks to measure on; None without families that use tools."""
    slices: tuple[Slice, ...] = ("selection", "test")
    tasks_by_cell = {
        f"{on}/{name}": tasks for on in slices for name, tasks in held_out(config, on).items()
    }
    return tool_tasks.digest(tasks_by_cell) if tasks_by_cell else None


def speech_of(config: CurriculumConfig, tokenizer: Tokenizer) -> Speech:
    """Return the form in which sessions and calls are written. Raises ConfigError if none fits."""
    tasks = [task for f in families(config) for task in items(config, f, config.levels, "train", TRIED)]
    names = {tool for task in tasks for tool in task.tools}
    return episodes.chosen(tokenizer, "auto", None, usable(names), tasks)


def demonstrations(tasks: Sequence[ToolItem], spoken: Speech) -> list[EncodedItem]:
    """Return the encoded turns of the tasks' solutions, each with all that stands before it."""
    with tempfile.TemporaryDirectory(prefix="forge-tools-") as place:
        turns: list[EncodedItem] = []
        for number, item in enumerate(tasks):
            folder = Path(place) / str(number)
            folder.mkdir()
            turns += _turns(item, spoken, Toolbox(item.world, folder, Sandbox.open))
        return turns


def _turns(item: ToolItem, spoken: Speech, box: Toolbox) -> Iterator[EncodedItem]:
    """Yield the encoded turns of a task's solution, session by session."""
    encode = lambda text: spoken.tokenizer.encode(text, add_special_tokens=False)  # noqa: E731
    last = len(item.questions) - 1
    for number, (question, calls) in enumerate(zip(item.questions, item.calls, strict=True)):
        before = [int(token) for token in spoken.begin("", question)]
        for call in calls:
            ids = encode(spoken.form.written(call))
            yield EncodedItem(tuple(before), tuple(ids))
            # A program's value is the answer, which is known without running the program.
            output = item.answer if call.tool == "python" else box.answer(call).output
            before += [*ids, *(int(token) for token in spoken.after(output or ""))]
        end = item.answer if number == last and item.answer is not None else NOTED
        yield EncodedItem(tuple(before), (*encode(end), spoken.tokenizer.eos_token_id))


def _longest(item: ToolItem, spoken: Speech) -> int:
    """Return the number of tokens of a solution's longest turn, without the end token."""
    calls = [spoken.form.written(call) for session in item.calls for call in session]
    texts = [*calls, item.answer or "", NOTED]
    return max(len(spoken.tokenizer.encode(text, add_special_tokens=False)) for text in texts)


def solved(
    model: ResidentModel, spoken: Speech, cells: Cells, sandbox: Callable[[], Sandbox]
) -> dict[str, tuple[float, ...]]:
    """Return cell → for each task 1.0 if the model solves it, else 0.0; decoding is greedy.

    `sandbox` returns where programs run. Raises SandboxUnavailableError.
    """
    successes: dict[str, tuple[float, ...]] = {}
    for name, tasks in sorted(cells.items()):
        longest = max(_longest(item, spoken) for item in tasks)
        player = Player(model, spoken, Bounds(longest + SPARE, CALLS), sandbox)
        episodes = player.played(tasks, "", False)
        successes[name] = tuple(float(episode.solved) for episode in episodes)
    return successes
