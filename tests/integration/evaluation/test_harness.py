"""Tasks of lm-evaluation-harness as items: its own numbers, by our evaluation; what is refused."""

from __future__ import annotations

import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data import items as data_items
from agent_forge.evaluation.data import outcomes, packing
from agent_forge.evaluation.data.items import Item
from agent_forge.evaluation.evaluate import Judge, evaluate, measurable
from agent_forge.evaluation.lm_eval import judge, reader, spec
from agent_forge.evaluation.lm_eval import spec as lm_eval_spec
from agent_forge.evaluation.lm_eval.spec import Spec
from agent_forge.evaluation.verifiers.scorer import Scored
from agent_forge.runs.errors import DataError, UnavailableError
from agent_forge.runs.system import packages
from testing.models import lm_eval_reference, lm_eval_tasks


@pytest.fixture
def tokenizer(folder: Path) -> Any:
    """As whoever loads the folder has it: for a Qwen2 model it splits as Qwen2's does."""
    return AutoTokenizer.from_pretrained(folder / "base")


def read(*given: str, allow: bool = False) -> list[Item]:
    """All documents, on the test slice."""
    rows = spec.rows(given, allow)
    return data_items.from_rows([{**row, "slice": "test"} for row in rows])


def directly(given: str) -> dict[str, Any]:
    """What the reader writes, in this process: quicker where nothing but its words are looked at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the harness's own
        return json.loads(reader.written(lm_eval_spec.parse(given)))


def read_here(given: str) -> list[Item]:
    """All documents of one task, on the test slice, read in this process."""
    return data_items.from_rows([{**row, "slice": "test"} for row in directly(given)["rows"]])


def means(resident: ResidentModel, found: list[Item], tokenizer: Any) -> dict[str, float]:
    """Task → the share of its documents that are right."""
    packed = packing.pack(found, tokenizer, 64)["test"]
    draws = outcomes.whole({d: p.pool() for d, p in packed.items()})
    seen = evaluate(resident, packed, draws, Judge(tokenizer)).outcomes
    assert all(o.unscored == {} for o in seen.values())
    both = {d: [*o.right, *o.solved] for d, o in seen.items()}
    return {d: sum(values) / len(values) for d, values in both.items()}


@pytest.mark.slow
def test_its_numbers_are_reproduced(
    folder: Path, resident: ResidentModel, tokenizer, tmp_path: Path
) -> None:
    """To 1e-4, on the same local tasks, by the harness with its own model in another process."""
    docs = lm_eval_tasks.sums(40)
    chosen = lm_eval_tasks.write(tmp_path, "sums", lm_eval_tasks.CHOICE, docs)
    docs = [{**doc, "q": doc["q"] or "Say something:"} for doc in docs]
    first = read(f"lm-eval:{lm_eval_tasks.write(tmp_path, 'says', lm_eval_tasks.REPLY, docs)}")
    said = resident.replies(packing.pack(first, tokenizer, 64)["test"]["says"].problems, tokenizer)
    right = {item.id: reply for item, reply in zip(first, said, strict=True)}
    for number, doc in enumerate(docs):
        if number % 4:  # three of four documents want what the model says
            doc["says"] = right[f"says/{number}"].lstrip().upper()
    says = lm_eval_tasks.write(tmp_path, "says", lm_eval_tasks.REPLY, docs)
    found = lm_eval_reference.reference(folder / "base", chosen, says)
    reference = {name: said["metrics"] for name, said in found.items()}
    for metric in ("acc", "acc_norm", "acc_bytes"):
        ours = means(resident, read_here(f"lm-eval:{chosen}#{metric}"), tokenizer)
        assert ours["sums"] == pytest.approx(reference["sums"][f"{metric},none"], abs=1e-4)
    ours = means(resident, read(f"lm-eval:{says}"), tokenizer)
    assert ours["says"] == pytest.approx(reference["says"]["exact_match,first"], abs=1e-4)
    assert 0.5 < ours["says"] < 1
    assert len({reference["sums"][f"{m},none"] for m in ("acc", "acc_norm")}) == 2


@pytest.mark.slow
def test_a_task_s_documents_are_items(tmp_path: Path) -> None:
    chosen = lm_eval_tasks.write(tmp_path, "sums", lm_eval_tasks.CHOICE, lm_eval_tasks.sums(8))
    (item, *rest) = read(f"lm-eval:{chosen}#acc_norm@3")
    assert len(rest) == 2
    assert isinstance(item, data_items.Question)
    assert (item.id, item.domain, item.answer) == ("sums/0", "sums", 1)
    assert item.prompt == "Question: 3 + 2\nAnswer: "
    assert item.choices == (" 8é", " 5", " 6é", " 95")
    assert item.sizes == (2, 1, 2, 2)  # characters, the blank between left out
    (item,) = read_here(f"lm-eval:{chosen}#acc_bytes@1")
    assert isinstance(item, data_items.Question)
    assert item.sizes == (3, 1, 3, 2)
    (item,) = read_here(
        f"lm-eval:{lm_eval_tasks.write(tmp_path, 'texts', lm_eval_tasks.TEXT, lm_eval_tasks.sums(2))}@1"
    )
    assert isinstance(item, data_items.Text)
    assert item.text == "5"
    (item,) = read_here(
        f"lm-eval:{lm_eval_tasks.write(tmp_path, 'says', lm_eval_tasks.REPLY, lm_eval_tasks.sums(2))}@1"
    )
    assert isinstance(item, data_items.Problem)
    assert (item.max_tokens, item.stop) == (6, ("\n",))


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ("lm-eval:", "is no task"),
        ("lm-eval:a#b#c", "is no task"),
        ("lm-eval:a@0", "is no task"),
        ("lm-eval:a@x", "is no task"),
        ("lm-eval:nowhere.yaml", "does not exist"),
    ],
)
def test_what_is_no_task_is_said(given: str, what: str) -> None:
    with pytest.raises(DataError, match=what):
        read(given)


@pytest.mark.slow
@pytest.mark.soak
def test_few_shot_prompts_are_the_harness_s_own(
    folder: Path, resident: ResidentModel, tokenizer, tmp_path: Path
) -> None:
    """Drawn by its seed, the same in every process; figures as the harness gives them."""
    template = lm_eval_tasks.CHOICE.replace("metric_list:", "num_fewshot: 1\nmetric_list:")
    task = lm_eval_tasks.write(tmp_path, "sums", template, lm_eval_tasks.sums(24))
    first, second = (read(f"lm-eval:{task}#acc_norm") for _ in range(2))
    assert first == second
    assert all(isinstance(i, data_items.Question) and i.prompt.count("Question:") >= 1 for i in first)
    said = lm_eval_reference.reference(folder / "base", task)["sums"]["metrics"]
    assert means(resident, first, tokenizer)["sums"] == pytest.approx(said["acc_norm,none"], abs=1e-4)


@pytest.mark.slow
@pytest.mark.soak
def test_a_task_by_name(tmp_path: Path, monkeypatch) -> None:
    """Among those that come with the harness, and in the folders that the machine names."""
    lm_eval_tasks.write(tmp_path / "ours", "sums_by_name", lm_eval_tasks.CHOICE, lm_eval_tasks.sums(2))
    monkeypatch.setenv("FORGE_TASK_FOLDERS", str(tmp_path / "ours"))
    assert [item.id for item in read("lm-eval:sums_by_name")] == ["sums_by_name/0", "sums_by_name/1"]


@pytest.mark.soak
@pytest.mark.slow
def test_what_is_read_again_is_what_is_there(tmp_path: Path) -> None:
    """Nothing is kept from a file that was changed since."""
    task = lm_eval_tasks.write(tmp_path, "sums", lm_eval_tasks.CHOICE, lm_eval_tasks.sums(4))
    assert len(read(f"lm-eval:{task}")) == 4
    lm_eval_tasks.write(tmp_path, "sums", lm_eval_tasks.CHOICE, lm_eval_tasks.sums(3))
    assert len(read(f"lm-eval:{task}")) == 3


FUNCTIONS = {
    "percent": "def process_results(doc, results):\n    return {'percent': 37.5}\n",
    "nothing": "def process_results(doc, results):\n    return {}\n",
}


@pytest.mark.parametrize(
    ("metric", "what"), [("percent", "gave 37.5, and"), ("nothing", "none of a single reply")]
)
def test_figures_that_are_no_share_are_refused(tmp_path: Path, metric: str, what: str) -> None:
    template = lm_eval_tasks.REPLY.replace(
        "metric: exact_match\n    ignore_case: true", f"metric: {metric}"
    )
    template += f"    aggregation: mean\n    higher_is_better: true\n{PROCESS}"
    (tmp_path / "utils.py").write_text(FUNCTIONS[metric], "utf-8")
    file = lm_eval_tasks.write(tmp_path, "own", template, lm_eval_tasks.sums(2))
    assert what in directly(f"lm-eval:{file}")["error"]


PROCESS = "process_results: !function utils.process_results\n"


@pytest.mark.slow
def test_code_that_judges_is_pinned(tmp_path: Path, tokenizer, resident) -> None:
    """Its own function judges; changed since the documents were read, it does not."""
    template = lm_eval_tasks.REPLY.replace("metric: exact_match\n    ignore_case: true", "metric: mine")
    template += f"    aggregation: mean\n    higher_is_better: true\n{PROCESS}"
    code = "def process_results(doc, results):\n    return {{'mine': {}}}\n"
    (tmp_path / "utils.py").write_text(code.format(0.25), "utf-8")
    found = read(f"lm-eval:{lm_eval_tasks.write(tmp_path, 'own', template, lm_eval_tasks.sums(2))}")
    assert means(resident, found, tokenizer) == {"own": 0.25}
    (tmp_path / "utils.py").write_text(code.format(0.75), "utf-8")
    with pytest.raises(UnavailableError, match="judges otherwise than when its documents were read"):
        means(resident, found, tokenizer)


@pytest.mark.slow
@pytest.mark.soak
def test_items_longer_than_the_context_are_left_out_and_counted(tmp_path: Path, tokenizer) -> None:
    """Never cut: a cut task is another task."""
    docs = lm_eval_tasks.sums(4)
    docs[1]["q"] = "Question: " + "1 + " * 80 + "1\nAnswer:"
    found = read(f"lm-eval:{lm_eval_tasks.write(tmp_path, 'sums', lm_eval_tasks.CHOICE, docs)}")
    found += read(f"lm-eval:{lm_eval_tasks.write(tmp_path, 'says', lm_eval_tasks.REPLY, docs)}")
    kept, told = measurable(found, tokenizer, 64, False, "")
    assert {item.id for item in found} - {item.id for item in kept} == {"sums/1", "says/1"}
    assert told == ("2 items of tasks are longer than 64 tokens and left out",)


def test_data_cannot_name_a_task(tmp_path: Path) -> None:
    """A task is code; lines of data are not to be."""
    check = {"kind": "scorer", "scorer": "lm-eval", "options": {"task": "evil.yaml"}}
    file = tmp_path / "items.jsonl"
    file.write_text(json.dumps({"prompt": "x", "check": check}) + "\n", "utf-8")
    with pytest.raises(DataError, match=r"items.jsonl:1: an item of a file cannot be judged"):
        data_items.load([file])


@pytest.mark.slow
def test_what_is_no_name_and_no_yaml_is_no_task(tmp_path: Path, monkeypatch) -> None:
    """The harness takes any file that exists for a task; here a name is a name."""
    task = lm_eval_tasks.write(tmp_path, "sums", lm_eval_tasks.CHOICE, lm_eval_tasks.sums(2))
    task.rename(tmp_path / "sums.txt")
    with pytest.raises(DataError, match="is no task"):
        read(f"lm-eval:{tmp_path}/sums.txt")
    (tmp_path / "sums.txt").rename(tmp_path / "sums")
    monkeypatch.chdir(tmp_path)
    assert "has no task of that name" in directly("lm-eval:sums")["error"]
    monkeypatch.setenv("FORGE_WORKER", "w")
    with pytest.raises(UnavailableError, match="FORGE_TASK_FOLDERS"):
        read("lm-eval:sums.YAML")


@pytest.mark.parametrize(
    ("template", "change", "what"),
    [
        (lm_eval_tasks.REPLY, ("do_sample: false", "do_sample: false\n  num_beams: 3"), "with beams"),
        (lm_eval_tasks.REPLY, ("do_sample: false", "temperature: 0.8"), "samples replies"),
        (lm_eval_tasks.REPLY, ("test_split: test", "test_split: test\nunsafe_code: true"), "runs code"),
        (lm_eval_tasks.CHOICE, ("doc_to_target: right", "doc_to_target: q"), "document 0 of sums"),
        (lm_eval_tasks.CHOICE, ("multiple_choice", "loglikelihood"), "of the kind loglikelihood"),
        (lm_eval_tasks.CHOICE, ("metric: acc\n", "metric: mcc\n"), None),
        (lm_eval_tasks.REPLY, ("do_sample: false", "do_sample: true"), "samples replies"),
        (lm_eval_tasks.REPLY, ("metric: exact_match", "metric: bleu"), "none of a single reply"),
        (
            lm_eval_tasks.CHOICE,
            ("{data}", "/nowhere/data.jsonl"),
            r"FileNotFoundError: .*/nowhere/data.jsonl",
        ),
    ],
)
def test_tasks_that_cannot_be_items(tmp_path: Path, template: str, change, what) -> None:
    assert change[0] in template
    file = lm_eval_tasks.write(tmp_path, "sums", template.replace(*change), lm_eval_tasks.sums(4))
    if what is None:
        assert "rows" in directly(f"lm-eval:{file}")  # acc_norm is there beside it
        assert "has no metric 'mcc'" in directly(f"lm-eval:{file}#mcc")["error"]
        return
    assert re.search(what, directly(f"lm-eval:{file}")["error"])


@pytest.mark.slow
def test_a_refusal_names_the_task(tmp_path: Path) -> None:
    change = ("multiple_choice", "loglikelihood")
    file = lm_eval_tasks.write(
        tmp_path, "sums", lm_eval_tasks.CHOICE.replace(*change), lm_eval_tasks.sums(4)
    )
    with pytest.raises(DataError, match="of the kind loglikelihood") as error:
        read(f"lm-eval:{file}")
    assert str(error.value).startswith(f"lm-eval:{file}: ")


@pytest.mark.parametrize(
    "name",
    [
        "gsm8k",
        "mmlu_abstract_algebra",
        "arc_challenge",
        "allenai/ai2_arc",
        "openai/gsm8k",
        "Rowan/hellaswag",
        "leaderboard_bbh",
        "cais/mmlu",
        "TruthfulQA_mc1",
    ],
)
def test_well_known_benchmarks_are_known(name: str) -> None:
    assert lm_eval_spec.benchmark([name]) == name


@pytest.mark.parametrize("name", ["json", "my_task", "search", "arcade", "embraces", "droplets", ""])
def test_others_are_not(name: str) -> None:
    assert lm_eval_spec.benchmark([name]) is None


@pytest.mark.slow
def test_a_benchmark_is_no_objective_unless_allowed(tmp_path: Path) -> None:
    """By the name of the file, of the task, or of the dataset behind it."""
    with pytest.raises(DataError, match=r"well-known benchmark 'gsm8k'.*set allow_benchmarks"):
        read("lm-eval:gsm8k")
    file = lm_eval_tasks.write(tmp_path, "hellaswag", lm_eval_tasks.CHOICE, lm_eval_tasks.sums(3))
    hidden = file.rename(tmp_path / "mine.yaml")
    with pytest.raises(DataError, match="benchmark 'hellaswag'"):
        read(f"lm-eval:{hidden}")
    assert len(read(f"lm-eval:{hidden}", allow=True)) == 3


def test_the_reader_of_a_task_does_not_see_our_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task's file is code; of our secrets it needs the Hub's token alone, for its data."""
    given: dict[str, str] = {}

    def run(command: list[str], env: dict[str, str], **how: Any) -> Any:
        given.update(env)
        Path(command[-1]).write_text('{"rows": [], "names": []}')

    for name in ("FORGE_ARTIFACT_KEY", "FORGE_DATABASE_URL", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv(lm_eval_spec.FOLDERS, str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("subprocess.run", run)
    assert read("lm-eval:anything") == []
    assert [name for name, value in given.items() if value == "secret"] == ["HF_TOKEN"]
    assert given[lm_eval_spec.FOLDERS] == str(tmp_path), "what it may read goes with it"


def test_workers_read_task_files_of_allowed_folders_only(tmp_path: Path, monkeypatch) -> None:
    """A task file can run code: on a shared worker whoever runs it says which."""
    file = lm_eval_tasks.write(tmp_path / "ours", "sums", lm_eval_tasks.CHOICE, lm_eval_tasks.sums(3))
    spec = Spec(str(file))
    lm_eval_spec.check_file(spec)
    monkeypatch.setenv("FORGE_WORKER", "w")
    with pytest.raises(UnavailableError, match="FORGE_TASK_FOLDERS"):
        lm_eval_spec.check_file(spec)
    lm_eval_spec.check_file(Spec("a_name"))
    monkeypatch.setenv("FORGE_TASK_FOLDERS", os.pathsep.join(["/nowhere", str(tmp_path / "ours")]))
    lm_eval_spec.check_file(spec)
    with pytest.raises(UnavailableError, match="is not in a folder"):
        lm_eval_spec.check_file(Spec(str(tmp_path / "ours" / ".." / "theirs.yaml")))
    monkeypatch.delenv("FORGE_WORKER")
    with pytest.raises(UnavailableError, match="is not in a folder"):
        lm_eval_spec.check_file(Spec("/etc/task.yaml"))


@pytest.mark.slow
def test_a_judge_that_lacks_its_task_is_no_zero(
    tmp_path: Path, tokenizer, resident, monkeypatch
) -> None:
    """Another machine may have it: the evaluation does not go on as if the reply were wrong."""
    found = read(
        f"lm-eval:{lm_eval_tasks.write(tmp_path, 'says', lm_eval_tasks.REPLY, lm_eval_tasks.sums(2))}"
    )
    (tmp_path / "says.yaml").unlink()
    with pytest.raises(UnavailableError, match=r"says\.yaml cannot be read on this machine"):
        means(resident, found, tokenizer)
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    (problem,) = [i for i in found if i.id == "says/0"]
    assert isinstance(problem, data_items.Problem)
    assert isinstance(problem.check, Scored)
    with pytest.raises(UnavailableError, match="needs the package lm-eval"):
        judge.judge("x", {"prompt": "p", "options": problem.check.options})


def test_a_missing_harness_is_named_with_its_command(monkeypatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"pip install 'lm-eval>=0\.4\.13,<0\.5'"):
        read("lm-eval:my_task_that_nobody_read")


def test_paths_are_made_whole(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert lm_eval_spec.absolute("lm-eval:a/b.yaml#acc@5") == f"lm-eval:{tmp_path}/a/b.yaml#acc@5"
    assert lm_eval_spec.absolute("lm-eval:name@5") == "lm-eval:name@5"
    (tmp_path / "x#y").mkdir()
    monkeypatch.chdir(tmp_path / "x#y")
    with pytest.raises(DataError, match="cannot be named"):
        lm_eval_spec.absolute("lm-eval:b.yaml")
