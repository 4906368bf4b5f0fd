"""The work of a study: pin model and text, make, measure, write; verify weights; forecast costs.

Each study adds its own part (`WorkPart`, `Costs`); the rest is the same for all studies. An audit makes
models again and compares them. A forecast does the start and some steps and records nothing.

Folders of the models of a run that trains: written, found again, made again.

OUT/ROLE        an ordinary Hugging Face folder, with `training.json`: how it was made
OUT/items       the items to measure on, one file a domain
OUT/KIND.json   the report, written last
"""

from __future__ import annotations

import json
import math
import time
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from typing_extensions import override

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.kept_items import TaskContext
from agent_forge.evaluation.measures.perplexity import score_windows
from agent_forge.evaluation.training_text.kept_text import ITEMS, STREAMS, write_items
from agent_forge.evaluation.trajectories import kept
from agent_forge.evaluation.trajectories.sampled import Sampled, SampleReplies
from agent_forge.events import Event, failpoints
from agent_forge.events.envelope import Plain
from agent_forge.runs import kinds
from agent_forge.runs.errors import ForgeError, UnreproducedError
from agent_forge.runs.event_types import HalfPrecision
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.forecast import Amount, Forecast
from agent_forge.runs.kinds.kind import AnyKind
from agent_forge.runs.record.events import Submitted
from agent_forge.runs.system.durations import duration, least, timed
from agent_forge.studies import given_dtype, origins
from agent_forge.studies.comparison import CHOOSING
from agent_forge.studies.events import GivenStarted, Items, Observe, Observed, Sizes, answered
from agent_forge.studies.making import model_files
from agent_forge.studies.making.making import Making, MakingState
from agent_forge.studies.training_context import GivenContext, TrainingContext
from agent_forge.studies.training_plan import as_float32
from agent_forge.weights import architectures, operations, pieces
from agent_forge.weights.folders import companions, model_card, model_config, stand_ins
from agent_forge.weights.folders.checkpoint import SHARD_BYTES, digest, publish, write_weights
from agent_forge.weights.recipes import Train, Transform
from agent_forge.weights.storage.output_folder import TRAINED, check_target, mark_of
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.threads import set_threads
from agent_forge.weights.training.canary import STEPS, canary
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.room import bounded
from agent_forge.weights.training.windows import Ids

if TYPE_CHECKING:
    from agent_forge.studies import AnyStudy


