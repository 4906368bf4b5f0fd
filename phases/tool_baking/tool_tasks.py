"""Tool tasks of a baking run: making and checking them, turns of a model on them, and personas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from agent_forge.evaluation.backends.generation import end_tokens
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.trajectories.sampling import sample
from agent_forge.phases.tool_baking.settings import BakingConfig
from agent_forge.runs.errors import ConfigError, DataError
from agent_forge.runs.kinds.asked import CheckResult, Plan
from agent_forge.studies import submission
from agent_forge.tools import tasks as tool_tasks
from agent_forge.tools.tasks import items, own
from agent_forge.tools.tasks.base import ToolItem
from agent_forge.tools.tasks.episodes import Episode, Player, Speech
from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.training.windows import Trajectory

#: Slice → family → tasks.
Tasks = Mapping[str, Mapping[str, Sequence[ToolItem]]]


def check_machine(config: BakingConfig) -> None:
    """Raise SandboxUnavailableError if tasks run programs that this machine cannot isolate."""
    from agent_forge.evaluation.sandbox.sandbox import Sandbox

    if config.repairs or any(tool_tasks.runs_programs(family) for family in config.families):
        Sandbox.open().close()


def check(plan: Plan) -> CheckResult:
    """Return the result of a check; open only headers, tokenizer and data; raise as a start would."""
    from agent_forge.evaluation.training_text.kept_text import given_tokenizer

    checkpoint = submission.opened(plan)
    base = submission.checked(plan, checkpoint)
    config: BakingConfig = plan.config
    tasks = all_tasks(config)
    speech = speech_of(config, given_tokenizer(Path(plan.fields["model"].path)), tasks)
    check_room(speech, config, tasks, checkpoint.positions)
    check_programs(speech, config, tasks)
    submission.trainable(config, checkpoint.config)
    left = len(config.repairs) - len(_repairs(config))
    more = (f"{left} repairs are left out: set train_items, selection_items, test_items.",)
    return replace(base, warnings=(*base.warnings, *more)) if left else base


def _wanted(config: BakingConfig) -> dict[Slice, int]:
    """Return slice → largest number of tasks of a family."""
    return {"train": config.train_items, "selection": config.selection_items, "test": config.test_items}


def _repairs(config: BakingConfig) -> list[own.OwnRepair]:
    """Return the user's repairs that become tasks of the run; the others are left out."""
    counts = _wanted(config)
    return [repair for on, count in counts.items() for repair in own.taken(config.repairs, on, count)]


def all_tasks(config: BakingConfig) -> Tasks:
    """Return slice → family → tasks. Raises DataError if a family has fewer than 4."""
    counts = _wanted(config)
    tasks: dict[str, dict[str, list[ToolItem]]] = {
        on: {f: items(f, config.levels, config.seed, on, count) for f in sorted(config.families)}
        for on, count in counts.items()
    }
    if config.repairs:
        for on, count in counts.items():
            tasks[on][own.NAME] = [repair.item() for repair in own.taken(config.repairs, on, count)]
    for on, families in tasks.items():
        for family, family_items in families.items():
            if len(family_items) < 4:
                more = " Give more repairs, or some other ids." if family == own.NAME else ""
                raise DataError(
                    f"the family {family} has {len(family_items)} tasks in the slice {on}, of "
                    f"4 at least.{more}"
                )
    return tasks


def speech_of(config: BakingConfig, tokenizer: Tokenizer, tasks: Tasks) -> Speech:
    """Return the form in which sessions and calls are written. Raises ConfigError if none fits."""
    from agent_forge.tools.tasks import episodes
    from agent_forge.tools.toolbox import usable

    every = [
        item
        for families in tasks.values()
        for family_items in families.values()
        for item in family_items
    ]
    names = {tool for item in every for tool in item.tools}
    return episodes.chosen(tokenizer, config.form, config.chat, usable(names), every)


def prompt_of(config: BakingConfig, speech: Speech) -> str:
    """Return the text of the prompt that explains the tools."""
    return config.tool_prompt or speech.prompt()


