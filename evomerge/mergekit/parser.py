"""Parser of mergekit's YAML, as its documentation describes it, with the line of every key.

One document is one merge. A file of several documents is several merges, which may use each other
by `name`. Exactly one of `models`, `slices` and `modules` says what is merged. A model is
`path[@revision][+adapter[@revision]]`. A key that is not known here, or has no effect, gives a
warning that names the key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from agent_forge.runs import home
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.system import bounded_files, yaml_reader
from agent_forge.runs.system.yaml_reader import Map

#: Bytes of the largest file, and layers of the largest result.
MOST_BYTES, MOST_LAYERS = 4 << 20, 2_000
#: Rows that an embedding may be padded to a multiple of.
MOST_PADDING = 1 << 16
#: Bytes of the longest name of a merge, which is a folder's name.
LONGEST_NAME = 200
#: Keys of a document.
KEYS = {
    "merge_method",
    "models",
    "slices",
    "modules",
    "base_model",
    "parameters",
    "dtype",
    "out_dtype",
    "tokenizer_source",
    "tokenizer",
    "chat_template",
    "name",
    "seed",
}
#: Parameters that have no effect on a result here, and why.
WITHOUT_EFFECT = {"int8_mask": "masks take no memory here"}


@dataclass(frozen=True)
class ModelPath:
    """Reference to a model: `path[@revision][+adapter[@revision]]`."""

    model: str
    adapter: str | None = None

    @classmethod
    def parse(cls, text: str) -> ModelPath:
        """Return the `ModelPath` (model, adapter or None) that a user's text names.

        An existing folder counts before an adapter: `c++ models/code` is one name if it exists, and
        in `c++ models/code+lora` the model is the longest part that exists.
        """
        text = text.strip()
        ends = [i for i, character in enumerate(text) if character == "+"]
        for end in (len(text), *reversed(ends)):
            if _is_there(text[:end].strip()):
                return cls(text[:end].strip(), text[end + 1 :].strip() or None)
        model, _, adapter = text.partition("+")
        return cls(model.strip(), adapter.strip() or None)

    def __str__(self) -> str:
        return self.model if self.adapter is None else f"{self.model}+{self.adapter}"


@dataclass(frozen=True)
class MergePart:
    """Model that takes part, and its own parameters; in a slice also its layers [first, end)."""

    reference: ModelPath
    parameters: Map
    layers: tuple[int, int] | None = None
    line: int = 0


@dataclass(frozen=True)
class Slice:
    """Some layers of the result, made of the same number of layers of each part."""

    parts: tuple[MergePart, ...]
    parameters: Map
    base: ModelPath | None = None
    line: int = 0


@dataclass(frozen=True)
class TokenRule:
    """Source of a token's embedding: a model, another token of a model, or zero."""

    source: ModelPath | None = None
    token: str | int | None = None
    zero: bool = False
    force: bool = False


@dataclass(frozen=True)
class Vocabulary:
    """Tokenizer settings of the file."""

    #: "union", "base", or a model; None leaves the first model's as it is.
    source: str | None = None
    tokens: dict[str, TokenRule] = field(default_factory=dict)
    pad_to_multiple_of: int | None = None


@dataclass(frozen=True)
class MergeSpec:
    """One merge of the file."""

    file: str
    method: str
    #: With `models`: one slice of whole models.
    slices: tuple[Slice, ...]
    whole: bool
    parameters: Map
    base: ModelPath | None
    dtype: str | None
    vocabulary: Vocabulary
    chat_template: str | None
    name: str | None
    warnings: tuple[str, ...]
    text: str
    #: Seed of random masks. This key is an extension; mergekit has an option instead.
    seed: int | None = None
    lines: dict[str, int] = field(default_factory=dict)

    def references(self) -> list[ModelPath]:
        """Return a `ModelPath` for each model, once: the base, in the file's order, slices' bases."""
        model_references = [] if self.base is None else [self.base]
        for part in (part for s in self.slices for part in s.parts):
            model_references.append(part.reference)
        model_references += [s.base for s in self.slices if s.base is not None]
        return list(dict.fromkeys(model_references))


