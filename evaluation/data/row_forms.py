"""Forms of rows: items as docs/fitness.md has them, and rows of public data sets, read as items.

    text, other keys                          a text: C4, the Pile, most corpora
    prompt, choices, answer                   a question, as it is
    prompt, check                             a problem, as it is
    question, choices or A … D, answer        a question: MMLU, ARC, OpenBookQA, CommonsenseQA
    goal, sol1, sol2, label                   a question: PIQA
    ctx, endings, label                       a question: HellaSwag
    question, answer                          a text: GSM8K
    messages                                  a text: chats
    instruction, input, output                a text: Alpaca
    prompt, completion                        a text

`shape` says which keys of a row its item leaves out, so that they can be named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_forge.runs.system.plain_text import shown

#: Keys that every item may have.
COMMON = ("id", "domain", "slice")
#: Keys that make a row an item, any of them.
CONTENT = ("text", "choices", "check")
#: Keys of a question's text, of its choices and of its answer, the first that a row has.
STEMS = ("question", "question_stem")
CHOICES = ("choices", "options")
ANSWERS = ("answer", "answerKey", "label")
#: Names of lettered choices: A, B, …
LETTERS = "ABCDEFGHIJ"


class FormError(ValueError):
    """A row has the keys of a form, but not its values. The message says what is wrong."""


@dataclass(frozen=True)
class Shaped:
    """A row as an item."""

    row: dict[str, object]
    #: How the item was made; empty for a row that is an item already.
    how: str = ""
    #: Keys that the item leaves out; of an object in the row "key.inner".
    rest: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The noun for what the rows become: texts or questions."""
        return "texts" if "text" in self.row else "questions"


@dataclass
class _Fields:
    """A row's values, and the keys that were taken of it."""

    row: Mapping[str, object]
    taken: set[str] = field(default_factory=set)
    #: Keys within a taken value that were left out.
    rest: list[str] = field(default_factory=list)

    def has(self, *names: str) -> bool:
        """Return True if the row has texts of these names that are not blank."""
        values = (self.row.get(name) for name in names)
        return all(isinstance(value, str) and value.strip() for value in values)

    def first(self, names: Sequence[str]) -> str | None:
        """Return the first of the names under which the row has a value; None without one."""
        return next((n for n in names if self.row.get(n) not in (None, "", [], {})), None)

    def take(self, name: str) -> Any:
        """Return the value of a key, and count the key as taken: it is not left out."""
        self.taken.add(name)
        return self.row[name]

    def common(self) -> dict[str, object]:
        """Return {key: value} of the row's id, domain and slice, as far as it has them."""
        return {name: self.take(name) for name in COMMON if self.row.get(name) not in (None, "")}

    def left(self) -> tuple[str, ...]:
        """Return a tuple of the keys that no call took, of objects one level deep as "key.inner"."""
        return (*_paths(self.row, self.taken), *self.rest)


def shape(row: dict[str, object]) -> Shaped | None:
    """Return a row as a Shaped item; None if it has no known form.

    Raises FormError for a row that has the keys of a form and not its values.
    """
    if "text" in row:
        return _text(row)
    if "check" in row or ("choices" in row and "prompt" in row):
        return Shaped(_answered(row))
    for form in FORMS:
        fields = _Fields(row)
        pair = form(fields)
        if pair is not None:
            item, how = pair
            return Shaped({**fields.common(), **item}, how, fields.left())
    return Shaped(row) if "choices" in row else None


def value(row: Mapping[str, object], path: str) -> object:
    """Return the value of a key that `shape` left out, also of "key.inner"; None if it is missing."""
    if path in row:
        return row[path]
    key, _, inner = path.partition(".")
    column = row.get(key)
    return column.get(inner) if isinstance(column, Mapping) else None


def _paths(row: Mapping[str, object], taken: set[str]) -> Iterator[str]:
    for key, value in row.items():
        if key not in taken and isinstance(value, Mapping) and value:
            yield from (f"{key}.{inner}" for inner in value)
        elif key not in taken:
            yield str(key)


# ---- items as they are -----------------------------------------------------------------------


def _text(row: dict[str, object]) -> Shaped:
    """Return a text item, Shaped, without further keys. Raises FormError for another item's keys."""
    if other := [name for name in ("choices", "check") if name in row]:
        raise FormError(
            f"it has text and {other[0]}, and an item has one of them. The text of a question or of "
            "a problem is called prompt"
        )
    item = {key: value for key, value in row.items() if key in (*COMMON, "text")}
    return Shaped(item, rest=tuple(_paths(row, set(item))))


