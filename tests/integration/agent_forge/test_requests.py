"""A script and a command that ask for the same thing mean the same run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import agent_forge as forge
from agent_forge import pipelines
from agent_forge.cli.main import forge as command
from agent_forge.runs.errors import ConflictError
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import FURTHER
from testing.models.toys import Toys
from testing.toy.toy_kind import KNOWN
from testing.toy.toy_pipelines import TWO

PROMPT = "Answer in one word."


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of the test's own, which the environment names, and a folder to be in."""
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(FURTHER, KNOWN)
    monkeypatch.chdir(tmp_path)
    return Home.default()


@pytest.fixture
def submitted(home: Home, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Submit a run as `forge.run` does, and return its id without carrying it on."""

    def stop(_worker: Any, name: str) -> Any:
        raise InterruptedError(name)

    monkeypatch.setattr(pipelines.runner, "finish", stop)

    def submit(*words: Any, **more: Any) -> str:
        with pytest.raises(InterruptedError) as stopped:
            forge.run(*words, **more)
        return str(stopped.value)

    return submit


def typed(*words: str) -> str:
    """The id of the run that a command submits, or finds."""
    done = CliRunner().invoke(command, [*words, "--detach", "--json"])
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    return json.loads(done.stdout)["run"]


#: Kind → (words of a command, arguments of `forge.run`), by the toys.
Request = tuple[tuple[str, ...], tuple[str, Mapping[str, Any], Mapping[str, Any], list[str]]]


def evo(toys: Toys) -> Request:
    words = ("evo", "--base-models", toys.names, "--base-model", str(toys.base), "--gens", "3")
    models = {"sources": list(map(str, toys.sources)), "base": str(toys.base)}
    call = ("evomerge", {"generations": 3}, models, [str(toys.data)])
    return (*words, "--data", str(toys.data)), call


def cognate(toys: Toys) -> Request:
    return ("cognate", "--preset", "mini"), ("cognate", {"preset": "mini"}, {}, [])


def bake(toys: Toys) -> Request:
    Path("short.txt").write_text(PROMPT)
    words = ["bake", str(toys.base), "--prompt", "short.txt"]
    lengths = {"context_tokens": 24, "reply_tokens": 8}
    for name, value in lengths.items():
        words += ["--set", f"{name}={value}"]
    settings = {"prompts": [PROMPT], **lengths}
    return tuple(words), ("bake", settings, {"model": str(toys.base)}, [])


@pytest.mark.parametrize("first", ["script", "command"])
@pytest.mark.parametrize("request_of", [evo, cognate, bake])
def test_a_script_and_a_command_find_each_other_s_run(
    request_of: Callable[[Toys], Request], first: str, toys: Toys, submitted: Callable[..., str]
) -> None:
    """Whichever comes first; and each finds its own again."""
    words, call = request_of(toys)
    both = [lambda: submitted(*call), lambda: typed(*words)]
    if first == "command":
        both.reverse()
    ids = {ask() for ask in (*both, *both)}
    assert len(ids) == 1
    assert submitted(call[0], {**call[1], "seed": 7}, *call[2:]) not in ids


def test_a_default_that_is_written_and_another_name_of_a_setting_change_nothing(
    toys: Toys, submitted: Callable[..., str]
) -> None:
    _, (kind, _, models, data) = evo(toys)
    run = submitted(kind, {"generations": 3}, models, data)
    same = {"max_generations": 3, "seed": 0, "strategy": "auto"}
    assert submitted(kind, same, models, data) == run
    for other in ({"strategy": "cma-es"}, {"strategy": "tournament"}, {"search_windows": 3}):
        assert submitted(kind, {"generations": 3, **other}, models, data) != run


def test_inputs_that_have_changed_are_another_request(
    toys: Toys, submitted: Callable[..., str], tmp_path: Path
) -> None:
    """Nobody is handed the result of data or weights that were there before."""
    places = [shutil.copytree(toys.sources[0], "model"), shutil.copytree(toys.data, "items")]
    models = {"sources": ["model", str(toys.sources[1])], "base": str(toys.base)}
    run = submitted("evomerge", {}, models, ["items"])
    assert submitted("evomerge", {}, models, ["items"]) == run
    file = sorted(Path(places[1]).glob("*.jsonl"))[0]
    file.write_text(file.read_text() + file.read_text().splitlines()[0].replace('"id": "', '"id": "x'))
    more = submitted("evomerge", {}, models, ["items"])
    assert more != run
    for weights in Path("model").glob("*.safetensors"):
        shutil.copy(toys.sources[2] / weights.name, weights)
    assert submitted("evomerge", {}, models, ["items"]) not in (run, more)


def test_a_key_begins_a_run_of_its_own_and_means_one_request(home: Home) -> None:
    first = forge.run("toy", {"steps": 2})
    other = forge.run("toy", {"steps": 2}, key="again")
    assert other.run != first.run
    assert typed("start", "toy", "--set", "steps=2", "--key", "again") == other.run
    with pytest.raises(ConflictError, match="key 'again' started run"):
        forge.run("toy", {"steps": 3}, key="again")


def test_a_request_after_a_cancelled_run_begins_another(home: Home) -> None:
    words = ("start", "toy", "--set", "steps=2")
    cancelled = typed(*words)
    forge.cancel(cancelled)
    ended = forge.run("toy", {"steps": 2})
    assert ended.run != cancelled
    assert typed(*words) == ended.run


def test_a_command_again_gives_the_result_of_a_script_s_run_at_once(home: Home) -> None:
    """It says whose run that is, and writes the folder that this command names."""
    ended = forge.run("toy", {"steps": 2})
    words = ["start", "toy", "--set", "steps=2", "--out", "there"]
    with closing(home.open_store()) as store:
        before = repository.load(store, ended.run).version
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    assert "of the same request is completed; --key TEXT begins another one" in done.stderr
    assert Path("there").is_dir()
    with closing(home.open_store()) as store:
        rows = list(store.iterate(repository.named_stream(store, ended.run)))[before:]
    assert [row.type for row in rows] == ["exported"]


#: A pipeline of one phase.
ONE = [{"name": TWO[0]["name"], "kind": TWO[0]["kind"]}]


def test_an_orchestrator_and_a_command_mean_the_same_pipeline(home: Home) -> None:
    """Wherever the file lies; with reuse it is another one."""
    lines = [f'[[phase]]\nname = "{phase["name"]}"\nkind = "{phase["kind"]}"\n' for phase in ONE]
    Path("p.toml").write_text("\n".join(lines))
    with forge.PipelineOrchestrator({"phases": ONE}) as pipeline:
        pass
    assert typed("pipeline", "run", "p.toml") == pipeline.run
    assert typed("pipeline", "run", "p.toml", "--output-dir", "out") == pipeline.run
    assert typed("pipeline", "run", "p.toml", "--reuse") != pipeline.run
