"""Evaluation of one candidate on one draw: its outcomes item by item, and a forecast of the time.

Items that cannot be measured on this machine or by these models are filtered out first. `Metered`
reports time and progress of an evaluation and leaves its figures the same to the bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from agent_forge.evaluation.backends.backend import Evaluator, Losses, batches
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data import items as data_items
from agent_forge.evaluation.data.items import Item
from agent_forge.evaluation.data.outcomes import DomainOutcomes, Draws, Outcomes, joined
from agent_forge.evaluation.data.packing import Ids, ItemPack, PackedProblem, fitting
from agent_forge.evaluation.measures.perplexity import score_questions, score_windows
from agent_forge.evaluation.verifiers.program import Rating
from agent_forge.evaluation.verifiers.verifier import SandboxUnavailableError, Verifier
from agent_forge.runs.system.durations import duration, least_of_both
from agent_forge.weights.folders.vocabularies import Tokenizer


@dataclass
class Judge:
    """Judge of replies to problems: the tokenizer that decodes replies, and the verifiers."""

    tokenizer: Tokenizer
    verifier: Verifier = field(default_factory=Verifier)

    def judge(self, model: Evaluator, problems: Sequence[PackedProblem]) -> list[tuple[str, Rating]]:
        """Return a list of (reply's text, Rating) of the problems. Raises SandboxUnavailableError."""
        replies = model.replies(problems, self.tokenizer)
        result = []
        for posed, reply in zip(problems, replies, strict=True):
            item = posed.problem.model_dump(include={"id", "domain", "prompt"})
            result.append((reply, self.verifier.verify(posed.problem.check, reply, item)))
        return result


@dataclass(frozen=True)
class Watch:
    """Early stopping of a search evaluation: its blocks of windows, and the rule that ends it."""

    blocks: Sequence[Draws]
    #: Outcomes so far and their draws → why the evaluation can end now, or None.
    reason: Callable[[Outcomes, Draws], str | None]


@dataclass(frozen=True)
class EvaluationResult:
    """Result of an evaluation."""

    outcomes: Outcomes
    #: The windows that were scored before early stopping, and the reason; None if all were scored.
    scored: Draws | None = None
    stopped: str | None = None


def evaluate(
    model: Evaluator,
    data: Mapping[str, ItemPack],
    draws: Draws,
    judge: Judge,
    watch: Watch | None = None,
) -> EvaluationResult:
    """Return an EvaluationResult: outcomes by domain; with a `watch` also why and where it stopped.

    Windows come before questions and problems; a `watch` may end the evaluation after a block of them.
    A log-likelihood may be infinite or NaN; `composite.components` then gives None.
    """
    read: Windows = {}
    for number, block in enumerate(watch.blocks if watch else [draws], start=1):
        _read(model, data, block, read)
        if watch and number < len(watch.blocks):
            scored = joined(watch.blocks[:number])
            sofar = {d: _windows(data[d], draw.windows, read[d]) for d, draw in scored.items()}
            if why := watch.reason(sofar, scored):
                return EvaluationResult(sofar, scored, why)
    result: Outcomes = {}
    for domain in sorted(draws):
        packed, drawn = data[domain], draws[domain]
        questions = [packed.questions[i] for i in drawn.questions]
        problems = [packed.problems[i] for i in drawn.problems]
        judged = [verdict for _, verdict in judge.judge(model, problems)]
        failed = [(p.problem.id, v.why) for p, v in zip(problems, judged, strict=True) if not v.scored]
        fields = {
            "right": tuple(score_questions(model, questions)),
            "chance": tuple(1 / len(q.sizes) for q in questions),
            "solved": tuple(verdict.score for verdict in judged),
            "unscored": dict(failed),
        }
        result[domain] = _windows(packed, drawn.windows, read[domain]).model_copy(update=fields)
    return EvaluationResult(result)


#: Domain → window → (Σ −log p, predicted tokens, hits).
Windows = dict[str, dict[int, tuple[float, int, int]]]


def _read(model: Evaluator, data: Mapping[str, ItemPack], draws: Draws, read: Windows) -> None:
    """Score the drawn windows, in the order of the draw, and add their scores to `read`."""
    for domain in sorted(draws):
        places = draws[domain].windows
        scores = score_windows(model, [data[domain].windows[i] for i in places])
        read.setdefault(domain, {}).update(zip(places, zip(*scores, strict=True), strict=True))


def _windows(
    packed: ItemPack, places: Sequence[int], read: Mapping[int, tuple[float, int, int]]
) -> DomainOutcomes:
    """Return the DomainOutcomes of these windows, without questions and problems."""
    return DomainOutcomes(
        nll=tuple(read[i][0] for i in places),
        tokens=tuple(read[i][1] for i in places),
        hits=tuple(read[i][2] for i in places),
        bytes=tuple(packed.bytes[i] for i in places) if packed.bytes else (),
    )


def why_not_run(items: Sequence[Item], verifier: Verifier) -> str:
    """Return the reason why items that run code cannot be measured on this machine; '' if they can."""
    if not any(map(data_items.runs_code, items)):
        return ""
    try:
        verifier.sandbox  # noqa: B018 - opening it is the test
    except SandboxUnavailableError as error:
        return str(error)
    return ""


def measurable(
    items: Sequence[Item], tokenizer: Tokenizer, context: int, builtin: bool, not_run: str
) -> tuple[list[Item], tuple[str, ...]]:
    """Return (items to measure, a line for each kind of item that is left out).

    Items that run code are left out if `not_run` gives a reason. Items longer than the context are
    left out if they are `builtin` or of tasks, because those were not made for one model.
    """
    measured_items, lines = list(items), []
    if not_run:
        measured_items = [item for item in items if not data_items.runs_code(item)]
        if count := len(items) - len(measured_items):
            lines.append(f"{count} problems are not run: {not_run}")
    for kind, these in (
        ("built-in items", [item for item in measured_items if builtin]),
        (
            "items of tasks",
            [item for item in measured_items if data_items.of_task(item) and not builtin],
        ),
    ):
        long = {item.id for item in these} - {item.id for item in fitting(these, tokenizer, context)}
        if long:
            lines.append(f"{len(long)} {kind} are longer than {context} tokens and left out")
            measured_items = [item for item in measured_items if item.id not in long]
    return measured_items, tuple(lines)


#: Seconds of work below which nothing is said, and between two messages at least.
QUIET = 20.0
#: Ratio of clock time to processor time from which a forecast is a range.
APART = 1.5
#: Messages about the share done, at most.
MESSAGES = 50
#: Continuations and problems that the forecast measures.
SAMPLE = 8


def forecast(seconds: float, alone: float) -> str:
    """Return a sentence for people: how long all items take.

    `seconds` are at the pace of the probe, `alone` those in which all threads do the same work without
    waiting for a processor. They differ if other programs ran beside the probe, and if threads idled.
    """
    probe = "by a probe of each kind of item"
    if seconds < APART * alone:
        return f"about {duration(seconds)}, {probe}"
    return (
        f"{duration(alone)} to {duration(seconds)}, {probe}: the former if the processors are "
        "free, the latter if they stay as busy as now"
    )


class Metered:
    """Evaluator that passes all work on to a model of this process and reports the share done.

    Windows reach the model batch by batch, in the batches of the model itself.
    """

    def __init__(
        self,
        model: ResidentModel,
        data: Mapping[str, ItemPack],
        tokenizer: Tokenizer,
        tell: Callable[[str], None],
    ) -> None:
        """Time some items of each kind, and tell how long all items of `data` will take."""
        self._model, self._tell = model, tell
        packed = [data[domain] for domain in sorted(data)]
        windows = [ids for part in packed for ids in part.windows]
        pairs = [q.pair(c) for p in packed for q in p.questions for c in range(len(q.sequences))]
        problems = [posed for part in packed for posed in part.problems]
        _, first = next(batches(windows, model.rows, 1, model.positions))
        batch = [windows[place] for place in first]
        #: Seconds of a window, a continuation and a problem.
        self._prices: dict[str, float] = {}
        #: Seconds of all items at the pace of the probe, and if this process had its processors alone.
        self._total = self._alone = 0.0
        self._add("windows", len(windows), len(batch), lambda: model.losses(batch))
        if pairs:
            few = pairs[:SAMPLE]
            self._add("pairs", len(pairs), len(few), lambda: model.continuations(few))
        if problems:
            sample = problems[:SAMPLE]
            self._add("problems", len(problems), len(sample), lambda: model.replies(sample, tokenizer))
        if self._total >= QUIET:
            tell(forecast(self._total, self._alone))
        self._done, self._began = 0.0, time.monotonic()
        self._told = self._began

    @property
    def positions(self) -> int | None:
        """The longest sequence that the model takes, in tokens; None if it is not known."""
        return self._model.positions

    def losses(self, sequences: Sequence[Ids]) -> list[Losses]:
        """Return one `Losses` pair per sequence, and count the sequences as done."""
        losses: dict[int, Losses] = {}
        for _, places in batches(sequences, self._model.rows, 1, self._model.positions):
            batch = self._model.losses([sequences[place] for place in places])
            losses.update(zip(places, batch, strict=True))
            self._count("windows", len(places))
        return [losses[place] for place in range(len(sequences))]

    def continuations(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[NDArray[np.float32]]:
        """Return per pair −log p of its continuation's tokens, in nats, and count the pairs as done."""
        losses = self._model.continuations(pairs)
        self._count("pairs", len(pairs))
        return losses

    def replies(self, problems: Sequence[PackedProblem], tokenizer: Tokenizer) -> list[str]:
        """Return the text of one greedy reply per problem, and count the problems as done."""
        replies = self._model.replies(problems, tokenizer)
        self._count("problems", len(problems))
        return replies

    def _add(self, kind: str, count: int, size: int, sample: Callable[[], object]) -> None:
        """Time a sample of `size` items of a kind, and add `count` of them to the forecast."""
        seconds, of_processors = least_of_both(sample)
        self._prices[kind] = seconds / size
        self._total += seconds / size * count
        on_cpu = self._model.device.type == "cpu"
        alone = min(seconds, of_processors / torch.get_num_threads()) if on_cpu else seconds
        self._alone += alone / size * count

    def _count(self, kind: str, count: int) -> None:
        """Add finished items to those done; now and then tell the share done and the time left."""
        self._done += self._prices.get(kind, 0.0) * count
        now = time.monotonic()
        if now - self._told < max(QUIET, self._total / MESSAGES) or not 0 < self._done < self._total:
            return
        left = (now - self._began) / self._done * (self._total - self._done)
        self._tell(f"{self._done / self._total:.0%} done, {duration(left)} left")
        self._told = now
