"""`forge init`: the file that it writes is one that `forge check` and `forge evo` take."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from agent_forge.cli.evomerge.init import EXAMPLES, Inputs, content
from agent_forge.evaluation.data.builtin import corpus
from agent_forge.evomerge import config
from agent_forge.evomerge.config import STRATEGIES
from agent_forge.evomerge.settings_table import settings
from agent_forge.runs.errors import ConfigError
from testing.models.toys import Toys
from tests.integration.cli.test_forge import call, succeeds


def model(folder: Path) -> None:
    """A folder that looks like a model."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")


def uncommented(text: str) -> dict:
    """The file as it is once the # before every setting is removed."""
    return tomllib.loads(re.sub(r"(?m)^#(?=\w)", "", text))


def test_the_file_is_taken_as_it_is(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the models in `models`; the next command that it prints works."""
    monkeypatch.chdir(toys.base.parent.parent)
    file = tmp_path / "run.toml"
    made = succeeds(tmp_path, "init", str(file), "--data", str(toys.data))
    found = tomllib.loads(file.read_text("utf-8"))
    assert found["base_models"] == [f"models/{place.name}" for place in toys.sources]
    assert found["base_model"] == "models/base"
    assert f"forge check --config {file}" in made.stdout
    assert f"forge evo --config {file}" in made.stdout
    succeeds(tmp_path, "check", "--config", str(file))
    begun = succeeds(tmp_path, "evo", "--config", str(file), "--detach")
    assert "submitted" in begun.stdout


def test_a_file_that_is_there_is_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names it, and its exit code is 2; a link that leads nowhere counts, too."""
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text("mine")
    Path("link.toml").symlink_to("elsewhere.toml")
    for name in ("run.toml", "link.toml"):
        error = call(tmp_path, "init", name).exception
        assert isinstance(error, ConfigError)
        assert error.exit_code == 2
        assert name in str(error)
    assert Path("run.toml").read_text() == "mine"
    assert not Path("elsewhere.toml").exists()


def test_without_data_it_says_what_models_are_scored_on(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For models of law or German that is Python's library: neither command said a word."""
    monkeypatch.chdir(toys.base.parent.parent)
    words = "scored on Python code, arithmetic and tables, which may not be what your models are for"
    made = call(tmp_path, "init", str(tmp_path / "run.toml"))
    assert f"data      none: {words}" in made.stdout
    monkeypatch.setattr(corpus, "CHARACTERS", 500_000)
    named = ("--base-models", ",".join(map(str, toys.sources)), "--base-model", str(toys.base))
    assert f"warning: no data: {words}." in call(tmp_path, "check", *named).stderr
    assert "no data" not in call(tmp_path, "check", *named, "--data", str(toys.data)).stderr


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_setting_may_be_uncommented(strategy: str) -> None:
    """The values are the strategy's defaults, and all settings that it alone has are there."""
    data = uncommented(content(Inputs(), strategy))
    assert data.pop("base_models")
    assert data.pop("base_model")
    assert data.pop("data")
    parsed = config.parse(data)
    plain = {key: value for key, value in data.items() if key not in EXAMPLES}
    assert parsed.strategy == strategy
    assert config.parse(plain) == config.parse({"strategy": strategy})
    own = {setting.name for setting in settings() if strategy in setting.strategies}
    assert own - {"path_blocks"} <= data.keys()
    assert data["budget_hours"] == "1h"


def test_descriptions_come_from_the_table_of_settings() -> None:
    """The first sentence of each, as a comment above the setting."""
    text = " ".join(re.sub(r"(?m)^# ?", "", content(Inputs(), "auto")).split())
    for setting in settings():
        if setting.name in uncommented(content(Inputs(), "auto")):
            assert setting.description.partition(". ")[0].rstrip(".") in text, setting.name


def test_what_is_given_goes_before_what_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name with quotes is written as TOML has it."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "base"):
        model(tmp_path / name)
    words = ["--base-models", 'org/x,it"s\\y', "--base-model", "org/z", "--data", "d", "--data", "e"]
    made = succeeds(tmp_path, "init", *words, "--json")
    told = json.loads(made.stdout)
    assert (told["file"], told["base_model"], told["data"]) == ("run.toml", "org/z", ["d", "e"])
    assert told["next"] == ["forge check --config run.toml", "forge evo --config run.toml"]
    found = tomllib.loads(Path("run.toml").read_text("utf-8"))
    assert found["base_models"] == ["org/x", 'it"s\\y']
    assert found["base_model"] == "org/z"
    assert found["data"] == ["d", "e"]


def test_models_are_looked_for_here_and_then_in_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One model alone (the champion of an earlier run, say) is no pair of sources."""
    monkeypatch.chdir(tmp_path)
    model(tmp_path / "champion")
    for name in ("math", "code", "base", ".hidden"):
        model(tmp_path / "models" / name)
    (tmp_path / "models" / "items").mkdir()
    (tmp_path / "models" / "items" / "a.jsonl").write_text("")
    succeeds(tmp_path, "init")
    found = tomllib.loads(Path("run.toml").read_text("utf-8"))
    assert found["base_models"] == ["models/code", "models/math"]
    assert (found["base_model"], found["data"]) == ("models/base", ["models/items"])
    model(tmp_path / "other")
    succeeds(tmp_path, "init", "here.toml", "--base-model", "other")
    assert "models/code" in Path("here.toml").read_text("utf-8")
    model(tmp_path / "third")
    succeeds(tmp_path, "init", "all.toml")
    found = tomllib.loads(Path("all.toml").read_text("utf-8"))
    assert found["base_models"] == ["./champion", "./other", "./third"]
    assert "base_model" not in found


def test_without_models_the_file_has_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are comments: the file names no model that is not there."""
    monkeypatch.chdir(tmp_path)
    made = succeeds(tmp_path, "init")
    assert "fill in base_models" in made.stdout
    text = Path("run.toml").read_text("utf-8")
    assert tomllib.loads(text).keys() == {"strategy", "generations"}
    assert '#base_models = ["models/code", "models/math"]' in text


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["run.yaml"], "TOML"),
        (["--strategy", "guess"], "guess"),
        (["--base-models", "a\x1b[2J"], "U\\+001B"),
        (["nowhere/run.toml"], "cannot be written"),
    ],
)
def test_bad_input_is_refused_and_writes_nothing(
    words: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with exit code 2 and the reason."""
    monkeypatch.chdir(tmp_path)
    error = call(tmp_path / "home", "init", *words).exception
    assert isinstance(error, ConfigError)
    assert re.search(why, str(error))
    assert not list(tmp_path.iterdir())
