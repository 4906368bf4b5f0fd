"""Strategies: rebuilt from the log, decided by nothing else; what each of them does to a population."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from cmaes import CMA
from pydantic import Field

from agent_forge.evaluation.data.outcomes import DomainOutcomes
from agent_forge.evomerge import search, search_settings
from agent_forge.evomerge.config import OPEN_END, parse
from agent_forge.evomerge.recipes.recipe import Grouped, Recipe
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run import state as budget
from agent_forge.evomerge.run.rules import decide as ranking
from agent_forge.evomerge.run.rules.decide import proposals
from agent_forge.evomerge.run.state import RunState, fold
from agent_forge.evomerge.run.tasks import Build, Evaluate
from agent_forge.evomerge.search.genes import mutation
from agent_forge.evomerge.search.genes.genome import Space, consensus
from agent_forge.evomerge.search.strategies import niching
from agent_forge.evomerge.search.strategies.auto import Auto
from agent_forge.evomerge.search.strategies.cma_es import CmaEs, Distribution, mask_seed
from agent_forge.evomerge.search.strategy import Generation, Measurements, Past, Proposal, SourceFamily
from agent_forge.evomerge.search_settings import AutoSearch
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, StrategyError
from agent_forge.runs.history import audit
from agent_forge.runs.kinds.decide import decide
from agent_forge.runs.kinds.state import evolve
from testing.worlds.fake_world import BASE, POOLS, SOURCES, World, quality, small

NAMES = ("elite-loser", "tournament", "cma-es", "nsga2", "auto")
CONTINUOUS = NAMES[1:]


def config(name: str, **changes: object):
    size = 4 if name == "elite-loser" else 5
    return small(**{"strategy": name, "population_size": size, "generations": 3, **changes})


@pytest.fixture(scope="module", params=NAMES)
def finished(request: pytest.FixtureRequest) -> World:
    world = World(config(request.param))
    world.run()
    return world


def test_a_run_ends_and_its_log_audits(finished: World) -> None:
    assert finished.state.completed
    assert audit.audit(finished.rows) == []


def test_arrival_order_does_not_matter(finished: World) -> None:
    given = finished.state.submitted
    assert given
    other = World(given.config)
    other.run(order=lambda tasks: list(reversed(tasks)))
    assert other.state.lineage_digest() == finished.state.lineage_digest()


def test_every_prefix_of_the_log_asks_for_what_then_happened(finished: World) -> None:
    """Folded anew each time, so that nothing remembered can help."""
    rows = finished.rows
    for place in range(0, len(rows), 7):
        fresh, carried = fold(rows[: place + 1]), RunState()
        for event in events.REGISTRY.load_each(rows[: place + 1]):
            carried = evolve(carried, event[1])
        assert [t.key for t in decide(fresh).tasks] == [t.key for t in decide(carried).tasks]


def test_what_was_remembered_is_what_is_worked_out_anew(finished: World) -> None:
    state = finished.state
    for generation in state.generations:
        asked = proposals(fold(finished.rows), generation)
        for proposal in asked:
            assert state.candidates[generation, proposal.slot].recipe_id == proposal.recipe.id


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_other_seeds_ask_for_other_candidates(name: str) -> None:
    worlds = [World(config(name, seed=seed)) for seed in (1, 2)]
    ids = []
    for world in worlds:
        world.run()
        ids.append({c.recipe_id for (g, _), c in world.state.candidates.items() if g > 0})
    assert not ids[0] & ids[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTINUOUS)
def test_a_candidate_that_nobody_survives_costs_only_itself(name: str) -> None:
    world = World(config(name), quarantine="worst-fitness")
    state = world.poison("build/1/0", "build/2/1")
    assert state.completed, state.failed
    assert (1, 0) not in state.candidates
    assert audit.audit(world.rows) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTINUOUS)
def test_candidates_without_fitness_are_the_last(name: str) -> None:
    """A third of all models give NaN."""

    def often_broken(id_: str) -> float | None:
        ours = id_ not in {s.id for s in SOURCES}
        return None if ours and quality(id_) > 2.2 else quality(id_)

    world = World(config(name, seed=5), quality=often_broken)
    state = world.run()
    assert any(e.fitness is None and e.why_none for e in state.evaluations.values())
    assert state.completed or state.failed
    assert audit.audit(world.rows) == []


# ---- a world in which there is something to find ----------------------------------------------

#: Weights on the sources' task vectors that are best.
GOAL = (0.9, 0.1, 0.5)


class Bowl(World):
    """Nats a token grow with the distance from GOAL."""

    def answer(self, task):
        if isinstance(task, Build):
            self.known[task.proposal.recipe.id] = task.proposal.recipe
        if isinstance(task, Evaluate):
            self.quality = self.rate
        return super().answer(task)

    known: dict[str, Recipe]

    def __init__(self, *given) -> None:
        self.known = {s.id: s for s in SOURCES}
        super().__init__(*given)

    def rate(self, id_: str) -> float:
        recipe = {**self.state.recipes, **self.known}[id_]
        weights = consensus(recipe, self.state.recipes, [s.id for s in SOURCES])
        return 1.5 + sum((a - b) ** 2 for a, b in zip(weights, GOAL, strict=True))


def distance(world: Bowl) -> float:
    assert world.state.champion
    return world.rate(world.state.champion) - 1.5


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTINUOUS)
def test_a_strategy_finds_what_there_is_to_find(name: str) -> None:
    """Much nearer than the best static merge, which is 0.2 away."""
    own: dict[str, dict[str, object]] = {
        "auto": {},
        "cma-es": {"genome_detail": "whole", "search_sigma": 0.15},
        "nsga2": {"genome_detail": "whole"},
        "tournament": {"genome_detail": "whole", "mutation": "genes", "gene_sigma": 0.3},
    }
    world = Bowl(config(name, generations=25, population_size=8, **own[name]))
    world.run()
    assert distance(world) < 0.05


@pytest.mark.slow
def test_auto_goes_from_few_genes_to_many() -> None:
    world = Bowl(config("auto", generations=40, population_size=6))
    world.run()
    kinds = []
    for generation in sorted(world.state.generations):
        recipe = world.state.candidates[generation, 0].recipe
        assert isinstance(recipe, Grouped)
        kinds.append(len({str(p) for p in recipe.params}))
    assert kinds[1] == 1
    assert max(kinds) >= 5
    assert kinds == sorted(kinds) or "ties" in {c.recipe.name for c in world.state.candidates.values()}


def test_auto_judges_means_and_not_lucky_samples() -> None:
    world = World(config("auto"))
    state = world.run()
    for change in state.champions[1:]:
        slots = {c.recipe_id: slot for (g, slot), c in state.candidates.items()}
        assert slots[change.recipe_id] in range(6)
    judged = {id_ for id_, slice_, _ in state.evaluations if slice_ == "selection"}
    samples = {c.recipe_id for (g, slot), c in state.candidates.items() if g > 0 and slot < 5}
    assert not judged & samples


# ---- distributions ------------------------------------------------------------------------------


def past(generations, recipes: Mapping[str, Recipe], settings) -> Past:
    nothing = Measurements(lambda key: None, lambda key: None, lambda key: None)
    family = SourceFamily(tuple(s.id for s in SOURCES), "base", 6)
    return Past(
        family=family,
        settings=lambda g: settings,
        recipes=recipes,
        generations=tuple(generations),
        since=0,
        champion=None,
        reseeded=frozenset(),
        measured=nothing,
    )


def test_the_distribution_is_that_of_the_package() -> None:
    """Asked and told without a log in between, cmaes has the same mean."""
    settings = parse({"strategy": "cma-es", "population_size": 6, "genome_detail": "whole", "seed": 4})
    start = past([], {}, settings)
    space = Space(start.family, "task_arithmetic", "whole", 4)
    plain = CMA(np.full(3, (1 / 3 + 0.5) / 2), 0.1, np.array([[0.0, 1.0]] * 3), population_size=6)
    recipes: dict[str, Recipe] = {}
    done: list[Generation] = []
    for number in range(5):
        now = past(done, recipes, settings)
        asked = [p.recipe for p in CmaEs().ask(now)]
        assert [p.recipe for p in CmaEs().ask(now)] == asked
        recipes |= {r.id: r for r in asked}
        points = [space.point(r, recipes) for r in asked]
        scores = [-float(np.square(np.array(x) - 0.7).sum()) for x in points]
        order = sorted(range(6), key=lambda i: -scores[i])
        plain.tell([(np.array(x), -s) for x, s in zip(points, scores, strict=True)])
        done.append(
            Generation(
                number=number,
                slots=dict(enumerate(r.id for r in asked)),
                ranking=tuple(asked[i].id for i in order),
                scores=tuple(scores[i] for i in order),
                parents={},
                dropped=frozenset(),
            )
        )
        found = CmaEs().finalists(past(done, recipes, settings))[0]
        assert not isinstance(found, str)
        expected = space.recipe([float(v) for v in plain.mean], mask_seed(settings))
        assert found.recipe == expected
        assert found.slot == 6
    assert np.abs(plain.mean - 0.7).max() < 0.15


def test_a_missing_candidate_is_told_as_the_last() -> None:
    settings = parse({"strategy": "cma-es", "population_size": 4, "genome_detail": "whole"})
    asked = [p.recipe for p in CmaEs().ask(past([], {}, settings))]
    recipes = {r.id: r for r in asked}
    whole = Generation(
        0, dict(enumerate(recipes)), tuple(recipes), (4.0, 3.0, 2.0, 1.0), {}, frozenset()
    )
    ids = list(recipes)
    holed = replace(
        whole, slots={0: ids[0], 1: ids[1], 2: ids[2]}, ranking=tuple(ids[:3]), scores=(4.0, 3.0, 2.0)
    )
    told = [CmaEs().finalists(past([g], recipes, settings)) for g in (whole, holed)]
    assert told[0] == told[1]


@pytest.mark.parametrize("name", ["auto", "cma-es"])
def test_one_gene_is_no_distribution_so_there_are_more_cells(name: str) -> None:
    """Slerp of two sources has one gene for everything, and five by part."""
    settings = parse(
        {"strategy": name, "population_size": 4, "species": ["slerp"], "genome_detail": "whole"}
    )
    told = past([], {}, settings)
    told = replace(told, family=SourceFamily(told.family.sources[:2], "base", 6))
    who = search.strategy(search.current(settings))
    first = [p.recipe for p in who.ask(told)]
    recipes = {r.id: r for r in first}
    done = bred(0, dict.fromkeys(recipes, (1.0, ())))
    again = search.strategy(search.current(settings)).ask(
        replace(told, generations=(done,), recipes=recipes)
    )
    assert len({str(p) for p in again[0].recipe.params}) == 5  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("rate", [None, 6.0])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_a_run_whose_candidates_are_all_lost_ends(name: str, rate: float | None) -> None:
    ours = {s.id for s in SOURCES} | {BASE.id}
    world = World(config(name, generations=2), quality=lambda id_: 1.8 if id_ in ours else rate)
    state = world.run()
    assert state.completed or state.failed
    assert audit.audit(world.rows) == []


@pytest.mark.parametrize("name", ["auto", "cma-es"])
def test_a_late_result_does_not_ask_for_another_mean(name: str) -> None:
    """The mean was built while an evaluation was in quarantine, which then comes after all."""
    world = World(config(name), quarantine="worst-fitness")
    world.run_until(lambda state: state.generation == 1)
    world.step()
    victim = next(t for t in decide(world.state).tasks if isinstance(t, Evaluate))
    for _ in range(3):
        world.die(victim.key)
    while (1, 5) not in world.state.candidates:
        world.step()
    world.complete(victim)
    state = world.run()
    assert state.completed
    assert audit.audit(world.rows) == []


def test_a_distribution_of_one_gene_is_refused() -> None:
    family = SourceFamily(("a", "b"), "base", 4)
    with pytest.raises(ValueError, match="two genes"):
        Distribution.at(Space(family, "slerp", "whole", 2), [0.5], 0.1, 4)


def test_auto_takes_more_cells_where_means_get_no_better() -> None:
    """Every model is alike: three means of one cell, three of layer groups, then all cells."""
    given = config("auto", species=["ties"], generations=8, layer_groups=2)
    world = World(given, quality=lambda _: 1.0)
    state = world.run()
    counts = {}
    for (generation, slot), candidate in state.candidates.items():
        recipe = state.recipes[candidate.recipe_id]
        assert isinstance(recipe, Grouped)
        if slot < given.search.population_size:
            cells = len({str(p) for p in recipe.params})
            counts[generation] = max(counts.get(generation, 0), cells)
    assert [counts[g] for g in range(1, 9)] == [1, 1, 1, 2, 2, 2, 8, 8]
    assert audit.audit(world.rows) == []


def test_auto_begins_anew_at_the_best_of_its_means() -> None:
    """Of a species' seed and means, what the selection slice liked best."""
    world = Bowl(config("auto", species=["task_arithmetic"], generations=12, population_size=8))
    state = world.run()
    own = ranking.told(state, 12)
    arms = Auto()._arms(own)
    assert arms[0].score == max(v for v in arms[0].values if v is not None)
    assert arms[0].score > arms[0].values[0]


