"""A model that replies in this process, in the dtype of its weights, with a cache of keys and values.

The reply is written by a thread of its own, so that its tokens can be shown, and it can be stopped,
while it grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

import torch
from transformers import StoppingCriteria

from evaluation.backends.generation import TAIL, end_tokens
from evaluation.backends.local_backend import ResidentModel
from evaluation.chat import choosing
from evaluation.chat.conversation import Message, Piece, Reply, Settings, limit
from evaluation.chat.decoding import Decoder
from evaluation.loading import load_tokenizer
from runs.errors import ConfigError
from runs.event_types import ModelReference
from weights.folders import model_config, template_rendering
from weights.folders.checkpoint import open_checkpoint


class ResidentSpeaker:
    """A model of a folder, held in this process."""

    def __init__(self, model: ModelReference, device: str) -> None:
        """Load a model and its tokenizer. Raise SourceError."""
        folder = Path(model.path)
        checkpoint = open_checkpoint(folder)
        model_config.check_predicts_tokens(folder, checkpoint.config)
        self._tokenizer = load_tokenizer(model.path)
        first = self._tokenizer("")["input_ids"][:1]
        self._first = first if first == [self._tokenizer.bos_token_id] else []
        self._choice = choosing.of_folder(folder)
        self._model = ResidentModel(folder, device, checkpoint.tied)
        weights = checkpoint.tensors()
        self._model.load(weights)
        dtypes = sorted({str(t.dtype).removeprefix("torch.") for t in weights.values()})
        self.name = model.name
        self.described = (
            f"{checkpoint.parameters:,} parameters in {', '.join(dtypes)} on {device}, "
            f"{self._choice.words}"
        )
        self.positions = checkpoint.positions
        self.templated = bool(self._tokenizer.chat_template)

    def ids(self, messages: Sequence[Message]) -> list[int]:
        """Return a conversation as token ids, as `Speaker` says."""
        if not self.templated:
            text = "".join(message["content"] for message in messages)
            return [*self._first, *self._tokenizer.encode(text, add_special_tokens=False)]
        try:
            text = template_rendering.rendered(self._tokenizer, messages)
        except template_rendering.TemplateFailedError as error:
            raise template_rendering.refused(self.name, error) from error
        return self._tokenizer.encode(text, add_special_tokens=False)

    def reply(self, ids: Sequence[int], settings: Settings) -> Reply:
        """Return the reply to a conversation, as `Speaker` says."""
        stopping = Event()
        return Reply(self._pieces(list(ids), settings, stopping), stopping)

    def _pieces(self, ids: list[int], settings: Settings, stopping: Event) -> Iterator[Piece]:
        """Yield the reply's pieces; the thread that writes it has ended with the last."""
        if not ids:
            raise ConfigError("there is no text to continue: type some.")
        most, reason = limit(self, ids, settings)
        ends = end_tokens(self._model, self._tokenizer) | self._choice.ends
        tokens: SimpleQueue[int | BaseException | None] = SimpleQueue()
        heard = _Hearing(tokens, ends, stopping)
        choice = self._choice.of(settings)
        choose = choosing.Choosing(choice, most, len(ids), settings.seed, "chat", len(ids))
        thread = Thread(target=self._write, args=(ids, most, heard, choose, tokens), daemon=True)
        thread.start()
        decoder = Decoder(self._tokenizer, ids[-TAIL:])
        try:
            while (token := tokens.get()) is not None:
                if isinstance(token, BaseException):
                    raise token
                if token in ends:
                    reason = "end"
                    break
                yield Piece(decoder.push(token), 1)
            if reason != "end" and stopping.is_set():
                reason = "stopped"
            yield Piece(decoder.end(), reason=reason)
        finally:
            stopping.set()
            thread.join()

    def _write(
        self, ids: list[int], most: int, heard: _Hearing, choose: Any, tokens: SimpleQueue[Any]
    ) -> None:
        """Write a reply; `tokens` gets its tokens by `heard`, an error if there is one, and None."""
        row = torch.tensor([ids])
        try:
            self._model.continued(row, torch.ones_like(row), most, heard, choose)
        except BaseException as error:
            tokens.put(error)
        tokens.put(None)


class _Hearing(StoppingCriteria):
    """Stopping criterion that passes tokens on, and ends at an end token or when asked to stop."""

    def __init__(self, tokens: SimpleQueue[Any], ends: frozenset[int], stopping: Event) -> None:
        self._tokens, self._ends, self._stopping = tokens, ends, stopping

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        token = int(input_ids[0, -1])
        self._tokens.put(token)
        ended = token in self._ends or self._stopping.is_set()
        return torch.tensor([ended], device=input_ids.device)
