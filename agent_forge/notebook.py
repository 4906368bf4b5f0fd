"""Handle on a run for scripts and notebooks: read it, pause, cancel, rename, fork or continue it.

Each command in the table `runs.kinds.controls` is a function here. CLI commands, API routes and MCP
tools are made from the same table.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_forge.evomerge.reports.outputs.tables import Run as MergingRun
from agent_forge.evomerge.run.state import RunState
from agent_forge.pipelines import Ended, ended_of
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.controls import Control, control_of
from agent_forge.runs.lists import finding
from agent_forge.runs.lists.recorded_run import RecordedRun
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import control
from agent_forge.worker.commands import fork as fork_command
from agent_forge.worker.tasks import runner

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Run(RecordedRun):
    """A run of any kind in the log, read-only. It stays as it was read; `refresh` reads it again.

        read = forge.Run(best.run)
        print(read.name, read.status, read.report()["champion"])
        read.frame()  # a DataFrame: generations; also "candidates", "evaluations", "items", "events"
        read.plot()  # a matplotlib Figure; also while the run lives
        read.lineage()  # the family of its result

    `name` is the run's name, its id or the beginning of the id. Runs of other kinds have other tables,
    and `plot("loss")` draws one of their panels (`forge show RUN` lists them).
    """

    def __new__(cls, name: str, home: Home | str | Path | None = None) -> Any:
        """Return a MergingRun for a merging run, else a Run. Raises NotFoundError, UnavailableError."""
        with closing(Home.at(home).open_store()) as store:
            stream = repository.named_stream(store, finding.full_name(store, name))
        if stream.startswith(f"{RunState.kind}/"):
            return MergingRun(name, home)
        return super().__new__(cls)

    def plot(self, panel: str = "") -> Figure:
        """Return a panel as a matplotlib Figure; "" is the first panel. Raises NotFoundError."""
        from agent_forge.worker.exports import panel_picture

        chosen = self.panel(panel) if panel else self.overview.panels[0]
        return panel_picture.figure(chosen)


#: The run in examples.
EXAMPLE = "20261121-3fa9c1"


def ask(
    run: str,
    word: str,
    value: object = None,
    reason: str | None = None,
    home: Home | str | Path | None = None,
) -> None:
    """Record a command for a run: "pause", "cancel", "rename" or another `word`.

        forge.ask("20261121-3fa9c1", "pause", reason="the GPU is needed")

    `run` is its name, its id or the beginning of the id. `word` is the name of one of the functions
    `pause`, `resume`, `cancel`, `retry`, `priority`, `rename` and `override`, and `value` is the second
    argument of that function. Raises ConflictError if the run's state does not allow the command,
    NotFoundError, ConfigError.
    """
    place = Home.at(home)
    with closing(place.open_store()) as store:
        control.ask(store, place, finding.full_name(store, run), word, value, reason)


def _function(word: str) -> Callable[..., None]:
    """Return the public function for a command, with its signature, docstring and example."""
    entry = control_of(word)
    form = inspect.Parameter
    parameters = [form("run", form.POSITIONAL_OR_KEYWORD, annotation="str")]
    if entry.value:
        type_ = "int" if entry.value == "priority" else "str"
        parameters.append(form(entry.value, form.POSITIONAL_OR_KEYWORD, annotation=type_))
    if entry.takes_reason:
        default = form.empty if entry.needs_reason else None
        type_ = "str" if entry.needs_reason else "str | None"
        parameters.append(form("reason", form.POSITIONAL_OR_KEYWORD, default=default, annotation=type_))
    home = "Home | str | Path | None"
    parameters.append(form("home", form.KEYWORD_ONLY, default=None, annotation=home))
    signature = inspect.Signature(parameters, return_annotation="None")

    def function(*args: object, **kwargs: object) -> None:
        arguments = signature.bind(*args, **kwargs).arguments
        value = arguments.get(entry.value) if entry.value else None
        ask(arguments["run"], word, value, arguments.get("reason"), arguments.get("home"))

    function.__name__ = function.__qualname__ = word
    function.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    function.__doc__ = (
        f"{entry.line}\n\n    forge.{word}({_example(entry)})\n\n{entry.more} `forge {word}` does the "
        "same. Raises ConflictError if the run's state does not allow it, NotFoundError."
    )
    return function


def _example(entry: Control) -> str:
    """Return the arguments of a command's example as Python source: `"20261121-3fa9c1", 5`."""
    words = shlex.split(entry.example)
    options = dict(pairwise(words))
    arguments: list[object] = [EXAMPLE]
    if entry.value:
        arguments.append(int(words[0]) if entry.value == "priority" else words[0])
    texts = [f'"{argument}"' if isinstance(argument, str) else str(argument) for argument in arguments]
    reason = options.get("--reason")
    return ", ".join([*texts, *([] if reason is None else [f'reason="{reason}"'])])


pause = _function("pause")
resume = _function("resume")
cancel = _function("cancel")
retry = _function("retry")
priority = _function("priority")
rename = _function("rename")
override = _function("override")


def fork(
    run: str,
    at: int | None = None,
    generation: int | None = None,
    settings: Mapping[str, object] | None = None,
    *,
    reason: str | None = None,
    home: Home | str | Path | None = None,
) -> str:
    """Begin a run that shares another run's history up to a place; return the new run's id.

        branch = forge.fork(best.run, generation=0, settings={"seed": 1})

    `at` is the number of the last event that both runs share; `generation` is the generation of a
    merging run that the fork closes by its own settings. Give one of both. Nothing is copied, and the
    first run stays as it is. `carry_on` carries the fork to its end. Raises ConfigError, NotFoundError,
    TamperedError.
    """
    place = Home.at(home)
    with closing(place.open_store()) as store:
        branch = fork_command.plan(store, run, at, generation, dict(settings or {}))
        return fork_command.fork(store, branch, reason=reason)


def carry_on(run: str, home: Home | str | Path | None = None) -> Ended:
    """Carry a recorded run to its end; return its models and figures.

        changed = forge.carry_on(branch)
        print(changed["champion"])

    The run may be a fork, or one that was submitted, interrupted, resumed or retried. A completed run
    gives its results at once. `forge start --resume RUN` does the same. Raises RunFailedError,
    RunCancelledError, NotFoundError.
    """
    place = Home.at(home)
    with closing(place.open_store()) as store:
        name = control.adopted(store, run).run
        state = runner.finish(runner.WorkerProcess(store, Artifacts.of(place)), name)
    return ended_of(state)