# ---- parts --------------------------------------------------------------------------------------


def test_attraction_by_hand() -> None:
    """Two items; a and b solve the first, c the second alone."""
    table = {"a": [1.0, 0.0], "b": [1.0, 0.0], "c": [0.0, 0.5]}
    assert niching.attraction(table, "a", "c") == pytest.approx(1.0)
    assert niching.attraction(table, "a", "b") == 0.0
    assert niching.attraction({"a": [0.0], "b": [0.0]}, "a", "b") == 0.0


def test_niching_pairs_with_who_brings_most() -> None:
    """C is the worst on the average, and alone in what the first lacks."""
    reached = {"a": (0.9, 0.1), "b": (0.95, 0.12), "c": (0.05, 0.8)}

    def outcomes(key):
        nll = tuple(-10 * math.log(p) for p in reached[key[0]])
        return {"d": DomainOutcomes(nll=nll, tokens=(10, 10), hits=(0, 0))}

    settings = parse({"strategy": "tournament", "niching": "attraction"})
    told = past([bred(0, dict.fromkeys(reached, (1.0, ())))], {}, settings)
    told = replace(told, measured=replace(told.measured, outcomes=outcomes))
    assert niching.complement(told, "a", ["b", "c"]) == "c"
    assert niching.complement(told, "c", ["a", "b"]) == "b"


