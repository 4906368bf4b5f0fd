"""Measurements of a cognate run, the conclusions from them, its panels and its report. Pure.

Quality is measured in bits per byte: −log₂ p of the held-out text per byte of it, so it does not
depend on the tokenizer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations

import numpy as np

from agent_forge.evaluation.measures import bootstrap
from agent_forge.events.envelope import Plain
from agent_forge.phases.cognate import recipes
from agent_forge.phases.cognate.recipes import BASE, Lead, Result, Started, Submitted
from agent_forge.runs.event_types import Figure
from agent_forge.runs.panels import head
from agent_forge.runs.panels.panels import (
    COMPARED,
    Arm,
    Arms,
    Axis,
    Edge,
    Graph,
    Lines,
    Matrix,
    Metric,
    Node,
    Panel,
    Series,
    verdict,
)
from agent_forge.studies import comparison, training_panels
from agent_forge.studies.events import Observe
from agent_forge.studies.run import StudyRun
from agent_forge.studies.training_panels import BITS, Curves
from agent_forge.studies.training_plan import READINGS, tokens
from agent_forge.weights.recipes import Train

#: Measures: quality by domain; the loss along the line from base to specialist; task vectors.
QUALITY, LINE, GEOMETRY = "bits-per-byte@1", "loss-along-line@1", "task-vectors@1"
#: The slice to measure on, and its name in measurements of weights alone.
SLICE, NONE = comparison.CHOOSING, "none"
FEWER = Metric(name="fewer bits per byte", unit="share", better="up")
ON_SLICE = f"{SLICE} slice"
#: Key in `run.known` of role → training to its last step.
TRAININGS = "trainings"
#: Places on the line from base (0) to specialist (1).
PLACES = (0.0, 0.25, 0.5, 0.75, 1.0)
#: A rise of more than this (nats a token) above the straight line between the ends is a barrier.
BARRIER = 0.01


def readings(submitted: Submitted, started: Started) -> list[str]:
    """Return a warning for each text that a training reads more than `READINGS` times over."""
    notes = []
    for role, recipe in recipes.unaveraged(submitted, started).items():
        if not isinstance(recipe, Train):
            continue
        total = sum(recipe.data.values())
        for domain, share in recipe.data.items():
            times = tokens(recipe) * share / total / started.tokens[domain]
            if times > READINGS:
                notes.append(
                    f"the {role} training reads the text of {domain} {times:.0f} times over: give it "
                    "more text, or fewer tokens to train on."
                )
    return notes


def quality(run: StudyRun) -> dict[str, dict[str, float]]:
    """Return role → domain → bits per byte, of the models measured so far."""
    return {role: dict(event.values) for role, event in run.seen.items()}


def lines_of(run: StudyRun) -> dict[str, Observe]:
    """Return specialist → the task that measures its loss along the line from the base."""
    return {role: run.on(role, LINE) for role in run.settings.domains}


def line(run: StudyRun) -> dict[str, list[float]]:
    """Return specialist → loss in nats a token at each of `PLACES`, for the lines measured so far."""
    events = comparison.observed(run.state, lines_of(run)).items()
    return {role: [event.values[str(place)] for place in PLACES] for role, event in events}


def leads(run: StudyRun) -> dict[str, Lead]:
    """Return specialist → its lead on its own domain over the best of the other models."""
    return run.state.remembered(("leads",), lambda: _leads(run))


def _leads(run: StudyRun) -> dict[str, Lead]:
    values, observations, seed = quality(run), run.seen, run.settings.seed
    leads = {}
    for role in run.settings.domains:
        rival = min((other for other in values if other != role), key=lambda r: values[r][role])
        sizes = observations[role].sizes[role]
        rival_items, own_items = observations[rival].items[role], observations[role].items[role]
        lead = bootstrap.rates(rival_items, own_items, sizes, "cognate lead", seed, role)
        difference, low, high = (x / math.log(2) for x in (lead.difference, lead.low, lead.high))
        leads[role] = Lead(rival=rival, difference=difference, low=low, high=high)
    return leads


def least_lead(run: StudyRun) -> Figure:
    """Return, as a Figure, the specialist's lead whose interval has the lowest lower end."""
    leads = [model.lead for model in run.state.completed.models.values() if model.lead is not None]
    least = min(leads, key=lambda lead: lead.low)
    return Figure(value=least.difference, low=least.low, high=least.high)