class Context(GivenContext[Any]):
    """The opened text and model of a run, and the work on its tasks."""

    @property
    def study(self) -> Any:
        """The kind of run, a study."""
        return kinds.of(self.state.kind)

    @property
    @override
    def recipes(self) -> Mapping[str, Making]:
        return self.study.run(self.state).recipes

    @cached_property
    @override
    def dtype(self) -> HalfPrecision | None:
        event_class = self.study.state.registry.types()["started"]
        return super().dtype if "dtype" in event_class.model_fields else None

    @cached_property
    @override
    def sizes(self) -> Mapping[str, object]:
        settings = json.loads((self.donor / companions.CONFIG).read_bytes())
        return self.study.sizes(settings, self.state.submitted.config)

    # ---- tasks ---------------------------------------------------------------------------------

    @override
    def carry_out(self, task: object) -> Event:
        self._tried.clear()
        return super().carry_out(task)

    def model(self, recipe_id: str) -> Tensors:
        """Return a model of the run, or the given one in float32."""
        if recipe_id == self.record.recipe_id:
            source = self.given()
            return Tensors(source.config, {name: t.float() for name, t in source.weights.items()})
        recipe = next(candidate for candidate in self.recipes.values() if candidate.id == recipe_id)
        return Tensors(self.settings, self.weights(recipe))

    def loaded(self, model: Tensors, measure: str, is_given: bool = False) -> ResidentModel:
        """Return a module with a model's weights, to be measured; all but the given one share it."""
        shape = is_given, measure
        if shape not in self._residents:
            module = modules.build(model, self.device).eval()
            module = self.study.fitted_module(self, module, measure)
            self._residents[shape] = ResidentModel.from_module(module)
        self._residents[shape].load(model.weights)
        return self._residents[shape]

    @override
    def _observed(self, task: Observe) -> Observed:
        began, model = time.monotonic(), self.loaded_for(task)
        with pieces.divided():
            items, sizes = self.measured_on(model, task)
        return answered(task, items, sizes, began)

    def loaded_for(self, task: Observe) -> ResidentModel:
        """Return a module with the weights of the model that a task measures."""
        is_given = task.recipe_id == self.record.recipe_id
        return self.loaded(self.model(task.recipe_id), task.measure, is_given)

    def measured_on(self, model: ResidentModel, task: Observe) -> tuple[Items, Sizes]:
        """Return group → values of a measure, and group → sizes of what they are of."""
        data = self.held_out(task.on)
        nll = {domain: tuple(score_windows(model, data[domain].windows)[0]) for domain in sorted(data)}
        return nll, {domain: tuple(data[domain].bytes) for domain in nll}

    # ---- started -------------------------------------------------------------------------------

    @override
    def pinned(self, common: Plain) -> Any:
        """Return `started` with the study's own pins. Raises ConfigError, SourceError."""
        started = self.study.state.registry.types()["started"]
        return started(**common, **self.study.pinned_fields(self, common))

    def _slowest(self, started: GivenStarted) -> tuple[Train, Mapping[str, Making]]:
        """Return (the slowest training, whose canary tells machines apart; recipe id → recipe)."""
        models = self.study.models_of(self.state.submitted, started)
        training = self.study.slowest_of(models)
        assert training is not None, "a study that pins by a canary names its slowest training"
        return training, {recipe.id: recipe for recipe in models.values()}

    @override
    def canary(self, started: GivenStarted, first: Tensors) -> tuple[str, float]:
        recipe, models = self._slowest(started)
        inputs = {
            role: first if id_ == recipe.start else self._input(id_, models)
            for role, id_ in recipe.inputs.items()
        }
        return self.tried(recipe, first, inputs)

    def tried(
        self,
        recipe: Train,
        first: Tensors,
        inputs: Mapping[str, Tensors] | None = None,
        streams: Mapping[str, Ids] | None = None,
    ) -> tuple[str, float]:
        """Return (digest after a training's first steps here, the seconds that they took)."""
        streams = self.text.streams if streams is None else streams
        with bounded():
            return canary(recipe, first, streams, inputs=inputs, device=self.device)

    def in_float32(self, started: GivenStarted) -> Tensors:
        """Return the given model in float32, which a study may begin with."""
        return operations.apply(as_float32(started), {"of": self.given()})

    @override
    def initial(self, started: GivenStarted) -> Tensors:
        recipe, models = self._slowest(started)
        return self._applied(models[recipe.start], models)

    def _applied(self, recipe: Making, models: Mapping[str, Making]) -> Tensors:
        """Return the model of a recipe that no training precedes; what the run has made, as it is."""
        if recipe.id in self.state.made:
            return self.model(recipe.id)
        assert isinstance(recipe, Transform)
        if recipe.id not in self._tried:
            inputs = {role: self._input(id_, models) for role, id_ in recipe.inputs.items()}
            self._tried[recipe.id] = operations.apply(recipe, inputs)
        return self._tried[recipe.id]

    @cached_property
    def _tried(self) -> dict[str, Tensors]:
        """Recipe id → model that a start or check made for its trial; the next task drops them."""
        return {}

    def _input(self, recipe_id: str, models: Mapping[str, Making]) -> Tensors:
        """Return the model of a recipe that no training precedes, or else the given one."""
        return self._applied(models[recipe_id], models) if recipe_id in models else self.given()

    def costs(self) -> Costs:
        """Return the costs of a started run: its steps, timed as the slowest training's, and models."""
        study, stepping = self.study, self.step_seconds()
        run = study.run(self.state)
        extent = study.extent(run)
        counted = extent.counted or f"there are {extent.steps:,} steps in all, none slower"
        took = f"{STEPS} steps of {study.slowest_words} took {duration(stepping)}"
        readings = self._measurement_times([*run.observations.values()]) or [
            self.measurement_seconds("", CHOOSING, False)
        ]
        measuring = extent.measurements * math.fsum(readings) / len(readings)
        making = operations.seconds(run.recipes, self._input, lambda: self.text.streams).items()
        measured = f"{extent.measurements} measurements {duration(measuring)}, by a part of some"
        return Costs(
            parts=(
                WorkPart(extent.steps * stepping / STEPS, f"{took}, and {counted}"),
                WorkPart(measuring, measured),
                *(WorkPart(s, f"making {name} {duration(s)}, by a part of it") for name, s in making),
            ),
            models=extent.models,
            rounded=extent.rounded,
            numbers=study.parameters(self.state),
        )

    def _measurement_times(self, tasks: Sequence[Observe]) -> Sequence[float]:
        """Return the seconds of each of some measurements, by a part of one of each sort."""
        original = self.record.recipe_id
        sorts = [(task.measure, task.on, task.recipe_id == original) for task in tasks]
        seconds = {sort: self.measurement_seconds(*sort) for sort in dict.fromkeys(sorts)}
        return [seconds[sort] for sort in sorts]

    def measurement_seconds(self, measure: str, on: str, is_given: bool) -> float:
        """Return the seconds of a measurement of a slice, of a model as it begins."""
        began = time.monotonic()
        first = self.in_float32(self.state.started) if is_given else self.initial(self.state.started)
        model = self.loaded(first, measure, is_given)
        seconds = time.monotonic() - began
        for pack in self.held_out(on).values():
            part = pack.windows[:PART]
            seconds += least(partial(score_windows, model, part)) * len(pack.windows) / len(part)
        return seconds


