"""Generated chains of modular sums: text in which nearly every number has to be computed.

    sum 2 plus 4 mod 9: 3 5 3 3 1 8 4 7 …

Each number is the sum of the 2 or 3 before it and a constant, modulo a number from 7 to 10. Only a
chain's head and first numbers are free. All follows from (seed, name).
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from agent_forge.evaluation.data.slices import Document

#: Chains of a document, and numbers of a chain. In short chains many tokens are free, and those that a
#: model predicts worst are the ones that nothing predicts.
CHAINS, NUMBERS = 3, 100


def chain(r: random.Random) -> str:
    """Return one random chain as a line of text, without the newline."""
    terms, modulus = r.randint(2, 3), r.randint(7, 10)
    constant = r.randrange(modulus)
    numbers = [r.randrange(modulus) for _ in range(terms)]
    while len(numbers) < NUMBERS:
        numbers.append((sum(numbers[-terms:]) + constant) % modulus)
    return f"sum {terms} plus {constant} mod {modulus}: {' '.join(map(str, numbers))}"


def documents(limit: int, seed: int) -> Iterator[Document]:
    """Yield documents of `CHAINS` chains until `limit` characters are reached."""
    used, number = 0, 0
    while used < limit:
        name = f"chains-{number:05d}.txt"
        r = random.Random(f"chains/{seed}/{name}")
        text = "".join(f"{chain(r)}\n" for _ in range(CHAINS))
        yield Document(name, "chains", text)
        used, number = used + len(text), number + 1
