"""Speed of merging, against reading the sources and writing a result without merging.

    python -m benchmarks.weights.merge [--size 0.5b|25m] [--mergekit PYTHON] [--repeat 3] [--only NAMES]

Whole processes are timed, and both sync their output to disk. The yardstick reads the three source
files and writes one. `hot`: the sources are in the page cache, `cold`: they are not. Memory is
private memory (not mapped file pages), less that of a process that only imports what a merge
imports. --mergekit names a Python that has mergekit installed; its merges of the same configs run
in turn with this program's. Then `benchmarks.weights.build --large` runs, which measures merges in
memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

from agent_forge.evomerge.merging.safetensors_sink import SafetensorsSink
from agent_forge.evomerge.merging.tensor_ops import Read, TensorSpec, copied
from agent_forge.runs import keys

ROOT = Path(__file__).resolve().parents[2]
#: (layers, hidden, intermediate, heads, key-value heads, vocabulary): Qwen2-0.5B, and a model like
#: the 25m preset.
SIZES = {"0.5b": (24, 896, 4864, 14, 2, 151_936), "25m": (12, 384, 1280, 6, 2, 8192)}

#: Parts of configs.
BASE = "base_model: {base}\ndtype: bfloat16\n"
MODELS = "models:\n" + "".join(
    f"  - model: {{m{i}}}\n    parameters: {{{{weight: {w}, density: 0.5}}}}\n"
    for i, w in enumerate((0.5, 0.3, 0.2))
)
SLICES = "slices:\n  - sources: [{{model: {m0}, layer_range: [0, HALF]}}]\n" + (
    "  - sources: [{{model: {m1}, layer_range: [HALF, ALL]}}]\n"
)
#: Name → (config, most that it may take of the yardstick's time).
CONFIGS = {
    "linear": (MODELS + "merge_method: linear\ndtype: bfloat16\n", 1.3),
    "slerp": (
        "models: [{{model: {m0}}}, {{model: {m1}}}]\nmerge_method: slerp\nparameters: {{t: 0.4}}"
        "\n"
        "base_model: {m0}\ndtype: bfloat16\n",
        1.3,
    ),
    "task_arithmetic": (MODELS + "merge_method: task_arithmetic\n" + BASE, 1.3),
    "model_stock": (MODELS + "merge_method: model_stock\n" + BASE, 1.3),
    "frankenmerge": (SLICES + "merge_method: passthrough\ndtype: bfloat16\n", 1.3),
    "dfs": (MODELS + "merge_method: dfs\n" + BASE, 1.3),
    "ties": (MODELS + "merge_method: ties\n" + BASE, 2.0),
    "dare_ties": (MODELS + "merge_method: dare_ties\n" + BASE, 2.0),
}
#: How many times as long mergekit must take, at least.
AGAINST = {"linear": 2.5, "slerp": 2.5, "model_stock": 2.5, "ties": 14.0, "dare_ties": 7.0}

#: Program that imports torch, as a merge must, reads three files and writes one, block by block.
YARDSTICK = """
import os, sys
import torch
out = os.open(sys.argv[-1], os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
files = [os.open(path, os.O_RDONLY) for path in sys.argv[1:-1]]
while blocks := [block for file in files if (block := os.read(file, 4 << 20))]:
    os.write(out, blocks[0])
os.fsync(out)
"""


def pipelines(layers: int) -> dict[str, tuple[str, float]]:
    """Return name → (config, most of the yardstick's time) of the eight pipelines."""
    choice = [0] * layers
    for place in range(0, layers, 4):
        choice[place] = 1 + place // 4 % 3
    found = {}
    for first in ("linear", "slerp"):
        for second in ("dare", "ties"):
            for third in ("frankenmerge", "dfs"):
                name = f"{first}-{second}-{third}"
                genes = {"layers": choice} if third == "frankenmerge" else {}
                text = "models: [{{model: {m0}}}, {{model: {m1}}}, {{model: {m2}}}]\n"
                parameters = f"parameters: {{{json.dumps(genes)}}}\n"
                found[name] = (text + f"merge_method: {name}\n" + parameters + BASE, 2.0)
    return found


def shapes(
    layers: int, hidden: int, inner: int, heads: int, kv: int, vocabulary: int
) -> dict[str, tuple[int, ...]]:
    """Return tensor name → shape."""
    head = hidden // heads
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocabulary, hidden),
        "model.norm.weight": (hidden,),
    }
    for i in range(layers):
        own = {
            "self_attn.q_proj.weight": (hidden, hidden),
            "self_attn.q_proj.bias": (hidden,),
            "self_attn.k_proj.weight": (kv * head, hidden),
            "self_attn.k_proj.bias": (kv * head,),
            "self_attn.v_proj.weight": (kv * head, hidden),
            "self_attn.v_proj.bias": (kv * head,),
            "self_attn.o_proj.weight": (hidden, hidden),
            "mlp.gate_proj.weight": (inner, hidden),
            "mlp.up_proj.weight": (inner, hidden),
            "mlp.down_proj.weight": (hidden, inner),
            "input_layernorm.weight": (hidden,),
            "post_attention_layernorm.weight": (hidden,),
        }
        found |= {f"model.layers.{i}.{name}": shape for name, shape in own.items()}
    return found


