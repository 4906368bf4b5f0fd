"""Views of a compression: names, lines of events, panels, report. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from events import Envelope, Event
from phases.compression import figures, panels, recipes
from phases.compression.events import Completed, CompressionState, Encoded, Packed
from phases.compression.recipes import ROLE
from runs.event_types import Figure, Measurement
from runs.kinds import default_panels
from runs.kinds.view import OTHER_DATA
from runs.panels.head import Head, listed
from runs.panels.panels import Panel
from studies import paired_bits
from studies.observing import Observed, Unmeasurable
from studies.scripted import Scripted


class CompressionView(Scripted[CompressionState]):
    """The part of a compression that is shown."""

    def names(self, state: CompressionState) -> dict[str, str]:
        """Return recipe id → what it is called: matrices, given models, points."""
        run = self.begun(state)
        if run is None:
            return {}
        every = recipes.subjects(run.started)
        prefixes = {recipes.source(subject): recipes.prefix(subject) for subject in every}
        coded = recipes.encodings(run).items()
        names = {id_: f"{prefixes[of]}{m} at {s}" for (of, m, s), (id_, _) in coded}
        names |= {recipes.source(subject): recipes.name(subject) for subject in every}
        return names | {p.recipe_id: p.name for p in run.known.get(figures.POINTS, ())}

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        name = names.get(str(data.get("recipe_id")), str(data.get("recipe_id"))[:12])
        match type_:
            case "submitted":
                return data["model"][0]["name"]
            case "started":
                count = sum(len(of["matrices"]) for of in (data, *data.get("students", ())))
                return f"{count} matrices, {data['calibrated']:,} tokens of calibration"
            case "encoded":
                return f"{name}: {data['bytes']:,} bytes, error {data['error']:.4g}"
            case "refused" | "unmeasurable":
                return f"{name}: {data['reason']}"
            case "packed":
                return f"{name}: {data['bytes']:,} bytes"
            case "observed":
                values = data["values"].values()
                return f"{name}: {math.fsum(values) / len(values):.4f} bits per byte"
            case "completed":
                retention = data["figures"]["retention"]["value"]
                return f"{data['chosen']['point']}: {data['chosen']['bytes']:,} bytes, keeps {retention:.4f}"
        return None

    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        """Return a task's key in words; empty if there are none."""
        id_ = key.rpartition("/")[2]
        if key.startswith("observe/"):
            return f"measure {names.get(id_, id_[:12])}"
        if key.startswith("make/"):
            return f"make {names.get(id_, id_[:12])}"
        return "read model, items and inputs of layers" if key == "start" else ""

    def row(self, entry: dict[str, Any], event: Event) -> None:
        """Note tasks that are done, and what the result keeps, in the run's row of the run list."""
        if isinstance(event, Encoded | Packed | Observed | Unmeasurable):
            entry["done"] = (entry["done"] or 0) + 1
        if isinstance(event, Completed):
            entry |= listed(panels.KEPT, event.figures["retention"].value, f"{figures.TEST} slice")

    def models(self, event: Event, state: CompressionState) -> list[dict[str, Any]]:
        """Return the chosen model for the model registry, once it is measured."""
        if not isinstance(event, Completed):
            return []
        source = state.started.source
        return [
            {
                "name": f"{state.run}-{ROLE}",
                "kind": "champion",
                "digest": event.chosen.digest,
                "parameters": source.parameters,
                "bytes": int(event.figures["bytes"].value),
                "path": state.submitted.output_dir,
                "metrics": {"retention": event.figures["retention"].value},
                "lineage": [source.digest],
            }
        ]

    def measurements(self, state: CompressionState, digest: str) -> list[Measurement]:
        """Return the bits per byte and the file's bytes of the given model or of a point's."""
        if state.started is None:
            return []
        packed = [m for m in state.made.values() if isinstance(m, Packed) and m.digest == digest]
        ids = {event.recipe_id for event in packed}
        if state.started.source.digest == digest:
            ids.add(recipes.source(state.started))
        answers, seed = state.answers.values(), state.submitted.config.seed
        sizes = (Figure(value=event.bytes) for event in packed[:1])
        return [
            *paired_bits.measurements(answers, ids, self.purpose, seed),
            *(Measurement(name="bytes of the file", figure=size) for size in sizes),
        ]

    def made(self, state: CompressionState, digest: str) -> str | None:
        """Return the recipe id of the model with these weights; None if the run made none."""
        packed = (m for m in state.made.values() if isinstance(m, Packed))
        return next((event.recipe_id for event in packed if event.digest == digest), None)

    def yardstick(self, state: CompressionState) -> dict[str, Any]:
        """Return the items that results are measured on."""
        return {OTHER_DATA: state.started.data_digest if state.started else None}

    def progress(self, state: CompressionState) -> tuple[int, int | None]:
        """Return (tasks that are done, all that are known so far)."""
        run = self.begun(state)
        if run is None:
            return 0, None
        done = len(state.made) + len(state.refused) + len(state.answers)
        config, every = run.settings, recipes.subjects(run.started)
        total = len(recipes.encodings(run)) + (2 * len(run.started.settings) + 1) * len(every) + 2
        if config.mixtures and len(config.settings) > 1:
            total += sum(len(subject.matrices) + 2 * config.mixtures for subject in every)
        return done, done if state.completed else max(total, done + 1)

    def head(self, state: CompressionState) -> Head:
        """Return the head: what the chosen model keeps, once it is measured."""
        run = self.begun(state)
        if run is None:
            return default_panels.head(self, state)
        return default_panels.head(self, state, panels.result(run), panels.facts(run))

    def panels(
        self, state: CompressionState, curve: Sequence[float | None] = ()
    ) -> Sequence[Panel]:
        """Return the front, the table of points, and the settings of the matrices."""
        run = self.begun(state)
        tasks, further = default_panels.tasks(self, state), len(state.made) + len(state.refused)
        says = f"{tasks.says} {further:,} more encoded or packed, and are not listed."
        tasks = tasks.model_copy(update={"says": says if further else tasks.says})
        return [*(panels.panels(run) if run else ()), tasks]

    def report(self, state: CompressionState, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the report of a completed compression."""
        return {**super().report(state, rows), **panels.report(self.run(state))}

    def summary(self, state: CompressionState, rows: Sequence[Envelope]) -> list[str]:
        """Return the table of points, of a completed run."""
        return panels.table(self.run(state)) if state.completed else []

    def view(self, state: CompressionState) -> dict[str, Any]:
        """Return the points that are measured."""
        run = self.begun(state)
        return {"points": panels.rows(run) if run else []}