def _answered(row: dict[str, object]) -> dict[str, object]:
    """Return the row with the answer's index in place of a letter or text; another row unchanged."""
    choices, answer = row.get("choices"), row.get("answer")
    if not isinstance(answer, str) or not isinstance(choices, list):
        return row
    return {**row, "answer": place(answer, [str(choice) for choice in choices])}


# ---- questions -------------------------------------------------------------------------------


def place(answer: object, choices: Sequence[str], labels: Sequence[str] = ()) -> int:
    """Return the index, from 0, of the answer among the choices.

    The answer is a label if the choices have `labels`. Without labels it is a place (also written
    as text), a letter or the text of a choice. Raises FormError for an answer that is no choice, or may
    be two of them.
    """
    if answer is None or isinstance(answer, bool) or not isinstance(answer, int | str):
        raise FormError(f"its answer is {_shown(answer)}: give its place (from 0), letter or text")
    written = str(answer).strip()
    if written in labels:
        return list(labels).index(written)
    places = set()
    if not labels and (written.isdecimal() or isinstance(answer, int)):
        places.add(int(written))
    if isinstance(answer, str):
        letter = written.strip("().:").upper()
        if len(letter) == 1 and letter in (labels or LETTERS):
            places.add(list(labels or LETTERS).index(letter))
        places |= {n for n, choice in enumerate(choices) if choice.strip() == written}
    places = {n for n in places if 0 <= n < len(choices)}
    if len(places) == 1:
        return places.pop()
    if places:
        raise FormError(
            f"its answer {_shown(answer)} may be the choice at any of {sorted(places)} (from 0), by "
            "its place, letter or text: give the place as a number"
        )
    raise FormError(f"its answer {_shown(answer)} is not one of {len(choices)} choices")


def _shown(value: object) -> str:
    """Return the value's text: as JSON writes true, false and null, else as Python does."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return shown(value)


def _question(fields: _Fields) -> tuple[dict[str, object], str] | None:
    """Return (question, how it was made) from stem, choices and answer; None for other rows."""
    stem = fields.first(STEMS)
    if stem is None or not fields.has(stem):
        return None
    pair = _choices(fields)
    if pair is None:
        return None
    choices, labels = pair
    answer = fields.first(ANSWERS)
    if answer is None:
        raise FormError(f"a question with choices, and no answer: call it {', '.join(ANSWERS)}")
    item = {
        "prompt": f"Question: {fields.take(stem)}\nAnswer:",
        "choices": [f" {choice}" for choice in choices],
        "answer": place(fields.take(answer), choices, labels),
    }
    return item, '"Question: …", a new line and "Answer:", then each choice after a blank'


def _choices(fields: _Fields) -> tuple[list[str], list[str]] | None:
    """Return (choices, their labels, which may be empty); None if there are none. Raises FormError."""
    name = fields.first(CHOICES)
    if name is None:
        return _lettered(fields)
    cell = fields.row[name]
    if not isinstance(cell, list | Mapping):
        raise FormError(f"its {name} are {_shown(cell)}: write them as a list, or as columns A, B, …")
    fields.take(name)
    labels: Any = []
    texts: object = cell
    if isinstance(cell, Mapping):
        if {"text", "label"} <= set(cell):
            texts, labels = cell["text"], cell["label"]
            fields.rest += [f"{name}.{key}" for key in cell if key not in ("text", "label")]
        else:
            labels, texts = list(cell), list(cell.values())
    elif cell and all(
        isinstance(choice, Mapping) and {"text", "label"} <= set(choice) for choice in cell
    ):
        texts, labels = [choice["text"] for choice in cell], [choice["label"] for choice in cell]
        inner = {key: None for choice in cell for key in choice if key not in ("text", "label")}
        fields.rest += [f"{name}.{key}" for key in inner]
    choices = _checked(texts, name)
    if labels and (not isinstance(labels, list) or len(labels) != len(choices)):
        raise FormError(f"its {name} have {len(choices)} texts and other labels: {_shown(labels)}")
    return choices, [str(label).strip() for label in labels]


def _lettered(fields: _Fields) -> tuple[list[str], list[str]] | None:
    """Return (choices in columns A, B, … or a, b, …, their letters); None without such columns."""
    for letters in (LETTERS, LETTERS.lower()):
        there = [letter for letter in letters if fields.row.get(letter) not in (None, "")]
        if letters[0] not in there or letters[1] not in there:
            continue
        if there != list(letters[: len(there)]):
            lacking = next(a for a, b in zip(letters, there, strict=False) if a != b)
            raise FormError(f"it has the choice {there[-1]} and no choice {lacking}")
        texts = [fields.take(letter) for letter in there]
        fields.taken |= set(letters) & set(fields.row)
        return _checked(texts, "choices"), [letter.upper() for letter in there]
    return None


def _checked(texts: object, name: str) -> list[str]:
    if not isinstance(texts, list) or len(texts) < 2:
        raise FormError(f"its {name} are {_shown(texts)}, and a question has two or more")
    for number, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            raise FormError(f"choice {number} (from 0) is {_shown(text)}: a choice is a text")
    return texts


def _solutions(fields: _Fields) -> tuple[dict[str, object], str] | None:
    """Return (question, how it was made) from PIQA's goal and two solutions; None for other rows."""
    if not fields.has("goal", "sol1", "sol2") or "label" not in fields.row:
        return None
    choices = [fields.take("sol1"), fields.take("sol2")]
    item = {
        "prompt": f"Question: {fields.take('goal')}\nAnswer:",
        "choices": [f" {choice}" for choice in choices],
        "answer": place(fields.take("label"), choices),
    }
    return item, 'the goal between "Question:" and "Answer:", then each solution after a blank'


