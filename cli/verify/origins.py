"""Verification of the runs that a run's models came from, one after the other, to the first text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from events import EventStore
    from runs.history.audit import Finding

#: A function that verifies a run of the log; it returns the report with the state.
Check = Callable[[str], dict[str, Any]]
#: A function that makes and measures again what a report's run gave under an id ("": its result); it
#: returns what it finds.
Again = Callable[[dict[str, Any], str], "list[Finding]"]


def origins(run: str, check: Check, again: Again | None) -> tuple[list[str], list[Finding]]:
    """Verify every run that made a model of this one's; return their names, and what was found.

    `again` makes and measures again; None: nothing is.
    """
    from runs.home import Home

    store = Home.default().open_store()
    try:
        return _walk(store, run, check, again)
    finally:
        store.close()


def _walk(
    store: EventStore, run: str, check: Check, again: Again | None
) -> tuple[list[str], list[Any]]:
    from runs.history.audit import Finding

    names, findings, open_ = [], [], [(run, "")]
    reports: dict[str, dict[str, Any]] = {}
    while open_:
        name, model = open_.pop(0)
        if name != run and name not in reports:
            names.append(name)
            reports[name] = check(name)
            findings += [_of(name, finding) for finding in reports[name]["findings"]]
        if name != run and again is not None and reports[name]["state"] is not None:
            findings += [_of(name, finding) for finding in again(reports[name], model)]
        open_ += [
            child
            for child in _children(store, name)
            if child not in open_ and child[0] not in reports
        ]
        for digest, maker in _givers(store, name, model):
            if isinstance(maker, str):
                findings.append(Finding("error", "origins", maker))
            elif maker is None:
                words = f"no run of this log made {digest[:12]}, which run {name} was given"
                findings.append(Finding("note", "origins", words))
            elif maker not in open_:
                open_.append(maker)
    return names, list(dict.fromkeys(findings))


def _children(store: EventStore, run: str) -> list[tuple[str, str]]:
    """Return (run, "") of the runs that are tasks of a run and have completed."""
    from events import EventsError
    from runs import kinds
    from runs.errors import ForgeError
    from runs.history.repository import load

    try:
        state: Any = load(store, run, showing=True)
        return [(ended.child, "") for _, ended in kinds.of(state.kind).children(state)]
    except (ForgeError, EventsError):  # its own report says how it is damaged
        return []


def _of(run: str, finding: Finding) -> Finding:
    return replace(
        finding, check="origins", message=f"run {run}: {finding.check}: {finding.message}"
    )


def _givers(store: EventStore, run: str, model: str) -> list[tuple[str, Any]]:
    """Return (digest of a given model, (run, id) that made it | None | what is wrong)."""
    from events import EventsError
    from runs import kinds
    from runs.errors import ForgeError
    from runs.history.repository import load
    from runs.lists import family

    try:
        state: Any = load(store, run, showing=True)
        ancestors = kinds.of(state.kind).ancestry(state, model)
    except (ForgeError, EventsError) as error:
        return [("", f"run {run}: what its models were made from cannot be read: {error}")]
    givers: list[tuple[str, Any]] = []
    for ancestor in ancestors:
        if not ancestor.given:
            continue
        registry_run = family.said(store, ancestor.given)
        try:
            maker = family.maker(store, run, ancestor.given)
        except (ForgeError, EventsError):  # its log is damaged: verifying it says how
            maker = (str(registry_run), "")
        if maker is None and registry_run not in (None, run):
            words = f"the registry says that run {registry_run} made {ancestor.given[:12]}, and its log does not"
            givers.append((ancestor.given, words))
        else:
            givers.append((ancestor.given, maker))
    return givers