class WritingContext(Context):
    """The context of a study in which models write replies that trainings read."""

    def written(self, task: SampleReplies) -> kept.Written:
        """Return stream → trajectories of a task, sampled now."""
        raise NotImplementedError

    @property
    @override
    def streams(self) -> Mapping[str, Ids]:
        """Name → token ids of texts, and of all trajectories so far.

        Trajectories are read, or sampled again, on use: those of a later stage may need the model of an
        earlier stage.
        """
        sources: dict[str, Callable[[], Mapping[str, Ids]]] = {}
        for event in self.state.answers.values():
            if isinstance(event, Sampled):
                sources |= dict.fromkeys(event.streams, partial(self._read, event))
        return ChainMap(dict(self.text.streams), cast(Any, kept.LazyStreams(sources)))

    @cached_property
    def _kept(self) -> dict[str, Mapping[str, Ids]]:
        """Digest → streams of trajectories that were already read."""
        return {}

    def _read(self, event: Sampled) -> Mapping[str, Ids]:
        """Return stream → token ids of an event's trajectories, cached or sampled again."""
        if event.digest not in self._kept:
            write = partial(self.written, SampleReplies(event.recipe_id, tuple(event.streams)))
            self._kept[event.digest] = kept.streams(event, self._cache, write)
        return self._kept[event.digest]

    @override
    def carry_out(self, task: object) -> Event:
        if not isinstance(task, SampleReplies):
            return super().carry_out(task)
        event = kept.answered(task, self._cache, partial(self.written, task))
        failpoints.hit("sampled-kept")
        return event


#: Windows of a domain by which a forecast measures what reading them takes.
PART = 16
Say = Callable[[str], None]


C = TypeVar("C", bound=TaskContext[Any])


def rebuild(
    study: AnyStudy, state: MakingState, cache: Artifacts, ids: Sequence[str], say: Say
) -> Iterator[Finding]:
    """Make the models of the recipes `ids` again; yield an error for each that differs.

    The log says what came out after every segment.
    """
    try:
        context = study.work().opened(state, cache)
    except ForgeError as error:
        level = "error" if isinstance(error, UnreproducedError) else "unchecked"
        yield Finding(level, "weights", f"nothing can be made again: {error}")
        return
    for name, recipe in study.recipes(state).items():
        if recipe.id in ids:
            yield from _made(context, name, recipe, say)


def _made(context: TrainingContext[Any], name: str, recipe: Making, say: Say) -> Iterator[Finding]:
    try:
        again = digest(context.weights(recipe))
    except ForgeError as error:
        yield Finding("error", "weights", f"{name}: {error}")
        return
    how = "trained" if isinstance(recipe, Train) else "made"
    say(f"{how} {name} ({recipe.id[:12]}) again: digest {again[:12]} as recorded")


#: Folder of the model that the stand-ins are made from.
FIRST = ".first"


class WorkPart(NamedTuple):
    """A part of a run's work."""

    #: Of all of it, by what was timed here.
    seconds: float
    #: What was timed, and how much there is of it.
    how: str


@dataclass(frozen=True)
class Costs:
    """Costs of a run: the work beside its start, and the models that it leaves."""

    parts: Sequence[WorkPart]
    #: Models in float32, those rounded to the dtype of the given one, and the numbers of each.
    models: int
    rounded: int
    numbers: int
    #: What is not timed.
    besides: str = ""
    #: Bytes on disk beside models and text, and what is said after the models.
    further: tuple[int, str] = (0, "")
    #: Model of the shape of those that the run gives; None: what the slowest training begins with.
    first: Tensors | None = None


def begun(kind: AnyKind, work: type[C], submitted: Submitted, cache: Artifacts) -> tuple[C, float]:
    """Return (context of a run whose start is done here, the seconds that the start took).

    `work` is the kind's class of contexts. Raises the errors of a start.
    """
    set_threads()
    state = kind.state()
    state.take(submitted)
    context = work(state, cache)
    return context, timed(lambda: state.take(context.started()))


