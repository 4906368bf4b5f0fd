"""Submission of a run: its name, note and tags, checks of its inputs, its first event. No torch.

Terminal, API and Python all use this module, so that all refuse the same input with the same words.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agent_forge.events import Appended, Cause, EventStore, IdempotencyError, New
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, ConflictError
from agent_forge.runs.kinds.asked import CheckResult, Lookup, Plan, RunRequest, inputs, without_aliases
from agent_forge.runs.lists import projections, queries
from agent_forge.runs.lists.finding import full_name, whole_name
from agent_forge.runs.record import events
from agent_forge.runs.record.events import Described, Quarantine, Submitted
from agent_forge.runs.streams import check_name, stream
from agent_forge.runs.system import plain_text
from agent_forge.weights.devices import check_device
from agent_forge.weights.storage.output_folder import check_apart
from agent_forge.worker.append import actor

log = logging.getLogger(__name__)

#: Largest numbers of characters of a note and of a tag, and of tags of a run.
MOST_NOTE, MOST_TAG, MOST_TAGS = 2000, 60, 20


def new_name() -> str:
    """Return a new run's name: the day and six random hex digits, "20261121-3fa9c1"."""
    return f"{time.strftime('%Y%m%d')}-{uuid.uuid4().hex[:6]}"


def keyed_name(key: str, by: str | None = None) -> str:
    """Return the name of the run for a user's idempotency key, a hash of user and key.

    If a key begins with a day, as the dashboard's keys do, the run's name begins with that day.
    """
    day = re.match(r"20\d{6}(?=-)", key)
    digits = hashlib.sha256(f"{by or actor()}/{key}".encode()).hexdigest()[:12]
    return f"{day[0] if day else 'key'}-{digits}"


def submit(
    store: EventStore,
    plan: Plan,
    run: str | None = None,
    *,
    priority: int | None = None,
    labels: tuple[str, ...] = (),
    key: str | None = None,
    quarantine: Quarantine | None = None,
    by: str | None = None,
    reason: str | None = None,
    request_digest: str | None = None,
    cause: str | None = None,
    words: Described = Described(),
) -> str:
    """Record a new run; return the run's name.

    The user is `by`, or the user of this process. The same `key` from the same user means the same run:
    the second time nothing is recorded. Raises ConflictError if the second submission has other
    settings, or if a run of another kind has the name. `request_digest` is the request's digest,
    recorded as the event's correlation: equal requests mean equal settings, even if a model's name now
    means another folder. `cause` is the event that asked for the run, if another run did. `words` are
    recorded with a new run.
    """
    check_queued(priority, labels, key)
    run = run or (new_name() if key is None else keyed_name(key, by))
    check_name(run)
    check_words(store, run, words)
    kind = kinds.of(plan.kind)
    queued = {"priority": priority or 0, "labels": labels, "quarantine": quarantine or "fail"}
    event = event_of(plan, run, by or actor(), reason=reason, **queued)
    texts = ((reason, "the reason"), (plan.output_dir, "a path"), *kind.requests.texts(event))
    for text, what in texts:
        checked = plain_text.check_name if what.endswith("name") else plain_text.check
        checked(text or "", what)
    further = [] if words == Described() else [New(words, f"{run}/{words.type}/{event.type}")]
    done = _append(store, kind.name, event, further, Cause(by or actor(), request_digest, cause))
    same = done.fresh or (request_digest is not None and done.rows[0].correlation == request_digest)
    if not same and kind.state.registry.load(done.rows[0]) != event:
        raise ConflictError(
            f"key {key!r} started run {run} with other settings. Use another key, or the old settings."
        )
    return run


def event_of(plan: Plan, run: str, owner: str, **queued: object) -> Submitted:
    """Return the `submitted` event for a plan; `queued` has the fields that every kind has."""
    return kinds.of(plan.kind).submitted(
        run=run, owner=owner, config=plan.config, output_dir=plan.output_dir, **queued, **plan.fields
    )


def _append(
    store: EventStore, kind: str, event: Submitted, further: list[New], context: Cause
) -> Appended:
    """Append a run's first events; return the store's Appended. Raises ConflictError if it is taken."""
    first, name = New(event, f"{event.run}/{event.type}"), stream(kind, event.run)
    if further:
        with suppress(IdempotencyError):  # the run is there, and was submitted with other words
            return store.append(name, 0, [first, *further], context)
    try:
        return store.append(name, 0, [first], context)
    except IdempotencyError as error:
        raise ConflictError(
            f"run {event.run} exists already, and is of another kind. Choose another name or key."
        ) from error


def check_queued(
    priority: int | None = None, labels: tuple[str, ...] = (), key: str | None = None
) -> None:
    """Raise ConfigError for a priority, labels or a key that the queue cannot use."""
    if priority is not None and abs(priority) > events.MOST_PRIORITY:
        raise ConfigError(
            f"priority {priority} is out of range: give a number from -{events.MOST_PRIORITY:,} to "
            f"{events.MOST_PRIORITY:,}."
        )
    if key is not None and not key.strip():
        raise ConfigError("the idempotency key is empty: give one, or leave out --key.")
    for label in labels:
        plain_text.check_name(label, "a label")
    bad = [label for label in labels if not re.fullmatch(r"[\w./+-]+", label)]
    if bad:
        raise ConfigError(f"label {bad[0]!r} is empty, has spaces or a colon: give words like big-gpu.")


def plan(request: RunRequest, lookup: Lookup = Lookup()) -> Plan:
    """Return the plan of a run after checking its settings and device. Nothing is started.

    Raises ConfigError, UnavailableError, ConflictError for an output folder that holds an input.
    """
    config, aliases = without_aliases(request.config)
    request = replace(request, config=config)
    lookup = replace(lookup, aliases={**lookup.aliases, **aliases})
    kind = kinds.of(request.kind)
    run_plan = kind.plan(request, lookup)
    kind.check_settings(run_plan.config)
    if not lookup.elsewhere:
        kind.check_machine(run_plan.config)
    check_device(run_plan.config.device, lookup.elsewhere)
    if run_plan.output_dir is not None:
        check_apart(Path(run_plan.output_dir), inputs(run_plan))
    return run_plan


def check(plan: Plan) -> CheckResult:
    """Return the result of a check: warnings, parameters, item counts; raise as its run would."""
    return kinds.of(plan.kind).check(plan)


def check_words(store: EventStore, run: str, words: Described) -> None:
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
