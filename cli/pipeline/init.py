"""`forge pipeline init`: a pipeline's file to start from. No torch."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click

from cli.options import emit, json_option, say, split

_HEAD = """\
# {title}
#
#     forge pipeline run {file} --dry-run           # what it will take here
#     forge pipeline run {file} --output-dir OUT
#
# Each phase is a run of its own: RUN.1-NAME, RUN.2-NAME, … `forge kinds` lists what a phase can be,
# docs/pipelines.md says what a file can have. A model that is made of others is measured beside them:
# at least 95 % of their quality, in no domain 5 % worse, 84 % over all phases. `gate = []` here: no
# such gates.
"""
_TRAINED = """
[[phase]]
name = "specialists"
kind = "cognate"                                   # forge settings cognate
settings = { preset = "tiny", optimiser = "adamw" }

    [[phase.gate]]
    metric = "lead"                                # bits per byte, the least of all specialists
    at_least = 0.0                                 # the worse end of the interval must meet it
    otherwise = "stop"                             # or "pass unchanged": the phase's input goes on
"""
_MERGED = """
[[phase]]
name = "merge"
kind = "evomerge"                                  # forge settings evomerge
{given}
settings = { generations = 8, search_windows = 40, search_questions = 12 }

    [[phase.gate]]
    metric = "lead_over_sources"                   # of the champion, on items that chose nothing
    at_least = 0.0
"""
_THOUGHTS = """
# Thoughts before tokens. What gains nothing is left out: the merge goes on.

[[phase]]
name = "thoughts"
kind = "quietstar"                                 # forge settings quietstar
models = { model = "merge" }
settings = { tokens = 16_384, base_tokens = 16_384 }  # each arm: thoughts, pauses, neither
gate = [
    { metric = "gain", at_least = 0.0, otherwise = "pass unchanged" },
    { metric = "genuine", at_least = 0.0, otherwise = "pass unchanged" },
    { metric = "retention", at_least = 0.95, otherwise = "pass unchanged" },
    { metric = "regression", at_most = 0.05, otherwise = "pass unchanged" },
    { metric = "cumulative", at_least = 0.84, otherwise = "pass unchanged" },
]
"""
_TERNARY = """
# Beside what follows: a model of ternary weights, in a folder that transformers loads.

[[phase]]
name = "ternary"
kind = "bitnet"                                    # forge settings bitnet
models = { model = "thoughts" }
settings = { tokens = 500_000 }                    # each arm: ternary, and full precision beside it

    [[phase.gate]]
    metric = "retention"
    at_least = 0.95
    otherwise = "pass unchanged"
"""
_LEARNED = """
# What gains nothing, or loses ordinary text, is left out: the model before it goes on.

[[phase]]
name = "learned"
kind = "curriculum"                                # forge settings curriculum
models = { model = "thoughts" }
gate = [
    { metric = "gain", at_least = 0.01, otherwise = "pass unchanged" },
    { metric = "retention", at_least = 0.95, otherwise = "pass unchanged" },
    { metric = "regression", at_most = 0.05, otherwise = "pass unchanged" },
    { metric = "cumulative", at_least = 0.84, otherwise = "pass unchanged" },
]

    [phase.settings]
    families = ["addition", "lookup", "reversal"]
    levels = 3
    arms = ["adaptive", "uniform"]
    tokens = 300_000                               # each arm
    text = 0.6                                     # of ordinary text, so that it is not forgotten
    rate = 7e-4
    segments = 6
    pool = 400
    test_items = 40

[[phase]]
name = "prompt"
kind = "bake"                                      # forge settings bake
models = { model = "learned" }
gate = [
    { metric = "ratio", at_most = 0.05, otherwise = "pass unchanged" },
    { metric = "drift", at_most = 0.005, otherwise = "pass unchanged" },
    { metric = "retention", at_least = 0.95, otherwise = "pass unchanged" },
    { metric = "regression", at_most = 0.05, otherwise = "pass unchanged" },
    { metric = "cumulative", at_least = 0.84, otherwise = "pass unchanged" },
]

    [phase.settings]
    prompts = ["import pytest\\n\\n\\ndef test_"]
    context_tokens = 24
    reply_tokens = 24
    trajectories = 64
    held_out = 32
    steps = 40
    strengths = [0.5, 0.8, 1.0]
    characters = 1_000_000

