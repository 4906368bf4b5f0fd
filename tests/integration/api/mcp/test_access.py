"""Tools that change something: roles, owners, the actor in the log, refusals, keys, defects."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from agent_forge.api.mcp.resources import TOOLS
from agent_forge.api.options import Options
from agent_forge.api.routes import runs
from agent_forge.runs.errors import ConfigError
from agent_forge.worker.commands.accounts import ROLES, Role
from testing.toy import toy_pipelines, toy_runs
from testing.toy.toy_pipelines import TWO
from tests.integration.api.mcp.conftest import Served, Talk

PAGE = Path(__file__).resolve().parents[4] / "docs" / "mcp.md"

#: A valid input of every tool that changes something, for a run `open` of `ada`.
CHANGING: dict[str, dict[str, Any]] = {
    "check_run": {"kind": "toy", "config": {"steps": 1}},
    "start_run": {"kind": "toy", "config": {"steps": 1}},
    "pause_run": {"run": "open"},
    "resume_run": {"run": "open"},
    "retry_run": {"run": "open"},
    "cancel_run": {"run": "open"},
    "set_priority": {"run": "open", "priority": 1},
    "rename_run": {"run": "open", "name": "new"},
    "override_gate": {"run": "open", "phase": "first", "reason": "noise"},
}


def test_the_page_lists_every_tool_with_its_role_and_its_line() -> None:
    """A tool that the page does not have cannot be found; a wrong role misleads an admin."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.+) \|$", PAGE.read_text("utf-8"), re.M)
    assert rows == [(tool.name, tool.role, tool.line) for tool in TOOLS]


@pytest.mark.parametrize("role", ROLES)
def test_only_roles_that_may_change_something_do(served: Served, role: Role) -> None:
    """The role is looked at before the input, and before anything is read."""
    assert {tool.name for tool in TOOLS if tool.role != "viewer"} == set(CHANGING)
    toy_runs.submit(served.home, "open")
    before = toy_runs.rows(served.home, "open")

    async def ask(talk: Talk) -> None:
        for name, asked in CHANGING.items():
            told = await talk.client.call_tool(name, asked)
            text = told.content[0].text  # pyright: ignore[reportAttributeAccessIssue]
            denied = text == "Forbidden: This needs the role submitter; ada is a viewer."
            assert denied == (role == "viewer"), (name, text)
            if denied:
                assert await talk.refused(name, nonsense=1) == text

    served.talk(ask, role)
    if role == "viewer":
        assert toy_runs.rows(served.home, "open") == before


def test_the_user_is_the_actor_and_the_owner(served: Served) -> None:
    """As over REST: the log says who asked for what, and why."""

    async def ask(talk: Talk) -> str:
        checked = await talk.call("check_run", kind="toy", config={"steps": 1})
        assert checked["config"]["steps"] == 1
        assert any("a worker" in warning for warning in checked["warnings"])
        started = await talk.call("start_run", kind="toy", config={"steps": 1}, reason="a try")
        assert started["fresh"] is True
        run = started["run"]
        for tool, status in (
            ("pause_run", "submitted"),
            ("resume_run", "paused"),
            ("cancel_run", "submitted"),
        ):
            told = await talk.call(tool, run=run, reason="lunch")
            assert (told["run"], told["before"]) == (run, status)
        assert "it is cancelled" in await talk.refused("pause_run", run=run)
        return run

    run = served.talk(ask, "submitter", "eve")
    rows = toy_runs.rows(served.home, run)
    assert [(row.type, row.actor) for row in rows] == [
        ("submitted", "eve"),
        ("paused", "eve"),
        ("resumed", "eve"),
        ("cancelled", "eve"),
    ]
    assert toy_runs.state(served.home, run).submitted.owner == "eve"
    assert '"a try"' in rows[0].data
    assert all('"lunch"' in row.data for row in rows[1:])


def test_a_submitter_asks_nothing_of_the_runs_of_others(served: Served) -> None:
    """Not of those of an earlier user of the name either; an admin may."""
    started: Any = served.talk(lambda talk: talk.call("start_run", kind="toy"), "submitter", "ada")
    run = started["run"]
    position = toy_runs.rows(served.home, run)[0].position

    def pause(talk: Talk) -> Any:
        return talk.refused("pause_run", run=run)

    told = served.talk(pause, "submitter", "eve")
    assert told == "Forbidden: The run belongs to ada; only ada or an admin may do that."
    assert "is of an earlier user ada" in served.talk(pause, "submitter", "ada", position)
    served.talk(lambda talk: talk.call("pause_run", run=run), "admin", "eve")
    assert toy_runs.rows(served.home, run)[-1].actor == "eve"


