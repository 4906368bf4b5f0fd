"""What a run says for itself, computed from the log alone; and finding runs and candidates in it."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

import pytest

from agent_forge.cli.evomerge.evo import evo_command
from agent_forge.cli.options import setting
from agent_forge.evaluation.measures.bootstrap import Comparison
from agent_forge.events.databases.sqlite import open_store
from agent_forge.evomerge.recipes.recipe import label
from agent_forge.evomerge.reports import generation_rows, report
from agent_forge.evomerge.reports.pictures import plot
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views import candidates, wording
from agent_forge.evomerge.search import diversity
from agent_forge.evomerge.tasks.results import champion
from agent_forge.runs import kinds
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.history import repository
from agent_forge.runs.streams import stream
from testing.worlds import fake_world
from testing.worlds.fake_world import BASE, RUN, SOURCES, World, small
from tests.unit.evomerge.reports.test_words import being


@pytest.fixture(scope="module")
def finished() -> World:
    """A finished run of eight candidates, so that all pipelines are there."""
    world = World(small(population_size=8, elite_size=2, generations=2))
    world.run()
    return world


def with_leads(state: RunState, leads: dict[str, tuple[float, float]]) -> RunState:
    """The state with other intervals for some rivals."""
    assert state.completed
    rivals = []
    for rival in state.completed.rivals:
        low, high = leads.get(rival.name, (0.1, 0.3))
        lead = Comparison(difference=(low + high) / 2, low=low, high=high)
        rivals.append(rival.model_copy(update={"lead": lead}))
    after = RunState(**vars(state))
    after.completed = state.completed.model_copy(update={"rivals": tuple(rivals)})
    return after


# ---- numbers -------------------------------------------------------------------------------


def test_metrics_are_those_of_the_documents(finished: World):
    """The improvement is the last champion's score over the first's; as a fraction (0.235)."""
    state = finished.state
    found = report.metrics(state)
    first, last = state.champions[0].score, state.champions[-1].score
    assert found["initial_fitness"] == first
    assert found["best_fitness"] == last
    assert found["improvement"] == last - first
    assert found["improvement_pct"] == pytest.approx(last / first - 1)
    assert found["generations_run"] == 2
    assert found["convergence_reason"] == "generations"
    assert found["final_diversity"] == state.diversities[2].diversity
    assert found["best_combo"] == report.pipeline_number(state, state.champion or "")
    assert sum(found["combo_usage"].values()) == 3 * 8
    assert all(count >= 1 for count in found["combo_usage"].values())


def test_a_run_that_has_only_begun_has_empty_metrics():
    """None where there is nothing yet; the report of a running job must not fail."""
    world = World()
    world.step()
    found = report.metrics(world.state)
    assert found["best_fitness"] is None
    assert found["improvement_pct"] is None
    assert found["generations_run"] == 0
    assert found["final_diversity"] is None
    data = report.report(world.state, world.rows)
    assert data["status"] == "running"
    assert "verdict" not in data


def test_sources_and_baselines_have_no_pipeline_number(finished: World):
    """They were not made by one."""
    assert report.pipeline_number(finished.state, SOURCES[0].id) is None
    assert report.pipeline_number(finished.state, finished.state.baselines["mean"]) is None


def test_a_stage_s_effect_is_the_mean_distance_of_the_pairs_that_differ_in_it(finished: World):
    """Four of the 28 pairs for each bit, relative to the plain mean's task vector."""
    state = finished.state
    sketches = {
        report.pipeline_number(state, c.recipe_id): c.sketch
        for (generation, _), c in state.candidates.items()
        if generation == 0
    }
    mean = diversity.decode(state.built[state.baselines["mean"]][1])
    unit = math.sqrt(float(mean @ mean))
    found = report.bit_effects(state)
    for stage, bit in (("interpolation", 4), ("task arithmetic", 2), ("selection", 1)):
        pairs = [(n, n ^ bit) for n in range(8) if not n & bit]
        assert len(pairs) == 4
        total = sum(diversity.distance(sketches[a], sketches[b]) for a, b in pairs)
        assert found[stage] == pytest.approx(total / 4 / unit)
    assert report.bit_effects(World().state) == {}


