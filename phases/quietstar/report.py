"""Report of a quietstar run: arms with intervals, the gate, what thoughts cost. Pure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from phases.quietstar import findings, plan
from phases.quietstar.events import QuietstarState, ThoughtArm
from runs.event_types import Figure
from studies.comparison import TEST, lead_line
from studies.observing import Observed

#: Arm → what it is, in words.
ARMS = {
    plan.START: "the model that was given",
    plan.BASE: "the trained base that all arms branch from",
    plan.CONTINUED: "ordinary training",
    plan.PAUSE: "pauses: the same computation without thoughts",
    plan.THOUGHTS: "thoughts",
    plan.SHUFFLED: "the same, with thoughts of other positions",
    plan.SILENT: "the model that learned to think, without thoughts",
}


class Report(BaseModel):
    """Measurements of a quietstar run, as quietstar.json has them."""

    model_config = ConfigDict(extra="forbid")

    model: str
    seed: int
    parameters: int
    #: Tokens of each arm's training, and of a thought.
    tokens: int
    length: int
    #: Hard tokens of the test slice, and all its tokens.
    hard_tokens: int
    test_tokens: int
    #: Arm → nats a token by domain, on the test slice.
    arms: dict[str, ThoughtArm]
    #: Arm → the nats a hard token that it needs more than thoughts.
    more: dict[str, Figure]
    #: The arm that is the result: thoughts, or the given model.
    chosen: str
    figures: dict[str, Figure]
    #: Arm → seconds of a training step, and of measuring over those of the given model.
    step_seconds: dict[str, float]
    cost: dict[str, float]
    #: Of all tasks of the run.
    seconds: float


def report(state: QuietstarState) -> Report:
    """Return the report of a run that has completed."""
    started, done, seen = state.started, state.completed, findings.found(state)
    pinned = findings.frozen(state, TEST)
    assert pinned is not None
    recipe = plan.continued(state.submitted, started)
    rivals = (plan.CONTINUED, plan.PAUSE, plan.SHUFFLED, plan.BASE, plan.START)
    return Report(
        model=started.model.name,
        seed=state.submitted.config.seed,
        parameters=started.model.parameters,
        tokens=recipe.steps * recipe.batch * recipe.context,
        length=state.submitted.config.thought_lengths[-1],
        hard_tokens=sum(len(p) for some in pinned.tokens.values() for p in some),
        test_tokens=sum(sum(sizes) for sizes in pinned.sizes.values()),
        arms=done.arms,
        more={arm: findings.lead(state, arm) for arm in rivals},
        chosen=done.chosen,
        figures=done.figures,
        step_seconds=step_seconds(state),
        cost=costs(seen),
        seconds=state.spent.device,
    )


def step_seconds(state: QuietstarState) -> dict[str, float]:
    """Return arm → measured seconds of a training step, of those that are trained."""
    found = {}
    for name in (plan.CONTINUED, plan.PAUSE, plan.THOUGHTS):
        recipe = plan.trainings(state)[name]
        events = state.advanced.get(recipe.stem, {}).values()
        steps = sum(event.step - event.begin for event in events)
        if steps:
            found[name] = sum(event.seconds for event in events) / steps
    return found


def costs(seen: dict[str, Observed]) -> dict[str, float]:
    """Return arm → seconds that it took to measure it over those of continued training."""
    plain = seen[plan.CONTINUED].seconds if plan.CONTINUED in seen else 0.0
    arms = (plan.PAUSE, plan.THOUGHTS, plan.SHUFFLED)
    return {arm: seen[arm].seconds / plain for arm in arms if arm in seen and plain}


def lines(report: Report) -> list[str]:
    """Return the report as lines of text for users."""
    out = [
        "nats a token (lower is better), test slice, means over domains:",
        f"{'':10s}{'hard':>10s}{'all':>10s}",
    ]
    for name in ARMS:
        if (arm := report.arms.get(name)) is not None:
            hard, every = (sum(v.values()) / len(v) for v in (arm.hard, arm.every))
            out.append(f"{name:10s}{hard:10.4f}{every:10.4f}")
    for name in (plan.CONTINUED, plan.PAUSE, plan.SHUFFLED):
        told = (name, ARMS[name], report.more[name], plan.THOUGHTS)
        out.append(lead_line(*told, unit="nats a hard token"))
    return [*out, verdict(report)]


def verdict(report: Report) -> str:
    """Return what the gate has decided, as a sentence."""
    if report.chosen == plan.THOUGHTS:
        return "gate: thoughts help, and it is the thoughts: the result is the model that thinks"
    gain, genuine = report.figures["gain"].low, report.figures["genuine"].low
    assert gain is not None
    assert genuine is not None
    why = []
    if gain <= 0:
        why.append("thoughts are not below continued training and pauses")
    if genuine < 0:
        why.append("exchanged thoughts do not cost half of the gain")
    return f"gate: no gain ({'; '.join(why)}): the given model is passed through unchanged"


def sentences(report: Report) -> list[str]:
    """Return what a completed run has found, as a list."""

    def span(name: str) -> str:
        one = report.figures[name]
        return f"{one.value:+.4f} nats a hard token ({one.low:+.4f} to {one.high:+.4f})"

    cost = report.cost.get(plan.THOUGHTS)
    took = (
        "" if cost is None else f" Measured, a token with thoughts took {cost:.1f} times as long."
    )
    return [
        f"- {verdict(report).removeprefix('gate: ').capitalize()}.",
        f"- Over continued training thoughts gain {span('over_continued')}, over pauses "
        f"{span('over_pause')}; with thoughts of other positions the model needs {span('exchanged')} "
        "more.",
        f"- {report.hard_tokens:,} of {report.test_tokens:,} tokens are hard; thoughts have "
        f"{report.length} tokens.{took}",
    ]


def card(report: Report) -> str:
    """Return the card of the result and of the model that thinks."""
    return "\n".join(
        [
            *("---", "library_name: transformers", "---", ""),
            f"# Quiet-STaR of {report.model}, seed {report.seed}",
            "",
            f"Each arm read {report.tokens:,} tokens.",
            "",
            *sentences(report),
            "",
            "transformers loads this folder as an ordinary model, without thoughts. If "
            "modeling_thoughts.py lies in it, that file loads the same model with thoughts:",
            "",
            "```python",
            "from modeling_thoughts import Thinker",
            "",
            'model = Thinker.from_pretrained("FOLDER")',
            "ids = model.generate(prompt_ids, 20)",
            "```",
            "",
        ]
    )