def generate(where: Path, size: str) -> list[Path]:
    """Write a base and three siblings 3 % away from it as bf16 model folders."""
    layers, hidden, inner, heads, kv, vocabulary = SIZES[size]
    tensors = shapes(*SIZES[size])
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "vocab_size": vocabulary,
        "tie_word_embeddings": True,
        "rope_theta": 1e6,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 32768,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
    }
    folders = []
    for number in range(4):
        folder = where / ("base" if number == 0 else f"m{number - 1}")
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
        plan = [copied(n, TensorSpec(torch.bfloat16, tensors[n]), Read("", n)) for n in sorted(tensors)]
        with SafetensorsSink(folder, plan, 1 << 40) as sink:
            for name in sorted(tensors):
                sink.begin(name)
                sink.put(_values(number, name, tensors[name]))
                sink.end()
            sink.digest()
        folders.append(folder)
    return folders


def _values(number: int, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Return weights with a standard deviation of 0.02; siblings differ from the base by 3 %."""
    rng = keys.generator("benchmark", 0, name)
    values = rng.standard_normal(shape, dtype="float32") * 0.02
    if number:
        move = keys.generator("benchmark", number, name).standard_normal(shape, dtype="float32")
        values += move * 0.0006
    return torch.from_numpy(values).to(torch.bfloat16)


def forget(folders: list[Path]) -> None:
    """Drop files from the page cache."""
    os.sync()
    for file in (f for folder in folders for f in folder.glob("*.safetensors")):
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def remember(folders: list[Path]) -> None:
    """Read files into the page cache."""
    for file in (f for folder in folders for f in folder.glob("*.safetensors")):
        with file.open("rb") as opened:
            while opened.read(16 << 20):
                pass


def timed(command: list[str]) -> tuple[float, float]:
    """Return the seconds of a process, and its peak of private memory in MB."""
    os.sync()
    peak = 0.0
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.02):
            try:
                text = Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                return
            for line in text.splitlines():
                if line.startswith("RssAnon:"):
                    peak = max(peak, int(line.split()[1]) / 1024)

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, told = process.communicate()
    seconds = time.perf_counter() - began
    done.set()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"{command} failed:\n{told[-2000:]}")
    return seconds, peak


IMPORTS = (
    "import torch, numpy, safetensors, yaml, blake3, pydantic, numba\n"
    "from agent_forge.evomerge.tasks import merge as merging\n"
    "from agent_forge.evomerge.merging import pipelines\n"
    "from agent_forge.evomerge.merging.kernels import inner_loops\n"
)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="0.5b")
    parser.add_argument("--mergekit", help="a Python with mergekit")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", help="names, with commas")
    parser.add_argument("--cold", action="store_true", help="the sources not in the page cache")
    parser.add_argument("--folder", help="where models are made, and kept for the next run")
    given = parser.parse_args()
    layers = SIZES[given.size][0]
    configs = {**CONFIGS, **pipelines(layers)}
    names = given.only.split(",") if given.only else list(configs)
    with tempfile.TemporaryDirectory() as temporary:
        where = Path(given.folder or temporary) / given.size
        folders = sorted(where.glob("*")) if where.exists() else generate(where, given.size)
        _table(Path(temporary), folders, {n: configs[n] for n in names}, given, layers)
    if not given.only:
        print("\nin memory:", flush=True)
        subprocess.run(
            [sys.executable, "-m", "benchmarks.weights.build", "--large"], cwd=ROOT, check=True
        )


def _table(
    where: Path,
    folders: list[Path],
    configs: dict[str, tuple[str, float]],
    given: argparse.Namespace,
    layers: int,
) -> None:
    base, *models = folders
    empty = timed([sys.executable, "-c", IMPORTS])[1]
    print(
        f"torch {torch.__version__}, {os.cpu_count()} cores, {'cold' if given.cold else 'hot'}; "
        f"imports alone {empty:.0f} MB"
    )
    print(
        f"{'method':28s} {'ours s':>7s} {'yard s':>7s} {'ratio':>6s} {'most':>5s} {'MB':>5s} "
        f"{'mergekit s':>10s} {'times':>6s} {'least':>6s}"
    )
    files = [str(m / "model.safetensors") for m in models]
    for name, (text, most) in configs.items():
        text = text.format(base=base, m0=models[0], m1=models[1], m2=models[2])
        text = text.replace("HALF", str(layers // 2)).replace("ALL", str(layers))
        config = where / "config.yml"
        config.write_text(text)
        out = where / "out"
        ours, yard, theirs, memory = [], [], [], 0.0
        for _ in range(given.repeat):
            commands = {
                "yard": [sys.executable, "-c", YARDSTICK, *files, str(where / "copy")],
                "ours": [
                    sys.executable,
                    "-c",
                    "from agent_forge.cli.main import main; main()",
                    "merge",
                    str(config),
                    str(out),
                ],
            }
            if given.mergekit and name in AGAINST:
                tool = str(Path(given.mergekit).parent / "mergekit-yaml")
                commands["theirs"] = [tool, str(config), str(where / "theirs"), "--no-copy-tokenizer"]
            for which, command in commands.items():
                forget(folders) if given.cold else remember(folders)
                seconds, peak = timed(command)
                {"yard": yard, "ours": ours, "theirs": theirs}[which].append(seconds)
                if which == "ours":
                    memory = max(memory, peak - empty)
                for made in (out, where / "theirs"):
                    shutil.rmtree(made, ignore_errors=True)
        a, b = statistics.median(ours), statistics.median(yard)
        against = ""
        if theirs:
            c = statistics.median(theirs)
            against = f"{c:10.2f} {c / a:6.1f} {AGAINST[name]:6.1f}"
        print(
            f"{name:28s} {a:7.2f} {b:7.2f} {a / b:6.2f} {most:5.1f} {memory:5.0f} {against}", flush=True
        )


if __name__ == "__main__":
    main()
