"""A champion's folder with the report beside its files."""

from __future__ import annotations

import json
from pathlib import Path

from agent_forge.evomerge.reports import report
from agent_forge.evomerge.reports.pictures import plot
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.tasks.results import champion
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.panels import report_html
from agent_forge.weights.storage.weight_cache import Artifacts


def write(home: Home, state: RunState, out: Path) -> dict[str, object]:
    """Write the champion's folder with the report; return the report (dict), with `folder` added."""
    store = home.open_store()
    rows = list(repository.history(store, state.run))
    store.close()
    data = report.report(state, rows)
    folder = champion.export(state, Artifacts.of(home), out.absolute(), rows[-1].hash)
    for name, content in documents(data).items():
        (folder / name).write_bytes(content)
    picture = plot.draw(data, "svg")
    (folder / "report.svg").write_bytes(picture)
    (folder / "report.png").write_bytes(plot.draw(data, "png"))
    (folder / report_html.NAME).write_bytes(html(data, picture))
    return {**data, "folder": str(folder)}


def documents(data: dict[str, object]) -> dict[str, bytes]:
    """Return {name: content} of the report's files, JSON and Markdown."""
    text = json.dumps(data, indent=2) + "\n"
    return {"report.json": text.encode(), "report.md": report.markdown(data).encode()}


def html(data: dict[str, object], svg: bytes | None) -> bytes:
    """Return the bytes of the report's HTML file, with its picture (an SVG file) inside."""
    return report_html.page(report.markdown(data), f"Run {data['run']}", svg)
