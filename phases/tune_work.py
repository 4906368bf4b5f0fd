"""The work of a tuning: render conversations, pin them with text, measure the loss of replies."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from typing_extensions import override

from agent_forge.evaluation.backends.generation import end_tokens
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.builtin import corpus as builtin_corpus
from agent_forge.evaluation.training_text import kept_text, turns
from agent_forge.evaluation.training_text.kept_text import TextFolder
from agent_forge.evaluation.trajectories import sampling
from agent_forge.evaluation.trajectories.sampled import SampleReplies
from agent_forge.evaluation.verifiers import calls
from agent_forge.phases import tune_rounds
from agent_forge.phases.tune_rounds import PROMPTED, PURPOSE, RIGHT, Rounds
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.kinds.asked import CheckResult, Plan
from agent_forge.runs.system.durations import duration, least
from agent_forge.studies import submission, training_plan, work
from agent_forge.studies.comparison import CHOOSING, TEST
from agent_forge.studies.events import (
    RULES,
    GivenStarted,
    GivenSubmitted,
    Items,
    Observe,
    Sizes,
    TextStarted,
    bits_per_byte,
    nats_per_token,
)
from agent_forge.studies.settings import MIX
from agent_forge.studies.study_view import Plain
from agent_forge.studies.work import Costs, WorkPart
from agent_forge.weights import randomness
from agent_forge.weights.folders.checkpoint import Checkpoint, open_checkpoint
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.objectives.answers import check_apart
from agent_forge.weights.training.windows import Ids, Trajectory, unpack, unpack_items

#: Long examples that a note names, at most.
NAMED = 3


def rendered(
    config: Rounds, data: Sequence[str], donor: Path, name: str
) -> tuple[turns.Rendered, turns.Template, list[str]]:
    """Return (examples, their template, notes). Raises DataError, SourceError, ConfigError."""
    read, notes = turns.read(data)
    template = turns.chosen(donor, kept_text.given_tokenizer(donor), name, read)
    context = turns.window(config.context, open_checkpoint(donor).positions)
    examples = turns.render(template, read, context)
    if template.is_own and template.text != template.tokenizer.chat_template:
        notes.append(
            f"{name} has no chat template that writes functions and calls: the conversations are "
            "rendered by one of the program's own, which the result has."
        )
    if count := len(examples.too_long):
        ids = ", ".join(example.conversation.id for example in examples.too_long[:NAMED])
        longest = max(len(example.ids) for example in examples.too_long)
        more = f" and {count - NAMED:,} more" if count > NAMED else ""
        notes.append(
            f"{ids}{more} have more than {context:,} tokens and are left out, the longest with "
            f"{longest:,}: set context."
        )
    slices = {conversation.slice for conversation in read if conversation.tools}
    if config.rounds and not ({"train", "selection"} <= slices and template.reads_calls):
        raise ConfigError(
            "rounds need conversations with tools to train on and to choose by, and a chat template "
            "that writes calls as <tool_call>: a reply is rewarded for its calls."
        )
    return examples, template, notes


def fill(
    folder: Path, submitted: GivenSubmitted, donor: Path, changes: Mapping[str, object]
) -> Sequence[str]:
    """Write streams, items, tokenizer, configuration to `folder`; return notes on the files read."""
    config = submitted.config
    examples, template, notes = rendered(config, submitted.data, donor, submitted.model.name)
    documents = builtin_corpus.corpus(config.seed, config.characters, config.domains)
    rows = builtin_corpus.items(documents, config.seed)
    mix = (config.mix or MIX) if config.text_share else {}
    training = kept_text.builtin(documents, config.seed, config.characters, mix)
    kept_text.write_given(folder, donor, changes)
    if template.text != template.tokenizer.chat_template:  # our own, or one of several
        (folder / turns.TEMPLATE).write_text(template.text, "utf-8")
    text = {domain: training[domain] for domain in mix}
    shown = config.rounds > 0 and config.learn_by == "demonstrations"
    streams = examples.streams(template, config.shots, config.rounds > 0, shown)
    kept_text.write(folder, template.tokenizer, text, rows, streams)
    return notes


def checked(plan: Plan) -> CheckResult:
    """Return the result of a check: warnings, parameters, examples by domain and slice."""
    opened = submission.opened(plan)
    source = plan.fields["model"]
    submission.trainable(plan.config, opened.config)
    examples, _, notes = rendered(plan.config, plan.fields["data"], Path(source.path), source.name)
    counts: dict[str, dict[str, int]] = {}
    for (domain, on), marked in examples.examples.items():
        counts.setdefault(domain, {})[on] = len(marked)
    return CheckResult((*opened.warnings, *notes), opened.parameters, counts)


class Context(work.WritingContext):
    """The opened conversations and model of a tuning, and the work on its tasks."""

    @override
    def window(self, opened: Checkpoint) -> int:
        return turns.window(self.state.submitted.config.context, opened.positions)

    @cached_property
    @override
    def text(self) -> TextFolder:
        submitted, started, supply = self.state.submitted, self.state.started, self._cache.supply
        filled = partial(fill, submitted=submitted, donor=self.donor, changes=self.changes)
        if started is None:
            return kept_text.make(supply, filled)
        return kept_text.pinned(supply, started, True, filled)

    # ---- tasks ---------------------------------------------------------------------------------

    def items(self, beginning: str, on: str) -> dict[str, list[Ids]]:
        """Return DOMAIN or, of replies, WHAT/DOMAIN → items of a slice, tokens to learn as −1 − id."""
        streams, ending = self.text.streams.items(), f"/{on}"
        names = {n: ids for n, ids in streams if n.startswith(beginning) and n.endswith(ending)}
        return {
            name.removeprefix(turns.CONVERSATIONS).removesuffix(ending): unpack_items(ids)
            for name, ids in names.items()
        }

    def _replies(self, on: str, prefix: str = "") -> dict[str, list[Ids]]:
        """Return "calls/DOMAIN" and "words/DOMAIN" → the replies of a slice that are compared.

        With the prefix `turns.PROMPTED` they follow demonstrations.
        """
        most, groups = self.state.submitted.config.replies, dict[str, list[Ids]]()
        for what in ("calls/", "words/"):
            replies = self.items(prefix + what, on).items()
            groups |= {name.removeprefix(prefix): items for name, items in replies}
        short = {group: [*filter(self._fits, items)] for group, items in groups.items()}
        return {group: items[:most] for group, items in short.items() if items}

    def _requests(self, number: int) -> list[tuple[Ids, Ids]]:
        """Return the marked replies to a round's requests, each as often as a reply is written.

        The second of a pair is the same after its own conversation, if the round learns by that.
        """
        config, every = self.state.submitted.config, list[tuple[Ids, Ids]]()
        for what in ("calls/", "words/"):
            plain = self.items(what, "train")
            shown = self.items(turns.PROMPTED + what, "train")
            for group in sorted(plain):
                every += zip(plain[group], shown.get(turns.PROMPTED + group, plain[group]), strict=True)
        every = [both for both in every if self._fits(both[1])]
        order = randomness.permutation(len(every), PURPOSE, config.seed, "requests", number)
        return [every[place] for place in order[: config.requests] for _ in range(config.samples)]

    def _fits(self, marked: Ids) -> bool:
        """Return True if the model takes the beginning of a marked reply, and a reply."""
        positions = open_checkpoint(self.donor).positions or sys.maxsize
        return (marked >= 0).sum() <= positions - self.state.submitted.config.reply_tokens

    @override
    def written(self, task: SampleReplies) -> dict[str, list[Trajectory]]:
        (name,), config = task.streams, self.state.submitted.config
        model = self.loaded(self.model(task.recipe_id), RIGHT)
        requests = self._requests(tune_rounds.number(name))
        begins, shown = ([ids[ids >= 0] for ids in each] for each in zip(*requests, strict=True))
        ends, key = end_tokens(model.config, self.text.tokenizer), (PURPOSE, config.seed, name)
        tokens = sampling.PASS_TOKENS
        replies = sampling.sample(model, begins, config.reply_tokens, ends, *key, tokens=tokens)
        return {
            name: [
                Trajectory(place // config.samples, *each)
                for place, each in enumerate(zip(shown, begins, replies, strict=True))
            ]
        }

    @override
    def measured_on(self, model: ResidentModel, task: Observe) -> tuple[Items, Sizes]:
        if RULES[task.measure] is bits_per_byte:
            return super().measured_on(model, task)
        if task.measure == tune_rounds.REWARDS:
            replies = [each.reply for each in unpack(self.streams[task.on])]
            requests = self._requests(tune_rounds.number(task.on))
            rewards = self._verdicts(replies, [marked for marked, _ in requests])
            return {task.on: rewards}, {task.on: (1,) * len(rewards)}
        if RULES[task.measure] is nats_per_token:
            items = self.items(turns.CONVERSATIONS, task.on)
            losses = {domain: tuple(scored(model, marked)) for domain, marked in items.items()}
            sizes = {d: tuple(int((ids < 0).sum()) for ids in marked) for d, marked in items.items()}
            return losses, sizes
        prefix = turns.PROMPTED if task.measure == PROMPTED else ""
        groups = self._replies(task.on, prefix).items()
        right = {group: tuple(self._right(model, replies)) for group, replies in groups}
        return right, {group: (1,) * len(scores) for group, scores in right.items()}

    def _right(self, model: ResidentModel, marked: Sequence[Ids]) -> list[float]:
        """Return 1 for each greedy reply with the calls of the marked one, else 0."""
        begins, most = [ids[ids >= 0] for ids in marked], self.state.submitted.config.reply_tokens
        ends = end_tokens(model.config, self.text.tokenizer)
        written = sampling.greedy(model, begins, most, ends, sampling.PASS_TOKENS)
        return self._verdicts(written, marked)

    def _verdicts(self, replies: Sequence[Ids], marked: Sequence[Ids]) -> list[float]:
        """Return 1 for each reply with the calls of the marked one, else 0."""
        decode = self.text.tokenizer.decode
        pairs = zip(replies, (-1 - ids[ids < 0] for ids in marked), strict=True)
        return [float(calls.is_right(decode(a.tolist()), decode(b.tolist()))) for a, b in pairs]

    @override
    def measurement_seconds(self, measure: str, on: str, is_given: bool) -> float:
        if RULES[measure] is bits_per_byte:
            return super().measurement_seconds(measure, on, is_given)
        started = self.state.started
        first = self.in_float32(started) if is_given else self.initial(started)
        model, seconds = self.loaded(first, measure, is_given), 0.0
        of_loss = RULES[measure] is nats_per_token
        work_on = partial(scored if of_loss else self._right, model)
        prefix = turns.PROMPTED if measure == PROMPTED else ""
        groups = self.items(turns.CONVERSATIONS, on) if of_loss else self._replies(on, prefix)
        for items in groups.values():
            part = items[: work.PART]
            seconds += least(partial(work_on, part)) * sum(map(len, items)) / sum(map(len, part))
        return seconds

    @override
    def costs(self) -> Costs:
        costs, config, started = super().costs(), self.state.submitted.config, self.state.started
        if not config.rounds:
            return costs
        model = self.loaded(self.initial(started), RIGHT)
        replies = [marked for marked, _ in self._requests(1)]
        part = replies[: work.PART]
        taken = least(partial(self._right, model, part))
        seconds = config.rounds * taken * len(replies) / len(part)
        words = f"the replies of the rounds {duration(seconds)}, by a part of them"
        return replace(costs, parts=(*costs.parts, WorkPart(seconds, words)))

    # ---- started -------------------------------------------------------------------------------

    def pinned_examples(self) -> Plain:
        """Return the fields of `started` on conversations: their template, and numbers of items."""
        template, streams = self.text.folder / turns.TEMPLATE, self.text.streams.items()
        return {
            "own_template": template.exists() and template.read_text("utf-8") == turns.own(),
            "examples": {name: len(unpack_items(ids)) for name, ids in streams if "/" in name},
        }

    @override
    def check_text(self, started: TextStarted) -> None:
        """Raise DataError if ordinary text is too short to train or to measure on.

        Raises ConfigError for a model in which the examples of a row would see each other.
        """
        assert isinstance(started, GivenStarted)
        check_apart(modules.build(self.in_float32(started), self.device).eval())
        config = self.state.submitted.config
        if config.rounds and not (self._requests(1) and self._replies("selection")):
            raise ConfigError(
                f"no conversation with tools leaves room for a reply of {config.reply_tokens} tokens "
                "(reply_tokens): the rounds have no requests."
            )
        text = {name: count for name, count in started.tokens.items() if "/" not in name}
        training_plan.check_lengths(started.model_copy(update={"tokens": text}))
        for on in (CHOOSING, TEST):
            self.text.held_out(started.context, "selection" if on == CHOOSING else "test")

    @override
    def notes(self, started: TextStarted) -> Sequence[str]:
        """Return a note of how often a training reads the conversations, if that is often."""
        config = self.state.submitted.config
        every = sum(n for name, n in started.tokens.items() if tune_rounds.is_trained_on(name))
        times = (1 - config.text_share) * config.reads(started.context) / every
        if times <= training_plan.READINGS:
            return []
        return [
            f"the training reads the conversations {times:.1f} times over: give more of them, or fewer "
            "tokens to train on."
        ]


def scored(model: ResidentModel, marked: Sequence[Ids]) -> list[float]:
    """Return Σ −log p in nats of the tokens to learn, for each example."""
    windows = [np.where(ids < 0, -1 - ids, ids).astype(np.int64) for ids in marked]
    pairs = zip(marked, model.losses(windows), strict=True)
    return [float(losses.astype(np.float64)[ids[1:] < 0].sum()) for ids, (losses, _) in pairs]
