"""Runs that are tasks of another run: submitted, watched, answered at their end, or reused.

A child is submitted once, even if several processes try: its name follows from the task. Its first
event names the parent's first own event as its cause, by which other runs of that name are told apart.

With `forge pipeline run --reuse` an ended run may stand in for an equal child. To learn what the child
would pin, its first task is done here, and not recorded; only if a completed run has equal settings.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from agent_forge.events import (
    Cause,
    ConcurrencyError,
    Envelope,
    Event,
    EventStore,
    New,
    canonical_json,
    failpoints,
)
from agent_forge.events.store import CODE_VERSION
from agent_forge.runs import kinds
from agent_forge.runs.errors import ForgeError, UnavailableError
from agent_forge.runs.history import children, repository
from agent_forge.runs.history.audit import audit
from agent_forge.runs.history.children import cause, is_child
from agent_forge.runs.history.repository import fold
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import Lookup, Plan, RunRequest
from agent_forge.runs.kinds.children import AnyChildren
from agent_forge.runs.kinds.decide import Delegate, Start, open_tasks
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists import finding, queries
from agent_forge.runs.record.events import Imported, Resumed, Retried, Submitted
from agent_forge.runs.system.plain_text import visible
from agent_forge.weights.storage.model_origin import Finder
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.append import project
from agent_forge.worker.commands import submit as commands_submit
from agent_forge.worker.commands import submit as validate

log = logging.getLogger(__name__)

#: RUN:items names the items that a run has pinned.
ITEMS = "items"


def exists(store: EventStore, task: Delegate) -> bool:
    """Return True if a run has the child's name; `is_child` tells if that run is the child."""
    return repository.stream_of(store, task.run) is not None


def submit(store: EventStore, cache: Artifacts, state: State, task: Delegate, context: Cause) -> None:
    """Submit a child with the parent's owner, priority and labels; or take over an equal ended run.

    A child that cannot be submitted answers its task. Raises UnavailableError: a later try may succeed.
    """
    try:
        plan = _planned(store, cache, task)
        if _reused(store, cache, state, task, plan, context):
            return
        commands_submit.submit(
            store,
            plan,
            task.run,
            priority=state.priority,
            labels=state.submitted.labels,
            quarantine=state.submitted.quarantine,
            by=state.submitted.owner,
            request_digest=digest_of(task.asked),
            cause=cause(store, state),
        )
        project(store)
    except UnavailableError:
        raise
    except ForgeError as error:
        _answer(store, state, task, _rules(state).refused(state, task, visible(str(error))), context)


def _planned(store: EventStore, cache: Artifacts, task: Delegate) -> Plan:
    """Return the plan of a child; if it is refused, try once more, as a refusal is recorded for good.

    A model's folder may be gone since it was found, as when a cache is emptied: then it is made again.
    Raises ForgeError.
    """
    try:
        return validate.plan(with_items(store, cache, task.asked), _lookup(cache))
    except UnavailableError:
        raise
    except ForgeError as error:
        log.info("run %s is refused, and is tried once more: %s", task.run, error)
        return validate.plan(with_items(store, cache, task.asked), _lookup(cache))


def _reused(
    store: EventStore, cache: Artifacts, state: State, task: Delegate, plan: Plan, context: Cause
) -> bool:
    """Return True if an ended run that is equal to the child was recorded in the child's place."""
    rules = _rules(state)
    if not rules.reuses(state):
        return False
    submission = commands_submit.event_of(plan, task.run, state.submitted.owner)
    for child, identity in equal(store, cache, submission, plan.kind):
        if rules.unlike(state, task, child) is None and not exists(store, task):
            names = queries.name(store, child.run), queries.name(store, state.run)
            log.info("run %s takes the place of a phase of %s", *names)
            failpoints.hit("child-found")
            answer = rules.returned(state, task, child).model_copy(update={"reused": identity})
            _answer(store, state, task, answer, context)
            return True
    return False


def settle(store: EventStore, state: State, task: Delegate, context: Cause) -> bool:
    """Record the answer to a task, or retry or resume its run; return True if that was done.

    `state` is up to date. Return False while the child has not ended and needs nothing.
    """
    rules = _rules(state)
    if not is_child(store, state, task.run):
        why = f"run {task.run} exists already, and is no part of this one"
        _answer(store, state, task, rules.refused(state, task, why), context)
        return True
    child = repository.load(store, task.run)
    if not child.ended:
        return _resumed(store, state, child)
    if child.failed and not child.cancelled and _retried(store, rules, state, task, child):
        return True
    _answer(store, state, task, rules.returned(state, task, child), context)
    return True


