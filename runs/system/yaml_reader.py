"""Reader of YAML with the line of every key, in bounded time."""

from __future__ import annotations

# The types of PyYAML leave these methods open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
import re
from collections.abc import Iterator
from typing import Any

import yaml

from agent_forge.runs.errors import ConfigError

#: Keys that the merge keys (<<) of a file may bring in.
MOST_MERGED = 100_000
#: Keys and values that the aliases of a file may stand for; a hundred characters count as one.
MOST_REPEATED = 100_000
#: Exceptions of the library for a text that is not YAML; for tags nearly any exception.
UNREADABLE = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError)

_MERGE = "tag:yaml.org,2002:merge"


class Map(dict[str, Any]):
    """A YAML mapping that knows the lines of its keys."""

    line: int
    lines: dict[str, int]
    #: The node of each key; a key from a merged mapping has that mapping's node.
    origin: dict[str, yaml.Node]

    @classmethod
    def empty(cls, line: int) -> Map:
        """Return a mapping without keys."""
        mapping = cls()
        mapping.line, mapping.lines = line, {}
        return mapping


class _Loader(yaml.SafeLoader):
    """Loader of mappings with lines; a duplicate key is an error.

    Aliases and merge keys bring in a bounded number of keys and values.
    """

    merged = 0

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._repeated = 0
        #: Size of each node that is read in full: its keys and values with aliases written out.
        self._sizes: dict[yaml.Node, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Return the next node or None. Raise ConfigError for an alias of too much or of itself.

        A few lines of aliases, each a list of the one before seven times, stand for billions of
        values. Sharing holds the values in little memory, but to write one out never ends.
        """
        alias: yaml.AliasEvent | None = self.peek_event() if self.check_event(yaml.AliasEvent) else None
        node = super().compose_node(parent, index)
        if node is not None and alias is None:
            self._sizes[node] = _size(node, self._sizes)
        elif node is not None and alias is not None:
            self._repeat(node, alias.start_mark.line + 1)
        return node

    def _repeat(self, node: yaml.Node, line: int) -> None:
        if node not in self._sizes:
            raise ConfigError(f"line {line}: an alias stands in what it stands for, without end.")
        self._repeated += self._sizes[node]
        if self._repeated > MOST_REPEATED:
            raise ConfigError(
                f"line {line}: merge keys (<<) and aliases (*) bring in more than "
                f"{MOST_REPEATED:,} keys and values. Write out what is needed."
            )

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Replace merge keys as YAML says. Raise ConfigError if they bring in too many keys.

        A few lines of merge keys, each with the one before ten times, stand for billions of keys.
        """
        for key, value in node.value:
            if key.tag != _MERGE:
                continue
            for other in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if isinstance(other, yaml.MappingNode):
                    self.flatten_mapping(other)
                    self.merged += len(other.value) + 1
                    if self.merged > MOST_MERGED:
                        line = key.start_mark.line + 1
                        raise ConfigError(
                            f"line {line}: merge keys (<<) bring in more than {MOST_MERGED:,} keys. "
                            "Write out what is needed."
                        )
        super().flatten_mapping(node)


def _size(node: yaml.Node, sizes: dict[yaml.Node, int]) -> int:
    """Return how many keys and values a node has, itself included; `sizes`: of its parts."""
    if isinstance(node, yaml.MappingNode):
        return 1 + sum(sizes[key] + sizes[value] for key, value in node.value)
    if isinstance(node, yaml.SequenceNode):
        return 1 + sum(sizes[item] for item in node.value)
    return 1 + len(node.value) // 100


def _construct_map(loader: _Loader, node: yaml.MappingNode) -> Iterator[Map]:
    result = Map()
    result.line, result.lines = node.start_mark.line + 1, {}
    result.origin = {}
    yield result
    local_keys = {id(key) for key, _ in node.value if key.tag != _MERGE}
    loader.flatten_mapping(node)
    for key_node, value_node in node.value:
        key, line = str(loader.construct_object(key_node)), key_node.start_mark.line + 1
        if key in result and {id(key_node), id(result.origin[key])} <= local_keys:
            first = result.lines[key]
            raise ConfigError(f"line {line}: the key {key} stands twice (first in line {first}).")
        result.origin[key] = key_node
        result[key] = loader.construct_object(value_node, deep=True)
        result.lines[key] = line


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_map)
# YAML 1.1 takes 1e-5 for text.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def load(text: str) -> list[Any]:
    """Return the documents of a text; mappings as `Map`. Raise ConfigError or one of UNREADABLE."""
    return list(yaml.load_all(text, _Loader))
