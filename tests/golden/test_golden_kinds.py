"""Golden logs and fingerprints of every kind of run but EvoMerge, which `test_golden` has.

`KIND-N.jsonl` are rows, `KIND-N.json` what they fold to, `schemas-KIND.json` fingerprints of the kind's
events. `python -m tests.golden.test_golden_kinds` notes the fingerprints of new ones.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_forge.events import Envelope, Event, canonical_json
from agent_forge.pipeline import events
from agent_forge.runs import kinds
from agent_forge.runs.history import audit, children
from agent_forge.runs.history.repository import difference, measurements
from agent_forge.runs.kinds.asked import roles
from agent_forge.runs.kinds.decide import Delegate
from agent_forge.runs.kinds.state import fold_into
from agent_forge.runs.record.lineage import RULES
from tests.golden.test_golden import LOGS as LOGS_OF_MERGES
from tests.golden.test_golden import fingerprint, lineage_of, rows_of, unlanded
from tests.integration.kinds.test_forgeries import relinked

FOLDER = Path(__file__).parent
KINDS = sorted(set(kinds.KINDS) - {"evomerge"})
LOGS = [path for kind in KINDS for path in sorted(FOLDER.glob(f"{kind}-*.jsonl"))]
#: Of each kind the log of the newest schema.
NEWEST = list({path.stem.partition("-")[0]: path for path in LOGS}.values())


def told(rows: Sequence[Envelope]) -> dict[str, Any]:
    """Status, result, digest and head that the rows of a run fold to."""
    state: Any = fold_into(kinds.of(kind_of(rows)).state(), rows)
    result = kinds.of(state.kind).models.result(state)
    return {
        "status": state.status,
        "result": result and result.digest,
        "lineage_digest": lineage_of(state),
        "head": state.head,
    }


def record(name: str, carried: Callable[[Path], Sequence[Envelope]]) -> None:
    """Write the log of a name: the rows of a run that is carried out in a new folder; never twice."""
    if not (FOLDER / f"{name}.jsonl").exists():
        with tempfile.TemporaryDirectory() as folder:
            rows = carried(Path(folder))
        write(name, rows)


def write(name: str, rows: Sequence[Envelope]) -> None:
    """Write rows as the golden log of a name, and what they fold to."""
    path = FOLDER / f"{name}.jsonl"
    lines = [json.dumps(row._asdict(), sort_keys=True, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    path.with_suffix(".json").write_text(json.dumps(told(rows), indent=2) + "\n", "utf-8")


def kind_of(rows: Sequence[Envelope]) -> str:
    """The kind of a run, by its stream's name."""
    return rows[0].stream.partition("/")[0]


def schemas(kind: str) -> Path:
    """The file of a kind's fingerprints."""
    return FOLDER / f"schemas-{kind}.json"


def types(kind: str) -> dict[str, type[Event]]:
    """The events of a kind."""
    return dict(kinds.of(kind).state.registry.types())


@pytest.mark.parametrize("kind", KINDS)
def test_no_schema_changes_without_a_version_and_an_upcaster(kind: str) -> None:
    known = json.loads(schemas(kind).read_text("utf-8"))
    assert unlanded(kinds.of(kind).state.registry, known) == []


@pytest.mark.parametrize("kind", KINDS)
def test_golden_logs_have_every_event_that_the_kind_adds(kind: str) -> None:
    """And its `started` and `completed`. What users ask of any run is in EvoMerge's logs."""
    common = set(types("evomerge")) - {"submitted", "started", "completed"}
    seen = {row.type for path in LOGS for row in rows_of(path) if kind_of([row]) == kind}
    assert set(types(kind)) - common - seen == set()


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_golden_log_folds_to_what_it_folded_to_and_is_decided_as_it_was(path: Path) -> None:
    rows = rows_of(path)
    assert told(rows) == json.loads(path.with_suffix(".json").read_text("utf-8"))
    assert audit.audit(rows) == []