def gain(run: StudyRun) -> Figure:
    """Return as a Figure the share of bits that specialists save over the base on their own domains.

    The share is the mean over domains; its interval is that of a paired bootstrap over windows within
    each domain.
    """
    points, resampled, windows = [], [], 0
    for role in run.settings.domains:
        specialist, base = run.seen[role], run.seen[BASE]
        count = len(specialist.sizes[role])
        counts = bootstrap.draws(count, "cognate gain", run.settings.seed, role)
        points.append(1 - specialist.values[role] / base.values[role])
        resampled.append(1 - bootstrap.ratio(counts, specialist.items[role], base.items[role]))
        windows += count
    return comparison.figure(math.fsum(points) / len(points), np.mean(resampled, axis=0), windows)


def results(run: StudyRun) -> dict[str, Result]:
    """Return role → the model's record for `completed`: recipe, digest, bits per byte, lead."""
    lead, events = leads(run), run.state.made
    return {
        role: Result(
            recipe_id=event.recipe_id,
            digest=events[event.recipe_id].digest,
            bits_per_byte=event.values,
            lead=lead.get(role),
        )
        for role, event in run.seen.items()
    }


def barrier(losses: list[float]) -> float:
    """Return the highest rise of losses at `PLACES` above the straight line, in nats; ≤ 0: none."""
    inner = zip(PLACES[1:-1], losses[1:-1], strict=True)
    return max(loss - (losses[0] * (1 - t) + losses[-1] * t) for t, loss in inner)


def no_specialist(run: StudyRun) -> str:
    """Return why the run fails: the specialist that is not best on its own domain; empty if each is."""
    models = quality(run)
    for role in run.settings.domains:
        best = min(models, key=lambda other: models[other][role])
        if best != role:
            return (
                f"the {role} specialist has {models[role][role]:.4f} bits per byte on {role}, {best} "
                f"has {models[best][role]:.4f}: it is no specialist. Try another seed, or a larger "
                "preset."
            )
    return ""


# ---- panels --------------------------------------------------------------------------------------


def headline(run: StudyRun) -> head.Result | None:
    """Return the headline, the share of bits that specialists save; None until all are measured."""
    if run.seen.keys() != run.arms.keys():
        return None
    share = gain(run)
    value, low, high = share.value, share.low or 0.0, share.high or 0.0
    less = f"{abs(value):.1%} {'fewer' if value >= 0 else 'more'}".replace("%", " %")
    ends = f"{low:.1%} to {high:.1%}".replace("%", " %")
    return head.Result(
        name="specialists on their own domains, against the base",
        metric=FEWER,
        value=value,
        low=share.low,
        high=share.high,
        on=ON_SLICE,
        n=share.n,
        items="windows",
        says=f"on their own domains the specialists need {less} bits per byte than the base "
        f"({ON_SLICE}, {share.n:,} windows; 95 %: {ends})",
    )


def gain_of(values: Mapping[str, Mapping[str, float]]) -> float:
    """Return the mean share of bits per byte that specialists save on their own domains."""
    base = values[BASE]
    shares = [1 - values[role][role] / base[role] for role in sorted(values) if role != BASE]
    return sum(shares) / len(shares)


def panels(run: StudyRun, curves: Curves) -> list[Panel]:
    """Return the panels that the events so far allow: curves, figures, models, and lineage."""
    trainings = run.known[TRAININGS]
    models = {role: run.recipes[role] for role in run.arms}
    shown = training_panels.curves(curves, [BASE], run.state, {**models, **trainings})
    if values := quality(run):
        shown.append(_quality_panel(values))
    if run.seen.keys() == run.arms.keys():
        shown += _lead_panels(run, values)
    if rises := line(run):
        shown.append(_line_panel(rises))
    says, chains = "The specialists start from the base.", {n: (t,) for n, t in trainings.items()}
    shown.append(training_panels.models(run.state, models, says, chains))
    return [*shown, _lineage(run)]


