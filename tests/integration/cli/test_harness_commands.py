"""lm-evaluation-harness from a user's side: its tasks as data, and our folders as its models."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from transformers import AutoTokenizer

from agent_forge.evomerge.tasks.score import resident
from agent_forge.runs.home import Home
from agent_forge.weights.folders.sources import resolve
from testing.models import lm_eval_reference, lm_eval_tasks
from testing.models.toys import Toys
from testing.worlds import runs
from tests.integration.cli.test_forge import call, fails
from tests.integration.cli.test_scoring_commands import ok
from tests.integration.evaluation.test_harness import means, read


@pytest.mark.soak
@pytest.mark.slow
def test_a_merged_folder_is_taken_by_the_harness(toys: Toys, tmp_path: Path) -> None:
    """What `forge merge` writes loads there, and measures as it does here."""
    config = {
        "merge_method": "linear",
        "models": [{"model": str(s), "parameters": {"weight": 1}} for s in toys.sources],
    }
    (tmp_path / "merge.yml").write_text(yaml.safe_dump(config), "utf-8")
    merged = tmp_path / "merged"
    ok(call(tmp_path, "merge", str(tmp_path / "merge.yml"), str(merged)))
    task = lm_eval_tasks.write(tmp_path, "sums", lm_eval_tasks.CHOICE, lm_eval_tasks.sums(40))
    said = lm_eval_reference.reference(merged, task)["sums"]["metrics"]
    assert said["sample_len"] == 40
    model = resident(resolve(str(merged)))
    ours = means(model, read(f"lm-eval:{task}"), AutoTokenizer.from_pretrained(merged))
    assert ours["sums"] == said["acc,none"]


@pytest.mark.slow
def test_a_run_on_a_task(toys: Toys, tmp_path: Path) -> None:
    """Checked, run, and measured again from the pinned documents when the task's file is gone."""
    task = lm_eval_tasks.write(tmp_path, "sums", lm_eval_tasks.CHOICE, lm_eval_tasks.sums(40))
    data = ("--data", str(toys.data), "--data", f"lm-eval:{task}#acc_norm")
    checked = ok(call(tmp_path, "check", "--base-models", toys.names, *data)).output
    assert "sums" in checked
    home = Home(tmp_path / "home")
    weights = {"perplexity": 0.5, "accuracy": 0.0, "domains": {"sums": 0.5}, "speed": 0, "memory": 0}
    given = (str(toys.data), f"lm-eval:{task}#acc_norm")
    runs.submit(home, toys, data=given, fitness_weights=weights, generations=1)
    done = runs.finish(home)
    assert done.completed
    assert done.started
    assert done.started.pools["test"]["sums"].questions > 0
    task.unlink()
    assert ok(call(home.folder, "verify", "r", "--recompute")).exit_code == 0


@pytest.mark.slow
def test_benchmarks_are_refused_before_any_work(toys: Toys, tmp_path: Path) -> None:
    words = ("check", "--base-models", toys.names, "--data", str(toys.data), "--data")
    said = fails(tmp_path, 2, *words, "lm-eval:gsm8k")
    assert "well-known benchmark 'gsm8k'" in said
    said = fails(tmp_path, 2, *words, "lm-eval:no/such/task.yaml")
    assert f"{Path.cwd()}/no/such/task.yaml does not exist" in said
