"""Rules for users' words about runs and models: names, notes and tags."""

from __future__ import annotations

from collections.abc import Sequence

from agent_forge.events import EventStore
from agent_forge.runs.errors import ConfigError, ConflictError
from agent_forge.runs.lists import projections, queries
from agent_forge.runs.lists.finding import full_name, whole_name
from agent_forge.runs.record.events import Described
from agent_forge.runs.system import plain_text

#: Largest numbers of characters of a note and of a tag, and of tags of a run.
MOST_NOTE, MOST_TAG, MOST_TAGS = 2000, 60, 20


def check(store: EventStore, run: str, words: Described) -> None:
    """Raise ConfigError for a bad note or tag, ConflictError for another run's name."""
    check_note(words.note or "")
    check_tags(words.tags or ())
    if words.name:
        named = whole_name(store, projections.check(words.name))
        if named not in (None, run):
            raise ConflictError(f"run {named} is called {words.name} already: give another name.")


def check_note(note: str) -> None:
    """Raise ConfigError if a note has control characters or is too long."""
    plain_text.check(note, "the note")
    if len(note) > MOST_NOTE:
        raise ConfigError(f"a note has at most {MOST_NOTE:,} characters, not {len(note):,}.")


def check_tags(tags: Sequence[str]) -> None:
    """Raise ConfigError if a tag is empty, long or has blanks, or if there are too many."""
    for tag in tags:
        plain_text.check_name(tag, "a tag")
        if not tag or len(tag) > MOST_TAG or any(letter.isspace() for letter in tag):
            raise ConfigError(f"a tag has 1 to {MOST_TAG} characters and no blanks, not {tag[:80]!r}.")
    if len(tags) > MOST_TAGS:
        raise ConfigError(f"at most {MOST_TAGS} tags are possible, not {len(tags)}.")


def retagged(store: EventStore, run: str, add: Sequence[str], remove: Sequence[str]) -> tuple[str, ...]:
    """Return a run's tags, sorted, after adding and removing some. Raises NotFoundError."""
    row = queries.row(store, full_name(store, run))
    return tuple(sorted({*(row["tags"].split() if row else ()), *add} - set(remove)))
