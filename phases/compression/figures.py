"""Figures of a compression: points, what errors cost, mixtures, front, choice, comparison. Pure.

A function of a run says what follows from the events so far: a point that is not measured has no bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from typing_extensions import override

from agent_forge.evaluation.data.slices import Slice
from agent_forge.events import Envelope, Event
from agent_forge.phases.compression import recipes
from agent_forge.phases.compression.recipes import (
    ROLE,
    Assignment,
    Completed,
    CompressionState,
    Encoded,
    MatrixSettings,
    Option,
    Packed,
    Subject,
)
from agent_forge.phases.compression.settings import CompressionConfig
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.event_types import Figure, MadeModel, Measurement
from agent_forge.runs.kinds.origin import AncestorRecipe, LogModel
from agent_forge.studies import comparison, origins
from agent_forge.studies.comparison import draws, figure, mean, resampled
from agent_forge.studies.events import Observe, Observed, Unmeasurable
from agent_forge.studies.origins import StudyModels
from agent_forge.studies.run import StudyRun
from agent_forge.weights.recipes import Source, Transform

MEASURE = "rolling-bits-per-byte@1"
#: What points are chosen by, and what the chosen one is measured on.
SELECTION: Slice = "selection"
TEST: Slice = "test"
#: The relative squared error of a probe, as nearly as the settings allow.
PROBED = 0.1
#: Shares of the rise of bits per byte that the policy allows, at which mixtures are tried.
SHARES = (0.6, 0.8, 1.0)
#: Least sensitivity that a matrix counts with, as a share of the median.
LEAST = 0.1
#: What the script has said: all points; matrix → its probe, and matrix → what the model needed more so,
#: both by the id of the model's recipe.
POINTS, PROBES, RISES = "points", "probes", "rises"


@dataclass(frozen=True)
class Variant:
    """A compressed model: a codec's setting for every matrix, and how good and how large it is."""

    name: str
    #: The model that is compressed: the given one, or a student.
    subject: Subject
    #: Its codec, or "mixture".
    series: str
    assignment: Assignment
    recipe: Transform
    recipe_id: str
    packed: Packed | None
    #: Bits per byte on the selection slice; None: not measured yet.
    bits: float | None
    #: Bits per byte of the given model there, over its own.
    retention: float | None
    #: The largest rise of its bits per byte over the given model's in any domain there, as a share.
    regression: float | None
    #: Why it cannot be measured, which no policy chooses; None otherwise.
    failure: str | None = None

    @property
    def bytes(self) -> int:
        """Bytes of the file of a packed point."""
        assert self.packed is not None
        return self.packed.bytes


# ---- measurements --------------------------------------------------------------------------------


def observe(recipe_id: str, on: Slice = SELECTION) -> Observe:
    """Return the task that measures the model of a recipe id on a slice."""
    return Observe(recipe_id, MEASURE, on)


def observed(run: StudyRun, recipe_id: str, on: Slice = SELECTION) -> Observed | None:
    """Return the `observed` event of a model on a slice; None if it is not measured."""
    event = run.state.answers.get(observe(recipe_id, on).key)
    return event if isinstance(event, Observed) else None


def unmeasurable(run: StudyRun, recipe_id: str) -> str | None:
    """Return why a model cannot be measured, with the slice, as text; None if the log has no reason."""
    for on in (SELECTION, TEST):
        event = run.state.answers.get(observe(recipe_id, on).key)
        if isinstance(event, Unmeasurable):
            return f"{event.reason} of the slice {on}"
    return None


def hopeless(run: StudyRun) -> str | None:
    """Return why the run must fail: a given model cannot be measured. None if all can."""
    for subject in recipes.subjects(run.started):
        if (why := unmeasurable(run, recipes.source(subject))) is not None:
            return f"the model {recipes.name(subject)} cannot be measured: {why}."
    return None


def bits_of(run: StudyRun, subject: Subject) -> float | None:
    """Return the bits per byte of a given model on the selection slice; None before it is measured."""
    event = observed(run, recipes.source(subject))
    return None if event is None else mean(event)


# ---- points --------------------------------------------------------------------------------------


def _point(run: StudyRun, subject: Subject, name: str, series: str, settings: Sequence[str]) -> Variant:
    assignment = recipes.taken(run, subject, settings)
    recipe = recipes.point(run, subject, assignment)
    id_, source_event = recipe.id, observed(run, recipes.source(run.started))
    packed, event = run.state.made.get(id_), observed(run, id_)
    bits = retention = regression = None
    if event is not None:
        bits = mean(event)
    if event is not None and source_event is not None:
        retention = mean(source_event) / mean(event)
        regression = max(value / source_event.values[d] - 1 for d, value in event.values.items())
    return Variant(
        *(recipes.prefix(subject) + name, subject, series, assignment, recipe, id_),
        packed if isinstance(packed, Packed) else None,
        *(bits, retention, regression),
        unmeasurable(run, id_),
    )