def test_time_is_what_the_tasks_measured(finished: World):
    """Every invented task took one second; the invented clock stands still."""
    found = report.spent(finished.state, finished.rows)
    types = [row.type for row in finished.rows]
    assert found["evaluating"] == types.count("evaluated")
    assert found["building"] == 4 + 3 * 8
    assert found["measuring speed"] == 1
    assert found["choosing layers"] == types.count("layers_chosen") > 0
    assert report.wall_seconds(finished.rows) == 0


def test_generations_are_rows_of_their_scores(finished: World):
    """Best and mean of those that have a score; NaN candidates do not count."""
    for row, (number, done) in zip(
        generation_rows.rows(finished.state), sorted(finished.state.generations.items()), strict=True
    ):
        scores = [s for s in done.scores if s is not None]
        assert row["generation"] == number
        assert row["best"] == scores[0]
        assert row["mean"] == pytest.approx(sum(scores) / len(scores))
        assert row["champion_id"] in finished.state.recipes
    nothing = World(quality=lambda id_: 2.0 if id_ in {s.id for s in SOURCES} else None).run()
    assert [row["best"] for row in generation_rows.rows(nothing)] == [None] * 3


# ---- the verdict ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leads", "words"),
    [
        ({}, "is better than every source and the base on the test slice. It is better than the best"),
        ({"b": (-0.1, 0.2)}, "NO CLEAR GAIN: on the test slice the champion is level with b."),
        ({"base": (0.0, 0.2)}, "NO CLEAR GAIN: on the test slice the champion is level with base."),
        (
            {"a": (-0.1, 0.2), "b": (-0.4, -0.1), "c": (-0.3, -0.2)},
            "NO CLEAR GAIN: on the test slice the champion is worse than b, c and level with a.",
        ),
        ({"best": (-0.1, 0.1)}, "It is level with the best fixed merge"),
        ({"best": (-0.3, -0.1)}, "It is worse than the best fixed merge"),
    ],
)
def test_the_verdict_says_what_the_intervals_say(
    finished: World, leads: dict[str, tuple[float, float]], words: str
):
    """Better: the lower bound is above zero, against each; a run that fails this says so."""
    assert finished.state.completed
    baselines = [r for r in finished.state.completed.rivals if r.kind == "baseline"]
    best = max(baselines, key=lambda r: r.scalar or 0).name
    state = with_leads(finished.state, {best if k == "best" else k: v for k, v in leads.items()})
    assert words in report.sentence(state)
    assert report.verdict(state)["best_baseline"] == best


def test_a_source_may_have_the_name_of_a_static_merge(finished: World):
    """Each has its own interval: that the merge is beaten says nothing of the source."""
    state = with_leads(finished.state, {})
    assert state.completed
    level = Comparison(difference=0.1, low=-0.1, high=0.3)
    renamed = [
        r.model_copy(update={"name": "mean", "lead": level}) if r.kind == "source" else r
        for r in state.completed.rivals
    ]
    state.completed = state.completed.model_copy(update={"rivals": tuple(renamed)})
    found = report.verdict(state)
    assert not found["beats_sources_and_base"]
    assert found["level"] == ["mean"] * 3
    assert found["worse"] == []


def test_without_a_measured_baseline_nothing_is_said_of_it(finished: World):
    """All static merges were NaN."""
    assert finished.state.completed
    state = with_leads(finished.state, {})
    assert state.completed
    bare = [
        r.model_copy(update={"lead": None, "scalar": None}) if r.kind == "baseline" else r
        for r in state.completed.rivals
    ]
    state.completed = state.completed.model_copy(update={"rivals": tuple(bare)})
    assert report.sentence(state).endswith("and the base on the test slice.")
    assert report.verdict(state)["best_baseline"] is None