def test_a_key_means_one_run(served: Served) -> None:
    """A model that calls a tool twice starts one run."""

    async def ask(talk: Talk) -> None:
        asked = {"kind": "toy", "config": {"steps": 1}, "key": "once"}
        first = await talk.call("start_run", **asked)
        again = {**first, "fresh": False}
        assert await talk.call("start_run", **asked) == again
        assert "other settings" in await talk.refused("start_run", **{**asked, "config": {}})
        await talk.call("pause_run", run=first["run"], key="p")
        await talk.call("pause_run", run=first["run"], key="p")
        assert "paused already" in await talk.refused("pause_run", run=first["run"])

    served.talk(ask)


def test_what_the_api_refuses_no_tool_starts(served: Served) -> None:
    """Files out of the roots, also those in a pipeline, and files with code: by the same checks."""
    outside = {**TWO[0], "data": ["/etc/passwd"]}

    async def ask(talk: Talk) -> None:
        for tool in ("check_run", "start_run"):
            for asked, why in (
                (
                    {"kind": "pipeline", "config": {"phases": [outside]}},
                    "is in none of this server's folders",
                ),
                ({"kind": "pipeline", "file": "[[phase]]\nnam = 1"}, "line 2: a phase has no 'nam'"),
                ({"kind": "toy", "models": ["/etc"]}, "'/etc' is in none of this server's folders"),
                ({"kind": "toy", "data": ["../x"]}, "is in none of this server's folders"),
                ({"kind": "toy", "data": ["lm-eval:/t.yaml"]}, "a task file is code"),
                ({"kind": "toy", "config": {"width": 0, "colour": 1}}, "colour: there is no such"),
                ({"kind": "toy", "reason": "a\x1b[31m"}, "reason: the text holds the character"),
                ({"kind": "toy", "labels": ["a b"]}, "label 'a b'"),
                ({}, "kind: Field required"),
            ):
                assert why in await talk.refused(tool, **asked), asked

    served.talk(ask)


def test_a_stopped_gate_is_overridden_with_a_reason(served: Served) -> None:
    from agent_forge.runs.errors import RunFailedError

    stopping = {**TWO[0], "gates": [{"metric": "total", "at_least": 1e12}]}
    toy_pipelines.submit(served.home, [stopping, TWO[1]], "q")
    with pytest.raises(RunFailedError):
        toy_runs.finish(served.home, "q")

    async def ask(talk: Talk) -> None:
        asked = {"run": "q", "phase": "first"}
        assert "reason: Field required" in await talk.refused("override_gate", **asked)
        elsewhere = await talk.refused("override_gate", run="r", phase="first", reason="x")
        assert "there is no 'override'" in elsewhere
        told = await talk.call("override_gate", **asked, reason="good enough")
        assert (told["before"], told["asked"]) == ("failed", "override")

    served.talk(ask, name="eve")
    overridden, retried = toy_runs.rows(served.home, "q")[-2:]
    assert (overridden.actor, retried.actor) == ("eve", "eve")
    assert "good enough" in overridden.data


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("password=hunter2"), "Internal Server Error: The server's own log says more."),
        (
            OperationalError("select", {}, Exception("hunter2@db.internal")),
            "Service Unavailable: The log's database does not answer as it should. The server's own "
            "log says more.",
        ),
    ],
)
def test_a_defect_says_nothing_of_the_server(
    served: Served, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    """Its text is in the server's log alone: it may hold addresses and secrets."""

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(runs, "compared", fail)

    async def ask(talk: Talk) -> str:
        return await talk.refused("compare_runs", run="r", other="r")

    assert served.talk(ask) == told


def test_the_terminals_user_may_name_any_file_unless_confined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client on standard input acts for the user who could type the same at a terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORGE_MODEL_ROOTS", raising=False)
    (tmp_path / "models" / "code").mkdir(parents=True)
    free = Options.of_terminal()
    assert free.place("models/code") == str(tmp_path / "models" / "code")
    assert free.place("/etc") == "/etc"
    assert free.place("/no/such/model") == "/no/such/model"  # the check says that it is missing
    monkeypatch.setenv("FORGE_MODEL_ROOTS", str(tmp_path / "models"))
    assert not Options.of_terminal().anywhere
    monkeypatch.delenv("FORGE_MODEL_ROOTS")
    confined = Options.of_terminal(["models"])
    assert confined.place("code") == str(tmp_path / "models" / "code")
    for text in ("/etc", "/no/such/model"):
        with pytest.raises(ConfigError, match="is in none of this server's folders"):
            confined.place(text)


def test_a_pipeline_is_started_by_its_file_or_settings(served: Served) -> None:
    file = '[[phase]]\nname = "first"\nkind = "toy"\nsettings = { seed = 1 }\n'

    async def ask(talk: Talk) -> list[str]:
        assert (await talk.call("check_run", kind="pipeline", file=file))["ok"]
        given = ({"file": file}, {"config": {"phases": TWO}})
        return [(await talk.call("start_run", kind="pipeline", **one))["run"] for one in given]

    for anywhere in (False, True):  # a user with a token, and the terminal's
        served.options["anywhere"] = anywhere
        for run in served.talk(ask):
            assert toy_runs.finish(served.home, run).completed