[[phase]]
name = "tools"
kind = "baking"                                    # forge settings baking
models = { model = "prompt" }
gate = [
    { metric = "gain", at_least = 0.01, otherwise = "pass unchanged" },
    { metric = "retention", at_least = 0.95, otherwise = "pass unchanged" },
    { metric = "regression", at_most = 0.05, otherwise = "pass unchanged" },
    { metric = "cumulative", at_least = 0.84, otherwise = "pass unchanged" },
]

    [phase.settings]
    families = ["table"]
    levels = 1
    train_items = 24
    selection_items = 12
    test_items = 24
    personas = 3
    iterations = 2
    reply_tokens = 24
    steps = 20
    characters = 1_000_000
"""
_MIXED = """
[[phase]]
name = "mixed"
kind = "experts"                                   # forge settings experts
models = { model = "tools", merges = ["specialists:code", "specialists:math", "specialists:data"] }
settings = { tokens = 125_000, context = 128, evaluations = 300 }
unchanged = "tools"
gate = [
    { metric = "gain", at_least = 0.0, otherwise = "pass unchanged" },
    { metric = "retention", at_least = 0.95, otherwise = "pass unchanged" },
    { metric = "regression", at_most = 0.05, otherwise = "pass unchanged" },
    { metric = "cumulative", at_least = 0.84, otherwise = "pass unchanged" },
]
"""
_SMALL = """
[[phase]]
name = "small"
kind = "compression"                               # forge settings compression
models = { model = "mixed" }
data = "specialists:items"
gate = [                                           # on the test slice, which chose nothing
    { metric = "retention", at_least = 0.95, otherwise = "pass unchanged" },
    { metric = "regression", at_most = 0.05, otherwise = "pass unchanged" },
    { metric = "cumulative", at_least = 0.84, otherwise = "pass unchanged" },
]

    [phase.settings]
    settings = "rtn-4,gptq-3,uniform-0.4,uniform-0.7,uniform-1,ternary"
    retention = 0.95
    regression = 0.035                             # in any domain, on the selection slice
"""
_SOURCES = ", ".join(f'"specialists:{domain}"' for domain in ("code", "math", "data"))
_SPECIALISTS = f"""\
models = {{ base = "specialists:base", sources = [{_SOURCES}] }}
data = "specialists:items\""""


def written(file: str, sources: list[str], base: str | None, data: list[str]) -> str:
    """Return a file's text: of given models a merge, else specialists that are trained and merged."""
    if not sources:
        title = "From text to an evolved champion that has learned and is small, on two cores."
        head = _HEAD.format(title=title, file=file)
        return (
            head
            + _TRAINED
            + _MERGED.replace("{given}", _SPECIALISTS)
            + _THOUGHTS
            + _TERNARY
            + _LEARNED
            + _MIXED
            + _SMALL
        )
    models = {"base": base, "sources": sources} if base else {"sources": sources}
    lines = ["models = { " + ", ".join(f"{r} = {json.dumps(m)}" for r, m in models.items()) + " }"]
    lines += [f"data = {json.dumps(data)}"] if data else []
    head = _HEAD.format(title="An evolved merge of given models.", file=file)
    if data:
        head += f"\ntest = {json.dumps(data)}  # what results are measured on: the slice test\n"
    return head + _MERGED.replace("{given}", "\n".join(lines))


@click.command("init")
@click.argument("file", default="pipeline.toml", type=click.Path())
@click.option("--base-models", metavar="A,B,C", help="The models to merge; none: some are trained.")
@click.option("--base-model", metavar="M", help="Their common ancestor.")
@click.option("--data", multiple=True, type=click.Path(), help="Items to measure on.")
@json_option
def init_command(
    file: str,
    base_models: str | None,
    base_model: str | None,
    data: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write a pipeline's file to start from: FILE (default pipeline.toml). No file is overwritten.

    \b
    Example:
      forge pipeline init
      forge pipeline init merge.toml --base-models models/code,models/math --base-model models/base
    """
    from runs.errors import ConfigError
    from runs.system.plain_text import check

    sources = split(base_models)
    if (base_model or data) and not sources:
        raise ConfigError("a base and data are those of models: give --base-models, too.")
    for text in (*sources, base_model or "", *data):
        check(text, "the name of a model or of data")
    text = written(Path(file).name, sources, base_model, list(data))
    try:
        with Path(file).open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError as error:
        raise ConfigError(f"{file} exists already, and is left as it is. Name another.") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be written: {error}. Name another.") from error
    following = f"forge pipeline run {shlex.quote(file)}"
    if as_json:
        emit({"file": file, "next": [f"{following} --check", following]})
        return
    say(f"wrote     {file}")
    say(f"next      {following} --check")
    say(f"          {following}")
