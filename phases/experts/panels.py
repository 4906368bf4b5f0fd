"""Head and panels of an experts run: arms, front, hypervolume, experts by domain. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from phases.experts import findings, plan, solving, stages
from phases.experts.events import ExpertsState
from phases.experts.report import words
from phases.experts.search.generations import MIXTURES
from phases.experts.search.objectives import mean, ratios, whole
from runs.event_types import Figure
from runs.panels.head import Fact, Result
from runs.panels.panels import Arms, Axis, Front, Lines, Matrix, Metric, Panel, Point, Series
from studies import arm_panels as panels_of
from studies import comparison, paired_bits, training_panels
from studies.training_panels import BITS, Curves

#: A relative gain.
GAIN = Metric(name="gain", better="up")


def result(state: ExpertsState) -> Result | None:
    """Return the result's bits per byte beside the given model's; None until both are known."""
    seen = findings.found(state) if state.started else {}
    arm = findings.result_arm(state) if state.started else None
    if arm is None or arm not in seen or plan.GIVEN not in seen:
        return None
    lead = findings.leads(state).get(plan.GIVEN)
    return Result(
        name=arm,
        model=seen[arm].recipe_id,
        metric=BITS,
        value=paired_bits.mean(seen[arm]),
        over=words(plan.GIVEN) if lead else None,
        lead=panels_of.lead(lead) if lead else None,
        on=comparison.TEST,
        n=panels_of.items(seen[arm]),
    )


def facts(state: ExpertsState) -> tuple[Fact, ...]:
    """Return what is searched: experts, their numbers, further models, mixtures so far."""
    if state.started is None:
        return ()
    measured = max((s[-1].evaluations for s in state.generations.values()), default=0)
    found = [
        *training_panels.speed(state, stages.experts(state).values()),
        Fact(name="experts", value=len(stages.experts(state))),
        Fact(name="numbers of an expert", value=state.started.numbers),
        *_adapters(state),
        Fact(name="further models", value=len(state.started.merges)),
        Fact(name="mixtures of an arm", value=measured),
    ]
    if state.completed and "gain" in state.completed.figures:
        found.append(Fact(name="gain", value=state.completed.figures["gain"].value))
    return tuple(found)


def _adapters(state: ExpertsState) -> tuple[Fact, ...]:
    """Return the numbers of the adapters beside each expert; none without them."""
    own = state.started.adapters
    return (Fact(name="numbers of adapters", value=own.numbers),) if own else ()


def panels(state: ExpertsState, curves: Curves) -> list[Panel]:
    """Return the panels of what is there: arms, front, hypervolume, matrix, curves, models."""
    if state.started is None:
        return []
    found: list[Panel] = []
    seen, arm = findings.found(state), findings.result_arm(state)
    if arm in seen and plan.GIVEN in seen:
        found += [_arms(state, arm), _matrix(state, arm)]
    if solved := solving.shares(findings.solved(state)):
        found.append(_solved(solved, arm))
    if front := _front(state):
        found.append(front)
    if any(state.generations.values()):
        found.append(_volumes(state))
    beside = [f"{plan.LORA}{domain}" for domain in stages.loras(state)]
    found += training_panels.curves(curves, beside, state, stages.recipes(state))
    return [*found, training_panels.models(state, stages.recipes(state))]


def _arms(state: ExpertsState, ours: str) -> Arms:
    """Return all models that are compared, with the leads of the result."""
    seen = findings.found(state)
    told = {arm: words(arm) for arm in seen}
    groups = {arm: _group(arm) for arm in seen}
    title, leads = "Mixtures beside the given model", findings.leads(state)
    made = panels_of.arms(title, told, seen, leads, groups, ours, plan.GIVEN)
    said = "; ".join(f"{arm}: {one}" for arm, one in told.items())
    return made.model_copy(update={"says": f"{said}. On the test slice."})


def _group(arm: str) -> str:
    """Return the group of an arm."""
    if arm.startswith(plan.LORA):
        return "adapters"
    return "given" if arm == plan.GIVEN else "mixture"


def _matrix(state: ExpertsState, ours: str) -> Matrix:
    """Return the relative gain of every arm in every domain: its use, and its damage to the others."""
    found = findings.by_domain(state)
    domains = sorted(next(iter(found.values()), {}))
    rows = [[found[arm][domain] for arm in found] for domain in domains]
    return Matrix(
        name="experts",
        title="Gain by domain",
        says="Relative gain in bits per byte over the given model on the test slice, with intervals; "
        "below zero is damage.",
        rows=tuple(domains),
        columns=tuple(found),
        metrics=(GAIN,),
        values=tuple(tuple(one.value for one in row) for row in rows),
        low=tuple(tuple(one.low for one in row) for row in rows),
        high=tuple(tuple(one.high for one in row) for row in rows),
        ours=ours if ours in found else None,
        diverging_at=0.0,
    )


def _solved(found: Mapping[str, Mapping[str, Figure]], ours: str | None) -> Matrix:
    """Return the share of every family's tasks that each arm solves."""
    families = sorted(next(iter(found.values())))
    rows = [[found[arm][family] for arm in found] for family in families]
    return Matrix(
        name="solved",
        title="Tasks solved",
        says="Share of the tasks of the test slice whose answer greedy decoding gives, with intervals.",
        rows=tuple(families),
        columns=tuple(found),
        metrics=(Metric(name="solved", better="up"),),
        values=tuple(tuple(one.value for one in row) for row in rows),
        low=tuple(tuple(one.low for one in row) for row in rows),
        high=tuple(tuple(one.high for one in row) for row in rows),
        ours=ours if ours in found else None,
    )


def _front(state: ExpertsState) -> Front | None:
    """Return the newest survivors of every arm, by the domains' mean and by neutral text."""
    neutral, points = state.submitted.config.neutral, []
    for arm, search in stages.searches(state).items():
        if not search.ended:
            continue
        last = search.ended[-1]
        for place, id_ in enumerate(last.survivors):
            items = search.items(id_)
            if whole(items, search.given):
                own = ratios(items, search.given)
                values = (mean(state.submitted.config, own), own.get(neutral, 1.0))
                label = _label(search.space.names, search.factors(id_))
                points.append(
                    Point(
                        id=f"{arm}/{id_}",
                        label=label,
                        series=arm,
                        values=values,
                        kept=place < last.front,
                    )
                )
    if not points:
        return None
    return Front(
        name="front",
        title="Survivors of the search",
        says="Bits per byte over the given model's on the windows of the search: the mean over the "
        "domains of experts, and neutral text. What is kept is beaten by no other in all objectives.",
        axes=(
            Axis(name="domains", better="down"),
            Axis(name="neutral text", better="down"),
        ),
        points=tuple(points),
    )


def _label(names: tuple[str, ...], factors: tuple[float, ...]) -> str:
    """Return the parts of a mixture with their factors."""
    return ", ".join(f"{f:+.2f} {name}" for name, f in zip(names, factors, strict=True) if f)


def _volumes(state: ExpertsState) -> Lines:
    """Return the hypervolume of every arm by the mixtures that were measured."""
    return Lines(
        name="hypervolume",
        title="Hypervolume",
        says="The volume that the front of each arm dominates, after as many mixtures.",
        x=Axis(name="mixtures", whole=True),
        y=Axis(name="hypervolume", better="up"),
        series=tuple(
            Series(
                name=arm,
                role="ours" if arm == MIXTURES else "alternative",
                x=tuple(event.evaluations for event in events),
                y=tuple(event.hypervolume for event in events),
            )
            for arm, events in sorted(state.generations.items())
        ),
    )