def _rules(state: State) -> AnyChildren:
    """Return the rules for the children of a run that has some."""
    rules = kinds.of(state.kind).children
    assert rules is not None
    return rules


def _retried(store: EventStore, rules: AnyChildren, state: State, task: Delegate, child: State) -> bool:
    """Retry a failed child once for each retry of its parent; return True if it was retried."""
    key = rules.retries(state, task)
    if key is None or any(row.key == key for row in store.iterate(child.stream)):
        return False
    _ask(store, state, child, New(Retried(reason=f"run {state.run} is tried again"), key))
    return True


def _resumed(store: EventStore, state: State, child: State) -> bool:
    """Resume a child that was imported as failed and retried; return True if it was resumed.

    The import made it wait, and a user who resumes the parent cannot resume a run that has failed.
    """
    last = store.iterate(child.stream, after=child.version - 2) if child.paused else ()
    if [row.type for row in last] != [Imported.type, Retried.type]:
        return False
    key = f"{child.run}/{Resumed.type}/{child.head}"
    _ask(store, state, child, New(Resumed(reason=f"run {state.run} was resumed"), key))
    return True


def _ask(store: EventStore, state: State, child: State, new: New) -> None:
    """Append an event to a child in the name of the parent's owner; nothing if the child went on."""
    with suppress(ConcurrencyError):  # the caller looks again
        store.append(child.stream, child.version, [new], Cause(actor=state.submitted.owner))
    project(store)


def _answer(store: EventStore, state: State, task: Delegate, event: Event, context: Cause) -> None:
    """Append a task's answer to its parent run's stream, or nothing if that has gone on since."""
    try:
        new = New(event, f"{state.run}/{task.key}")
        store.append(state.stream, state.version, [new], context)
        failpoints.hit("child-answered")
    except ConcurrencyError:
        log.debug("run %s went on meanwhile", state.run)


def digest_of(request: RunRequest) -> str:
    """Return the SHA-256 of a request as hexadecimal: equal requests mean the same child."""
    plain = [request.kind, dict(request.config), {k: list(v) for k, v in request.models.items()}]
    return hashlib.sha256(canonical_json([*plain, list(request.data)]).encode()).hexdigest()


def _lookup(cache: Artifacts) -> Lookup:
    home = cache.home or Home.default()
    return Lookup({}, Finder(home, lambda message: log.info("%s", message)), elsewhere=True)


def with_items(store: EventStore, cache: Artifacts, request: RunRequest) -> RunRequest:
    """Return the request with paths of item files in place of RUN:items."""
    return replace(request, data=_data(store, cache, request.data))


def _data(store: EventStore, cache: Artifacts, data: Sequence[str]) -> list[str]:
    entries = []
    for entry in data:
        run, colon, what = entry.partition(":")
        if colon and what == ITEMS and finding.whole_name(store, run) is not None:
            state = finding.load(store, run)
            entry = str(kinds.of(state.kind).storage.items_file(state, cache))
        entries.append(entry)
    return entries


def living(store: EventStore, state: State) -> list[str]:
    """Return the names of a run's children that have not ended."""
    tasks = [task for task in open_tasks(state) if isinstance(task, Delegate)]
    runs = [task.run for task in tasks if exists(store, task)]
    children = [run for run in runs if is_child(store, state, run)]
    return [run for run in children if not repository.load(store, run).ended]


def equal(
    store: EventStore, cache: Artifacts, submission: Submitted, kind: str
) -> Iterator[tuple[State, str]]:
    """Yield (state, identity) of completed runs equal to the one of `submission`, oldest first."""
    histories = children.alike(store, submission, kind)
    alike = [rows for rows in histories if rows[0].code_version == CODE_VERSION]
    own_state = _begun(cache, submission, kind) if alike else None
    if own_state is None:
        return
    identity = children.identity(own_state, CODE_VERSION)
    for rows in alike:
        state = fold(rows)
        if children.wrong(rows, state, identity) is None and _sound(rows):
            yield state, identity


def _begun(cache: Artifacts, submission: Submitted, kind: str) -> State | None:
    """Return the state after the first task of a run that is not recorded; None if the task fails."""
    state = kinds.of(kind).state()
    state.take(submission)
    try:
        state.take(kinds.of(kind).context(state, cache).carry_out(Start()))
    except Exception as error:
        log.debug("nothing is reused for run %s", submission.run, exc_info=error)
        return None  # the run itself meets the error again, and says whose fault it is
    return state


def _sound(rows: list[Envelope]) -> bool:
    """Return True if this version of the program would have decided the same history."""
    return all(finding.level == "note" for finding in audit(rows))
