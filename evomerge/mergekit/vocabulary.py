"""One vocabulary of several tokenizers: the row of each token in each model's embedding.

`base` takes the base model's tokenizer, and a model's name takes that model's. `union` takes the
base's (or the first model's) and appends the tokens that only others have, in the models' order.
The first tokenizer's merges still decide how plain text is split. Appended added tokens (special
tokens, tags) are found in text as in their own model.

A token that a model lacks takes the base's row if the base has the token, else the mean of the rows
of the models that have it. `tokens` in the config overrides this for single tokens. Rows of tensors
move to their new tokens while they are read (`TokenRows`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from agent_forge.evomerge.mergekit.inputs import ModelRows
from agent_forge.evomerge.mergekit.parser import ModelPath, TokenRule, Vocabulary
from agent_forge.evomerge.merging.kernels.chunks import TensorRows
from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.runs.system import bounded_files
from agent_forge.weights.folders import model_config
from agent_forge.weights.folders.adapter import LoraRows

FILE = "tokenizer.json"


@dataclass(frozen=True)
class FolderTokenizer:
    """A folder's tokenizer, as far as a merge must know it."""

    folder: Path
    ids: Mapping[str, int]
    added: Mapping[str, dict[str, object]]

    @property
    def rows(self) -> int:
        """Number of rows that an embedding needs for the tokenizer."""
        return 1 + max(self.ids.values(), default=-1)


def read(folder: Path) -> FolderTokenizer:
    """Return a folder's `FolderTokenizer`: ids of its tokens, and added tokens. Raise SourceError."""
    try:
        document = bounded_files.read_object(folder / FILE)
        model_config.check_ids(folder / FILE, document)
        vocab = document["model"]["vocab"]
        ids = {t[0]: i for i, t in enumerate(vocab)} if isinstance(vocab, list) else dict(vocab)
        added = {token["content"]: token for token in document.get("added_tokens") or []}
    except (SourceError, LookupError, TypeError) as error:
        raise SourceError(
            f"{folder / FILE} cannot be read ({error}): the policy for tokenizers needs it. "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder) writes one."
        ) from error
    return FolderTokenizer(folder, {**ids, **{t: entry["id"] for t, entry in added.items()}}, added)


@dataclass(frozen=True)
class VocabularyPlan:
    """The vocabulary of the result."""

    #: Tokenizer whose files are taken.
    donor: FolderTokenizer
    #: Token of each id; None for rows of padding.
    tokens: tuple[str | None, ...]
    #: Tokens that the donor's files lack, with their entries as added tokens of their own tokenizer
    #: (None: a plain token there).
    appended: Mapping[str, dict[str, object] | None]
    tokenizers: Mapping[ModelPath, FolderTokenizer]
    rules: Mapping[str, TokenRule] = field(default_factory=dict)

    def index(self, model: ModelPath) -> torch.Tensor:
        """Return [rows] int64: the row of the model's own embedding; −1 if it lacks the token."""
        ids = self.tokenizers[model].ids
        return torch.tensor([-1 if t is None else ids.get(t, -1) for t in self.tokens])

    def rows(
        self, name: str, model: ModelPath, models: Mapping[ModelPath, ModelRows], base: ModelPath | None
    ) -> TensorRows:
        """Return a model's embedding or head as rows of this vocabulary's tokens."""
        indices = {r: self.index(r) for r in models}
        for reference in models:
            limit = models[reference].rows(name).shape[0]
            indices[reference] = torch.where(indices[reference] < limit, indices[reference], -1)
        model_rows = models[model].rows(name)
        if not self.rules:
            origin = None if base is None else (models[base].rows(name), indices[base])
            other_rows = tuple((models[r].rows(name), indices[r]) for r in models)
            return TokenRows(model_rows, indices[model], origin, other_rows)
        return self._ruled(name, model, models, base, indices)

    def _ruled(
        self,
        name: str,
        model: ModelPath,
        models: Mapping[ModelPath, ModelRows],
        base: ModelPath | None,
        indices: Mapping[ModelPath, torch.Tensor],
    ) -> TensorRows:
        """Return the rows after the config's rules, in memory: a rule may take any model's row."""
        plain = VocabularyPlan(self.donor, self.tokens, self.appended, self.tokenizers)
        mapped = plain.rows(name, model, models, base)
        whole = mapped[slice(0, len(self.tokens))].clone()
        for token, rule in self.rules.items():
            place = self.tokens.index(token)
            if int(indices[model][place]) >= 0 and not rule.force:
                continue
            if rule.zero:
                whole[place] = 0.0
            elif rule.source is not None:
                ids, source = self.tokenizers[rule.source].ids, models[rule.source].rows(name)
                other = rule.token if isinstance(rule.token, int) else ids.get(rule.token or token, -1)
                if not 0 <= other < source.shape[0]:
                    raise ConfigError(
                        f"tokenizer.tokens: {rule.source} has no token {rule.token or token!r}."
                    )
                whole[place] = source[slice(other, other + 1)][0].to(torch.float32)
        return whole


