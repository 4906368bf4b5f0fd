"""Phase 8, compression: a model in few bytes, at a rate that is chosen from a measured curve.

Every matrix is encoded at every setting; whole models are packed and measured; matrices are tried
alone, and mixed by what their errors cost; a policy chooses, and the choice is tested.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from agent_forge.events import Envelope, Event
from agent_forge.phases.compression import figures, panels, recipes, submission
from agent_forge.phases.compression.figures import POINTS, PROBES, RISES, TEST, Point, observe
from agent_forge.phases.compression.recipes import (
    FILE,
    ROLE,
    STUDENTS,
    Chosen,
    Completed,
    CompressionState,
    Encoded,
    Encodings,
    Packed,
    Refused,
    Started,
    Submitted,
)
from agent_forge.phases.compression.settings import CompressionConfig
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.event_types import Figure, MadeModel, Measurement
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.kinds import default_panels
from agent_forge.runs.kinds.architecture import Architecture
from agent_forge.runs.kinds.asked import Checked, Command, Lookup, Plan, RunRequest
from agent_forge.runs.kinds.decide import Decision, Start, Task
from agent_forge.runs.kinds.forecast import Forecast
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.kinds.origin import Ancestor, Origin
from agent_forge.runs.kinds.view import OTHER_DATA
from agent_forge.runs.panels.head import Head, listed
from agent_forge.runs.panels.panels import Panel
from agent_forge.studies import comparison, origins
from agent_forge.studies.events import Observe, Observed, Unmeasurable
from agent_forge.studies.events import validate_answer as wrong_observation
from agent_forge.studies.making import making
from agent_forge.studies.making.making import Make
from agent_forge.studies.run import Fail, FigureRule, Run, Script, bits, ratio
from agent_forge.studies.run import Make as MakeAll
from agent_forge.studies.study import Study
from agent_forge.studies.study_view import Plain, Prose
from agent_forge.weights.recipes import Source
from agent_forge.weights.storage.weight_cache import Artifacts

if TYPE_CHECKING:
    from agent_forge.phases.compression.work import Context
    from agent_forge.runs.home import Home

#: Encodings that are asked for at a time: more than there are devices.
TOGETHER = 256
#: Arms on the test slice.
GIVEN, CHOSEN = "given", "chosen"


@dataclass(frozen=True)
class Encode:
    """Step of the script: encode matrices; a codec may refuse one."""

    encodings: Encodings

    def missing(self, state: CompressionState) -> Decision:
        """Return the next encodings, at most `TOGETHER`; none when all are made or refused."""
        ended = (state.made, state.refused)
        left = (
            Make(recipe)
            for id_, recipe in self.encodings.values()
            if not any(id_ in events for events in ended)
        )
        return Decision(tasks=[*islice(left, TOGETHER)])

    def answer(self, state: CompressionState) -> None:
        """Do nothing: the script reads encodings from the state."""


def _size(of: Callable[[Run, Point], float], words: str, unit: str = "") -> FigureRule:
    """Return the rule of a figure that is computed from the chosen point and has no interval."""
    return FigureRule(words, lambda run: Figure(value=of(run, run.known[CHOSEN])), unit)


class Compression(Study[CompressionState]):
    """Compression of a model at a rate chosen from a measured curve."""

    name = "compression"
    phase = 8
    title = "a compression"
    main_role = ROLE
    line = "encode a model in few bytes, at a rate chosen from a measured curve"
    command = Command(
        options={"budget": "--budget", "retention": "--retention"},
        words=(
            "Encode a model in few bytes, at a rate chosen from a curve that is measured on "
            "it.\n\nEvery matrix is encoded at every setting; whole models and mixtures are "
            "measured; the smallest file that keeps the quality is chosen, or with --budget the "
            "best within it. With --student the same is done of a smaller model with the same "
            "tokenizer, and one of all points is chosen. The folder gets model.forge, a card with "
            "the curve, and the report."
        ),
        examples=(
            "forge compress models/base --out small --retention 0.98",
            "forge compress 20261121-3fa9c1 --out small --budget 2MB --data items",
            "forge compress models/base --student RUN --out small --budget 40kB",
            "forge decompress small/model.forge plain",
        ),
    )
    unit = "task"
    result_name = "model"
    state = CompressionState
    answers: ClassVar[Mapping[type[Event], type]] = {
        Started: Start,
        Encoded: Make,
        Refused: Make,
        Packed: Make,
        Observed: Observe,
        Unmeasurable: Observe,
    }
    counted = frozenset({Encoded.type, Refused.type})
    listed = frozenset(
        event.type for event in (Encoded, Refused, Packed, Observed, Unmeasurable, Completed)
    )
    figure_rules: ClassVar[Mapping[str, FigureRule]] = {
        "retention": ratio(
            GIVEN, "quality kept of the given model: its bits per byte over the file's, test slice"
        ),
        "bits_per_byte": bits(
            "bits per byte: of the compressed model on the test slice, the mean over domains"
        ),
        "bytes": _size(lambda run, p: p.bytes, "size: bytes of the file, no tokenizer", "bytes"),
        "size": _size(
            lambda run, p: p.bytes / run.started.bytes,
            "size beside the given model: bytes of the file over those of the given model's tensors",
            "share",
        ),
        "ratio": _size(
            lambda run, p: run.started.float32_bytes / p.bytes,
            "times smaller than float32: bytes of all parameters of the given model over the file's",
        ),
        "bits_per_weight": _size(
            lambda run, p: 8 * p.bytes / (p.subject.float32_bytes // 4),
            "bits per parameter: bits of the file for a parameter of the model that is in it",
            "bits/parameter",
        ),
    }

    prose = Prose(
        report=panels.report,
        sentences=panels.table,
        lines=panels.lines,
        next_steps=panels.next_steps,
    )
    # It trains nothing, and gives no items.
    gives_items, curve_of, tracked_names = False, Kind.curve_of, ()
    unchanged, outlook, stored = Kind.unchanged, Kind.outlook, Kind.stored
    part, tables, tracked_parts, resumes = Kind.part, Kind.tables, Kind.tracked_parts, Kind.resumes

    # ---- script ----------------------------------------------------------------------------------

    @override
    def script(self, run: Run) -> Script:
        """Yield the steps: encode, pack, measure, try matrices alone, mix, choose, test."""
        subjects, config = recipes.subjects(run.started), run.settings
        yield Encode(recipes.encodings(run))
        points = [point for subject in subjects for point in figures.singles(run, subject)]
        run.known[POINTS] = points
        yield from self._measured(run, points)
        if config.mixtures and len(config.settings) > 1:
            probes = {recipes.source(subject): figures.probes(run, subject) for subject in subjects}
            run.known[PROBES] = probes
            tasks = (probe.task for of in probes.values() for probe in of.values())
            yield run.ask({task.key: task for task in tasks})
            run.known[RISES] = {
                recipes.source(subject): figures.rises(run, subject) for subject in subjects
            }
            mixtures = [point for subject in subjects for point in figures.mixed(run, subject)]
            points += mixtures
            yield from self._measured(run, mixtures)
        yield from self._hopeful(run)
        chosen = figures.choose(run)
        if chosen is None:
            yield Fail(figures.unmet(run))
            return None
        ids = {GIVEN: recipes.source(run.started), CHOSEN: chosen.recipe_id}
        yield run.compare({arm: observe(id_, TEST) for arm, id_ in ids.items()})
        run.result, run.known[CHOSEN] = CHOSEN, chosen
        return lambda: {
            "chosen": Chosen(
                point=chosen.name,
                recipe_id=chosen.recipe_id,
                digest=run.state.made[chosen.recipe_id].digest,
                bytes=chosen.bytes,
            ),
            "figures": run.figures,
        }

    def _measured(self, run: Run, points: Sequence[Point]) -> Script:
        """Yield the steps that pack the points, and measure them and the given models."""
        yield MakeAll([*{point.recipe_id: point.recipe for point in points}.values()])
        yield from self._hopeful(run)
        sources = map(recipes.source, recipes.subjects(run.started))
        ids = dict.fromkeys([*sources, *(point.recipe_id for point in points)])
        yield run.ask({id_: observe(id_) for id_ in ids})

    def _hopeful(self, run: Run) -> Script:
        """Yield a failure if a given model cannot be measured."""
        if (why := figures.hopeless(run)) is not None:
            yield Fail(why)

    # ---- deciding, and the audit -----------------------------------------------------------------

    @override
    def validate_answer(self, state: CompressionState, task: Task, event: Event) -> str | None:
        if isinstance(task, Make) and isinstance(event, Encoded | Packed):
            encodes = task.recipe.kind == "transform" and task.recipe.operation == "encode@1"
            if encodes != isinstance(event, Encoded):
                return "it is of a matrix, and a model was asked for, or the other way round"
            return making.validate_answer(task, event)
        if isinstance(task, Make) and isinstance(event, Refused):
            return None if event.recipe_id == task.recipe.id else "another recipe was refused"
        if isinstance(task, Observe) and isinstance(event, Observed):
            counts = {domain: len(losses) for domain, losses in event.items.items()}
            pinned = state.started.test if task.on == TEST else state.started.selection
            if counts != pinned:
                return "it has other documents than those that `started` pins"
        if isinstance(task, Observe) and isinstance(event, Observed | Unmeasurable):
            return wrong_observation(task, event)
        return None

    @property
    @override
    def remeasured(self) -> tuple[type[Event], ...]:
        return (Encoded, Refused, Packed, Observed, Unmeasurable)

    @override
    def comparable(self, event: Event, recorded: Event) -> dict[str, object]:
        data = super().comparable(event, recorded)
        return {name: value for name, value in data.items() if name != "reason"}

    @override
    def memory(self, state: CompressionState) -> int:
        """Return the bytes of all models in float32, three times: as given, decoded, and loaded."""
        every = recipes.subjects(state.started) if state.started else ()
        return 12 * sum(subject.source.parameters for subject in every)

    # ---- asking for a run ------------------------------------------------------------------------

    @override
    def plan(self, request: RunRequest, lookup: Lookup) -> Plan:
        return submission.plan(self, request, lookup)

    @override
    def check_machine(self, config: CompressionConfig) -> None:
        submission.check_machine(config)

    @override
    def check(self, plan: Plan) -> Checked:
        return submission.check(plan)

    @override
    def placed(self, data: str) -> str:
        """Return data with an absolute path; names of tasks and built-in items are unchanged."""
        from agent_forge.evaluation.data.items import absolute

        return absolute(data)

    # ---- results ---------------------------------------------------------------------------------

    @override
    def result_id(self, state: CompressionState) -> str | None:
        """Return the recipe id of the chosen model; None before the choice."""
        return state.completed.chosen.recipe_id if state.completed else None

    @override
    def contents(self, config: CompressionConfig) -> Mapping[str, Sequence[str]]:
        """Return "file" → the name of the file of coded weights."""
        return {"file": [FILE]}

    @override
    def result(self, state: CompressionState) -> str | None:
        return state.completed.chosen.digest if state.completed else None

    @override
    def results(self, state: CompressionState) -> dict[str, MadeModel]:
        """Return "model" → recipe id and digest of the chosen model, decoded."""
        chosen = state.completed.chosen
        return {ROLE: MadeModel(recipe_id=chosen.recipe_id, digest=chosen.digest)}

    @override
    def architectures(
        self,
        config: CompressionConfig,
        architectures_by_role: Mapping[str, Sequence[Architecture | None]],
    ) -> Mapping[str, Architecture]:
        """Return "model" → the given model's config; empty with students, which may be chosen."""
        first = next(iter(architectures_by_role.get(ROLE, ())), None)
        return {ROLE: first} if first and not architectures_by_role.get(STUDENTS) else {}

    @override
    def inputs(self, state: CompressionState) -> dict[str, list[str]]:
        given_digest, *students = [subject.source.digest for subject in recipes.subjects(state.started)]
        return {ROLE: [given_digest], **({STUDENTS: students} if students else {})}

    # ---- models by name --------------------------------------------------------------------------

    @override
    def find(self, state: CompressionState, name: str) -> str:
        """Return the recipe id of a point by its name or its id's beginning; "" is the chosen one.

        Raises NotFoundError.
        """
        run = self.begun(state)
        points = figures.points(run) if run else []
        if name in ("", ROLE):
            if not state.completed:
                raise NotFoundError(f"run {state.run} has chosen no model yet.")
            return state.completed.chosen.recipe_id
        return origins.find(state, {point.name: point.recipe for point in points}, name)

    @override
    def chosen(self, state: CompressionState, which: str) -> list[str]:
        if which == "all":
            return [*state.made]
        return [self.find(state, "" if which == "champion" else which)]

    @override
    def origin(self, state: CompressionState, rows: Sequence[Envelope], name: str) -> Origin:
        recipe_id = self.find(state, name)
        point = self.names(state)[recipe_id].replace(":", "-")
        return Origin(
            name=f"{state.started.source.name}-{point}",
            what=f"model {point} of run {state.run}",
            digest=state.made[recipe_id].digest,
            run=state.run,
            recipe_id=recipe_id,
        )

    @override
    def ancestry(self, state: CompressionState, name: str) -> list[Ancestor]:
        """Return a point's recipe, those of its matrices, and the model that it was made from."""
        recipe_id = self.find(state, name)
        encodings = dict(recipes.encodings(self.run(state)).values())
        recipe: object = state.made[recipe_id].recipe
        point = self.names(state)[recipe_id]
        shown = [Ancestor(recipe_id, point, f"decoded, {point}", recipe.model_dump(mode="json"))]
        for id_ in recipe.inputs_used():
            if id_ in encodings:
                params, form = encodings[id_].params, encodings[id_].model_dump(mode="json")
                words = f"{params['tensor']} by {params['codec']}"
                shown.append(Ancestor(id_, "encoded", words, form))
        every = (subject.source for subject in recipes.subjects(state.started))
        given_model = next(record for record in every if record.recipe_id == recipe.inputs["model"])
        source = Source(digest=given_model.digest)
        words = f"the model {given_model.name}, {given_model.digest[:12]}"
        form = source.model_dump(mode="json")
        return [*shown, Ancestor(source.id, "given", words, form, given_model.digest)]

    # ---- shown -----------------------------------------------------------------------------------

    @override
    def names(self, state: CompressionState) -> dict[str, str]:
        """Return recipe id → name of every encoding, given model and point."""
        run = self.begun(state)
        if run is None:
            return {}
        every = recipes.subjects(run.started)
        prefixes = {recipes.source(subject): recipes.prefix(subject) for subject in every}
        coded = recipes.encodings(run).items()
        names = {id_: f"{prefixes[of]}{m} at {s}" for (of, m, s), (id_, _) in coded}
        names |= {recipes.source(subject): recipes.name(subject) for subject in every}
        return names | {p.recipe_id: p.name for p in run.known.get(figures.POINTS, ())}

    @override
    def summary_line(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        name = names.get(str(data.get("recipe_id")), str(data.get("recipe_id"))[:12])
        match type_:
            case "submitted":
                return data["model"][0]["name"]
            case "started":
                count = sum(len(of["matrices"]) for of in (data, *data.get("students", ())))
                return f"{count} matrices, {data['calibrated']:,} tokens of calibration"
            case "encoded":
                return f"{name}: {data['bytes']:,} bytes, error {data['error']:.4g}"
            case "refused" | "unmeasurable":
                return f"{name}: {data['reason']}"
            case "packed":
                return f"{name}: {data['bytes']:,} bytes"
            case "observed":
                values = data["values"].values()
                bits = math.fsum(values) / len(values)
                return f"{name}, {data['on']}: {bits:.4f} bits per byte"
            case "completed":
                share, chosen = data["figures"]["retention"]["value"], data["chosen"]
                return f"{chosen['point']}: {chosen['bytes']:,} bytes, keeps {share:.4f}"
        return None

    @override
    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        id_ = key.rpartition("/")[2]
        if key.startswith("observe/"):
            return f"measure {names.get(id_, id_[:12])}"
        if key.startswith("make/"):
            return f"make {names.get(id_, id_[:12])}"
        return "read model, items and inputs of layers" if key == "start" else ""

    @override
    def row(self, entry: Plain, event: Event) -> None:
        if isinstance(event, Encoded | Packed | Observed | Unmeasurable):
            entry["done"] = (entry["done"] or 0) + 1
        if isinstance(event, Completed):
            entry |= listed(panels.KEPT, event.figures["retention"].value, f"{figures.TEST} slice")

    @override
    def models(self, event: Event, state: CompressionState) -> list[dict[str, object]]:
        if not isinstance(event, Completed):
            return []
        source = state.started.source
        return [
            {
                "name": f"{state.run}-{ROLE}",
                "kind": "champion",
                "digest": event.chosen.digest,
                "parameters": source.parameters,
                "bytes": int(event.figures["bytes"].value),
                "path": state.submitted.output_dir,
                "metrics": {"retention": event.figures["retention"].value},
                "lineage": [source.digest],
            }
        ]

    @override
    def measurements(self, state: CompressionState, digest: str) -> list[Measurement]:
        """Return bits per byte, and bytes of the file, of the model or point with this digest."""
        if state.started is None:
            return []
        packed = [m for m in state.made.values() if isinstance(m, Packed) and m.digest == digest]
        ids = {event.recipe_id for event in packed}
        if state.started.source.digest == digest:
            ids.add(recipes.source(state.started))
        answers, seed = state.answers.values(), state.submitted.config.seed
        sizes = (Figure(value=event.bytes) for event in packed[:1])
        return [
            *comparison.measurements(answers, ids, self.purpose, seed),
            *(Measurement(name="bytes of the file", figure=size) for size in sizes),
        ]

    @override
    def made(self, state: CompressionState, digest: str) -> str | None:
        packed = (m for m in state.made.values() if isinstance(m, Packed))
        return next((event.recipe_id for event in packed if event.digest == digest), None)

    @override
    def yardstick(self, state: CompressionState) -> dict[str, object]:
        return {OTHER_DATA: state.started.data_digest if state.started else None}

    @override
    def progress(self, state: CompressionState) -> tuple[int, int | None]:
        """Return (tasks done, all tasks known so far, None before the start)."""
        run = self.begun(state)
        if run is None:
            return 0, None
        done = len(state.made) + len(state.refused) + len(state.answers)
        config, every = run.settings, recipes.subjects(run.started)
        total = len(recipes.encodings(run)) + (2 * len(run.started.settings) + 1) * len(every) + 2
        if config.mixtures and len(config.settings) > 1:
            total += sum(len(subject.matrices) + 2 * config.mixtures for subject in every)
        return done, done if state.completed else max(total, done + 1)

    @override
    def head(self, state: CompressionState) -> Head:
        """Return the page's head: the share of quality that the chosen model keeps, and sizes."""
        run = self.begun(state)
        if run is None:
            return default_panels.head(self, state)
        return default_panels.head(self, state, panels.result(run), panels.facts(run))

    @override
    def panels(self, state: CompressionState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return the panels of front, points, mixtures, matrices, and open tasks."""
        run = self.begun(state)
        tasks, further = default_panels.tasks(self, state), len(state.made) + len(state.refused)
        says = f"{tasks.says} {further:,} more encoded or packed, and are not listed."
        tasks = tasks.model_copy(update={"says": says if further else tasks.says})
        return [*(panels.panels(run) if run else ()), tasks]

    @override
    def view(self, state: CompressionState) -> dict[str, object]:
        run = self.begun(state)
        return {"points": panels.rows(run) if run else []}

    # ---- work, in a process that may load torch --------------------------------------------------

    @override
    def _work(self) -> type[Context]:
        from agent_forge.phases.compression.work import Context

        return Context

    @override
    def forecast(self, submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
        from agent_forge.phases.compression.folders import forecast

        return forecast(self, submitted, cache, folder)

    @override
    def keep(self, state: CompressionState, cache: Artifacts) -> None:
        """Remove temporary files of an ended run, which killed processes may have left."""
        from agent_forge.phases.compression.work import packing

        if state.ended:
            shutil.rmtree(packing(cache, state.run), ignore_errors=True)

    @override
    def materialise(
        self,
        home: Home,
        state: CompressionState,
        head: str,
        recipe_id: str,
        folders: Sequence[Path],
    ) -> str:
        from agent_forge.phases.compression import folders as files

        return files.materialise(home, state, recipe_id, folders)

    @override
    def result_files(self, state: CompressionState, cache: Artifacts) -> list[tuple[str, Path]]:
        from agent_forge.phases.compression import folders as files

        return files.files(state, cache)

    @override
    def write_result(self, home: Home, state: CompressionState, out: Path) -> dict[str, object]:
        from agent_forge.phases.compression import folders as files

        return files.write(home, state, out)

    @override
    def rebuild(
        self,
        state: CompressionState,
        cache: Artifacts,
        ids: Sequence[str],
        say: Callable[[str], None],
    ) -> Iterator[Finding]:
        from agent_forge.phases.compression import folders as files

        yield from files.rebuild(state, cache, ids, say)

    @override
    def document(self, folder: Path) -> dict[str, object] | None:
        from agent_forge.studies.making import model_files
        from agent_forge.weights.storage.output_folder import mark_of

        return model_files.document(folder, (mark_of(self.name),))

    @override
    def verify_folder(
        self,
        home: Home,
        folder: Path,
        document: dict[str, object],
        state: CompressionState | None,
        is_known: bool,
    ) -> Iterator[Finding]:
        from agent_forge.phases.compression import folders as files

        yield from files.check(folder, document, state)
