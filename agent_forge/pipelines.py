"""`run` and `PipelineOrchestrator`: runs of any kind from Python; an equal call goes on with a run."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from agent_forge.events import Envelope, EventStore
from agent_forge.pipeline.config import PipelineConfig
from agent_forge.pipeline.events import PipelineState
from agent_forge.pipeline.submission import file as pipeline_file
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, NotFoundError
from agent_forge.runs.event_types import Figure
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import Lookup, Plan, RunRequest
from agent_forge.runs.kinds.state import State
from agent_forge.weights.storage.model_origin import Finder
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import delegation, requests, submit
from agent_forge.worker.tasks import runner

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ended:
    """A run that has completed, and the names of its models for further calls.

        made = forge.run("cognate", {"preset": "mini"})
        print(made["base"], made.models)  # names as every command takes them
        print({name: figure.value for name, figure in made.figures.items()})

    `made["base"]` is the model with the role base. An unknown role raises NotFoundError.
    `made.items` names the items that the run has measured on, as `data` of another call.
    """

    #: The run's id.
    run: str
    #: Its kind, as "cognate".
    kind: str
    #: Role → name of the model, as every command takes it.
    models: Mapping[str, str]
    #: Name → figure: `value`, `unit` and, if it was measured, the interval.
    figures: Mapping[str, Figure]

    def __getitem__(self, role: str) -> str:
        """Return the name, as every command takes it, of a role's model. Raises NotFoundError."""
        if role not in self.models:
            names = ", ".join(self.models) or "none"
            raise NotFoundError(f"run {self.run} gives no model {role!r}. It gives {names}.")
        return self.models[role]

    @property
    def items(self) -> str:
        """The items that the run has measured on, as `data` of another call."""
        return f"{self.run}:{delegation.ITEMS}"


def run(
    kind: str,
    config: Mapping[str, object] | None = None,
    models: Mapping[str, str | Sequence[str]] | None = None,
    data: Sequence[str | Path] = (),
    *,
    home: Home | str | Path | None = None,
    key: str | None = None,
) -> Ended:
    """Carry a run of any kind to its end; return its models and figures.

        best = forge.run(
            "evomerge",
            {"generations": 8},
            models={"base": "models/base", "sources": ["models/code", "models/math"]},
            data=["items"],
        )
        print(best["champion"], best.figures["lead_over_sources"].value)

    `kind` is one of `forge kinds`, `config` has [its settings](settings.md). `models` has a model, or
    several, for each role; `data` has files and folders, or the `items` of another run. An equal call
    means the same run, as with commands: a run that was interrupted goes on, and a run that has ended
    gives its result ([the same request](history.md#the-same-request)). `key` begins a run beside an
    equal one. Input that cannot be used is refused before any work. Raises ConfigError, DataError,
    SourceError, UnavailableError, ConflictError, RunFailedError, RunCancelledError.
    """
    at = Home.at(home)
    roles = {role: [m] if isinstance(m, str) else list(m) for role, m in (models or {}).items()}
    request = RunRequest(kind, dict(config or {}), roles, [_placed(kind, str(place)) for place in data])
    with closing(at.open_store()) as store:
        name = submitted(at, store, request, key)
        state = runner.finish(runner.WorkerProcess(store, Artifacts.of(at)), name)
    return ended_of(state)


