"""A user without a home folder: no HOME, no entry in passwd, as in a container with a random uid."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest
from huggingface_hub import constants

from agent_forge.evaluation.data import items
from agent_forge.evaluation.lm_eval import spec
from agent_forge.evomerge.mergekit.parser import ModelPath
from agent_forge.runs import home
from agent_forge.runs.errors import DataError, SourceError, UnavailableError
from agent_forge.runs.home import Home
from agent_forge.weights.folders import sources


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the user's home folder and entry away."""

    def none(uid: int) -> object:
        raise KeyError(uid)

    for name in ("HOME", "FORGE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", none)


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("variable", ["FORGE_HOME", "XDG_DATA_HOME"])
def test_a_named_home_needs_no_home_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    """The user's home folder was looked up even if nothing is to be in it."""
    monkeypatch.setenv(variable, str(tmp_path))
    assert Home.default().folder.is_relative_to(tmp_path)


@pytest.mark.usefixtures("nobody")
def test_a_home_that_nothing_names_says_what_to_set() -> None:
    with pytest.raises(UnavailableError, match=r"no home folder: HOME is not set.*Set FORGE_HOME"):
        Home.default()


@pytest.mark.usefixtures("nobody")
def test_a_path_with_a_tilde_is_refused_by_its_name() -> None:
    """Wherever users write paths."""
    with pytest.raises(DataError, match=r"'~/x.jsonl' begins with ~"):
        items.absolute("~/x.jsonl")
    with pytest.raises(DataError, match=r"'~/x.yaml' begins with ~"):
        spec.absolute("lm-eval:~/x.yaml")
    with pytest.raises(SourceError, match="'~/model' begins with ~"):
        sources.resolve("~/model")
    assert ModelPath.parse("~/model+lora") == ModelPath("~/model", "lora")


@pytest.mark.usefixtures("nobody")
def test_the_hub_s_cache_is_in_no_folder_called_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Hub's library would make one where the program was started."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", "~/.cache/huggingface/hub")
    with pytest.raises(UnavailableError, match="Set HF_HOME"):
        sources.resolve("owner/name")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", "/somewhere")
    home.check_hub_cache()
