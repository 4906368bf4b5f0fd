"""Report of a cognate run: quality by domain, distance from the base, loss barriers. Pure.

Quality is measured in bits per byte: −log₂ p of the held-out text per byte of it, so it does not
depend on the tokenizer.
"""

from __future__ import annotations

from itertools import combinations

from pydantic import BaseModel, ConfigDict

from phases.cognate import findings, plan
from phases.cognate.events import CognateState, Lead, Submitted
from runs.panels.panels import COMPARED, verdict
from weights.recipes import Train


class Report(BaseModel):
    """Measurements of a cognate run, as cognate.json has them."""

    model_config = ConfigDict(extra="forbid")

    preset: str
    seed: int
    parameters: int
    #: model → domain → bits per byte on the selection slice; the base among the models.
    bits_per_byte: dict[str, dict[str, float]]
    #: specialist → its lead in bits per byte on its own domain.
    lead: dict[str, Lead]
    #: specialist → loss (nats a token, mean over domains) along the line from the base.
    line: dict[str, list[float]]
    #: specialist → highest rise above the straight line between the ends.
    barrier: dict[str, float]
    #: specialist → norm of its task vector relative to the base's norm.
    relative_norm: dict[str, float]
    #: "a,b" → cosine of two task vectors.
    cosine: dict[str, float]
    #: Of all tasks of the run.
    seconds: float


def report(state: CognateState) -> Report:
    """Return the report of a run whose models are measured."""
    config = state.submitted.config
    line = findings.line(state)
    moved = findings.found(state, findings.GEOMETRY)[plan.BASE].values
    return Report(
        preset=config.size.name,
        seed=config.seed,
        parameters=state.started.parameters,
        bits_per_byte=findings.quality(state),
        lead=findings.leads(state),
        line=line,
        barrier={role: findings.barrier(losses) for role, losses in line.items()},
        relative_norm={d: moved[d] for d in config.domains},
        cosine={pair: moved[pair] for pair in map(",".join, combinations(config.domains, 2))},
        seconds=state.spent.device,
    )


def lines(report: Report) -> list[str]:
    """Return the report as lines of text for users."""
    domains = list(next(iter(report.bits_per_byte.values())))
    out = ["bits per byte (lower is better), selection slice:"]
    out.append(f"{'':12s}" + "".join(f"{d:>10s}" for d in domains))
    for name, row in report.bits_per_byte.items():
        best = {d: min(r[d] for r in report.bits_per_byte.values()) for d in domains}
        cells = (f"{row[d]:9.4f}{'*' if row[d] == best[d] else ' '}" for d in domains)
        out.append(f"{name:12s}" + "".join(cells))
    for name, lead in report.lead.items():
        span = f"{lead.difference:+.4f} [{lead.low:+.4f}, {lead.high:+.4f}]"
        word = verdict(lead.low, lead.high)
        out.append(f"{name}: {COMPARED[word]} {lead.rival}, the best other model on {name}: {span}")
    for name, norm in report.relative_norm.items():
        path = " ".join(f"{x:.4f}" for x in report.line[name])
        out.append(
            f"{name}: moved {norm:.1%} of the base's norm; loss along the line {path}, "
            f"{_rise(report.barrier[name])}"
        )
    cosines = ", ".join(f"{pair} {value:+.2f}" for pair, value in report.cosine.items())
    out.append(f"cosines of the task vectors: {cosines}")
    return out


def sentences(report: Report) -> list[str]:
    """Return each specialist's lead on its own domain, and its way from the base, as a list."""
    out = []
    for name, lead in report.lead.items():
        word = verdict(lead.low, lead.high)
        out.append(
            f"- The {name} specialist is {COMPARED[word]} the best other model on its own domain, "
            f"{lead.rival}: {lead.difference:+.4f} bits per byte ({lead.low:+.4f} to "
            f"{lead.high:+.4f}). It moved {report.relative_norm[name]:.1%} of the base's norm; between "
            f"both the loss has {_rise(report.barrier[name])}.".replace("%", " %")
        )
    return out


def _rise(barrier: float) -> str:
    """Return how far the loss rises above the straight line between base and specialist."""
    told = "no barrier" if barrier <= findings.BARRIER else "a BARRIER"
    if barrier <= 0:
        return f"{told}: it is nowhere above the straight line"
    return f"{told}: it is at most {barrier:.4f} above the straight line"


def card(role: str, recipe: Train | None, report: Report, submitted: Submitted) -> str:
    """Return a model's card; a specialist's names its base.

    `recipe` is its training, None of a given base. The card names a licence only if base and text are
    the program's own.
    """
    ours = submitted.base is None and not submitted.data
    front = ["---", "library_name: transformers", *["license: apache-2.0"] * ours]
    front += ["tags:", "- cognate"]
    if role != plan.BASE:
        front += ["base_model: ../base", "base_model_relation: finetune"]
    measured = ", ".join(f"{d} {v:.4f}" for d, v in report.bits_per_byte[role].items())
    made = "given as the base."
    if recipe is not None:
        shares = ", ".join(f"{d} {share:.0%}" for d, share in recipe.data.items())
        tokens = recipe.upto * recipe.batch * recipe.context
        origin = "from scratch" if role == plan.BASE else "from `base`"
        rank = recipe.params.get("rank")
        adapters = f" by adapters of rank {rank}, merged into the weights" if rank else ""
        made = f"trained {origin} on {tokens:,} tokens ({shares}){adapters}."
    return "\n".join(
        [
            *front,
            "---",
            "",
            f"# {role} ({report.preset}, seed {report.seed})",
            "",
            f"{report.parameters:,} parameters, {made}",
            f"Bits per byte on held-out text: {measured}.",
            "",
        ]
    )
