"""What people give by mistake: an error before any work, and nothing is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent_forge.cli.evomerge.evo import read_file
from agent_forge.evomerge.config import parse
from agent_forge.runs.errors import ConfigError
from tests.integration.cli.test_forge import fails, finished, run_of, succeeds

__all__ = ["finished"]


def folder_with_a_diary(tmp_path: Path) -> Path:
    place = tmp_path / "precious"
    place.mkdir()
    (place / "diary.txt").write_text("dear diary")
    return place


@pytest.mark.parametrize("command", [pytest.param("export", marks=pytest.mark.slow), "fork", "evo"])
def test_a_folder_with_other_things_is_never_replaced(finished, tmp_path: Path, command: str) -> None:
    """It was: with everything in it."""
    home, run = finished[0], run_of(finished)
    place = folder_with_a_diary(tmp_path)
    words = {
        "export": ["export", run, "--out", str(place)],
        "fork": ["fork", run, "--generation", "1", "--output-dir", str(place)],
        "evo": ["evo", "--resume", run, "--output-dir", str(place)],
    }[command]
    assert "holds other things" in fails(home, 6, *words)
    assert (place / "diary.txt").read_text() == "dear diary"


@pytest.mark.parametrize("out", ["", ".", ".."])
def test_the_place_where_one_stands_is_never_replaced(finished, out: str) -> None:
    assert "where you are" in fails(finished[0], 2, "export", run_of(finished), "--out", out)


def test_a_file_is_no_output_folder(finished, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    message = fails(finished[0], 2, "export", run_of(finished), "--out", str(tmp_path / "file"))
    assert "is a file" in message


@pytest.mark.slow
def test_an_older_champion_is_replaced_and_an_empty_folder_filled(finished, tmp_path: Path) -> None:
    (tmp_path / "champion").mkdir()
    for _ in range(2):
        succeeds(finished[0], "export", run_of(finished), "--out", str(tmp_path / "champion"))
    assert (tmp_path / "champion" / "model.safetensors").is_file()


@pytest.mark.parametrize("number", ["9223372036854775808", "3000000000", "1000001", "x"])
def test_a_priority_that_no_database_holds_is_refused(finished, number: str) -> None:
    fails(finished[0], 2, "priority", run_of(finished), number)
    succeeds(finished[0], "runs")


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "RUN", "--recompute", "--tolerance", "nan"],
        ["verify", "RUN", "--recompute", "--tolerance", "-1"],
        ["verify", "RUN", "--head", "zz"],
        ["verify", "RUN", "--head", ""],
        ["verify", ".", "--head", "0" * 64],
        ["verify", "RUN", "--rebuild", ""],
        ["runs", "--limit", "99999999999999999999"],
        ["replay", "RUN", "--follow", "--speed", "nan"],
    ],
)
def test_an_option_that_would_be_ignored_or_mean_nothing_is_refused(finished, words) -> None:
    fails(finished[0], 2, *(run_of(finished) if word == "RUN" else word for word in words))


def test_zero_is_a_setting_too(finished) -> None:
    message = fails(finished[0], 2, "evo", "--resume", run_of(finished), "--gens", "0")
    assert "leave out gens" in message


def test_an_archive_replaces_ordinary_files_only(finished, tmp_path: Path) -> None:
    os.symlink("/dev/null", tmp_path / "link")
    for name, code in (("link", 6), ("x" * 300, 2)):
        fails(finished[0], code, "archive", run_of(finished), str(tmp_path / name), "--force")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FORGE_THREADS", "0"),
        ("FORGE_THREADS", "x"),
        ("FORGE_LEASE_SECONDS", "x"),
        ("FORGE_DATABASE_URL", "postgresql://127.0.0.1:notaport/x"),
    ],
)
def test_a_setting_of_the_environment_is_named(finished, monkeypatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    words = ["runs"] if name == "FORGE_DATABASE_URL" else ["evo", "--resume", run_of(finished)]
    assert name in fails(finished[0], 2, *words)


DEEP = "[" * 100_000
MERGED = (
    "a0: &a0 {"
    + ", ".join(f"k{i}: 1" for i in range(10))
    + "}\n"
    + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 10))
)
LISTS = "a0: &a0 [1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 7)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("deep.json", DEEP, "nested too deep"),
        ("deep.yml", DEEP, "nested too deep"),
        ("deep.toml", f"a = {DEEP}", "deep.toml"),
        ("merged.yml", MERGED, "merge keys"),
        ("lists.yml", LISTS, "aliases"),
        ("twice.yml", "seed: 1\nseed: 2\n", "stands twice"),
        ("two.yml", "seed: 1\n---\nseed: 2\n", "several documents"),
    ],
)
def test_a_config_file_that_would_never_be_read_is_refused(
    tmp_path: Path, name: str, text: str, told: str
) -> None:
    """Deep or multiplying files ended in a traceback, or never."""
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=told):
        read_file(str(tmp_path / name))


def test_a_wrong_setting_is_shown_in_a_few_words(tmp_path: Path) -> None:
    """A long list in the place of a number made a message of as many megabytes."""
    (tmp_path / "long.json").write_text(json.dumps({"generations": ["x" * 9] * 100_000}))
    with pytest.raises(ConfigError, match=r"setting generations") as caught:
        parse(read_file(str(tmp_path / "long.json")))
    assert len(str(caught.value)) < 1000
