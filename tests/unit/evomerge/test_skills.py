"""Fitness that asks for all skills: each domain relative to its own best source."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.evaluation.data.outcomes import DomainOutcomes, Outcomes
from agent_forge.events import Envelope
from agent_forge.evomerge.config import changed, parse
from agent_forge.evomerge.fitness import composite
from agent_forge.evomerge.fitness.composite import Components, Reference, Skills, Weighting
from agent_forge.evomerge.fitness.paired_bootstrap import ACCURACY_ROUNDING, compare, rounding
from agent_forge.evomerge.run.rules import fork_rules
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.history import audit
from testing.worlds.fake_world import World, small

GOLDEN = Path(__file__).parents[2] / "golden"
ASKING: tuple[Skills, ...] = ("mean", "geometric", "worst")
SOLVING = Weighting(perplexity=0.0, accuracy=1.0, speed=0.0, memory=0.0)


def solving(solved: int, of: int = 10, nats: float = 10.0) -> DomainOutcomes:
    """A window of ten tokens, half of them right, and `of` problems of which some are solved."""
    return DomainOutcomes(
        nll=(nats,), tokens=(10,), hits=(5,), solved=(1.0,) * solved + (0.0,) * (of - solved)
    )


def model(**solved: int) -> Outcomes:
    """A model's outcomes: domain → problems solved, of ten each."""
    return {domain: solving(count) for domain, count in solved.items()}


def measured(outcomes: Outcomes, skills: Skills) -> Components:
    parts = composite.components(outcomes, 1e9, 1e9, skills)
    assert parts is not None
    return parts


def score(own: Outcomes, sources: list[Outcomes], skills: Skills, weights: Weighting = SOLVING):
    """The fitness of a model beside these sources."""
    seen = [measured(source, skills) for source in sources]
    best = composite.reference(seen, own)
    return composite.fitness(measured(own, skills), best, weights, skills=skills)


#: Two specialists: each solves eight and five of ten of its own skill, and one of the other.
SPECIALISTS = [model(shift=8, double=1), model(shift=1, double=5)]


@pytest.mark.parametrize(
    ("skills", "expected"),
    [("mean", (4 / 8 + 4 / 5) / 2), ("geometric", math.sqrt(4 / 8 * 4 / 5)), ("worst", 4 / 8)],
)
def test_each_skill_is_relative_to_its_own_specialist(skills: Skills, expected: float):
    """Four of each: half of what the first specialist solves, four fifths of the second's."""
    found = score(model(shift=4, double=4), SPECIALISTS, skills)
    assert found.scalar == found.normalised["accuracy"] == pytest.approx(expected)
    assert found.quality == pytest.approx(expected)


def test_pooled_figures_prefer_one_skill_to_two_halves_and_skills_do_not():
    """The retreat to the best source: it is 1 when pooled, whatever it has lost."""
    retreat, both = model(shift=8, double=0), model(shift=4, double=3)
    pooled = [score(m, SPECIALISTS, "pooled").scalar for m in (retreat, both)]
    assert pooled[0] > pooled[1]
    for skills in ASKING:
        alone, held = (score(m, SPECIALISTS, skills).scalar for m in (retreat, both))
        assert alone < held, skills


def test_a_skill_above_its_specialist_is_not_clipped():
    """All ten of the second: twice its specialist. The first is lost but for two."""
    own = model(shift=2, double=10)
    assert score(own, SPECIALISTS, "mean").scalar == pytest.approx((2 / 8 + 2) / 2)
    assert score(own, SPECIALISTS, "geometric").scalar == pytest.approx(math.sqrt(2 / 8 * 2))
    assert score(own, SPECIALISTS, "worst").scalar == pytest.approx(2 / 8)


def test_a_lost_skill_is_a_hundredth_of_the_geometric_mean_and_none_of_the_worst():
    """So that a search can tell two candidates apart that lost the same skill."""
    good, poor = model(shift=8, double=0), model(shift=4, double=0)
    assert score(good, SPECIALISTS, "geometric").scalar == pytest.approx(math.sqrt(1 * 0.01))
    assert score(poor, SPECIALISTS, "geometric").scalar == pytest.approx(math.sqrt(0.5 * 0.01))
    assert score(good, SPECIALISTS, "worst").scalar == 0