def _endings(fields: _Fields) -> tuple[dict[str, object], str] | None:
    """Return (question, how it was made) from HellaSwag's ctx and endings; None for other rows."""
    if not fields.has("ctx") or "endings" not in fields.row or "label" not in fields.row:
        return None
    choices = _checked(fields.take("endings"), "endings")
    item = {
        "prompt": fields.take("ctx"),
        "choices": [f" {choice}" for choice in choices],
        "answer": place(fields.take("label"), choices),
    }
    return item, "ctx, then each ending after a blank"


# ---- texts -----------------------------------------------------------------------------------


def _chat(fields: _Fields) -> tuple[dict[str, object], str] | None:
    """Return (text, how it was made) from messages; None for other rows."""
    messages = fields.row.get("messages")
    if not isinstance(messages, list) or not messages:
        return None
    parts: list[str] = []
    inner: dict[str, None] = {}
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
            return None
        parts.append(f"{message.get('role', 'user')}: {message['content']}")
        inner |= {
            key: None
            for key, value in message.items()
            if key not in ("role", "content") and value is not None
        }
    fields.take("messages")
    fields.rest += [f"messages.{key}" for key in inner]
    return {"text": "\n\n".join(parts)}, "messages one after the other, each behind its role"


def _answer(fields: _Fields) -> tuple[dict[str, object], str] | None:
    """Return (text, how it was made) from a question and its answer; None for other rows."""
    if not fields.has("question") or fields.row.get("answer") in (None, ""):
        return None
    answer = fields.take("answer")
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise FormError(f"its answer is {_shown(answer)}: an answer is a text or a number")
    text = f"Question: {fields.take('question')}\nAnswer: {answer}"
    return {"text": text}, "the question, then the answer"


def _instruction(fields: _Fields) -> tuple[dict[str, object], str] | None:
    """Return (text, how it was made) from instruction, input and output; None for other rows."""
    if not fields.has("instruction", "output"):
        return None
    names = [name for name in ("instruction", "input", "output") if fields.has(name)]
    if fields.row.get("input") == "":
        fields.take("input")
    text = "\n\n".join(fields.take(name) for name in names)
    return {"text": text}, "the instruction, the input if there is one, then the output"


def _completion(fields: _Fields) -> tuple[dict[str, object], str] | None:
    """Return (text, how it was made) from a prompt and its completion; None for other rows."""
    if not fields.has("prompt", "completion"):
        return None
    text = fields.take("prompt") + fields.take("completion")
    return {"text": text}, "the prompt, directly followed by the completion"


#: The forms in the order in which they are tried. A form returns None for rows without its keys.
FORMS: tuple[Callable[[_Fields], tuple[dict[str, object], str] | None], ...] = (
    _question,
    _solutions,
    _endings,
    _chat,
    _answer,
    _instruction,
    _completion,
)
