"""Chat model in this process: reply generation, choice of tokens, and streamed text.

A reply is generated in a thread of its own, so that its tokens can be shown while it grows, and the
reply can be stopped. Weights keep their dtype; keys and values are cached. Tokens are chosen by the
model's `generation_config.json` and by the user's settings; without either, decoding is greedy, as in
transformers.

Streamed text never cuts a character. A character may be spread over several tokens, whose text ends
with U+FFFD until the last of them. A token's text may depend on the token before it, such as the blank
at the beginning of a word. So tokens are decoded together with those of the previous piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

import torch
from transformers import (
    LogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    StoppingCriteria,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from agent_forge.evaluation.backends.generation import TAIL, end_tokens
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.chat.conversation import Message, Piece, Reply, ReplySettings, limit
from agent_forge.evaluation.loading import load_tokenizer
from agent_forge.evaluation.trajectories.sampling import Drawing
from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.runs.event_types import ModelReference
from agent_forge.runs.system import bounded_files
from agent_forge.weights import randomness
from agent_forge.weights.folders import model_config, template_rendering
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.folders.vocabularies import Tokenizer


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
        self._choice = of_folder(folder)
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
        """Return the token ids of a conversation, as `Speaker` says."""
        if not self.templated:
            text = "".join(message["content"] for message in messages)
            return [*self._first, *self._tokenizer.encode(text, add_special_tokens=False)]
        try:
            text = template_rendering.rendered(self._tokenizer, messages)
        except template_rendering.TemplateFailedError as error:
            raise template_rendering.refused(self.name, error) from error
        return self._tokenizer.encode(text, add_special_tokens=False)

    def reply(self, ids: Sequence[int], settings: ReplySettings) -> Reply:
        """Return a `Reply`, the iterator over its pieces of text, as `Speaker` says."""
        stopping = Event()
        return Reply(self._pieces(list(ids), settings, stopping), stopping)

    def _pieces(self, ids: list[int], settings: ReplySettings, stopping: Event) -> Iterator[Piece]:
        """Yield the pieces of a reply; a thread generates it, and has ended after the last piece."""
        if not ids:
            raise ConfigError("there is no text to continue: type some.")
        most, reason = limit(self, ids, settings)
        ends = end_tokens(self._model.config, self._tokenizer) | self._choice.ends
        tokens: SimpleQueue[int | BaseException | None] = SimpleQueue()
        heard = _Hearing(tokens, ends, stopping)
        choice = self._choice.of(settings)
        choose = TokenChooser(choice, most, len(ids), settings.seed, "chat", len(ids))
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
        self,
        ids: list[int],
        most: int,
        heard: _Hearing,
        choose: TokenChooser,
        tokens: SimpleQueue[int | BaseException | None],
    ) -> None:
        """Generate a reply: put its tokens, an error if there is one, and then None into `tokens`."""
        row = torch.tensor([ids])
        try:
            self._model.continued(row, torch.ones_like(row), most, heard, choose)
        except BaseException as error:
            tokens.put(error)
        tokens.put(None)


class _Hearing(StoppingCriteria):
    """Stopping criterion that queues each token and stops at an end token or when asked to."""

    def __init__(
        self, tokens: SimpleQueue[int | BaseException | None], ends: frozenset[int], stopping: Event
    ) -> None:
        self._tokens, self._ends, self._stopping = tokens, ends, stopping

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: object) -> torch.Tensor:
        token = int(input_ids[0, -1])
        self._tokens.put(token)
        ended = token in self._ends or self._stopping.is_set()
        return torch.tensor([ended], device=input_ids.device)


FILE = "generation_config.json"
#: Bytes of the largest generation_config.json.
MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class SamplingRule:
    """Rule by which a model's tokens are chosen; temperature 0 is greedy, None leaves a step out."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    #: Tokens that end a reply.
    ends: frozenset[int] = frozenset()

    @property
    def words(self) -> str:
        """The rule in words for people: "greedy", or the steps with their numbers."""
        if not self.temperature:
            return "greedy"
        steps = {"top-k": self.top_k, "top-p": self.top_p, "min-p": self.min_p}
        more = [f"{name} {value:g}" for name, value in steps.items() if value is not None]
        return ", ".join([f"temperature {self.temperature:g}", *more])

    def of(self, settings: ReplySettings) -> SamplingRule:
        """Return a SamplingRule with the user's settings; a top-p alone samples at temperature 1."""
        temperature = settings.temperature
        if temperature is None:
            temperature = self.temperature or (1.0 if settings.top_p is not None else 0.0)
        top_p = self.top_p if settings.top_p is None else settings.top_p
        return replace(self, temperature=temperature, top_p=top_p)


