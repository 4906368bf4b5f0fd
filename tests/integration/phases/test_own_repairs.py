"""Repairs of the user's own as tasks of a baking run: read, checked in the sandbox, solved, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_forge.cli.options import setting
from agent_forge.evaluation.sandbox.sandbox import Sandbox
from agent_forge.phases.tool_baking.settings import BakingConfig
from agent_forge.phases.tool_baking.tool_tasks import all_tasks
from agent_forge.runs.errors import ConfigError, DataError
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.tools.calls import BRACKETS, CHAT, TAGS, WORDS, Form
from agent_forge.tools.tasks import own
from agent_forge.tools.tasks.episodes import Toolbox
from agent_forge.tools.tasks.own import OwnRepair
from agent_forge.worker.commands import submit
from testing.miniatures import baking_runs
from testing.models import toy_models
from testing.models.toys import Toys

#: Lines of the file with the bug before it.
HEAD = "from tax import RATE\n\ndef price(x):\n"


def repair(number: int, **changes: Any) -> dict[str, Any]:
    """Return a repair of two files, the second of which uses the first."""
    return {
        "id": f"shop-{number}",
        "issue": f"price({number}) is too low",
        "files": [
            {"name": "tax.py", "text": "RATE = 2\n"},
            {"name": "shop.py", "text": f"{HEAD}    return x - RATE - {number}\n"},
        ],
        "tests": [f"assert price(10) == {12 + number}", f"assert price(0) == {2 + number}"],
        "fix": [{"file": "shop.py", "line": 4, "text": f"return x + RATE + {number}"}],
        **changes,
    }


MANY = [repair(number) for number in range(40)]


def test_a_repair_is_a_task_that_its_fix_solves(tmp_path: Path) -> None:
    """The question has the issue and all files with line numbers; the slice follows from the id."""
    one = OwnRepair.model_validate(repair(3))
    item = one.item()
    assert item.questions[0].startswith("issue: price(3) is too low\ntax.py\n1 RATE = 2\nshop.py\n1 ")
    assert item.questions[0].endswith("4     return x - RATE - 3\nfix:")
    with Sandbox.open() as sandbox:
        own.check_tests([one], lambda: sandbox)
        box = Toolbox(item.world, tmp_path, lambda: sandbox)
        assert len(box.repository.failing(one.tests)) == 2
        assert [box.answer(call).output for call in item.calls[0]] == ["changed"]
        assert box.repository.failing(one.tests) == []
    other = OwnRepair.model_validate(repair(3, issue="another text"))
    assert other.slice == one.slice


def test_a_file_is_taken_as_it_is(tmp_path: Path) -> None:
    """Fences of Markdown in it are text, names of other files are not its own."""
    text = f'"""\n```\nprice(1)\n```\n"""\nsys = None\n{HEAD}    return x - RATE\n'
    files = [repair(0)["files"][0], {"name": "shop.py", "text": text}]
    fix = [{"file": "shop.py", "line": 10, "text": "return x + RATE"}]
    one = OwnRepair.model_validate(repair(0, files=files, fix=fix, tests=["assert price(1) == 3"]))
    with Sandbox.open() as sandbox:
        own.check_tests([one], lambda: sandbox)
        other = OwnRepair.model_validate(
            {**one.model_dump(), "tests": ["assert price(1) == 3", "assert RATES == 1"]}
        )
        with pytest.raises(DataError, match="after its fix the test 'assert RATES == 1' fails"):
            own.check_tests([other], lambda: sandbox)


def test_slices_share_out_all_repairs() -> None:
    config = BakingConfig.model_validate(
        {"families": [], "repairs": MANY, "selection_items": 40, "test_items": 40}
    )
    tasks = all_tasks(config)
    found = {on: {item.questions for item in some[own.NAME]} for on, some in tasks.items()}
    assert sum(map(len, found.values())) == len(set().union(*found.values())) == 40
    assert len(found["train"]) > len(found["test"]) >= 4


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"fix": [{"file": "shop.py", "line": 4, "text": "return 0"}]}, "after its fix the test"),
        ({"fix": [{"file": "shop.py", "line": 9, "text": "x"}]}, "shop.py has lines 1 to 4"),
        ({"tests": ["assert price(10) == 7"]}, "pass before it is mended"),
    ],
)
def test_a_repair_whose_tests_say_nothing_is_named(changes: dict[str, Any], match: str) -> None:
    broken = OwnRepair.model_validate(repair(1, **changes))
    with Sandbox.open() as sandbox, pytest.raises(DataError, match=f"repair 'shop-1'.*{match}"):
        own.check_tests([broken], lambda: sandbox)


@pytest.mark.parametrize(
    ("text", "form", "calls", "match"),
    [
        ("return x + RATE", TAGS, 2, "its fix has 3 edits, and a session has 2 calls.*set `calls`"),
        ("return '</call>'", TAGS, 3, "cannot be written in the form 'tags'"),
        ("return x[a[0]]", BRACKETS, 3, "cannot be written in the form 'brackets'"),
        ("return x.append(1)", WORDS, 3, "cannot be written in the form 'words'"),
    ],
)
def test_a_fix_that_no_model_can_write_is_named(text: str, form: Form, calls: int, match: str) -> None:
    one = OwnRepair.model_validate(repair(1, fix=[{**_fix(), "text": text}] * 3))
    with pytest.raises(DataError, match=f"repair 'shop-1': .*{match}"):
        own.check_written([one], form, calls)
    own.check_written([one], CHAT, 3)


def test_what_cannot_run_is_refused_before_any_work(toys: Toys) -> None:
    model = {"model": [str(toys.base)]}
    quick = {**baking_runs.QUICK, "tool_prompt": "T\n", "reply_tokens": 8, "families": []}

    def refused(match: str, repairs: list[dict[str, Any]], **settings: Any) -> None:
        asked = RunRequest("baking", {**quick, "repairs": repairs, **settings}, model)
        with pytest.raises((ConfigError, DataError), match=match):
            submit.check(submit.plan(asked))

    refused("name families, or give repairs", [])
    refused("the repair 'shop-1' is there twice", [repair(1), repair(1)])
    refused("the fix changes 'x.py', no file of it", [repair(1, fix=[{**_fix(), "file": "x.py"}])])
    refused("is not `assert CALL == VALUE`.*no single assert", [repair(1, tests=["price(1)"])])
    refused("with a literal VALUE: its VALUE is no literal", [repair(1, tests=["assert f() == g"])])
    refused("patch", [repair(1, patch="diff")])
    refused("repairs.7.patch: [^;]*; and 2 more", [repair(n, patch="diff") for n in range(10)])
    refused("files", [repair(1, files=[{"name": "../x.py", "text": "x"}])])
    large = [repair(n, files=[{"name": "shop.py", "text": f"{n:02}#" * 20_000}]) for n in range(70)]
    refused("all repairs together have 4,2.* characters; 4,000,000 at most", large)
    refused("'shop-1' and 'again' are the same", [repair(1), repair(1, id="again")])
    refused("fix.0.text", [repair(1, fix=[{**_fix(), "text": "a\nb"}])])
    refused("is not `assert CALL == VALUE`", [repair(1, tests=["assert " + "-" * 900 + "1 == 1"])])
    refused("two files have one name", [repair(1, files=[repair(1)["files"][0]] * 2)])
    refused("the family own has 0 tasks in the slice train, of 4 at least. Give more", MANY[:4])


def _fix() -> dict[str, Any]:
    return dict(repair(1)["fix"][0])


def test_a_setting_is_read_from_a_file(tmp_path: Path) -> None:
    lines, whole = tmp_path / "own.jsonl", tmp_path / "own.json"
    lines.write_text("\n".join(map(json.dumps, MANY[:2])) + "\n\n")
    whole.write_text(json.dumps(MANY[:2]))
    assert setting(f"repairs=@{lines}") == setting(f"repairs=@{whole}") == ("repairs", MANY[:2])
    assert setting('prompt="@home"') == ("prompt", "@home")
    lines.write_text('{"id": 1}\n{"id"\n')
    with pytest.raises(ConfigError, match=r"repairs=@.*own.jsonl: line 2: "):
        setting(f"repairs=@{lines}")
    with pytest.raises(ConfigError, match=r"none.json does not exist"):
        setting("x=@none.json")
    lines.write_text('{"id": "a\u2028b"}\n', "utf-8")
    assert setting(f"repairs=@{lines}") == ("repairs", [{"id": "a\u2028b"}])


@pytest.mark.slow
def test_a_run_of_own_repairs_has_an_honest_history(tmp_path: Path) -> None:
    """A model that can do nothing: the tasks are pinned, nothing is baked, the input is the result."""
    home = Home(tmp_path / "home")
    model, _ = toy_models.family(tmp_path / "m", 0, max_position_embeddings=512)
    settings = {"families": [], "repairs": MANY, "iterations": 2, "proposal": "name"}
    baking_runs.submit(home, model, **settings)
    state = baking_runs.finish(home)
    assert set(state.started.counts) == {"own/train", "own/selection", "own/test"}
    assert state.completed.figures["gain"].value == 0.0
    assert audit.audit(baking_runs.rows(home)) == []
