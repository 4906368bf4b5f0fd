"""Task families: right answers by other means, determinism, levels, slices that never overlap."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.evaluation import task_families
from agent_forge.evaluation.task_families import FAMILIES, item, items, slice_of_prompt, verify
from agent_forge.evaluation.task_families.families import LEVELS, Exercise, IntegerDraws
from agent_forge.runs.errors import ConfigError

NAMES = [*FAMILIES, "automaton-30", "automaton-110"]
families = st.sampled_from(NAMES)
levels = st.integers(1, LEVELS)
numbers = st.integers(0, 10**6)


def by_other_means(made: Exercise) -> str:
    """Return the answer by a second program, which shares nothing with the family's."""
    text = made.prompt.removesuffix("=").partition(" ")[2]
    packed = text.replace(" ", "")
    match made.family:
        case "addition" | "subtraction":
            a, sign, b = re.fullmatch(r"(\d+)([+-])(\d+)", packed).groups()  # type: ignore[union-attr]
            return str(int(a) + int(b) * (1 if sign == "+" else -1))
        case "sort-digits" | "sort-letters":
            return "".join(k * n for k, n in sorted(Counter(packed).items()))
        case "reversal":
            return packed[::-1]
        case "lookup":
            table, _, key = packed.partition(":")
            return table[table.index(key) + 1]
        case "recall":
            (told, _, asked) = packed.split(":")
            return dict(zip(told[::2], told[1::2], strict=True))[asked]
        case "chain":
            arrows, _, asked = packed.partition(":")
            at = asked[-1]
            for _ in range(int(asked[:-1])):
                (at,) = re.findall(rf"{at}>(\w)", arrows)
            return at
        case "brackets":
            while (shorter := re.sub(r"\(\)|\[\]|\{\}|<>", "", packed)) != packed:
                packed = shorter
            return packed[::-1].translate(str.maketrans("([{<", ")]}>"))
    rule = f"{int(made.family.partition('-')[2]):08b}"[::-1]
    ring = packed[-1] + packed + packed[0]
    return "".join(rule[int(ring[i : i + 3], 2)] for i in range(len(packed)))


@given(families, levels, numbers, numbers)
def test_answers_are_right_and_items_are_functions_of_their_key(
    family: str, level: int, seed: int, number: int
) -> None:
    made = item(family, level, seed, number)
    assert made == item(family, level, seed, number)
    assert made.answer.replace(" ", "") == by_other_means(made)
    assert verify(made, made.answer)
    assert verify(made, f" {made.answer.replace(' ', '')}\n")


@given(families, levels, numbers, st.text(max_size=8))
def test_other_replies_are_wrong(family: str, level: int, number: int, reply: str) -> None:
    made = item(family, level, 0, number)
    assert verify(made, reply) == ("".join(reply.split()) == made.answer.replace(" ", ""))
    assert not verify(made, made.answer + " 1")


def test_examples_by_hand() -> None:
    """One of each, worked out on paper. Rule 110 = 01101110: 111 → 0, 110 → 1, 101 → 1, 100 → 0."""
    found = {
        ("addition", "add 9 7 + 5 ="): "1 0 2",
        ("subtraction", "subtract 1 0 0 - 1 ="): "9 9",
        ("brackets", "close ( [ ] < ="): "> )",
        ("sort-digits", "sort 4 1 4 ="): "1 4 4",
        ("sort-letters", "sort b a ="): "a b",
        ("reversal", "reverse a b c ="): "c b a",
        ("automaton-110", "step 0 0 0 1 0 0 ="): "0 0 1 1 0 0",
        ("lookup", "look a 3 f 7 c 3 : f ="): "7",
        ("recall", "recall a 3 f 7 c 3 k 0 : q r s t : f ="): "7",
        ("chain", "chain a > c b > a c > b : 2 a ="): "b",
    }
    for (family, prompt), answer in found.items():
        assert task_families.find(family).answer(prompt) == answer


def test_a_verifier_that_fails_counts_as_wrong() -> None:
    """Prompts of another family, a table without the key, a bracket that closes nothing."""
    for family, prompt in (
        ("addition", "sort 1 2 ="),
        ("lookup", "look a 3 : b ="),
        ("recall", "recall a 3 : q r : b ="),
        ("chain", "chain a > b : 2 a ="),
        ("brackets", "close ) ="),
        ("nonsense", "add 1 + 1 ="),
    ):
        assert not verify(Exercise(family, 1, prompt, "2"), "2")


@pytest.mark.parametrize("family", NAMES)
def test_higher_levels_are_longer(family: str) -> None:
    mean = [sum(len(item(family, n, 0, i).prompt) for i in range(200)) for n in range(1, LEVELS + 1)]
    assert mean == sorted(set(mean))


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.parametrize("level", [1, 2, LEVELS])
def test_slices_never_overlap_whatever_the_seeds_are(family: str, level: int) -> None:
    slices = ("train", "selection", "test")
    found = [items(family, level, seed, on, 40) for seed, on in enumerate(slices)]
    prompts = [{one.prompt for one in some} for some in found]
    assert all(some for some in prompts)
    assert [len(some) for some in prompts] == [len(some) for some in found]  # no item twice
    assert len(set().union(*prompts)) == sum(map(len, prompts))
    for on, some in zip(slices, found, strict=True):
        assert {slice_of_prompt(family, one.prompt) for one in some} == {on}


def test_a_cell_with_few_prompts_gives_all_that_it_has() -> None:
    """Sums of two digits: 100 prompts; states of six cells: 64."""
    for family, every in (("addition", 100), ("automaton-110", 64)):
        found = [items(family, 1, 3, on, 1000) for on in ("train", "selection", "test")]
        assert sum(map(len, found)) == every
        assert len(found[0]) > len(found[1]) > 0 < len(found[2])
    assert items("addition", 1, 3, "train", 10) == items("addition", 1, 3, "train", 1000)[:10]


@pytest.mark.parametrize("name", ["poetry", "automaton-256", "automaton-01", "automaton", ""])
def test_a_family_that_there_is_not_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=r"there is no task family .*automaton-255"):
        task_families.find(name)


def test_a_level_that_there_is_not_is_named() -> None:
    for level in (0, LEVELS + 1):
        with pytest.raises(ValueError, match="levels 1 to 10"):
            item("addition", level, 0, 0)


def test_draws_are_even() -> None:
    """Each value of 6,000 draws below 6 comes about 1,000 times, within five standard deviations."""
    draws = IntegerDraws("even")
    seen = Counter(draws.below(6) for _ in range(6000))
    assert set(seen) == set(range(6))
    assert all(abs(count - 1000) < 5 * (6000 * 5 / 36) ** 0.5 for count in seen.values())
    assert sorted(IntegerDraws("all").distinct("abc", 3)) == ["a", "b", "c"]
