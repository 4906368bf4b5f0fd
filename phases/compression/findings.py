"""Findings of a compression: points, sensitivities, mixtures, the choice and its figures. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from evaluation.data.slices import Slice
from phases.compression import mixtures, plan
from phases.compression.config import CompressionConfig
from phases.compression.events import Chosen, CompressionState, Encoded, Packed
from phases.compression.mixtures import Mixture, Option
from phases.compression.plan import Assignment, Subject
from runs.event_types import Figure
from studies.observing import Observe, Observed, Unmeasurable
from studies.paired_bits import draws, figure, mean, resampled
from weights.recipes import Transform

MEASURE = "rolling-bits-per-byte@1"
#: What points are chosen by, and what the chosen one is measured on.
SELECTION: Slice = "selection"
TEST: Slice = "test"
#: The relative squared error that a matrix is tried at alone, as nearly as the settings allow.
PROBED = 0.1
#: Shares of the rise of bits per byte that the policy allows, at which mixtures are tried.
SHARES = (0.6, 0.8, 1.0)
#: A matrix is taken for no less sensitive than this share of the median.
LEAST = 0.1

#: Figure → what it is, in words.
FIGURES = {
    "retention": "bits per byte of the given model over those of the compressed one, on the test slice",
    "bits_per_byte": "bits per byte of the compressed model on the test slice, the mean over domains",
    "bytes": "bytes of the file, without tokenizer",
    "size": "bytes of the file over those of the given model's tensors",
    "ratio": "bytes of all parameters of the given model in float32 over those of the file",
    "bits_per_weight": "bits of the file for a parameter of the model that is in it",
}


@dataclass(frozen=True)
class Point:
    """A compressed model: a setting for every matrix."""

    name: str
    #: The model that is compressed: the given one, or a student.
    subject: Subject
    #: Its codec, or "mixture".
    series: str
    assignment: Assignment
    recipe: Transform
    packed: Packed | None
    #: Bits per byte on the selection slice; None: not measured yet.
    bits: float | None
    #: Bits per byte of the given model there, over its own.
    retention: float | None
    #: The largest rise of its bits per byte over the given model's in any domain there, as a share.
    regression: float | None
    #: Why it cannot be measured, which no policy chooses; None otherwise.
    failure: str | None = None


def observe(recipe_id: str, on: Slice) -> Observe:
    """Return the task that measures a model on a slice."""
    return Observe(recipe_id, MEASURE, on)


def observed(state: CompressionState, recipe_id: str, on: Slice) -> Observed | None:
    """Return what was observed of a model on a slice."""
    found = state.answers.get(observe(recipe_id, on).key)
    return found if isinstance(found, Observed) else None


def unmeasurable(state: CompressionState, recipe_id: str) -> str | None:
    """Return why a model cannot be measured, and on which slice; None if nothing says so."""
    for on in (SELECTION, TEST):
        found = state.answers.get(observe(recipe_id, on).key)
        if isinstance(found, Unmeasurable):
            return f"{found.reason} of the slice {on}"
    return None


def hopeless(state: CompressionState) -> str | None:
    """Return why the run cannot go on: the given model or a student cannot be measured."""
    for subject in plan.subjects(state.started):
        if (why := unmeasurable(state, plan.source(subject))) is not None:
            return f"the model {plan.name(subject)} cannot be measured: {why}."
    return None


def given(state: CompressionState) -> float | None:
    """Return the bits per byte of the given model on the selection slice."""
    return own(state, state.started)


def own(state: CompressionState, subject: Subject) -> float | None:
    """Return the bits per byte of a model as it was given on the selection slice."""
    found = observed(state, plan.source(subject), SELECTION)
    return None if found is None else mean(found)


def _regression(state: CompressionState, found: Observed) -> float | None:
    """Return the largest rise of bits per byte in any domain; None: no given model is measured."""
    before = observed(state, plan.source(state.started), SELECTION)
    if before is None:
        return None
    return max(bits / before.values[domain] - 1 for domain, bits in found.values.items())


def _point(
    state: CompressionState, subject: Subject, name: str, series: str, wanted: Sequence[str]
) -> Point:
    recipe = plan.point(state, subject, wanted)
    packed, id_ = state.made.get(recipe.id), recipe.id
    found, before = observed(state, id_, SELECTION), given(state)
    bits = None if found is None else mean(found)
    retention = None if bits is None or before is None else before / bits
    return Point(
        plan.prefix(subject) + name,
        subject,
        series,
        plan.taken(state, subject, wanted),
        recipe,
        packed if isinstance(packed, Packed) else None,
        bits,
        retention,
        None if found is None else _regression(state, found),
        unmeasurable(state, id_),
    )


def singles(state: CompressionState) -> list[Point]:
    """Return the points with one setting for all matrices, of each model in the menu's order."""
    return [point for subject in plan.subjects(state.started) for point in _singles(state, subject)]


