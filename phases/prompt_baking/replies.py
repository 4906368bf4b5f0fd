"""Trajectories of a bake: contexts of its text, a model's replies to them, and scores of replies."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from agent_forge.evaluation.backends.generation import end_tokens
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.training_text.kept_text import TextFolder
from agent_forge.evaluation.trajectories import contexts
from agent_forge.evaluation.trajectories.contexts import Beginnings
from agent_forge.evaluation.trajectories.sampling import greedy, sample
from agent_forge.evaluation.verifiers.form import FormVerifier
from agent_forge.phases.prompt_baking import recipes
from agent_forge.phases.prompt_baking.figures import PROMPTED, UNPROMPTED, check_group
from agent_forge.phases.prompt_baking.recipes import PURPOSE, Stream, count
from agent_forge.phases.prompt_baking.settings import BakeConfig
from agent_forge.runs.errors import DataError
from agent_forge.weights import randomness
from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.training.windows import BAKED, OTHERS, Ids, Trajectory, pack

#: Domain → contexts.
Pools = Mapping[str, Sequence[Ids]]


def pools(text: TextFolder, config: BakeConfig, slice_: Slice) -> Pools:
    """Return domain → all contexts of a slice, int32 token ids."""
    tokenizer, names = text.tokenizer, config.contexts
    if slice_ == "train":
        end = tokenizer.eos_token_id
        documents = {name: contexts.documents(text.streams[name], end) for name in names}
    else:
        documents = {name: _encoded(text, tokenizer, name, slice_) for name in names}
    size = config.context_tokens
    return {name: contexts.pieces(documents[name], size) for name in documents}


def _encoded(text: TextFolder, tokenizer: Tokenizer, domain: str, slice_: Slice) -> list[Ids]:
    """Return the token ids, int32, of each of a domain's texts in a slice."""
    texts = [item.text for item in text.texts if (item.domain, item.slice) == (domain, slice_)]
    ids = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"] if texts else []
    return [np.asarray(row, np.int32) for row in ids if row]


def counts(text: TextFolder, config: BakeConfig) -> dict[str, int]:
    """Return slice → number of contexts."""
    slices: tuple[Slice, ...] = ("train", "selection", "test")
    return {name: sum(map(len, pools(text, config, name).values())) for name in slices}


def written(
    model: ResidentModel,
    text: TextFolder,
    beginnings: Beginnings,
    config: BakeConfig,
    streams: Mapping[str, Stream],
    tokens: int | None,
) -> dict[str, list[Trajectory]]:
    """Return stream → trajectories: the model's replies to contexts after prompts.

    `tokens` is `Started.pass_tokens`. A stream that has the replies of another comes after it. Raises
    DataError if no context leaves room for a reply.
    """
    trajectories: dict[str, list[Trajectory]] = {}
    ends, key = end_tokens(model.config, text.tokenizer), (config.seed, PURPOSE)
    for name, stream in streams.items():
        pool = pools(text, config, stream.slice)
        chosen = contexts.chosen(pool, count(config, stream), *key, stream.slice)
        if stream.after:
            chosen = after(text, config, stream, chosen)
        heads = [_beginning(beginnings, stream, n, context) for n, context in enumerate(chosen)]
        room = (model.positions or 1 << 62) - config.reply_tokens
        heads = [head for head in heads if max(map(len, head[1:])) <= room]
        if not heads:
            raise DataError(f"no context of the slice {stream.slice} leaves room for a reply.")
        if stream.like:
            replies = [each.reply for each in trajectories[stream.like]]
        else:
            begins = [plain if stream.on_policy else prompted for _, prompted, plain in heads]
            replies = sample(model, begins, config.reply_tokens, ends, *key, name, tokens=tokens)
        pairs = zip(heads, replies, strict=True)
        trajectories[name] = [Trajectory(*head, reply) for head, reply in pairs]
    return trajectories


def _beginning(
    beginnings: Beginnings, stream: Stream, number: int, context: Ids
) -> tuple[int, Ids, Ids]:
    """Return (number of the prompts, the writer's beginning, the reader's beginning)."""
    turn = number % len(stream.prompts)
    prompted = beginnings.prompted(stream.prompts[turn], context)
    if stream.heard is None:
        return turn, prompted, prompted
    heard = stream.heard
    plain = beginnings.prompted(heard, context) if heard else beginnings.plain(context)
    return turn, prompted, plain