def of_folder(folder: Path) -> SamplingRule:
    """Return the `SamplingRule` of a generation_config.json, greedy if missing. Raise SourceError."""
    file = folder / FILE
    if not file.exists():
        return SamplingRule()
    settings = bounded_files.read_object(file, MOST_BYTES)
    ends = settings.get("eos_token_id")
    several = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if not all(isinstance(end, int) for end in several):
        raise SourceError(f"{file}: eos_token_id is {str(ends)[:60]}, not the id of a token.")
    sampled = settings.get("do_sample") is True
    top_k = _number(file, settings, "top_k", 0, math.inf) if sampled else None
    return SamplingRule(
        temperature=(_number(file, settings, "temperature", 0, math.inf) or 1.0) if sampled else 0.0,
        top_k=int(top_k) if top_k else None,
        top_p=_number(file, settings, "top_p", 0, 1) if sampled else None,
        min_p=_number(file, settings, "min_p", 0, 1) if sampled else None,
        repetition_penalty=_number(file, settings, "repetition_penalty", 0, math.inf),
        ends=frozenset(several),
    )


def _number(file: Path, settings: dict[str, Any], key: str, low: float, high: float) -> float | None:
    """Return a setting above `low`, at most `high`; None if it is missing. Raise SourceError."""
    value = settings.get(key)
    if value is None or (key == "top_k" and value == 0):  # 0 tokens: all of them
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low < value <= high or value == math.inf:
        raise SourceError(f"{file}: {key} is {str(value)[:60]}, not a number that it may be.")
    return float(value)


class TokenChooser(LogitsProcessor):
    """Logits processor of a `SamplingRule`: afterwards the likeliest token is the one to take."""

    def __init__(self, choice: SamplingRule, limit: int, length: int, *key: str | int) -> None:
        """Choose up to `limit` tokens after a prompt of `length` tokens."""
        steps: list[Callable[..., torch.Tensor]] = []
        if choice.repetition_penalty is not None:
            steps.append(RepetitionPenaltyLogitsProcessor(choice.repetition_penalty))
        if choice.temperature:
            steps.append(TemperatureLogitsWarper(choice.temperature))
            steps += [] if choice.top_k is None else [TopKLogitsWarper(choice.top_k)]
            steps += [] if choice.top_p is None else [TopPLogitsWarper(choice.top_p)]
            steps += [] if choice.min_p is None else [MinPLogitsWarper(choice.min_p)]
            steps.append(Drawing(randomness.uniform(limit, *key)[None], length))
        self._steps = steps

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the scores [rows, vocabulary] after all steps."""
        for step in self._steps:
            scores = step(input_ids, scores)
        return scores


#: What decoders write for bytes that are no character yet.
REPLACEMENT = "\ufffd"
#: Bytes of the longest character, and so the tokens of one.
LONGEST = 4


class Decoder:
    """Decoder from a reply's tokens to text that never cuts a character."""

    def __init__(self, tokenizer: Tokenizer, before: list[int]) -> None:
        """Decode tokens that follow `before`, the last ids of the prompt."""
        self._tokenizer = tokenizer
        #: Tokens whose text is out, which those that follow are decoded with; and tokens held back.
        self._before, self._held = list(before), list[int]()

    def push(self, token: int) -> str:
        """Return the text that a token completes; '' if a character still lacks bytes."""
        self._held.append(token)
        text = self._text()
        incomplete = text.endswith(REPLACEMENT) and len(self._held) < LONGEST
        return "" if incomplete else self._out(text)

    def end(self) -> str:
        """Return the text that is held back, complete or not; '' if there is none."""
        return self._out(self._text()) if self._held else ""

    def _out(self, text: str) -> str:
        self._before = self._held if text else [*self._before, *self._held]
        self._held = []
        return text

    def _text(self) -> str:
        """Return the text of the tokens held back."""
        return self._decode([*self._before, *self._held])[len(self._decode(self._before)) :]

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
