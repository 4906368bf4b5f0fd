"""A run without data is measured on built-in items, as many as its models can afford."""

from __future__ import annotations

from collections import Counter

import pytest

from agent_forge.evaluation.data.builtin import corpus
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.tasks.context import MergeContext
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import submit as plans
from testing.models.toys import Toys


def counts(bench: MergeContext) -> dict[str, dict[str, int]]:
    """Domain → slice → items."""
    found: dict[str, Counter[str]] = {}
    for item in bench._measurable[0]:
        found.setdefault(item.domain, Counter())[item.slice] += 1
    return {domain: dict(own) for domain, own in found.items()}


@pytest.mark.slow
def test_check_and_run_take_the_items_that_fit_the_models(
    toys: Toys, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `forge check` counts is what a run is measured on; larger models get fewer of them.

    Items that are longer than the toys' context are left out, and that is said.
    """
    monkeypatch.setattr(corpus, "CHARACTERS", 1_000_000)
    sources = [str(path) for path in toys.sources]
    plan = plans.plan(RunRequest("evomerge", {}, {"sources": sources, "base": [str(toys.base)]}))
    assert plan.fields["data"] == ()
    state = RunState()
    state.take(events.Submitted(run="r", owner="o", config=plan.config, **plan.fields))
    totals = []
    for most in (corpus.FULL_UP_TO, 1):  # as if the toys were far beyond
        monkeypatch.setattr(corpus, "FULL_UP_TO", most)
        found = counts(MergeContext(state, Artifacts(tmp_path)))
        checked = plans.check(plan)
        assert found == {d: {s: n for s, n in own.items() if n} for d, own in checked.items.items()}
        assert "longer than 64 tokens and left out" in " ".join(checked.warnings)
        totals.append(sum(sum(own.values()) for own in found.values()))
    assert totals[1] < totals[0] / 4