def singles(run: StudyRun, subject: Subject) -> list[Variant]:
    """Return the points of a model that have one setting for all matrices, in the menu's order."""
    count = len(subject.matrices)
    return [
        _point(run, subject, setting.name, setting.codec.partition("@")[0], (setting.name,) * count)
        for setting in run.started.settings
    ]


def attempted(run: StudyRun) -> list[Variant]:
    """Return the points that are packed, and measured or unmeasurable, the fewest bytes first.

    Empty before the given model is measured.
    """
    every = run.known.get(POINTS, ()) if bits_of(run, run.started) is not None else ()
    done = [p for p in every if p.packed is not None and (p.failure or p.bits is not None)]
    return sorted(done, key=lambda p: (p.bytes, p.name))


def points(run: StudyRun) -> list[Variant]:
    """Return the points that are packed and measured, the fewest bytes first."""
    return [p for p in attempted(run) if p.failure is None]


def front(by_bytes: Sequence[Variant]) -> list[Variant]:
    """Return the points with fewer bits per byte than every smaller point, the fewest bytes first."""
    best: list[Variant] = []
    for point in by_bytes:
        assert point.bits is not None
        if not best or point.bits < (best[-1].bits or 0.0):
            best.append(point)
    return best


# ---- what errors cost, and mixtures by it --------------------------------------------------------


def encoded(run: StudyRun, subject: Subject, matrix: str, setting: str) -> Encoded | None:
    """Return the `encoded` event of a matrix at a setting; None if the codec refused it."""
    id_, _ = recipes.encodings(run)[recipes.source(subject), matrix, setting]
    event = run.state.made.get(id_)
    return event if isinstance(event, Encoded) else None


def _at_settings(run: StudyRun, subject: Subject, matrix: str) -> dict[str, Encoded]:
    """Return setting → the `encoded` event of a matrix, of the settings whose codec takes it."""
    names = (setting.name for setting in run.started.settings)
    return {name: e for name in names if (e := encoded(run, subject, matrix, name)) is not None}


def squared_error(event: Encoded) -> float:
    """Return the relative squared error of the layer's outputs if known, otherwise of its weights."""
    return event.error if event.output_error is None else event.output_error


@dataclass(frozen=True)
class Probe:
    """A measurement of a model with one matrix encoded, at an error as near to PROBED as possible."""

    setting: str
    recipe: Transform
    task: Observe


def probes(run: StudyRun, subject: Subject) -> dict[str, Probe]:
    """Return matrix → the probe that shows what errors of this matrix alone cost."""

    def distance(event: Encoded) -> float:
        return abs(math.log(max(squared_error(event), 1e-12) / PROBED))

    tried = {}
    for matrix in subject.matrices:
        events = _at_settings(run, subject, matrix.name)
        setting = min(sorted(events), key=lambda name: distance(events[name]))
        recipe = recipes.probe(run, subject, matrix.name, setting)
        tried[matrix.name] = Probe(setting, recipe, observe(recipe.id))
    return tried


def rises(run: StudyRun, subject: Subject) -> dict[str, float]:
    """Return matrix → rise of the model's bits per byte with this matrix alone at its probe.

    A matrix is missing if its probe could not be measured.
    """
    before, tried = bits_of(run, subject), run.known[PROBES][recipes.source(subject)]
    assert before is not None
    events = {matrix: run.state.answers[probe.task.key] for matrix, probe in tried.items()}
    return {m: mean(event) - before for m, event in events.items() if isinstance(event, Observed)}


def ladder(run: StudyRun, subject: Subject) -> list[MatrixSettings]:
    """Return the mixtures of a model with the least estimated harm, the fewest bytes first."""
    id_ = recipes.source(subject)
    probed = {matrix: probe.setting for matrix, probe in run.known[PROBES][id_].items()}
    rise = run.known[RISES][id_]
    events = {m.name: _at_settings(run, subject, m.name) for m in subject.matrices}
    errors = {m: {n: squared_error(e) for n, e in at.items()} for m, at in events.items()}
    costs = [r / errors[m][probed[m]] for m, r in rise.items() if errors[m][probed[m]] > 0]
    usual, options = median([c for c in costs if c > 0] or [0.0]), []
    for matrix, at in events.items():
        if matrix not in rise:  # errors there cost what is not known: it has none
            plain = next(name for name in (recipes.PLAIN, recipes.WHOLE) if name in at)
            options.append([Option(plain, at[plain].bytes, 0.0)])
            continue
        probe = probed[matrix]
        least = LEAST * usual * errors[matrix][probe]
        harms = recipes.harms(errors[matrix], probe, rise[matrix], least)
        options.append([Option(name, at[name].bytes, harm) for name, harm in harms.items()])
    return recipes.ladder(options)


