"""The built-in corpus: domains of text in four slices, as items in the project's JSONL format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evomerge.corpus import arithmetic, choices, code, languages, prose, structured
from evomerge.corpus.documents import TRAINING_SHARES, Document, Slice

#: Domain names in their fixed order.
DOMAINS = ("code", "math", "data")
#: Every domain that text can be made of.
KNOWN = (*DOMAINS, "prose", "multilingual")

#: Characters of held-out text per domain and slice, so that domains weigh alike.
HELD_OUT: Mapping[Slice, int] = {
    "train": 40_000,
    "search": 80_000,
    "selection": 48_000,
    "test": 100_000,
}

#: Multiple-choice items per domain and slice.
QUESTIONS: Mapping[Slice, int] = {"search": 60, "selection": 60, "test": 100}


def corpus(
    seed: int, characters: int, domains: Sequence[str] = DOMAINS
) -> dict[str, dict[Slice, list[Document]]]:
    """About `characters` of text per domain, split by file: domain → slice → documents."""
    sources = {
        "code": code.documents(characters),
        "math": arithmetic.documents(characters, seed),
        "data": structured.documents(characters, seed),
        "prose": prose.documents(characters),
        "multilingual": languages.documents(characters, seed),
    }
    result: dict[str, dict[Slice, list[Document]]] = {}
    for domain in domains:
        split: dict[Slice, list[Document]] = {s: [] for s in TRAINING_SHARES}
        for document in sources[domain]:
            split[document.slice()].append(document)
        result[domain] = split
    return result


def items(
    texts: Mapping[str, Mapping[Slice, list[Document]]], seed: int
) -> Iterator[dict[str, Any]]:
    """Items of all domains and slices: text up to `HELD_OUT` characters, then the questions."""
    for domain, split in texts.items():
        for slice_, documents in split.items():
            left = HELD_OUT[slice_]
            for document in documents:
                if left <= 0:
                    break
                text = document.text[: max(left, 200)]
                left -= len(text)
                name = f"{domain}/{document.name}"
                yield {"id": name, "domain": domain, "slice": slice_, "text": text}
            if slice_ in QUESTIONS and documents:
                ask = choices.equations if domain == "math" else choices.continuation
                for item in ask(documents, QUESTIONS[slice_], seed):
                    yield {**item, "id": f"{domain}/{slice_}/{item['id']}", "slice": slice_}


def write(folder: Path, texts: Mapping[str, Mapping[Slice, list[Document]]], seed: int) -> None:
    """Write the items to `folder`, one JSONL file a domain."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[str]] = {domain: [] for domain in texts}
    for item in items(texts, seed):
        rows[item["domain"]].append(json.dumps(item, ensure_ascii=False))
    for domain, lines in rows.items():
        (folder / f"{domain}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
