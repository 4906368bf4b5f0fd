"""Text of a cognate run: streams of tokens, items to measure on, tokenizer and configuration.

Documents are built-in or the user's, the tokenizer (byte-level BPE) is trained on them or the given
base's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tokenizers import pre_tokenizers, trainers
from transformers import PretrainedConfig
from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer

from evaluation.data import training_texts
from evaluation.data.builtin import corpus as builtin_corpus
from evaluation.data.slices import Document
from evaluation.loading import load_tokenizer
from evaluation.training_text import kept_text, own_texts, parts
from evaluation.training_text.kept_text import Text
from phases.cognate.events import Submitted
from phases.cognate.presets import Preset, PresetError
from phases.cognate.settings import CognateConfig
from weights.architectures import code
from weights.operations import qwen2_init, titans_mag_init
from weights.storage.inputs import Supply

#: End of a text, as a token.
END = "<|endoftext|>"
#: Documents from which the tokenizer learns, per domain: the first of the built-in text; of other
#: text as many more, at equal distances.
TOKENIZER_DOCUMENTS, OWN_TOKENIZER_DOCUMENTS = 300, 3000


def make(
    supply: Supply,
    submitted: Submitted,
    donor: Path | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> Text:
    """Make the text by the settings, keep it under its address, share it; return it.

    `donor` is the folder of the base that was given, `changes` as of `fill`.
    """
    return kept_text.make(supply, lambda folder: fill(folder, submitted, donor, changes))


def fill(
    folder: Path, submitted: Submitted, donor: Path | None, changes: Mapping[str, Any]
) -> Sequence[str]:
    """Write streams, items, tokenizer and configuration; return notes on how files were read.

    `donor` is the folder of the given base, `changes` are settings of config.json in which the models
    differ from that base in float32. Raises PresetError, DataError, SourceError.
    """
    config, notes = submitted.config, ()
    if submitted.data:
        corpus = training_texts.read(submitted.data)
        notes = corpus.notes
        documents, rows = corpus.documents, parts.rows(corpus.documents, corpus.others)
        texts = learning(config, corpus.documents)
        training = {domain: split["train"] for domain, split in corpus.documents.items()}
    else:
        documents = own_texts.corpus(config.seed, config.size.characters, config.domains)
        rows = builtin_corpus.items(documents, config.seed)
        texts = learning(config)
        mix = config.mix or config.size.base_mix
        training = parts.builtin(documents, config.seed, config.size.characters, mix)
    if donor is None:
        tokenizer = train_tokenizer(texts, config.size.vocabulary)
        _write_own(folder, config, tokenizer)
    else:
        tokenizer = parts.given_tokenizer(donor)
        parts.write_given(folder, donor, changes)
    _check_read(folder, tokenizer, [split["test"][0].text for split in documents.values()])
    parts.write(folder, tokenizer, training, rows)
    return notes


def learning(
    config: CognateConfig, documents: Mapping[str, parts.Split] | None = None
) -> Iterator[str]:
    """Yield the texts that the tokenizer learns from; `documents` are the user's documents, if they are."""
    if documents is not None:
        for split in documents.values():
            yield from (document.text for document in _spread(split["train"]))
        return
    for domain in config.domains:
        every = own_texts.documents(domain, config.seed, config.size.characters)
        training = (document.text for document in every if document.slice() == "train")
        yield from islice(training, TOKENIZER_DOCUMENTS)


def _spread(documents: Sequence[Document]) -> Sequence[Document]:
    """Return documents at equal distances, at most twice `OWN_TOKENIZER_DOCUMENTS`."""
    return documents[:: max(1, len(documents) // OWN_TOKENIZER_DOCUMENTS)]


# ---- tokenizer and configuration -----------------------------------------------------------------


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Qwen2Tokenizer:
    """Train a byte-level BPE of exactly `vocabulary` tokens, which can encode any text.

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
        return titans_mag_init.configuration(titans_mag_init.Shape(**shape))
    return qwen2_init.configuration(qwen2_init.Shape(**shape))


def _write_own(folder: Path, config: CognateConfig, tokenizer: Any) -> None:
    """Write config, generation settings and the trained tokenizer."""
    from transformers import GenerationConfig

    settings = configuration(config.size)
    settings.save_pretrained(folder)
    for name, content in code(settings.to_dict()).items():
        (folder / name).write_bytes(content)
    GenerationConfig.from_model_config(settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _check_read(folder: Path, tokenizer: Any, texts: Sequence[str]) -> None:
    """Raise PresetError if the tokenizer of the written folder gives other tokens."""
    read = load_tokenizer(str(folder))
    for text in texts:
        ids = [encoder.encode(text, add_special_tokens=False) for encoder in (read, tokenizer)]
        if ids[0] != ids[1]:
            raise PresetError(
                "the tokenizer that is read again is not the one that is trained with"
            )
