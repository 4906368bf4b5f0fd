"""Pipelines started over the API: their file is checked whole, and only allowed folders are read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from fastapi.testclient import TestClient

from agent_forge.runs import kinds
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import FURTHER
from agent_forge.runs.kinds.asked import NamedInputs
from agent_forge.worker.commands import accounts
from testing.models.toys import Toys
from testing.toy import toy_runs
from testing.toy.toy_kind import KNOWN
from testing.toy.toy_pipelines import TWO
from tests.integration.kinds.test_api import post, served

TEXTS = [
    {"id": f"t{n}", "domain": "all", "slice": slice_, "text": f"a cat and {n} " * 20}
    for n, slice_ in enumerate(("test", "test", "search"))
]
TOML = """\
# Comments are kept by nobody but the user.
test = "texts.jsonl"

[aliases]
mine = "code"

[[phase]]
name = "first"
kind = "toy"
settings = { seed = 1 }
gate = { metric = "total", at_least = 1 }

[[phase]]
name = "look"
kind = "measure"
models = { model = "base", against = ["mine"] }
data = "texts.jsonl"
settings = { context = 16 }
[[phase.gate]]
metric = "bits_per_byte"
at_most = 1000.0
"""


@dataclass
class Site:
    """A server that reads two toy models and a file of texts, asked by `eve`, a submitter."""

    client: TestClient
    home: Home
    #: The folder of the allowed folder `models`.
    folder: Path

    def as_(self, name: str, role: Literal["viewer", "submitter"]) -> dict[str, str]:
        """Return the header of another user."""
        with closing(self.home.open_store()) as store:
            accounts.add(store, name, role)
            return {"Authorization": f"Bearer {accounts.issue(store, name)[1]}"}

    def runs(self) -> list[str]:
        """Return the names of all runs."""
        return sorted(row["run"] for row in self.client.get("/runs?limit=500").json()["runs"])


@pytest.fixture(scope="module")
def site(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One server for all tests."""
    folder = tmp_path_factory.mktemp("site")
    home = Home(folder / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FURTHER, KNOWN)
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))  # where `testing` lies
        with served(home, folder / "models") as client:
            for name, model in (("base", toys.base), ("code", toys.sources[0])):
                shutil.copytree(model, folder / "models" / name)
            lines = "".join(json.dumps(text) + "\n" for text in TEXTS)
            for place in ("models/texts.jsonl", "outside.jsonl"):
                (folder / place).write_text(lines, "utf-8")
            shutil.copytree(toys.base, folder / "secret")
            (folder / "models" / "link").mkdir()
            link = folder / "models" / "link" / "config.json"
            link.symlink_to(folder / "secret" / "config.json")
            site = Site(client, home, folder)
            client.headers.update(site.as_("eve", "submitter"))
            yield site


def refusal(site: Site, **body: Any) -> str:
    """Return the detail with which a check and a start refuse a pipeline; nothing is recorded."""
    before = site.runs()
    told = [
        post(site.client, path, 422, kind="pipeline", **body)["detail"]
        for path in ("/runs/check", "/runs")
    ]
    assert told[0] == told[1]
    assert site.runs() == before
    return told[0]


def test_a_file_is_checked_started_and_worked_off(site: Site) -> None:
    """Names mean what they mean to the server; runs of the phases are their user's."""
    before = site.runs()
    checked = post(site.client, "/runs/check", 200, kind="pipeline", file=TOML)
    assert checked["ok"]
    assert site.runs() == before
    asked = {"kind": "pipeline", "file": TOML, "labels": ["big"], "reason": "why not"}
    run = post(site.client, "/runs", 201, **asked)["run"]
    first = toy_runs.state(site.home, run).submitted
    models = site.folder / "models"
    assert {name: (one.name, one.path) for name, one in first.given.items()} == {  # pyright: ignore
        "base": ("base", str(models / "base")),
        "mine": ("mine", str(models / "code")),
    }
    assert first.test == (str(models / "texts.jsonl"),)  # pyright: ignore
    assert (first.owner, first.reason, first.labels) == ("eve", "why not", ("big",))
    assert toy_runs.rows(site.home, run)[0].actor == "eve"
    assert toy_runs.finish(site.home, run).completed
    rows = site.client.get(f"/runs?q={run}").json()["runs"]
    assert {row["run"] for row in rows} == {run, f"{run}.1-first", f"{run}.2-look"}
    assert {(row["owner"], row["status"]) for row in rows} == {("eve", "completed")}
    panels = {one["name"]: one for one in site.client.get(f"/runs/{run}/panels").json()["panels"]}
    gates = [(one["metric"]["name"], one["verdict"]) for one in panels["gates"]["gates"]]
    assert gates == [("total", "pass"), ("bits per byte", "pass")]