def test_shares_by_hand() -> None:
    """Two solve the first item, a third the second: each item is worth one, whoever reaches it."""
    table = {"a": [1.0, 0.0], "b": [1.0, 0.0], "c": [0.0, 0.5]}
    assert niching.shared(table) == {"a": 0.5, "b": 0.5, "c": 1.0}
    assert niching.shared({"a": [0.0], "b": [0.0]}) == {"a": 0.0, "b": 0.0}


def test_who_is_alone_in_something_goes_first() -> None:
    """C is the last on the average; D ended early, and E was not measured."""
    reached = {"a": (0.9, 0.1, 0.5), "b": (0.95, 0.12, 0.5), "c": (0.05, 0.8, 0.3), "d": (0.99, 0.9)}

    def outcomes(key):
        own = reached.get(key[0], ())
        nll = tuple(-10 * math.log(p) for p in own)
        tokens = (10,) * len(own)
        return {"d": DomainOutcomes(nll=nll, tokens=tokens, hits=(0,) * len(own))} if own else {}

    children = dict(zip("abcde", ((s, ()) for s in (4.0, 5.0, 3.0, 2.0, 1.0)), strict=True))
    told = past([bred(0, children)], {}, parse({"strategy": "tournament", "niching": "sharing"}))
    told = replace(told, measured=replace(told.measured, outcomes=outcomes))
    assert niching.by_share(told) == ["c", "b", "a", "d", "e"]


