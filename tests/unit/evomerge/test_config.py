"""Settings: what is taken, what is renamed, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import pytest

from agent_forge.evomerge import config as settings_of
from agent_forge.evomerge.config import EvoMergeConfig, changed, changes, parse
from agent_forge.evomerge.search.strategies import elite_loser
from agent_forge.evomerge.search_settings import MODELS, EliteLoserSearch, TournamentSearch
from agent_forge.evomerge.settings_table import flat_schema, settings
from agent_forge.runs.errors import ConfigError


@pytest.mark.parametrize("value", [0, -1, True, 2.5, "all", 1 << 25, []])
def test_a_batch_is_a_number_of_tokens_or_probed(value: Any) -> None:
    with pytest.raises(ConfigError, match=r'^setting batch_tokens: give 1 to \d+ tokens, or "probe"'):
        parse({"batch_tokens": value})
    assert [parse({"batch_tokens": n}).batch_tokens for n in (None, 1, "probe")] == [None, 1, "probe"]


def test_the_defaults_are_those_of_the_source_documents():
    """8 candidates, 2 elites of 3 mutants, 50 generations; all eight pipelines."""
    found = parse({})
    assert found.generations == 50
    search = parse({"strategy": "elite-loser"}).search_as(EliteLoserSearch)
    assert (search.population_size, search.elite_size, search.mutants_per_elite) == (8, 2, 3)
    assert search.pipelines == tuple(range(8))


def test_who_decides_where_nobody_says_it() -> None:
    """The source documents' settings mean their own search."""
    assert parse({}).strategy == parse({"population_size": 10}).strategy == "auto"
    for name, value in (
        ("elite_size", 2),
        ("keep_elites", True),
        ("dare_drop", 0.3),
        ("mutation_strength", 0.1),
    ):
        assert parse({name: value}).strategy == "elite-loser"
    assert parse({"elite_size": 2, "strategy": "tournament"}).strategy == "tournament"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"niching": "both"}, "setting niching belongs to tournament, not to strategy auto"),
        (
            {"strategy": "cma-es", "elite_size": 2},
            "elite_size belongs to elite-loser, tournament, not to strategy cma-es",
        ),
        ({"search": {"strategy": "auto", "objectives": ["speed"]}}, "objectives belongs to nsga2"),
        ({"strategy": "cma-es", "path_blocks": 9}, "path_blocks limits paths: set path_repeats"),
        ({"search": {"strategy": "auto", "colour": 1}}, "setting colour is not known"),
        ({"search": {"seed": 1}}, "setting seed is not known"),
        ({"search": "auto"}, "give an object like"),
        ({"search": {"slerp_t": 1}}, "setting slerp_t is refused"),
    ],
)
def test_a_setting_that_the_strategy_lacks_is_refused(given: dict, message: str) -> None:
    """It would have no effect; the message names the strategies that have it."""
    with pytest.raises(ConfigError, match=message):
        parse(given)


def test_settings_of_the_search_may_be_nested_or_flat() -> None:
    """Old files have them flat; the same name twice is ambiguous and refused."""
    flat = {"strategy": "tournament", "elite_count": 1, "niching": "both", "seed": 4}
    nested = {"seed": 4, "search": {k: v for k, v in flat.items() if k != "seed"}}
    mixed = {"seed": 4, "niching": "both", "search": {"strategy": "tournament", "elite_size": 1}}
    assert parse(flat) == parse(nested) == parse(mixed) == parse(parse(flat).flat())
    assert parse(flat).search == TournamentSearch(elite_size=1, niching="both")
    assert parse({"search": TournamentSearch(elite_size=1), "niching": "both", "seed": 4}) == parse(
        flat
    )
    with pytest.raises(ConfigError, match="two of its names"):
        parse({"strategy": "auto", "search": {"strategy": "auto"}})


@pytest.mark.parametrize("strategy", MODELS)
def test_settings_survive_json(strategy: str) -> None:
    """What an event records is what the run was submitted with."""
    config = parse({"strategy": strategy})
    assert parse(config.model_dump(mode="json")) == config
    assert parse(config.flat()) == config


def test_a_change_is_the_settings_that_it_changes() -> None:
    """With another strategy, settings that both have are carried over and the rest is its own."""
    before = parse({"strategy": "elite-loser", "mutation_rate": 0.3, "keep_elites": True})
    after = changed(before, {"search": {"strategy": "tournament"}, "niching": "both"})
    assert after == parse({"strategy": "tournament", "mutation_rate": 0.3, "niching": "both"})
    assert changes(before, after) == {"strategy": "tournament", "niching": "both"}
    assert changed(before, changes(before, after)) == after
    assert changes(before, changed(before, {"max_generations": 7})) == {"generations": 7}
    with pytest.raises(ConfigError, match="niching belongs to tournament, not to strategy elite-loser"):
        changed(before, {"niching": "both"})
    with pytest.raises(ConfigError, match="give an object"):
        changed(before, {"search": 5})
    with pytest.raises(ConfigError, match="is refused"):
        changed(before, {"slerp_t": 5})