def check_room(speech: Speech, config: BakingConfig, tasks: Tasks, positions: int | None) -> None:
    """Raise ConfigError if prompt, task and turn, or a window of ordinary text, exceed `positions`.

    `positions` is the longest sequence that the model takes.
    """
    if positions is None:
        return
    every = [
        item
        for families in tasks.values()
        for family_items in families.values()
        for item in family_items
    ]
    questions = {question for item in every for question in item.questions}
    prompt = prompt_of(config, speech)
    longest = max(questions, key=lambda question_text: len(speech.begin("", question_text)))
    sizes = {
        "the prompt of the tools and": len(speech.begin(prompt, longest, True)),
        "a persona and": len(speech.begin(config.proposal, longest)) + config.persona_tokens,
        "": len(speech.begin("", longest)),
    }
    for text in config.rehearsed:
        sizes[f"the prompt {text.strip()[:40]!r} and"] = len(speech.begin(text, longest))
    for words, size in sizes.items():
        if size + config.reply_tokens > positions:
            raise ConfigError(
                f"{words} the longest task take {size} tokens, a turn {config.reply_tokens}, and the "
                f"model takes {positions} in all: set a shorter prompt, fewer families or levels, or "
                "a smaller reply_tokens.".lstrip()
            )
    if config.neutral_tokens > positions:
        raise ConfigError(
            f"neutral_tokens is {config.neutral_tokens}, the model takes {positions} tokens at most."
        )


def check_programs(speech: Speech, config: BakingConfig, tasks: Tasks) -> None:
    """Raise SandboxUnavailableError if tasks run programs that this machine cannot isolate.

    Raises DataError if a user's repair cannot be solved, or its tests pass before the repair.
    """
    from agent_forge.evaluation.sandbox.sandbox import Sandbox

    repairs = _repairs(config)
    own.check_written(repairs, speech.form, config.calls)
    if any(item.needs_sandbox for family_items in tasks["train"].values() for item in family_items):
        with closing(Sandbox.open()) as sandbox:
            own.check_tests(repairs, lambda: sandbox)


#: Family → tasks.
Families = Mapping[str, Sequence[ToolItem]]


def flat(families: Families) -> list[ToolItem]:
    """Return all tasks in one list, family by family."""
    return [item for _, tasks in sorted(families.items()) for item in tasks]


def solved(
    player: Player, families: Families, prompt: str, tools: bool
) -> dict[str, tuple[float, ...]]:
    """Return family → 1.0 for each task that the model solves by greedy decoding, else 0.0."""
    episodes = iter(player.played(flat(families), prompt, tools))
    return {
        family: tuple(float(next(episodes).solved) for _ in tasks)
        for family, tasks in sorted(families.items())
    }


def written(
    player: Player,
    speech: Speech,
    families: Families,
    prompt: str,
    tools: bool,
    key: tuple[str | int, ...],
    verified: bool,
) -> list[Trajectory]:
    """Return the turns that a model samples under a prompt; if `verified`, only of solved tasks."""
    episodes: list[Episode] = player.played(flat(families), prompt, tools, key)
    return [
        turn
        for episode in episodes
        if episode.solved or not verified
        for turn in episode.trajectories(speech)
    ]


def others(
    model: ResidentModel,
    speech: Speech,
    config: BakingConfig,
    families: Families,
    key: tuple[str | int, ...],
) -> list[Trajectory]:
    """Return one sampled turn for each task, under the other prompts by rotation."""
    questions = [item.questions[0] for item in flat(families)]
    prompts = config.rehearsed
    begins = [speech.begin(prompts[n % len(prompts)], question) for n, question in enumerate(questions)]
    ends = end_tokens(model.config, speech.tokenizer)
    replies = sample(model, begins, config.reply_tokens, ends, *key, "others")
    both = zip(begins, replies, strict=True)
    return [Trajectory(n % len(prompts), b, b, turn) for n, (b, turn) in enumerate(both)]


def personas(
    model: ResidentModel, speech: Speech, config: BakingConfig, key: tuple[str | int, ...]
) -> tuple[str, ...]:
    """Return the distinct personas that a model proposes: continuations of `proposal`, a line each.

    There are fewer than asked for if some are equal or add nothing.
    """
    ids = speech.tokenizer.encode(config.proposal, add_special_tokens=False)
    begins = [np.asarray(ids, np.int32)] * config.personas
    ends = end_tokens(model.config, speech.tokenizer)
    replies = sample(model, begins, config.persona_tokens, ends, *key, "personas")
    lines = [" ".join(speech.text(reply).strip().split("\n")[0].split()) for reply in replies]
    texts = [f"{config.proposal.rstrip()} {line}\n" for line in lines if line]
    return tuple(dict.fromkeys(texts))