@pytest.mark.parametrize("kind", ["attraction", "sharing", "both"])
def test_niching_audits(kind: str) -> None:
    world = World(config("tournament", population_size=8, crossover_rate=1.0, niching=kind))
    pairs = [c.parents for c in world.run().candidates.values() if isinstance(c, events.Crossed)]
    assert pairs
    assert all(len(set(pair)) == 2 for pair in pairs)
    assert audit.audit(world.rows) == []


def bred(number: int, children: dict[str, tuple[float, tuple[str, ...]]]) -> Generation:
    ranking = sorted(children, key=lambda id_: -children[id_][0])
    return Generation(
        number=number,
        slots=dict(enumerate(children)),
        ranking=tuple(ranking),
        scores=tuple(children[i][0] for i in ranking),
        parents={slot: children[i][1] for slot, i in enumerate(children)},
        dropped=frozenset(),
    )


@pytest.mark.parametrize(("better", "expected"), [(5, 1.6487), (1, 1.0), (0, 0.8825)])
def test_mutation_follows_its_success(better: int, expected: float) -> None:
    """Five children; e^(0.5 · (share − 0.2) / 0.8)."""
    settings = parse({"strategy": "tournament", "adaptive_mutation": True})
    first = bred(0, {"p": (1.0, ())})
    children = {f"c{i}": (2.0 if i < better else 0.5, ("p",)) for i in range(5)}
    told = past([first, bred(1, children)], {}, settings)
    assert mutation.strength(told) == pytest.approx(expected, abs=1e-4)
    assert mutation.strength(past([first], {}, parse({"strategy": "tournament"}))) == 1.0