def mixed(run: StudyRun, subject: Subject) -> list[Variant]:
    """Return the points of mixtures to try: as large as single settings, or as the policy asks for."""
    config, steps = run.settings, ladder(run, subject)
    alone = [p for p in run.known[POINTS] if p.subject is subject and p.series != "plain"]
    rest = max([0, *(_rest(run, p) for p in alone)])
    sizes = sorted({p.bytes for p in alone if p.packed})
    tried: list[int] = [sizes[i * len(sizes) // config.mixtures] for i in range(config.mixtures)]
    if config.budget is not None:
        tried.append(config.budget)
    ladders = [recipes.within(steps, most - rest) for most in tried]
    if config.budget is None:
        ladders += [recipes.below(steps, harm) for harm in _allowed(run, subject)]
    assignments = dict.fromkeys(mixture.settings for mixture in ladders if mixture is not None)
    unlike = [assignment for assignment in assignments if len(set(assignment)) > 1]
    return [_point(run, subject, f"mixture-{i}", "mixture", a) for i, a in enumerate(unlike, 1)]


def _allowed(run: StudyRun, subject: Subject) -> list[float]:
    """Return rises of bits per byte up to the largest that `retention` allows; the estimate may be off.

    Empty for a student that already needs too many bits.
    """
    before, start = bits_of(run, run.started), bits_of(run, subject)
    assert before is not None
    assert start is not None
    most = before * (1 / run.settings.retention - 1) - (start - before)
    return [share * most for share in SHARES] if most >= 0 else []


def _rest(run: StudyRun, point: Variant) -> int:
    """Return the bytes of a point's file beside its encoded matrices."""
    pairs = zip(point.subject.matrices, point.assignment, strict=True)
    events = (encoded(run, point.subject, m.name, s) for m, s in pairs)
    return point.bytes - sum(event.bytes for event in events if event is not None)


# ---- the choice ----------------------------------------------------------------------------------


def choose(run: StudyRun) -> Variant | None:
    """Return the point that the policy chooses; None if none meets it.

    With a budget it is the point within it with the fewest bits per byte. Otherwise it is the smallest
    that keeps `retention`, and in every domain what `regression` asks for.
    """
    config, measured = run.settings, points(run)
    if config.budget is None:
        return next((p for p in measured if _keeps(config, p)), None)
    within = [p for p in measured if p.bytes <= config.budget]
    return min(within, key=lambda p: (p.bits or 0.0, p.name), default=None)


def _keeps(config: CompressionConfig, point: Variant) -> bool:
    """Return True if a point keeps the share `retention` of quality, and no domain loses too much."""
    if (point.retention or 0.0) < config.retention:
        return False
    most = config.regression
    return most is None or (point.regression is not None and point.regression <= most)


def unmet(run: StudyRun) -> str:
    """Return a sentence: why no point meets the policy, and which point is nearest to it."""
    config, measured = run.settings, points(run)
    if not measured:
        first = attempted(run)[0]
        return f"no point can be measured. {first.name}: {first.failure}."
    if config.budget is not None:
        least = measured[0]
        return (
            f"no point fits into {config.budget:,} bytes. The nearest is {least.name}: "
            f"{least.bytes:,} bytes at {least.retention:.4f} of the quality."
        )
    if enough := [p for p in measured if (p.retention or 0.0) >= config.retention]:
        even = min(enough, key=lambda p: p.regression or 0.0)
        return (
            f"no point that keeps {config.retention:.4f} of the quality loses at most "
            f"{config.regression:.2%} in every domain. The nearest is {even.name}: "
            f"{even.regression:.2%} in one of them."
        )
    best = max(measured, key=lambda p: p.retention or 0.0)
    return (
        f"no point keeps {config.retention:.4f} of the quality. The nearest is {best.name}: "
        f"{best.retention:.4f} in {best.bytes:,} bytes."
    )


def fallbacks(run: StudyRun) -> dict[str, str]:
    """Return "MATRIX at SETTING" → why the codec refuses it; a student's name stands before."""
    names = {
        recipes.source(subject): recipes.prefix(subject) for subject in recipes.subjects(run.started)
    }
    return {
        f"{names[model]}{matrix} at {name}": run.state.refused[id_].reason
        for (model, matrix, name), (id_, _) in recipes.encodings(run).items()
        if id_ in run.state.refused
    }


# ---- mixtures against single settings ------------------------------------------------------------


@dataclass(frozen=True)
class MixtureRival:
    """A mixture beside a single setting that takes at least as many bytes."""

    single: Variant
    mixture: Variant
    #: Bits per byte of the mixture, minus those of the single setting, on the selection slice, with the
    #: interval of a paired bootstrap over documents; below zero, the mixture is better. Costs of
    #: errors were estimated on the same documents, and points are chosen by them.
    difference: Figure


def rivals(run: StudyRun) -> list[MixtureRival]:
    """Return each single setting with the largest mixture that takes no more bytes, smallest first.

    Plain settings are left out; students have pairs of their own.
    """
    pairs, measured = [], points(run)
    for single in measured:
        smaller = [
            p
            for p in measured
            if p.series == "mixture" and p.subject is single.subject and p.bytes <= single.bytes
        ]
        if smaller and single.series not in ("plain", "mixture"):
            pairs.append((single, smaller[-1]))
    if not pairs:
        return []
    counts = run.started.selection
    drawn, n = draws(counts, "compression-mixtures", run.settings.seed), sum(counts.values())
    events = {p.recipe_id: observed(run, p.recipe_id) for pair in pairs for p in pair}
    scores = {id_: (mean(e), resampled(e, drawn)) for id_, e in events.items() if e is not None}
    return [
        MixtureRival(single, mixture, figure(own_mean - other, rates - other_rates, n))
        for single, mixture in pairs
        for own_mean, rates in [scores[mixture.recipe_id]]
        for other, other_rates in [scores[single.recipe_id]]
    ]


class Points(StudyModels[CompressionState]):
    """The points of a compression: the models that its files decode to."""

    @override
    def result(self, state: CompressionState) -> MadeModel | None:
        if not state.completed:
            return None
        chosen = state.completed.chosen
        return MadeModel(recipe_id=chosen.recipe_id, digest=chosen.digest)

    @override
    def find(self, state: CompressionState, name: str) -> str:
        """Return the recipe id of a point by its name or its id's beginning; "" is the chosen one.

        Raises NotFoundError.
        """
        run = self.kind.begun(state)
        if name in ("", ROLE):
            if not state.completed:
                raise NotFoundError(f"run {state.run} has chosen no model yet.")
            return state.completed.chosen.recipe_id
        recipes_by_name = {point.name: point.recipe for point in (points(run) if run else ())}
        return origins.find(state, recipes_by_name, name)

    @override
    def origin(self, state: CompressionState, rows: Sequence[Envelope], name: str) -> LogModel:
        recipe_id = self.find(state, name)
        point = self.kind.view.names(state)[recipe_id].replace(":", "-")
        return LogModel(
            name=f"{state.started.source.name}-{point}",
            what=f"model {point} of run {state.run}",
            digest=state.made[recipe_id].digest,
            run=state.run,
            recipe_id=recipe_id,
        )

    @override
    def ancestry(self, state: CompressionState, name: str) -> list[AncestorRecipe]:
        """Return AncestorRecipes: a point's, those of its encoded matrices, the given model's."""
        recipe_id = self.find(state, name)
        encodings = dict(recipes.encodings(self.kind.run(state)).values())
        recipe: object = state.made[recipe_id].recipe
        point = self.kind.view.names(state)[recipe_id]
        shown = [AncestorRecipe(recipe_id, point, f"decoded, {point}", recipe.model_dump(mode="json"))]
        for id_ in recipe.inputs_used():
            if id_ in encodings:
                params, form = encodings[id_].params, encodings[id_].model_dump(mode="json")
                words = f"{params['tensor']} by {params['codec']}"
                shown.append(AncestorRecipe(id_, "encoded", words, form))
        every = (subject.source for subject in recipes.subjects(state.started))
        given_model = next(record for record in every if record.recipe_id == recipe.inputs["model"])
        source = Source(digest=given_model.digest)
        words = f"the model {given_model.name}, {given_model.digest[:12]}"
        form = source.model_dump(mode="json")
        return [*shown, AncestorRecipe(source.id, "given", words, form, given_model.digest)]

    @override
    def registered(self, event: Event, state: CompressionState) -> list[dict[str, object]]:
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
        if state.started is None:
            return []
        packed = [m for m in state.made.values() if isinstance(m, Packed) and m.digest == digest]
        ids = {event.recipe_id for event in packed}
        if state.started.source.digest == digest:
            ids.add(recipes.source(state.started))
        answers, seed = state.answers.values(), state.submitted.config.seed
        sizes = (Figure(value=event.bytes) for event in packed[:1])
        return [
            *comparison.measurements(answers, ids, self.kind.purpose, seed),
            *(Measurement(name="bytes of the file", figure=size) for size in sizes),
        ]

    @override
    def recipe_id(self, state: CompressionState, digest: str) -> str | None:
        packed = (m for m in state.made.values() if isinstance(m, Packed))
        return next((event.recipe_id for event in packed if event.digest == digest), None)
