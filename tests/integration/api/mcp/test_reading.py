"""Tools and resources that read: they say what the REST API says, in bounded answers."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient
from mcp.shared.exceptions import MCPError
from mcp_types import TextResourceContents
from pydantic import BaseModel

from agent_forge.api.app import create
from agent_forge.api.mcp import resources
from agent_forge.api.mcp.resources import TOOLS
from agent_forge.api.mcp.tool import McpCall, answered, as_json
from agent_forge.api.options import Options
from agent_forge.api.problems import HttpError
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.home import Home
from agent_forge.runs.record.events import Paused
from agent_forge.worker.commands import accounts
from agent_forge.worker.commands.control import control
from testing.toy import toy_runs
from testing.worlds.fake_world import RUN
from tests.integration.api.mcp.conftest import Served, Talk


def rest(home: Home, *paths: str) -> list[Any]:
    """Return what the REST API says to a viewer at these paths."""
    with closing(home.open_store()) as store:
        accounts.add(store, "eve", "viewer")
        token = accounts.issue(store, "eve")[1]
    with TestClient(create(home, Options(())), "http://127.0.0.1") as client:
        client.headers["Authorization"] = f"Bearer {token}"
        answers = [client.get(path) for path in paths]
    assert [answer.status_code for answer in answers] == [200] * len(paths)
    return [answer.json() for answer in answers]


def test_a_viewer_reads_what_the_api_says(served: Served) -> None:
    """One function answers both doors; what a tool leaves out is stated in its schema."""
    toy_runs.submit(served.home, "other")

    async def ask(talk: Talk) -> list[dict[str, Any]]:
        return [
            await talk.call("list_kinds"),
            await talk.call("show_settings", kind="toy"),
            await talk.call("list_runs", kind="toy", status="completed"),
            await talk.call("show_run", run="r", at=4),
            await talk.call("show_panel", run="r", panel="totals"),
            await talk.call("follow_run", run="r"),
            await talk.call("compare_runs", run="r", other="other"),
            await talk.call("list_models"),
            await talk.call("read_events", run="r", data=True),
        ]

    told = served.talk(ask, "viewer")
    kinds, settings, listed, panels, panel, head, compared, models, events = rest(
        served.home,
        "/kinds",
        "/settings?kind=toy",
        "/runs?kind=toy&status=completed",
        "/runs/r/panels?at=4",
        "/runs/r/panels/totals.json",
        "/runs/r/head",
        "/compare?runs=r,other",
        "/models",
        "/runs/r/events",
    )
    assert told[:2] == [kinds, settings | {"strategies": []}]
    [row] = told[2]["runs"]
    assert row.items() <= listed["runs"][0].items()
    assert (told[3]["name"], told[3]["head"]) == ("r", panels["head"])
    lines = [{k: p[k] for k in ("name", "kind", "title", "says")} for p in panels["panels"]]
    assert told[3]["panels"] == lines
    beside = {name: compared[name] for name in ("names", "heads", "judgements", "settings")}
    assert told[4:8] == [{"panel": panel}, head, beside, models]
    for ours, theirs in zip(told[8]["events"], events["events"], strict=True):
        assert ours.pop("characters") == len(json.dumps(theirs["data"], ensure_ascii=False))
        assert ours.items() <= theirs.items()


def test_every_tool_describes_itself_its_fields_and_its_effects(served: Served) -> None:
    """A client's model chooses by these words, and a client asks its user by these hints."""

    async def ask(talk: Talk) -> Any:
        return await talk.client.list_tools()

    told = {tool.name: tool for tool in served.talk(ask).tools}
    assert list(told) == [tool.name for tool in TOOLS]
    for tool in told.values():
        assert tool.description
        assert "Needs the role" in tool.description
        assert tool.output_schema
        assert tool.annotations
        assert tool.input_schema["additionalProperties"] is False
        for name, one in tool.input_schema.get("properties", {}).items():
            given = [one, *one.get("anyOf", [])]
            assert any("description" in part for part in given), (tool.name, name)
    changing = {name for name, tool in told.items() if not tool.annotations.read_only_hint}  # pyright: ignore
    assert changing == {
        *("start_run", "pause_run", "resume_run", "retry_run", "cancel_run"),
        *("set_priority", "rename_run", "override_gate"),
    }
    ending = {name for name, tool in told.items() if tool.annotations.destructive_hint}  # pyright: ignore
    assert ending == {"cancel_run"}
    whole = json.dumps([t.model_dump(mode="json", exclude_none=True) for t in told.values()])
    assert len(whole) < 40_000  # a client's model reads all of it, in every conversation


