"""Open tasks of a generation that one process builds: together, recorded as if each were alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from agent_forge.evomerge.merging.builder import Builder
from agent_forge.evomerge.recipes.recipe import Recipe, Source
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import RunState, fold
from agent_forge.evomerge.run.tasks import Build
from agent_forge.evomerge.tasks import context
from agent_forge.evomerge.tasks.context import MergeContext
from agent_forge.evomerge.tasks.estimate import estimate
from agent_forge.evomerge.tasks.execute import carry_out
from agent_forge.runs.history.repository import history
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.decide import open_tasks
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.queue.leases import Leases
from agent_forge.worker.tasks.runner import WorkerProcess
from testing.models.toys import Toys
from testing.worlds import runs


@pytest.fixture(scope="module")
def finished(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunState, RunState]:
    """A run of one generation at its end, and as it was before the first candidate was built."""
    home = Home(tmp_path_factory.mktemp("home"))
    runs.submit(home, toys, generations=1)
    end = runs.finish(home)
    store = home.open_store()
    rows = list(history(store, "r"))
    store.close()
    first = next(i for i, row in enumerate(rows) if row.type == "seeded")
    return end, fold(rows[:first])


def builds(state: RunState) -> list[Build]:
    """The open tasks that build candidates."""
    return [task for task in open_tasks(state) if isinstance(task, Build)]


def bench(state: RunState, folder: Path) -> MergeContext:
    """A run context without anything in its cache."""
    return MergeContext(state, Artifacts(folder))


def recorded(event: object) -> dict[str, object]:
    """An event but for the seconds that it took."""
    assert isinstance(event, events.Seeded)
    return event.model_dump(exclude={"seconds"})


@pytest.mark.slow
def test_a_generation_built_ahead_is_recorded_as_if_built_alone(
    finished: tuple[RunState, RunState], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pass for all, then a task at a time: digests, sketches and recipes are the same."""
    end, before = finished
    tasks = builds(before)
    assert len(tasks) >= 4
    ahead, alone = bench(before, tmp_path / "a"), bench(before, tmp_path / "b")
    ahead.build_ahead([task.proposal.recipe for task in tasks])
    wanted = [recorded(carry_out(task, alone)) for task in tasks]

    def fails(*_: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(Builder, "build", fails)
    found = [carry_out(task, ahead) for task in tasks]
    assert [recorded(event) for event in found] == wanted
    assert all(getattr(event, "seconds") > 0 for event in found)  # noqa: B009
    assert [w["digest"] for w in wanted] == [end.built[str(w["recipe_id"])][0] for w in wanted]


@pytest.mark.slow
def test_a_recipe_that_cannot_be_built_fails_its_own_task_alone(
    finished: tuple[RunState, RunState], tmp_path: Path
) -> None:
    """The others are built and recorded: the pass is not what a task is blamed for."""
    _, before = finished
    good, bad, *_ = builds(before)
    recipe: Recipe = bad.proposal.recipe
    lacking = Source(digest="f" * 64)
    broken = recipe.model_copy(update={"inputs": (lacking.id, lacking.id)})
    own = bench(before, tmp_path / "c")
    own.build_ahead([good.proposal.recipe, broken])
    assert recorded(carry_out(good, own))["recipe_id"] == good.proposal.recipe.id
    with pytest.raises(KeyError, match="not at hand"):
        own.build(broken)


@pytest.mark.slow
def test_the_runner_builds_what_is_open_in_one_pass_and_stops_between_two_tasks(
    finished: tuple[RunState, RunState], toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is stopped after a candidate records no other, and holds no task any more."""
    end, _ = finished
    passes: list[int] = []
    many = Builder.build_many

    def counted(self: Builder, recipes: Sequence[Recipe], *rest: object) -> object:
        passes.extend([len(recipes)] if len(recipes) > 1 else [])
        return many(self, recipes, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Builder, "build_many", counted)
    home = Home(tmp_path)
    runs.submit(home, toys, generations=1)
    store = home.open_store()
    made: list[str] = []
    worker = WorkerProcess(
        store,
        Artifacts.of(home),
        watch=lambda state, rows: made.extend(row.type for row in rows),
        stop=lambda: "seeded" in made,
    )
    state = worker.run("r")
    assert made.count("seeded") == 1
    assert Leases(store.database).held() == {}
    first = [len(state.baselines), len(builds(state)) + 1]
    assert passes == first
    worker.stop = lambda: False
    assert worker.run("r").lineage_digest() == end.lineage_digest()
    # What was built ahead before the stop was not built again; the third pass is generation 1's.
    assert passes[:2] == first
    assert len(passes) == 3
    store.close()


@pytest.mark.slow
def test_every_candidate_of_a_run_is_built_out_of_core_to_the_recorded_digest(
    finished: tuple[RunState, RunState], tmp_path: Path
) -> None:
    """Seeded, mutated and merged ones, their parents in files too: the digests of the log."""
    end, _ = finished
    own = bench(end, tmp_path / "d")
    sources = {r.recipe_id: own.weights(r.recipe_id) for r in _sources(end)}
    (tmp_path / "scratch").mkdir()
    builder = Builder(end.recipes, sources.get, tmp_path / "scratch")
    kinds = set()
    for candidate in end.candidates.values():
        folder = tmp_path / candidate.recipe_id
        if not folder.exists():
            folder.mkdir()
            recipe = end.recipes[candidate.recipe_id]
            assert builder.write(recipe, folder, 50_000) == candidate.digest, recipe
            kinds.add(recipe.kind)
    assert {"pipeline", "mutate", "merge"} <= kinds | {r.kind for r in end.recipes.values()}
    assert len(kinds) > 1


def _sources(state: RunState) -> tuple[events.SourceRecord, ...]:
    assert state.started
    return (state.started.base, *state.started.sources)


@pytest.mark.slow
@pytest.mark.parametrize(("most", "population", "together"), [(8, 8, 8), (2, 8, 2), (8, 1, 4)])
def test_a_forecast_holds_as_many_models_as_the_run_builds_together(
    finished: tuple[RunState, RunState],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    population: int,
    together: int,
) -> None:
    """`--dry-run` says what its trial takes: as a generation's candidates, or the four fixed merges."""
    state, _ = finished
    weights = sum(t.numel() * t.element_size() for t in bench(state, tmp_path).origin.values())
    monkeypatch.setattr(context, "TOGETHER", most * weights)
    passes: list[int] = []
    many = Builder.build_many

    def counted(self: Builder, recipes: Sequence[Recipe]) -> object:
        passes.append(len(recipes))
        return many(self, recipes)

    monkeypatch.setattr(Builder, "build_many", counted)
    config = state.submitted.config
    search = config.search.model_copy(update={"population_size": population})
    config = config.model_copy(update={"search": search})
    estimate(state.submitted.model_copy(update={"config": config}))
    assert max(passes) == together
