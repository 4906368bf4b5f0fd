"""Studies: kinds of run that make models by a script, compare them as arms, and give one of them.

A study is settings, recipes, a script, and a table of arms and figures. What is due, found, shown,
written and verified follows from these. No torch: the work is in `studies/work.py`, which asks the
study for what is its own, in functions that import what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from events import Envelope, Event
from runs.errors import NotFoundError
from runs.event_types import MadeModel, Measurement
from runs.kinds.architecture import Architecture
from runs.kinds.asked import Asked, Checked, Lookup, Plan
from runs.kinds.forecast import Forecast
from runs.kinds.origin import Ancestor, Origin
from runs.kinds.tasks import Start, Task
from studies import observing, origins, paired_bits, submission
from studies.events import MODEL, GivenCompleted
from studies.making import making, resuming
from studies.making.events import Advanced, Made, Making, Trained
from studies.making.making import Make, MakingState
from studies.observing import Observe, Observed
from studies.study_view import StudyView
from studies.training_plan import as_float32
from weights.recipes import Train

if TYPE_CHECKING:
    from runs.home import Home
    from studies.work import Context

S = TypeVar("S", bound=MakingState)

#: Events of every study that are listed.
LISTED = frozenset({Advanced.type, Made.type, Trained.type, Observed.type})


class Study(StudyView[S]):
    """A kind of run that is a script and a table."""

    main_role = "model"
    gives_items = True
    #: Beside what every study has: event → task that it answers, and types that are listed.
    answers: ClassVar[Mapping[type[Event], type]] = {}
    listed: ClassVar[frozenset[str]] = LISTED
    #: Roles of its models that are of the given model's architecture and sizes.
    as_given: ClassVar[Sequence[str]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Add answers and types of every study to those of this one."""
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "state"):
            started = cls.state.registry.types()["started"]
            every = {started: Start, Made: Make, Advanced: Make, Observed: Observe}
            cls.answers = {**every, **cls.answers}
            cls.listed |= LISTED

    # ---- tasks -------------------------------------------------------------------------------

    def agrees(self, state: S, recorded: Event, repeat: Event) -> bool:
        """Return True if a second result does not contradict the recorded one.

        How long segments are, and in how many parts a step is computed where there is less memory, is
        settled by the first `started`.
        """
        first: Any = recorded
        if recorded.type == repeat.type == "started":
            settled = {"segment": first.segment}
            parts = getattr(first, "accumulation", None)
            if getattr(repeat, "accumulation", None) != parts:
                names = ("accumulation", "canary", "warnings")
                settled |= {name: getattr(first, name) for name in names}
            repeat = repeat.model_copy(update=settled)
        return super().agrees(state, recorded, repeat)

    def unasked(self, state: S, task: Task, event: Event) -> str | None:
        """Return why the event does not answer the open task; None if it does."""
        if isinstance(task, Make) and isinstance(event, Made | Advanced):
            return making.unasked(task, event)
        if isinstance(task, Observe) and isinstance(event, Observed):
            return observing.unasked(task, event)
        return None

    def memory(self, state: S) -> int:
        """Return the bytes that its trainings need on a device."""
        return self.memory_of(state.submitted, state.started) if state.started is not None else 0

    def needs(self, task: Any) -> str | None:
        """Return the id of the snapshot that a segment goes on from, or of the model that is read.

        A task that reads a model, and makes none, has its `recipe_id`.
        """
        if not isinstance(task, Make):
            return getattr(task, "recipe_id", None)
        if isinstance(task.recipe, Train):
            begun = task.done > task.recipe.first
            return task.recipe.to(task.done).id if begun else task.recipe.start
        inputs = task.recipe.inputs
        return inputs.get("of") or inputs.get("svd") or inputs.get("end")

    def built(self, row: Envelope) -> str | None:
        """Return the id of the model or snapshot that an event's row says was made, or None."""
        if row.type not in (Made.type, Advanced.type):
            return None
        return getattr(self.state.registry.load(row), "recipe_id", None)

    def tokens(self, event: Event) -> int:
        """Return the number of tokens that a segment of a training read."""
        return event.tokens if isinstance(event, Advanced) else 0

    @property
    def remeasured(self) -> tuple[type[Event], ...]:
        """The answers that `forge verify --recompute` obtains again; models are `--rebuild`'s."""
        return tuple(event for event in super().remeasured if self.answers[event] is not Make)

    # ---- results -----------------------------------------------------------------------------

    def named(self, state: S) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes; `model` is there once it is known."""
        return self.run(state).named

    def result_id(self, state: S) -> str | None:
        """Return the recipe id of the result once it is made."""
        run = self.begun(state)
        model = run.named.get(MODEL) if run else None
        return model.id if model is not None and model.id in state.made else None

    def result(self, state: S) -> str | None:
        """Return the digest of the weights of the run's result, or None."""
        id_ = self.result_id(state)
        return state.made[id_].digest if id_ else None

    def results(self, state: S) -> dict[str, MadeModel]:
        """Return role → model."""
        return {
            role: MadeModel(recipe_id=model.recipe_id, digest=model.digest)
            for role, model in state.completed.models.items()
        }

    def inputs(self, state: S) -> dict[str, list[str]]:
        """Return the digest of the given model."""
        return {"model": [state.started.model.digest]}

    def unchanged(self, state: S) -> str | None:
        """Return the given model's name if the result is that model or its copy in float32."""
        result, source = state.completed.models[MODEL], state.started.model
        same = result.digest == source.digest or result.recipe_id == as_float32(state.started).id
        return state.called.get(source.digest, source.name) if same else None

    def architectures(
        self, config: Any, architectures_by_role: Mapping[str, Sequence[Architecture | None]]
    ) -> Mapping[str, Architecture]:
        """Return the given model's, for the models that only differ in their weights."""
        first = next(iter(architectures_by_role.get("model", ())), None)
        return dict.fromkeys(self.as_given, first) if first else {}

    def measurements(self, state: S, digest: str) -> list[Measurement]:
        """Return the bits per byte of the models of the run with these weights, made or given."""
        ids = {id_ for id_, event in state.made.items() if event.digest == digest}
        return paired_bits.measurements(state.answers.values(), ids, state.submitted.config.seed)

    def measured(self, arm: Any) -> Mapping[str, float]:
        """Return what the model registry lists of an arm that was compared: bits per byte."""
        return arm.bits_per_byte

    def models(self, event: Event, state: S) -> list[dict[str, Any]]:
        """Return the models that it gives for the model registry, once they are measured."""
        if not isinstance(event, self.completed):
            return []
        folder, ended = state.submitted.output_dir, cast("GivenCompleted", event)
        id_ = ended.models[MODEL].recipe_id
        metrics = next(self.measured(arm) for arm in ended.arms.values() if arm.recipe_id == id_)
        return [
            {
                "name": f"{state.run}-{role}",
                "kind": "champion" if role == MODEL else "base",
                "digest": model.digest,
                "parameters": self.parameters(state),
                "path": f"{folder}/{role}" if folder else None,
                "metrics": metrics if role == MODEL else {},
                "lineage": [state.started.model.digest],
            }
            for role, model in ended.models.items()
        ]

    # ---- names -------------------------------------------------------------------------------

    def find(self, state: S, name: str) -> str:
        """Return the recipe id that a name or the beginning of an id means. Raises NotFoundError."""
        if state.started is None:
            raise NotFoundError(f"run {state.run} has made no models yet.")
        return origins.find(state, self.named(state), name)

    def origin(self, state: S, rows: Sequence[Envelope], name: str) -> Origin:
        """Return the origin of a model; without a name, of the result. Raises NotFoundError."""
        recipe_id = self.find(state, name or MODEL)
        roles = self.roles(state.submitted.config)
        recipes = {**self.named(state), **self.recipes(state)}
        model = origins.origin(state, recipes, recipe_id, roles)
        return replace(model, name=self.result_title) if model.name == MODEL else model

    def ancestry(self, state: S, name: str) -> list[Ancestor]:
        """Return a model (the result without a name), and what it was made from."""
        recipe_id = self.find(state, name or MODEL)
        return origins.ancestry(state, self.named(state), recipe_id)

    def chosen(self, state: S, which: str) -> list[str]:
        """Return the recipe ids that "all", "champion" (the result), a name or an id means."""
        if which == "all":
            ids = dict.fromkeys(recipe.id for recipe in self.recipes(state).values())
            return [id_ for id_ in ids if id_ in state.made]
        return [self.find(state, MODEL if which == "champion" else which)]

    # ---- asking for a run --------------------------------------------------------------------

    def texts(self, submitted: Any) -> Iterator[tuple[str, str]]:
        """Yield the name of the model and the paths of data."""
        if submitted.model is not None:
            yield submitted.model.name, "a model's name"
        for path in submitted.data:
            yield path, "a path"

    def placed(self, data: str) -> str:
        """Return PATH or DOMAIN=PATH with an absolute path; a data set of the Hub is fetched."""
        from evaluation.data.training_texts import absolute

        return absolute(data)

    def asked_for(self, settings: Mapping[str, Any], config: Any) -> bool:
        """Return True if the settings are those; domains that were not given are those of the data."""
        named = "domains" in type(config).model_fields
        domains = {"domains": config.domains} if named else {}
        return super().asked_for({**domains, **settings}, config)

    def plan(self, request: Asked, lookup: Lookup) -> Plan:
        """Return the plan of the run of one `model`.

        Raises ConfigError, DataError, UnavailableError.
        """
        return submission.plan(self, request, lookup)

    def check(self, plan: Plan) -> Checked:
        """Open model (header only), tokenizer and data; raise the errors that a start would raise."""
        opened = submission.opened(plan)
        self.check_model(plan.config, opened)
        return submission.checked(plan, opened)

    # ---- work, in a process that may load torch ----------------------------------------------

    def forecast(self, submitted: Any, cache: Any, folder: Path) -> Forecast:
        """Return what a run that is submitted so costs here. Raises the errors of a start."""
        from studies.forecast import forecast

        return forecast(self, self._work(), submitted, cache, folder)

    def _work(self) -> type[Context]:
        """Return the class of contexts, which loads torch."""
        from studies.work import Context

        return Context

    def items_address(self, state: S) -> str:
        """Return the content address of the run's text."""
        from evaluation.training_text import kept_text

        started = state.started
        return kept_text.address(started.streams, started.files, started.items)

    def items_file(self, state: S, cache: Any) -> Path:
        """Return this machine's file of the items that a run has pinned. Raises ForgeError."""
        from evaluation.training_text.kept_text import ITEMS

        return self._work()(state, cache).text.folder / ITEMS

    def keep(self, state: S, cache: Any) -> None:
        """Remove the snapshots of trainings that have ended: their results are on disk."""
        if state.started is not None and state.made:
            self._work()(state, cache).tidy()

    def resumes(self, state: S, cache: Any) -> list[str]:
        """Return a sentence for each training under way: the step that it goes on from."""
        return resuming.sentences(state, self.trainings(state), cache) if state.started else []

    def stored(self, state: S) -> frozenset[str]:
        """Return the names of the snapshots of the run's trainings, recorded or under way."""
        return frozenset(resuming.names(state).values())

    def making_seconds(self, state: S, digest: str) -> float:
        """Return the seconds that it took to make weights of the run; 0: not known."""
        return state.making_seconds(digest)

    # ---- folders -----------------------------------------------------------------------------

    def settle(
        self, home: Home, state: S, head: str, recipe_id: str, folders: Sequence[Path]
    ) -> str:
        """Return a folder with a model of the run; make it again if need be. Raises ForgeError."""
        from studies import folders as files

        recipes = self.recipes(state)
        return files.settle(self._work(), home, state, head, recipes, recipe_id, folders)

    def result_files(self, state: S, cache: Any) -> list[tuple[str, Path]]:
        """Return the weight files of the models that it gives, made again if the cache lacks them."""
        from studies import folders as files

        run, roles = self.run(state), self.roles(state.submitted.config)
        context = self._work().to_read(state, cache, run.result_digests)
        return files.files(context, cache, [run.name_of(role) for role in roles])

    def write_result(self, home: Home, state: S, out: Path) -> dict[str, Any]:
        """Write the result's folder and return the report. Raises ForgeError."""
        from studies import folders as files

        return files.write(self, self._work(), home, state, out)

    # ---- verification ------------------------------------------------------------------------

    def rebuild(
        self, state: S, cache: Any, ids: Sequence[str], say: Callable[[str], None]
    ) -> Iterator[Any]:
        """Make results again, and compare what comes out with what is recorded."""
        from studies import verify

        recipes = {name: recipe for name, recipe in self.recipes(state).items() if recipe.id in ids}
        yield from verify.rebuild(self._work(), state, cache, recipes, say)

    def document(self, folder: Path) -> dict[str, Any] | None:
        """Return the report of a result's folder; None if it has none. Raises DataError."""
        from studies import verify

        return verify.document(self.name, folder)

    def verify_folder(
        self, home: Home, folder: Path, document: dict[str, Any], state: S | None, is_known: bool
    ) -> Iterator[Any]:
        """Compare what is in a result's folder with the run."""
        from studies.making import model_files

        digests = None if state is None else {}
        if state is not None and state.started:
            recipes = self.named(state).items()
            digests = {role: state.made[r.id].digest for role, r in recipes if r.id in state.made}
        yield from model_files.folder(folder, document, digests)
