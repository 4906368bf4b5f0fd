"""Episodes: a model works on tool tasks; its calls are carried out and their results go back to it.

A turn is the text that the model writes until a call or its end; a result follows a call, as context.
Decoding is greedy, or sampled by key (`evaluation/trajectories/sampling.py`). The numbers of turns,
tokens and calls, and the lengths of outputs, are limited.

Without a chat template a session begins with the prompt, the question and a line break. With one, the
prompt is the system message and the question the user's; in the form `chat` the template also writes
the tools and their results.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from transformers import StoppingCriteria

from agent_forge.evaluation.backends.generation import end_tokens
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.sandbox.sandbox import Sandbox
from agent_forge.evaluation.trajectories.contexts import Beginnings
from agent_forge.evaluation.trajectories.sampling import ROWS, Drawing
from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.tools import calls
from agent_forge.tools.calls import FORMS, Form, Tool, ToolError
from agent_forge.tools.tasks.base import ToolItem, right
from agent_forge.tools.toolbox import Toolbox, ToolOutput
from agent_forge.weights import pieces, randomness
from agent_forge.weights.folders import template_rendering
from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.training.windows import Ids, Trajectory

_T = TypeVar("_T")


@dataclass(frozen=True)
class Bounds:
    """Limits of a session."""

    #: Most tokens of a turn, and most calls of a session.
    tokens: int
    calls: int


@dataclass
class EpisodeSession:
    """One session of an episode: its beginning, and the model's turns with results in between."""

    begin: Ids
    #: Turns of the model, [tokens] each, and the ids that follow each call.
    turns: list[Ids] = field(default_factory=list)
    results: list[Ids] = field(default_factory=list)
    answers: list[ToolOutput] = field(default_factory=list)
    #: True once the model has ended or has reached a limit.
    over: bool = False
    said: str = ""

    def before(self, turn: int) -> Ids:
        """Return the ids of all turns and results before the turn `turn`, [tokens] int32."""
        parts = [np.zeros(0, np.int32)]
        for number in range(turn):
            parts += [self.turns[number], self.results[number]]
        return np.concatenate(parts).astype(np.int32)

    @property
    def context(self) -> Ids:
        """The ids before the next turn, [tokens] int32."""
        return np.concatenate([self.begin, self.before(len(self.turns))]).astype(np.int32)


@dataclass
class Episode:
    """A task that a model has worked on."""

    item: ToolItem
    sessions: list[EpisodeSession]
    #: True if every session had a call that ran, and the answer is right or all tests pass.
    solved: bool = False

    def trajectories(self, speech: Speech) -> Iterator[Trajectory]:
        """Yield each turn as a trajectory; earlier turns and results stand before it as context."""
        for question, session in zip(self.item.questions, self.sessions, strict=True):
            plain = speech.begin("", question)
            for number, turn in enumerate(session.turns):
                before = session.before(number)
                yield Trajectory(
                    0,
                    np.concatenate([session.begin, before]).astype(np.int32),
                    np.concatenate([plain, before]).astype(np.int32),
                    turn,
                )


#: Number of an item, its session under way, and its tools.
Talk = tuple[int, EpisodeSession, Toolbox]