def test_a_change_may_be_given_by_its_place() -> None:
    """`forge fork --set search.mutation_rate=0.3` says what the settings look like in a file."""
    before = parse({"strategy": "elite-loser"})
    wanted = parse({"strategy": "elite-loser", "mutation_rate": 0.3})
    for given in (
        {"mutation_rate": 0.3},
        {"search.mutation_rate": 0.3},
        {"search": {"mutation_rate": 0.3}},
    ):
        assert changed(before, given) == wanted
    for given in (
        {"mutation_rate": 0.3, "search.mutation_rate": 0.3},
        {"mutation_strength": 0.3, "search": {"mutation_sigma": 0.3}},
    ):
        with pytest.raises(ConfigError, match="two of its names"):
            changed(before, given)


@pytest.mark.parametrize(
    ("text", "hours"),
    [("30m", 0.5), ("1h", 1), ("2h30m", 2.5), ("1.5h", 1.5), ("1d12h", 36), ("90s", 0.025)],
)
def test_a_budget_is_a_time_and_ends_a_run_alone(text: str, hours: float) -> None:
    """It is the one dial: nobody has to guess how many generations an hour has."""
    config = parse({"budget": text})
    assert config.budget_hours == pytest.approx(hours)
    assert config == parse({"budget_hours": config.budget_hours}) == parse({"budget_hours": text})
    assert config.generations_wanted is None
    assert config.generations == settings_of.OPEN_END
    for given in ({"generations": 7}, {"max_generations": 7}):
        assert parse({"budget": text, **given}).generations_wanted == 7
    assert parse(config.model_dump(mode="json")) == config


@pytest.mark.parametrize("text", ["0h", "1", "h", "-1h", "1w", "", "30m1h", "1h 30m"])
def test_a_budget_that_is_no_time_is_refused(text: str) -> None:
    """A number without a unit would be read as hours by one user and as minutes by another."""
    with pytest.raises(ConfigError, match=r"budget_hours: give a time such as 30m, 1h"):
        parse({"budget": text})


def test_a_run_without_a_budget_has_its_generations() -> None:
    """The source documents' default stays, also if a form sends an empty budget."""
    for given in ({}, {"budget": None}, {"budget_hours": None}):
        assert parse(given).generations_wanted == 50
    with pytest.raises(ConfigError, match="two of its names"):
        parse({"budget": "1h", "budget_hours": 2})


def test_the_table_has_every_setting_once_with_words() -> None:
    """`forge settings`, the form and docs/settings.md are made from it."""
    names = [setting.name for setting in settings()]
    every = {*EvoMergeConfig.model_fields, *(n for m in MODELS.values() for n in m.model_fields)}
    assert sorted(names) == sorted(every - {"search"})
    assert all(setting.description for setting in settings())
    schema = flat_schema()["properties"]
    assert sorted(schema) == sorted(names)
    assert schema["niching"]["strategies"] == ["tournament"]
    assert "strategies" not in schema["population_size"]


def test_no_setting_is_in_two_places_with_two_defaults() -> None:
    """A flat name would not say which one it means."""
    assert not settings_of.NAMES & EvoMergeConfig.model_fields.keys()
    for setting in settings():
        for strategy in setting.strategies:
            found = MODELS[strategy].model_validate({}).model_dump(mode="json")[setting.name]
            assert found == setting.default


@pytest.mark.parametrize(
    ("size", "elites", "mutants"), [(8, 2, 3), (4, 1, 3), (16, 4, 3), (5, 2, 2), (2, 2, 1)]
)
def test_populations_that_add_up_are_taken(size: int, elites: int, mutants: int):
    """E·M + (N − E)/3 = N: for example 2·2 + 3/3 = 5 and 2·1 + 0/3 = 2."""
    found = parse({"population_size": size, "elite_size": elites, "mutants_per_elite": mutants})
    assert elites * mutants + len(elite_loser.loser_slots(found)) == size


def test_a_population_that_does_not_add_up_is_refused_with_the_arithmetic():
    """2 × 3 mutants and (10 − 2)/3 = 2.667 merges are 8.667, not 10."""
    with pytest.raises(ConfigError, match=r"2 x 3 = 6 mutants.*8 / 3 = 2\.667.*8\.667, not 10"):
        parse({"population_size": 10, "strategy": "elite-loser"})
    with pytest.raises(ConfigError, match="does not add up"):
        parse({"population_size": 1, "elite_size": 2})
    # 2 × 1 + 6/3 = 4.
    with pytest.raises(ConfigError, match=r"together 4, not 8"):
        parse({"mutants_per_elite": 1})


