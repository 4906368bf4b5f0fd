"""Panels of an experts run beside those of every study: gains, tasks, front, hypervolume. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from phases.experts import figures, solving
from phases.experts.recipes import GIVEN
from phases.experts.search.generations import MIXTURES, Search
from phases.experts.search.objectives import mean, ratios, whole
from runs.event_types import Figure
from runs.panels.panels import Axis, Front, Lines, Matrix, Metric, Panel, Point, Series
from studies.run import Run


def panels(run: Run) -> list[Panel]:
    """Return the panels of what is there."""
    shown: list[Panel] = []
    if run.result in run.seen and GIVEN in run.seen:
        shown.append(_gains(figures.by_domain(run), run.result))
    if shares := solving.shares(figures.solved(run)):
        shown.append(_solved(shares, run.result))
    searches = {
        name: search for name, search in run.known.get("searches", {}).items() if search.ended
    }
    if searches:
        front = _front(run, searches)
        shown += [front] if front.points else []
        shown.append(_volumes(searches))
    return shown


def _gains(gains: Mapping[str, Mapping[str, Figure]], result_name: str | None) -> Matrix:
    """Return the relative gain of every arm in every domain: its use, and its damage to the others."""
    return _matrix(
        "experts",
        "Gain by domain",
        "Bits per byte saved on the test slice, as a share of the given model's, with intervals; below "
        "zero is damage.",
        "gain",
        gains,
        result_name,
        0.0,
    )


def _solved(shares: Mapping[str, Mapping[str, Figure]], result_name: str | None) -> Matrix:
    """Return the share of every family's tasks that each arm solves."""
    says = (
        "Share of the tasks of the test slice whose answer greedy decoding gives, with intervals."
    )
    return _matrix("solved", "Tasks solved", says, "solved", shares, result_name)


def _matrix(
    name: str,
    title: str,
    says: str,
    metric: str,
    figures: Mapping[str, Mapping[str, Figure]],
    result_name: str | None,
    diverging_at: float | None = None,
) -> Matrix:
    """Return the panel of `figures`, arm → domain or family → figure."""
    domains = sorted(next(iter(figures.values()), {}))
    rows = [[figures[arm][domain] for arm in figures] for domain in domains]
    return Matrix(
        name=name,
        title=title,
        says=says,
        rows=tuple(domains),
        columns=tuple(figures),
        metrics=(Metric(name=metric, unit="share", better="up"),),
        values=tuple(tuple(figure.value for figure in row) for row in rows),
        low=tuple(tuple(figure.low for figure in row) for row in rows),
        high=tuple(tuple(figure.high for figure in row) for row in rows),
        ours=result_name if result_name in figures else None,
        diverging_at=diverging_at,
    )


def _front(run: Run, searches: Mapping[str, Search]) -> Front:
    """Return the newest survivors of every arm, by the domains' mean and by neutral text."""
    points = []
    for arm, search in searches.items():
        last = search.ended[-1]
        for place, id_ in enumerate(last.survivors):
            items = search.items(id_)
            if whole(items, search.given):
                shares = ratios(items, search.given)
                points.append(
                    Point(
                        id=f"{arm}/{id_}",
                        label=_label(search.space.names, search.factors(id_)),
                        series=arm,
                        values=(mean(run.settings, shares), shares.get(run.settings.neutral, 1.0)),
                        kept=place < last.front,
                    )
                )
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


def _volumes(searches: Mapping[str, Search]) -> Lines:
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
                x=tuple(event.evaluations for event in search.ended),
                y=tuple(event.hypervolume for event in search.ended),
            )
            for arm, search in searches.items()
        ),
    )
