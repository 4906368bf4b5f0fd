"""What is asked of the server: names are placed and models found beside the event loop, keys hold."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.datastructures import State

from agent_forge.api.options import LOOPBACK, Options
from agent_forge.api.problems import HttpError
from agent_forge.api.processes import readers
from agent_forge.api.processes.readers import KEPT, REMEMBERED, Job, Work
from agent_forge.api.routes import commands
from agent_forge.evomerge.config import EvoMergeConfig
from agent_forge.runs.errors import ConfigError
from agent_forge.weights.storage.model_origin import LogModel
from agent_forge.worker.commands.accounts import User
from testing.waiting import PATIENCE
from testing.worlds.fake_world import RUN
from tests.integration.api.conftest import Served


class Watched(Options):
    """Options that note which names were placed, and if that was in the event loop."""

    def place(self, text: str) -> str:
        """Place a name as ever."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            looped = False
        else:
            looped = True
        self.__dict__.setdefault("placed", []).append((text, looped))
        return super().place(text)


def test_each_name_is_placed_once_and_beside_the_event_loop(served: Served) -> None:
    """A folder of 100,000 files took 1.25 s, for each time that it was named; nobody was answered."""

    async def enough(*_: Any, **__: Any) -> Any:
        raise ConfigError("enough")

    app: Any = served.client.app
    root = app.state.options.roots[0]
    for name in ("code", "items"):
        (root / name).mkdir()
    app.state.options = watched = Watched((root,), hosts=(*LOOPBACK, "testserver"))
    app.state.readers.ask = enough
    body = {"models": ["code", "code"], "base": "code", "data": ["items"] * 3}
    assert served.ask("POST", "/runs/check", json=body).json()["detail"] == "enough"
    assert sorted(watched.__dict__["placed"]) == [("code", False), ("items", False)]
    assert served.ask("POST", "/models", json={"path": "code"}).json()["detail"] == "enough"
    assert watched.__dict__["placed"][2:] == [("code", False)]


def test_models_that_are_built_hold_no_thread_and_count_for_their_user() -> None:
    """Six requests for models that take long held every thread that the other routes need."""
    waiting: list[str] = []

    async def outcome(*order: Any) -> str:
        waiting.append(order[4])
        await asyncio.sleep(600)
        return ""

    state = State({"work": SimpleNamespace(outcome=outcome)})
    found = commands.RequestInputs({}, {}, {"m": (LogModel("m", "a model", "0" * 64), [])})

    async def ask() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        users = [User("ada", "submitter"), User("bob", "submitter")]
        located = [
            asyncio.ensure_future(commands.locate(state, user, found, True, 5.0)) for user in users
        ]
        while len(waiting) < 2:
            await asyncio.wait_for(asyncio.to_thread(int), PATIENCE)
        assert waiting == ["ada", "bob"]
        for task in located:
            task.cancel()

    asyncio.run(asyncio.wait_for(ask(), PATIENCE))