def plan(
    vocabulary: Vocabulary, base: ModelPath | None, models: Mapping[ModelPath, ModelRows]
) -> VocabularyPlan | None:
    """Return the `VocabularyPlan` that the config asks for; None if models are taken as they are.

    Raise ConfigError if the tokenizer's source, or a token's, is not one of the models.
    """
    if vocabulary.source is None:
        return None
    order = list(models)
    tokenizers = {r: read(models[r].checkpoint.folder) for r in order}
    first = base if base is not None else order[0]
    if vocabulary.source == "base":
        if base is None:
            raise ConfigError("tokenizer source base: the config has no base_model.")
        chosen = base
    elif vocabulary.source == "union":
        chosen = first
    else:
        chosen = ModelPath.parse(vocabulary.source)
        if chosen not in tokenizers:
            names = ", ".join(map(str, order))
            raise ConfigError(f"tokenizer source {chosen} is not one of the models ({names}).")
    donor = tokenizers[chosen]
    tokens: list[str | None] = [None] * donor.rows
    for token, id_ in donor.ids.items():
        tokens[id_] = token
    appended = _appended(
        donor, tokenizers.values() if vocabulary.source == "union" else (), vocabulary.tokens
    )
    tokens += list(appended)
    if vocabulary.pad_to_multiple_of:
        tokens += [None] * (-len(tokens) % vocabulary.pad_to_multiple_of)
    for token, rule in vocabulary.tokens.items():
        if rule.source is not None and rule.source not in tokenizers:
            raise ConfigError(f"tokenizer.tokens: the source of {token} is not one of the models.")
    return VocabularyPlan(donor, tuple(tokens), appended, tokenizers, vocabulary.tokens)


def _appended(
    donor: FolderTokenizer, tokenizers: Any, rules: Mapping[str, TokenRule]
) -> dict[str, dict[str, object] | None]:
    """Return {token: entry or None} of tokens that the donor lacks: by model and id, then rules'."""
    tokens: dict[str, dict[str, object] | None] = {}
    for other in tokenizers:
        for token in sorted(other.ids, key=lambda t: other.ids[t]):
            if token not in donor.ids:
                tokens.setdefault(token, other.added.get(token))
    for token in rules:
        if token not in donor.ids and token not in tokens:
            tokens[token] = {"special": False}
    return tokens


