"""Conversations as a model reads them: rendered by a chat template, the assistant's tokens marked.

`data.function_templates` chooses the template.

A turn's trained text is what the template writes after the beginning of a reply, up to the end token.
So a turn is learned after exactly what the model reads before it replies. A template may write earlier
turns in another way once later ones follow (some leave out thoughts); such turns become examples of
their own.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agent_forge.evaluation.data import conversations, function_templates, training_texts
from agent_forge.evaluation.data.conversations import Conversation, Json
from agent_forge.evaluation.data.function_templates import own, special_tokens
from agent_forge.evaluation.data.packing import check_known
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.task_families import function_calls
from agent_forge.evaluation.verifiers import calls
from agent_forge.runs.errors import ConfigError, DataError
from agent_forge.weights.folders import companions
from agent_forge.weights.folders.template_rendering import TemplateFailedError, rendered_by
from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.training.windows import Ids, pack_items

#: The fewest conversations that the program makes up to measure on.
FEWEST = 64
#: Tokens of a window without a setting, if the model takes as many.
CONTEXT = 1024
#: Beginning of the names of streams of conversations, "conversations/DOMAIN/SLICE".
CONVERSATIONS = "conversations/"
#: Beginning of the names of streams of replies that follow demonstrations.
PROMPTED = "prompted-"
#: File of a model's folder that has its chat template.
TEMPLATE = "chat_template.jinja"


@dataclass(frozen=True)
class Example:
    """A conversation up to one of its turns, as token ids."""

    conversation: Conversation
    text: str
    #: [tokens] int32.
    ids: Ids
    #: [tokens], True where the token is one that the assistant writes.
    trained: NDArray[np.bool_]

    @property
    def stream(self) -> Ids:
        """The ids, −1 − id where a token is trained, [tokens] int32."""
        return np.where(self.trained, -1 - self.ids, self.ids).astype(np.int32)

    def runs(self) -> Iterator[tuple[int, int, bool]]:
        """Yield (begin, end, is it trained) of each run of tokens."""
        edges = [0, *(np.flatnonzero(np.diff(self.trained)) + 1).tolist(), len(self.ids)]
        for begin, end in itertools.pairwise(edges):
            yield begin, end, bool(self.trained[begin])

    def parts(self, tokenizer: Tokenizer) -> Iterator[tuple[str, bool]]:
        """Yield (text, is it trained) of each run of tokens, as the model reads and writes them."""
        for begin, end, learned in self.runs():
            yield tokenizer.decode(self.ids[begin:end].tolist()), learned

    def replies(self, tokenizer: Tokenizer) -> Iterator[tuple[str, Ids]]:
        """Yield ("calls" or "words", ids up to the end of a turn, of which only that is marked).

        Of a conversation without functions there are none.
        """
        for begin, end, learned in self.runs() if self.conversation.tools else ():
            if learned:
                ids = np.concatenate([self.ids[:begin], -1 - self.ids[begin:end]])
                text = tokenizer.decode(self.ids[begin:end].tolist())
                yield "calls" if calls.calls_in(text) else "words", ids.astype(np.int32)


@dataclass(frozen=True)
class Template:
    """A chat template with the tokenizer that reads what it renders."""

    text: str
    tokenizer: Tokenizer
    #: The model's name, for messages.
    name: str
    #: Texts of the tokens that end a reply.
    ends: tuple[str, ...]

    @property
    def is_own(self) -> bool:
        """True if it is the program's own, and not the model's."""
        return self.text == own()

    @cached_property
    def special(self) -> dict[str, str]:
        """Name → special token that the template may name."""
        return special_tokens(self.tokenizer)

    @cached_property
    def reads_calls(self) -> bool:
        """True if the template writes calls in the form that `verifiers.calls` reads."""
        try:
            _, call, _ = function_templates.probe()
            conversation = Conversation("probe", "", "train", [{"role": "user", "content": "?"}, call])
            ((begin, end, text),) = self._replies(conversation)
        except (TemplateFailedError, DataError):
            return False
        return bool(calls.calls_in(text[begin:end]))

    def rendered(self, turns: Sequence[Json], tools: Sequence[Json], begins_reply: bool) -> str:
        """Return the text of some turns. Raises TemplateFailedError, SourceError."""
        plain = [{key: part for key, part in turn.items() if key != "weight"} for turn in turns]
        return rendered_by(self.text, self.special, self.name, plain, tools or None, begins_reply)

    def examples(self, conversation: Conversation) -> Iterator[Example]:
        """Yield the examples of a conversation, of its last turns first.

        Raises DataError if the template refuses it, or begins replies as it does not write them.
        """
        try:
            left = list(self._replies(conversation))
        except TemplateFailedError as error:
            raise DataError(
                f"{conversation.id}: the chat template of {self.name} refuses it ({error})."
            ) from error
        while left:
            whole = left[-1][2]
            spans = [(begin, end) for begin, end, text in left if whole.startswith(text[:end])]
            yield self._marked(conversation, whole, spans)
            left = [reply for reply in left if not whole.startswith(reply[2][: reply[1]])]

    def _replies(self, conversation: Conversation) -> Iterator[tuple[int, int, str]]:
        """Yield (begin, end, text) of each reply to learn: its places in the text up to its turn."""
        turns, tools = conversation.messages, conversation.tools
        for place, turn in enumerate(turns):
            if turn["role"] != "assistant" or turn.get("weight") == 0:
                continue
            before = self.rendered(turns[:place], tools, True)
            text = self.rendered(turns[: place + 1], tools, False)
            if not text.startswith(before):
                raise DataError(
                    f"{conversation.id}: the chat template of {self.name} begins a reply with "
                    f"{before[-40:]!r}, and does not write message {place} (from 0) so: train with "
                    "another template."
                )
            ends = [at + len(e) for e in self.ends if (at := text.find(e, len(before))) >= 0]
            yield len(before), min(ends, default=len(text)), text

    def _marked(
        self, conversation: Conversation, text: str, spans: Sequence[tuple[int, int]]
    ) -> Example:
        """Return the text up to its last span as ids, trained where a token has letters of a span."""
        text = text[: max(end for _, end in spans)]
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        check_known(conversation.id, encoded["input_ids"], self.tokenizer)
        offsets = np.asarray(encoded["offset_mapping"])
        trained = np.zeros(len(offsets), bool)
        for begin, end in spans:
            learned = (offsets[:, 1] > begin) & (offsets[:, 0] < end)
            before = self.tokenizer.encode(text[:begin], add_special_tokens=False)
            if before != encoded["input_ids"][: learned.argmax()]:
                raise DataError(
                    f"{conversation.id}: the tokenizer of {self.name} joins the beginning of a reply, "
                    f"{text[:begin][-20:]!r}, with what follows: train with another template."
                )
            trained |= learned
        trained[:1] = False  # nothing stands before it
        return Example(conversation, text, np.asarray(encoded["input_ids"], np.int32), trained)


def chosen(
    donor: Path, tokenizer: Tokenizer, name: str, conversations: Sequence[Conversation]
) -> Template:
    """Return the template that conversations are rendered by: of a model's folder, or else our own.

    Raises SourceError for a template without bound.
    """
    if any((donor / further).is_dir() for further in companions.FOLDERS):  # which runs do not copy
        templates = tokenizer.chat_template
        tokenizer.chat_template = templates.get("default") if isinstance(templates, dict) else templates
    uses_tools = any(c.tools or any("tool_calls" in m for m in c.messages) for c in conversations)
    text = function_templates.chosen(tokenizer, name, uses_tools)
    return Template(text, tokenizer, name, _ends(donor, tokenizer))


def _ends(donor: Path, tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return a tuple of the texts of the tokens that end a model's replies."""
    ends = {tokenizer.eos_token_id}
    for file in (companions.CONFIG, "generation_config.json"):
        if (donor / file).exists():
            ids = json.loads((donor / file).read_bytes()).get("eos_token_id")
            ends |= {*(ids if isinstance(ids, list) else [ids])}
    texts = (tokenizer.decode([id_]) for id_ in sorted(ends - {None}))
    return tuple(text for text in texts if text)