def test_a_skill_that_no_source_has_counts_for_no_model():
    """Nobody solves `rev`: a hit by chance is no skill. With no skill at all the part is 0."""
    sources = [own | model(rev=0) for own in SPECIALISTS]
    own = model(shift=4, double=4, rev=3)
    for skills in ASKING:
        expected = score(model(shift=4, double=4), SPECIALISTS, skills).scalar
        assert score(own, sources, skills).scalar == pytest.approx(expected)
        assert score(model(rev=3), [model(rev=0)], skills).scalar == 0


def test_a_domain_with_items_to_check_is_judged_by_these_alone():
    """Half of the tokens are right in any case: pooled, a model that solves nothing keeps that."""
    lost = model(shift=0, double=0)
    assert score(lost, SPECIALISTS, "pooled").scalar > 0.5
    assert [score(lost, SPECIALISTS, s).scalar for s in ("mean", "worst")] == [0, 0]
    text = {"prose": DomainOutcomes(nll=(10.0,), tokens=(10,), hits=(4,))}
    assert measured(text, "worst").accuracies == {"prose": pytest.approx(0.4)}


def test_questions_are_checked_items_too():
    """3 of 4 right at chance ½ is ½ above chance; the specialist has all: 1."""
    asked = DomainOutcomes(nll=(10.0,), tokens=(10,), hits=(5,), right=(1, 1, 1, 0), chance=(0.5,) * 4)
    best = asked.model_copy(update={"right": (1, 1, 1, 1)})
    assert score({"x": asked}, [{"x": best}], "worst").scalar == pytest.approx(0.5)


def test_perplexities_are_relative_to_the_specialists_too():
    """e¹ beside a specialist's e⁰·⁵, and equal to the other's: e^−½ and 1."""
    own = {"a": solving(1, nats=10.0), "b": solving(1, nats=20.0)}
    sources = [
        {"a": solving(1, nats=5.0), "b": solving(1, nats=30.0)},
        {"a": solving(1, nats=30.0), "b": solving(1, nats=20.0)},
    ]
    weights = Weighting(perplexity=1.0, accuracy=0.0, speed=0.0, memory=0.0)
    apart = math.exp(-0.5)
    for skills, expected in zip(ASKING, ((apart + 1) / 2, math.sqrt(apart), apart), strict=True):
        assert score(own, sources, skills, weights).scalar == pytest.approx(expected)


COUNTS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 10), min_size=3, max_size=3)


@given(COUNTS, COUNTS, COUNTS)
def test_worst_is_below_geometric_is_below_the_mean(own, one, other):
    """The inequality of the means; the geometric mean's floor raises it by a hundredth at most."""
    sources = [model(**one), model(**other)]
    mean, geometric, worst = (score(model(**own), sources, s).scalar for s in ASKING)
    assert worst <= geometric + 1e-12
    assert geometric <= mean + composite.SKILL_FLOOR + 1e-12


@given(COUNTS, COUNTS, COUNTS, st.sampled_from("abc"))
def test_solving_more_never_lowers_the_fitness(own, one, other, domain):
    """A step up in any skill is no loss, whichever way skills are put together."""
    sources = [model(**one), model(**other)]
    more = own | {domain: min(10, own[domain] + 1)}
    for skills in ASKING:
        before = score(model(**own), sources, skills).scalar
        assert score(model(**more), sources, skills).scalar >= before - 1e-12


@given(st.sampled_from(ASKING), st.integers(1, 10), st.integers(1, 10))
def test_a_model_with_all_specialists_skills_has_fitness_one(skills, shift, double):
    """The unit of the scale."""
    sources = [model(shift=shift, double=0), model(shift=0, double=double)]
    assert score(model(shift=shift, double=double), sources, skills).scalar == pytest.approx(1.0)


