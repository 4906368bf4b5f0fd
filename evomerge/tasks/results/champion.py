"""The champion as an ordinary Hugging Face folder (SPEC §11), published complete or not at all.

The report of the run can stand beside the model's files.

Before the folder appears under its name, AutoModelForCausalLM loads it and generates a token.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from agent_forge.evomerge.merging.builder import Weights
from agent_forge.evomerge.merging.dataflow import settings_for
from agent_forge.evomerge.recipes.recipe import closure, label
from agent_forge.evomerge.reports import report, skills, verdict
from agent_forge.evomerge.reports.pictures import plot
from agent_forge.evomerge.reports.report import recipe_document
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views.candidates import describe
from agent_forge.evomerge.tasks.context import MergeContext
from agent_forge.runs.errors import ForgeError
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.panels import report_html
from agent_forge.weights import architectures
from agent_forge.weights.folders import companions, model_card
from agent_forge.weights.folders.checkpoint import SHARD_BYTES, Checkpoint, publish, write_weights
from agent_forge.weights.storage.output_folder import MARK, check_target
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.threads import set_threads

#: The model's default generation settings; written from its config if the base lacks the file.
GENERATION = "generation_config.json"


def keep(state: RunState, cache: Artifacts) -> None:
    """Write the champion's and the elites' weights from memory to disk: a restart needs them most."""
    assert state.submitted
    if not state.generations:
        return
    last = state.generations[max(state.generations)]
    ids = [*last.ranking[: state.submitted.config.search.kept], state.champion]
    for id_ in dict.fromkeys(filter(None, ids)):
        digest = state.built[id_][0]
        weights = cache.in_memory(digest)
        if weights is not None:
            cache.keep(digest, weights)


def export(state: RunState, artifacts: Artifacts, out: Path, chain_head: str) -> Path:
    """Write the champion's folder to `out`, and return the folder's path.

    The champion is rebuilt if it is not cached. Raises ForgeError, also if there is no champion yet.
    """
    if state.champion is None:
        raise ForgeError(f"run {state.run} has no champion yet: let it finish first.")
    out = check_target(out)
    write(state, artifacts, state.champion, out, chain_head)
    return out


def write(state: RunState, artifacts: Artifacts, recipe_id: str, out: Path, chain_head: str) -> None:
    """Write the folder of any candidate to `out`, in place of a folder that is there."""
    assert state.started
    set_threads(state.started.profile.threads)  # another number of threads could change bits
    bench = MergeContext(state, artifacts)
    bench.check_sources()
    weights = bench.weights(recipe_id)

    def fill(folder: Path) -> None:
        write_weights(folder, weights, SHARD_BYTES)
        model_files = documents(state, recipe_id, bench.family.base, weights, chain_head)
        for name, content in model_files.items():
            (folder / name).write_bytes(content)
        check_loads(folder)

    publish(out, fill)


def documents(
    state: RunState, recipe_id: str, donor: Checkpoint, weights: Weights, chain_head: str
) -> dict[str, bytes]:
    """Return {name: content} of a candidate's files beside its weights; a champion's with card.

    Config, tokenizer and templates are the donor's (the base's), without entries that name code to run.
    """
    assert state.started
    config = settings_for(weights, donor, state.started.tied)
    recipe = recipe_document(state, recipe_id, chain_head)
    model_files = {
        GENERATION: _generation(donor.folder),
        companions.CONFIG: companions.as_text(config).encode(),
        **companions.contents(donor.folder),
        **architectures.code(config),
        MARK: (json.dumps(recipe, indent=2) + "\n").encode(),
    }
    if recipe_id == state.champion:
        text = card(state, chain_head) + model_card.section(config) + architectures.note(config)
        model_files["README.md"] = text.encode()
    return model_files


def _generation(folder: Path) -> bytes:
    """Return the bytes of a generation_config.json that follows from a folder's config.json."""
    from transformers import GenerationConfig

    from agent_forge.weights.architectures.auto_config import AutoConfig

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    return GenerationConfig.from_model_config(config).to_json_string().encode()


def check_loads(folder: Path) -> None:
    """Raise ForgeError if transformers' Auto classes cannot load the folder and generate a token."""
    from agent_forge.weights.architectures.auto import AutoModelForCausalLM
    from agent_forge.weights.architectures.auto_config import AutoTokenizer

    try:
        model: Any = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        rows = model.get_input_embeddings().weight.shape[0]
        if rows < len(tokenizer):
            raise ForgeError(f"{len(tokenizer)} tokens but only {rows} embedding rows")
        start = tokenizer.encode("The", add_special_tokens=False) or [0]
        pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        ids = torch.tensor([start])
        tokens = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=1,
            do_sample=False,
            pad_token_id=pad,
        )
        if tokens.shape[1] != len(start) + 1:
            raise ForgeError("it generated nothing")
    except ForgeError:
        raise
    except Exception as error:
        raise ForgeError(f"the champion's folder does not load: {error}") from error