def forecast(study: AnyStudy, submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
    """Return the time, disk and memory that a run needs on this machine. Raises a start's errors."""
    context, opening = begun(study, study.work(), submitted, cache)
    started, costs = context.state.started, context.costs()
    besides = f". {costs.besides} come on top" if costs.besides else ""
    weights, stand_in = (costs.first or context.initial(started)).weights, folder / FIRST
    keeping = timed(
        lambda: publish(stand_in, lambda hidden: write_weights(hidden, weights, SHARD_BYTES))
    )
    # Besides a result, each training leaves a snapshot: weights, and two moments of what it trains.
    share = (getattr(started, "trainable", None) or costs.numbers) / costs.numbers
    writing = keeping * costs.models * (2 + 2 * min(1.0, share))
    parts = (
        *costs.parts,
        WorkPart(writing, f"writing models and snapshots {duration(writing)}, by one of them"),
        WorkPart(opening, f"the start {duration(opening)}"),
    )
    size, words = given_dtype.stored(started, costs.models, costs.rounded, costs.numbers)
    text = sum(file.stat().st_size for file in context.text.folder.iterdir())
    write_companions(context, stand_in)
    more, which = costs.further
    return Forecast(
        Amount(
            math.fsum(part.seconds for part in parts),
            f"timed here: {'; '.join(part.how for part in parts)}{besides}",
        ),
        Amount(size + more + text, f"counted: {words}{which}, and the text"),
        Amount(
            study.memory_of(submitted, started),
            "counted: weights, gradients and two moments of one training, and further models; "
            "activations come on top",
        ),
        {
            role: stand_ins.write(stand_in, folder / role, role)
            for role in study.roles(submitted.config)
        },
        context.text.folder / ITEMS,
    )


#: Folder of the items in a result.
ITEMS_FOLDER = "items"


def publish_model(
    context: TrainingContext[Any],
    place: Path,
    role: str,
    head: str,
    card: str | None = None,
    more: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Write the folder `place` of one model, whole or not at all; with a card, its README, too.

    `more` writes further files into the folder.
    """
    state, recipe = context.state, context.recipes[role]
    weights = context.weights(recipe)
    ancestors = origins.ancestry(state, context.recipes, recipe.id)
    document = {
        "run": state.run,
        "chain_head": head,
        "role": role,
        "recipe_id": recipe.id,
        "digest": state.made[recipe.id].digest,
        "recipes": {ancestor.recipe_id: dict(ancestor.recipe) for ancestor in ancestors},
    }

    def fill(folder: Path) -> None:
        write_weights(folder, weights, SHARD_BYTES)
        write_companions(context, folder)
        (folder / TRAINED).write_text(json.dumps(document, indent=2) + "\n", "utf-8")
        if card is not None:
            settings = model_config.read(folder)
            readme = card + model_card.section(settings) + architectures.note(settings)
            (folder / "README.md").write_text(readme, "utf-8")
        more(folder)

    publish(place, fill)


def write(study: AnyStudy, home: Home, state: MakingState, out: Path) -> Plain:
    """Write the folder of each model, whole or not at all, the items and the report; return the report.

    Raises the errors of `check_target`.
    """
    out, run = check_target(out), study.run(state)
    context = study.work().to_read(state, Artifacts.of(home), run.result_digests)
    for role in study.roles(state.submitted.config):
        publish_model(context, out / role, run.name_of(role), state.head, study.prose.card(run, role))
    folders = study.further_folders(run, out)
    publish(out / ITEMS_FOLDER, lambda folder: write_items(context.text, folder))
    report = study.prose.report(run)
    digests = {role: model.digest for role, model in state.completed.models.items()}
    whole = {**report, "run": state.run, "chain_head": state.head, "models": digests}
    (out / mark_of(study.name)).write_text(json.dumps(whole, indent=2) + "\n", "utf-8")
    return {**report, "run": state.run, "folder": str(out), **folders}


def write_companions(context: TrainingContext[Any], folder: Path) -> None:
    """Write config.json and tokenizer of the run's models into a folder."""
    for file in context.text.folder.iterdir():
        if file.name not in (STREAMS, ITEMS):
            (folder / file.name).write_bytes(file.read_bytes())


def materialise(
    study: AnyStudy, home: Home, state: MakingState, head: str, recipe_id: str, folders: Sequence[Path]
) -> str:
    """Return the path of a folder with a model of the run; if need be, write the last of `folders`.

    `head` is the head of the run's chain. Raises ForgeError.
    """
    digest, files_ = state.made[recipe_id].digest, state.started.files
    role = next(name for name, recipe in study.recipes(state).items() if recipe.id == recipe_id)

    def written(place: Path) -> None:
        context = study.work().to_read(state, Artifacts.of(home), [digest])
        publish_model(context, place, role, head)

    return model_files.settled(folders, lambda place: model_files.fits(place, digest, files_), written)


def files(
    context: TrainingContext[Any], cache: Artifacts, roles: Sequence[str]
) -> list[tuple[str, Path]]:
    """Return (name in an archive, file) pairs of the models, made again if the cache lacks them."""
    recipes = [context.recipes[role] for role in roles]
    models = {
        context.state.made[recipe.id].digest: partial(context.weights, recipe) for recipe in recipes
    }
    return model_files.files(cache, models, context.state.making_seconds)