class Player:
    """A model at work on tool tasks."""

    def __init__(
        self, model: ResidentModel, speech: Speech, bounds: Bounds, sandbox: Callable[[], Sandbox]
    ) -> None:
        """Store the model, speech and limits; `sandbox` returns the sandbox in which programs run."""
        self._model, self._speech, self._bounds, self._sandbox = model, speech, bounds, sandbox
        self._ends = end_tokens(model.config, speech.tokenizer)

    def played(
        self, items: Sequence[ToolItem], prompt: str, tools: bool, key: tuple[str | int, ...] = ()
    ) -> list[Episode]:
        """Let the model work on items under a prompt; return their episodes, one an item in order.

        Decoding is greedy if `key` is empty, else sampled. `tools` is True if the chat template is to
        list the tools. Raises SandboxUnavailableError.
        """
        with tempfile.TemporaryDirectory(prefix="forge-tools-") as place:
            boxes = []
            for number, item in enumerate(items):
                folder = Path(place) / str(number)
                folder.mkdir()
                boxes.append(Toolbox(item.world, folder, self._sandbox))
            episodes = [Episode(item, []) for item in items]
            for question_number in range(max((len(item.questions) for item in items), default=0)):
                chosen = [n for n, item in enumerate(items) if question_number < len(item.questions)]
                for number in chosen:
                    question = items[number].questions[question_number]
                    begin = self._speech.begin(prompt, question, tools)
                    episodes[number].sessions.append(EpisodeSession(begin))
                self._session(
                    [(n, episodes[n].sessions[-1], boxes[n]) for n in chosen], question_number, key
                )
            for episode, box in zip(episodes, boxes, strict=True):
                episode.solved = _solved(episode, box)
        return episodes

    def _session(self, talks: Sequence[Talk], question_number: int, key: tuple[str | int, ...]) -> None:
        """Let the model write turns, and answer its calls, until all of these sessions are over."""
        for turn in range(self._bounds.calls + 1):
            open_ = [talk for talk in talks if not talk[1].over and self._fits(talk[1])]
            batches = list(_batches(open_, lambda talk: len(talk[1].context), self._rows))
            place = (*key, question_number, turn) if key else ()
            work = partial(self._batch, batches, place)
            for batch, turns in zip(batches, pieces.each(len(batches), work), strict=True):
                for row, (_, session, box) in enumerate(batch):
                    self._add_turn(session, box, turns[str(row)].numpy())

    def _batch(
        self, batches: Sequence[Sequence[Talk]], place: tuple[str | int, ...], number: int
    ) -> pieces.Tensors:
        """Return {row as text: next turn as a tensor} of batch `number`; greedy if `place` is empty."""
        names = [(*place, item) for item, _, _ in batches[number]] if place else []
        turns = self._turns([talk[1].context for talk in batches[number]], names)
        return {str(row): torch.from_numpy(turn) for row, turn in enumerate(turns)}

    def _fits(self, session: EpisodeSession) -> bool:
        limit = self._model.positions
        session.over = limit is not None and len(session.context) + self._bounds.tokens > limit
        return not session.over

    def _rows(self, length: int) -> int:
        return min(ROWS, self._model.rows(length + self._bounds.tokens))

    def _add_turn(self, session: EpisodeSession, box: Toolbox, turn: Ids) -> None:
        """Append a turn to a session; carry out its call, if it has one, and append the result."""
        session.turns.append(turn)
        session.said = self._speech.text(turn)
        try:
            call = self._speech.form.parse(session.said)
        except ToolError as error:
            answer = ToolOutput(f"error: {error}", False)
        else:
            if call is None:
                session.over = True
                return
            if len(session.answers) == self._bounds.calls:
                session.over = True
                return
            answer = box.answer(call)
        session.answers.append(answer)
        session.results.append(self._speech.after(answer.output))
        session.over = len(session.answers) > self._bounds.calls

    def _turns(self, contexts: Sequence[Ids], names: Sequence[tuple[str | int, ...]]) -> list[Ids]:
        """Return the model's next turn after each context, [tokens] int32 each."""
        length, limit = max(map(len, contexts)), self._bounds.tokens
        ids = np.zeros((len(contexts), length), np.int64)
        mask = np.zeros((len(contexts), length), np.int64)
        for row, context in enumerate(contexts):
            ids[row, length - len(context) :] = context
            mask[row, length - len(context) :] = 1
        drawing = None
        if names:
            places = np.stack([randomness.uniform(limit, *name, "turn") for name in names])
            drawing = Drawing(places, length)
        ending = _CallEnding(self._speech, self._ends, length, len(contexts))
        output = self._model.continued(
            torch.from_numpy(ids), torch.from_numpy(mask), limit, ending, drawing
        )
        rows = output.numpy().astype(np.int32)
        return [row[: size or len(row)] for row, size in zip(rows, ending.sizes, strict=True)]


def _batches(
    entries: Sequence[_T], length: Callable[[_T], int], rows: Callable[[int], int]
) -> Iterator[list[_T]]:
    """Yield batches of entries of similar length, the shortest first; `rows(length)` is the size."""
    order = sorted(entries, key=length)
    while order:
        longest = length(order[min(ROWS, len(order)) - 1])
        count = rows(longest)
        yield order[:count]
        order = order[count:]


def _solved(episode: Episode, box: Toolbox) -> bool:
    """Return True if every session had a call that ran, and the answer is right or all tests pass."""
    item = episode.item
    if not all(any(answer.ran for answer in session.answers) for session in episode.sessions):
        return False
    if item.answer is None:
        return not box.repository.failing(item.world.tests)
    return right(item.answer, episode.sessions[-1].said)


class _CallEnding(StoppingCriteria):
    """Stopping criterion: a row ends with its first end token, or with the end of a call."""

    def __init__(self, speech: Speech, ends: Collection[int], length: int, rows: int) -> None:
        self._speech, self._ends, self._length = speech, ends, length
        self._close = speech.form.close.strip()
        #: The last tokens of a turn, more than the closing mark can have.
        self._tail = len(self._close.encode()) + 4
        #: Number of tokens of each row's turn; 0: the turn has not ended.
        self.sizes = [0] * rows

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: object) -> torch.Tensor:
        for row, tokens in enumerate(input_ids[:, self._length :].tolist()):
            if self.sizes[row]:
                continue
            ended = tokens[-1] in self._ends
            end = self._speech.text(tokens[-self._tail :]).rstrip()
            if ended or end.endswith(self._close):
                self.sizes[row] = len(tokens)
        return torch.tensor([size > 0 for size in self.sizes], device=input_ids.device)