def test_techniques_earn_by_being_in_the_better_half() -> None:
    settings = parse({"strategy": "tournament", "technique_selection": "earned"})
    family = SourceFamily(tuple(s.id for s in SOURCES), "base", 6)
    recipes: dict[str, Recipe] = {}
    for name in ("ties", "task_arithmetic"):
        for i in range(2):
            recipe = Space(family, name, "whole", 2).recipe([0.1 * i + 0.4] * 4)
            recipes[f"{name}{i}"] = recipe
    scores = {"ties0": 4.0, "ties1": 3.0, "task_arithmetic0": 2.0, "task_arithmetic1": 1.0}
    told = past([bred(0, {k: (v, ()) for k, v in scores.items()})], recipes, settings)
    assert mutation.earned(told) == {"ties": (2, 2), "task_arithmetic": (0, 2)}
    draws = iter([0.0, 0.74, 0.76, 0.99])

    class Fixed:
        def uniform(self) -> float:
            return next(draws)

    found = [mutation.chosen(told, ["ties", "task_arithmetic"], Fixed()) for _ in range(4)]  # pyright: ignore[reportArgumentType]
    assert found == ["ties", "ties", "task_arithmetic", "task_arithmetic"]


@pytest.mark.parametrize("name", ["elite-loser", "tournament"])
def test_options_of_the_population_strategies_audit(name: str) -> None:
    world = World(config(name, adaptive_mutation=True, technique_selection="earned", generations=4))
    world.run()
    assert world.state.completed
    assert audit.audit(world.rows) == []


# ---- budgets ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("limit", ["max_evaluations", "max_items"])
def test_a_budget_ends_the_search_before_it_is_exceeded(name: str, limit: str) -> None:
    value = {"max_evaluations": 60, "max_items": 900}[limit]
    world = World(config(name, generations=500, **{limit: value}))
    state = world.run()
    assert state.converged
    assert state.converged.reason == limit.removeprefix("max_")
    closed = [g for g in state.closed if g >= 0]
    spent = getattr(state.closed[max(closed)], limit.removeprefix("max_"))
    last = spent - getattr(state.closed[max(closed) - 1], limit.removeprefix("max_"))
    assert spent <= value < spent + last
    assert audit.audit(world.rows) == []


def test_items_are_counted_one_by_one() -> None:
    world = World(config("auto"))
    state = world.run()
    counted = [e for k, e in state.evaluations.items() if k[1] in ("search", "selection")]
    assert state.spent.evaluations == len(counted)
    assert state.spent.items == sum(budget.items(e.outcomes) for e in counted)