def given(rows: Sequence[Envelope]) -> list[str]:
    """The roles in which a run was given models."""
    state: Any = fold_into(kinds.of(kind_of(rows)).state(), rows)
    return [role for role in roles(type(state.submitted)) if getattr(state.submitted, role)]


@pytest.mark.parametrize(
    ("path", "role"),
    [(path, role) for path in NEWEST for role in given(rows_of(path))],
    ids=lambda value: value if isinstance(value, str) else value.stem,
)
def test_another_model_in_submitted_is_found(path: Path, role: str) -> None:
    """A pipeline submits its runs with digests; a forger who changes one asks for another model."""
    rows = rows_of(path)
    state: Any = fold_into(kinds.of(kind_of(rows)).state(), rows)
    pinned = kinds.of(state.kind).inputs(state)[role]

    def complaints(digests: Sequence[str]) -> list[str]:
        data = json.loads(rows[0].data)
        models = data[role] if isinstance(data[role], list) else [data[role]]
        for model, digest in zip(models, digests, strict=True):
            model["digest"] = digest
        forged = relinked([rows[0]._replace(data=canonical_json(data)), *rows[1:]])
        messages = [found.message for found in audit.audit(forged)]
        return [message for message in messages if "pins other models" in message]

    assert complaints(pinned) == []
    assert complaints(["0" * 64, *pinned[1:]]) == [
        f"started pins other models as {role} than submitted names"
    ]


#: Answers that make models, or are ends of runs; the others are measured, or follow from a model.
MADE = {"started", "made", "advanced", "encoded", "packed"}


@pytest.mark.parametrize("path", NEWEST, ids=lambda path: path.stem)
def test_everything_that_a_kind_measures_is_measured_again(path: Path) -> None:
    """By `forge verify --recompute`: a new answer to a task is left out by nobody's choice."""
    kind, rows = kinds.of(kind_of(rows_of(path))), rows_of(path)
    answers = {event.type for event, task in kind.answers.items() if task is not Delegate}
    again = {event.type for event in kind.verification.remeasured}
    assert answers - MADE <= again <= answers - {"started", "made", "advanced"}
    found = list(measurements(rows))
    assert len(found) == sum(row.type in again for row in rows)
    assert all(difference(one.model_dump(), one.model_dump()) == 0.0 for _, one in found)


def renamed(rows: Sequence[Envelope]) -> list[Envelope]:
    """The same run under other names: its own, those of given models, and all folders."""
    run = rows[0].stream.partition("/")[2]

    def other(value: Any, key: str = "") -> Any:
        if isinstance(value, list):
            return [other(one, key) for one in value]
        if isinstance(value, dict):
            model = value.keys() & {"parameters", "revision", "source"}  # a model, given or pinned
            return {
                name: f"other {one}" if name == "name" and model else other(one, name)
                for name, one in value.items()
            }
        if isinstance(value, str) and value.startswith("/"):
            return f"/elsewhere{value}"
        if isinstance(value, str) and (value == run or value.startswith(f"{run}.")):
            return f"another-{value}"
        return value

    return [
        row._replace(
            stream=row.stream.replace(f"/{run}", f"/another-{run}"),
            key=f"another-{row.key}",
            data=canonical_json(other(json.loads(row.data))),
        )
        for row in rows
    ]


@pytest.mark.parametrize(
    "path", [*NEWEST, sorted(FOLDER.glob("schema-*.jsonl"))[0]], ids=lambda path: path.stem
)
def test_names_are_no_part_of_the_lineage_digest(path: Path) -> None:
    """By the newest rule. By that of the oldest logs the names of given models are."""
    kind, rows = kinds.of(kind_of(rows_of(path))), rows_of(path)
    states: list[Any] = [fold_into(kind.state(), some) for some in (rows, renamed(rows))]
    assert states[0].run != states[1].run
    assert states[0].lineage_digest() == states[1].lineage_digest()
    oldest = {state.lineage_digest(RULES[-1]) for state in states}
    named = bool(given(rows)) or kind.name == "pipeline"  # whose settings have paths of data
    assert len(oldest) == (2 if named else 1)


