"""Bitnet runs in miniature: what is made, compared, written, shown and verified."""

from __future__ import annotations

import json
import math
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from agent_forge.api.app import create
from agent_forge.api.options import Options
from agent_forge.cli import kind_views
from agent_forge.evaluation.data.builtin import corpus
from agent_forge.evaluation.loading import load_tokenizer
from agent_forge.phases.bitnet import WAYS, Bitnet, Submitted
from agent_forge.runs.errors import ConfigError, DataError, ForgeError, NotFoundError
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import Lookup, RunRequest
from agent_forge.runs.kinds.view import overview
from agent_forge.runs.lists import model_registry
from agent_forge.runs.panels.panels import Arms
from agent_forge.studies import comparison
from agent_forge.studies.making.making import MakeTask, MakingState
from agent_forge.studies.settings import KNOWN
from agent_forge.studies.work import Context
from agent_forge.weights import operations
from agent_forge.weights.folders.checkpoint import (
    SHARD_BYTES,
    digest,
    open_checkpoint,
    read_folder,
    write_weights,
)
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage import inputs, model_origin
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.ternary import packing, quantiser
from agent_forge.weights.training import complete
from agent_forge.worker.commands import accounts
from testing.miniatures import bitnet_runs, pipeline_runs
from testing.models.toys import Toys
from testing.verification import (
    announced,
    changed,
    copy_of,
    kinds_of_example,
    rebuilt,
    shown_early,
    verified_again,
    written_again,
)
from tests.integration.cli.test_forge import call, fails, succeeds

ARMS = ("start", "full", "model", "scratch", "untrained")


@pytest.fixture(scope="module")
def made(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, MakingState, Path]:
    """A finished run with every arm and a teacher: (home, state, folder of the models)."""
    folder = tmp_path_factory.mktemp("bitnet")
    home = Home(folder / "home")
    bitnet_runs.submit(home, toys.base)
    return bitnet_runs.result(home, folder / "out")


@pytest.mark.slow
def test_a_command_of_its_own_asks_for_the_same_run(toys: Toys, tmp_path: Path) -> None:
    """As `forge start bitnet` does, with the folder and the tokens as options."""
    home, out = Home(tmp_path / "home"), tmp_path / "ternary"
    words = ("bitnet", str(toys.base), "--out", str(out), "--tokens", "4096")
    told = call(home.folder, *words, "--set", "int8_activations=false", "--detach", "--json")
    model = ("--model", f"model={toys.base}", "--output-dir", str(out))
    changes = ("--set", "tokens=4096", "--set", "int8_activations=false")
    other = call(home.folder, "start", "bitnet", *model, *changes, "--detach", "--json")
    assert told.exit_code == 0, told.output
    names = [json.loads(said.stdout)["run"] for said in (told, other)]
    assert names[0] == names[1]
    assert bitnet_runs.state(home, names[0]).submitted.config.tokens == 4096


def test_the_model_is_ternary_and_its_master_rounds_to_it(made) -> None:
    """Every linear layer holds −s, 0 and s; embedding and norms are the master's."""
    _, _, out = made
    model, master = (open_checkpoint(out / role).tensors() for role in ("model", "master"))
    assert set(model) == set(master)
    matrices = [name for name in model if "_proj.weight" in name]
    for name in model:
        if name in matrices:
            quantiser.parts(name, model[name])
            assert torch.equal(model[name], quantiser.quantise(master[name]))
        else:
            assert torch.equal(model[name], master[name])
    told = json.loads((out / "bitnet.json").read_text())
    assert told["models"] == {r: digest(t) for r, t in (("model", model), ("master", master))}
    assert told["packed"] == packing.bytes_of(packing.pack(model, matrices))
    assert told["ternary"] == sum(model[name].numel() for name in matrices)
    assert told["bytes"] == 4 * sum(t.numel() for t in model.values())