def test_one_users_models_leave_room_for_the_others() -> None:
    """Models were built for no user: four of anybody's kept everybody's out."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]

    async def ask() -> None:
        work = Work()

        async def outcome(name: str, user: str) -> str:
            return await work.outcome(f"model {name}", command, "", 0.01, user, f"model {name}", str)

        for n in range(4):
            with pytest.raises(HttpError, match=f"model {n}"):
                await outcome(str(n), "ada")
        with pytest.raises(HttpError, match="4 of yours"):
            await outcome("more", "ada")
        with pytest.raises(HttpError, match="Waiting to read model other"):
            await outcome("other", "bob")
        await work.stop()

    asyncio.run(ask())


@dataclass
class Request:
    """A request for several models, with a clock of its own.

    A model is found by a process that ends at once; its folder's mark is in `marks`.
    """

    folder: Path
    clock: list[float]
    marks: dict[str, Any] = field(default_factory=dict)
    work: Work = field(default_factory=Work)
    fails: str = ""

    async def ask(self, user: str, names: str = "abc", patience: float = 0.0) -> list[str]:
        """Return what was found, each model after the one before."""
        code = (
            "import sys; name = sys.argv[2]; open(sys.argv[1], 'a').write(name)\n"
            "print(name) if name not in sys.argv[3] else sys.exit('no ' + name)"
        )
        found = []
        for number, name in enumerate(names, 1):
            command = [sys.executable, "-S", "-c", code, str(self.folder / "begun"), name, self.fails]
            what = f"model {number} of {len(names)} ({name})"
            found.append(
                await self.work.outcome(f"model {name}", command, "", patience, user, what, self.mark)
            )
        return found

    def mark(self, name: str) -> Any:
        """Return the mark of a model's folder."""
        return self.marks.get(name, "as it was")

    async def end(self, name: str, after: float) -> None:
        """Wait until a model is found; that took so many seconds by the clock."""
        task = self.work._jobs[f"model {name}"].task
        assert task
        while self.work._jobs[f"model {name}"].started is None:
            await asyncio.sleep(0)
        self.clock[0] += after
        await task

    @property
    def begun(self) -> str:
        """The names of the models that were looked for."""
        return (self.folder / "begun").read_text()


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    """A request for models, by a clock of the test's own."""
    clock = [0.0]
    monkeypatch.setattr(readers, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    return Request(tmp_path, clock)


def test_a_request_ends_however_long_its_models_take_together(models: Request) -> None:
    """The first model was forgotten until the last one was located, and located again, without end.

    Each model takes longer than anything that is remembered for a time, and so does each pause.
    """

    async def talk() -> None:
        for number, name in enumerate("abc", 1):
            with pytest.raises(HttpError, match=rf"model {number} of 3 \({name}\)"):
                await models.ask("ada")
            await models.end(name, after=1000 * REMEMBERED)
            models.clock[0] += 1000 * REMEMBERED
        assert await models.ask("ada") == ["a", "b", "c"]
        assert await models.ask("bob", "cbad", PATIENCE) == ["c", "b", "a", "d"]
        assert models.begun == "abcd", "for another request, too: a model is found once"

    asyncio.run(talk())


def test_a_model_whose_folder_has_changed_is_looked_for_again(models: Request) -> None:
    """A located model is kept as long as its folder stays the same, not for a time."""

    async def talk() -> None:
        await models.ask("ada", "ab", PATIENCE)
        models.marks["a"] = "other files"
        await models.ask("ada", "ab", PATIENCE)
        assert models.begun == "aba"
        models.marks["b"] = None  # it was removed
        await models.ask("ada", "ab", PATIENCE)
        await models.ask("ada", "ab", PATIENCE)
        assert models.begun == "ababb"

    asyncio.run(talk())


def test_a_failure_reaches_whoever_waits_for_it_and_is_then_tried_again(models: Request) -> None:
    """Told at whatever pace one asks; forgotten a minute after it was told."""
    models.fails = "b"

    async def talk() -> None:
        with pytest.raises(HttpError):
            await models.ask("ada", "b")
        await models.end("b", after=REMEMBERED)
        for pause in (10 * REMEMBERED, REMEMBERED - 1, 1):
            models.clock[0] += pause
            with pytest.raises(HttpError, match="no b" if pause != 1 else "of 1"):
                await models.ask("ada", "b")
        await models.end("b", after=0)
        assert models.begun == "bb"

    asyncio.run(talk())


def test_a_request_that_waits_says_for_which_model_and_for_how_long(models: Request) -> None:
    """A page said `Checking …` for minutes."""

    async def talk() -> None:
        models.work._lanes["model"] = asyncio.Semaphore(1)
        await models.work._lanes["model"].acquire()
        with pytest.raises(HttpError) as waiting:
            await models.ask("ada", "ab")
        models.clock[0] += 7
        with pytest.raises(HttpError, match=r"model 1 of 2 \(a\), after other models: 7 s so far"):
            await models.ask("ada", "ab")
        assert waiting.value.headers == {"Retry-After": "2"}
        models.work._lanes["model"].release()
        while models.work._jobs["model a"].started is None:
            await asyncio.sleep(0)
        models.clock[0] += 12
        with pytest.raises(HttpError, match=r"Reading model 1 of 2 \(a\), or building it: 12 s so far"):
            await models.ask("ada", "ab")
        await models.end("a", after=0)
        await models.work.stop()

    asyncio.run(talk())


def test_what_is_remembered_of_models_is_bounded(models: Request) -> None:
    """The outcomes that were asked for last stay."""

    async def talk() -> None:
        await models.ask("ada", "ab", PATIENCE)
        for n in range(KEPT):
            models.work._jobs[f"model {n}"] = Job(ended=0.0)
            models.work._jobs.move_to_end("model a")
        await models.ask("ada", "c", PATIENCE)
        assert len(models.work._jobs) <= KEPT + 1
        assert "model a" in models.work._jobs
        assert "model b" not in models.work._jobs

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"models": [RUN, "misspelt"]}, "'misspelt' is in none of this server's folders"),
        ({"models": [RUN, f"{RUN}:nothing"]}, "nothing"),
        ({"models": [RUN, RUN], "config": {"generations": -1}}, "config.generations"),
        ({"models": [RUN, RUN], "data": ["/nowhere"]}, "'/nowhere' is in none of"),
        ({"models": {"model": [RUN]}}, "a merging run has no models 'model'"),
        ({"models": [RUN], "kind": "compression", "config": {"device": "tpu"}}, "tpu"),
        ({"models": {"model": [RUN] * 2}, "kind": "compression"}, "one model"),
    ],
)
def test_what_needs_no_model_is_refused_before_any_is_looked_for(
    served: Served, body: dict[str, Any], detail: str
) -> None:
    """A misspelt source was told minutes later, when the one before it was found."""

    async def outcome(*_: Any) -> str:
        raise AssertionError("a model is looked for")

    app: Any = served.client.app
    app.state.work.outcome = outcome
    for path in ("/runs/check", "/runs"):
        for checked in (True, False):
            answer = served.ask("POST", path, json={**body, "checked": checked})
            assert answer.status_code == 422, answer.text
            assert detail in answer.json()["detail"]