class PipelineOrchestrator:
    """A pipeline, run as a whole or phase by phase.

        with forge.PipelineOrchestrator("examples/speedrun.toml") as pipeline:
            first = pipeline.run_single_phase(1)
            report = pipeline.run_full_pipeline()

    `config` is a [TOML file](pipelines.md#the-file), or its content as a mapping. The same content in
    the same home means the same pipeline, as with `forge pipeline run`. With `reuse`, a phase that
    would equal a completed run takes that run's result.
    """

    def __init__(
        self,
        config: str | Path | Mapping[str, object] | PipelineConfig,
        home: Home | str | Path | None = None,
        key: str | None = None,
        reuse: bool = False,
    ) -> None:
        if isinstance(config, PipelineConfig):
            config = config.model_dump(mode="json")
        if isinstance(config, str | Path):
            config = pipeline_file.read(Path(config))
        self._asked = RunRequest("pipeline", dict(config))
        self._home, self._key = Home.at(home), key
        self._fields = {"reuse": reuse}
        self._store: EventStore | None = None
        #: The run's name, once it is submitted.
        self.run = ""

    def __enter__(self) -> Self:
        """Check and submit the pipeline, or find the equal one; return self. Raises ConfigError."""
        self._store = self._home.open_store()
        try:
            self.run = submitted(self._home, self._store, self._asked, self._key, self._fields)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *details: object) -> None:
        """Close the log; the pipeline itself can go on at any time."""
        if self._store is not None:
            self._store.close()
        self._store = None

    def run_full_pipeline(self) -> dict[str, object]:
        """Carry the pipeline to its end; return its report, as JSON values.

        Raises RunFailedError, RunCancelledError.
        """
        state = self._carried(None)
        return kinds.of(state.kind).view.report(state, ())

    def run_single_phase(self, number: int) -> Ended:
        """Carry the pipeline on until a phase has ended; return that phase's models and figures.

        The first phase has `number` 1, and earlier phases run first. Raises ConfigError for a number
        without a phase, RunFailedError, RunCancelledError.
        """
        config = kinds.of("pipeline").settings.parse(self._asked.config)
        if not 1 <= number <= len(config.phases):
            raise ConfigError(f"there is no phase {number}: there are 1 to {len(config.phases)}.")
        state = self._now()
        if state.ended_phase(number) is None:  # else a later phase may have failed: this one stands
            state = self._carried(number)
        ended = state.ended_phase(number)
        assert ended
        models = {role: f"{ended.child}:{m.recipe_id}" for role, m in ended.models.items()}
        return Ended(ended.child, config.phase(number).kind, models, state.figures(number))

    def _now(self) -> PipelineState:
        """Return the pipeline's state as the log has it. Raises ConfigError outside of `with`."""
        if self._store is None:
            raise ConfigError("a pipeline runs within `with PipelineOrchestrator(…) as pipeline:`.")
        return repository.load_of(PipelineState, self._store, self.run)

    def _carried(self, until: int | None) -> PipelineState:
        """Carry the pipeline on until phase `until` has ended (None: all); return the last state."""
        self._now()
        assert self._store
        states: list[PipelineState] = []

        def watch(state: Any, _rows: list[Envelope]) -> None:
            if state.run == self.run:
                states[:] = [state]

        def stop() -> bool:
            return bool(until and states and states[0].ended_phase(until))

        worker = runner.WorkerProcess(self._store, Artifacts.of(self._home), watch, stop)
        return runner.finish(worker, self.run)


def _placed(kind: str, data: str) -> str:
    """Return `data` with its path absolute, so that it is the same from any folder; keep RUN:items."""
    return data if data.endswith(f":{delegation.ITEMS}") else kinds.of(kind).requests.placed(data)


def submitted(
    home: Home,
    store: EventStore,
    request: RunRequest,
    key: str | None,
    fields: Mapping[str, object] = MappingProxyType({}),
) -> str:
    """Check and record a run, or find that of an equal request; return the run's id.

    `fields` are further fields of the event `submitted`. Raises ForgeError.
    """
    with_files = delegation.with_items(store, Artifacts.of(home), request)
    plan = submit.plan(with_files, Lookup(named=Finder(home, log.info)))
    plan = replace(plan, fields={**plan.fields, **fields})
    return requests.submit(store, plan, key, _check).run


def _check(plan: Plan) -> None:
    """Raise the ForgeError that a start of the run would raise; log the warnings."""
    for warning in submit.check(plan).warnings:
        log.warning("%s", warning)


def ended_of(state: State) -> Ended:
    """Return an Ended, the models and figures of a completed run."""
    kind = kinds.of(state.kind)
    models = {role: f"{state.run}:{m.recipe_id}" for role, m in kind.results(state).items()}
    return Ended(state.run, state.kind, models, kind.figures(state))