def test_every_arm_is_measured_on_the_same_windows(made) -> None:
    """Means over domains; retention is full precision's figure over the ternary model's."""
    _, state, _ = made
    seen = Bitnet().run(state).seen
    assert tuple(Bitnet.arms) == ARMS
    assert set(seen) == set(ARMS) == set(state.completed.arms)
    assert len({json.dumps(event.sizes, sort_keys=True) for event in seen.values()}) == 1
    measures = {arm: event.measure.partition("@")[0] for arm, event in seen.items()}
    assert measures == dict.fromkeys(("start", "full"), "bits-per-byte") | dict.fromkeys(
        ("model", "scratch", "untrained"), "int8-bits-per-byte"
    )
    bits = {
        arm: sum(math.fsum(event.items[d]) / math.log(2) / sum(event.sizes[d]) for d in event.items)
        / len(event.items)
        for arm, event in seen.items()
    }
    figures = state.completed.figures
    assert figures["bits_per_byte"].value == pytest.approx(bits["model"])
    assert figures["retention"].value == pytest.approx(bits["full"] / bits["model"])
    assert figures["retention_of_start"].value == pytest.approx(bits["start"] / bits["model"])
    lead = figures["lead_over_untrained"]
    assert lead.value == pytest.approx(bits["untrained"] - bits["model"])
    assert lead.low is not None
    assert lead.high is not None
    assert lead.low < lead.value < lead.high
    assert figures["size"].value == state.started.packed / state.started.bytes


def test_measurements_of_the_model_are_those_of_its_arm(made) -> None:
    """For the page of a model: the interval of the mean holds the figure that the run reports."""
    _, state, _ = made
    whole, *domains = Bitnet().models.measurements(state, state.completed.models["model"].digest)
    assert whole.figure.value == state.completed.figures["bits_per_byte"].value
    assert (whole.name, whole.slice) == ("bits per byte, int8 activations", "test")
    assert {m.domain: m.figure.value for m in domains} == state.completed.arms["model"].bits_per_byte
    for one in (whole, *domains):
        assert one.figure.low < one.figure.value < one.figure.high


@pytest.mark.slow
def test_a_run_is_asked_for_again_over_the_api_with_its_model(made) -> None:
    """*Again with changes* lost the model, and the form could not give one."""
    home, state, _ = made
    with closing(home.open_store()) as store:
        accounts.add(store, "ada", "submitter")
        token = accounts.issue(store, "ada")[1]
    app = create(home, Options((Path("/"),), rate=1e5, burst=1000))
    head = {"Authorization": f"Bearer {token}"}
    with TestClient(app, "http://127.0.0.1", headers=head) as client:
        asked = client.get("/runs/r/asked").json()
        assert asked["models"] == [state.submitted.model.path]
        checked = client.post("/runs/check", json=asked)
        assert checked.status_code == 200, checked.text
        takes = {kind["name"]: kind["takes"] for kind in client.get("/kinds").json()["kinds"]}
    assert takes["bitnet"] == ["model", "data"]
    assert takes["compression"] == ["model", "students", "data"]


def test_the_best_way_of_rounding_is_chosen_on_another_slice(made) -> None:
    """By the selection slice; the test slice only tells."""
    _, state, _ = made
    tasks = Bitnet().run(state).candidates
    assert set(tasks) == set(WAYS)
    assert {task.on for task in tasks.values()} == {"selection"}
    means = {way: comparison.mean(state.answers[task.key]) for way, task in tasks.items()}
    assert state.completed.untrained == min(means, key=lambda way: means[way])
    worst = max(means, key=lambda way: means[way])
    best = state.answers[tasks[worst].key]
    other = best.model_copy(update={"values": dict.fromkeys(best.values, 0.0)})
    answers = {**state.answers, tasks[worst].key: other}
    assert Bitnet().run(changed(state, completed=None, answers=answers)).known["untrained"] == worst


def test_arms_read_the_same_windows_and_a_recipe_says_everything(made) -> None:
    """Equal tokens, seed and purpose; every default is written out."""
    _, state, _ = made
    trainings = Bitnet().run(state).trainings
    assert list(trainings) == ["full", "master", "scratch-master"]
    keys = {(t.seed, t.purpose, t.steps, t.batch, t.context) for t in trainings.values()}
    assert len(keys) == 1
    for recipe in Bitnet().recipes(state).values():
        whole = complete(recipe) if isinstance(recipe, Train) else operations.complete(recipe)
        assert whole == recipe
    assert trainings["master"].inputs == {"teacher": Bitnet().recipes(state)["start"].id}
    assert trainings["scratch-master"].inputs == {}


