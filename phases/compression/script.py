"""Phase 8, compression: a model in few bytes, at a rate that is chosen from a measured curve.

Every matrix is encoded at every setting; whole models are packed and measured; matrices are tried
alone, and mixed by what their errors cost; a policy chooses, and the choice is tested.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from agent_forge.events import Event
from agent_forge.phases.compression import figures, panels, recipes
from agent_forge.phases.compression.figures import POINTS, PROBES, RISES, TEST, Variant, observe
from agent_forge.phases.compression.recipes import (
    FILE,
    NEEDED,
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
    check_student,
)
from agent_forge.phases.compression.settings import MENU, CompressionConfig
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.event_types import Figure, MadeModel
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.kinds.asked import CheckResult, Command, Lookup, Plan, RunRequest
from agent_forge.runs.kinds.decide import NextWork, Start, Task
from agent_forge.runs.kinds.files import Storage
from agent_forge.runs.kinds.forecast import Architecture, Architectures, Forecast
from agent_forge.runs.system import packages
from agent_forge.studies import submission
from agent_forge.studies.events import Observe, Observed, Unmeasurable
from agent_forge.studies.events import validate_answer as wrong_observation
from agent_forge.studies.making import making
from agent_forge.studies.making.making import MakeTask
from agent_forge.studies.run import Fail, FigureRule, Script, StudyRun, bits, ratio
from agent_forge.studies.run import Make as MakeAll
from agent_forge.studies.study import ItemStudy, StudyStorage, StudyVerification
from agent_forge.studies.study_view import Prose
from agent_forge.weights.storage.weight_cache import Artifacts

if TYPE_CHECKING:
    from agent_forge.phases.compression.work import Context
    from agent_forge.runs.home import Home
    from agent_forge.weights.folders.checkpoint import Checkpoint

#: Encodings that are asked for at a time: more than there are devices.
TOGETHER = 256
#: Arms on the test slice.
GIVEN, CHOSEN = "given", "chosen"


@dataclass(frozen=True)
class EncodeStep:
    """Step of the script: encode matrices; a codec may refuse one."""

    encodings: Encodings

    def missing(self, state: CompressionState) -> NextWork:
        """Return a NextWork of the next encodings, at most 256; empty if all are made or refused."""
        ended = (state.made, state.refused)
        left = (
            MakeTask(recipe)
            for id_, recipe in self.encodings.values()
            if not any(id_ in events for events in ended)
        )
        return NextWork(tasks=[*islice(left, TOGETHER)])

    def answer(self, state: CompressionState) -> None:
        """Do nothing: the script reads encodings from the state."""


def _size(of: Callable[[StudyRun, Variant], float], words: str, unit: str = "") -> FigureRule:
    """Return the rule of a figure that is computed from the chosen point and has no interval."""
    return FigureRule(words, lambda run: Figure(value=of(run, run.known[CHOSEN])), unit)


class CompressionStorage(StudyStorage[CompressionState]):
    """The files that compressions leave on machines."""

    resumes, stored = Storage.resumes, Storage.stored

    @override
    def keep(self, state: CompressionState, cache: Artifacts) -> None:
        """Remove temporary files of an ended run, which killed processes may have left."""
        from agent_forge.phases.compression.work import packing

        if state.ended:
            shutil.rmtree(packing(cache, state.run), ignore_errors=True)

    @override
    def materialise(
        self, home: Home, state: CompressionState, head: str, recipe_id: str, folders: Sequence[Path]
    ) -> str:
        from agent_forge.phases.compression import folders as files

        return files.materialise(home, state, recipe_id, folders)

    @override
    def result_files(self, state: CompressionState, cache: Artifacts) -> list[tuple[str, Path]]:
        from agent_forge.phases.compression import folders as files

        return files.files(state, cache)


class CompressionVerification(StudyVerification[CompressionState]):
    """The rules by which second results of a compression are compared with the recorded ones."""

    @property
    @override
    def remeasured(self) -> tuple[type[Event], ...]:
        return (Encoded, Refused, Packed, Observed, Unmeasurable)

    @override
    def comparable(self, event: Event, recorded: Event) -> dict[str, object]:
        data = super().comparable(event, recorded)
        return {name: value for name, value in data.items() if name != "reason"}

    @override
    def chosen(self, state: CompressionState, which: str) -> list[str]:
        if which == "all":
            return [*state.made]
        return [self.kind.models.find(state, "" if which == "champion" else which)]

    @override
    def rebuild(
        self, state: CompressionState, cache: Artifacts, ids: Sequence[str], say: Callable[[str], None]
    ) -> Iterator[Finding]:
        from agent_forge.phases.compression import folders as files

        yield from files.rebuild(state, cache, ids, say)

    @override
    def document(self, folder: Path) -> dict[str, object] | None:
        from agent_forge.studies.making import model_files
        from agent_forge.weights.storage.output_folder import mark_of

        return model_files.document(folder, (mark_of(self.kind.name),))

    @override
    def folder(
        self,
        home: Home,
        folder: Path,
        document: dict[str, object],
        state: CompressionState | None,
        is_known: bool,
    ) -> Iterator[Finding]:
        from agent_forge.phases.compression import folders as files

        yield from files.check(folder, document, state)


class Compression(ItemStudy[CompressionState]):
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
    result_name, result_roles = "model", (ROLE,)
    state = CompressionState
    answers: ClassVar[Mapping[type[Event], type]] = {
        Started: Start,
        Encoded: MakeTask,
        Refused: MakeTask,
        Packed: MakeTask,
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
        report=panels.report, sentences=panels.table, lines=panels.lines, next_steps=panels.next_steps
    )
    view = cached_property(panels.CompressionView)
    models = cached_property(figures.Points)
    storage = cached_property(CompressionStorage)
    verification = cached_property(CompressionVerification)

    # ---- script ----------------------------------------------------------------------------------

    @override
    def script(self, run: StudyRun) -> Script:
        """Yield the steps: encode, pack, measure, try matrices alone, mix, choose, test."""
        subjects, config = recipes.subjects(run.started), run.settings
        yield EncodeStep(recipes.encodings(run))
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

    def _measured(self, run: StudyRun, points: Sequence[Variant]) -> Script:
        """Yield the steps that pack the points, and measure them and the given models."""
        yield MakeAll([*{point.recipe_id: point.recipe for point in points}.values()])
        yield from self._hopeful(run)
        sources = map(recipes.source, recipes.subjects(run.started))
        ids = dict.fromkeys([*sources, *(point.recipe_id for point in points)])
        yield run.ask({id_: observe(id_) for id_ in ids})

    def _hopeful(self, run: StudyRun) -> Script:
        """Yield a failure if a given model cannot be measured."""
        if (why := figures.hopeless(run)) is not None:
            yield Fail(why)

    # ---- deciding, and the audit -----------------------------------------------------------------

    @override
    def validate_answer(self, state: CompressionState, task: Task, event: Event) -> str | None:
        if isinstance(task, MakeTask) and isinstance(event, Encoded | Packed):
            encodes = task.recipe.kind == "transform" and task.recipe.operation == "encode@1"
            if encodes != isinstance(event, Encoded):
                return "it is of a matrix, and a model was asked for, or the other way round"
            return making.validate_answer(task, event)
        if isinstance(task, MakeTask) and isinstance(event, Refused):
            return None if event.recipe_id == task.recipe.id else "another recipe was refused"
        if isinstance(task, Observe) and isinstance(event, Observed):
            counts = {domain: len(losses) for domain, losses in event.items.items()}
            pinned = state.started.test if task.on == TEST else state.started.selection
            if counts != pinned:
                return "it has other documents than those that `started` pins"
        if isinstance(task, Observe) and isinstance(event, Observed | Unmeasurable):
            return wrong_observation(task, event)
        return None

    @override
    def memory(self, state: CompressionState) -> int:
        """Return the bytes of all models in float32, three times: as given, decoded, and loaded."""
        every = recipes.subjects(state.started) if state.started else ()
        return 12 * sum(subject.source.parameters for subject in every)

    # ---- asking for a run ------------------------------------------------------------------------

    @override
    def plan(self, request: RunRequest, lookup: Lookup) -> Plan:
        if {"budget", "retention"} <= set(request.config):
            raise ConfigError("give a budget or a retention: each alone chooses a file.")
        return super().plan(request, lookup)

    @override
    def check_machine(self, config: CompressionConfig) -> None:
        coded = [name for name in config.settings if MENU[name].codec == "uniform@1"]
        if coded:
            packages.require(f"the codec {coded[0]}", "constriction")

    @override
    def check(self, plan: Plan) -> CheckResult:
        from agent_forge.evaluation.loading import load_tokenizer
        from agent_forge.weights.folders import model_config
        from agent_forge.weights.folders.checkpoint import open_checkpoint

        (model,), smaller = plan.fields[ROLE], plan.fields[STUDENTS]
        opened, *students = (open_checkpoint(Path(source.path)) for source in (model, *smaller))
        tensors = min(len(opened_checkpoint.shapes) for opened_checkpoint in (opened, *students))
        _check_budget(plan.config.budget, tensors)
        for checkpoint in (opened, *students):
            model_config.check_predicts_tokens(checkpoint.given, checkpoint.config)
            checkpoint.check_plain("compressed")
            _check_floats(checkpoint)
        tokenizer = load_tokenizer(model.path)
        for reference, student in zip(smaller, students, strict=True):
            read = load_tokenizer(reference.path)
            check_student(reference.name, student.parameters, opened.parameters, read, tokenizer)
        return submission.checked_on_items(plan, (opened, *students), NEEDED)

    # ---- results ---------------------------------------------------------------------------------

    @override
    def contents(self, config: CompressionConfig) -> Mapping[str, Sequence[str]]:
        return {"file": [FILE]}

    @override
    def results(self, state: CompressionState) -> dict[str, MadeModel]:
        chosen = state.completed.chosen
        return {ROLE: MadeModel(recipe_id=chosen.recipe_id, digest=chosen.digest)}

    @override
    def architectures(
        self, config: CompressionConfig, inputs: Architectures
    ) -> Mapping[str, Architecture]:
        """Return "model" → the given model's config; empty with students, which may be chosen."""
        first = next(iter(inputs.get(ROLE, ())), None)
        return {ROLE: first} if first and not inputs.get(STUDENTS) else {}

    @override
    def inputs(self, state: CompressionState) -> dict[str, list[str]]:
        given_digest, *students = [subject.source.digest for subject in recipes.subjects(state.started)]
        return {ROLE: [given_digest], **({STUDENTS: students} if students else {})}

    # ---- work, in a process that may load torch --------------------------------------------------

    @override
    def work(self) -> type[Context]:
        from agent_forge.phases.compression.work import Context

        return Context

    @override
    def forecast(self, submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
        from agent_forge.phases.compression.folders import forecast

        return forecast(self, submitted, cache, folder)

    @override
    def write_result(self, home: Home, state: CompressionState, out: Path) -> dict[str, object]:
        from agent_forge.phases.compression import folders as files

        return files.write(home, state, out)


def _check_floats(opened: Checkpoint) -> None:
    """Raise ConfigError if a tensor has a dtype that no codec takes."""
    from agent_forge.weights.formats.coded_file import FLOATS

    for name, (dtype, shape) in opened.shapes.items():
        if dtype not in FLOATS:
            raise ConfigError(f"tensor {name} is {dtype} {list(shape)}: floats can be coded.")


def _check_budget(budget: int | None, tensors: int) -> None:
    """Raise ConfigError if the header's digests alone are larger than the budget."""
    from agent_forge.weights.formats.coded_file import DIGEST_BYTES, FIXED

    least = FIXED + tensors * DIGEST_BYTES
    if budget is not None and budget < least:
        raise ConfigError(
            f"budget: no file fits into {budget:,} bytes: the header for {tensors} tensors alone takes "
            f"more than {least:,}."
        )
