"""lm-evaluation-harness alone, on local tasks, as JSON.

`python -m testing.models.lm_eval_reference MODEL TASK…` prints

    {task: {"metrics": {name: value}, "seconds": of one evaluation after the first}}
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def reference(folder: Path, *tasks: Path) -> dict[str, Any]:
    """Return the harness's results, computed in a process of its own."""
    command = [sys.executable, "-m", "testing.models.lm_eval_reference", str(folder), *map(str, tasks)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def main(folder: str, *tasks: str) -> None:
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager
    from transformers import AutoModelForCausalLM, AutoTokenizer

    module: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    model = HFLM(module, tokenizer=AutoTokenizer.from_pretrained(folder), batch_size=16)
    manager = TaskManager(include_defaults=False)
    found = {}
    for task in tasks:
        for _ in range(2):
            began = time.perf_counter()
            said: Any = simple_evaluate(
                model=model, tasks=[task], task_manager=manager, bootstrap_iters=0, log_samples=False
            )
            seconds = time.perf_counter() - began
        ((name, metrics),) = said["results"].items()
        plain = {k: float(v) for k, v in metrics.items() if isinstance(v, int | float)}
        found[name] = {"metrics": plain, "seconds": seconds}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