def test_hours_are_those_of_tasks_and_of_the_clock() -> None:
    """Every task of this world says that it took a second; its clock stands still."""
    state = World(config("auto", generations=500, max_device_hours=0.02)).run()
    assert state.converged
    assert state.converged.reason == "device_hours"
    assert state.spent.wall == 0
    last = state.closed[max(state.closed)].device
    assert last <= 72
    first = budget.SearchSpent()
    limited = config("auto", max_hours=1.0)
    assert budget.exhausted(limited, replace(first, wall=3000.0), replace(first, wall=600.0)) is None
    over = budget.exhausted(limited, replace(first, wall=3100.0), replace(first, wall=600.0))
    assert over == "hours"


def test_a_budget_for_the_whole_run_leaves_time_for_the_report() -> None:
    """Seven models, each on the whole test slice, at the seconds that an item took so far."""
    world = World(config("auto", budget_hours=1.0))
    world.run_until(lambda state: state.generation == 2)
    state = world.state
    state.spent = replace(state.spent, wall=2 * state.spent.device)
    done = list(state.evaluations.values())
    each = sum(e.seconds for e in done) / sum(budget.items(e.outcomes) for e in done)
    size = sum(p.windows + p.questions + p.problems for p in POOLS.values())
    report = ranking.report_seconds(state)
    assert report == pytest.approx(2 * each * size * (2 + 3 + len(state.baselines)))
    limited, spent = config("auto", budget_hours=1.0), budget.SearchSpent(wall=3000.0)
    last = budget.SearchSpent(wall=500.0)
    assert budget.exhausted(limited, spent, last, 100.0) is None
    assert budget.exhausted(limited, spent, last, 101.0) == "hours"


def test_a_run_with_only_a_budget_is_shown_by_its_time() -> None:
    """Its ten thousand generations are no goal: 3 of 10,001 would be no progress."""
    world = World(config("auto", budget_hours=2.0, generations=OPEN_END))
    world.run_until(lambda state: state.generation == 1)
    state, kind = world.state, kinds.of("evomerge")
    state.closed[0] = replace(state.closed[0], wall=1800.0)
    assert kind.view.progress(state) == (1, None)
    told = kind.view.message(state)
    assert (told["generation"], told["generations"], told["progress"]) == (0, None, 0.25)
    assert kind.view.fields(state)["generations_wanted"] is None
    limited = World(config("auto", budget_hours=2.0, generations=4))
    limited.run_until(lambda state: state.generation == 3)
    assert kind.view.progress(limited.state) == (3, 5)
    assert kind.view.message(limited.state)["progress"] == 0.5


def test_the_clock_counts_between_events_and_stops_while_a_run_is_paused() -> None:
    world = World(config("auto"))
    world.run_until(lambda state: state.generation == 1)
    times = []
    for i, row in enumerate(world.rows):
        minute = f"2026-01-01T{i // 60:02d}:{i % 60:02d}:00.000000+00:00"
        times.append(row._replace(recorded_at=minute))
    state = fold(times)
    started = next(i for i, row in enumerate(times) if row.type == "started")
    assert state.spent.wall == 60 * (len(times) - 1 - started)


def test_a_clock_that_was_set_back_takes_no_time_away() -> None:
    """An hour back in the middle of a run gave negative wall seconds, and a budget without an end."""
    from agent_forge.evomerge.reports import report

    world = World(config("auto"))
    world.run_until(lambda state: state.generation == 1)
    started = next(i for i, row in enumerate(world.rows) if row.type == "started")
    half, times = (started + len(world.rows)) // 2, []
    for i, row in enumerate(world.rows):
        minute = f"2026-01-01T{i // 60 + (5 if i < half else 4):02d}:{i % 60:02d}:00.000000+00:00"
        times.append(row._replace(recorded_at=minute))
    assert fold(times).spent.wall == 60 * (len(times) - 2 - started)
    assert report.wall_seconds(times) == 60 * (len(times) - 2)


# ---- the registry -------------------------------------------------------------------------------


