"""Domain of several languages: questions about the right translation and the right language.

Sentences are those of `builtin.phrase_grammar`. A translation stands among other sentences of the
same language, compared by likelihood; the harder the grade, the fewer parts differ. To test if a
model keeps to a language, the right sentence stands among the same sentence in other languages.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from agent_forge.evaluation.data.builtin.phrase_grammar import (
    LANGUAGES,
    PARTS,
    PHRASES,
    Sentence,
    any_sentence,
    say,
)
from agent_forge.evaluation.data.domains.common import choose, make
from agent_forge.evaluation.data.slices import SLICES, Slice, slice_of

#: Sentences of one document, and characters of running text in each slice.
SENTENCES = 12
HELD_OUT = {"train": 20_000, "search": 60_000, "selection": 40_000, "test": 60_000}


def _other(r: random.Random, sentence: Sentence, parts: int) -> Sentence:
    """Return a random sentence that differs from `sentence` in `parts` parts."""
    changed = set(r.sample(range(len(PARTS)), parts))
    return tuple(
        r.choice([i for i in range(len(PHRASES[PARTS[p]])) if i != old]) if p in changed else old
        for p, old in enumerate(sentence)
    )


def _translation(r: random.Random, grade: int) -> dict[str, object] | None:
    """Return a question (dict) about a translation; None if two wrong sentences are the same.

    Grades 0 to 3: wrong sentences differ in all parts, in two, in one, in one; grade 3 is without
    English.
    """
    sentence = any_sentence(r)
    foreign = LANGUAGES[1:]
    first, second = r.sample(foreign, 2) if grade == 3 else r.sample(("English", r.choice(foreign)), 2)
    parts = (4, 2, 1, 1)[grade]
    right = say(sentence, second)
    wrong = {say(_other(r, sentence, parts), second) for _ in range(3)}
    if len(wrong) < 3:
        return None
    return choose(
        r, f"{first}: {say(sentence, first)}\n{second}:", f" {right}", [f" {w}" for w in sorted(wrong)]
    )


def _identity(r: random.Random, grade: int) -> dict[str, object]:
    """Return a question (dict): one sentence in four languages, closer ones in grades 2 and 3."""
    sentence = any_sentence(r)
    romance, germanic = (("French", "Spanish", "Italian", "Portuguese"), ("English", "German", "Dutch"))
    second = r.choice(romance if grade % 2 else germanic)
    family, far = (romance, germanic) if grade % 2 else (germanic, romance)
    near = [x for x in family if x != second]
    wrong = r.sample(far, 3) if grade < 2 else [*near, *far][:3]
    first = r.choice([x for x in LANGUAGES if x != second and x not in wrong])
    prompt = f"{first}: {say(sentence, first)}\n{second}:"
    return choose(r, prompt, f" {say(sentence, second)}", [f" {say(sentence, w)}" for w in wrong])


def texts(seed: int) -> Iterator[dict[str, object]]:
    """Yield rows of running text: documents of sentences in one language, languages in turn."""
    left = dict(HELD_OUT)
    number = 0
    while any(n > 0 for n in left.values()):
        name = f"multilingual/text/{number:05d}"
        r = random.Random(f"{name}/{seed}")
        language = LANGUAGES[number % len(LANGUAGES)]
        number += 1
        slice_: Slice = slice_of(name, dict.fromkeys(SLICES, 0.25))
        if left[slice_] <= 0:
            continue
        text = " ".join(say(any_sentence(r), language) for _ in range(SENTENCES)) + "\n"
        left[slice_] -= len(text)
        yield {"id": name, "domain": "multilingual", "slice": slice_, "text": text}


def items(seed: int) -> Iterator[dict[str, object]]:
    """Yield rows of questions about translations, then about languages."""
    yield from make("multilingual", "translation", seed, _translation)
    yield from make("multilingual", "identity", seed, _identity)
