"""Savings and costs of early stopping, computed for runs that measured everything.

    FORGE_HOME=… python -m benchmarks.evomerge.gates RUN …

A run's log has every candidate's outcomes window by window, so every rule can be tried on them
afterwards: which evaluations would have ended after which block, and how many windows would not
have been read. Counted too are stopped candidates that became an elite of their generation or the
champion.

Two kinds of rule are tried: those of `early_stopping`, against the sources, and a race, which is not
part of the program: all candidates of a generation read a block, and those end that a paired t-test
finds worse than the candidate in the middle of the generation. The better half is what strategies go
on from, so such a race is right as long as none of the better half ends.
"""

from __future__ import annotations

import argparse
from collections import Counter
from math import fsum
from statistics import fmean

from agent_forge.evaluation.data import outcomes
from agent_forge.evaluation.data.outcomes import Draws, Outcomes
from agent_forge.evomerge.run.rules import early_stopping
from agent_forge.evomerge.run.rules.early_stopping import StopRules
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home

#: (gate_perplexity, stop_error)
RULES = ((2.0, 0.0), (0.0, 0.01), (0.0, 0.05), (0.0, 0.2), (2.0, 0.05))
#: Error rates of a race.
RACES = (0.01, 0.05, 0.2)
#: Least number of windows in a block.
BLOCKS = (8, 16)


def tried(state: RunState, gate: StopRules, least: int) -> Counter[str]:
    """Try one rule on one run: count evaluations, windows, and stopped candidates by kind."""
    found: Counter[str] = Counter()
    champions = {change.recipe_id for change in state.champions}
    for (recipe_id, slice_, generation), event in sorted(
        state.evaluations.items(), key=lambda pair: str(pair[0])
    ):
        if slice_ != "search" or generation is None or state.is_source(recipe_id):
            continue
        if event.stopped or not event.outcomes:
            continue
        draws = state.draws(slice_, generation)
        seed = state.settings(generation).seed
        parts = early_stopping.blocks_of(draws, least, seed, "blocks", slice_, str(generation))
        whole = sum(len(draw.windows) for draw in draws.values())
        read = whole
        for number in range(1, len(parts)):
            scored = outcomes.joined(parts[:number])
            seen = outcomes.narrowed(event.outcomes, draws, scored)
            if early_stopping.drop_reason(gate, seen, state.sources_on(slice_, scored), len(parts) - 1):
                read = sum(len(draw.windows) for draw in scored.values())
                break
        done = state.generations.get(generation)
        elites = done.ranking[: state.settings(generation).search.kept] if done else ()
        found["evaluations"] += 1
        found["windows"] += whole
        found["read"] += read
        if read < whole:
            found["stopped"] += 1
            found["elites"] += recipe_id in elites
            found["champions"] += recipe_id in champions
    return found


def race(
    candidates: dict[str, Outcomes], draws: Draws, parts: list[Draws], half: int, error: float
) -> dict[str, int]:
    """Return candidate → windows read, if those end that are clearly worse than place `half` of all."""
    windows = {r: sum(len(draw.windows) for draw in draws.values()) for r in candidates}
    racing = dict(candidates)
    for number in range(1, len(parts)):
        scored = outcomes.joined(parts[:number])
        read = {r: outcomes.narrowed(o, draws, scored) for r, o in racing.items()}
        order = sorted(read, key=lambda r: (_loss(read[r]), r))
        for loser in order[half:]:
            level = error / (len(parts) - 1)
            if early_stopping.worse(read[loser], read[order[half - 1]], level):
                windows[loser] = sum(len(draw.windows) for draw in scored.values())
                del racing[loser]
    return windows


def raced(state: RunState, error: float, least: int) -> Counter[str]:
    """Try a race at an error rate on one run: the counts of `tried`, and the better half's losses."""
    counts: Counter[str] = Counter()
    champions = {change.recipe_id for change in state.champions}
    for generation, done in sorted(state.generations.items()):
        candidates = {
            recipe_id: event.outcomes
            for (recipe_id, slice_, when), event in state.evaluations.items()
            if (slice_, when) == ("search", generation) and not state.is_source(recipe_id)
            if event.outcomes and not event.stopped
        }
        draws, seed = state.draws("search", generation), state.settings(generation).seed
        parts = early_stopping.blocks_of(draws, least, seed, "blocks", "search", str(generation))
        half = max(state.settings(generation).search.kept, len(candidates) // 2)
        whole = sum(len(draw.windows) for draw in draws.values())
        windows = race(candidates, draws, parts, half, error)
        ended = {recipe_id for recipe_id, count in windows.items() if count < whole}
        better = [recipe_id for recipe_id in done.ranking if recipe_id in candidates][:half]
        counts["evaluations"] += len(candidates)
        counts["windows"] += whole * len(candidates)
        counts["read"] += sum(windows.values())
        counts["stopped"] += len(ended)
        counts["better"] += len(ended & set(better))
        counts["champions"] += len(ended & champions)
    return counts


def _loss(read: Outcomes) -> float:
    """Return the mean over domains of −log p a token."""
    return fmean(fsum(outcome.nll) / sum(outcome.tokens) for outcome in read.values())


def _line(what: str, total: Counter[str], lost: str) -> str:
    saved = 1 - total["read"] / total["windows"] if total["windows"] else 0.0
    return (
        f"{what}: {total['stopped']} of {total['evaluations']} ended early, {saved:.1%} of windows "
        f"saved; among them {lost}, {total['champions']} champions"
    )


def main() -> None:
    """Print a line for every rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+")
    store = Home.default().open_store()
    states = [repository.load(store, run) for run in parser.parse_args().runs]
    store.close()
    for least in BLOCKS:
        for perplexity, error in RULES:
            gate = StopRules(perplexity=perplexity, error=error)
            total: Counter[str] = Counter()
            for state in states:
                total.update(tried(state, gate, least))
            what = f"blocks of {least} a domain, gate_perplexity {perplexity:g}, stop_error {error:g}"
            print(_line(what, total, f"{total['elites']} elites of their generation"))
        for error in RACES:
            total = Counter()
            for state in states:
                total.update(raced(state, error, least))
            what = f"blocks of {least} a domain, race at an error of {error:g}"
            print(_line(what, total, f"{total['better']} of the better half"))


if __name__ == "__main__":
    main()