@pytest.mark.parametrize("path", ["/runs", "/phases/pipeline/start", "/phases/start"])
def test_the_same_settings_may_come_as_json(site: Site, path: str) -> None:
    body = {"kind": "pipeline", "config": {"phases": TWO}}
    run = post(site.client, path, 201, **body)["run"]
    assert toy_runs.finish(site.home, run).completed


def test_the_documents_form_has_a_file_too(site: Site) -> None:
    body = {"phase_name": "pipeline", "config": {"file": TOML, "reason": "as they write it"}}
    told = post(site.client, "/phases/start", 201, **body)
    assert told["phase"] == "pipeline"
    assert toy_runs.state(site.home, told["run"]).submitted.reason == "as they write it"


def test_a_key_means_one_pipeline(site: Site) -> None:
    body, key = {"kind": "pipeline", "file": TOML}, {"Idempotency-Key": "once"}
    first = site.client.post("/runs", json=body, headers=key)
    second = site.client.post("/runs", json=body, headers=key)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    other = site.client.post("/runs", json={**body, "file": TOML + "\n"}, headers=key)
    assert other.status_code == 200  # a blank line is the same pipeline
    changed = {**body, "file": TOML.replace("seed = 1", "seed = 2")}
    assert site.client.post("/runs", json=changed, headers=key).status_code == 409


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("at_least = 1 }", "at_leats = 1 }", "the file, line 11: a gate has no 'at_leats'"),
        ('kind = "toy"', 'kynd = "toy"', "the file, line 9: a phase has no 'kynd'"),
        ('[[phase]]\nname = "look"', '[[phase]\nname = "look"', "the file: Expected ']]'"),
        ('kind = "toy"', 'kind = "tow"', "phase first: there is no kind of run 'tow'"),
        ("seed = 1", "sead = 1", "phase first: settings of a toy run: sead: there is no such"),
        ("seed = 1", "seed = 1979-05-27", "1979-05-27 is no setting"),
        ("seed = 1", "seed = inf", "inf is no setting"),
        ("seed = 1", "seed = 0x" + "f" * 5000, "a number has more than 64 bits"),
        ("seed = 1", "seed = " + "9" * 5000, "the file: "),
        ("seed = 1", "seed = " + "[" * 4000 + "]" * 4000, "the file is nested too deeply"),
        ("seed = 1", "seed = 1, a." + "a." * 3000 + "a = 1", "the file is nested too deeply"),
        ("seed = 1", 'note = "\\u0007"', "the text holds the character U+0007"),
        ('model = "base"', 'model = "first:other"', "phase first gives first:total"),
        ('model = "base"', 'model = "look"', "phase look is given look of itself"),
        ("gate = { m", 'models = { a = "look" }\ngate = { m', "look, which comes later"),
        ('model = "base", ', "", "phase look: "),
        ("at_most = 1000.0", 'at_most = 1000.0\notherwise = "pass"', "Input should be 'stop'"),
        ('metric = "bits_per_byte"', 'metric = "smell"', "its gate asks for smell"),
        ('name = "look"', 'name = "first"', "two phases are called first"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(
    site: Site, before: str, after: str, words: str
) -> None:
    assert before in TOML
    assert words in refusal(site, file=TOML.replace(before, after, 1))


@pytest.mark.parametrize("place", ["model", "against", "alias", "data", "test", "linked"])
def test_no_path_outside_of_the_folders_is_read(site: Site, place: str) -> None:
    """Not as a model, an alias, data or test items; in full, upwards, or by a link."""
    secret, texts = str(site.folder / "secret"), str(site.folder / "outside.jsonl")
    for new, file in ((secret, texts), ("../secret", "../outside.jsonl"), ("/no", "/no/x.jsonl")):
        before, after = {
            "model": ('model = "base"', f'model = "{new}"'),
            "against": ('["mine"]', f'["mine", "{new}"]'),
            "alias": ('mine = "code"', f'mine = "{new}"'),
            "data": ('data = "texts.jsonl"', f'data = "{file}"'),
            "test": ('test = "texts.jsonl"', f'test = ["texts.jsonl", "{file}"]'),
            "linked": ('model = "base"', 'model = "link"'),
        }[place]
        told = refusal(site, file=TOML.replace(before, after, 1))
        outside = "is in none of this server's folders"
        assert ("is a link out of the folders" if place == "linked" else outside) in told, told


def test_a_model_that_is_nowhere_is_refused(site: Site) -> None:
    """A Hub id, where nothing is fetched; a run without a model; a task file, which is code."""
    for name in ("owner/name", "qwen2", "nothing"):
        said = refusal(site, file=TOML.replace('"base"', f'"{name}"', 1))
        assert "is in none of this server's folders" in said
    said = refusal(site, file=TOML.replace('data = "texts.jsonl"', 'data = "lm-eval:t.yaml"'))
    assert "a task file is code" in said


def test_a_run_of_another_user_is_a_model_if_it_has_one(site: Site) -> None:
    """As in every start over the API: who may start runs may read all; one without a model is none."""
    toy_runs.submit(site.home, "other")
    body = {"kind": "pipeline", "file": TOML.replace('"base"', '"other/champion"', 1)}
    before = site.runs()
    for path, asked in (("/runs", body), ("/runs", {"kind": "measure", "models": ["other"]})):
        answer = site.client.post(path, json=asked)
        assert answer.status_code in (409, 422), answer.text
        assert "other" in answer.json()["detail"]
    assert site.runs() == before


def test_a_file_is_for_kinds_that_have_one(site: Site) -> None:
    told = post(site.client, "/runs", 422, kind="toy", file="steps = 1")["detail"]
    assert "a toy run has no file of its own" in told
    both = post(site.client, "/runs", 422, kind="pipeline", file=TOML, config={"phases": TWO})["detail"]
    assert "the settings are given twice" in both
    assert "takes neither" in post(site.client, "/runs", 422, kind="toy", models=["base"])["detail"]
    told = post(site.client, "/runs", 422, kind="pipeline", file=TOML, models=["base"])["detail"]
    assert "write them there" in told
    many = "".join(f'[[phase]]\nname = "p{n}"\nkind = "toy"\n' for n in range(65))
    assert "give at most 64" in refusal(site, file=many)
    models = ", ".join(f'"m{n}"' for n in range(65))
    assert "more than 64 models" in refusal(site, file=TOML.replace('["mine"]', f"[{models}]"))


def test_a_viewer_starts_none(site: Site) -> None:
    head, before = site.as_("vic", "viewer"), site.runs()
    for path in ("/runs", "/runs/check"):
        answer = site.client.post(path, json={"kind": "pipeline", "file": TOML}, headers=head)
        assert answer.status_code == 403
    assert site.runs() == before


def test_another_user_does_not_ask_a_pipeline_s_runs(site: Site) -> None:
    """They are those of the user who started the pipeline."""
    run = post(site.client, "/runs", 201, kind="pipeline", config={"phases": TWO})["run"]
    toy_runs.carry_until(site.home, lambda s: s.run != run and s.started is not None, run)
    head = site.as_("bob", "submitter")
    answer = site.client.post(f"/runs/{run}.1-first/cancel", json={}, headers=head)
    assert answer.status_code == 403
    assert site.client.post(f"/runs/{run}.1-first/cancel", json={}).status_code == 200


def test_a_pipeline_is_asked_for_again_by_its_file(site: Site) -> None:
    """With the paths that its names meant, and in no other words than a user's."""
    run = post(site.client, "/runs", 201, kind="pipeline", file=TOML)["run"]
    asked = site.client.get(f"/runs/{run}/asked").json()
    assert (asked["config"], asked["models"], asked["data"]) == ({}, [], [])
    models = site.folder / "models"
    assert f'models = {{ against = "{models}/code", model = "{models}/base" }}' in asked["file"]
    again = post(site.client, "/runs", 201, kind="pipeline", file=asked["file"])["run"]
    first, second = (toy_runs.state(site.home, one).submitted for one in (run, again))
    assert first.places == second.places  # pyright: ignore
    assert first.test == second.test  # pyright: ignore
    assert first.config.gates == second.config.gates
    assert site.client.get(f"/runs/{again}/asked").json()["file"] == asked["file"]
    toy = post(site.client, "/runs", 201, kind="toy")["run"]
    assert site.client.get(f"/runs/{toy}/asked").json()["file"] is None


@pytest.mark.parametrize("kind", sorted(kinds.KINDS))
def test_a_run_of_every_kind_is_checked_over_the_api(site: Site, kind: str) -> None:
    """Each by the same way in, whatever its settings name: nothing is given, so some are refused."""
    answer = site.client.post("/runs/check", json={"kind": kind})
    assert answer.status_code in (200, 409, 422), answer.text
    told = (
        kinds.of(kind).requests.inputs_in({}, lambda _: False) if kind != "pipeline" else NamedInputs()
    )
    assert told == NamedInputs()
