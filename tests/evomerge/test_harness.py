"""Tasks of lm-evaluation-harness as items: its own numbers, by our evaluation; what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from evomerge import checkpoints
from evomerge.errors import DataError, UnavailableError
from evomerge.fitness import data, outcomes, packing
from evomerge.fitness.data import Item
from evomerge.fitness.evaluate import Judge, evaluate
from evomerge.fitness.resident import ResidentModel
from evomerge.harness import items, specs
from evomerge.harness.specs import Spec
from tests import harness_reference, tasks


@pytest.fixture
def resident(folder: Path) -> ResidentModel:
    model = ResidentModel(folder / "base", "cpu", tied=True)
    model.load(checkpoints.open_checkpoint(folder / "base").tensors())
    return model


@pytest.fixture
def tokenizer(folder: Path) -> Any:
    """As whoever loads the folder has it: for a Qwen2 model it splits as Qwen2's does."""
    return AutoTokenizer.from_pretrained(folder / "base")


def read(*given: str, allow: bool = False) -> list[Item]:
    """All documents, on the test slice."""
    rows = items.rows(given, allow)
    return data.from_rows([{**row, "slice": "test"} for row in rows])


def means(resident: ResidentModel, found: list[Item], tokenizer: Any) -> dict[str, float]:
    """Task → the share of its documents that are right."""
    packed = packing.pack(found, tokenizer, 64)["test"]
    draws = outcomes.whole({d: p.pool() for d, p in packed.items()})
    seen = evaluate(resident, packed, draws, Judge(tokenizer)).outcomes
    assert all(o.unscored == {} for o in seen.values())
    both = {d: [*o.right, *o.solved] for d, o in seen.items()}
    return {d: sum(values) / len(values) for d, values in both.items()}


def test_its_numbers_are_reproduced(
    folder: Path, resident: ResidentModel, tokenizer, tmp_path: Path
) -> None:
    """To 1e-4, on the same local tasks, by the harness with its own model in another process."""
    docs = tasks.sums(40)
    chosen = tasks.write(tmp_path, "sums", tasks.CHOICE, docs)
    docs = [{**doc, "q": doc["q"] or "Say something:"} for doc in docs]
    first = read(f"lm-eval:{tasks.write(tmp_path, 'says', tasks.REPLY, docs)}")
    said = resident.replies(packing.pack(first, tokenizer, 64)["test"]["says"].problems, tokenizer)
    right = {item.id: reply for item, reply in zip(first, said, strict=True)}
    for number, doc in enumerate(docs):
        if number % 4:  # three of four documents want what the model says
            doc["says"] = right[f"says/{number}"].lstrip().upper()
    items._read.cache_clear()
    says = tasks.write(tmp_path, "says", tasks.REPLY, docs)
    found = harness_reference.reference(folder / "base", chosen, says)
    reference = {name: said["metrics"] for name, said in found.items()}
    for metric in ("acc", "acc_norm", "acc_bytes"):
        ours = means(resident, read(f"lm-eval:{chosen}#{metric}"), tokenizer)
        assert ours["sums"] == pytest.approx(reference["sums"][f"{metric},none"], abs=1e-4)
    ours = means(resident, read(f"lm-eval:{says}"), tokenizer)
    assert ours["says"] == pytest.approx(reference["says"]["exact_match,first"], abs=1e-4)
    assert 0.5 < ours["says"] < 1
    assert len({reference["sums"][f"{m},none"] for m in ("acc", "acc_norm")}) == 2


def test_a_task_s_documents_are_items(tmp_path: Path) -> None:
    chosen = tasks.write(tmp_path, "sums", tasks.CHOICE, tasks.sums(8))
    (item, *rest) = read(f"lm-eval:{chosen}#acc_norm@3")
    assert len(rest) == 2
    assert isinstance(item, data.Question)
    assert (item.id, item.domain, item.answer) == ("sums/0", "sums", 1)
    assert item.prompt == "Question: 3 + 2\nAnswer: "
    assert item.choices == (" 8é", " 5", " 6é", " 95")
    assert item.sizes == (2, 1, 2, 2)  # characters, the blank between left out
    (item,) = read(f"lm-eval:{chosen}#acc_bytes@1")
    assert isinstance(item, data.Question)
    assert item.sizes == (3, 1, 3, 2)
    (item,) = read(f"lm-eval:{tasks.write(tmp_path, 'texts', tasks.TEXT, tasks.sums(2))}@1")
    assert isinstance(item, data.Text)
    assert item.text == "5"
    (item,) = read(f"lm-eval:{tasks.write(tmp_path, 'says', tasks.REPLY, tasks.sums(2))}@1")
    assert isinstance(item, data.Problem)
    assert (item.max_tokens, item.stop) == (6, ("\n",))


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ("lm-eval:", "is no task"),
        ("lm-eval:a#b#c", "is no task"),
        ("lm-eval:a@0", "is no task"),
        ("lm-eval:a@x", "is no task"),
        ("lm-eval:nowhere.yaml", "does not exist"),
        ("lm-eval:no_such_task_of_any_name", "has no task of that name"),
    ],
)
def test_what_is_no_task_is_said(given: str, what: str) -> None:
    with pytest.raises(DataError, match=what):
        read(given)


