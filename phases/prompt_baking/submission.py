"""Submission of a bake: settings, model, prompts and data, checked before any work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.data import training_texts
from evaluation.verifiers.form import check_patterns
from phases.prompt_baking import prompts
from phases.prompt_baking.settings import LEAST, BakeConfig
from runs.errors import ConfigError, DataError
from runs.kinds.asked import Asked, Checked, Lookup, Plan, read_prompts
from runs.system.bounded_files import read_json
from studies import submission
from studies.settings import MIX

if TYPE_CHECKING:
    from evaluation.trajectories.contexts import Beginnings
    from runs.kinds.kind import Kind


def read(setting: str, files: Sequence[Path]) -> dict[str, object]:
    """Return the prompts of the files, and the checks beside them. Raises ConfigError."""
    texts = read_prompts(setting, files)
    if setting != "prompts":
        return texts
    places = [file.with_suffix(".check.json") for file in files]
    checks = [read_json(p, error=ConfigError) if p.exists() else None for p in places]
    return {**texts, "checks": checks if any(checks) else []}


def plan(kind: Kind, request: Asked, lookup: Lookup) -> Plan:
    """Return the plan of the run of one `model`. Raises ConfigError, DataError, UnavailableError."""
    base = submission.plan(kind, request, lookup, prompts.built_in)
    config: Any = base.config
    if not config.prompts:
        raise ConfigError(
            "a bake needs a prompt: --prompt FILE of forge bake, or the setting prompts."
        )
    check_patterns(config.checks)
    data, domains = base.fields["data"], tuple[str, ...]()
    trained: Sequence[str] = tuple(MIX)
    if data:
        domains = training_texts.domains(data)
        trained = (*domains, *prompts.built_in(config, domains))
    contexts = config.contexts or (domains if data else ("code",))
    _check_domains(config, tuple(config.mix or trained), contexts)
    return replace(base, config=config.model_copy(update={"contexts": tuple(contexts)}))


def _check_domains(config: BakeConfig, trained: Sequence[str], contexts: Sequence[str]) -> None:
    """Raise ConfigError unless contexts have text, and beside them there is ordinary text."""
    for domain in contexts:
        if domain not in config.domains or domain not in trained:
            raise ConfigError(
                f"the contexts' domain {domain!r} is not both measured and trained on: add it to "
                "domains and to mix, or name others in contexts."
            )
    if not set(config.domains) - set(contexts):
        raise ConfigError(
            "all domains that are measured are contexts, so nothing shows if the model drifts: add "
            "ordinary text, or name fewer domains in contexts."
        )
    if config.neutral_weight and not set(trained) - set(contexts):
        raise ConfigError(
            "all text to train on is contexts: add ordinary text, or set neutral_weight to 0."
        )


def check(plan: Plan) -> Checked:
    """Open model (header only), tokenizer and data; raise the errors that a start would raise."""
    from evaluation.training_text.parts import given_tokenizer

    opened = submission.opened(plan)
    checked = submission.checked(plan, opened)
    tokenizer = given_tokenizer(Path(plan.fields["model"].path))
    config: Any = plan.config
    if config.top is not None and config.top >= len(tokenizer):
        raise ConfigError(f"top is {config.top}, the model predicts {len(tokenizer):,} tokens.")
    check_room(beginnings(config, tokenizer), config, opened.positions)
    submission.trainable(config, opened.config)
    return checked


def beginnings(config: BakeConfig, tokenizer: Any) -> Beginnings:
    """Return the maker of beginnings. Raises ConfigError for a tokenizer without what is needed."""
    from evaluation.trajectories.contexts import Beginnings

    chat = bool(tokenizer.chat_template) if config.chat is None else config.chat
    return Beginnings(tokenizer, chat)


def check_room(heads: Beginnings, config: BakeConfig, positions: int | None) -> int:
    """Return the tokens of the prompts; `positions` is the longest sequence that the model takes.

    Raises ConfigError for a prompt that leaves no room for context and reply.
    """
    whole = heads.room(config.prompts)
    rest = config.context_tokens + config.reply_tokens
    every = [("the prompts take", whole)]
    every += [
        (f"the prompt {text.strip()[:40]!r} takes", heads.room([text]))
        for text in prompts.measured(config)
    ]
    if positions is None:
        return whole
    for words, tokens in every:
        if tokens + rest > positions:
            raise ConfigError(
                f"{words} {tokens} tokens, context and reply {rest}, and the model takes {positions} "
                "in all: shorten the prompt, or set a smaller context_tokens or reply_tokens."
            )
    if config.neutral_tokens > positions:
        raise ConfigError(
            f"neutral_tokens is {config.neutral_tokens}, the model takes {positions} tokens at most."
        )
    return whole


def beyond(heads: Beginnings, config: BakeConfig, positions: int | None) -> int | None:
    """Return the tokens of ordinary text before a further set of contexts; None without such a set.

    The set is left out if the model takes no sequence that long.
    """
    rest = heads.room(config.prompts) + config.context_tokens + config.reply_tokens
    if config.beyond is None or (positions is not None and config.beyond + rest > positions):
        return None
    return config.beyond


def check_contexts(counts: dict[str, int]) -> None:
    """Raise DataError if a slice has too few contexts; `counts`: slice → contexts."""
    for slice_, count in counts.items():
        if count < LEAST:
            raise DataError(
                f"the text has {count} contexts in the slice {slice_}: at least {LEAST} are needed. "
                "Give more text, more domains, or a smaller context_tokens."
            )
