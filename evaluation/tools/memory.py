"""Memory stores in files: facts by key, what happened in order, and a small working memory.

    FOLDER/semantic.json   key → text; a key is written over
    FOLDER/episodic.json   texts in the order in which they came; the oldest is dropped if it is full
    FOLDER/working.json    a few keys; the one that was used least recently is dropped if it is full

A file is replaced as a whole, so that a killed process leaves the old or the new one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.tools.base import ToolError
from evaluation.tools.search import Index

#: Entries of each store, and characters of a key and of a text.
FACTS, EPISODES, SLOTS = 256, 256, 8
KEY, TEXT = 64, 1_024
#: Stores by name.
STORES = ("semantic", "episodic", "working")


@dataclass(frozen=True)
class Store:
    """One store in a file: [key, text] of every entry, the oldest first."""

    file: Path
    most: int
    #: True: a full store drops its oldest entry; false: it refuses a new one.
    drops: bool

    def entries(self) -> list[tuple[str, str]]:
        """Return the entries. Raises ToolError for a file that holds none."""
        if not self.file.exists():
            return []
        try:
            pairs: Any = json.loads(self.file.read_text("utf-8"))
            return [(str(key), str(text)) for key, text in pairs]
        except (ValueError, TypeError) as error:
            raise ToolError(f"the file {self.file.name} holds no memory") from error

    def write(self, entries: Sequence[tuple[str, str]]) -> None:
        """Replace the entries, without the oldest if there are too many. Raises ToolError."""
        if len(entries) > self.most and not self.drops:
            raise ToolError(f"the memory is full: it holds {self.most} entries")
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(entries[-self.most :], ensure_ascii=False), "utf-8")
        os.replace(part, self.file)


class Memory:
    """The three stores of a folder."""

    def __init__(self, folder: Path) -> None:
        """Keep the stores in an existing folder."""
        sizes = {"semantic": FACTS, "episodic": EPISODES, "working": SLOTS}
        self._stores = {
            name: Store(folder / f"{name}.json", most, name != "semantic")
            for name, most in sizes.items()
        }

    def put(self, store: str, key: str, text: str) -> None:
        """Keep a text under a key; an episode is kept beside earlier ones with its key.

        Raises ToolError for an unknown store, an empty or too long key or text, and a full store.
        """
        key, text = key.strip(), text.strip()
        if not key or not text or len(key) > KEY or len(text) > TEXT:
            raise ToolError(f"a key has 1 to {KEY} characters, a text 1 to {TEXT}")
        entries = self._store(store).entries()
        rest = entries if store == "episodic" else [entry for entry in entries if entry[0] != key]
        self._store(store).write([*rest, (key, text)])

    def get(self, store: str, key: str) -> str:
        """Return the text of a key; of episodes, the newest. Raises ToolError if there is none."""
        key, entries = key.strip(), self._store(store).entries()
        texts = [text for name, text in entries if name == key]
        if not texts:
            raise ToolError(f"nothing is kept under {key[:40]!r}")
        if store == "working":  # it was used now
            self._store(store).write(
                [entry for entry in entries if entry[0] != key] + [(key, texts[-1])]
            )
        return texts[-1]

    def search(self, store: str, query: str, count: int = 1) -> list[str]:
        """Return up to `count` texts that fit a query, the best first."""
        entries = self._store(store).entries()
        return Index([f"{key} {text}" for key, text in entries]).best(query, count)

    def _store(self, name: str) -> Store:
        if name not in self._stores:
            raise ToolError(f"there is no memory {name[:40]!r}: there are {', '.join(STORES)}")
        return self._stores[name]


class Remember:
    """`put: KEY = TEXT` keeps a text."""

    def __init__(self, memory: Memory, store: str = "semantic") -> None:
        """Keep texts in one of the stores."""
        self._memory, self._store = memory, store
        self.usage = f"KEY = TEXT: keep a text in the {store} memory"

    def run(self, arguments: str) -> str:
        """Keep a text. Raises ToolError."""
        key, sign, text = arguments.partition("=")
        if not sign:
            raise ToolError("write KEY = TEXT")
        self._memory.put(self._store, key, text)
        return "kept"


class Recall:
    """`get: KEY` → the text that is kept under a key."""

    def __init__(self, memory: Memory, store: str = "semantic") -> None:
        """Read texts from one of the stores."""
        self._memory, self._store = memory, store
        self.usage = f"KEY: the text that the {store} memory has under a key"

    def run(self, arguments: str) -> str:
        """Return the text of a key, or the best match of its words. Raises ToolError."""
        try:
            return self._memory.get(self._store, arguments)
        except ToolError:
            texts = self._memory.search(self._store, arguments)
            if not texts:
                raise
            return texts[0]
