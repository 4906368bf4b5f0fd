"""The source documents' examples, run as they stand there: `documents.toml` has them, word for word.

A search of the documents has fifty generations of models with 1.5 billion parameters; here the
same call gets toy models, their items and one generation. Nothing else of an example is changed but
what the file names as elided.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import itertools
import json
import logging
import shlex
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from fastapi.testclient import TestClient

from agent_forge import ModelRegistry, documents, evolution
from agent_forge.api.app import create
from agent_forge.api.live import Hub
from agent_forge.api.options import LOOPBACK, Options
from agent_forge.api.state.run_cache import RunReader
from agent_forge.cli.evomerge import evo
from agent_forge.cli.main import forge
from agent_forge.cli.operations.serve import PORT
from agent_forge.cli.operations.up import up_command
from agent_forge.evomerge import config as evomerge_config
from agent_forge.evomerge.recipes.recipe import PIPELINES
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views import outlook
from agent_forge.evomerge_pipeline import BaseModelConfig
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, NotFoundError
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import FURTHER, tracking
from agent_forge.runs.lists import queries
from agent_forge.runs.streams import stream
from agent_forge.weights.folders.sources import ALIASES
from agent_forge.worker import append
from agent_forge.worker.commands import accounts
from testing.models.toys import Toys
from testing.toy.toy_kind import KNOWN
from testing.toy.toy_pipelines import TWO
from testing.waiting import wait_until
from testing.worlds import fake_runs
from testing.worlds.fake_world import RUN

with (Path(__file__).parent / "documents.toml").open("rb") as _file:
    EXAMPLES: list[dict[str, Any]] = tomllib.load(_file)["example"]
#: Fields of an answer by the documents' words for types.
TYPES = {"string": str, "float": (int, float), "int": int, "object": dict}
#: Examples that search: some seconds each, with models.
SEARCHES = {"000 Basic usage", "000 Resume from checkpoint", "001 Python API", "002 Basic usage"}
SEARCHES |= {"002 With progress monitoring", "002 Resume from checkpoint"}


def name_of(example: dict[str, Any]) -> str:
    """The document and the example's title."""
    return f"{example['document']} {example['title']}"


def of_form(*forms: str) -> Any:
    """A parametrisation with the examples of these forms; those that search are slow."""
    return pytest.mark.parametrize(
        "example",
        [
            pytest.param(
                one,
                id=name_of(one).replace("/", "-"),
                marks=[pytest.mark.slow] if name_of(one) in SEARCHES else [],
            )
            for one in EXAMPLES
            if one["form"] in forms
        ],
    )


def text_of(example: dict[str, Any], **names: str) -> str:
    """An example's text, with what it elides."""
    text = example["text"]
    for elided, stands in example.get("elided", {}).items():
        text = text.replace(elided, stands)
    for name, stands in names.items():
        text = text.replace(name, stands)
    return text


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of the test's own, which the environment names, and a folder to be in."""
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return Home.default()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, toys: Toys) -> None:
    """Searches with toy models: their items, one generation, this machine's device."""
    plain = evolution.EvoMerge._evolve
    hub = {
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": toys.sources[0],
        "nvidia/Nemotron-Research-Reasoning-Qwen-1.5B": toys.sources[1],
        "Qwen/Qwen2-1.5B-Instruct": toys.sources[2],
    }

    def smaller(self: Any, models: Any, base: Any, data: Any, *more: Any) -> Any:
        fewer = {"generations": 1, "search_windows": 2, "search_questions": 2, "device": "cpu"}
        self.config = self.config.model_copy(update=fewer)
        models = [hub.get(one, one) if isinstance(one, str) else one for one in models]
        return plain(self, models, base, data or [toys.data], *more)

    monkeypatch.setattr(evolution.EvoMerge, "_evolve", smaller)


