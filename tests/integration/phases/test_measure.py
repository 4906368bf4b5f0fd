"""A measurement of toy models: whole, against transformers alone, and refused."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, DataError, SourceChangedError
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.runs.kinds.wording import figure_text
from agent_forge.runs.lists import queries
from agent_forge.studies.making.making import MakingState
from agent_forge.weights.recipes import Source
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import submit
from agent_forge.worker.commands import submit as commands_submit
from agent_forge.worker.tasks import runner
from testing.kind_runs import KindRuns, record
from testing.models.toys import Toys
from tests.integration.cli.test_forge import call

KIND: Any = kinds.of("measure")
RUNS = KindRuns[MakingState]("measure", "m")
state = RUNS.state
TEXTS = [
    {"id": f"{domain}{n}", "domain": domain, "slice": slice_, "text": f"{word} é {n} " * (8 * n)}
    for domain, word in (("animals", "a cat and a dog"), ("numbers", "one and two"))
    for n, slice_ in ((1, "test"), (2, "test"), (3, "test"), (4, "search"))
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("measured") / "texts.jsonl"
    file.write_text("".join(json.dumps(text) + "\n" for text in TEXTS), "utf-8")
    return file


@pytest.fixture(scope="module")
def measured(toys: Toys, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a measurement `m` of the first source beside the others."""
    home = Home(tmp_path_factory.mktemp("home"))
    carried(home, asked(toys, data))
    return home


def asked(toys: Toys, data: Path, **changes: object) -> RunRequest:
    first, second, third = map(str, toys.sources)
    models = {"model": [first], "against": [second, third], "first": [str(toys.base)], **changes}
    return RunRequest("measure", {"context": 16}, models, [str(data)])


def carried(home: Home, wanted: RunRequest, run: str = "m") -> MakingState:
    """Submit a measurement and carry it to its end."""
    plan = submit.plan(wanted)
    submit.check(plan)
    return RUNS.finish(home, record(home, plan, run))


def test_values_are_those_of_transformers_alone(measured: Home, toys: Toys) -> None:
    """In windows of 16 tokens, each with one token of the window before."""
    found = KIND.run(state(measured)).seen
    tokenizer = AutoTokenizer.from_pretrained(toys.sources[0])
    model = AutoModelForCausalLM.from_pretrained(toys.sources[0]).float().eval()
    model.requires_grad_(False)
    own = found[state(measured).started.roles["model"][0]]
    for domain in ("animals", "numbers"):
        for place in range(3):
            text = next(t for t in TEXTS if t["id"] == f"{domain}{place + 1}")["text"]
            ids = [tokenizer.eos_token_id, *tokenizer.encode(text, add_special_tokens=False)]
            nats = 0.0
            for at in range(0, len(ids) - 1, 15):
                window = torch.tensor([ids[at : at + 16]])
                loss = model(window, labels=window).loss
                nats += float(loss) * (window.shape[1] - 1)
            assert own.items[domain][place] == pytest.approx(nats, rel=1e-5)
            assert own.sizes[domain][place] == len(text.encode())


def test_a_measurement_says_what_it_found(measured: Home) -> None:
    done = state(measured)
    assert set(done.completed.figures) == set(KIND.figures_of)
    sizes = {one.recipe_id: 4 * one.parameters for one in done.started.sources}  # all are float32
    assert done.started.bytes == sizes
    roles = {role: len(ids) for role, ids in done.started.roles.items()}
    assert roles == {"model": 1, "against": 2, "first": 1}
    assert done.started.documents == {"animals": 3, "numbers": 3}
    assert "domain animals has 3 documents: intervals are rough." in done.started.warnings
    shown = call(measured, "show", "m", "--all")
    assert "quality kept of the best input" in shown.output
    assert "Bits per byte by domain: On 6 whole documents" in shown.output
    told = call(measured, "start", "--resume", "m").output
    kept = done.completed.figures["retention"]
    assert kept.n == 6
    assert f"{figure_text(KIND, 'retention', kept)}  on 6 documents" in told


def test_the_list_of_models_has_the_bits_of_the_newest_measurement(measured: Home) -> None:
    """A model is known by its weights there, and by the recipe of a given model here."""
    done = state(measured)
    (id_,) = done.started.roles["model"]
    given = next(one for one in done.started.sources if one.recipe_id == id_)
    bits = done.completed.figures["bits_per_byte"].value
    with closing(measured.open_store()) as store:
        assert queries.measured(store, [Source(digest=given.digest).id, "other"]) == {id_: bits}


def test_a_model_that_was_changed_after_the_start_is_refused(
    toys: Toys, data: Path, tmp_path: Path
) -> None:
    """The run has its own copy; without that, the changed folder is no longer the model."""
    changed = Path(shutil.copytree(toys.sources[0], tmp_path / "model"))
    home = Home(tmp_path / "home")
    plan = submit.plan(asked(toys, data, model=[str(changed)]))
    with closing(home.open_store()) as store:
        commands_submit.submit(store, plan, "m")
        one = runner.WorkerProcess(
            store, Artifacts.of(home), lambda *_: None, lambda: bool(started(store))
        )
        one.run("m")
        shutil.rmtree(changed)
        shutil.copytree(toys.sources[1], changed)
        shutil.rmtree(home.artifacts / "models")
        with pytest.raises(SourceChangedError, match="has changed since the run started"):
            runner.finish(runner.WorkerProcess(store, Artifacts.of(home)), "m")


def started(store: object) -> object:
    return repository.load(store, "m").started


def test_bad_input_is_named_before_any_work(toys: Toys, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no models 'rivals'"):
        submit.plan(asked(toys, data, rivals=["x"]))
    with pytest.raises(ConfigError, match="of one model"):
        submit.plan(asked(toys, data, model=[]))
    questions = tmp_path / "questions.jsonl"
    row = {"id": "q", "domain": "d", "slice": "test", "prompt": "1", "choices": ["2", "3"], "answer": 0}
    questions.write_text(json.dumps(row) + "\n")
    with pytest.raises(DataError, match="no text in the slice test"):
        submit.check(submit.plan(asked(toys, questions)))
