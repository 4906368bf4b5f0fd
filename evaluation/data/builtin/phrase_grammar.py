"""A small grammar in seven languages, and lessons that say the same sentence in two languages.

Sentences are put together from phrases (who, does what, where, when; phrases.csv) that were written
in all seven languages for this purpose, by hand, under the project's own licence (Apache-2.0); the
order of the parts is each language's own.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Mapping
from importlib.resources import files

from agent_forge.evaluation.data.slices import Document, Slice, slice_of

LANGUAGES = ("English", "German", "French", "Spanish", "Italian", "Dutch", "Portuguese")

#: Languages that put time and place before the object.
_VERB_SECOND = ("German", "Dutch")

#: A sentence: the index of each part's phrase.
Sentence = tuple[int, ...]

#: Sentences of a lesson.
PAIRS = 12
#: Half of all sentences are taught: training lessons have only these, held-out lessons none of
#: them.
TAUGHT: Mapping[Slice, float] = {"train": 0.5, "search": 0.0, "selection": 0.0, "test": 0.5}


def _read() -> dict[str, list[dict[str, str]]]:
    """Return {part of a sentence: its phrases}; each phrase is {language: text}."""
    phrases: dict[str, list[dict[str, str]]] = {}
    file = files("agent_forge.evaluation.data.builtin") / "phrases.csv"
    for row in csv.DictReader(file.read_text("utf-8").splitlines()):
        phrases.setdefault(row.pop("part"), []).append(row)
    return phrases


#: Part → its phrases; a verb and its object are one phrase, with a bar between them.
PHRASES = _read()
PARTS = tuple(PHRASES)


def say(sentence: Sentence, language: str) -> str:
    """Return the text of a sentence in a language."""
    who, does, where, when = (
        PHRASES[part][i][language] for part, i in zip(PARTS, sentence, strict=True)
    )
    verb, thing = does.split("|")
    if language in _VERB_SECOND:
        return f"{who} {verb} {when} {where} {thing}."
    return f"{who} {verb} {thing} {where} {when}."


def any_sentence(r: random.Random) -> Sentence:
    """Return a random sentence, an index of a phrase for each part; all are equally likely."""
    return tuple(r.randrange(len(PHRASES[part])) for part in PARTS)


def taught(sentence: Sentence) -> bool:
    """Return True if training lessons may have the sentence; its hash decides."""
    name = "/".join(map(str, sentence))
    return slice_of(f"multilingual/lesson/{name}", TAUGHT) == "train"


def documents(limit: int, seed: int) -> Iterator[Document]:
    """Yield lessons until `limit` characters are reached."""
    used, number = 0, 0
    while used < limit:
        name = f"lesson-{number:06d}"
        r = random.Random(f"{seed}/{name}")
        learned = Document(name, "multilingual", "").slice() == "train"
        text = "".join(_pair(r, learned) for _ in range(PAIRS))
        yield Document(name, "multilingual", text)
        used += len(text)
        number += 1


def _pair(r: random.Random, learned: bool) -> str:
    """Return two lines of text: one random sentence in two languages, a taught one if `learned`."""
    sentence = any_sentence(r)
    while taught(sentence) is not learned:
        sentence = any_sentence(r)
    return "".join(f"{language}: {say(sentence, language)}\n" for language in r.sample(LANGUAGES, 2))