def absolute(place: str) -> str:
    """Return a place of conversations with an absolute path; a place of made-up ones as it is.

    Raises DataError, UnavailableError.
    """
    if training_texts.MADE.fullmatch(place):
        return place
    if place.startswith("calls:") and not Path(place).exists():
        raise DataError(
            f"{place[:200]}: give calls:COUNT, from calls:1 to calls:99999, or calls:COUNTxREQUESTS, "
            "up to 9 requests in each conversation."
        )
    return training_texts.absolute(place)


def read(data: Sequence[str]) -> tuple[list[Conversation], list[str]]:
    """Return (conversations of places, notes on how they were read). Raises DataError.

    `calls:COUNT` are COUNT made-up conversations to train on, in which functions are called or none
    fits, and some with other functions to measure on (`task_families.function_calls`). With
    `calls:COUNTxREQUESTS` each of those to train on has several requests.
    """
    rows = itertools.chain.from_iterable(map(_made, data))
    return conversations.read(
        [place for place in data if not training_texts.MADE.fullmatch(place)], rows
    )


def _made(place: str) -> Iterator[tuple[str, str, Json]]:
    """Yield (name, domain, row) of the conversations of `calls:…`; nothing for another place."""
    match = training_texts.MADE.fullmatch(place)
    count, requests = (int(match[1]), int(match[2] or 0)) if match else (0, 0)
    few = min(count, max(FEWEST, count // 10))
    counts: dict[Slice, int] = {"train": count, "selection": few, "test": few}
    for on, most in counts.items():
        for number in range(most):
            if on == "train" and requests:
                items = function_calls.dialogue(on, 0, number, requests)
            else:
                items = [function_calls.task(on, 0, number)]
            yield f"calls/{on}/{number}", "calls", function_calls.conversation(*items)


def window(context: int | None, positions: int | None) -> int:
    """Return the tokens of a window: `context`, or else `CONTEXT` or as many as the model takes.

    Raises ConfigError if the model takes fewer than `context`.
    """
    if context and positions and context > positions:
        raise ConfigError(f"context is {context}, the model takes {positions} tokens at most.")
    return context or min(CONTEXT, positions or CONTEXT)


@dataclass(frozen=True)
class Rendered:
    """Examples by domain and slice, and those that are longer than a window."""

    #: (domain, slice) → examples.
    examples: Mapping[tuple[str, str], list[Example]]
    too_long: Sequence[Example]

    def streams(
        self, template: Template, shots: int = 0, requests: bool = False, shown: bool = False
    ) -> dict[str, Ids]:
        """Return name → examples, or single replies, as one stream.

        Names are "conversations/DOMAIN/SLICE", and of replies to measure, in conversations with
        functions, "calls/DOMAIN/SLICE" and "words/DOMAIN/SLICE"; those of the test slice again as
        "prompted-…", after `shots` demonstrations of the slice to train on. With `requests` the replies
        to train on are streams, too; with `shown` each of them again as "prompted-…", in the same
        order, after its own conversation.
        """
        items: dict[str, list[Ids]] = {}
        for (domain, on), examples in self.examples.items():
            items[f"{CONVERSATIONS}{domain}/{on}"] = [example.stream for example in examples]
            if template.reads_calls and on != "search" and (requests or on != "train"):
                every = [("", example) for example in examples]
                if shots and on == "test":
                    before = demonstrations(self.examples.get((domain, "train"), ()), template, shots)
                    for talk in _talks(examples):
                        every += [(PROMPTED, e) for e in template.examples(after(before, talk))]
                if shown and on == "train":
                    every = _twice(examples, template)
                for prefix, example in every:
                    for what, ids in example.replies(template.tokenizer):
                        items.setdefault(f"{prefix}{what}/{domain}/{on}", []).append(ids)
        return {name: pack_items(ids) for name, ids in items.items()}


def _talks(examples: Sequence[Example]) -> list[Conversation]:
    """Return the distinct conversations with functions of examples, in their order."""
    talks = {example.conversation.id: example.conversation for example in examples}
    return [talk for talk in talks.values() if talk.tools]


def _twice(examples: Sequence[Example], template: Template) -> list[tuple[str, Example]]:
    """Return ("", example) of each example, and (PROMPTED, the same after its own conversation).

    Conversations that have other examples then are left out.
    """
    every: list[tuple[str, Example]] = []
    by_talk: dict[str, list[Example]] = {}
    for example in examples:
        by_talk.setdefault(example.conversation.id, []).append(example)
    for talk in _talks(examples):
        plain, again = by_talk[talk.id], [*template.examples(after([talk], talk))]
        if len(plain) == len(again):
            every += [*(("", example) for example in plain), *((PROMPTED, e) for e in again)]
    return every


def demonstrations(examples: Sequence[Example], template: Template, count: int) -> list[Conversation]:
    """Return a list of `count` conversations with functions: with a call and in words, in turn.

    They are the first of each, without the turns of a system; fewer if there are fewer.
    """
    groups: dict[str, list[Conversation]] = {"calls": [], "words": []}
    for example in examples:
        first = next(example.replies(template.tokenizer), None)
        if first is not None:
            groups[first[0]].append(example.conversation)
        if all(len(group) >= count for group in groups.values()):
            break
    pairs = itertools.zip_longest(*groups.values())
    return [talk for pair in pairs for talk in pair if talk is not None][:count]


def after(shown: Sequence[Conversation], conversation: Conversation) -> Conversation:
    """Return a conversation that follows others, with the functions of all; only it is learned."""
    own_turns = conversation.messages
    begin = [turn for turn in own_turns if turn["role"] == "system"]
    before = [{**t, "weight": 0} for c in shown for t in c.messages if t["role"] != "system"]
    turns = [*begin, *before, *(turn for turn in own_turns if turn["role"] != "system")]
    tools = [*(tool for c in shown for tool in c.tools), *conversation.tools]
    distinct = [tool for place, tool in enumerate(tools) if tool not in tools[:place]]
    return replace(conversation, messages=turns, tools=distinct)


def render(template: Template, conversations: Sequence[Conversation], context: int) -> Rendered:
    """Return all examples of conversations; those of more than `context` tokens are left out.

    Raises DataError, with the longest's tokens, for a domain that has none left in a slice.
    """
    examples: dict[tuple[str, str], list[Example]] = {}
    too_long: list[Example] = []
    for conversation in conversations:
        for example in template.examples(conversation):
            if len(example.ids) > context:
                too_long.append(example)
            else:
                place = conversation.domain, conversation.slice
                examples.setdefault(place, []).append(example)
    for place in sorted({(c.domain, c.slice) for c in conversations if c.slice != "search"}):
        if place not in examples:
            longest = max(len(example.ids) for example in too_long)
            raise DataError(
                f"domain {place[0]} has no example left in the slice {place[1]} that fits into a "
                f"window of {context} tokens: {len(too_long)} examples are longer. Set context, up "
                f"to {longest}."
            )
    return Rendered(dict(sorted(examples.items())), too_long)