def test_pages_of_events_are_bounded_and_follow_one_another(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event may hold megabytes, which no client's model can read."""
    rows = toy_runs.rows(served.home)
    sizes = [len(json.dumps(json.loads(row.data), ensure_ascii=False)) for row in rows]
    monkeypatch.setattr(resources, "EVENT", sorted(sizes)[-2])
    monkeypatch.setattr(resources, "PAGE", 2 * max(sizes))

    async def ask(talk: Talk, **start: int) -> list[dict[str, Any]]:
        [(way, _)] = start.items()
        pages = []
        while True:
            pages.append(await talk.call("read_events", run="r", data=True, **start))
            if pages[-1]["next"] is None:
                return pages
            start[way] = pages[-1]["next"]

    forward = served.talk(lambda talk: ask(talk, after=0))
    places = [event["place"] for page in forward for event in page["events"]]
    assert places == list(range(1, len(rows) + 1))
    assert len(forward) > 1
    left_out = [e for page in forward for e in page["events"] if e["data"] is None]
    assert [e["characters"] > resources.EVENT for e in left_out] == [True]
    for page in forward:
        given = [e["characters"] for e in page["events"] if e["data"] is not None]
        assert sum(given) <= resources.PAGE
    backward = served.talk(lambda talk: ask(talk, before=len(rows) + 1))
    assert [e["place"] for page in backward for e in page["events"]] == places[::-1]


def test_an_answer_that_is_too_large_is_refused_with_what_to_do() -> None:
    assert as_json({"a": "\x1b[31m"}) == '{"a": "\\u001b[31m"}'
    assert as_json(["ab"], 6) == '["ab"]'
    with pytest.raises(HttpError, match="has 7 characters, and at most 6 are sent: ask for less"):
        as_json(["abc"], 6)


def test_following_waits_for_news_and_no_longer(served: Served) -> None:
    """A client that asks again and again would fill its model's context."""
    toy_runs.submit(served.home, "open")
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(done: float, of: float | None, words: str | None) -> None:
        heard.append((done, of, words))
        if len(heard) == 2:
            with closing(served.home.open_store()) as store:
                control(store, "open", Paused(reason="lunch"), "bob")

    async def ask(talk: Talk) -> None:
        now = await talk.call("follow_run", run="open")
        assert (now["status"], now["place"]) == ("submitted", 1)
        assert await talk.call("follow_run", run="open", place=0, wait_seconds=60) == now | {
            "elapsed_s": pytest.approx(now["elapsed_s"], abs=60)
        }
        waiting = {"run": "open", "wait_seconds": 60, "place": 1}
        news = await talk.client.call_tool("follow_run", waiting, progress_callback=hear)
        assert news.structured_content
        assert (news.structured_content["status"], news.structured_content["place"]) == ("paused", 2)
        over = await talk.call("follow_run", run="r", wait_seconds=60)
        assert over["status"] == "completed"
        still = await talk.call("follow_run", run="open", wait_seconds=0.01)
        assert still["place"] == 2

    served.talk(ask, "viewer")
    done = [one[0] for one in heard]
    assert done == sorted(set(done))
    assert {one[1] for one in heard} == {60}
    assert all("waits for" in str(one[2]) or "paused" in str(one[2]) for one in heard)


def test_one_user_follows_a_bounded_number_of_runs_at_once(served: Served) -> None:
    """Each waits in the server for up to a minute."""
    served.options["user_watchers"] = 1
    toy_runs.submit(served.home, "open")

    async def ask(talk: Talk) -> str:
        first = asyncio.create_task(talk.call("follow_run", run="open", wait_seconds=60))
        while talk.state.seats.why_none("ada") is None:
            await asyncio.sleep(0.01)
        refused = await talk.refused("follow_run", run="open")
        first.cancel()
        await asyncio.wait([first])
        while talk.state.seats.why_none("ada") is not None:
            await asyncio.sleep(0.01)
        await talk.call("follow_run", run="open")
        return refused

    assert "ada has 1 live connections already: close one." in served.talk(ask)


def test_a_models_origin_is_told_by_run_candidate_and_registered_id(
    recorded: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model has several names; its ancestors are the same by each, and as the API tells them."""
    served = Served(Home(shutil.copytree(recorded[0], tmp_path / "copy")), tmp_path)

    async def ask(talk: Talk) -> list[dict[str, Any]]:
        models = (await talk.call("list_models", kind="champion"))["models"]
        [model] = [m for m in models if m["run"] == RUN]
        ours = await talk.call("explain_model", model=RUN)
        child = ours["runs"][0]["ancestors"][0]["recipe_id"]
        assert await talk.call("explain_model", model=model["id"]) == ours
        assert await talk.call("explain_model", model=f"{RUN}:{child[:12]}") == ours
        assert "is not known" in await talk.refused("explain_model", model="nothing")
        monkeypatch.setattr(resources, "ANCESTORS", 1)
        cut = await talk.call("explain_model", model=RUN)
        assert [len(run["ancestors"]) for run in cut["runs"]] == [1]
        assert (cut["ancestors"], cut["left_out"]) == (ours["ancestors"], ours["ancestors"] - 1)
        return [model, ours]

    model, ours = served.talk(ask, "viewer")
    [api] = rest_as(served.home, recorded[1]["viewer"], f"/models/{model['id']}/lineage")
    assert ours["runs"] == api["runs"]
    assert ours["left_out"] == 0
    assert ours["ancestors"] > 2


def rest_as(home: Home, token: str, *paths: str) -> list[Any]:
    """Return what the REST API says to the user of a token."""
    with TestClient(create(home, Options(())), "http://127.0.0.1") as client:
        client.headers["Authorization"] = f"Bearer {token}"
        return [client.get(path).json() for path in paths]


def test_reports_of_completed_runs_are_resources(served: Served) -> None:
    toy_runs.submit(served.home, "open")

    async def ask(talk: Talk) -> list[str]:
        found = (await talk.client.list_resources()).resources
        assert [one.uri for one in found] == ["forge://runs/r/report.md", "forge://runs/r/report.json"]
        forms = (await talk.client.list_resource_templates()).resource_templates
        assert [form.uri_template for form in forms] == [
            "forge://runs/{run}/report.md",
            "forge://runs/{run}/report.json",
        ]
        texts = []
        for one in found:
            [content] = (await talk.client.read_resource(one.uri)).contents
            assert isinstance(content, TextResourceContents)
            assert content.mime_type == one.mime_type
            texts.append(content.text)
        return texts

    markdown, data = served.talk(ask, "viewer")
    [result] = rest(served.home, "/phases/toy/results?run=r")
    assert {"success": True, **json.loads(data)} == result
    assert markdown.startswith("# Run r\n")
    assert f"total {result['total']:,}" in markdown


def test_a_merging_runs_report_is_the_one_beside_its_champion(recorded: Any, tmp_path: Any) -> None:
    """Without its picture, which is a file of that folder."""
    served = Served(Home(shutil.copytree(recorded[0], tmp_path / "copy")), tmp_path)

    async def ask(talk: Talk) -> str:
        [content] = (await talk.client.read_resource(f"forge://runs/{RUN}/report.md")).contents
        assert isinstance(content, TextResourceContents)
        return content.text

    text = served.talk(ask, "viewer")
    assert text.startswith(f"# Run {RUN}\n")
    assert "## Champion against its rivals, on the test slice" in text
    assert "![" not in text


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("forge://runs/open/report.md", "run open is submitted: there is no result"),
        ("forge://runs/nothing/report.md", "run 'nothing' is not known"),
        ("forge://runs/r/weights.md", "there are forge://runs/{run}/report.md and"),
        ("forge://runs/..%2Fr/report.md", "is not known"),
        ("file:///etc/passwd", "There is no resource 'file:///etc/passwd'"),
    ],
)
def test_a_report_that_there_is_not_is_refused_in_words(served: Served, uri: str, why: str) -> None:
    toy_runs.submit(served.home, "open")

    async def ask(talk: Talk) -> None:
        with pytest.raises(MCPError) as caught:
            await talk.client.read_resource(uri)
        assert why in caught.value.error.message

    served.talk(ask, "viewer")


def test_a_report_that_is_too_large_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "LARGEST", 10)

    async def ask(talk: Talk) -> None:
        with pytest.raises(MCPError, match="at most 10 are sent"):
            await talk.client.read_resource("forge://runs/r/report.json")

    served.talk(ask, "viewer")


def test_unknown_names_are_refused_in_words(served: Served) -> None:
    async def ask(talk: Talk) -> None:
        for name, asked, why in (
            ("show_run", {"run": "nothing"}, "Not Found: run 'nothing' is not known"),
            ("show_panel", {"run": "r", "panel": "x"}, "Its panels are: totals, steps, tasks."),
            ("show_settings", {"kind": "poetry"}, "there is no kind of run 'poetry'"),
            ("show_run", {"run": "r", "at": 99}, "99"),
            ("show_run", {"rum": "r"}, "rum: Extra inputs are not permitted"),
            ("list_runs", {"limit": 101}, "limit: Input should be less than or equal to 100"),
            ("follow_run", {"run": "r", "wait_seconds": 61}, "less than or equal to 60"),
        ):
            assert why in await talk.refused(name, **asked), name
        with pytest.raises(MCPError, match="There is no tool 'drop_log'"):
            await talk.client.call_tool("drop_log", {})

    served.talk(ask, "viewer")


def test_characters_that_do_not_show_reach_no_client() -> None:
    """In the text and in the data of an answer, and in a refusal: a model reads them as a message."""
    unseen = "\u200bignore\U000e0041 all\ufeff"

    class Said(BaseModel):
        """An answer."""

        name: str

    class Asked(BaseModel):
        """An input."""

        name: str

    def show(call: McpCall, asked: Asked) -> Said:
        """Show a name."""
        if asked.name == "no":
            raise NotFoundError(f"there is no {unseen}.")
        return Said(name=unseen)

    tool = SimpleNamespace(role="viewer", takes=Asked, do=show)
    call: Any = SimpleNamespace(user=SimpleNamespace(may=lambda role: True))
    answer = asyncio.run(answered(cast(Any, tool), call, {"name": "yes"}))
    expected = {"name": "\\u200bignore\\U000e0041 all\\ufeff"}
    assert answer.structured_content == expected
    assert json.loads(answer.content[0].text) == expected  # pyright: ignore
    refusal = asyncio.run(answered(cast(Any, tool), call, {"name": "no"}))
    assert refusal.content[0].text.isascii()  # pyright: ignore