def _singles(state: CompressionState, subject: Subject) -> list[Point]:
    count = len(subject.matrices)
    return [
        _point(state, subject, one.name, one.codec.partition("@")[0], (one.name,) * count)
        for one in state.started.settings
    ]


def encoded(state: CompressionState, subject: Subject, matrix: str, setting: str) -> Encoded | None:
    """Return what is known of a matrix at a setting; None if the codec does not take it."""
    found = state.made.get(plan.encodings(state)[plan.source(subject), matrix, setting][0])
    return found if isinstance(found, Encoded) else None


def _at_settings(state: CompressionState, subject: Subject, matrix: str) -> dict[str, Encoded]:
    """Return setting → what is known of a matrix, of the settings whose codec takes it."""
    found = {name: encoded(state, subject, matrix, name) for name in plan.settings(state)}
    return {name: event for name, event in found.items() if event is not None}


def squared_error(event: Encoded) -> float:
    """Return the relative squared error that harms follow from: of the layer's outputs if known."""
    return event.error if event.output_error is None else event.output_error


def probed(state: CompressionState, subject: Subject) -> dict[str, str]:
    """Return matrix → the setting that it is tried at alone: that whose error is nearest to PROBED."""
    found = {}
    for matrix in subject.matrices:
        events = _at_settings(state, subject, matrix.name)
        errors = {name: squared_error(event) for name, event in events.items()}
        found[matrix.name] = min(sorted(errors), key=lambda name: _distance(errors[name]))
    return found


def _distance(error: float) -> float:
    """Return how far an error is from PROBED, in logarithms."""
    return abs(math.log(max(error, 1e-12) / PROBED))


def probes(state: CompressionState, subject: Subject) -> dict[str, tuple[str, Observe]]:
    """Return matrix → (setting, the task that measures the model with it alone at the setting)."""
    return {
        matrix: (setting, observe(plan.probe(state, subject, matrix, setting).id, SELECTION))
        for matrix, setting in probed(state, subject).items()
    }


def rises(state: CompressionState, subject: Subject) -> dict[str, float]:
    """Return matrix → bits per byte that the model needed more with it alone at its probe.

    A matrix is missing if the model could not be measured so.
    """
    before, found = own(state, subject), {}
    assert before is not None
    for matrix, (_, task) in probes(state, subject).items():
        event = state.answers[task.key]
        if isinstance(event, Observed):
            found[matrix] = mean(event) - before
    return found