def test_the_packed_folder_is_that_of_the_model(made) -> None:
    from transformers.integrations.bitnet import unpack_weights  # imports torch's compiler: seconds

    _, _, out = made
    config = json.loads((out / "packed" / "config.json").read_text())
    assert config["quantization_config"]["linear_class"] == "bitlinear"
    packed = read_folder(out / "packed").tensors()
    whole = open_checkpoint(out / "model").tensors()
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(unpack_weights(packed[name], dtype=torch.float32), whole[name].sign())
    assert "ternary weights in two bits" in (out / "packed" / "README.md").read_text()


def test_models_are_found_by_role_and_tell_where_they_came_from(made) -> None:
    """Without a role, the ternary model; back to the model that was given."""
    home, state, _ = made
    kind = Bitnet()
    with closing(home.open_store()) as store:
        for name, role in (("r", "model"), ("r/champion", "model"), ("r/master", "master")):
            origin = model_origin.find(store, name)
            assert origin is not None
            assert origin.recipe_id == state.completed.models[role].recipe_id
    assert [one.place for one in kind.models.ancestry(state, "")] == [
        "model",
        "master",
        "start",
        "given",
    ]
    with pytest.raises(NotFoundError, match=r"no model 'poetry'\. It has start, full"):
        kind.models.origin(state, (), "poetry")
    assert kind.results(state).keys() == set(kind.roles(None))
    with closing(home.open_store()) as store:
        rows, total = model_registry.listed(store)
    assert total == 2
    assert {row["name"]: row["kind"] for row in rows} == {"r-model": "champion", "r-master": "base"}
    assert {row["digest"] for row in rows} == {m.digest for m in state.completed.models.values()}


def test_its_panels_show_arms_and_curves(made) -> None:
    _, state, _ = made
    shown = overview(state)
    names = [panel.name for panel in shown.panels]
    assert names == ["arms", "quality", "loss", "speed", "norm", "rate", "rounding", "models"]
    arms = shown.panels[0]
    assert isinstance(arms, Arms)
    assert tuple(arm.name for arm in arms.arms) == ARMS
    assert (arms.ours, arms.baseline) == ("model", "full")
    leads = {arm.name: arm.lead for arm in arms.arms}
    assert leads["model"] is None
    means = {arm: comparison.mean(event) for arm, event in Bitnet().run(state).seen.items()}
    for name, lead in leads.items():
        if lead is not None:
            assert lead.value == pytest.approx(means[name] - means["model"])
    assert shown.head.result is not None
    assert shown.head.result.value == pytest.approx(means["model"])
    assert shown_early(state).panels == ()
    text = "\n".join(Bitnet().lines(state) + Bitnet().view.summary(state, ()))
    assert "the best rounding without training" in text.lower()


@pytest.mark.slow
def test_segments_change_no_bit_and_no_lineage(made, toys: Toys, tmp_path, monkeypatch) -> None:
    """Another home, and segments of two steps."""
    _, state, _ = made
    monkeypatch.setenv("FORGE_SEGMENT_STEPS", "2")
    home = Home(tmp_path)
    bitnet_runs.submit(home, toys.base)
    other = bitnet_runs.finish(home)
    assert sum(map(len, other.advanced.values())) > sum(map(len, state.advanced.values()))
    assert other.lineage_digest() == state.lineage_digest()
    assert other.completed.models == state.completed.models


@pytest.mark.slow
def test_everything_is_made_again_by_verify_and_forgeries_are_found(made) -> None:
    home, state, out = made
    found, said = verified_again(home, state.run)
    assert found == []
    kind = Bitnet()
    assert len([line for line in said if "as recorded" in line]) == 11
    recipe = Bitnet().recipes(state)["model"]
    wrong = state.made[recipe.id].model_copy(update={"digest": "0" * 64})
    forged = changed(state, completed=None, made={**state.made, recipe.id: wrong})
    (found,) = rebuilt(home, forged, [recipe.id])
    assert "the log says 000000000000" in found.message
    document = kind.verification.document(out)
    assert document is not None
    assert list(kind.verification.folder(home, out, document, state, True)) == []
    altered = {**document, "models": {**document["models"], "master": "0" * 64}}
    assert len(list(kind.verification.folder(home, out, altered, state, True))) == 2


