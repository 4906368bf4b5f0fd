"""What is asked of the server: names are placed and models found beside the event loop, keys hold."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.datastructures import State

from api import inputs
from api.options import LOOPBACK, Options
from api.problems import Problem
from api.processes import background_jobs
from api.processes.background_jobs import KEPT, LONGEST, REMEMBERED, Work
from evomerge.config import EvoMergeConfig
from runs.errors import ConfigError
from testing.waiting import PATIENCE
from testing.worlds.fake_world import RUN
from tests.integration.api.conftest import Served
from weights.storage.model_origin import Origin
from worker.commands.accounts import User


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


def test_models_that_are_built_hold_no_thread_and_count_for_their_user(
    tmp_path: Path, monkeypatch
) -> None:
    """Six requests for models that take long held every thread that the other routes need."""
    waiting: list[str] = []

    async def outcome(*order: Any) -> str:
        waiting.append(order[4])
        await asyncio.sleep(600)
        return ""

    monkeypatch.setattr(inputs.origins, "find", lambda *_: Origin("m", "a model", "0" * 64))
    desk = SimpleNamespace(store=None, home=SimpleNamespace(folder=tmp_path))
    work = SimpleNamespace(outcome=outcome)
    state = State({"options": Options((tmp_path,)), "desk": desk, "work": work})

    async def ask() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        users = [User("ada", "submitter"), User("bob", "submitter")]
        found = [asyncio.ensure_future(inputs._model(state, user, "m", "m", 0.0)) for user in users]
        while len(waiting) < 2:
            await asyncio.wait_for(asyncio.to_thread(int), PATIENCE)
        assert waiting == ["ada", "bob"]
        for task in found:
            task.cancel()

    asyncio.run(asyncio.wait_for(ask(), PATIENCE))


def test_one_users_models_leave_room_for_the_others() -> None:
    """Models were built for no user: four of anybody's kept everybody's out."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]

    async def ask() -> None:
        work = Work()
        for n in range(4):
            with pytest.raises(Problem, match="again in a moment"):
                await work.outcome(f"model {n}", command, "", 0.01, "ada")
        with pytest.raises(Problem, match="4 of yours"):
            await work.outcome("model more", command, "", 0.01, "ada")
        with pytest.raises(Problem, match="again in a moment"):
            await work.outcome("model other", command, "", 0.01, "bob")
        await work.stop()

    asyncio.run(ask())


def test_a_request_ends_however_long_its_models_take_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found first was forgotten until the last was found, and looked for again, without end.

    By a clock of the test's own: each model takes longer than an answer is remembered.
    """
    now = [0.0]
    monkeypatch.setattr(background_jobs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    begun = tmp_path / "begun"
    code = "import sys; open(sys.argv[1], 'a').write(sys.argv[2]); print(sys.argv[2])"
    work = Work()

    async def ask(user: str, patience: float = 0.0) -> list[str]:
        with work.request((user, "abc")) as since:
            found = []
            for name in "abc":
                command = [sys.executable, "-S", "-c", code, str(begun), name]
                found.append(
                    await work.outcome(f"model {name}", command, "", patience, user, since)
                )
            return found

    async def end(name: str) -> None:
        task = work._jobs[f"model {name}"].task
        assert task
        await task
        now[0] += 2 * REMEMBERED

    async def talk() -> None:
        for name in "abc":
            with pytest.raises(Problem, match="again in a moment"):
                await ask("ada")
            await end(name)
        assert await ask("ada") == ["a", "b", "c"]
        assert begun.read_text() == "abc"
        assert await ask("bob", PATIENCE) == ["a", "b", "c"]
        assert begun.read_text() == "abcabc", "for a new request they are looked for again"
        now[0] += 2 * REMEMBERED
        assert await ask("ada", PATIENCE) == ["a", "b", "c"]
        assert begun.read_text() == "abcabcabc", "and for an old one that was answered"

    asyncio.run(talk())


def test_a_request_that_nobody_makes_again_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a model that was found an hour ago would be said to be where it was then."""
    now = [0.0]
    monkeypatch.setattr(background_jobs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    work = Work()

    def put_off(what: str, status: int = 503) -> float:
        with suppress(Problem), work.request(what) as since:
            raise Problem(status, "", "later")
        return since

    assert put_off("a") == 0.0
    now[0] = LONGEST - 1
    assert put_off("a") == 0.0
    now[0] = 2 * LONGEST
    assert put_off("a") == 2 * LONGEST
    assert put_off("b", 422) == put_off("b") == 2 * LONGEST
    now[0] += 1
    for n in range(KEPT):
        put_off(f"other {n}")
    assert put_off("a") == now[0], "the oldest of very many"


def test_a_key_means_its_run_whatever_a_model_s_name_means_by_then(served: Served) -> None:
    """The same key and body were answered 503, 422 or 409 once the model was somewhere else."""
    folders: list[str] = ["/first"]

    async def outcome(*_: Any) -> str:
        if not folders:
            raise Problem(503, "Service Unavailable", "again in a moment")
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
def test_a_role_that_a_kind_has_not_is_named(
    served: Served, body: dict[str, Any], said: str
) -> None:
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
