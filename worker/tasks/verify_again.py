"""The part of an audit that needs weights: results are made again, measured again, compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from agent_forge.events import Envelope, Event
from agent_forge.runs import kinds
from agent_forge.runs.errors import ForgeError, SourceChangedError, UnavailableError, UnreproducedError
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.history.repository import about, difference, fold, measurements, words
from agent_forge.runs.kinds.decide import Task
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.kinds.state import State
from agent_forge.studies.events import Unmeasurable
from agent_forge.studies.making.model_files import from_nothing
from agent_forge.weights.storage.weight_cache import Artifacts

Say = Callable[[str], None]


def again(
    rows: Sequence[Envelope], cache: Artifacts, which: str | None, tolerance: float | None, say: Say
) -> Iterator[Finding]:
    """Yield a finding for each result that, made or measured again, is not as recorded.

    `rows` are the run's history, without an error of the audit. `which` names the results that are
    made again from nothing: "all", "champion", an id; None: none are. With a tolerance, all that was
    measured is measured again; with `which`, of the models that it means. Raises NotFoundError.
    """
    state: State = fold(list(rows))
    kind = kinds.of(state.kind)
    if state.started is None:
        words_ = "the run has not started: there is nothing to make or to measure again"
        yield Finding("unchecked", "weights" if which else "fitness", words_)
        return
    ids = None if which is None else kind.verification.chosen(state, which)
    with from_nothing(cache) as empty:
        if ids is not None:
            yield from kind.verification.rebuild(state, empty, ids, say)
        if tolerance is not None:
            # Models that were made again from nothing are measured as they came out.
            used, model_ids = (cache, None) if ids is None else (empty, ids)
            whole = model_ids is None or which == "all"
            yield from _measured(kind, state, rows, used, None if whole else model_ids, tolerance, say)


def _measured(
    kind: Kind,
    state: State,
    rows: Sequence[Envelope],
    cache: Artifacts,
    ids: Collection[str] | None,
    tolerance: float,
    say: Say,
) -> Iterator[Finding]:
    """Yield a finding for each repeated measurement that differs; of the models `ids` if given."""
    recorded = list(measurements(rows))
    chosen = [entry for entry in recorded if ids is None or about(entry[0]) in ids]
    try:
        context, other = kind.verification.reopened(state, cache)
    except UnreproducedError as error:
        yield Finding("error", "fitness", str(error))
        return
    except ForgeError as error:
        yield Finding("unchecked", "fitness", f"nothing can be measured again: {error}")
        return
    why = f" The profile differs ({'; '.join(other)})." if other else ""
    done = 0
    for task, event in chosen:
        try:
            result = context.carry_out(task)
        except SourceChangedError as error:
            yield Finding("error", "fitness", f"{words(task)}: {error}{why}")
        except UnavailableError as error:
            yield Finding("unchecked", "fitness", f"{words(task)} cannot be measured: {error}")
            continue
        except ForgeError as error:
            yield Finding("error", "fitness", f"{words(task)}: {error}{why}")
        else:
            yield from _compared(kind, task, event, result, tolerance, why, say)
        done += 1
    if done < len(recorded):
        count = f"{done} of {len(recorded)} measurements were made again"
        yield Finding("unchecked", "fitness", count)


def _compared(
    kind: Kind, task: Task, recorded: Event, result: Event, tolerance: float, why: str, say: Say
) -> Iterator[Finding]:
    """Yield a finding if a result is off by more than `tolerance`; else `say` the difference."""
    where = words(task)
    if recorded.type != result.type:
        what = f"{where}: measured again it is {result.type}, and {recorded.type} is recorded"
        yield Finding("error", "fitness", f"{what}.{why}")
        return
    off = difference(
        kind.verification.comparable(recorded, recorded), kind.verification.comparable(result, recorded)
    )
    if off is None or off > tolerance:
        deviation = "has other items" if off is None else f"is off by {off:.2g} relative"
        what = f"{where}: measured again it {deviation} (tolerance {tolerance:g})"
        yield Finding("error", "fitness", f"{what}.{why}")
    elif isinstance(recorded, Unmeasurable):
        say(f"measured {where} again: it cannot be measured, as recorded")
    else:
        say(f"measured {where} again: largest relative difference {off:.2g}")
