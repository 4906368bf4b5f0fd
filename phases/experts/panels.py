"""Panels and prose of an experts run: gains, tasks, front, hypervolume, report. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from agent_forge.phases.experts import figures
from agent_forge.phases.experts.recipes import GIVEN, LORA, MEAN, ONLY
from agent_forge.phases.experts.search.generations import (
    MIXTURES,
    MODELS,
    RANDOM,
    Search,
    mean,
    ratios,
    whole,
)
from agent_forge.runs.event_types import Figure
from agent_forge.runs.kinds.wording import figure_text
from agent_forge.runs.panels.head import measured
from agent_forge.runs.panels.panels import Axis, Front, Lines, Matrix, Metric, Panel, Point, Series
from agent_forge.studies import comparison
from agent_forge.studies.run import ArmLabel, StudyRun


def panels(run: StudyRun) -> list[Panel]:
    """Return the panels that the events so far allow: gains, tasks, front, hypervolume."""
    shown: list[Panel] = []
    if run.result in run.seen and GIVEN in run.seen:
        shown.append(_gains(figures.by_domain(run), run.result))
    if shares := figures.solved_shares(figures.solved(run)):
        shown.append(_solved(shares, run.result))
    searches = {name: search for name, search in run.known.get("searches", {}).items() if search.ended}
    if searches:
        front = _front(run, searches)
        shown += [front] if front.points else []
        shown.append(_volumes(searches))
    return shown


def _gains(gains: Mapping[str, Mapping[str, Figure]], result_name: str | None) -> Matrix:
    """Return the table panel of each arm's relative gain in each domain."""
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
    """Return the table panel of the share of each family's tasks that each arm solves."""
    says = "Share of the tasks of the test slice whose answer greedy decoding gives, with intervals."
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
    """Return a table panel of `figures`, arm → domain or family → figure."""
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


def _front(run: StudyRun, searches: Mapping[str, Search]) -> Front:
    """Return the panel that plots each arm's survivors: domains' mean against neutral text."""
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
        axes=(Axis(name="domains", better="down"), Axis(name="neutral text", better="down")),
        points=tuple(points),
    )


def _label(names: tuple[str, ...], factors: tuple[float, ...]) -> str:
    """Return a mixture as text: each part with its factor, zeros left out."""
    return ", ".join(f"{f:+.2f} {name}" for name, f in zip(names, factors, strict=True) if f)


def _volumes(searches: Mapping[str, Search]) -> Lines:
    """Return the panel of curves: each arm's hypervolume by the number of mixtures measured."""
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


#: Arms that any run may have; each expert has two of its own.
ARMS = {
    GIVEN: ArmLabel("the model that was given", "given"),
    MIXTURES: ArmLabel("the best mixture that NSGA-II found", "mixture"),
    RANDOM: ArmLabel("the best of as many random mixtures", "mixture"),
    MODELS: ArmLabel("the best mixture of models alone that NSGA-II found", "mixture"),
    MEAN: ArmLabel("the mean of the further models", "mixture"),
}


def arms(run: StudyRun) -> dict[str, ArmLabel]:
    """Return arm → its description, of the arms that the run compares."""
    domain_arms = {
        f"{start}{domain}": arm
        for domain in run.known.get("experts", {})
        for start, arm in (
            (ONLY, ArmLabel(f"the given model with the expert of {domain}", "mixture")),
            (LORA, ArmLabel(f"the given model with adapters (LoRA) for {domain}", "adapters")),
        )
    }
    every = {**ARMS, **domain_arms}
    return {name: every[name] for name in run.arms}


def fields(run: StudyRun) -> dict[str, object]:
    """Return the fields of the report that only this phase has."""
    started, experts = run.started, run.known["kept"]
    return {
        "merges": [source.name for source in started.merges],
        "parameters": started.model.parameters,
        #: Parameters of an expert, and of the adapters beside it; None: there are no adapters.
        "numbers": started.numbers,
        "lora_numbers": started.adapters.numbers if started.adapters else None,
        #: Tokens of each training.
        "tokens": run.settings.reads(started.context),
        #: The domains of the experts, the worst predicted first; the domains of useful experts.
        "experts": [*run.known["experts"]],
        "kept": [*experts],
        #: The part of each factor of a mixture; the result's factors, None if it is no mixture.
        "parts": [*(source.name for source in started.merges), *experts],
        "factors": _factors(run),
        #: Arm → relative gain over the given model, the mean over the domains of experts.
        "gains": {arm: figure.model_dump() for arm, figure in figures.gains(run).items()},
        #: Arm → family → share of the tasks of the test slice that are solved; empty without families.
        "solved": {
            arm: {family: figure.model_dump() for family, figure in shares.items()}
            for arm, shares in figures.solved_shares(figures.solved(run)).items()
        },
        #: The arm that is the result.
        "chosen": run.result,
    }