def run_python(text: str, names: dict[str, Any]) -> None:
    """Run code whose top level may wait, as a notebook's cell; `asyncio.run` in it works."""
    code = compile(text, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    made = eval(code, names)
    if inspect.iscoroutine(made):
        asyncio.run(made)


def given_to(example: dict[str, Any], toys: Toys, home: Home) -> dict[str, Any]:
    """The names that an example takes for granted."""
    loaded: dict[str, Any] = {}
    if name_of(example) in SEARCHES and "model1" in example["text"]:
        from transformers import AutoModelForCausalLM

        models = [AutoModelForCausalLM.from_pretrained(folder) for folder in toys.sources]
        loaded = {f"model{n}": model for n, model in enumerate(models, start=1)}
    if "load_phase1_models(" in example["text"]:
        registry = ModelRegistry()
        registry.create_session("my_run")
        for source in toys.sources:
            registry.register_model(source, session="my_run")
    return {**loaded, "config": {"phases": TWO}, "SOURCE": toys.sources[0]}


@of_form("python")
def test_an_example_in_python_runs(
    example: dict[str, Any],
    toys: Toys,
    home: Home,
    small: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(FURTHER, KNOWN)
    names = given_to(example, toys, home)
    if "after" in example:
        before = next(one for one in EXAMPLES if name_of(one) == example["after"])
        names |= given_to(before, toys, home)
        run_python(text_of(before), names)
    with caplog.at_level(logging.WARNING):
        run_python(text_of(example), names)
    assert all(names[name] is not None for name in example.get("gives", ()))
    printed = capsys.readouterr().out
    assert all(words in printed for words in example.get("prints", ()))
    config = names["config"]
    if isinstance(config, documents.EvoMergeConfig):
        _, left = config.settings()
        assert sorted(left) == example.get("left_out", [])
        assert config.settings()[0].strategy == example.get("strategy", "elite-loser")
        if name_of(example) in SEARCHES:
            told = [record.getMessage() for record in caplog.records]
            assert all(any(name in line for line in told) for name in left)


def test_a_session_s_progress_is_that_of_the_example(home: Home, toys: Toys) -> None:
    """And the model that it registered is the session's to list."""
    example = next(one for one in EXAMPLES if one["title"] == "SQLite model registry")
    run_python(text_of(example), {"SOURCE": toys.sources[0]})
    assert ModelRegistry().session("session_001").progress == {"phase1": 25.0}
    assert len(ModelRegistry().models("specialist")) == 1


@of_form("settings")
def test_settings_of_a_file_are_taken_or_left_out_with_the_reason(example: dict[str, Any]) -> None:
    given = json.loads(example["text"])
    models = given.pop("base_models", [])
    own, warnings = kinds.of("evomerge").settings.taken(given)
    evomerge_config.parse(own)
    left = example.get("left_out", [])
    assert sorted(warning.split()[1] for warning in warnings) == left
    _, named = documents.EvoMergeConfig(**given).settings()
    assert sorted(named) == left
    assert [ALIASES[model["name"]] for model in models] == [model["path"] for model in models]


def of_the_file() -> dict[str, Any]:
    """All settings that document 001 shows as JSON, in one file."""
    shown = [json.loads(one["text"]) for one in EXAMPLES if one["form"] == "settings"]
    return {name: value for one in shown for name, value in one.items()}


@pytest.fixture
def aliases(monkeypatch: pytest.MonkeyPatch, toys: Toys) -> None:
    """The documents' models stand for toys."""
    for alias, source in zip(ALIASES, toys.sources, strict=True):
        monkeypatch.setitem(ALIASES, alias, str(source))


@of_form("cli")
def test_a_command_line_is_understood(
    example: dict[str, Any], home: Home, tmp_path: Path, aliases: None, toys: Toys
) -> None:
    """Options and their values, up to the plan; the searches themselves are the same as in Python."""
    given = {name: value for name, value in of_the_file().items() if name != "base_models"}
    (tmp_path / "my_evolution_config.json").write_text(json.dumps(given))
    program, command, *words = shlex.split(example["text"])
    assert program == "forge"
    context = click.Context(forge, info_name="forge", **forge.context_settings)
    found = forge.get_command(context, command)
    assert found is not None
    if "--help" in words:
        assert "--base-models" in found.get_help(context)
        return
    parsed = found.make_context(command, [*words], parent=context).params
    if parsed["resume"]:
        assert outlook.generation_of(parsed["resume"]) in (15, 25)
        return
    if "--base-models" not in words:
        with pytest.raises(ConfigError, match="no models are given: --base-models A,B,C"):
            evo.make(parsed, elsewhere=True)
        parsed["base_models"] = ",".join(ALIASES)
    plan = evo.make(parsed, elsewhere=True)
    assert [one.path for one in plan.fields["sources"]] == list(map(str, toys.sources))
    shown = dict(itertools.pairwise(words))
    assert plan.config.generations == int(shown.get("--gens", 50))
    assert plan.config.device == shown.get("--device", "auto")
    assert plan.output_dir == shown.get("--output-dir")


def test_the_documents_file_is_checked_with_warnings_and_refused_if_strict(
    home: Home, toys: Toys, tmp_path: Path
) -> None:
    """Every setting that is left out is told, at the terminal and to programs."""
    given = of_the_file() | {"base_models": [{"name": p.name, "path": str(p)} for p in toys.sources]}
    del given["evaluation_weights"]  # of domains that the toys' items lack
    file = tmp_path / "my_evolution_config.json"
    file.write_text(json.dumps({**given, "data": [str(toys.data)]}))
    told = CliRunner().invoke(forge, ["check", "--config", str(file), "--base-model", str(toys.base)])
    assert told.exit_code == 0, told.output
    left = {name for one in EXAMPLES if one["form"] == "settings" for name in one.get("left_out", ())}
    assert left
    for name in left:
        assert f"warning: setting {name} is left out: " in told.stderr
    strict = CliRunner().invoke(forge, ["check", "--config", str(file), "--strict"])
    assert isinstance(strict.exception, ConfigError)
    assert "setting selection_pressure is refused: " in str(strict.exception)


def test_a_checkpoint_means_the_newest_run_that_came_so_far(home: Home) -> None:
    """A run that has not ended goes on; one that has is forked at the generation."""
    with closing(home.open_store()) as store:
        fake_runs.whole(store)
        assert outlook.meant(store, "checkpoints/evomerge/generation_1.pt") == (RUN, 1)
        fake_runs.submit(store, "half", generations=5)
        fake_runs.finish(store, "half", lambda state: 1 in state.generations)
        assert outlook.meant(store, "x/evolution_checkpoint_gen_1.json") == ("half", None)
        assert outlook.meant(store, "x/evolution_checkpoint_gen_2.json") == (RUN, 2)
        with pytest.raises(NotFoundError, match="no run here has come to generation 30"):
            outlook.meant(store, "checkpoints/evomerge/generation_30.pt")
        with pytest.raises(NotFoundError, match="names no generation"):
            outlook.meant(store, "checkpoints/latest.pt")


def test_resume_takes_a_checkpoint_s_name(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """At the terminal as in Python; the name of a run stays what it is."""
    with closing(home.open_store()) as store:
        fake_runs.whole(store)
        fake_runs.submit(store, "half", generations=5)
        fake_runs.finish(store, "half", lambda state: 0 in state.generations)
        assert evo._checkpoint(home, RUN) == RUN
        assert evo._checkpoint(home, "./evomerge_checkpoints/evolution_checkpoint_gen_0.json") == "half"
        forked = evo._checkpoint(home, "./evomerge_checkpoints/evolution_checkpoint_gen_2.json")
        state = repository.load_of(RunState, store, forked)
        name = queries.names(store, [forked])[forked]
    assert forked not in (RUN, "half")
    assert state.forked.parent == RUN
    assert f"run {name} goes on" in capsys.readouterr().err
    again = documents.EvoMerge(home=home.folder).load_checkpoint("x/generation_2.pt")
    assert again == forked, "the newest run: a command that is repeated goes on with its fork"


def test_settings_may_be_changed_and_unknown_ones_are_refused() -> None:
    config = documents.EvoMergeConfig(early_stopping=False, elite_count=2)
    config.mutation_rate = 0.02
    assert config.mutation_rate == 0.02
    own, left = config.settings()
    assert (own.convergence_patience, own.strategy, left) == (0, "elite-loser", {})
    with pytest.raises(ConfigError, match="poetry is not known"):
        documents.EvoMergeConfig(poetry=1)
    with pytest.raises(ConfigError, match="weight 2 is refused"):
        BaseModelConfig("a", "b", weight=2)


@of_form("wandb")
def test_names_at_a_tracker_are_sent(example: dict[str, Any]) -> None:
    catalogue = kinds.of("evomerge").tracking.names()
    assert tracking.unlisted(catalogue, "summary", example["names"]) == []
    assert len(PIPELINES) == 8


# ---- over HTTP ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A server with a finished run, three registered models and a submitter's token."""
    at = Home(tmp_path_factory.mktemp("documents") / "home")
    with closing(at.open_store()) as store:
        fake_runs.whole(store)
        accounts.add(store, "ada", "submitter")
        token = accounts.issue(store, "ada")[1]
        append.project(store)
    registry = ModelRegistry(at.folder)
    for number, source in enumerate(toys.sources, start=1):
        registry.register_model(source, f"model{number}_id")
    roots, hosts = (toys.base.parent, toys.data.parent), (*LOOPBACK, "testserver")
    options = Options(roots, rate=1e5, burst=100_000, hosts=hosts)
    with TestClient(create(at, options)) as client:
        client.headers["Authorization"] = f"Bearer {token}"
        yield SimpleNamespace(client=client, home=at, token=token)


def answer_of(client: TestClient, method: str, path: str, **sent: Any) -> Any:
    """Return the answer, asked for again while the server says that models are being read."""

    def ready() -> Any:
        answer = client.request(method, path, **sent)
        return None if answer.status_code == 503 and "Retry-After" in answer.headers else answer

    return wait_until(ready, f"{method} {path}")


@of_form("request")
@pytest.mark.slow
def test_a_request_is_answered_in_the_documents_words(
    example: dict[str, Any], server: SimpleNamespace, toys: Toys
) -> None:
    """`POST` in processes that read the models: some seconds for each."""
    line, _, body = text_of(example, SOURCE=str(toys.base)).strip().partition("\n")
    method, path = line.split()
    sent = {"json": yaml.safe_load(body)} if body else {}
    answer = answer_of(server.client, method, path, **sent)
    assert answer.status_code == (201 if method == "POST" else 200), answer.text
    told = answer.json()
    told = told[0] if isinstance(told, list) else told
    for field, type_ in example.get("answer", {}).items():
        assert isinstance(told[field], TYPES[type_]), field


@pytest.mark.slow
def test_an_answer_says_which_settings_are_left_out(server: SimpleNamespace) -> None:
    """Over HTTP, also to a repeated request, and to the socket."""
    config = {"models": ["model1_id", "model2_id", "model3_id"], "num_workers": 4}
    left = "setting num_workers is left out: "
    for _ in range(2):
        sent = {"json": {"config": config}, "headers": {"Idempotency-Key": "left"}}
        answer = answer_of(server.client, "POST", "/phases/evomerge/start", **sent)
        assert [told for told in answer.json()["warnings"] if told.startswith(left)], answer.text
    with server.client.websocket_connect(
        "/ws", headers={"Authorization": f"Bearer {server.token}"}
    ) as socket:
        socket.send_json({"type": "start_phase", "phase": "evomerge", "config": config})
        told = socket.receive_json()
        while told["type"] not in ("started", "error"):
            told = socket.receive_json()
    assert [one for one in told["warnings"] if one.startswith(left)], told


@of_form("send")
@pytest.mark.slow
def test_a_message_to_the_socket_is_understood(
    example: dict[str, Any], server: SimpleNamespace
) -> None:
    header = {"Authorization": f"Bearer {server.token}"}
    with server.client.websocket_connect("/ws", headers=header) as socket:
        assert socket.receive_json()["type"] == "welcome"
        socket.send_json(yaml.safe_load(example["text"]))
        told = socket.receive_json()
        while told["type"] not in (example["answers"], "error"):
            told = socket.receive_json()
        assert told["type"] == example["answers"], told


@of_form("receive")
def test_a_message_from_the_socket_has_the_documents_fields(
    example: dict[str, Any], server: SimpleNamespace
) -> None:
    """Messages about the run's events, and the error that answers a message that is none."""
    found: list[dict[str, Any]] = []
    if example["type"] == "error":
        header = {"Authorization": f"Bearer {server.token}"}
        with server.client.websocket_connect("/ws", headers=header) as socket:
            socket.send_json({"type": "start_phase", "phase": "poetry", "config": {}})
            found += [socket.receive_json(), socket.receive_json()]
    else:
        desk = RunReader(server.home)
        hub = Hub(desk)
        for row in desk.store.iterate(stream("evomerge", RUN)):
            told = hub.tell(row)
            found += [json.loads(text) for text in told.texts] if told else []
        desk.close()
    message = [one for one in found if one["type"] == example["type"]][-1]
    for field, value in yaml.safe_load(example["text"]).items():
        if field == "type":
            continue
        wanted: Callable[[Any], bool] = _like(value)
        assert wanted(message[field]), (field, message[field])


def _like(value: Any) -> Callable[[Any], bool]:
    """A check that a field's value is of the kind that the document shows."""
    if value in TYPES:
        return lambda found: isinstance(found, TYPES[value])
    number = isinstance(value, int | float)
    return lambda found: isinstance(found, (int, float) if number else type(value))


@pytest.mark.parametrize("name", ["serve", "up"])
def test_the_socket_is_at_the_documents_port(name: str) -> None:
    """`ws://localhost:8083/ws` is where a command listens that is given no port."""
    command = forge.get_command(click.Context(forge), name)
    assert command is not None
    with command.make_context(name, []) as asked:
        assert asked.params["port"] == 8083
    assert f"http://127.0.0.1:{PORT}/" in (up_command.help or "")
