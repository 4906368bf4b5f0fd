"""EvoMerge: evolve merges from Python, with the same runs, log and folders as `forge evo`."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_forge.events import Envelope, EventStore
from agent_forge.evomerge.config import EvoMergeConfig
from agent_forge.evomerge.reports import generation_rows
from agent_forge.evomerge.reports.outputs.tables import Run
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.tasks.results import champion
from agent_forge.modules import named
from agent_forge.pipelines import submitted
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands.fork import fork, plan
from agent_forge.worker.exports import wandb_follower
from agent_forge.worker.tasks import runner

log = logging.getLogger(__name__)

#: Events that callbacks can be registered for, and the arguments of a call.
CALLBACKS = {"generation": "(generation, best_fitness, diversity)"}


@dataclass
class EvoMergeResult:
    """The result of a merging run, with its champion loaded."""

    #: True if the run has completed.
    success: bool
    #: The champion, loaded: a transformers model.
    model: Any
    #: Best and first fitness, improvement, generations, the reason of the end, diversity.
    metrics: dict[str, Any]
    #: The run's name, the model folder and the home folder; and by the documents' names the report
    #: with every generation, the model folder again, and the champion's generation.
    artifacts: dict[str, Any]
    #: Seconds of this call, by the clock.
    duration_seconds: float
    #: "evomerge", the kind.
    phase_name: str = "evomerge"
    #: The run's report, as `forge evo --json` prints it.
    report: dict[str, Any] = field(default_factory=dict)

    def handover(self, specializations: Sequence[str] = ()) -> dict[str, object]:
        """Return phase 3's input: the model, its metrics, `specializations`, if the run completed."""
        test = self.report.get("test", {}).get("components") or {}
        return {
            "model": self.model,
            "phase_2_metrics": {
                "fitness": self.report.get("test", {}).get("score"),
                "perplexity": test.get("perplexity"),
                "accuracy": test.get("accuracy"),
                "generations": self.metrics["generations_run"],
            },
            "specializations": list(specializations),
            "ready_for_quietstar": self.success,
        }


class EvoMerge:
    """A search for merges of models, awaited: the run of `forge.run("evomerge", …)`.

        import asyncio

        search = forge.EvoMerge(forge.EvoMergeConfig(generations=8))
        search.register_callback("generation", lambda number, best, diversity: print(number, best))
        sources = ["models/code", "models/math"]
        result = asyncio.run(search.evolve(sources, base="models/base", data=["items"]))
        print(result.model, result.metrics["best_fitness"])

    Without `strategy` in its settings it takes that of `forge evo`. `key` begins a run beside an equal
    one. A cancelled task leaves a run that can be resumed.
    """

    def __init__(
        self,
        config: EvoMergeConfig | None = None,
        home: Home | str | Path | None = None,
        key: str | None = None,
    ) -> None:
        """Store the settings, the home folder and, for a run beside an equal one, a key."""
        self.config = config or EvoMergeConfig()
        self.home = Home.at(home)
        self._key = key
        self._callbacks: dict[str, list[Callable[..., None]]] = {name: [] for name in CALLBACKS}
        self._resume: str | None = None

    def register_callback(self, event: str, function: Callable[..., None]) -> None:
        """Have `function` called after each "generation" with (number, champion's fitness, diversity).

        Raises ConfigError for another event.
        """
        if event not in self._callbacks:
            raise ConfigError(f"callback {event!r} is not known: use {', '.join(CALLBACKS)}.")
        self._callbacks[event].append(function)

    def resume(self, run: str, generation: int | None = None) -> str:
        """Make the next `evolve()` go on with this run; return the name of the run that goes on.

        With a generation, a fork of the run goes on from there, and the run itself stays as it is.
        """
        self._resume = Run(run, self.home).name
        if generation is not None:
            with closing(self.home.open_store()) as store:
                self._resume = fork(store, plan(store, self._resume, None, generation, {}))
        return self._resume

    async def evolve(
        self,
        models: Sequence[object] = (),
        base: object = None,
        data: Sequence[str | Path] = (),
        output_dir: str | Path | None = None,
    ) -> EvoMergeResult:
        """Evolve merges of `models`; return the result with the champion loaded.

        Models are paths, Hub ids, runs, registered names or loaded modules. A loaded module is first
        written into the home folder. Text is measured with the tokenizer of its `config.name_or_path`.
        """
        cancelled = threading.Event()
        work = asyncio.to_thread(self._evolve, models, base, data, output_dir, cancelled)
        try:
            return await work
        except asyncio.CancelledError:
            cancelled.set()  # the worker stops between two tasks; the run can be resumed
            raise

    def _evolve(
        self,
        models: Sequence[object],
        base: object,
        data: Sequence[str | Path],
        output_dir: str | Path | None,
        cancelled: threading.Event,
    ) -> EvoMergeResult:
        began = time.monotonic()
        follows = wandb_follower.wanted(False, log.warning)
        with closing(self.home.open_store()) as store:
            run = self._resume or self._submit(store, models, base, data)
            artifacts = Artifacts.of(self.home)
            worker = runner.WorkerProcess(store, artifacts, self._watch, cancelled.is_set)
            with wandb_follower.beside(self.home, run, log.warning) if follows else nullcontext():
                state = runner.finish(worker, run)
        out = Path(output_dir) if output_dir else self.home.folder / "champions" / run
        summary = champion.write_with_report(self.home, state, out)
        return self._result(state, summary, time.monotonic() - began)

    def _submit(
        self, store: EventStore, models: Sequence[object], base: object, data: Sequence[str | Path]
    ) -> str:
        """Check and record a run, or find that of an equal request; return the run's id."""
        roles = {"sources": [named(self.home, m) for m in models]}
        if base is not None:
            roles["base"] = [named(self.home, base)]
        config = self.config.model_dump(mode="json")
        request = RunRequest("evomerge", config, roles, [str(place) for place in data])
        return submitted(self.home, store, request, self._key)

    def _watch(self, state: RunState, rows: list[Envelope]) -> None:
        for row in rows:
            if row.type == "generation_completed":
                done = generation_rows.rows(state)[-1]
                for function in self._callbacks["generation"]:
                    function(done["generation"], done["champion"], done["diversity"])

    def _result(self, state: RunState, data: dict[str, Any], seconds: float) -> EvoMergeResult:
        """Return the result of report `data` and `seconds`, with the model of its folder loaded."""
        from agent_forge.weights.architectures.auto import AutoModelForCausalLM

        out = Path(data["folder"])
        return EvoMergeResult(
            success=state.completed is not None,
            model=AutoModelForCausalLM.from_pretrained(out, trust_remote_code=False),
            metrics=data["metrics"],
            artifacts={
                "run": state.run,
                "model": str(out),
                "home": str(self.home.folder),
                "evolution_log": str(out / "report.json"),
                "final_checkpoint": str(out),
                "best_generation": _first_seen(state, data["champion"]),
            },
            duration_seconds=seconds,
            report=data,
        )


def _first_seen(state: RunState, recipe: str) -> int | None:
    """Return the number of the first generation with a candidate of `recipe`; None if there is none."""
    return min(
        (g for (g, _), candidate in state.candidates.items() if candidate.recipe_id == recipe),
        default=None,
    )


#: The second source document's name for `EvoMerge`.
EvoMergePipeline = EvoMerge
