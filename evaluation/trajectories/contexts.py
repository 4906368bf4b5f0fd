"""Contexts to bake a prompt on, and both beginnings of a trajectory: with the prompt, and without.

A context is a piece of a document. With a chat template the prompt is the system message, the context
the user's; without one the prompt stands before the context, as it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from agent_forge.runs.errors import ConfigError
from agent_forge.weights import randomness
from agent_forge.weights.folders import template_rendering
from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.training.windows import Ids


def documents(stream: Ids, end: int) -> Iterator[Ids]:
    """Yield the token ids of each document of a stream; `end` follows every document."""
    start = 0
    for at in np.flatnonzero(stream == end).tolist():
        if at > start:
            yield stream[start:at]
        start = at + 1
    if start < len(stream):
        yield stream[start:]


def pieces(documents: Iterable[Ids], size: int) -> list[Ids]:
    """Return a list of pieces, `size` ids each, of the documents; a last one under half is left out.

    A document that is shorter is a piece of its own.
    """
    parts = []
    for ids in documents:
        for at in range(0, len(ids), size):
            piece = ids[at : at + size]
            if at == 0 or len(piece) * 2 >= size:
                parts.append(piece)
    return parts


def chosen(pools: Mapping[str, Sequence[Ids]], count: int, *key: str | int) -> list[Ids]:
    """Return the ids of up to `count` contexts, domains in turn, each in an order drawn by key."""
    orders = {
        domain: iter(randomness.permutation(len(pool), *key, domain).tolist())
        for domain, pool in sorted(pools.items())
    }
    contexts: list[Ids] = []
    while orders and len(contexts) < count:
        for domain, order in list(orders.items()):
            number = next(order, None)
            if number is None:
                del orders[domain]
            elif len(contexts) < count:
                contexts.append(pools[domain][number])
    return contexts


class Beginnings:
    """Maker of the beginnings of trajectories, as a tokenizer's ids."""

    def __init__(self, tokenizer: Tokenizer, chat: bool) -> None:
        """Use the chat template if `chat` is True.

        Raises ConfigError if the tokenizer has none, or one that takes no system message;
        SourceError if the template goes beyond the bounds of `template_rendering`.
        """
        self._tokenizer, self._chat = tokenizer, chat
        first = tokenizer("")["input_ids"][:1]
        self._first = first if first == [tokenizer.bos_token_id] else []
        if chat and not tokenizer.chat_template:
            raise ConfigError("the tokenizer has no chat template: set chat to false.")
        if chat:
            self._messages("a", "b")

    def plain(self, context: Ids) -> Ids:
        """Return the ids (int32) of a context without a prompt."""
        return self._messages(None, self._text(context)) if self._chat else self._ids("", context)

    def prompted(self, prompts: Sequence[str], context: Ids) -> Ids:
        """Return the ids (int32) of a context after prompts, in their order."""
        if self._chat:
            return self._messages("\n\n".join(p.strip() for p in prompts), self._text(context))
        return self._ids("".join(prompts), context)

    def room(self, prompts: Sequence[str]) -> int:
        """Return the number of tokens that prompts take, with what stands around messages."""
        return len(self.prompted(prompts, np.zeros(0, np.int32)))

    def _ids(self, prompt: str, context: Ids) -> Ids:
        prompt_ids = self._tokenizer.encode(prompt, add_special_tokens=False) if prompt else []
        return np.asarray([*self._first, *prompt_ids, *context.tolist()], np.int32)

    def _text(self, context: Ids) -> str:
        return self._tokenizer.decode(
            context.tolist(), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def _messages(self, system: str | None, user: str) -> Ids:
        messages = [] if system is None else [{"role": "system", "content": system}]
        messages.append({"role": "user", "content": user})
        try:
            text = template_rendering.rendered(self._tokenizer, messages)
        except template_rendering.TemplateFailedError as error:
            raise ConfigError(
                f"the tokenizer's chat template takes no system message ({error}): set chat to false."
            ) from error
        return np.asarray(self._tokenizer.encode(text, add_special_tokens=False), np.int32)
