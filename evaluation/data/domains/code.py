"""Domain of code: a Python function from its name and docstring, run against tests.

Every task is written once: signature, docstring, a right body, three wrong bodies, and the
arguments of calls. The wrong bodies differ from the right one in an operator, a name or a number,
so that the length does not give the right body away. The right body computes the values that tests
expect. As a question the four bodies are choices; as a problem the model writes its own body.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from agent_forge.evaluation.data.domains import code_long_tasks, code_short_tasks
from agent_forge.evaluation.data.domains.common import choose, indented, make

#: Makers of tasks, by grade.
TASKS = [*code_short_tasks.TASKS, *code_long_tasks.TASKS]


def _question(r: random.Random, grade: int) -> dict[str, object]:
    task = r.choice(TASKS[grade])(r)
    question = choose(r, task.prompt, indented(task.right), [indented(body) for body in task.wrong])
    return {**question, "about": task.about}


def _problem(r: random.Random, grade: int) -> dict[str, object]:
    task = r.choice(TASKS[grade])(r)
    return {
        "prompt": task.prompt,
        "about": task.about,
        "check": {"kind": "program", "tests": task.tests()},
        "max_tokens": (32, 48, 96, 128)[grade],
        "stop": ["\ndef ", "\nclass ", "\nif ", "\nprint", "\n#", "\n@", "\n```"],
    }


def items(seed: int) -> Iterator[dict[str, object]]:
    """Yield rows of questions and problems, every grade, about short Python functions."""
    yield from make("code", "question", seed, _question)
    yield from make("code", "problem", seed, _problem)
