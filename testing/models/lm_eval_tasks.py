"""Small local tasks of lm-evaluation-harness."""

from __future__ import annotations

import json
from pathlib import Path

_HEAD = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
"""
CHOICE = (
    _HEAD
    + """\
output_type: multiple_choice
doc_to_text: "{{{{q}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: right
metric_list:
  - metric: acc
  - metric: acc_norm
  - metric: acc_bytes
"""
)
REPLY = (
    _HEAD
    + """\
output_type: generate_until
doc_to_text: "{{{{q}}}}"
doc_to_target: "{{{{says}}}}"
generation_kwargs:
  until: ["\\n"]
  do_sample: false
  max_gen_toks: 6
filter_list:
  - name: first
    filter:
      - function: remove_whitespace
      - function: take_first
metric_list:
  - metric: exact_match
    ignore_case: true
"""
)
TEXT = (
    _HEAD
    + """\
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{says}}}}"
metric_list:
  - metric: byte_perplexity
"""
)


def write(folder: Path, name: str, template: str, docs: list[dict]) -> Path:
    """Write a task with its documents; return its YAML file."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(doc) + "\n" for doc in docs), "utf-8")
    file = folder / f"{name}.yaml"
    file.write_text(template.format(name=name, data=data), "utf-8")
    return file


def sums(count: int) -> list[dict]:
    """Return sums with four choices; every third prompt ends with a blank, one is empty."""
    docs = []
    for n in range(count):
        a, b = 3 + n % 17, 2 + n % 11
        end = " " if n % 3 == 0 else ""
        docs.append(
            {
                "q": "" if n == 5 else f"Question: {a} + {b}\nAnswer:{end}",
                "choices": [str(a + b + d) + "é" * (d % 2) for d in (3, 0, 1, 90)],
                "right": 1,
                "says": str(a + b),
            }
        )
    return docs