def test_the_markdown_has_every_rival_and_generation(finished: World):
    """Made of the same data as the JSON; nothing is computed twice."""
    data = report.report(finished.state, finished.rows)
    text = report.markdown(data)
    for rival in data["rivals"]:
        assert f"| {rival['name']} | {rival['kind']} | {rival['score']:.4f} |" in text
    assert data["verdict"]["sentence"] in text
    assert f"`{finished.rows[-1].hash}`" in text
    assert "## Generations" in text
    assert "- 7 slerp-ties-dfs: " in text


def test_the_report_says_who_asked_when_and_how_to_ask_again(finished: World) -> None:
    """The command is that of the log: `forge evo` with the settings that are not the usual ones."""
    data = report.report(finished.state, finished.rows)
    text = report.markdown(data)
    assert f"Submitted by {finished.state.submitted.owner} on " in text
    line = next(line for line in text.splitlines() if line.startswith("    forge evo "))
    words = shlex.split(line)[2:]
    parsed = evo_command.make_context("evo", words).params
    config = kinds.of("evomerge").settings.parse(dict(map(setting, parsed["settings"])))
    assert config == finished.state.submitted.config
    assert parsed["base_models"].split(",") == [s.path for s in finished.state.submitted.sources]


def test_a_front_is_told_in_measures_that_people_know(finished: World) -> None:
    """Perplexity and not the logarithm that is searched: no value is negative."""
    data = report.report(finished.state, finished.rows)
    axes = [{"name": "perplexity", "better": "down"}, {"name": "bytes", "better": "down"}]
    row = {"candidate": "a" * 64, "objectives": [-2.0, -115840.0], "values": [7.39, 115840.0]}
    data["front"] = {"axes": axes, "candidates": [row], "hypervolume": 0.5}
    text = report.markdown(data)
    assert "## Pareto front in perplexity and bytes, on the selection slice" in text
    assert "| candidate | perplexity (lower is better) | bytes (lower is better) |" in text
    assert f"| `{'a' * 12}` | 7.3900 | 115,840 |" in text


def test_an_inactive_stage_is_called_so(finished: World):
    """Below 0.05 the choice is empty: said, not hidden."""
    data = report.report(finished.state, finished.rows)
    data["stages"] = {"interpolation": 0.049, "selection": 0.05}
    text = report.markdown(data)
    assert "- interpolation: 0.05 (inactive)" in text
    assert "- selection: 0.05\n" in text


def test_a_rival_without_a_score_is_a_dash(finished: World):
    """Not 0 and not "None"."""
    best = finished.state.champion
    mean = finished.state.baselines["mean"]
    world = World(
        small(population_size=8, elite_size=2),
        quality=lambda id_: None if id_ == mean else fake_world.quality(id_),
    )
    state = world.run()
    assert state.champion == best
    text = report.markdown(report.report(state, world.rows))
    assert "| mean | baseline | – | – | – | – | – … – | – |" in text


@pytest.mark.slow
def test_the_picture_is_drawn(finished: World):
    """In the format that is asked for, with every rival's name; a missing score is a gap."""
    data = report.report(finished.state, finished.rows)
    data["generations"][1]["best"] = None
    drawn = plot.draw(data, "svg").decode()
    assert "<svg" in drawn
    assert all(f"<!-- {rival['name']} -->" in drawn for rival in data["rivals"])
    assert plot.draw(data, "png").startswith(b"\x89PNG")


def test_a_name_with_dollars_is_drawn_as_it_is(finished: World):
    r"""A folder called `$\foo$` is no formula: reading it as one failed the export."""
    data = report.report(finished.state, finished.rows)
    data["rivals"][0]["name"] = r"$\foo$"
    data["rivals"][1]["name"] = "$x$ & <b>"
    assert plot.draw(data, "png")
    assert r"<!-- $\foo$ -->" in plot.draw(data, "svg").decode()