@pytest.mark.parametrize("skills", ASKING)
def test_a_comparison_s_difference_is_the_difference_of_fitness(skills: Skills):
    """The formula on whole arrays is that of `composite.fitness`."""
    a = {"x": solving(4, nats=9.0), "y": solving(0, nats=12.0), "z": solving(2)}
    b = {"x": solving(5, nats=11.0), "y": solving(3, nats=8.0), "z": solving(0)}
    sources = [measured(m, skills) for m in (model(x=8, y=1, z=0), model(x=1, y=5, z=0))]
    best = composite.reference(sources, a)
    weights = Weighting(domains={"x": 0.5})
    one, other = (composite.fitness(measured(m, skills), best, weights, skills=skills) for m in (a, b))
    found = compare(a, b, best, weights, False, 1, skills=skills)
    assert found.difference == pytest.approx(one.scalar - other.scalar, abs=1e-9)
    assert found.low <= found.difference <= found.high


def test_rounding_is_in_the_units_of_the_specialists():
    """A thousandth of accuracy is a thousandth / ½ and / ¼ of the two skills."""
    best = Reference(
        perplexity=2.0, accuracy=0.9, flops=1, bytes=1, accuracies={"a": 0.5, "b": 0.25, "c": 0.0}
    )
    step = ACCURACY_ROUNDING["bfloat16"]
    found = {s: rounding(best, SOLVING, False, "bfloat16", s) for s in ASKING}
    assert found["mean"] == found["geometric"] == pytest.approx(step * (2 + 4) / 2)
    assert found["worst"] == pytest.approx(step * 4)
    none = best.model_copy(update={"accuracies": {"c": 0.0}})
    assert rounding(none, SOLVING, False, "bfloat16", "worst") == 0


def test_the_setting_needs_sources_to_be_relative_to():
    """The documents' raw formula has no best source."""
    with pytest.raises(ConfigError, match=r"skills = worst needs normalise = best_source"):
        parse({"skills": "worst", "normalise": "none"})
    with pytest.raises(ConfigError, match="setting skills"):
        parse({"skills": "all"})
    assert parse({}).skills == "pooled"


def test_runs_with_the_default_record_what_they_recorded_before() -> None:
    """So their digests, and those of old forks, are the same; the other settings are recorded."""
    recorded = World().rows[0]
    assert "skills" not in recorded.data
    assert changed(small(), {"skills": "worst"}).model_dump(mode="json")["skills"] == "worst"
    assert '"skills":"worst"' in World(small(skills="worst")).rows[0].data
    assert small().flat()["skills"] == "pooled"
    assert parse(small().model_dump(mode="json")) == small()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("schema-1-*.jsonl")), ids=lambda p: p.stem)
def test_events_of_golden_logs_are_written_as_they_were(path: Path) -> None:
    """Byte by byte, submissions first: nothing that a run with the defaults records has changed."""
    for line in path.read_text("utf-8").splitlines():
        row = Envelope(**json.loads(line))
        written = RunState.registry.load(row).payload()
        for since in ('"together":false,', '"many_replies":false,'):  # schema 2 and 3 of `started`
            written = written.replace(since, "")
        assert written == row.data


def test_a_fork_cannot_change_it():
    """Recorded scores would be compared with others."""
    world = World()
    world.run_until(lambda state: state.generation == 1)
    assert changed(small(), {"skills": "worst"}).skills == "worst"
    with pytest.raises(ConfigError, match="skills cannot change in a fork"):
        fork_rules.check(world.state, {"skills": "worst"})


@pytest.mark.parametrize("skills", ASKING)
def test_a_run_that_asks_for_all_skills_is_audited_like_any_other(skills: Skills):
    """Scores, ranking, champion and verdict follow from the log, early ends included."""
    world = World(small(skills=skills, gate_perplexity=0.8))
    world.run()
    state = world.state
    assert state.completed
    assert audit.audit(world.rows) == []
    best = state.reference("test", None)
    assert best
    assert set(best.accuracies) == {"code", "math"}