class Speech:
    """Converter of sessions from text to ids, and back, with a tokenizer and a form of calls."""

    def __init__(self, tokenizer: Tokenizer, form: Form, chat: bool, tools: Mapping[str, Tool]) -> None:
        """Store the form of calls; `chat` is True if sessions go through the chat template.

        Raises ConfigError if the form is `chat` and the template takes no tools.
        """
        self.tokenizer, self.form, self._chat = tokenizer, form, chat
        self.tools = tools
        self._beginnings = Beginnings(tokenizer, chat)
        self._native = form.name == calls.CHAT.name
        if self._native and not (chat and self._renders_tools()):
            raise ConfigError("the tokenizer has no chat template that takes tools.")

    def text(self, ids: Iterable[int]) -> str:
        """Return token ids as text, without special tokens."""
        return self.tokenizer.decode(
            [*ids], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def begin(self, prompt: str, question: str, tools: bool = False) -> Ids:
        """Return the ids of a session's beginning, [tokens] int32: prompt (if not empty) and question.

        In the form `chat`, the chat template also lists the tools if `tools` is True.
        """
        if self._native:
            messages = [{"role": "system", "content": prompt.strip()}] if prompt else []
            messages.append({"role": "user", "content": question})
            return self._ids(self._rendered(messages, tools))
        text = question if self._chat else f"{question}\n"
        context = self._ids(text)
        if prompt:
            return self._beginnings.prompted([prompt], context)
        return self._beginnings.plain(context)

    def after(self, output: str) -> Ids:
        """Return the ids of a call's result, [tokens] int32, as they follow the call."""
        if not self._native:
            return self._ids(self.form.result(output))
        question = {"role": "user", "content": "q"}
        reply = {"role": "assistant", "content": "a"}
        result = {"role": "tool", "content": output}
        before = self._rendered([question], False)
        whole = self._rendered([question, reply, result], False)
        return self._ids(whole[len(before) + 1 :])

    def prompt(self) -> str:
        """Return the standard prompt, which lists the tools unless the chat template does."""
        if self._native:
            return "Use the tools. Then write the answer alone."
        return calls.description(self.form, self.tools)

    def _renders_tools(self) -> bool:
        """Return True if the chat template lists tools, and keeps the turn before a result as it is."""
        messages = [{"role": "user", "content": "q"}]
        if self._rendered(messages, True) == self._rendered(messages, False):
            return False
        talk = [*messages, {"role": "assistant", "content": "a"}, {"role": "tool", "content": "result"}]
        begun, whole = self._rendered(messages, False), self._rendered(talk, False)
        return whole.startswith(f"{begun}a") and "result" in whole[len(begun) :]

    def _rendered(self, messages: Sequence[Mapping[str, str]], tools: bool) -> str:
        schemas = calls.schemas(self.tools) if tools else None
        try:
            return template_rendering.rendered(self.tokenizer, messages, schemas)
        except template_rendering.TemplateFailedError as error:
            raise ConfigError(f"the tokenizer's chat template fails: {error}") from error

    def _ids(self, text: str) -> Ids:
        return np.asarray(self.tokenizer.encode(text, add_special_tokens=False), np.int32)


def chosen(
    tokenizer: Tokenizer,
    name: str,
    chat: bool | None,
    tools: Mapping[str, Tool],
    items: Sequence[ToolItem],
) -> Speech:
    """Return the speech of the form `name`, or for `auto` of the first that the tokenizer can write.

    `auto` tries chat, tags, brackets and words, in this order. `items` are tasks to test the tokenizer
    with. Raises ConfigError if it can write no form, SourceError for a template that is too slow.
    """
    templated = bool(tokenizer.chat_template) if chat is None else chat
    whys: list[str] = []
    for form in FORMS.values() if name == "auto" else [FORMS[name]]:
        try:
            speech = Speech(tokenizer, form, templated, tools)
            check_written(speech, items)
            return speech
        except SourceError:  # the template itself: no other form helps
            raise
        except ConfigError as error:
            whys.append(f"{form.name}: {error}")
    raise ConfigError(
        f"the model's tokenizer cannot write the calls of tools ({'; '.join(whys)}) Take a model with "
        "another tokenizer."
    )


def check_written(speech: Speech, items: Sequence[ToolItem]) -> None:
    """Raise ConfigError if the tokenizer loses text of the items' questions, calls or results."""
    texts: list[str] = []
    for item in items:
        written = [speech.form.written(call) for session in item.calls for call in session]
        texts += [*item.questions, *written, speech.form.result(item.answer or "changed")]
    ids = [speech.tokenizer.encode(text, add_special_tokens=False) for text in texts]
    for text, token_ids in zip(texts, ids, strict=True):
        again = speech.text(token_ids)
        if "".join(again.split()) != "".join(text.split()):
            raise ConfigError(f"of {text[:60]!r} it keeps {again[:60]!r}.")
