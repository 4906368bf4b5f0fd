"""Chains of modular sums: every number follows from its head and the numbers before."""

from __future__ import annotations

import re

from agent_forge.evaluation.data.builtin import modular_chains


def test_every_number_is_the_sum_that_the_head_says() -> None:
    seen = set()
    for document in modular_chains.documents(20_000, 0):
        lines = document.text.splitlines()
        assert len(lines) == modular_chains.CHAINS
        for line in lines:
            head, numbers = line.split(": ")
            match = re.fullmatch(r"sum (\d) plus (\d) mod (\d+)", head)
            assert match
            terms, constant, modulus = map(int, match.groups())
            found = list(map(int, numbers.split()))
            assert len(found) == modular_chains.NUMBERS
            for place in range(terms, len(found)):
                assert found[place] == (sum(found[place - terms : place]) + constant) % modulus
            seen.add((terms, modulus))
    assert seen == {(terms, modulus) for terms in (2, 3) for modulus in (7, 8, 9, 10)}


def test_a_document_depends_on_seed_and_name_alone() -> None:
    few, many = list(modular_chains.documents(3_000, 1)), list(modular_chains.documents(9_000, 1))
    assert [one.text for one in many[: len(few)]] == [one.text for one in few]
    assert len({one.text for one in many}) == len(many)
    assert next(modular_chains.documents(1, 2)).text != few[0].text