def read(file: Path) -> list[MergeSpec]:
    """Return the merges of a file, one `MergeSpec` each. Raise ConfigError with file, line and key."""
    return parse(bounded_files.read_text(file, MOST_BYTES, ConfigError), str(file))


def parse(text: str, file: str = "config") -> list[MergeSpec]:
    """Return the merges of a text, one `MergeSpec` each. Raise ConfigError with file, line and key."""
    try:
        mappings = [d for d in yaml_reader.load(text) if d is not None]
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ConfigError(f"{file}, line {line}: this is not YAML: {error.problem}.") from error
    except ConfigError as error:
        raise ConfigError(f"{file}, {error}") from error
    except yaml_reader.UNREADABLE as error:
        raise ConfigError(f"{file}: this is not YAML: {error}.") from error
    except RecursionError as error:
        raise ConfigError(f"{file} is nested too deep: that is no merge.") from error
    if not mappings:
        raise ConfigError(f"{file} is empty: a merge needs at least merge_method and models.")
    if len(mappings) > 1:
        unnamed = [d for d in mappings if isinstance(d, Map) and not d.get("name")]
        for document in unnamed[:1]:
            raise ConfigError(
                f"{file}, line {document.line}: of several merges in a file each needs a name."
            )
    documents = [_Reader(file, text).document(d) for d in mappings]
    names = [d.name for d in documents if d.name is not None]
    for name in names:
        if names.count(name) > 1 or not _is_folder(name):
            raise ConfigError(f"{file}: name {name[:300]!r}: a folder's name, each once in a file.")
    return documents


