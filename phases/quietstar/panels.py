"""Head and panels of a quietstar run: arms on hard tokens, the gate, domains, curves. Pure."""

from __future__ import annotations

from phases.quietstar import findings, plan, report
from phases.quietstar.events import QuietstarState
from phases.quietstar.report import ARMS
from runs.panels.head import Fact, Result
from runs.panels.panels import Arm, Arms, Gate, Gates, Matrix, Panel
from runs.panels.shapes import Metric
from studies import arm_panels as panels_of
from studies import training_panels
from studies.comparison import TEST
from studies.training_panels import Curves

HARD = Metric(name="loss of hard tokens", unit="nat/token", better="down")
ANY = Metric(name="loss", unit="nat/token", better="down")
GAIN = Metric(name="gain on hard tokens", unit="nat/token", better="up")
COST = Metric(name="time to measure", unit="times continued", better="down")


def result(state: QuietstarState) -> Result | None:
    """Return the loss of hard tokens with thoughts, and the lead over the better rival."""
    seen = findings.found(state) if state.started else {}
    if not {plan.CONTINUED, plan.PAUSE, plan.THOUGHTS} <= set(seen):
        return None
    ours = seen[plan.THOUGHTS]
    rival = min((plan.CONTINUED, plan.PAUSE), key=lambda arm: findings.mean(seen[arm]))
    return Result(
        name="thoughts",
        model=ours.recipe_id,
        metric=HARD,
        value=findings.mean(ours),
        over=ARMS[rival],
        lead=panels_of.lead(findings.lead(state, rival)),
        on=TEST,
        n=findings.documents(ours),
    )


def facts(state: QuietstarState) -> tuple[Fact, ...]:
    """Return size and tokens, how thoughts are, and what the gate has decided."""
    if state.started is None:
        return ()
    config, recipe = state.submitted.config, plan.continued(state.submitted, state.started)
    told = [
        *training_panels.speed(state, plan.recipes(state).values()),
        Fact(name="parameters", value=state.started.model.parameters),
        Fact(name="tokens of an arm", value=recipe.steps * recipe.batch * recipe.context),
        Fact(name="tokens of a thought", value=config.thought_lengths[-1]),
    ]
    if (pinned := findings.frozen(state, TEST)) is not None:
        hard = sum(len(places) for some in pinned.tokens.values() for places in some)
        told.append(Fact(name="hard tokens", value=hard))
    if state.completed is not None and state.completed.chosen == plan.THOUGHTS:
        told.append(Fact(name="result", value="thinks"))
    return tuple(told)


def panels(state: QuietstarState, curves: Curves) -> list[Panel]:
    """Return the panels of what is there: arms, gate, domains, curves, models."""
    found: list[Panel] = []
    if state.started is None:
        return found
    seen = findings.found(state)
    if {plan.CONTINUED, plan.THOUGHTS} <= set(seen):
        found += [_arms(state), _domains(state)]
    if state.completed is not None:
        found.insert(1, _gate(state))
    found += training_panels.curves(curves, [plan.CONTINUED], state, plan.recipes(state))
    return [*found, training_panels.models(state, plan.recipes(state))]


def _arms(state: QuietstarState) -> Arms:
    """Return the arms on hard tokens, with the leads of thoughts and what it took to measure them."""
    seen, told = findings.found(state), report.costs(findings.found(state))
    thinking = (plan.THOUGHTS, plan.SHUFFLED)
    found = tuple(
        Arm(
            name=name,
            group="thoughts" if name in thinking else "without",
            value=findings.mean(seen[name]),
            n=findings.documents(seen[name]),
            lead=None if name == plan.THOUGHTS else panels_of.lead(findings.lead(state, name)),
            cost=told.get(name),
        )
        for name in ARMS
        if name in seen
    )
    said = "; ".join(f"{name}: {words}" for name, words in ARMS.items() if name in seen)
    return Arms(
        name="arms",
        title="Hard tokens with thoughts and without",
        says=f"{said}. The arms read the same windows; documents are resampled for the intervals.",
        metric=HARD,
        ours=plan.THOUGHTS,
        baseline=plan.CONTINUED,
        arms=found,
        cost=COST,
    )


def _gate(state: QuietstarState) -> Gates:
    """Return both conditions of the gate with their intervals."""
    figures, rows = state.completed.figures, []
    for name in ("gain", "genuine"):
        one = figures[name]
        met = one.low > 0 if name == "gain" else one.low >= 0
        verdict = "pass" if met else "pass unchanged"
        rows.append(
            Gate(
                name=findings.FIGURES[name],
                metric=GAIN,
                value=one.value,
                low=one.low,
                high=one.high,
                limit=0.0,
                verdict=verdict,
            )
        )
    return Gates(
        name="gate",
        title="Gate: is it the thoughts?",
        says="The worse end of both intervals must reach 0; else the given model is the result.",
        gates=tuple(rows),
    )


def _domains(state: QuietstarState) -> Matrix:
    """Return nats a token by domain and arm: of hard tokens, and of all."""
    seen = findings.found(state)
    names = [name for name in ARMS if name in seen]
    parts = {f"{d}, hard": f"{findings.HARD}/{d}" for d in _names(state)}
    parts |= {f"{d}, all": f"{findings.EVERY}/{d}" for d in _names(state)}
    return Matrix(
        name="quality",
        title="Loss by domain",
        says="Nats a token on the test slice; fewer are better.",
        rows=tuple(parts),
        columns=tuple(names),
        metrics=(ANY,),
        values=tuple(tuple(seen[n].values[part] for n in names) for part in parts.values()),
        ours=plan.THOUGHTS,
    )


def _names(state: QuietstarState) -> list[str]:
    """Return the domains that are measured."""
    return list(findings.by_domain(findings.found(state)[plan.THOUGHTS], findings.HARD))
