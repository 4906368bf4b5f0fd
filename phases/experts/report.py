"""Report of an experts run: arms with intervals, what experts add to models, dispatch. Pure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from phases.experts import beside, findings, plan, solving, stages
from phases.experts.events import ExpertsState
from phases.experts.search.generations import MIXTURES, MODELS, RANDOM
from runs.event_types import Figure
from studies import comparison

#: Arm → what it is, in words.
ARMS = {
    plan.GIVEN: "the model that was given",
    MIXTURES: "the best mixture that NSGA-II found",
    RANDOM: "the best of as many random mixtures",
    MODELS: "the best mixture of models alone that NSGA-II found",
    plan.MEAN: "the mean of the further models",
}


def words(arm: str) -> str:
    """Return what an arm is, in words."""
    if arm.startswith(plan.LORA):
        return f"the given model with adapters (LoRA) for {arm.removeprefix(plan.LORA)}"
    return ARMS.get(arm) or f"the given model with the expert of {arm.removeprefix(plan.ONLY)}"


class Report(BaseModel):
    """Measurements of an experts run, as experts.json has them."""

    model_config = ConfigDict(extra="forbid")

    model: str
    merges: list[str]
    seed: int
    parameters: int
    #: Numbers of an expert.
    numbers: int
    #: Numbers of the adapters beside it; none: there are no adapters.
    lora_numbers: int | None
    #: Tokens of the training of each.
    tokens: int
    #: The domains of the experts, the worst predicted first; those that are of use.
    experts: list[str]
    kept: list[str]
    #: The part that each factor of a mixture is of, and the factors of the result; none: it has none.
    parts: list[str]
    factors: list[float] | None
    #: Arm → domain → bits per byte on the test slice.
    bits_per_byte: dict[str, dict[str, float]]
    #: Arm → relative gain over the given model, the mean over the domains of experts.
    gains: dict[str, Figure]
    #: Arm → family → share of the tasks of the test slice that are solved; empty without families.
    solved: dict[str, dict[str, Figure]]
    #: The arm that is the result.
    chosen: str
    figures: dict[str, Figure]
    #: Of all tasks of the run.
    seconds: float


def report(state: ExpertsState) -> Report:
    """Return the report of a run that has completed."""
    started, done, config = state.started, state.completed, state.submitted.config
    own = tuple(stages.experts(state))
    kept = stages.kept(state) or ()
    return Report(
        model=started.model.name,
        merges=[source.name for source in started.merges],
        seed=config.seed,
        parameters=started.model.parameters,
        numbers=started.numbers,
        lora_numbers=started.adapters.numbers if started.adapters else None,
        tokens=config.reads(started.context),
        experts=list(own),
        kept=list(kept),
        parts=[*(source.name for source in started.merges), *kept],
        factors=_factors(state),
        bits_per_byte={name: arm.bits_per_byte for name, arm in done.arms.items()},
        gains=findings.gains(state),
        solved=solving.shares(findings.solved(state)),
        chosen=done.chosen,
        figures=done.figures,
        seconds=state.spent.device,
    )


def _factors(state: ExpertsState) -> list[float] | None:
    """Return the factors of the result if it is a mixture that was searched."""
    name = findings.chosen(state)
    arm = stages.arm_of(name) if name else ""
    if not arm:
        return None
    search = stages.searches(state)[arm]
    recipe = stages.candidates(state)[name or ""]
    for id_ in search.ended[-1].survivors:
        factors = search.factors(id_)
        if plan.mixture(state, search.space.experts, factors).id == recipe.id:
            return list(factors)
    return None


def _span(one: Figure) -> str:
    """Return a relative figure in percent with its interval."""
    if one.low is None or one.high is None:
        return f"{one.value:+.2%}"
    return f"{one.value:+.2%} [{one.low:+.2%}, {one.high:+.2%}]"


def _share(one: Figure) -> str:
    """Return a share, or a difference of shares, in percent with its interval."""
    return f"{one.value:.1%} [{one.low:.1%}, {one.high:.1%}]"


def lines(report: Report) -> list[str]:
    """Return the report as lines of text for users."""
    out = comparison.table(report.bits_per_byte)
    for arm, one in report.gains.items():
        out.append(f"{arm}, {words(arm)}: gain {_span(one)}")
    figures = report.figures
    for name in ("over_random", "over_models", "drift", *beside.FIGURES, "dispatch", "few_shot"):
        if name in figures:
            out.append(f"{name.replace('_', ' ')}: {_span(figures[name])}")
    for name, one in figures.items():
        if name in solving.FIGURES:
            out.append(f"{name.replace('_', ' ')}: {_share(one)}")
    mixed = _mixed(report)
    out.append(f"result: {report.chosen}, {words(report.chosen)}{f' ({mixed})' if mixed else ''}")
    return out


def _mixed(report: Report) -> str:
    """Return the parts of the result with their factors; empty without any."""
    pairs = zip(report.parts, report.factors or (), strict=False)
    return ", ".join(f"{factor:+.2f} {name}" for name, factor in pairs if factor)


def sentences(report: Report) -> list[str]:
    """Return what a completed run has found, as a list."""
    figures = report.figures
    out = []
    if report.chosen == plan.GIVEN:
        out.append(
            "- No mixture is better than the given model beyond chance within the limit of drift: the "
            "model is passed through unchanged."
        )
    else:
        out.append(
            f"- The result is {words(report.chosen)}. It gains {_span(figures['gain'])} in bits per "
            "byte over the given model, the mean over the domains of experts."
        )
    if "drift" in figures:
        out.append(f"- On neutral text it loses {_span(figures['drift'])}.")
    if "over_random" in figures:
        out.append(
            "- The best mixture of the search gains "
            f"{_span(figures['over_random'])} over the best of as many random ones."
        )
    if "over_models" in figures:
        out.append(
            f"- It gains {_span(figures['over_models'])} over the best mixture of models alone: that "
            "is what experts add."
        )
    if "lora_own" in figures:
        out.append(
            f"- In its own domain an expert gains {_span(figures['own'])}, and the other domains lose "
            f"{_span(figures['damage'])}; by adapters (LoRA) of {report.lora_numbers:,} numbers it is "
            f"{_span(figures['lora_own'])} and {_span(figures['lora_damage'])}."
        )
    if "solved_own" in figures:
        out.append(
            f"- Of its own family of tasks an expert solves {_share(figures['solved_own'])} more than "
            f"the given model, which solves {_share(figures['solved_given'])} of all families."
        )
    if "dispatch" in figures:
        out.append(
            f"- With an expert for each window, chosen by its beginning, the rest gains "
            f"{_span(figures['dispatch'])}; {figures['dispatched'].value:.0%} of the choices are right."
        )
    return out


def card(report: Report) -> str:
    """Return the result's card."""
    mixed = _mixed(report)
    return "\n".join(
        [
            *("---", "library_name: transformers", "---", ""),
            f"# Mixture of experts' vectors into {report.model}, seed {report.seed}",
            "",
            f"{words(report.chosen).capitalize()}{f': {mixed}' if mixed else ''}. An expert is "
            f"{report.numbers:,} numbers that scale singular values, trained on {report.tokens:,} "
            "tokens.",
            "",
            *sentences(report),
            "",
        ]
    )