def _quality_panel(values: Mapping[str, Mapping[str, float]]) -> Matrix:
    """Return a table panel of bits per byte, with domains as rows and models as columns."""
    domains = tuple(next(iter(values.values())))
    return Matrix(
        name="quality",
        title="Quality by domain",
        says="Each specialist is to have the fewest bits per byte on its own domain.",
        rows=domains,
        columns=tuple(values),
        metrics=(BITS,),
        values=tuple(tuple(row[d] for row in values.values()) for d in domains),
    )


def _lead_panels(run: StudyRun, values: Mapping[str, Mapping[str, float]]) -> list[Panel]:
    """Return a panel for each specialist: the models on its domain, and its lead over the next."""
    lead_panels: list[Panel] = []
    for role, lead in leads(run).items():
        over = training_panels.lead(lead.difference, lead.low, lead.high)
        arms = tuple(
            Arm(
                name=other,
                group="base" if other == BASE else "specialist",
                value=row[role],
                n=len(run.seen[other].sizes[role]),
                lead=over if other == lead.rival else None,
            )
            for other, row in values.items()
        )
        compared = COMPARED[over.verdict]
        says = f"On text of {role} the {role} specialist is {compared} the best other, {lead.rival}."
        lead_panels.append(
            Arms(
                name=f"lead-{role}",
                title=f"The {role} specialist",
                says=says,
                metric=BITS,
                ours=role,
                baseline=lead.rival,
                arms=arms,
            )
        )
    return lead_panels


def _line_panel(rises: Mapping[str, list[float]]) -> Lines:
    """Return a panel of curves: the loss along the straight lines from the base to the specialists."""
    series = tuple(Series(name=r, x=PLACES, y=tuple(y)) for r, y in rises.items())
    barriers = [role for role, losses in rises.items() if barrier(losses) > BARRIER]
    sentence = f"A barrier on the way to {', '.join(barriers)}" if barriers else "No barrier"
    return Lines(
        name="line",
        title="From the base to the specialists",
        says=f"{sentence}. A barrier is a loss more than {BARRIER:g} nats a token above the "
        "straight line between the losses of both ends. Models with a barrier between them cannot be "
        "merged by averaging.",
        x=Axis(name="place", unit="0 base, 1 specialist"),
        y=Axis(name="loss", unit="nat/token", better="down"),
        series=series,
    )


def _lineage(run: StudyRun) -> Graph:
    """Return a graph panel: text, first weights, base and specialists, and which made which."""
    started, specialists, base = run.started, run.settings.domains, run.started.base
    made_roles = {role: run.recipes[role].id in run.state.made for role in run.arms}
    first = base.name if base else "first weights"
    group = "trained" if base is None else "given"
    nodes = [
        Node(id="text", name="text", group="data", column=0, says=started.items[:12]),
        Node(id="untrained", name=first, group="given" if base else "initialised", column=0),
        Node(id=BASE, name=BASE, group=group, column=1, ours=made_roles[BASE]),
    ]
    nodes += [Node(id=r, name=r, group="trained", column=2, ours=made_roles[r]) for r in specialists]
    says = (started.dtype or "float32") if base else "train"
    edges = [Edge(source="untrained", target=BASE, says=says)]
    readers = specialists if base else [BASE]
    edges += [Edge(source="text", target=role, says="text") for role in readers]
    edges += [Edge(source=BASE, target=role, says="train") for role in specialists]
    says = "Who was made of what; `forge lineage` has the recipes."
    return Graph(name="lineage", title="Lineage", says=says, nodes=tuple(nodes), edges=tuple(edges))


# ---- report --------------------------------------------------------------------------------------


def report(run: StudyRun) -> Plain:
    """Return the report of a completed run as JSON data: settings, quality, leads, lines, geometry."""
    config, rises = run.settings, line(run)
    moved = run.state.answers[run.on(BASE, GEOMETRY, NONE).key].values
    return {
        "preset": config.size.name,
        "seed": config.seed,
        "parameters": run.started.parameters,
        #: Model → domain → bits per byte on the selection slice; the base among the models.
        "bits_per_byte": quality(run),
        #: Specialist → its lead in bits per byte on its own domain.
        "lead": {role: lead.model_dump() for role, lead in leads(run).items()},
        #: Specialist → loss (nats a token, mean over domains) along the line from the base.
        "line": rises,
        #: Specialist → highest rise above the straight line between the ends.
        "barrier": {role: barrier(losses) for role, losses in rises.items()},
        #: Specialist → norm of its task vector relative to the base's norm.
        "relative_norm": {d: moved[d] for d in config.domains},
        #: "a,b" → cosine of two task vectors.
        "cosine": {pair: moved[pair] for pair in map(",".join, combinations(config.domains, 2))},
        #: Of all tasks of the run.
        "seconds": run.state.spent.device,
    }