def test_altered_answers_and_conclusions_are_found(made) -> None:
    """Without any model: figures follow from items, and the end from the events."""
    _, state, _ = made
    kind = Bitnet()
    task = Bitnet().run(state).arms["model"]
    event = state.answers[task.key]
    assert kind.validate_answer(state, task, event) is None
    values = {**event.values, "sums": event.values["sums"] - 0.1}
    assert "do not follow" in (
        kind.validate_answer(state, task, event.model_copy(update={"values": values})) or ""
    )
    recipe = Bitnet().recipes(state)["model"]
    other = state.made[Bitnet().recipes(state)["absmean"].id]
    assert "another recipe" in (kind.validate_answer(state, MakeTask(recipe), other) or "")
    assert list(kind.wrong_result(state)) == []
    forged = changed(state, completed=None)
    forged.completed = state.completed.model_copy(update={"untrained": "poetry"})
    assert list(kind.wrong_result(forged)) == ["the untrained are not those of the events before"]


def test_a_model_is_written_again_where_its_folder_and_cache_are_gone(made, tmp_path) -> None:
    home, state, _ = made
    place = written_again(home, state, tmp_path)
    assert digest(open_checkpoint(place).tensors()) == state.completed.models["model"].digest
    assert (place / "tokenizer.json").exists()
    assert json.loads((place / "training.json").read_text())["role"] == "model"


def test_built_in_text_is_trained_on_by_the_mix_and_measured_by_domain(
    toys: Toys, tmp_path: Path
) -> None:
    """Streams of what the mix weighs, cut by the given model's tokenizer; items of the domains."""
    home = Home(tmp_path)
    settings = {"characters": 100_000, "domains": ["math"], "mix": {"math": 1, "multilingual": 3}}
    planned = Bitnet().plan(RunRequest("bitnet", settings, {"model": [str(toys.base)]}), Lookup())
    state = Bitnet.state()
    told = {"run": "r", "owner": "o", "config": planned.config, **planned.fields}
    state.take(Submitted.model_validate(told))
    context = Context(state, Artifacts.of(home))
    assert sorted(context.text.streams) == ["math", "multilingual"]
    assert list(context.text.held_out(64, "test")) == ["math"]
    tokenizer = load_tokenizer(str(toys.base))
    documents = corpus.corpus(0, 100_000, ["math"])["math"]["train"]
    first = tokenizer(documents[0].text, add_special_tokens=False).input_ids
    ids = context.text.streams["math"].tolist()
    assert ids[: len(first) + 1] == [*first, tokenizer.eos_token_id]


def test_a_forecast_tries_the_start_and_some_steps(made, tmp_path: Path) -> None:
    """With stand-ins in the place of model and master, so that a later phase can be tried."""
    home, state, _ = made
    copied = copy_of(home, tmp_path)
    found = Bitnet().forecast(state.submitted, Artifacts.of(copied), tmp_path / "models")
    assert set(found.models) == {"model", "master"}
    numbers = state.started.model.parameters
    for folder in found.models.values():
        assert open_checkpoint(folder).parameters == numbers
    assert found.seconds.value is not None
    assert found.seconds.value > 0
    assert "of ternary training" in found.seconds.how
    assert "by a part of some" in found.seconds.how
    assert "making feedback" in found.seconds.how
    assert found.disk.value is not None
    assert found.disk.value > 11 * numbers * 4
    assert found.items is not None
    assert found.items.is_file()


def test_its_domains_are_those_that_have_text() -> None:
    """Settings are pure: they import no corpus."""
    assert KNOWN == corpus.KNOWN


def test_what_cannot_run_is_refused_before_any_work(toys: Toys, tmp_path: Path) -> None:
    kind, model = Bitnet(), {"model": [str(toys.base)]}

    def refused(error: type[Exception], match: str, models: Any = None, **settings: Any) -> None:
        with pytest.raises(error, match=match):
            kind.check(kind.plan(RunRequest("bitnet", settings, models or model), Lookup()))

    refused(ConfigError, "is of one model: --model model=MODEL", {"model": []})
    refused(ConfigError, "is of one model", {"model": [str(toys.base)] * 2})
    refused(ConfigError, "no models 'base'", {**model, "base": [str(toys.base)]})
    refused(DataError, "no text of it: it has code, math", domains=["poetry"])
    refused(ConfigError, "each domain once", domains=["code", "code"])
    refused(ConfigError, "groups of 5 columns do not divide", group=5)
    refused(ConfigError, "context is 999999, the model takes", context=999_999)
    refused(ConfigError, "16 cannot be computed in 3 equal parts", accumulation=3)
    refused(ConfigError, "not known: use auto, cpu or cuda:N", device="tpu")
    refused(ConfigError, "rate", rate=0)