def write(folder: Path, vocabulary_plan: VocabularyPlan) -> None:
    """Write appended tokens into the folder's tokenizer files, which are the donor's."""
    if not vocabulary_plan.appended:
        return
    document = bounded_files.read_object(folder / FILE)
    vocab, added = document["model"]["vocab"], document.setdefault("added_tokens", [])
    ids = {token: id_ for id_, token in enumerate(vocabulary_plan.tokens) if token is not None}
    for token, entry in vocabulary_plan.appended.items():
        if entry is not None:
            defaults = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
            added.append({**defaults, "special": False, **entry, "id": ids[token], "content": token})
        elif isinstance(vocab, dict):
            vocab[token] = ids[token]
        else:
            raise ConfigError(
                f"{folder / FILE}: tokens cannot be appended to a vocabulary of pieces (Unigram); "
                "use tokenizer_source: base or a model."
            )
    if isinstance(vocab, dict) and None in vocabulary_plan.appended.values():
        # If an added token is in no vocabulary, the library gives it an id of its own.
        for entry in added:
            vocab.setdefault(entry["content"], ids[entry["content"]])
    (folder / FILE).write_text(json.dumps(document, ensure_ascii=False, indent=2), "utf-8")
    _decoder(folder, vocabulary_plan, ids)
    _check_ids(folder, ids)


def _check_ids(folder: Path, ids: Mapping[str, int]) -> None:
    """Raise ConfigError if the library reads other ids than rows were made for."""
    from tokenizers import Tokenizer as Library

    read_back = Library.from_file(str(folder / FILE)).get_vocab(with_added_tokens=True)
    wrong = sorted(token for token, id_ in ids.items() if read_back.get(token) != id_)
    if wrong:
        raise ConfigError(
            f"the union of the tokenizers cannot be written: token {wrong[0]!r} would be "
            f"{read_back.get(wrong[0])}, not {ids[wrong[0]]}. Use tokenizer_source: base or a model."
        )


def _decoder(folder: Path, vocabulary_plan: VocabularyPlan, ids: Mapping[str, int]) -> None:
    """Add the appended tokens to tokenizer_config.json, which lists added tokens as well."""
    file = folder / "tokenizer_config.json"
    if not file.is_file():
        return
    config = bounded_files.read_object(file)
    listed = config.get("added_tokens_decoder")
    if isinstance(listed, dict):
        for token, entry in vocabulary_plan.appended.items():
            if entry is not None:
                fields = {k: v for k, v in entry.items() if k not in ("id", "content")}
                listed[str(ids[token])] = {"content": token, **fields}
        file.write_text(json.dumps(config, ensure_ascii=False, indent=2) + "\n", "utf-8")


@dataclass(frozen=True)
class TokenRows:
    """Rows moved to other tokens: row i is `index[i]` of the model's own.

    If the model lacks a token (−1), the row is the base's if the base has the token, else the mean
    of the rows of all `others` that have it. The row is zero if no model has it. float32.
    """

    rows: TensorRows
    index: torch.Tensor
    base: tuple[TensorRows, torch.Tensor] | None
    others: tuple[tuple[TensorRows, torch.Tensor], ...]

    @property
    def shape(self) -> torch.Size:  # noqa: D102
        return torch.Size((len(self.index), self.rows.shape[1]))

    def __getitem__(self, cut: slice, /) -> torch.Tensor:
        index = self.index[cut]
        out = _picked(self.rows, index)
        lacking = index < 0
        if not bool(lacking.any()):
            return out
        total = torch.zeros_like(out)
        count = torch.zeros(len(out), 1)
        for rows, other_index in self.others:
            has = (other_index[cut] >= 0).float().unsqueeze(1)
            total += _picked(rows, other_index[cut]) * has
            count += has
        filled = total / count.clamp(min=1.0)
        if self.base is not None:
            has = (self.base[1][cut] >= 0).unsqueeze(1)
            filled = torch.where(has, _picked(self.base[0], self.base[1][cut]), filled)
        return torch.where(lacking.unsqueeze(1), filled, out)


def _picked(rows: TensorRows, index: torch.Tensor) -> torch.Tensor:
    """Return float32 rows by index; some row if the index is −1."""
    if isinstance(rows, LoraRows):  # only the picked rows for each stretch
        at = index.clamp(min=0)
        return LoraRows(rows.rows[slice(0, rows.shape[0])][at], rows.a, rows.b[at], rows.scale)[:]
    whole = rows[slice(0, rows.shape[0])]
    return whole[index.clamp(min=0)].to(torch.float32)