def lines(report: Plain) -> list[str]:
    """Return the report of a completed run as lines of text for a terminal."""
    rows, line = report["bits_per_byte"], report["line"]
    domains = list(next(iter(rows.values())))
    best = {domain: min(row[domain] for row in rows.values()) for domain in domains}
    out = ["bits per byte (lower is better), selection slice:"]
    out.append(f"{'':12s}" + "".join(f"{d:>10s}" for d in domains))
    for name, row in rows.items():
        cells = (f"{row[d]:9.4f}{'*' if row[d] == best[d] else ' '}" for d in domains)
        out.append(f"{name:12s}" + "".join(cells))
    for name, lead in _leads_of(report).items():
        span = f"{lead.difference:+.4f} [{lead.low:+.4f}, {lead.high:+.4f}]"
        word = COMPARED[verdict(lead.low, lead.high)]
        out.append(f"{name}: {word} {lead.rival}, the best other model on {name}: {span}")
    for name, norm in report["relative_norm"].items():
        path = " ".join(f"{x:.4f}" for x in line[name])
        out.append(
            f"{name}: moved {norm:.1%} of the base's norm; loss along the line {path}, "
            f"{_rise(report['barrier'][name])}"
        )
    cosines = ", ".join(f"{pair} {value:+.2f}" for pair, value in report["cosine"].items())
    out.append(f"cosines of the task vectors: {cosines}")
    return out


def sentences(report: Plain) -> list[str]:
    """Return a Markdown list item for each specialist: its lead, and its way from the base."""
    return [
        f"- The {name} specialist is {COMPARED[verdict(lead.low, lead.high)]} the best other model on "
        f"its own domain, {lead.rival}: {lead.difference:+.4f} bits per byte ({lead.low:+.4f} to "
        f"{lead.high:+.4f}). It moved {report['relative_norm'][name]:.1%} of the base's norm; between "
        f"both the loss has {_rise(report['barrier'][name])}.".replace("%", " %")
        for name, lead in _leads_of(report).items()
    ]


def _leads_of(report: Plain) -> dict[str, Lead]:
    """Return specialist → its lead, parsed from a report."""
    return {name: Lead.model_validate(lead) for name, lead in report["lead"].items()}


def _rise(barrier: float) -> str:
    """Return words for a barrier in nats a token: "no barrier" or "a BARRIER", and how high it is."""
    word = "no barrier" if barrier <= BARRIER else "a BARRIER"
    if barrier <= 0:
        return f"{word}: it is nowhere above the straight line"
    return f"{word}: it is at most {barrier:.4f} above the straight line"


def card(run: StudyRun, role: str) -> str:
    """Return a model's card as Markdown text; a specialist's names its base."""
    submitted, config = run.submitted, run.settings
    is_builtin = submitted.base is None and not submitted.data
    front = ["---", "library_name: transformers", *["license: apache-2.0"] * is_builtin]
    front += ["tags:", "- cognate"]
    if role != BASE:
        front += ["base_model: ../base", "base_model_relation: finetune"]
    measured = ", ".join(f"{d} {v:.4f}" for d, v in run.seen[role].values.items())
    history = "given as the base."
    if (training := run.known[TRAININGS].get(role)) is not None:
        shares = ", ".join(f"{d} {share:.0%}" for d, share in training.data.items())
        origin = "from scratch" if role == BASE else "from `base`"
        rank = training.params.get("rank")
        adapters = f" by adapters of rank {rank}, merged into the weights" if rank else ""
        history = f"trained {origin} on {tokens(training):,} tokens ({shares}){adapters}."
    return "\n".join(
        [
            *front,
            "---",
            "",
            f"# {role} ({config.size.name}, seed {config.seed})",
            "",
            f"{run.started.parameters:,} parameters, {history}",
            f"Bits per byte on held-out text: {measured}.",
            "",
        ]
    )
