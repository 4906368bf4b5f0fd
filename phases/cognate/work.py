"""The work of a cognate run's tasks: prepare text, train, measure; and a forecast of its costs.

Documents are built-in or the user's. The tokenizer (byte-level BPE) is trained on them, or it is the
given base's. Measured are quality, the line from the base, and task vectors.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import pre_tokenizers, trainers
from transformers import PretrainedConfig, PreTrainedTokenizerBase
from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer
from typing_extensions import override

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data import training_texts
from agent_forge.evaluation.data.builtin import corpus as builtin_corpus
from agent_forge.evaluation.data.packing import ItemPack
from agent_forge.evaluation.loading import load_tokenizer
from agent_forge.evaluation.measures.perplexity import score_windows
from agent_forge.evaluation.training_text import kept_text, own_texts
from agent_forge.phases.cognate import figures, recipes
from agent_forge.phases.cognate.figures import LINE, PLACES, QUALITY
from agent_forge.phases.cognate.recipes import BASE, Started, Submitted
from agent_forge.phases.cognate.settings import CognateConfig, Preset, PresetError
from agent_forge.runs import kinds
from agent_forge.runs.event_types import SourceRecord
from agent_forge.runs.home import segment_steps
from agent_forge.runs.system.durations import duration, least
from agent_forge.studies import training_plan
from agent_forge.studies.events import Items, Observe, Observed, answered
from agent_forge.studies.making.making import Making, MakingState
from agent_forge.studies.run import StudyRun
from agent_forge.studies.submission import trainable
from agent_forge.studies.training_context import TrainingContext
from agent_forge.studies.work import Costs, WorkPart
from agent_forge.weights import operations, pieces
from agent_forge.weights.architectures import code
from agent_forge.weights.folders import gguf_note
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.operations import qwen2_init, titans_mag_init
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage.inputs import recorded
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.canary import STEPS, canary
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.room import bounded
from agent_forge.weights.training.team import Team


class Context(TrainingContext[MakingState]):
    """The opened text of a cognate run, and the work on its tasks."""

    # ---- what is opened when it is first used --------------------------------------------------

    @override
    def write_text(self, folder: Path) -> Sequence[str]:
        return fill(folder, self.state.submitted, self.donor, self.form)

    @cached_property
    @override
    def donor(self) -> Path | None:
        base, started = self.state.submitted.base, self.state.started
        if base is None:
            return None
        return self._cache.supply.model(base, started.base if started else None)

    @property
    @override
    def record(self) -> SourceRecord | None:
        return self.state.started.base

    @property
    def run(self) -> StudyRun:
        """The run, as its script has described it so far."""
        kind: Any = kinds.of(self.state.kind)
        return kind.run(self.state)

    @property
    @override
    def recipes(self) -> Mapping[str, Making]:
        return self.run.recipes

    @property
    @override
    def trainings(self) -> Mapping[str, Train]:
        return self.run.known[figures.TRAININGS]

    @property
    @override
    def team(self) -> Team:
        config = self.state.submitted.config
        return Team(config.processes, config.sharded)

    @cached_property
    def resident(self) -> ResidentModel:
        """The module into which the weights to measure are loaded; first those of the base."""
        base = self.weights(self.recipes[BASE])
        module = modules.build(Tensors(self.settings, base), self.device)
        return ResidentModel.from_module(module.eval())

    @cached_property
    def held_out(self) -> dict[str, ItemPack]:
        """Domain → the packed windows to measure on."""
        return self.text.held_out(self.state.started.context, figures.SLICE)

    # ---- tasks ---------------------------------------------------------------------------------

    @override
    def _observed(self, task: Observe) -> Observed:
        models = {role: self.recipes[role] for role in self.run.arms}
        base = models.pop(BASE)
        task_recipe = next(recipe for recipe in (base, *models.values()) if recipe.id == task.recipe_id)
        weights = self.weights(task_recipe)
        if task.measure == figures.QUALITY:
            return quality(task, self.resident, weights, self.held_out)
        if task.measure == figures.LINE:
            ends = {0.0: base.id, 1.0: task.recipe_id}
            return line(
                task, self.resident, self.weights(base), weights, self.held_out, self._known(ends)
            )
        specialists = {role: self.weights(recipe) for role, recipe in models.items()}
        return geometry(task, weights, specialists)

    def _known(self, ends: Mapping[float, str]) -> dict[float, Items]:
        """Return place → domain → −log p of every window, for places in `ends` measured already."""
        tasks = {place: Observe(id_, figures.QUALITY, figures.SLICE) for place, id_ in ends.items()}
        events = {place: self.state.answers.get(task.key) for place, task in tasks.items()}
        return {place: event.items for place, event in events.items() if isinstance(event, Observed)}

    # ---- started -------------------------------------------------------------------------------

    @override
    def started(self) -> Started:
        prepared_text, submitted = self.text, self.state.submitted
        size, base = submitted.config.size, self._base_record()
        positions = open_checkpoint(self.donor).positions if self.donor else None
        started = Started(
            warnings=(),
            parameters=base.parameters if base else size.parameters,
            trainable=trainable(submitted.config, self.settings),
            base=base,
            streams=prepared_text.digests,
            tokens={domain: len(ids) for domain, ids in prepared_text.streams.items()},
            files=prepared_text.files,
            items=prepared_text.items,
            profile=self.profile(),
            canary="0" * 64,
            context=recipes.window(submitted.config, positions),
            dtype=self.dtype,
            segment=1,
        )
        training_plan.check_lengths(started)
        prepared_text.held_out(
            started.context, figures.SLICE
        )  # raises if there is nothing to measure on
        start = self.initial(started)
        if base is None:
            size.check(sum(t.numel() for t in start.weights.values()))
        else:
            assert self.donor is not None
            self._cache.supply.share_model(self.donor)
        config = submitted.config
        rows = size.batch // config.processes
        started, digest, self.stepping = self.fitted(started, start, rows, started.accumulation)
        tokens = [size.specialist_tokens] + ([] if base else [size.base_tokens])
        longest = max(recipes.steps(size, started.context, count) for count in tokens)
        segment = min(longest, segment_steps(self.stepping / STEPS))
        parts = training_plan.divided(size.batch, 1, started.accumulation)
        rounded = gguf_note.warnings(Path(submitted.base.path)) if submitted.base else ()
        notes = (*rounded, *self.text.notes, *parts, *figures.readings(submitted, started))
        return started.model_copy(update={"canary": digest, "segment": segment, "warnings": notes})

    def _base_record(self) -> SourceRecord | None:
        """Return the record of the given base, None without one; raise SourceError if it changed."""
        base = self.state.submitted.base
        if base is None or self.donor is None:
            return None
        return recorded(base, self.donor, open_checkpoint(self.donor, Path(base.path)))

    @property
    @override
    def parameters(self) -> int:
        return super().parameters if self.donor else self.state.submitted.config.size.parameters

    @override
    def canary(self, started: Started, start: Tensors) -> tuple[str, float]:
        every = recipes.unaveraged(self.state.submitted, started).values()
        recipe = next(candidate for candidate in every if isinstance(candidate, Train))
        with bounded():
            return canary(recipe, start, self.text.streams, device=self.device, team=self.team)

    @override
    def initial(self, started: Started) -> Tensors:
        recipe = recipes.initial(self.state.submitted, started)
        return operations.apply(recipe, {"of": self.given()} if started.base else {})

    def costs(self) -> Costs:
        """Return the `Costs` of a started run: seconds by part, models, memory and disk."""
        state, run = self.state, self.run
        stepping, scoring = self.step_seconds(), _scoring(self, self.initial(state.started))
        steps = sum(recipe.upto for recipe in self.trainings.values())
        passes = sum(_passes(task) for task in run.observations.values())
        config = state.submitted.config
        roles = 1 + len(config.domains)
        return Costs(
            parts=(
                WorkPart(
                    steps * stepping / STEPS,
                    f"{STEPS} steps of training took {duration(stepping)}, and it has {steps:,}",
                ),
                WorkPart(
                    passes * scoring,
                    f"a pass over the held-out text {duration(scoring)}, and it has {passes}",
                ),
            ),
            models=roles,
            rounded=roles,
            numbers=state.started.parameters,
            further=(0, " (snapshots on the way are removed)"),
        )


Weights = Mapping[str, torch.Tensor]


def quality(
    task: Observe, model: ResidentModel, weights: Weights, data: Mapping[str, ItemPack]
) -> Observed:
    """Return the `observed` event of a model: by domain −log p and predicted bytes of every window."""
    began, items, sizes = time.monotonic(), {}, {}
    model.load(weights)
    with pieces.divided():
        for domain in sorted(data):
            nll, _, _ = score_windows(model, data[domain].windows)
            items[domain], sizes[domain] = tuple(nll), tuple(data[domain].bytes)
    return answered(task, items, sizes, began)


def line(
    task: Observe,
    model: ResidentModel,
    base: Weights,
    specialist: Weights,
    data: Mapping[str, ItemPack],
    ends: Mapping[float, Items],
) -> Observed:
    """Return the `observed` event: −log p and predicted tokens of every window at each place.

    `ends` are places measured before: place → domain → −log p of every window.
    """
    began, items, sizes = time.monotonic(), {}, {}
    groups, loaded = [(place, domain) for place in PLACES for domain in sorted(data)], set[float]()

    def work(number: int) -> pieces.Tensors:
        place, domain = groups[number]
        if place not in ends and place not in loaded:
            model.load({n: torch.lerp(base[n].float(), specialist[n].float(), place) for n in base})
            loaded.clear()
            loaded.add(place)
        losses = ends.get(place)
        nll = score_windows(model, data[domain].windows)[0] if losses is None else losses[domain]
        return {"nll": torch.tensor(nll, dtype=torch.float64)}

    with pieces.divided():
        measured = pieces.each(len(groups), work)
    for (place, domain), read in zip(groups, measured, strict=True):
        items[f"{place}/{domain}"] = tuple(read["nll"].tolist())
        sizes[f"{place}/{domain}"] = tuple(len(window) - 1 for window in data[domain].windows)
    return answered(task, items, sizes, began)


def geometry(task: Observe, base: Weights, specialists: Mapping[str, Weights]) -> Observed:
    """Return the `observed` event: each task vector's norm over the base's, and cosines ("a,b")."""
    began, names = time.monotonic(), list(specialists)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i:]]
    products, square = dict.fromkeys(pairs, 0.0), 0.0
    for tensor, weights in sorted(base.items()):  # a tensor at a time: models may be large
        square += float(weights.double().square().sum())
        moved = {
            n: (specialist[tensor] - weights).double().flatten()
            for n, specialist in specialists.items()
        }
        for a, b in pairs:
            products[a, b] += float(moved[a] @ moved[b])
    norms = {name: math.sqrt(products[name, name]) for name in names}
    values = {name: norm / math.sqrt(square) for name, norm in norms.items()}
    for (a, b), product in products.items():
        if a != b:
            values[f"{a},{b}"] = product / (norms[a] * norms[b] or 1.0)
    return Observed(
        recipe_id=task.recipe_id,
        measure=task.measure,
        on=task.on,
        values=values,
        seconds=time.monotonic() - began,
    )


def _passes(task: Observe) -> int:
    """Return the number of passes over the held-out text: 1, along a line 3, of weights alone 0."""
    return {QUALITY: 1, LINE: len(PLACES) - 2}.get(task.measure, 0)


def _scoring(context: Context, initial: Tensors) -> float:
    """Return the seconds that a pass over the held-out text takes, measured."""
    model = ResidentModel.from_module(modules.build(initial, context.device).eval())
    task = context.run.arms[BASE]
    return least(lambda: quality(task, model, initial.weights, context.held_out))


#: End of a text, as a token.
END = "<|endoftext|>"
#: Documents per domain from which the tokenizer learns: the first of the built-in text; of other
#: text documents at equal distances.
TOKENIZER_DOCUMENTS, OWN_TOKENIZER_DOCUMENTS = 300, 3000


def fill(
    folder: Path, submitted: Submitted, donor: Path | None, changes: Mapping[str, object]
) -> Sequence[str]:
    """Write streams, items, tokenizer and configuration; return notes on how files were read.

    `donor` is the folder of the given base, `changes` are settings of config.json in which the models
    differ from that base in float32. Raises PresetError, DataError, SourceError.
    """
    config, notes = submitted.config, ()
    if submitted.data:
        corpus = training_texts.read(submitted.data)
        notes = corpus.notes
        documents, rows = corpus.documents, kept_text.rows(corpus.documents, corpus.others)
        texts = learning(config, corpus.documents)
        training = {domain: split["train"] for domain, split in corpus.documents.items()}
    else:
        documents = own_texts.corpus(config.seed, config.size.characters, config.domains)
        rows = builtin_corpus.items(documents, config.seed)
        texts = learning(config)
        mix = config.mix or config.size.base_mix
        training = kept_text.builtin(documents, config.seed, config.size.characters, mix)
    if donor is None:
        tokenizer = train_tokenizer(texts, config.size.vocabulary)
        _write_own(folder, config, tokenizer)
    else:
        tokenizer = kept_text.given_tokenizer(donor)
        kept_text.write_given(folder, donor, changes)
    _check_read(folder, tokenizer, [split["test"][0].text for split in documents.values()])
    kept_text.write(folder, tokenizer, training, rows)
    return notes


def learning(
    config: CognateConfig, documents: Mapping[str, kept_text.Split] | None = None
) -> Iterator[str]:
    """Yield the texts that the tokenizer learns from, of the user's documents or the built-in ones."""
    if documents is not None:
        for split in documents.values():
            apart = max(1, len(split["train"]) // OWN_TOKENIZER_DOCUMENTS)  # fewer than twice as many
            yield from (document.text for document in split["train"][::apart])
        return
    for domain in config.domains:
        every = own_texts.documents(domain, config.seed, config.size.characters)
        training = (document.text for document in every if document.slice() == "train")
        yield from islice(training, TOKENIZER_DOCUMENTS)


# ---- tokenizer and configuration -----------------------------------------------------------------


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Qwen2Tokenizer:
    """Return a byte-level BPE tokenizer of exactly `vocabulary` tokens, trained on `texts`.

    It splits text as Qwen2's own tokenizer does, because AutoTokenizer will split so when it reads
    a Qwen2 folder. With another splitting every user would get other tokens than the model was
    trained on. Raises PresetError if the texts give another number of tokens.
    """
    core = Qwen2Tokenizer().backend_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    if core.get_vocab_size() != vocabulary:
        count = core.get_vocab_size()
        raise PresetError(
            f"the text gives {count} tokens, and the tokenizer needs {vocabulary}: too few pieces of "
            f"the text come more than once. Set vocabulary to {count} (--set vocabulary={count}), or "
            "give more, and more varied, text."
        )
    merges: Any = [tuple(pair) for pair in json.loads(core.to_str())["model"]["merges"]]
    return Qwen2Tokenizer(vocab=core.get_vocab(), merges=merges, bos_token=END)


def configuration(preset: Preset) -> PretrainedConfig:
    """Return the preset as a transformers configuration."""
    operation, shape = preset.initialisation()
    if operation == "titans-mag-init@1":
        return titans_mag_init.configuration(titans_mag_init.TitansMagShape(**shape))
    return qwen2_init.configuration(qwen2_init.Qwen2Shape(**shape))


def _write_own(folder: Path, config: CognateConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write config, generation settings and the trained tokenizer into a folder."""
    from transformers import GenerationConfig

    settings = configuration(config.size)
    settings.save_pretrained(folder)
    for name, content in code(settings.to_dict()).items():
        (folder / name).write_bytes(content)
    GenerationConfig.from_model_config(settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _check_read(
    folder: Path, tokenizer: Tokenizer | PreTrainedTokenizerBase, texts: Sequence[str]
) -> None:
    """Raise PresetError if the folder's tokenizer encodes a text differently from `tokenizer`."""
    read = load_tokenizer(str(folder))
    for text in texts:
        ids = [encoder.encode(text, add_special_tokens=False) for encoder in (read, tokenizer)]
        if ids[0] != ids[1]:
            raise PresetError("the tokenizer that is read again is not the one that is trained with")
