"""Savings and costs of early stopping, computed for runs that measured everything.

    FORGE_HOME=… python -m benchmarks.evomerge.gates RUN …

A run's log has every candidate's outcomes window by window, so every rule can be tried on them
afterwards: which evaluations would have ended after which block, and how many windows would not
have been read. Counted too are stopped candidates that became an elite of their generation or the
champion.
"""

from __future__ import annotations

import argparse
from collections import Counter

from agent_forge.evaluation.data import outcomes
from agent_forge.evomerge.fitness import early_stopping
from agent_forge.evomerge.fitness.early_stopping import StopRules
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home

#: (gate_perplexity, stop_error)
RULES = ((2.0, 0.0), (0.0, 0.01), (0.0, 0.05), (0.0, 0.2), (2.0, 0.05))
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
        parts = early_stopping.blocks(draws, least, seed, "blocks", slice_, str(generation))
        whole = sum(len(draw.windows) for draw in draws.values())
        read = whole
        for number in range(1, len(parts)):
            scored = outcomes.joined(parts[:number])
            seen = outcomes.narrowed(event.outcomes, draws, scored)
            if early_stopping.reason(gate, seen, state.sources_on(slice_, scored), len(parts) - 1):
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
            saved = 1 - total["read"] / total["windows"]
            print(
                f"blocks of {least} a domain, gate_perplexity {perplexity:g}, stop_error {error:g}: "
                f"{total['stopped']} of {total['evaluations']} ended early, {saved:.1%} of windows "
                f"saved; among them {total['elites']} elites of their generation, "
                f"{total['champions']} champions"
            )


if __name__ == "__main__":
    main()