def _factors(run: StudyRun) -> list[float] | None:
    """Return the factors of the result; None if the result is no mixture of the search."""
    factors = run.known["finalists"].get(run.result_name)
    return None if factors is None else list(factors)


def _share(figure: Figure) -> str:
    """Return a share as text, with its interval."""
    return measured(figure.value, "share", figure.low, figure.high)


def lines(run: StudyRun) -> list[str]:
    """Return the report of a completed run as lines of text for a terminal."""
    done, arms_by_name = run.state.completed, arms(run)
    out = comparison.table({name: arm.bits_per_byte for name, arm in done.arms.items()})
    for name, figure in figures.gains(run).items():
        out.append(f"{name}, {arms_by_name[name].words}: gain {_share(figure)}")
    figure_names = ("over_random", "over_models", "drift", *figures.FIGURES, "dispatch", "few_shot")
    for name in (*figure_names, *figures.SOLVED_FIGURES):
        if name in done.figures:
            out.append(figure_text(run.study, name, done.figures[name]))
    return [*out, f"result: {done.chosen}, {result(run)}"]


def result(run: StudyRun) -> str:
    """Return words for the result; a mixture's parts and factors follow in parentheses."""
    names = [*(source.name for source in run.started.merges), *run.known["kept"]]
    pairs = zip(names, _factors(run) or (), strict=False)
    mixed = ", ".join(f"{factor:+.2f} {name}" for name, factor in pairs if factor)
    words = arms(run)[str(run.result)].words
    return f"{words} ({mixed})" if mixed else words


def sentences(run: StudyRun) -> list[str]:
    """Return the findings of a completed run as Markdown list items."""
    figures = run.state.completed.figures
    out = []
    if run.result == GIVEN:
        out.append(
            "- No mixture is better than the given model beyond chance within the limit of drift: the "
            "model is passed through unchanged."
        )
    else:
        out.append(
            f"- The result is {arms(run)[str(run.result)].words}. It gains {_share(figures['gain'])} "
            "in bits per byte over the given model, the mean over the domains of experts."
        )
    if "drift" in figures:
        out.append(f"- On neutral text it loses {_share(figures['drift'])}.")
    if "over_random" in figures:
        out.append(
            "- The best mixture of the search gains "
            f"{_share(figures['over_random'])} over the best of as many random ones."
        )
    if "over_models" in figures:
        out.append(
            f"- It gains {_share(figures['over_models'])} over the best mixture of models alone: that "
            "is what experts add."
        )
    if "lora_own" in figures:
        out.append(
            f"- In its own domain an expert gains {_share(figures['own'])}, and the other domains lose "
            f"{_share(figures['damage'])}; by adapters (LoRA) of "
            f"{run.started.adapters.numbers:,} numbers it is "
            f"{_share(figures['lora_own'])} and {_share(figures['lora_damage'])}."
        )
    if "solved_own" in figures:
        out.append(
            f"- Of its own family of tasks an expert solves {_share(figures['solved_own'])} more than "
            f"the given model, which solves {_share(figures['solved_given'])} of all families."
        )
    if "dispatch" in figures:
        out.append(
            f"- With an expert for each window, chosen by its beginning, the rest gains "
            f"{_share(figures['dispatch'])}; {figures['dispatched'].value:.0%} of choices are right."
        )
    return out


def paragraphs(run: StudyRun, role: str) -> list[str]:
    """Return a list of one line for the model card: the result, and how an expert was trained."""
    words, tokens = result(run), run.settings.reads(run.started.context)
    return [
        f"{words[0].upper()}{words[1:]}. An expert is {run.started.numbers:,} numbers that scale "
        f"singular values, trained on {tokens:,} tokens."
    ]