# ---- finding -------------------------------------------------------------------------------


def test_a_run_is_found_by_its_name_or_the_beginning_of_it(finished: World, tmp_path: Path):
    """And one that is not there is named with those that are."""
    store = open_store(tmp_path / "log.db")
    with pytest.raises(NotFoundError, match="there are no runs here"):
        repository.load(store, "x")
    for row in finished.rows[:3]:
        event = events.REGISTRY.load(row)
        store.append(stream("evomerge", RUN), row.version - 1, [fake_world.New(event, row.key)])
    assert repository.load(store, RUN).run == RUN
    assert repository.load(store, "run").version == 3
    for name in ("x", ""):
        with pytest.raises(NotFoundError, match=f"runs here: {RUN}"):
            repository.load(store, name)
    store.close()


def test_a_candidate_is_found_by_the_beginning_of_its_id(finished: World):
    """Unique, or an error that says what is wrong with it."""
    state = finished.state
    assert candidates.find(state, "champion") == state.champion
    assert candidates.find(state, SOURCES[0].id[:20]) == SOURCES[0].id
    with pytest.raises(NotFoundError, match="is not known"):
        candidates.find(state, "zzz")
    with pytest.raises(NotFoundError, match="is not known"):
        candidates.find(state, "")
    digits = [id_[0] for id_ in state.recipes]
    twice = next(d for d in digits if digits.count(d) > 1)
    with pytest.raises(NotFoundError, match="is the beginning of several"):
        candidates.find(state, twice)
    with pytest.raises(NotFoundError, match="no champion yet"):
        candidates.find(World().state, "champion")


def test_recipes_are_described_in_a_few_words(finished: World):
    """Source, baseline, seed, mutant: what it is and what of, and where it stood."""
    state = finished.state
    for id_, name in ((SOURCES[1].id, "b"), (BASE.id, "base")):
        assert candidates.describe(state, id_, state.recipes[id_]) == f"source {name}"
        assert candidates.place(state, id_) == "given"
    mean = state.baselines["mean"]
    assert candidates.describe(state, mean, state.recipes[mean]).startswith("linear of ")
    assert candidates.place(state, mean) == "baseline mean"
    seed, mutant = state.candidates[0, 3].recipe_id, state.candidates[1, 0].recipe_id
    described = candidates.describe(state, seed, state.recipes[seed])
    assert described.startswith(label(state.recipes[seed], state.recipes))
    assert described.endswith(" of a, b, c")
    parent = wording.names(state)[state.generations[0].ranking[0]]
    assert candidates.describe(state, mutant, state.recipes[mutant]) == (
        f"mutant of {parent} (genes and noise)"
    )
    assert candidates.place(state, mutant) == "candidate 1/0"


# ---- the card ------------------------------------------------------------------------------


def test_a_card_says_if_the_champion_is_a_model_that_was_given(finished: World):
    """Nothing was evolved then; and who solves what stands in the card too."""
    state = finished.state
    assert state.started
    card = champion.card(state, "head")
    assert "evolved by EvoMerge." in card
    assert "| champion | " in card
    assert "code: problems solved of 5" in card
    same = champion.card(being(state, state.baselines["mean"]), "head")
    count = state.spent.evaluations
    assert f"A fixed merge (mean), confirmed by a search of {count} evaluations." in same
    assert "evolved" not in same
    source = champion.card(being(state, state.started.sources[0].recipe_id), "head")
    assert f"The source a, unchanged, confirmed by a search of {count} evaluations." in source


def test_the_report_of_a_champion_that_was_given_says_so_first(finished: World):
    """In Markdown, and so in the HTML that is made of it."""
    same = being(finished.state, finished.state.baselines["mean"])
    data = report.report(same, finished.rows)
    first = "The search found nothing better than mean, which it was given"
    assert report.markdown(data).splitlines()[2].startswith(first)
