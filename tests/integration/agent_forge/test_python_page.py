"""The examples of docs/python.md, which are those of the docstrings, run in the order of the page."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import agent_forge as forge
from agent_forge.runs.errors import ConfigError, ConflictError, NotFoundError, SourceError
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import FURTHER
from agent_forge.runs.kinds.controls import CONTROLS
from testing.models.toys import Toys
from testing.toy import toy_pipelines, toy_runs
from testing.toy.toy_kind import KNOWN

ROOT = Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
assert SPEC is not None
assert SPEC.loader is not None
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)
#: The run in examples of control.
RUN = "20261121-3fa9c1"
#: What an example says → what a test of seconds runs in its place.
QUICK = {
    '{"generations": 8}': '{"generations": 1, "search_windows": 2, "search_questions": 2}',
    "generations=8": "generations=1, search_windows=2, search_questions=2",
    '{"preset": "mini"}': '{"preset": "mini", "base_tokens": 4096, "specialist_tokens": 2048}',
    '"compression", models': '"compression", {"settings": ["rtn-4"], "mixtures": 2}, models',
}


def examples(*names: str) -> list[tuple[str, str]]:
    """(name, code) of the examples of public names, in the order of the page."""
    blocks: list[tuple[str, str]] = []
    for name in names:
        text = "\n".join(generate.reference(name))
        blocks += [(name, code) for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
    return blocks


def every_name() -> list[str]:
    """All names of the page, in its order."""
    return [name for _, names in generate.PYTHON_PARTS.values() for name in names]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of the test's own, which the environment names, and a folder to be in."""
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(FURTHER, KNOWN)
    monkeypatch.chdir(tmp_path)
    return Home.default()


@pytest.fixture
def there(toys: Toys) -> None:
    """The models, items and the pipeline that the examples name, in the current folder."""
    for name, folder in zip(("base", "code", "math"), (toys.base, *toys.sources), strict=False):
        shutil.copytree(folder, Path("models") / name)
    shutil.copytree(toys.data, "items")
    Path("examples").mkdir()
    phases = '[[phase]]\nname = "one"\nkind = "toy"\n[[phase]]\nname = "two"\nkind = "toy"\n'
    Path("examples/speedrun.toml").write_text(phases)


def test_every_public_name_is_on_the_page_or_is_the_documents_own() -> None:
    """The classes of the specification have a page of their own, docs/documents.md."""
    documents = {"EvoMergePipeline", "create_cognate_models", "ADASOptimizer", "BitNetQuantizer"}
    documents |= {"CapabilityBaker", "FinalCompressor", "ForgeTrainer", "QuietSTaR"}
    assert set(every_name()) == {*forge.__all__, "open"} - documents


def test_every_name_has_an_example() -> None:
    without = {"EvoMergeConfig", "EvoMergeResult"}  # in that of EvoMerge
    assert {name for name, _ in examples(*every_name())} == set(every_name()) - without


def test_every_word_of_the_table_is_a_function_with_its_arguments() -> None:
    for word, asked in CONTROLS.items():
        parameters = list(inspect.signature(getattr(forge, word)).parameters)
        value = [asked.value] if asked.value else []
        reason = ["reason"] if asked.takes_reason else []
        assert parameters == ["run", *value, *reason, "home"]


@pytest.mark.slow
def test_the_examples_run_in_the_order_of_the_page(home: Home, there: None) -> None:
    """Each finds what those before it have made."""
    names: dict[str, Any] = {"forge": forge}
    for name, example in examples(*(name for name in every_name() if name not in CONTROLS)):
        if name == "ask":  # of a run that waits: below
            continue
        code = example
        for words, quick in QUICK.items():
            code = code.replace(words, quick)
        exec(compile(code, f"docs/python.md {name}", "exec"), names)
    assert names["result"].artifacts["run"] == names["best"].run  # the same request
    assert names["read"].status == "completed"
    assert json.loads(Path("champion/report.json").read_text())["run"] == names["best"].run
    assert Path("code.gguf").read_bytes()[:4] == b"GGUF"
    assert Path("small/model.forge").is_file()
    assert names["code"].components.bits_per_byte > 0
    assert names["model"].config.vocab_size == names["small_model"].config.vocab_size == 320
    assert len(names["coded_tokenizer"]) == len(names["tokenizer"])
    assert names["branch"] not in (names["best"].run,)
    assert names["changed"].run == names["branch"]
    assert Path("my-home/forge.db").is_file()
    assert [each.name for each in forge.sessions()] == ["session_001"]