def test_a_key_means_its_run_whatever_a_model_s_name_means_by_then(served: Served) -> None:
    """The same key and body were answered 503, 422 or 409 once the model was somewhere else."""
    folders: list[str] = ["/first"]

    async def outcome(*_: Any) -> str:
        if not folders:
            raise HttpError(503, "Service Unavailable", "again in a moment")
        return folders[0]

    async def told(_order: str, _user: str, **asked: Any) -> dict[str, Any]:
        sources = [{"name": "x", "path": path} for path in asked["models"]["sources"]]
        config = EvoMergeConfig(**asked["config"]).model_dump(mode="json")
        fields = {"config": config, "sources": sources, "base": None, "data": asked["data"]}
        return {"submitted": fields}

    app: Any = served.client.app
    app.state.readers.ask, app.state.work.outcome = told, outcome
    (app.state.options.roots[0] / "code").mkdir()

    def ask(key: str = "once", **other: Any) -> Any:
        body = {"models": [RUN, "code"], "config": {"generations": 2}, **other}
        return served.ask("POST", "/runs", json=body, headers={"Idempotency-Key": key})

    first = ask()
    assert first.status_code == 201, first.text
    for now in (["/second"], []):
        folders[:] = now
        again = ask(quarantine="fail")
        assert (again.status_code, again.json()) == (200, first.json())
        assert again.headers["location"] == first.headers["location"]
    folders[:] = ["/first"]
    others: list[dict[str, Any]] = [
        {"models": ["code", "code"]},
        {"config": {}},
        {"priority": 3},
        {"reason": "x"},
    ]
    for other in others:
        assert ask(**other).status_code == 409
    assert ask(config={"generations": 2, "seed": EvoMergeConfig().seed}).status_code == 200
    assert ask("another").status_code == 201


@pytest.mark.parametrize(
    ("models", "field"),
    [
        (["a", ""], "models.1"),
        ({"model": ["a"], "students": [""]}, "models.students.0"),
        ({"model": ["a"] * 33, "students": ["b"] * 32}, "models"),
        ({"model": "a"}, "models.model"),
        ("a", "models"),
    ],
)
def test_models_are_a_list_or_lists_by_role(served: Served, models: Any, field: str) -> None:
    """A place in a body is the place that the client wrote, in either spelling."""
    answer = served.ask("POST", "/runs/check", json={"kind": "compression", "models": models})
    assert answer.status_code == 422
    assert [wrong["field"] for wrong in answer.json()["errors"]] == [field]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {"kind": "compression", "models": {"model": ["a"], "teachers": ["b"]}},
            "a compression has no models 'teachers'; the roles are: model, students.",
        ),
        (
            {"kind": "cognate", "models": {"sources": ["a"]}},
            "a cognate run has no models 'sources'; the roles are: base.",
        ),
        (
            {"models": {"sources": ["a", "b"], "base": ["a"]}, "base": "a"},
            "the base is given twice: as base and among the models.",
        ),
    ],
)
def test_a_role_that_a_kind_has_not_is_named(served: Served, body: dict[str, Any], said: str) -> None:
    answer = served.ask("POST", "/runs/check", json=body)
    assert (answer.status_code, answer.json()["detail"]) == (422, said)


def test_models_by_role_are_those_that_a_start_is_given(served: Served) -> None:
    """Each under its role, `base` too; a list is of the kind's main role."""
    orders: list[dict[str, Any]] = []

    async def noted(*_: Any, **order: Any) -> Any:
        orders.append(order["models"])
        raise ConfigError("enough")

    app: Any = served.client.app
    app.state.readers.ask = noted
    (root,) = app.state.options.roots
    for name in ("a", "b", "c"):
        (root / name).mkdir()
    a, b, c = (str(root / name) for name in ("a", "b", "c"))
    by_role = {"model": ["a"], "students": ["b", "c"]}
    for body in (
        {"kind": "compression", "models": by_role},
        {"kind": "compression", "models": ["a"]},
        {"models": {"sources": ["b", "c"], "base": ["a"]}},
        {"models": ["b", "c"], "base": "a"},
        {"kind": "compression", "models": {"model": ["a"], "students": []}},
    ):
        assert served.ask("POST", "/runs/check", json=body).json()["detail"] == "enough"
    merging = {"sources": [b, c], "base": [a]}
    wanted = [{"model": [a], "students": [b, c]}, {"model": [a]}, merging, merging, {"model": [a]}]
    assert orders == wanted