def ladder(state: CompressionState, subject: Subject) -> list[Mixture]:
    """Return the mixtures of a model from the fewest bytes up."""
    told, tried = rises(state, subject), probed(state, subject)
    costs = [
        told[m] / squared_error(e)
        for m, setting in tried.items()
        if m in told
        and (e := encoded(state, subject, m, setting)) is not None
        and squared_error(e) > 0
    ]
    usual, options = median([c for c in costs if c > 0] or [0.0]), []
    for matrix in subject.matrices:
        events = _at_settings(state, subject, matrix.name)
        if matrix.name not in told:  # errors there cost what is not known: it has none
            plain = next(name for name in (plan.PLAIN, plan.WHOLE) if name in events)
            options.append([Option(plain, events[plain].bytes, 0.0)])
            continue
        errors = {name: squared_error(event) for name, event in events.items()}
        probe = tried[matrix.name]
        least = LEAST * usual * errors[probe]
        harms = mixtures.harms(errors, probe, told[matrix.name], least)
        options.append([Option(n, events[n].bytes, harm) for n, harm in harms.items()])
    return mixtures.ladder(options)


def mixed(state: CompressionState) -> list[Point]:
    """Return the mixtures that are tried: as large as single settings, and what the policy asks for."""
    config = state.submitted.config
    if not config.mixtures or len(config.settings) < 2:
        return []
    return [point for subject in plan.subjects(state.started) for point in _mixed(state, subject)]


