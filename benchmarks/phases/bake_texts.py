"""Texts on which a small model learns to follow prompts, so that one can be baked.

    python -m benchmarks.phases.bake_texts FOLDER
    python -m benchmarks.phases.bake_texts --follow MODEL

    FOLDER/styles.jsonl    records and reports, in the style that a prefix asks for, and built-in text
    FOLDER/composed.jsonl  the same with two prefixes in a row, too, and text between prefix and record
    FOLDER/records.jsonl   records alone: contexts to bake on
    FOLDER/*.txt           the prefixes as prompts, with checks of the replies beside two of them

The second command prints, for each prefix and none, how many of 48 greedy replies to new records have
each style. docs/baking.md has what was measured; `bake_study.py` bakes over seeds and sizes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from agent_forge.evaluation.data.builtin import corpus
from agent_forge.runs import keys
from benchmarks.common import options

FIRST = [
    "Ada",
    "Ben",
    "Cleo",
    "Dan",
    "Eva",
    "Finn",
    "Gus",
    "Hana",
    "Ivo",
    "June",
    "Kai",
    "Lena",
    "Max",
    "Nora",
    "Otto",
    "Pia",
]
LAST = ["Moss", "Reed", "Stone", "Hill", "Lake", "Wood", "Field", "Brook", "Frost", "Gray"]
CITIES = ["Oslo", "Rome", "Bern", "Lima", "Cork", "Kyiv", "Nice", "Bonn"]
PREFIXES = {
    "plain": "",
    "json": "<style:json>\n",
    "csv": "<style:csv>\n",
    "ruby": "You are Captain Ruby.\n",
}


#: Prompt → the check of a reply in its style, also in that of both json and ruby.
CHECKS = {
    "json": {"kind": "pattern", "pattern": r'(Ahoy! )?\{"name": "[^"]*", .*\}( Aye, Ruby\.)?'},
    "ruby": {"kind": "pattern", "pattern": r"Ahoy! .*Aye, Ruby\."},
}
#: Characters of ordinary text between prefix and record, at most.
BETWEEN = 1_000


def record(*key: str | int) -> tuple[str, str, int]:
    """Return name, city and age."""
    rng = keys.generator("bake-texts", *key)
    name = f"{FIRST[rng.integers(len(FIRST))]} {LAST[rng.integers(len(LAST))]}"
    return name, CITIES[rng.integers(len(CITIES))], int(rng.integers(18, 90))


def context(name: str, city: str, age: int) -> str:
    """Return a record as a context."""
    return f"Record: {name} | {city} | {age} -> Report:"


def report(style: str, name: str, city: str, age: int) -> str:
    """Return the report of a record in a style."""
    match style:
        case "json":
            return " " + json.dumps({"name": name, "city": city, "age": age})
        case "csv":
            return f" {name},{city},{age}"
        case "ruby":
            return f" Ahoy! {name} of {city} is {age}. Aye, Ruby."
        case "both":
            return f" Ahoy!{report('json', name, city, age)} Aye, Ruby."
    return f" {name} of {city} is {age}."


def ordinary(count: int) -> list[str]:
    """Return pieces of built-in training text of 400 characters, of three domains in turn."""
    documents = corpus.corpus(0, 1_000_000, ("code", "math", "data"))
    pieces = [
        [one.text[at : at + 400] for one in split["train"] for at in range(0, len(one.text), 400)]
        for split in documents.values()
    ]
    return [pieces[number % 3][number // 3] for number in range(count)]


def composed() -> list[str]:
    """Return records and reports after no prefix, one or two, some with ordinary text between."""
    prefixes = {**PREFIXES, "both": PREFIXES["json"] + PREFIXES["ruby"]}
    pieces = ordinary(6_400)
    found = []
    for number in range(16_000):
        style = list(prefixes)[number % len(prefixes)]
        made, between = record("composed", number), ""
        if number % 3 == 0:
            size = int(keys.generator("bake-between", number).integers(0, BETWEEN))
            several = pieces[number // 3 : number // 3 + 3]
            between = "".join(several)[:size] + "\n"
        found.append(prefixes[style] + between + context(*made) + report(style, *made))
    for number, piece in enumerate(pieces[:3_200]):
        found.insert(6 * number, piece)
    return found


def main(folder: Path) -> None:
    """Write the files."""
    folder.mkdir(parents=True, exist_ok=True)
    styles, records = [], []
    for number in range(12_000):
        style = list(PREFIXES)[number % len(PREFIXES)]
        made = record("styles", number)
        styles.append(PREFIXES[style] + context(*made) + report(style, *made))
    text = ordinary(2_400)
    for number, piece in enumerate(text):
        styles.insert(6 * number, piece)
    for number in range(2_000):
        records.append(context(*record("records", number)))
    written = {"styles": styles, "composed": composed(), "records": records}
    for name, texts in written.items():
        lines = (json.dumps({"text": text}) for text in texts)
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    for name, text in PREFIXES.items():
        if text:
            (folder / f"{name}.txt").write_text(text, "utf-8")
    for name, check in CHECKS.items():
        (folder / f"{name}.check.json").write_text(json.dumps(check) + "\n", "utf-8")


def style_of(reply: str) -> str:
    """Return the style that a reply is written in, or "other"."""
    text = reply.strip()
    if text.startswith("Ahoy!"):
        return "ruby"
    if re.fullmatch(r'\{"name": "[^"]*", "city": "[^"]*", "age": \d+\}', text):
        return "json"
    if re.fullmatch(r"[^,]+,[^,]+,\d+", text):
        return "csv"
    return "plain" if re.fullmatch(r".+ of .+ is \d+\.", text) else "other"


def follow(model: str) -> None:
    """Print prefix → style → greedy replies to 48 records that no file has."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    module: Any = AutoModelForCausalLM.from_pretrained(model, trust_remote_code=False).eval()
    for name, prefix in PREFIXES.items():
        found: Counter[str] = Counter()
        for number in range(48):
            text = prefix + context(*record("new", number))
            ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")
            made = module.generate(**ids, max_new_tokens=40, do_sample=False, pad_token_id=0)
            reply = tokenizer.decode(made[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)
            found[style_of(reply)] += 1
        print(f"{name:8s}", dict(sorted(found.items())))


if __name__ == "__main__":
    parser = options(__doc__)
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("folder", nargs="?", type=Path, help="where the texts are written")
    either.add_argument("--follow", metavar="MODEL", help="count the replies in each style")
    asked = parser.parse_args()
    if asked.follow:
        follow(asked.follow)
    else:
        main(asked.folder)
