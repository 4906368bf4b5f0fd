"""Forecasts of `forge mergeability` beside the outcomes of recorded evolutions.

    python -m benchmarks.evomerge.mergeability HOME… [--at OLD=NEW] [--tokens 32768] [--out FILE]

HOME is a folder with a forge.db. Of each completed merging run whose models and data are still where
the log says, the forecast is made from the text of the search slice, as the command makes it, and the
outcome is read from the log: "won" if the champion is better than the base and every source on the
test slice, by the run's own paired bootstrap. `--at` says that what was in the folder OLD is in NEW.
Runs of the same models and data share a forecast. Logs are copied before they are opened. Results are
lines of FILE, and runs in it are not measured again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agent_forge.evaluation.data import domains
from agent_forge.evaluation.loading import load_items, load_tokenizer
from agent_forge.evomerge.mergeability import lines, report
from agent_forge.evomerge.mergeability.relations import relations
from agent_forge.evomerge.reports import verdict
from agent_forge.runs.event_types import ModelReference
from agent_forge.runs.history.repository import load
from agent_forge.runs.home import Home
from agent_forge.runs.streams import run_of
from agent_forge.weights.folders.sources import open_family
from agent_forge.weights.threads import set_threads


def completed(home: Path) -> Iterator[Any]:
    """Yield the states of the completed merging runs of a home."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(home / "forge.db", folder)
        store = Home(Path(folder)).open_store()
        try:
            for row in store.streams("evomerge/"):
                state = load(store, run_of(row.stream))
                if state.completed:
                    yield state
        finally:
            store.close()


def moved(text: str, places: Sequence[str]) -> str:
    """Return a path as `--at` says where it is now."""
    for place in places:
        old, _, new = place.partition("=")
        if text.startswith(old):
            return new + text[len(old) :]
    return text


def outcome(state: Any) -> str:
    """Return "won" if the champion is better than the base and every source, else "lost"."""
    return "won" if verdict.verdict(state)["beats_sources_and_base"] else "lost"


def told(state: Any, places: Sequence[str], most: int) -> dict[str, Any] | None:
    """Return the forecast for a run's models and data, from `most` tokens; None if they are gone."""
    submitted = state.submitted
    models = [submitted.base, *submitted.sources] if submitted.base else [*submitted.sources]
    paths = [moved(model.path, places) for model in models]
    data = tuple(moved(path, places) for path in submitted.data) or (domains.NAME,)
    files = [path for path in data if "/" in path]
    if not submitted.base or not all(Path(path).exists() for path in (*paths, *files)):
        return None
    names = [model.name for model in models]
    references = [ModelReference(name=n, path=p) for n, p in zip(names, paths, strict=True)]
    opened = open_family(references[1:], references[0], strict=False)
    items = load_items(data, allow_benchmarks=True, needed=("search",))
    context = min(submitted.config.context, opened.base.positions or submitted.config.context)
    tokenizer = load_tokenizer(str(opened.base.folder))
    text = lines.windows(items, tokenizer, context, "search", most)
    family = lines.family(opened)
    print(paths[0], flush=True)
    found = relations(family.base, family.sources, print)
    points = lines.measured(family, lines.resident(opened, "cpu"), text, print)
    tokens = {domain: sum(map(len, rows)) for domain, rows in text.items()}
    return report.as_data(names[1:], names[0], found, points, tokens)


def gathered(
    homes: Sequence[Path], places: Sequence[str], out: Path, most: int
) -> list[dict[str, Any]]:
    """Return a row for each run, measured now or before."""
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    known = {(row["home"], row["run"]) for row in rows}
    forecasts: dict[str, dict[str, Any] | None] = {}
    for home in homes:
        for state in completed(home):
            if (str(home), state.run) in known:
                continue
            submitted = state.submitted
            key = json.dumps(
                [[m.path for m in submitted.sources], submitted.data, submitted.config.context]
            )
            if key not in forecasts:
                same = next((row for row in rows if row["key"] == key), None)
                forecasts[key] = same["measured"] if same else told(state, places, most)
            measured = forecasts[key]
            if measured is None:
                print(f"{home} {state.run}: its models or data are gone", flush=True)
                continue
            rows.append(
                {
                    "home": str(home),
                    "run": state.run,
                    "key": key,
                    "skills": submitted.config.skills,
                    "outcome": outcome(state),
                    "measured": measured,
                }
            )
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(home, state.run, measured["forecast"]["answer"], rows[-1]["outcome"], flush=True)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as Markdown, and how often forecast and outcome agree."""
    text = ["| models | norm | cosine | best merge − best end (95 % interval) | forecast | outcomes |"]
    text.append("|---|---|---|---|---|---|")
    for number, key in enumerate(dict.fromkeys(row["key"] for row in rows), start=1):
        own = [row for row in rows if row["key"] == key]
        measured = own[0]["measured"]
        weights, lead = measured["weights"], measured["forecast"]
        ends = ", ".join(f"{row['outcome']} ({row['skills'] or 'sum'})" for row in own)
        norm = np.mean(weights["norms"])
        cosine = np.mean([pair["cosine"] for pair in weights["pairs"]])
        text.append(
            f"| {number} | {norm:.3f} | {cosine:.2f} | {lead['difference']:+.4f} "
            f"({lead['low']:+.4f} to {lead['high']:+.4f}) | {lead['answer']} | {ends} |"
        )
    return "\n".join([*text, "", *counted(rows)])


def counted(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the numbers of runs by forecast and outcome, and how often the forecast was right."""
    pairs = [(row["measured"]["forecast"]["answer"], row["outcome"]) for row in rows]
    lines = []
    for answer in ("yes", "open", "no"):
        won, lost = pairs.count((answer, "won")), pairs.count((answer, "lost"))
        lines.append(f"forecast {answer}: {won} won, {lost} did not")
    right = pairs.count(("yes", "won")) + pairs.count(("no", "lost"))
    firm = sum(answer != "open" for answer, _ in pairs)
    return [*lines, f"right in {right} of {firm} runs with a forecast of yes or no, of {len(pairs)}"]


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("homes", nargs="+", type=Path)
    parser.add_argument("--at", action="append", default=[], metavar="OLD=NEW")
    parser.add_argument("--out", type=Path, default=Path("mergeability.jsonl"))
    parser.add_argument("--tokens", type=int, default=lines.TOKENS)
    given = parser.parse_args()
    set_threads()
    print(table(gathered(given.homes, given.at, given.out, given.tokens)))


if __name__ == "__main__":
    main()