def test_a_model_with_nan_is_refused_at_the_start(toys: Toys, tmp_path: Path) -> None:
    """Before anything is recorded, and by the tensor's name."""
    folder = tmp_path / "model"
    shutil.copytree(toys.base, folder)
    tensors = dict(open_checkpoint(folder).tensors())
    tensors["model.norm.weight"] = torch.full((16,), float("nan"))
    write_weights(folder, tensors, SHARD_BYTES)
    home = Home(tmp_path / "home")
    bitnet_runs.submit(home, folder)
    with pytest.raises(ForgeError, match=r"model\.norm\.weight of model .* holds NaN or Inf"):
        bitnet_runs.finish(home)
    assert bitnet_runs.state(home).started is None


def test_a_fork_of_a_started_run_changes_no_setting(made) -> None:
    with pytest.raises(ConfigError, match="cannot change in a fork"):
        Bitnet().forks.check(made[1], {"rate": 1e-3})


@pytest.mark.slow
def test_a_ternary_model_leaves_by_the_command_line(made, tmp_path: Path) -> None:
    """As a packed folder by the run's name; a GGUF type says which size would fit."""
    home, state, out = made
    told = succeeds(home.folder, "export", "r", "--format", "bitnet", "--out", str(tmp_path / "packed"))
    assert "packed matrices" in told.stdout
    written, ours = (read_folder(p).tensors() for p in (tmp_path / "packed", out / "packed"))
    assert digest(written) == digest(ours)
    gguf = ("export", "r", "--format", "gguf", "--type", "TQ2_0", "--out", str(tmp_path / "m.gguf"))
    assert "would fit" in fails(home.folder, 2, *gguf)
    told = succeeds(home.folder, *gguf, "--fallback", "F16")
    assert "F16:" in told.stdout
    assert "--fallback is of another format" in fails(
        home.folder, 2, "export", "r", "--out", str(tmp_path / "x"), "--fallback", "F16"
    )
    assert state.status == "completed"


@pytest.mark.slow
def test_a_phase_of_a_pipeline_passes_or_goes_on_with_its_input(toys: Toys, tmp_path: Path) -> None:
    """Gates read the run's own figures; what the next phase would get is the ternary model."""
    home = Home(tmp_path)
    gates = [
        {"metric": "retention", "at_least": 0.0},
        {"metric": "size", "at_most": 0.0, "otherwise": "pass unchanged"},
    ]
    phase = {
        "name": "ternary",
        "kind": "bitnet",
        "models": {"model": str(toys.base)},
        "data": bitnet_runs.texts(tmp_path / "texts"),
        "settings": {**bitnet_runs.QUICK, "scratch": False, "distillation": 0.0},
        "gates": gates,
    }
    pipeline_runs.submit(home, [phase])
    state = pipeline_runs.finish(home)
    assert [gate.verdict for gate in state.gates[1]] == ["pass", "pass unchanged"]
    child = bitnet_runs.state(home, "p.1-ternary")
    assert child.status == "completed"
    assert set(Bitnet().run(child).seen) == {"start", "full", "model", "untrained"}


def test_the_example_is_a_pipeline_that_can_start() -> None:
    assert kinds_of_example("bitnet") == ["cognate", "bitnet"]


def test_a_terminal_tells_the_arms_and_the_segments(made) -> None:
    """Each training's last loss while it runs; at the end, the comparison and the names of models."""
    home, state, out = made
    view = kind_views.of("bitnet")
    lines = [line for row in bitnet_runs.rows(home) if (line := view.unit(state, row))]
    assert len([line for line in lines if "tokens/s" in line]) >= 3
    assert any(line.startswith("measured model, test: ") for line in lines)
    told = succeeds(home.folder, "show", "r", "--all")
    assert "Ternary beside its alternatives" in told.stdout
    text = announced(state, out, packed_folder=str(out / "packed"))
    assert "ternary training from new weights" in text
    assert f"{out}/packed; items: {out}/items" in text
    assert "as models: r:model, r:master" in text


def test_its_items_are_found_by_their_address(made) -> None:
    """So another run that measures on them gets them made again when their copies are gone."""
    home, state, _ = made
    cache = Artifacts(home.artifacts, home=home)
    file = Bitnet().storage.items_file(state, cache)
    assert inputs.rebuilt_items(home, cache, file.parent.name) == file
    assert inputs.rebuilt_items(home, cache, "0" * 64) is None