@pytest.mark.parametrize(
    ("template", "change", "what"),
    [
        (tasks.CHOICE, ("multiple_choice", "loglikelihood"), "of the kind loglikelihood"),
        (tasks.CHOICE, ("metric: acc\n", "metric: mcc\n"), None),
        (tasks.REPLY, ("do_sample: false", "do_sample: true"), "samples replies"),
        (tasks.REPLY, ("metric: exact_match", "metric: bleu"), "none of its metrics"),
        (tasks.CHOICE, ("{data}", "/nowhere/data.jsonl"), "could not read|Error"),
    ],
)
def test_tasks_that_cannot_be_items(tmp_path: Path, template: str, change, what) -> None:
    assert change[0] in template
    file = tasks.write(tmp_path, "sums", template.replace(*change), tasks.sums(4))
    if what is None:
        assert read(f"lm-eval:{file}")  # acc_norm is there beside it
        with pytest.raises(DataError, match="has no metric 'mcc'"):
            read(f"lm-eval:{file}#mcc")
        return
    with pytest.raises(DataError, match=what) as error:
        read(f"lm-eval:{file}")
    assert str(file) in str(error.value)


@pytest.mark.parametrize(
    "name",
    ["gsm8k", "mmlu_abstract_algebra", "arc_challenge", "allenai/ai2_arc", "openai/gsm8k",
     "Rowan/hellaswag", "leaderboard_bbh", "cais/mmlu", "TruthfulQA_mc1"],
)  # fmt: skip
def test_well_known_benchmarks_are_known(name: str) -> None:
    assert specs.benchmark([name]) == name


@pytest.mark.parametrize(
    "name", ["json", "my_task", "search", "arcade", "embraces", "droplets", ""]
)
def test_others_are_not(name: str) -> None:
    assert specs.benchmark([name]) is None


def test_a_benchmark_is_no_objective_unless_allowed(tmp_path: Path) -> None:
    """By the name of the file, of the task, or of the dataset behind it."""
    with pytest.raises(DataError, match=r"well-known benchmark 'gsm8k'.*set allow_benchmarks"):
        read("lm-eval:gsm8k")
    file = tasks.write(tmp_path, "hellaswag", tasks.CHOICE, tasks.sums(3))
    hidden = file.rename(tmp_path / "mine.yaml")
    with pytest.raises(DataError, match="benchmark 'hellaswag'"):
        read(f"lm-eval:{hidden}")
    assert len(read(f"lm-eval:{hidden}", allow=True)) == 3


def test_workers_read_task_files_of_allowed_folders_only(tmp_path: Path, monkeypatch) -> None:
    """A task file can run code: on a shared worker whoever runs it says which."""
    file = tasks.write(tmp_path / "ours", "sums", tasks.CHOICE, tasks.sums(3))
    spec = Spec(str(file))
    specs.check_file(spec)
    monkeypatch.setenv("FORGE_WORKER", "w")
    with pytest.raises(UnavailableError, match="FORGE_TASK_FOLDERS"):
        specs.check_file(spec)
    specs.check_file(Spec("a_name"))
    monkeypatch.setenv("FORGE_TASK_FOLDERS", os.pathsep.join(["/nowhere", str(tmp_path / "ours")]))
    specs.check_file(spec)
    with pytest.raises(UnavailableError, match="is not in a folder"):
        specs.check_file(Spec(str(tmp_path / "ours" / ".." / "theirs.yaml")))
    monkeypatch.delenv("FORGE_WORKER")
    with pytest.raises(UnavailableError, match="is not in a folder"):
        specs.check_file(Spec("/etc/task.yaml"))


def test_a_judge_that_lacks_its_task_is_no_zero(tmp_path: Path, tokenizer, resident) -> None:
    """Another machine may have it: the evaluation does not go on as if the reply were wrong."""
    found = read(f"lm-eval:{tasks.write(tmp_path, 'says', tasks.REPLY, tasks.sums(2))}")
    (tmp_path / "says.yaml").unlink()
    with pytest.raises(UnavailableError, match=r"says\.yaml cannot be read on this machine"):
        means(resident, found, tokenizer)


def test_the_harness_is_an_extra(monkeypatch) -> None:
    monkeypatch.setattr(items, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"pip install 'agent-forge\[lm-eval\]'"):
        read("lm-eval:my_task_that_nobody_read")


def test_paths_are_made_whole(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert specs.absolute("lm-eval:a/b.yaml#acc@5") == f"lm-eval:{tmp_path}/a/b.yaml#acc@5"
    assert specs.absolute("lm-eval:name@5") == "lm-eval:name@5"
    (tmp_path / "x#y").mkdir()
    monkeypatch.chdir(tmp_path / "x#y")
    with pytest.raises(DataError, match="cannot be named"):
        specs.absolute("lm-eval:b.yaml")
