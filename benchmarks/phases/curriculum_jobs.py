"""Jobs of the benchmark `curriculum`: models of symbols, one training each, one result file each."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agent_forge.phases.curriculum.script import Curriculum
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.studies.comparison import mean
from agent_forge.studies.making.making import MakingState
from agent_forge.weights.storage.output_folder import mark_of
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import submit
from agent_forge.worker.tasks import runner
from testing.models import symbol_models

#: Size → shape of the model, and tokens of a training.
SIZES: dict[str, tuple[dict[str, int], int]] = {
    "mini": ({"hidden": 96, "layers": 3, "heads": 4, "kv_heads": 4, "intermediate": 192}, 600_000),
    "tiny": ({"hidden": 160, "layers": 4, "heads": 4, "kv_heads": 4, "intermediate": 320}, 900_000),
    "small": ({"hidden": 256, "layers": 6, "heads": 4, "kv_heads": 2, "intermediate": 768}, 600_000),
}
#: Settings of all jobs, unless the user says otherwise.
SETTINGS: dict[str, Any] = {
    "batch": 16,
    "context": 64,
    "segments": 12,
    "families": ["addition", "brackets", "sort-digits"],
    "levels": 5,
    "selection_items": 32,
    "test_items": 100,
    "rate": 3e-3,
}


@dataclass(frozen=True)
class Job:
    """A training of one arm; `first` are the settings of a training before it, if there is one."""

    size: str
    seed: int
    #: Name of what is compared.
    what: str
    settings: dict[str, Any]
    first: dict[str, Any] | None = None
    #: Folder of a model to train; None: new weights of the size.
    model: str | None = None

    @property
    def name(self) -> str:
        """The name of the job's files."""
        return f"{self.size}-{self.seed}-{self.what.replace(' ', '_')}"


@dataclass
class Row:
    """Result of a job."""

    job: dict[str, Any]
    parameters: int
    tokens: int
    arm: str
    #: Accuracy on the selection slice before the first segment and after each.
    course: list[float]
    forgetting: float
    #: Cell → success on the selection slice, after each segment.
    along: list[dict[str, float]]
    #: The observation on the test slice.
    test: dict[str, Any]
    #: Segment → cell → share.
    mixes: list[dict[str, float]] = field(default_factory=list)
    frontiers: dict[str, list[int]] = field(default_factory=dict)
    #: Bursts and dreams of the arm, as the report has them.
    bursts: list[dict[str, Any]] = field(default_factory=list)
    dreams: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0


def carried_out(home: Home, name: str, model: str, settings: dict[str, Any]) -> MakingState:
    """Carry a run to its end, from where it is; return its state."""
    with closing(home.open_store()) as store:
        if not store.version(f"curriculum/{name}"):
            plan = submit.plan(RunRequest("curriculum", settings, {"model": [model]}))
            submit.check(plan)
            submit.submit(store, plan, name)
        return runner.finish(runner.WorkerProcess(store, Artifacts.of(home)), name)


def do(job: Job, place: Path) -> Row:
    """Do a job in a folder of its own, from where it is; write and return its result."""
    began, home = time.monotonic(), Home(place / "homes" / job.name)
    new = place / "homes" / job.name / "new"
    if not job.model and not (new / "model.safetensors").exists():
        symbol_models.write(new, SIZES[job.size][0], job.seed)
    model = job.model or str(new)
    if job.first is not None:
        learned = place / "homes" / job.name / "first"
        if not (learned / mark_of("curriculum")).exists():
            Curriculum().write_result(home, carried_out(home, "first", model, job.first), learned)
        model = str(learned / "model")
    state = carried_out(home, "main", model, job.settings)
    run = Curriculum().run(state)
    told = Curriculum.prose.report(run)
    (arm,) = run.courses
    row = Row(
        job=asdict(job),
        parameters=state.started.model.parameters,
        tokens=told["tokens"],
        arm=arm,
        course=told["course"][arm],
        forgetting=told["forgetting"][arm],
        along=[dict(event.values) for event in run.courses[arm].measured[1:]],
        test=run.seen[arm].model_dump(mode="json"),
        mixes=[event.mix for event in run.courses[arm].mixes],
        frontiers=told["frontiers"].get(arm, {}),
        bursts=told["bursts"].get(arm, []),
        dreams=told["dreams"].get(arm, []),
        seconds=time.monotonic() - began,
    )
    file = place / f"{job.name}.json"
    partial = file.with_suffix(".part")
    partial.write_text(json.dumps(asdict(row)), "utf-8")
    partial.rename(file)
    accuracy = mean(run.seen[arm])
    print(f"{job.name}: {100 * accuracy:.1f} %, {row.seconds:.0f} s", flush=True)
    return row