class _Reader:
    """Reader of a document, which it checks key by key."""

    def __init__(self, file: str, text: str) -> None:
        self._file, self._text = file, text
        self._warnings: list[str] = []

    def error(self, line: int, what: str) -> ConfigError:
        return ConfigError(f"{self._file}, line {line}: {what}")

    def document(self, mapping: object) -> MergeSpec:
        if not isinstance(mapping, Map):
            raise self.error(1, "a merge is a mapping of keys, beginning with merge_method.")
        self._unknown(mapping, KEYS, "")
        method = self._text_of(mapping, "merge_method")
        if method is None:
            raise self.error(mapping.line, "the key merge_method is missing.")
        return MergeSpec(
            file=self._file,
            method=method,
            slices=self._slices(mapping),
            whole="models" in self._content(mapping),
            parameters=self._parameters(mapping),
            base=self._reference(mapping, "base_model"),
            dtype=self._text_of(mapping, "out_dtype") or self._text_of(mapping, "dtype"),
            vocabulary=self._vocabulary(mapping),
            chat_template=self._text_of(mapping, "chat_template"),
            name=self._text_of(mapping, "name"),
            warnings=tuple(self._warnings),
            text=self._text,
            seed=self._seed(mapping),
            lines=mapping.lines,
        )

    def _unknown(self, mapping: Map, keys: set[str], where: str) -> None:
        for key in mapping:
            if key not in keys:
                self._warnings.append(
                    f"{self._file}, line {mapping.lines[key]}: the key {where}{key} is not known here "
                    "and is ignored."
                )

    def _text_of(self, mapping: Map, key: str) -> str | None:
        value = mapping.get(key)
        if value is not None and not isinstance(value, str | int | float):
            raise self.error(mapping.lines[key], f"{key} is a word, not {type(value).__name__}.")
        return None if value is None else str(value)

    def _seed(self, mapping: Map) -> int | None:
        seed = mapping.get("seed")
        if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or seed < 0):
            raise self.error(mapping.lines["seed"], "seed is a whole number from 0.")
        return seed

    def _map(self, mapping: Map, key: str) -> Map:
        value = mapping.get(key)
        if value is None:
            return Map.empty(mapping.line)
        if not isinstance(value, Map):
            raise self.error(mapping.lines[key], f"{key} is a mapping of keys.")
        return value

    def _parameters(self, mapping: Map) -> Map:
        parameters = self._map(mapping, "parameters")
        for key in parameters:
            if key in WITHOUT_EFFECT:
                self._warnings.append(
                    f"{self._file}, line {parameters.lines[key]}: the parameter {key} has no effect: "
                    f"{WITHOUT_EFFECT[key]}."
                )
        return parameters

    def _reference(self, mapping: Map, key: str) -> ModelPath | None:
        value = mapping.get(key)
        if isinstance(value, Map):  # the long form: {model: {path, revision}, lora: …}
            inner = value.get("model", value)
            path = inner.get("path") if isinstance(inner, Map) else inner
            revision = inner.get("revision") if isinstance(inner, Map) else None
            lora = value.get("lora")
            lora = lora.get("path") if isinstance(lora, Map) else lora
            for name, part in (("path", path), ("revision", revision), ("lora", lora)):
                if not isinstance(part, str) and (part is not None or name == "path"):
                    raise self.error(
                        mapping.lines[key], f"{key}: its {name} is no text. Write it in quotes."
                    )
            text = f"{path}@{revision}" if revision else path
            if lora:
                return ModelPath(str(text), lora)
            value = text
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            raise self.error(mapping.lines[key], f"{key} names a model: path[@revision][+adapter].")
        return ModelPath.parse(value)

    def _content(self, mapping: Map) -> Map:
        """Return the mapping that has `models` or `slices`: the document, or its only module."""
        have = [key for key in ("models", "slices", "modules") if mapping.get(key)]
        if len(have) != 1:
            named = f"this has {' and '.join(have)}" if have else "this has none"
            raise self.error(mapping.line, f"exactly one of models, slices and modules: {named}.")
        if have[0] != "modules":
            return mapping
        modules = self._map(mapping, "modules")
        if len(modules) != 1:
            raise self.error(
                mapping.lines["modules"], "only models of one module (the decoder) can be merged here."
            )
        (name,) = modules
        inner = self._map(modules, name)
        both = [key for key in ("models", "slices") if inner.get(key)]
        if len(both) != 1:
            raise self.error(modules.lines[name], f"module {name} has either models or slices.")
        return inner

    def _items(self, mapping: Map, key: str) -> list[Map]:
        items = mapping[key]
        if not isinstance(items, list) or not all(isinstance(item, Map) for item in items):
            raise self.error(mapping.lines[key], f"{key} is a list, each of its items a mapping.")
        return items

    def _slices(self, document: Map) -> tuple[Slice, ...]:
        content = self._content(document)
        parameters = self._parameters(content) if content is not document else Map.empty(content.line)
        if content.get("models"):
            parts = tuple(self._part(item, False) for item in self._items(content, "models"))
            return (Slice(parts, parameters, line=content.lines["models"]),)
        slices = []
        for item in self._items(content, "slices"):
            self._unknown(item, {"sources", "parameters", "base_model", "residual_weight"}, "slices.")
            if "sources" not in item:
                raise self.error(item.line, "a slice has sources.")
            parts = tuple(self._part(source, True) for source in self._items(item, "sources"))
            if item.get("residual_weight") is not None:
                self._warnings.append(
                    f"{self._file}, line {item.lines['residual_weight']}: the key "
                    "slices.residual_weight has no effect."
                )
            lengths = {end - first for part in parts for first, end in [part.layers or (0, 0)]}
            if len(lengths) != 1:
                raise self.error(
                    item.line,
                    f"the sources of a slice have the same number of layers, not {sorted(lengths)}.",
                )
            merged = Map({**parameters, **self._parameters(item)})
            merged.line, merged.lines = item.line, {}
            slices.append(Slice(parts, merged, self._reference(item, "base_model"), item.line))
        self._check_layers(slices)
        return tuple(slices)

    def _check_layers(self, slices: list[Slice]) -> None:
        """Raise ConfigError if the slices have more than `MOST_LAYERS` (2,000) layers together."""
        total = 0
        for each in slices:
            first, end = each.parts[0].layers or (0, 0)
            total += end - first
            if total > MOST_LAYERS:
                raise self.error(
                    each.line, f"the slices have more than {MOST_LAYERS:,} layers together."
                )

    def _part(self, item: Map, sliced: bool) -> MergePart:
        keys = {"model", "parameters", "layer_range"} if sliced else {"model", "parameters"}
        self._unknown(item, keys, "sources." if sliced else "models.")
        reference = self._reference(item, "model")
        if reference is None:
            raise self.error(item.line, "the key model is missing.")
        layers = None
        if sliced:
            layers = item.get("layer_range")
            if not isinstance(layers, list) or len(layers) != 2 or not _is_range(layers):
                line = item.lines.get("layer_range", item.line)
                raise self.error(line, "layer_range is [first, end], first below end, both from 0.")
            layers = (layers[0], layers[1])
        return MergePart(reference, self._parameters(item), layers, item.line)

    def _vocabulary(self, mapping: Map) -> Vocabulary:
        source = self._text_of(mapping, "tokenizer_source")
        if mapping.get("tokenizer") is None:
            return Vocabulary(source)
        if source is not None:
            line = mapping.lines["tokenizer"]
            raise self.error(line, "tokenizer and tokenizer_source exclude each other.")
        tokenizer = self._map(mapping, "tokenizer")
        self._unknown(tokenizer, {"source", "tokens", "pad_to_multiple_of"}, "tokenizer.")
        multiple = tokenizer.get("pad_to_multiple_of")
        if multiple is not None and (type(multiple) is not int or not 1 <= multiple <= MOST_PADDING):
            line = tokenizer.lines["pad_to_multiple_of"]
            raise self.error(line, f"pad_to_multiple_of is a whole number from 1 to {MOST_PADDING:,}.")
        tokens = self._map(tokenizer, "tokens")
        rules = {token: self._rule(tokens, token) for token in tokens}
        return Vocabulary(self._text_of(tokenizer, "source") or "union", rules, multiple)

    def _rule(self, tokens: Map, token: str) -> TokenRule:
        entry, line = self._map(tokens, token), tokens.lines[token]
        self._unknown(entry, {"source", "force"}, f"tokenizer.tokens.{token}.")
        source, force = entry.get("source"), bool(entry.get("force", False))
        if source is None or isinstance(source, str):
            return TokenRule(ModelPath.parse(source) if source else None, force=force)
        if not isinstance(source, Map) or source.get("kind") not in ("zero", "model_token"):
            raise self.error(line, f"the source of token {token} is a model, zero or a model_token.")
        if source["kind"] == "zero":
            return TokenRule(zero=True, force=force)
        other = source.get("token", source.get("token_id"))
        model = self._reference(source, "model")
        both = "token" in source and "token_id" in source
        if model is None or not isinstance(other, str | int) or both:
            raise self.error(
                line, f"the source of token {token} names a model and a token or token_id."
            )
        return TokenRule(model, other, force=force)


def _is_there(text: str) -> bool:
    """Return True if a text names a folder that exists."""
    try:
        return bool(text) and home.expanded(text).is_dir()
    except (OSError, ValueError, ConfigError):  # no path, or no home folder
        return False


def _is_folder(name: str) -> bool:
    """Return True if a name can be that of one folder, on a disk and at a terminal."""
    plain = name not in ("", ".", "..") and "/" not in name and name.isprintable()
    return plain and len(name.encode("utf-8", "replace")) <= LONGEST_NAME


def _is_range(layers: list[Any]) -> bool:
    return all(isinstance(n, int) for n in layers) and 0 <= layers[0] < layers[1]
