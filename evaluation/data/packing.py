"""Packing of items and documents into windows of token ids, once per run.

Texts of a slice and domain are joined in the order of their ids, each followed by the end token, and
cut into windows of `context` tokens; the last may be shorter and is dropped only if it has a single
token. A window of n tokens predicts n − 1, so every token but a window's first is scored exactly once.
A question keeps the end of its prompt if prompt and choice exceed the context. A problem whose prompt
and reply exceed the context is refused, because a truncated task is another task. The prompt of a
problem with functions is a user's message, and a chat template writes it with the functions.

Prompt and continuation are encoded as lm-evaluation-harness 0.4 does for causal models: they are
tokenised together, with the tokenizer's own special tokens, and blanks at the prompt's end count to
the continuation. As many tokens as the prompt has alone are cut off in front; the rest is the
continuation. For an empty prompt stands the start token, else the end token.

Documents that are scored one by one make models of any tokenizer comparable. A document is preceded
by the start token (or the end token, if there is no other), so that every token of its text is
predicted exactly once; each window begins with the last token of the window before. This is the
rolling log-likelihood of lm-evaluation-harness (Biderman et al. 2024, arXiv 2405.14782).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from agent_forge.evaluation.data import function_templates
from agent_forge.evaluation.data.items import Item, Problem, Question, Text
from agent_forge.evaluation.data.outcomes import Pool
from agent_forge.evaluation.data.slices import SLICES, Slice
from agent_forge.runs.errors import DataError
from agent_forge.weights.folders.template_rendering import TemplateFailedError
from agent_forge.weights.folders.vocabularies import Tokenizer

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class PackedQuestion:
    """One question: a sequence of prompt and choice for every choice.

    If choices are scored minus their log-likelihood without the prompt, a sequence of the start
    token and the choice follows for each choice.
    """

    sequences: tuple[Ids, ...]
    #: The place in each sequence at which the choice starts.
    starts: tuple[int, ...]
    #: The divisor of each choice's log-likelihood: UTF-8 bytes, tokens, or 1.
    sizes: tuple[int, ...]
    answer: int
    id: str = ""
    grade: int = 0

    def pair(self, choice: int) -> tuple[Ids, Ids]:
        """Return (tokens before a choice, the choice's own tokens)."""
        whole, start = self.sequences[choice], self.starts[choice]
        return whole[:start], whole[start:]


@dataclass(frozen=True)
class PackedProblem:
    """One problem and its prompt as token ids."""

    problem: Problem
    ids: Ids


@dataclass
class ItemPack:
    """The packed items of one domain of one slice."""

    windows: list[Ids] = field(default_factory=list)
    questions: list[PackedQuestion] = field(default_factory=list)
    problems: list[PackedProblem] = field(default_factory=list)
    #: UTF-8 bytes of each window's predicted tokens; empty if the tokenizer gives no offsets.
    bytes: list[int] = field(default_factory=list)
    #: The first and the last text that each window has tokens of.
    texts: list[tuple[str, str]] = field(default_factory=list)

    def pool(self) -> Pool:
        """Return the Pool: the numbers of windows, questions and problems to draw from."""
        return Pool(
            windows=len(self.windows),
            questions=len(self.questions),
            problems=len(self.problems),
            question_grades=_grades([q.grade for q in self.questions]),
            problem_grades=_grades([p.problem.grade for p in self.problems]),
        )


def _grades(grades: Sequence[int]) -> tuple[int, ...]:
    """Return a tuple of the numbers of items by grade; () if there is at most one grade."""
    counts = [grades.count(grade) for grade in sorted(set(grades))]
    return tuple(counts) if len(counts) > 1 else ()


#: slice → domain → packed.
PackedData = dict[Slice, dict[str, ItemPack]]


def pack(items: Sequence[Item], tokenizer: Tokenizer, context: int) -> PackedData:
    """Return {slice: {domain: packed items}}. Raises DataError for an item that cannot be scored."""
    result: PackedData = {s: {} for s in SLICES}
    texts: dict[tuple[Slice, str], list[Text]] = {}
    for item in items:
        packed = result[item.slice].setdefault(item.domain, ItemPack())
        if isinstance(item, Question):
            packed.questions.append(_ask(item, tokenizer, context))
        elif isinstance(item, Problem):
            packed.problems.append(_pose(item, tokenizer, context))
        else:
            texts.setdefault((item.slice, item.domain), []).append(item)
    for domains in result.values():
        for packed in domains.values():
            packed.questions.sort(key=lambda q: q.grade)
            packed.problems.sort(key=lambda p: p.problem.grade)
    for (slice_, domain), members in texts.items():
        _cut(result[slice_][domain], members, tokenizer, context)
    return result


def fitting(items: Sequence[Item], tokenizer: Tokenizer, context: int) -> list[Item]:
    """Return a list of the items without questions and problems that are longer than a context.

    For items that were not made for one particular model.
    """

    def size(item: Question | Problem, *texts: str) -> int:
        if item.encoding == "harness":
            return len(alone("".join(texts), tokenizer))
        return sum(len(tokenizer.encode(text, add_special_tokens=False)) for text in texts)

    def fits(item: Item) -> bool:
        if isinstance(item, Problem):
            return size(item, _posed_text(item, tokenizer)) + item.max_tokens <= context
        if isinstance(item, Question):
            return max(size(item, item.prompt, choice) for choice in item.choices) <= context
        return True

    return [item for item in items if fits(item)]


def _cut(packed: ItemPack, texts: Sequence[Text], tokenizer: Tokenizer, context: int) -> None:
    """Append to `packed` the windows of `context` tokens into which the joined texts are cut."""
    written = [t.text for t in texts]
    fast = bool(getattr(tokenizer, "is_fast", False))
    encoded = tokenizer(written, add_special_tokens=False, verbose=False, return_offsets_mapping=fast)
    end = tokenizer.eos_token_id
    tail = [] if end is None else [end]
    stream: list[int] = []
    sizes: list[int] = []
    owners: list[int] = []
    for number, ids in enumerate(encoded["input_ids"]):
        check_known(texts[number].id, ids, tokenizer)
        stream += [*ids, *tail]
        owners += [number] * (len(ids) + len(tail))
        if fast:
            sizes += [
                *token_bytes(written[number], encoded["offset_mapping"][number]),
                *(0 for _ in tail),
            ]
    for first in range(0, len(stream), context):
        cut = stream[first : first + context]
        if len(cut) > 1:
            last = first + len(cut)
            packed.windows.append(np.asarray(cut, np.int64))
            packed.texts.append((texts[owners[first]].id, texts[owners[last - 1]].id))
            if fast:
                packed.bytes.append(sum(sizes[first + 1 : last]))


def token_bytes(text: str, offsets: Sequence[tuple[int, int]]) -> list[int]:
    """Return each token's number of UTF-8 bytes; if tokens share a character, the first has all."""
    if not offsets:
        return []
    before = np.cumsum([0, *(len(character.encode("utf-8", "replace")) for character in text)])
    ends = np.maximum.accumulate(np.asarray([end for _, end in offsets]))
    return [int(n) for n in np.diff(before[ends], prepend=0)]


def check_known(id_: str, ids: Sequence[int], tokenizer: Tokenizer) -> None:
    """Raise DataError if the tokenizer does not know a part of the item.

    A token that stands for everything unknown is easy to predict: its score measures nothing.
    """
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is not None and unknown != tokenizer.eos_token_id and unknown in ids:
        share = list(ids).count(unknown) / len(ids)
        raise DataError(
            f"item {id_!r}: the tokenizer does not know {share:.0%} of it (token "
            f"{tokenizer.unk_token!r}). Leave the item out: models would be scored on predicting what "
            "they cannot read."
        )


def _encode(id_: str, text: str, tokenizer: Tokenizer) -> list[int]:
    ids = tokenizer.encode(text, add_special_tokens=False)
    check_known(id_, ids, tokenizer)
    return ids


def _ask(item: Question, tokenizer: Tokenizer, context: int) -> PackedQuestion:
    parts = _parts(item, tokenizer)
    choices = [choice for _, choice in parts]
    for choice, ids in zip(item.choices, choices, strict=True):
        if not ids:
            raise DataError(f"question {item.id!r}: choice {choice!r} is no token. Leave it out.")
        if len(ids) >= context:
            raise DataError(
                f"question {item.id!r}: a choice has {len(ids)} tokens, the model's context is "
                f"{context}. Shorten it."
            )
    pairs = [(prompt[-(context - len(ids)) :], ids) for prompt, ids in parts]
    if item.normalise == "mutual":
        pairs += _parts(item.model_copy(update={"prompt": ""}), tokenizer)
    return PackedQuestion(
        sequences=tuple(np.asarray([*prompt, *ids], np.int64) for prompt, ids in pairs),
        starts=tuple(len(prompt) for prompt, _ in pairs),
        sizes=item.sizes or tuple(_sizes(item, choices)),
        answer=item.answer,
        id=item.id,
        grade=item.grade,
    )


def _parts(item: Question, tokenizer: Tokenizer) -> list[tuple[list[int], list[int]]]:
    """Return a list of (tokens before it, its own tokens), one for each choice."""
    if item.encoding == "harness":
        parts = [pair(item.prompt, choice, tokenizer) for choice in item.choices]
        for before, ids in parts:
            check_known(item.id, [*before, *ids], tokenizer)
        return parts
    start = [tokenizer.bos_token_id if tokenizer.bos_token_id is not None else 0]
    prompt = _encode(item.id, item.prompt, tokenizer) or start
    return [(prompt, _encode(item.id, choice, tokenizer)) for choice in item.choices]


def _sizes(item: Question, choices: Sequence[Sequence[int]]) -> list[int]:
    if item.normalise == "bytes":
        return [len(choice.encode()) for choice in item.choices]
    return [len(ids) if item.normalise == "tokens" else 1 for ids in choices]


def _pose(item: Problem, tokenizer: Tokenizer, context: int) -> PackedProblem:
    if item.encoding == "harness":
        ids = alone(_posed_text(item, tokenizer), tokenizer)
        check_known(item.id, ids, tokenizer)
    else:
        ids = _encode(item.id, _posed_text(item, tokenizer), tokenizer)
    if not ids:
        raise DataError(f"problem {item.id!r}: its prompt is no token.")
    if len(ids) + item.max_tokens > context:
        raise DataError(
            f"problem {item.id!r}: its prompt has {len(ids)} tokens and its reply may have "
            f"{item.max_tokens}; the context is {context}. Shorten it, or raise `context`."
        )
    return PackedProblem(item, np.asarray(ids, np.int64))


def _posed_text(item: Problem, tokenizer: Tokenizer) -> str:
    """Return a problem's prompt, by a chat template if it has functions. Raises DataError."""
    if not item.functions:
        return item.prompt
    try:
        return function_templates.question(tokenizer, item.prompt, item.functions)
    except TemplateFailedError as error:
        raise DataError(f"problem {item.id!r}: the chat template refuses it ({error}).") from error


def pair(prompt: str, continuation: str, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return (ids of the prompt, of the continuation); of a blank prompt (start token, ids of both)."""
    if not prompt.strip():
        continuation = prompt + continuation
        start = tokenizer.bos_token_id
        start = tokenizer.eos_token_id if start is None else start
        ids = tokenizer.encode(continuation, add_special_tokens=False)
        return (ids[:1], ids[1:]) if ids[:1] == [start] else ([start or 0], ids)
    stem = prompt.rstrip()
    before = alone(stem, tokenizer)
    return before, alone(prompt + continuation, tokenizer)[len(before) :]


def alone(text: str, tokenizer: Tokenizer) -> list[int]:
    """Return a list of the token ids of a text with the tokenizer's special tokens.

    If the text begins with the start token, else the end token, no special tokens are added.
    """
    first = tokenizer.bos_token_id
    first = tokenizer.eos_token_id if first is None else first
    first_text = tokenizer.decode([first]) if first is not None else ""
    if first_text and text.startswith(first_text):
        return tokenizer.encode(text, add_special_tokens=False)
    return tokenizer.encode(text)


@dataclass(frozen=True)
class Windows:
    """The windows of one document, and the UTF-8 bytes that they predict."""

    id: str
    windows: tuple[Ids, ...]
    bytes: int


def documents(texts: Sequence[Text], tokenizer: Tokenizer, context: int) -> list[Windows]:
    """Return a list of each text's Windows, at most `context` tokens long, in order.

    Without a start or end token, the first token of a text is not predicted, and its bytes do not
    count. Raises DataError for a text that the tokenizer does not know, or of which nothing is
    predicted.
    """
    start = tokenizer.bos_token_id
    start = tokenizer.eos_token_id if start is None else start
    return [_document(text, tokenizer, start, context) for text in texts]


def in_turn(domains: Iterable[Sequence[Windows]], tokens: int) -> list[Ids]:
    """Return a list of windows of every domain in turn, of `tokens` tokens in all; the last is cut."""
    queues = [[w for document in split for w in document.windows] for split in domains]
    windows: list[Ids] = []
    for number in range(max(map(len, queues), default=0)):
        for queue in queues:
            if number < len(queue) and tokens > 0:
                windows.append(queue[number][:tokens])
                tokens -= len(windows[-1])
    return windows


def _document(text: Text, tokenizer: Tokenizer, start: int | None, context: int) -> Windows:
    ids = tokenizer.encode(text.text, add_special_tokens=False, verbose=False)
    check_known(text.id, ids, tokenizer)
    size = len(text.text.encode("utf-8", "replace"))
    if start is None:
        size -= _first_bytes(text, tokenizer)
    whole = ids if start is None else [start, *ids]
    cuts = [whole[at : at + context] for at in range(0, len(whole) - 1, context - 1)]
    if not cuts or size < 1:
        raise DataError(f"text {text.id!r} is one token: nothing of it is predicted. Leave it out.")
    return Windows(text.id, tuple(np.asarray(cut, np.int64) for cut in cuts), size)


def _first_bytes(text: Text, tokenizer: Tokenizer) -> int:
    """Return the number of bytes of a text's first token. Raises DataError if that is not known."""
    if not getattr(tokenizer, "is_fast", False):
        raise DataError(
            "the tokenizer has neither a start nor an end token, and does not tell which part of a "
            "text its first token is: its models cannot be compared by bits per byte."
        )
    encoded = tokenizer(text.text, add_special_tokens=False, return_offsets_mapping=True)
    return token_bytes(text.text, encoded["offset_mapping"])[0]