def _mixed(state: CompressionState, subject: Subject) -> list[Point]:
    config, steps = state.submitted.config, ladder(state, subject)
    alone = [p for p in _singles(state, subject) if p.series != "plain"]
    rest = max([0, *(_rest(state, p) for p in alone)])
    sizes: list[int] = sorted({p.packed.bytes for p in alone if p.packed})
    some = [sizes[i * len(sizes) // config.mixtures] for i in range(config.mixtures)]
    if config.budget is not None:
        some.append(config.budget)
    found = [mixtures.within(steps, most - rest) for most in some]
    if config.budget is None:
        found += [mixtures.below(steps, harm) for harm in _allowed(state, subject)]
    wanted = dict.fromkeys(mixture.settings for mixture in found if mixture is not None)
    unlike = [assignment for assignment in wanted if len(set(assignment)) > 1]
    return [_point(state, subject, f"mixture-{i}", "mixture", a) for i, a in enumerate(unlike, 1)]


def _allowed(state: CompressionState, subject: Subject) -> list[float]:
    """Return rises of bits per byte up to the one that `retention` allows: the estimate may be off.

    None are allowed of a student that needs too many bits already.
    """
    before, start = given(state), own(state, subject)
    assert before is not None
    assert start is not None
    most = before * (1 / state.submitted.config.retention - 1) - (start - before)
    return [share * most for share in SHARES] if most >= 0 else []


def _rest(state: CompressionState, point: Point) -> int:
    """Return the bytes of a point's file beyond its matrices."""
    assert point.packed is not None
    pairs = zip(point.subject.matrices, point.assignment, strict=True)
    events = (encoded(state, point.subject, m.name, s) for m, s in pairs)
    return point.packed.bytes - sum(event.bytes for event in events if event is not None)


def points(state: CompressionState) -> list[Point]:
    """Return all points that are packed and measured, those with the fewest bytes first."""
    return [p for p in attempted(state) if p.failure is None]


def attempted(state: CompressionState) -> list[Point]:
    """Return all points that are packed, and measured or known to be unmeasurable, by bytes."""
    every = [*singles(state), *(mixed(state) if probed_all(state) else [])]
    done = [p for p in every if p.packed is not None and (p.failure or p.bits is not None)]
    return sorted(done, key=lambda p: (p.packed.bytes if p.packed else 0, p.name))


def probed_all(state: CompressionState) -> bool:
    """Return True if every matrix was tried alone."""
    encodings = plan.encodings(state).values()
    if any(id_ not in state.made and id_ not in state.refused for id_, _ in encodings):
        return False
    every = plan.subjects(state.started)
    if any(own(state, subject) is None for subject in every):
        return False
    if any(point.packed is None for point in singles(state)):
        return False
    return all(task.key in state.answers for task in probing(state))


def probing(state: CompressionState) -> list[Observe]:
    """Return the tasks that measure models with one matrix alone at a setting."""
    every = plan.subjects(state.started)
    return [task for subject in every for _, task in probes(state, subject).values()]


def front(found: Sequence[Point]) -> list[Point]:
    """Return the points that no other beats in bytes and in bits per byte, the smallest first."""
    kept: list[Point] = []
    for point in found:  # by bytes
        assert point.bits is not None
        if not kept or point.bits < (kept[-1].bits or 0.0):
            kept.append(point)
    return kept


def choose(state: CompressionState) -> Point | None:
    """Return the point that the policy chooses; None if none meets it.

    With a budget the point with the fewest bits per byte within it, otherwise the smallest that keeps
    the share of quality, and in every domain what `regression` asks for.
    """
    config, found = state.submitted.config, points(state)
    if config.budget is None:
        kept = [p for p in found if _keeps(config, p)]
        return kept[0] if kept else None
    within = [p for p in found if p.packed and p.packed.bytes <= config.budget]
    return min(within, key=lambda p: (p.bits or 0.0, p.name), default=None)


def _keeps(config: CompressionConfig, point: Point) -> bool:
    """Return True if a point keeps the share of quality, and in every domain enough of it."""
    if (point.retention or 0.0) < config.retention:
        return False
    most = config.regression
    return most is None or (point.regression is not None and point.regression <= most)


def unmet(state: CompressionState) -> str:
    """Return why no point meets the policy, with the nearest one."""
    config, found = state.submitted.config, points(state)
    if not found:
        first = attempted(state)[0]
        return f"no point can be measured. {first.name}: {first.failure}."
    if config.budget is not None:
        least = found[0]
        assert least.packed is not None
        return (
            f"no point fits into {config.budget:,} bytes. The nearest is {least.name}: "
            f"{least.packed.bytes:,} bytes at {least.retention:.4f} of the quality."
        )
    best = max(found, key=lambda p: p.retention or 0.0)
    assert best.packed is not None
    if kept := [p for p in found if (p.retention or 0.0) >= config.retention]:
        even = min(kept, key=lambda p: p.regression or 0.0)
        return (
            f"no point that keeps {config.retention:.4f} of the quality loses at most "
            f"{config.regression:.2%} in every domain. The nearest is {even.name}: "
            f"{even.regression:.2%} in one of them."
        )
    return (
        f"no point keeps {config.retention:.4f} of the quality. The nearest is {best.name}: "
        f"{best.retention:.4f} in {best.packed.bytes:,} bytes."
    )


def result(state: CompressionState, point: Point) -> Chosen:
    """Return the chosen model."""
    assert point.packed is not None
    return Chosen(
        point=point.name,
        recipe_id=point.recipe.id,
        digest=point.packed.digest,
        bytes=point.packed.bytes,
    )


def figures(state: CompressionState, point: Point) -> dict[str, Figure]:
    """Return the figures of the chosen model, which is measured on the test slice."""
    other = observed(state, plan.source(state.started), TEST)
    ours = observed(state, point.recipe.id, TEST)
    assert other
    assert ours
    assert point.packed
    counts = state.started.test
    drawn = draws(counts, "compression", state.submitted.config.seed)
    n, size = sum(counts.values()), point.packed.bytes
    before, after = resampled(other, drawn), resampled(ours, drawn)
    weights = point.subject.float32_bytes // 4
    return {
        "retention": figure(mean(other) / mean(ours), before / after, n),
        "bits_per_byte": figure(mean(ours), after, n),
        "bytes": Figure(value=size),
        "size": Figure(value=size / state.started.bytes),
        "ratio": Figure(value=state.started.float32_bytes / size),
        "bits_per_weight": Figure(value=8 * size / weights),
    }


def fallbacks(state: CompressionState) -> dict[str, str]:
    """Return "MATRIX at SETTING" → why the codec does not take it; a student's name stands before."""
    names = {plan.source(subject): plan.prefix(subject) for subject in plan.subjects(state.started)}
    return {
        f"{names[model]}{matrix} at {name}": state.refused[id_].reason
        for (model, matrix, name), (id_, _) in plan.encodings(state).items()
        if id_ in state.refused
    }
