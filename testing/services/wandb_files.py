"""Reader of the file of an offline W&B run: its format read by hand, its records by its own classes.

The file is LevelDB's log format (blocks of 32 KiB; records, or first, middle and last parts of one)
behind a header of seven bytes; each record is a `Record` message.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_HEADER, _BLOCK = 7, 32 * 1024
_FULL, _LAST = 1, 4


def _messages(data: bytes) -> Iterator[bytes]:
    at, whole = _HEADER, b""
    while at < len(data):
        left = _BLOCK - at % _BLOCK
        if left < _HEADER:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + _HEADER])
        whole += data[at + _HEADER : at + _HEADER + length]
        at += _HEADER + length
        if kind in (_FULL, _LAST):
            yield whole
            whole = b""


@dataclass
class Written:
    """An offline run."""

    run_id: str = ""
    project: str = ""
    entity: str = ""
    group: str = ""
    resumes: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    #: (step, row without W&B's own columns).
    history: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    #: Metric or glob → its step metric.
    metrics: dict[str, str] = field(default_factory=dict)
    #: Name, metadata, and path → content, of every artifact.
    artifacts: list[tuple[str, dict[str, Any], dict[str, bytes]]] = field(default_factory=list)
    exit_code: int | None = None


def _own(values: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in values.items() if not k.startswith("_")}


def _items(items: Any) -> dict[str, Any]:
    return {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items}


def read(folder: Path) -> Written:
    """Read the one file of a run's folder."""
    from wandb.proto import wandb_internal_pb2 as internal

    (path,) = folder.glob("*.wandb")
    data = path.read_bytes()
    assert data.startswith(b":W&B")
    told = Written()
    for message in _messages(data):
        record = internal.Record()
        record.ParseFromString(message)
        _take(told, record)
    return told


def _take(told: Written, record: Any) -> None:
    kind = record.WhichOneof("record_type")
    if kind == "run":
        run = record.run
        told.run_id, told.project, told.entity = run.run_id, run.project, run.entity
        told.group, told.resumes = run.run_group, run.resume
    elif kind == "config":
        told.config |= _own(_items(record.config.update))
    elif kind == "history":
        row = _items(record.history.item)
        told.history.append((record.history.step.num, _own(row)))
    elif kind == "summary":
        told.summary |= _own(_items(record.summary.update))
    elif kind == "metric":
        told.metrics[record.metric.name or record.metric.glob_name] = record.metric.step_metric
    elif kind == "exit":
        told.exit_code = record.exit.exit_code
    elif kind == "artifact":
        files = {c.path: Path(c.local_path).read_bytes() for c in record.artifact.manifest.contents}
        metadata = json.loads(record.artifact.metadata)
        told.artifacts.append((record.artifact.name, metadata, files))