def after(text: TextFolder, config: BakeConfig, stream: Stream, chosen: Sequence[Ids]) -> list[Ids]:
    """Return each context with `stream.after` tokens of ordinary text before it, int32."""
    ordinary = [domain for domain in config.domains if domain not in config.contexts]
    tokenizer = text.tokenizer
    line = np.asarray(tokenizer.encode("\n", add_special_tokens=False), np.int32)
    documents = [ids for name in ordinary for ids in _encoded(text, tokenizer, name, stream.slice)]
    whole, size = np.concatenate(documents), max(0, stream.after - len(line))
    starts = randomness.permutation(max(1, len(whole) // max(1, size)), config.seed, "after")
    longer = []
    for number, context in enumerate(chosen):
        start = int(starts[number % len(starts)]) * size
        before = whole.take(np.arange(start, start + size), mode="wrap")
        longer.append(np.concatenate([before, line, context]).astype(np.int32))
    return longer


def rehearsal(
    text: TextFolder, beginnings: Beginnings, config: BakeConfig, positions: int | None
) -> Mapping[str, Ids]:
    """Return stream → a step's trajectories of the longest form, made before any is sampled.

    They are contexts with their own text as the reply. Three training steps on them identify a machine
    by its bits, and need as much memory as any step. `positions` is the longest sequence that the model
    takes.
    """
    whole = np.concatenate([text.streams[name] for name in config.contexts])
    size, length = config.context_tokens, config.context_tokens + config.reply_tokens

    def cut(row: int, heard: tuple[str, ...], plainly: bool) -> Trajectory:
        ids = whole.take(np.arange(row * length, (row + 1) * length), mode="wrap").astype(np.int32)
        prompted = beginnings.prompted(heard, ids[:size])
        plain = beginnings.plain(ids[:size]) if plainly else prompted
        room = (positions or length + len(prompted)) - config.reply_tokens
        return Trajectory(0, prompted[-room:], plain[-room:], ids[size:])

    longest = max(recipes.rehearsed(config), key=lambda text: beginnings.room([text]), default=None)
    heard = {BAKED: config.prompts} | ({OTHERS: (longest,)} if longest else {})
    return {
        name: pack(cut(row, texts, name == BAKED) for row in range(config.batch))
        for name, texts in heard.items()
    }


def verdicts(
    model: ResidentModel,
    tokenizer: Tokenizer,
    config: BakeConfig,
    places: Mapping[str, Sequence[Trajectory]],
    prompted: bool,
    tokens: int | None,
) -> dict[str, list[float]]:
    """Return group → score of the reply to each context, from 0 to 1, by the prompts' checks.

    The beginnings of each place's trajectories are continued: without the prompts, and with them if
    `prompted` is True. `tokens` is `Started.pass_tokens`. Raises the errors of `Verifier.verify`.
    """
    ends, verifier = end_tokens(model.config, tokenizer), FormVerifier()
    scores: dict[str, list[float]] = {}
    checks: Any = config.checks  # a check of forms is a check

    def text(ids: Ids, left_out: Collection[int] = ()) -> str:
        shown = [token for token in ids.tolist() if token not in left_out]
        words = tokenizer.decode(shown, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(words)

    for place, trajectories in places.items():
        heads = {UNPROMPTED: [each.plain for each in trajectories]}
        if prompted:
            heads[PROMPTED] = [each.prompted for each in trajectories]
        items: list[dict[str, object]] = [
            {"id": f"{place}-{n}", "domain": "contexts", "prompt": text(each.plain)}
            for n, each in enumerate(trajectories)
        ]
        for arm, beginnings in heads.items():
            replies = greedy(model, beginnings, config.reply_tokens, ends, tokens)
            words = [text(reply, ends) for reply in replies]
            for number, check in enumerate(checks, 1):
                if check is not None:
                    scores[check_group(arm, place, number)] = [
                        verifier.verify(check, reply, item).score
                        for reply, item in zip(words, items, strict=True)
                    ]
    return scores
