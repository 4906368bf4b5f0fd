"""Scores of specialists on the four built-in domains, and detection of damage in one domain.

    python -m benchmarks.evaluation.domains --models FOLDER   # trains models if there are none: minutes

The first table is every model's score on the test slice. Then each specialist (the base, if a
domain has none) is damaged on purpose: the embedding rows of tokens that occur only in its own
domain's text are permuted. Each damaged model is compared with the undamaged one, domain by domain,
by the paired bootstrap that runs use. The damage must show in its own domain and in no other. The
effect of rounding alone is also measured: the inner neurons of every model's blocks are reordered,
which gives the same model with sums in another order.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
import torch

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data import domains, outcomes
from agent_forge.evaluation.data import items as data_items
from agent_forge.evaluation.data.builtin import phrase_grammar
from agent_forge.evaluation.data.outcomes import Outcomes
from agent_forge.evaluation.data.packing import ItemPack, fitting, pack
from agent_forge.evaluation.evaluate import Judge, evaluate
from agent_forge.evaluation.loading import load_tokenizer
from agent_forge.evaluation.measures.bootstrap import Comparison
from agent_forge.evomerge.fitness import composite
from agent_forge.evomerge.fitness.composite import Components, Weighting
from agent_forge.evomerge.fitness.paired_bootstrap import compare, rounding
from agent_forge.phases.cognate.script import Cognate
from agent_forge.phases.cognate.settings import PRESETS
from agent_forge.runs import keys
from agent_forge.runs.home import Home
from agent_forge.weights.folders import checkpoint
from agent_forge.weights.threads import set_threads
from benchmarks.common import machine
from testing.miniatures import cognate_runs

TINY = PRESETS["tiny"]

EMBEDDING = "model.embed_tokens.weight"

#: The tiny preset, but with multilingual text in the base's training, and trained for longer.
PRESET = TINY.model_copy(
    update={
        "base_tokens": 2_400_000,
        "specialist_tokens": 900_000,
        "base_mix": {"prose": 0.35, "code": 0.35, "math": 0.05, "data": 0.05, "multilingual": 0.2},
    }
)


class Table:
    """Models of one architecture and tokenizer on the test slice."""

    def __init__(self, base: Path) -> None:
        self.origin = checkpoint.open_checkpoint(base)
        self.judge = Judge(load_tokenizer(str(base)))
        self.resident = ResidentModel(base, "cpu", self.origin.tied)
        context = self.resident.positions or 512
        items = data_items.from_rows(i for i in domains.items() if i["slice"] == "test")
        self.data = pack(fitting(items, self.judge.tokenizer, context), self.judge.tokenizer, context)[
            "test"
        ]
        self.draws = outcomes.whole({d: packed.pool() for d, packed in self.data.items()})

    def score(
        self, weights: dict[str, torch.Tensor], problems: bool = True
    ) -> tuple[Outcomes, Components]:
        """Return a model's outcomes on the whole test slice, and their components.

        Problems take most of the time; without them the rest is measured.
        """
        self.resident.load(weights)
        rest = {d: one.model_copy(update={"problems": ()}) for d, one in self.draws.items()}
        draws = self.draws if problems else rest
        seen = evaluate(self.resident, self.data, draws, self.judge).outcomes
        measured = composite.components(seen, 1.0, 1.0)
        assert measured
        return seen, measured


def reordered(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weights of the same function with every block's inner neurons permuted.

    Only the order of sums differs.
    """
    result = dict(weights)
    for name, tensor in weights.items():
        block, _, leaf = name.partition(".mlp.")
        if leaf:
            width = weights[f"{block}.mlp.up_proj.weight"].shape[0]
            order = torch.from_numpy(keys.generator("order", block).permutation(width))
            result[name] = tensor[:, order] if leaf == "down_proj.weight" else tensor[order]
    return result


def reordering(table: Table, models: dict[str, dict[str, torch.Tensor]], dtype: torch.dtype) -> str:
    """Say how much another order of sums, computed in `dtype`, changes what is measured at most.

    A window and a domain's mean in nats a token, next-token accuracy in tokens of the domain, fitness.
    """
    window, mean, hits, moved = [0.0], [0.0], [0.0], [0.0]
    table.resident.dtype = None if dtype == torch.float32 else dtype
    for weights in models.values():
        seen, whole = table.score(weights, problems=False)
        again, measured = table.score(reordered(weights), problems=False)
        best = composite.reference([whole])
        moved.append(abs(composite.fitness(measured, best, Weighting()).scalar - 1))
        for d, one in seen.items():
            tokens = sum(one.tokens)
            pairs = zip(one.nll, again[d].nll, one.tokens, strict=True)
            window += [abs(a - b) / n for a, b, n in pairs]
            mean.append(abs(sum(one.nll) - sum(again[d].nll)) / tokens)
            hits.append(abs(sum(one.hits) - sum(again[d].hits)) / tokens)
    table.resident.dtype = None
    return (
        f"in {str(dtype).removeprefix('torch.')} another order of the same sums moves a window by "
        f"at most {max(window):.1e} nats a token, a domain's mean by {max(mean):.1e}, next-token "
        f"accuracy by {max(hits):.1e} of the tokens, fitness by {max(moved):.1e}"
    )