class Point:
    """An entry point."""

    def __init__(self, name: str, value: object) -> None:
        self.name, self.value = name, value

    def load(self) -> object:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class Mine(Auto):
    """Somebody's own."""

    version = "mine@3"


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch):
    def register(*given: Point) -> None:
        monkeypatch.setattr(search_settings, "entry_points", lambda group: list(given))
        forget()

    def forget() -> None:
        search.registered.cache_clear()
        search_settings.plugins.cache_clear()

    yield register
    forget()


def test_a_registered_strategy_decides_a_run(points) -> None:
    points(Point("mine", Mine))
    world = World(config("mine"))
    state = world.run()
    assert state.started
    assert state.started.strategy == "mine@3"
    assert audit.audit(world.rows) == []


class OwnSettings(AutoSearch):
    """A setting more than auto has."""

    heat: float = Field(default=0.5, gt=0)


class Hot(Mine):
    """A strategy of a package, with settings of its own."""

    settings = OwnSettings

    def ask(self, past: Past) -> list[Proposal]:
        """Propose what auto does; the settings are those of this strategy's model."""
        assert past.config.search_as(OwnSettings).heat == 0.25
        return super().ask(past)


def test_a_registered_strategy_has_settings_of_its_own(points) -> None:
    """They are checked by its model, recorded, and given to it."""
    points(Point("mine", Hot))
    given = config("mine", search={"heat": 0.25})
    assert given == config("mine", heat=0.25)
    world = World(given)
    assert world.run().completed
    assert audit.audit(world.rows) == []
    assert world.state.submitted
    assert world.state.submitted.config.flat()["heat"] == 0.25
    for wrong, message in (
        ({"heat": -1}, r"setting heat: .*greater than 0"),
        ({"niching": "both"}, "niching belongs to tournament, not to strategy mine"),
        ({"search": {"cold": 1}}, "setting cold is not known"),
    ):
        with pytest.raises(ConfigError, match=message):
            search.current(config("mine", **wrong))


def test_a_log_is_read_without_the_package_of_its_strategy(points) -> None:
    """Its settings stay as they were recorded; the same with a package that lacks one of them."""
    points(Point("mine", Hot))
    recorded = config("mine", heat=0.25).model_dump(mode="json")
    points()
    assert parse(recorded).model_dump(mode="json") == recorded
    points(Point("mine", Mine))
    assert parse(recorded).model_dump(mode="json") == recorded
    with pytest.raises(StrategyError, match="are not those that it has here"):
        parse(recorded).search_as(AutoSearch)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (ImportError("no torch"), "mine cannot be loaded: no torch"),
        (dict, "mine is no subclass"),
        (Auto, "mine says that its version is auto@2"),
    ],
)
def test_a_strategy_that_is_none_is_named(points, value: object, message: str) -> None:
    points(Point("mine", value))
    with pytest.raises(StrategyError, match=message):
        search.current(config("mine"))


def test_a_strategy_that_is_gone_is_named(points) -> None:
    points(Point("mine", Mine))
    world = World(config("mine"))
    world.run_until(lambda state: state.generation == 1)
    points()
    state = fold(world.rows)
    assert state.status == "running"
    with pytest.raises(StrategyError, match="mine@3 is not in this program"):
        decide(state)
    assert {finding.level for finding in audit.audit(world.rows)} == {"unchecked"}
    with pytest.raises(StrategyError, match=r"mine@3 is not in this program, which has .*auto@1"):
        search.strategy("mine@3")
    with pytest.raises(ConfigError, match=r"there is auto, elite-loser.*; it is 'mine'"):
        search.current(config("mine"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"strategy": "cma-es", "population_size": 3},
            "strategy cma-es: population_size must be at least 4",
        ),
        ({"strategy": "auto", "population_size": 2}, "strategy auto: population_size"),
        ({"strategy": "nsga2", "objectives": ["accuracy"]}, "two things or more"),
        ({"strategy": "nsga2", "population_size": 2}, "at least 4"),
        ({"strategy": "tournament", "elite_size": 8}, "leave no room for children"),
    ],
)
def test_settings_that_do_not_suit_a_strategy_are_named(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        search.current(parse(settings))