def card(state: RunState, chain_head: str) -> str:
    """Return the text of the model card: front matter for the Hub, test scores, lineage, digest."""
    assert state.started
    assert state.submitted
    assert state.champion
    models = [state.submitted.base, *state.submitted.sources]
    ids = [model.hub_id for model in models if model is not None and model.hub_id]
    lines = ["---", *model_card.merged_from(ids), "library_name: transformers"]
    lines += ["tags:", "- merge", "- evomerge", "---", ""]
    kind = label(state.recipes[state.champion], state.recipes)
    lines += [f"# Champion of run {state.run}", "", _origin_sentence(state, kind)]
    if origin := report.origin(state):
        lines += [f"The run was forked from {origin.replace('@', ' after its event ')}."]
    if state.completed:
        lines += ["", report.sentence(state), "", "| test slice | score | champion's lead | |"]
        lines += ["|---|---|---|---|", f"| **champion** | {state.completed.test.scalar:.4f} | | |"]
        for r in report.rivals(state):
            if r["lead"] is not None:
                interval = f"{r['lead']:+.4f} [{r['low']:+.4f}, {r['high']:+.4f}]"
                rival = f"{r['name']} ({r['kind']}) | {r['score']:.4f}"
                lines.append(f"| {rival} | {interval} | {r['verdict'] or ''} |")
    if (table := skills.data(state)) and table["rows"]:
        lines += ["", f"Skills by model, on the {table['slice']} slice:", ""]
        lines += skills.markdown(table)
    lines += ["", "## Lineage", ""]
    for id_, recipe in closure(state.champion, state.recipes).items():
        lines.append(f"- `{id_[:12]}` {describe(state, id_, recipe)}")
    lines += ["", f"- weights digest (BLAKE3): `{state.built[state.champion][0]}`"]
    lines += [f"- recipe: `{state.champion}`, in full in `evomerge_recipe.json`"]
    lines += [f"- chain head of the log: `{chain_head}`", ""]
    return "\n".join(lines)


def _origin_sentence(state: RunState, kind: str) -> str:
    """Return a sentence on the champion: a new merge, or a model that the search was given."""
    model = verdict.given(state)
    if model is None or not model.same_weights:
        return f"A merge ({kind}) evolved by EvoMerge."
    count = state.spent.evaluations
    search = f"a search of {count} evaluation{'' if count == 1 else 's'}"
    what = {
        "baseline": f"A fixed merge ({model.name})",
        "source": f"The source {model.name}, unchanged",
        "base": f"The base {model.name}, unchanged",
    }
    return f"{what[model.kind]}, confirmed by {search}."


def files(state: RunState, cache: Artifacts) -> list[tuple[str, Path]]:
    """Return (name in an archive, file) of each of the champion's weight files.

    The champion is built into the cache if the cache lacks it. Raises ForgeError if the run has no
    champion yet.
    """
    if state.champion is None:
        raise ForgeError(f"run {state.run} has no champion yet: leave out --weights.")
    digest = state.built[state.champion][0]
    if not cache.check(digest):
        set_threads()
        bench = MergeContext(state, cache)
        bench.check_sources()
        cache.keep(digest, bench.weights(state.champion))
    return [(f"{digest}/{file.name}", file) for file in cache.files(digest)]


def write_with_report(home: Home, state: RunState, out: Path) -> dict[str, object]:
    """Write the champion's folder with the report; return the report (dict), with `folder` added."""
    store = home.open_store()
    rows = list(repository.history(store, state.run))
    store.close()
    data = report.report(state, rows)
    folder = export(state, Artifacts.of(home), out.absolute(), rows[-1].hash)
    for name, content in report_files(data).items():
        (folder / name).write_bytes(content)
    picture = plot.draw(data, "svg")
    (folder / "report.svg").write_bytes(picture)
    (folder / "report.png").write_bytes(plot.draw(data, "png"))
    (folder / report_html.NAME).write_bytes(report_page(data, picture))
    return {**data, "folder": str(folder)}


def report_files(data: dict[str, object]) -> dict[str, bytes]:
    """Return {name: content} of the report's files, JSON and Markdown."""
    text = json.dumps(data, indent=2) + "\n"
    return {"report.json": text.encode(), "report.md": report.markdown(data).encode()}


def report_page(data: dict[str, object], svg: bytes | None) -> bytes:
    """Return the bytes of the report's HTML file, with its picture (an SVG file) inside."""
    return report_html.page(report.markdown(data), f"Run {data['run']}", svg)