def test_another_setting_of_a_pipeline_is_another_lineage() -> None:
    """Its models and data from outside are numbered, not forgotten."""
    config = {
        "phases": [
            {"name": "a", "models": {"model": ["/m/x"], "merges": ["/m/y"]}, "data": ["/d"]},
            {"name": "b", "models": {"model": ["a", "/m/y"]}, "data": ["a:items", "/e"]},
        ],
        "test": ["/e"],
    }
    told = events.settings(config)
    first, second = told["phases"]
    assert first["models"] == {"merges": ["model 1"], "model": ["model 2"]}
    assert second["models"] == {"model": ["a", "model 1"]}
    assert (first["data"], second["data"]) == (["data 1"], ["a:items", "data 2"])
    assert told["test"] == ["data 2"]


def segment(rows: Sequence[Envelope]) -> int | None:
    """The place of the first segment of several steps; None if there is none."""
    for place, row in enumerate(rows):
        if row.type == "advanced":
            data = json.loads(row.data)
            if data["step"] - data["begin"] > 1:
                return place
    return None


@pytest.mark.parametrize(
    "path", [path for path in NEWEST if segment(rows_of(path)) is not None], ids=lambda path: path.stem
)
def test_other_tokens_of_a_segment_are_found(path: Path) -> None:
    """Each step of a training reads as many."""
    rows, place = rows_of(path), segment(rows_of(path))
    assert place is not None
    data = json.loads(rows[place].data)
    data["tokens"] += 1
    rows[place] = rows[place]._replace(data=canonical_json(data))
    told = [found.message for found in audit.audit(relinked(rows))]
    assert "the segment's number of tokens is no multiple of its number of steps" in told


@pytest.mark.parametrize("path", [*NEWEST, LOGS_OF_MERGES[0]], ids=lambda path: path.stem)
def test_auto_leaves_the_digests_of_a_run_on_the_cpu_as_they_are(path: Path) -> None:
    """A run that was submitted with auto is the run that named the device it got."""
    rows = rows_of(path)
    kind = kinds.of(kind_of(rows))

    def submitted(device: str) -> Any:
        data = json.loads(rows[0].data)
        data["config"]["device"] = device
        changed = rows[0]._replace(data=canonical_json(data))
        return fold_into(kind.state(), [changed, *rows[1:]])

    profile = getattr(fold_into(kind.state(), rows).started, "profile", None)
    pinned = profile.device if profile else "cpu"
    auto, named = submitted("auto"), submitted(pinned)
    assert auto.device == (pinned if profile else "auto")
    assert auto.lineage_digest() == named.lineage_digest()
    assert children.identity(auto, "1") == children.identity(named, "1")
    if path in NEWEST:  # merges' golden logs are of an invented device
        recorded = json.loads(path.with_suffix(".json").read_text("utf-8"))
        assert recorded["lineage_digest"] in [auto.lineage_digest(rule) for rule in RULES]


def test_a_row_without_a_device_was_for_the_cpu() -> None:
    """As the default was before auto."""
    for path in [*NEWEST, LOGS_OF_MERGES[0]]:
        row = rows_of(path)[0]
        data = json.loads(row.data)
        del data["config"]["device"]
        event = kinds.of(kind_of([row])).state.registry.load(row._replace(data=json.dumps(data)))
        if row.schema < type(event).schema_version:  # the newest always names one
            assert event.config.device == "cpu", path.stem


if __name__ == "__main__":
    for name in KINDS:
        found = {f"{n}@{c.schema_version}": fingerprint(c) for n, c in types(name).items()}
        before = json.loads(schemas(name).read_text()) if schemas(name).exists() else {}
        if changed := [n for n in set(found) & set(before) if found[n] != before[n]]:
            raise SystemExit(f"{changed} have landed with other fields: raise their schema_version")
        whole = json.dumps(before | found, indent=2, sort_keys=True)
        schemas(name).write_text(whole + "\n", "utf-8")