def prepared(home: Home, word: str) -> str:
    """Submit a run in the state in which a word makes sense; return the state's expected status."""
    if word == "override":
        gated = toy_pipelines.phase("merge", {"metric": "total", "at_least": 1e12})
        toy_pipelines.submit(home, [gated], RUN)
        toy_runs.carry_until(home, lambda state: state.failed is not None, RUN)
        return ""
    failing: dict[str, Any] = {"failing": "count/0/0"} if word == "retry" else {}
    toy_runs.submit(home, RUN, **failing)
    if word == "resume":
        forge.pause(RUN)
    if word == "retry":
        toy_runs.carry_until(home, lambda state: state.failed is not None, RUN)
    return {"pause": "paused", "ask": "paused", "cancel": "cancelled"}.get(word, "submitted")


@pytest.mark.parametrize("word", [*CONTROLS, "ask"])
def test_the_example_of_a_word_is_obeyed(home: Home, word: str) -> None:
    """In the state that the word is for; in another state it is refused as the command is."""
    expected = prepared(home, word)
    ((_, code),) = examples(word)
    exec(compile(code, f"docs/python.md {word}", "exec"), {"forge": forge})
    with closing(home.open_store()) as store:
        rows = list(repository.history(store, RUN))
        state = repository.load(store, RUN)
    assert rows[-1].actor
    if expected:
        assert state.status == expected or word == "retry"
    if word == "priority":
        assert state.priority == 10
    if word == "rename":
        assert forge.Run("first-try").name == RUN
    if word == "override":
        assert state.failed is None
    if word not in ("retry", "priority", "rename", "override"):
        with pytest.raises(ConflictError):
            exec(code, {"forge": forge})


def test_the_errors_are_those_of_the_commands(home: Home, there: None) -> None:
    with pytest.raises(SourceError, match="neither a folder here, nor a GGUF file"):
        forge.load("nothing")
    with pytest.raises(NotFoundError, match="run 'nothing' is not known"):
        forge.pause("nothing")
    with pytest.raises(NotFoundError):
        forge.carry_on("nothing")
    with pytest.raises(ConfigError, match="there is no format 'onnx': use folder, gguf"):
        forge.export("models/code", "out", "onnx")
    with pytest.raises(ConfigError, match="needs --type int8 or --type int4"):
        forge.export("models/code", "out", "compressed-tensors")
    with pytest.raises(ConfigError, match="an endpoint holds one model"):
        forge.score(["models/code", "models/math"], endpoint="http://localhost:1/v1")
    with pytest.raises(ConfigError, match="there are no models to score"):
        forge.score([])
    with pytest.raises(ConfigError, match="FORGE_DATABASE_URL is neither"):
        forge.open("there", database="mysql://x")
    with pytest.raises(TypeError, match="missing a required argument: 'reason'"):
        forge.override("r", "merge")


def test_a_loaded_model_is_scored_and_exported_too(home: Home, there: None) -> None:
    """One model gives one score, not a list."""
    model = forge.load("models/code")
    by_name, loaded = (forge.score(each, ["items"]) for each in ("models/code", model))
    assert loaded.components == by_name.components
    forge.export(model, "loaded.gguf", "gguf", type="F32")
    assert Path("loaded.gguf").read_bytes()[:4] == b"GGUF"


def test_a_database_may_lie_elsewhere(tmp_path: Path) -> None:
    place = forge.open(tmp_path / "home", database=f"sqlite:///{tmp_path / 'log.db'}")
    assert (tmp_path / "log.db").is_file()
    assert not place.database.exists()
    assert forge.sessions(place) == []