def test_the_documents_weights_of_domains_are_weights_of_domains_alone():
    """`evaluation_weights` is the scheme `domains` with weights of one's own."""
    given = {"code": 0.5, "math": 0.5}
    found = parse({"evaluation_weights": given}).fitness_weights
    assert found.parts == {
        "perplexity": 0,
        "accuracy": 0,
        "speed": 0,
        "memory": 0,
        "domain/code": 0.5,
        "domain/math": 0.5,
    }
    scheme = parse({"fitness_weights": "domains"}).fitness_weights
    assert scheme.domains == dict.fromkeys(("code", "math", "multilingual", "data"), 0.25)
    assert scheme.perplexity == scheme.accuracy == scheme.speed == scheme.memory == 0
    assert parse({"fitness_weights": "composite"}) == parse({})
    with pytest.raises(ConfigError, match="two of its names"):
        parse({"evaluation_weights": given, "fitness_weights": "domains"})
    with pytest.raises(ConfigError, match="must not be negative"):
        parse({"evaluation_weights": {"code": -1}})
    with pytest.raises(ConfigError, match=r"fitness_weights"):
        parse({"fitness_weights": "taste"})


OTHERWISE = ("evaluation_weights", "budget")
PLAIN = {old: new for old, new in settings_of.RENAMED.items() if old not in OTHERWISE}


@pytest.mark.parametrize(("old", "new"), PLAIN.items())
def test_other_names_of_the_documents_are_taken(old: str, new: str):
    """Configs written for the documents keep working."""
    usual = {setting.name: setting.default for setting in settings()}[new]
    value = type(usual)(1 if new != "dare_drop" else 0.25)
    rest = {"population_size": 4} if new == "elite_size" else {}
    assert parse({old: value, **rest}).flat()[new] == value != usual
    with pytest.raises(ConfigError, match="two of its names"):
        parse({old: value, new: value})


@pytest.mark.parametrize("name", settings_of.REFUSED)
def test_settings_that_cannot_be_honoured_are_refused_with_the_reason(name: str):
    """An option that is parsed and then dropped is a lie."""
    with pytest.raises(ConfigError) as refused:
        parse({name: 1})
    assert f"setting {name} is refused: {settings_of.REFUSED[name]}" in str(refused.value)


def test_unknown_settings_are_refused_and_the_known_ones_listed():
    """A typo must not run for a night with the default."""
    with pytest.raises(ConfigError, match=r"setting generatoins is not known.*generations"):
        parse({"generatoins": 3})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"generations": -1}, r"setting generations: .*\(it is -1\)"),
        ({"mutation_rate": 0}, "setting mutation_rate: "),
        ({"seed": "x"}, "setting seed: "),
        ({"mutation_sigma": float("nan")}, "setting mutation_sigma: "),
        ({"fitness_weights": {"perplexity": -1}}, "must not be negative"),
        ({"fitness_weights": dict.fromkeys(["perplexity", "accuracy", "speed", "memory"], 0)}, "all"),
        ({"fitness_weights": {"taste": 1}}, r"fitness_weights\.taste is not known"),
        ({"techniques": ["linear", "ties"]}, "one of frankenmerge|dfs"),
        ({"techniques": ["linear", "ties", "dfs", "karcher"]}, "and no other"),
    ],
)
def test_a_bad_value_is_named(data: dict, message: str):
    """Setting, reason and what was given."""
    with pytest.raises(ConfigError, match=message):
        parse(data)


def test_every_bad_value_is_named_at_once():
    """One line each, so that a user fixes all of them."""
    with pytest.raises(ConfigError) as found:
        parse({"generations": -1, "seed": -1})
    assert len(str(found.value).splitlines()) == 2


def test_a_config_can_only_be_a_mapping():
    """YAML files may hold a list."""
    with pytest.raises(ConfigError):
        parse([1, 2])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("techniques", "expected"),
    [
        (("linear", "dare", "dfs"), (1,)),
        (("linear", "slerp", "ties", "dfs"), (3, 7)),
        (("slerp", "dare", "ties", "frankenmerge", "dfs"), (4, 5, 6, 7)),
    ],
)
def test_techniques_choose_pipelines(techniques: tuple[str, ...], expected: tuple[int, ...]):
    """Numbers read as binary: dfs is the last bit, ties the middle one, slerp the first."""
    found = parse({"techniques": techniques}).search_as(EliteLoserSearch)
    assert found.pipelines == expected