def own_tokens(packed: dict[str, ItemPack], domain: str) -> np.ndarray:
    """Return the tokens that occur in the windows of one domain only."""
    used = {d: set(np.concatenate(p.windows).tolist()) for d, p in packed.items()}
    others = set().union(*(tokens for d, tokens in used.items() if d != domain))
    return np.asarray(sorted(used[domain] - others))


def damaged(weights: dict[str, torch.Tensor], tokens: np.ndarray) -> dict[str, torch.Tensor]:
    """Return the weights with the embeddings of these tokens exchanged in one random cycle."""
    embedding = weights[EMBEDDING].clone()
    order = keys.generator("damage").permutation(len(tokens))
    embedding[tokens[order]] = weights[EMBEDDING][tokens[np.roll(order, 1)]]
    return {**weights, EMBEDDING: embedding}


def train(folder: Path) -> None:
    """Train base and specialists, by a run in a home beside the folder; go on with an earlier one."""
    PRESETS["tiny"] = PRESET
    home = Home(folder.with_name(f"{folder.name}-home"))
    cognate_runs.submit(home, preset="tiny", domains=domains.DOMAINS)
    Cognate().write_result(home, cognate_runs.finish(home), folder)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=Path, required=True)
    folder = parser.parse_args().models
    set_threads()
    if not (folder / "base").exists():
        train(folder)
    table = Table(folder / "base")
    print(machine())
    names = [
        "base",
        *sorted(p.parent.name for p in folder.glob("*/config.json") if p.parent.name != "base"),
    ]
    weights = {n: dict(checkpoint.open_checkpoint(folder / n).tensors()) for n in names}
    found = {n: table.score(weights[n]) for n in names}
    own = sorted(table.data)
    print("\nbits a byte / next token / questions / problems")
    for name, (seen, _) in found.items():
        print(f"{name:10s}", *(f"{d} {_cell(seen, d)}" for d in own), sep="  ")
    print("\nquestions on languages")
    for name, (seen, _) in found.items():
        print(f"{name:13s}", _by_kind(table, seen))
    print()
    for dtype in (torch.float32, torch.bfloat16):
        print(reordering(table, weights, dtype))
    best = composite.reference([found["base"][1]], own)
    print("\ndamage in → difference of the domain's score, [95 % interval]")
    for domain in own:
        name = domain if domain in found else "base"
        seen, tokens = found[name][0], own_tokens(table.data, domain)
        worse, _ = table.score(damaged(weights[name], tokens))
        leads, caught = dict[str, Comparison](), list[str]()
        for d in own:
            weighting = Weighting(perplexity=0, accuracy=0, speed=0, memory=0, domains={d: 1.0})
            leads[d] = compare(worse, seen, best, weighting, False, 0, "damage", d)
            if leads[d].verdict(rounding(best, weighting, False)) == "worse":
                caught.append(d)
        cells = (f"{d} {x.difference:+.4f} [{x.low:+.4f}, {x.high:+.4f}]" for d, x in leads.items())
        verdict = "ok" if caught == [domain] else f"CAUGHT IN {caught}"
        print(f"{domain:13s} {len(tokens):4d} tokens", *cells, verdict, sep="  ")


def _by_kind(table: Table, seen: Outcomes) -> str:
    """Count right questions on languages, by their kind and whether the sentence was taught."""
    said = {
        f"{language}: {phrase_grammar.say(sentence, language)}": phrase_grammar.taught(sentence)
        for sentence in itertools.product(*map(range, map(len, phrase_grammar.PHRASES.values())))
        for language in phrase_grammar.LANGUAGES
    }
    rows = {row["id"]: row for row in domains.items() if row["domain"] == "multilingual"}
    right: dict[str, list[bool]] = {}
    for question, hit in zip(
        table.data["multilingual"].questions, seen["multilingual"].right, strict=True
    ):
        kind = question.id.split("/")[1]
        taught = said[rows[question.id]["prompt"].splitlines()[0]]
        right.setdefault(f"{kind}, {'taught' if taught else 'never taught'}", []).append(bool(hit))
    return "; ".join(f"{kind} {sum(hits)}/{len(hits)}" for kind, hits in sorted(right.items()))


def _cell(seen: Outcomes, domain: str) -> str:
    o = seen[domain]
    solved = f"{sum(o.solved):g}/{len(o.solved)}" if o.solved else "-"
    bits = sum(o.nll) / np.log(2) / sum(o.bytes)
    return f"{bits:.3f} {sum(o.hits) / sum(o.tokens):.3f} {sum(o.right)}/{len(o.right)} {solved}"


if __name__ == "__main__":
    main()
