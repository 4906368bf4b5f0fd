"""Cognate runs of a base and of text that the user gives, and what is refused before any work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from agent_forge.phases.cognate import figures
from agent_forge.phases.cognate.script import Cognate
from agent_forge.phases.cognate.work import Context
from agent_forge.runs.errors import ConfigError, DataError, ForgeError, SourceChangedError
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.studies.making.making import MakingState
from agent_forge.studies.training_plan import as_float32
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from agent_forge.weights.recipes import Source, Train
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training import room
from agent_forge.worker.commands import submit
from testing.miniatures import cognate_runs
from testing.models import toy_models
from testing.verification import rebuilt, verified_again
from tests.integration.cli.test_forge import call, fails

#: Short trainings at a high rate: the specialists must become the best on their own text.
QUICK = {"specialist_tokens": 20_000, "batch": 4, "specialist_rate": 5e-3}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A base in bfloat16 with a tokenizer of its own, and a folder of text in two domains."""
    folder = tmp_path_factory.mktemp("given")
    base, _ = toy_models.family(folder, 0, torch.bfloat16)
    (folder / "texts").mkdir()
    law = (f"§ {n}. The party of part {n % 9} shall pay the party of part 1." for n in range(3000))
    sums = (json.dumps({"text": f"{a} + {b} = {a + b}\n" * 8}) for a in range(30) for b in range(9))
    (folder / "texts" / "law.txt").write_text("\n\n".join(law), "utf-8")
    (folder / "texts" / "sums.jsonl").write_text("\n".join(sums), "utf-8")
    return base, folder / "texts"


@pytest.fixture(scope="module")
def made(given, tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, MakingState, Path]:
    """A finished run over them: (home, state, folder of the models)."""
    folder = tmp_path_factory.mktemp("own")
    home = Home(folder / "home")
    base, texts = given
    data = [f"law={texts / 'law.txt'}", str(texts / "sums.jsonl")]
    cognate_runs.submit(home, base=base, data=data, **QUICK)
    state = cognate_runs.finish(home)
    Cognate().write_result(home, state, folder / "models")
    return home, state, folder / "models"


@pytest.mark.slow
def test_specialists_of_a_given_base_are_trained_on_given_text(given, made) -> None:
    """The base is the given one, exactly, and trained from in float32; domains are the data's."""
    _, state, out = made
    assert state.submitted.config.domains == ("law", "sums")
    stored = open_checkpoint(given[0]).tensors()
    assert state.started.base.digest == digest(stored)
    base = open_checkpoint(out / "base").tensors()
    assert {t.dtype for t in base.values()} == {torch.bfloat16}
    assert all(torch.equal(base[name], tensor) for name, tensor in stored.items())
    trained = Cognate().trainings(state)
    assert list(trained) == ["law", "sums"]
    assert {recipe.start for recipe in trained.values()} == {as_float32(state.started).id}
    assert figures.no_specialist(Cognate().run(state)) == ""
    assert all(lead.low > 0 for lead in figures.leads(Cognate().run(state)).values())


@pytest.mark.slow
def test_config_and_tokenizer_are_the_given_base_s(given, made) -> None:
    """With the dtype, which is that of the weights."""
    base, _ = given
    _, _, out = made
    for name in ("base", "law", "sums"):
        assert (out / name / "tokenizer.json").read_bytes() == (base / "tokenizer.json").read_bytes()
        config = json.loads((out / name / "config.json").read_text())
        assert config == {**json.loads((base / "config.json").read_text()), "dtype": "bfloat16"}
        assert "license" not in (out / name / "README.md").read_text()


@pytest.mark.slow
def test_its_history_is_honest_and_its_lineage_ends_at_the_given_model(made) -> None:
    home, state, _ = made
    assert audit.audit(cognate_runs.rows(home)) == []
    told = call(home.folder, "lineage", "r", "law")
    assert [line.split()[1] for line in told.stdout.splitlines()] == [
        *("law", "law-float32", "base-float32", "given")
    ]
    assert Cognate().models.ancestry(state, "law")[-1].given == state.started.base.digest
    assert Source(digest=state.started.base.digest).id == state.started.base.recipe_id


@pytest.mark.slow
def test_it_is_made_again_from_the_given_base(made) -> None:
    """`verify --rebuild all`, with an empty cache; a forged digest of the base is found."""
    home, state, _ = made
    assert verified_again(home, state.run)[0] == []
    base = Cognate().named(state)["base"].id
    forged = type(state)()
    forged.__dict__.update(state.__dict__)
    wrong = state.made[base].model_copy(update={"digest": "0" * 64})
    forged.made = {**state.made, base: wrong}
    (found,) = rebuilt(home, forged, [base])
    assert found.level == "error"


@pytest.mark.slow
def test_the_items_measure_every_domain(made) -> None:
    """They are data for `forge evo`: text in every slice."""
    from agent_forge.evaluation.data import items as data_items

    items = data_items.load([made[2] / "items"])
    assert {(i.domain, i.slice) for i in items} == {
        (d, s) for d in ("law", "sums") for s in ("train", "search", "selection", "test")
    }


def started(home: Home, base: Path, texts: Path) -> MakingState:
    """Start a run over copies of base and text; nothing is trained yet."""
    cognate_runs.submit(home, base=base, data=[str(texts)], **QUICK)
    return cognate_runs.carry_until(home, lambda state: state.started is not None)


def opened(home: Home) -> Context:
    """Open the run in another process's place, and check it."""
    context = Context(cognate_runs.state(home), Artifacts.of(home))
    context.check_unchanged()
    return context


def test_changed_files_do_not_change_a_run_that_has_started(given, tmp_path: Path) -> None:
    """Base and text are this machine's own copies; where those are gone, it is refused."""
    base, texts = (Path(shutil.copytree(place, tmp_path / place.name)) for place in given)
    home = Home(tmp_path / "home")
    state = started(home, base, texts)
    settings = json.loads((base / "tokenizer_config.json").read_text())
    (base / "tokenizer_config.json").write_text(json.dumps({**settings, "note": "other"}))
    with (texts / "sums.jsonl").open("a") as file:
        file.write("\n" + json.dumps({"text": "1 + 1 = 3\n" * 40, "slice": "train"}))
    assert opened(home).text.digests == state.started.streams
    shutil.rmtree(home.artifacts / "supply")
    with pytest.raises(DataError, match=r"sums, the items differ\. Put the old"):
        opened(home)
    shutil.rmtree(home.artifacts / "models")
    with pytest.raises(SourceChangedError, match=r"tokenizer_config\.json differ"):
        opened(home)


# ---- refused before any work ---------------------------------------------------------------------


def altered(base: Path, folder: Path, name: str, **changes: Any) -> Path:
    """Copy the base with other settings in one of its JSON files."""
    shutil.copytree(base, folder)
    file = folder / name
    settings = json.loads(file.read_text())
    file.write_text(json.dumps({**settings, **changes}))
    return folder


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"domains": ["law", "poetry"]}, "domains names poetry, and the data has no text of it"),
        ({"mix": {"poetry": 1.0}}, "mix weighs poetry"),
        ({"mix": {}}, "mix: give at least one domain"),
        ({"base_tokens": 1000}, "not trained further: leave out base_tokens"),
        ({"context": 4096}, "context is 4096, the base takes 64 tokens"),
        ({"domains": ["base"]}, "the name of something else"),
        ({"own_share": 1.5}, "own_share"),
        ({"batch": 0}, "batch"),
        ({"specialist_rate": -1}, "specialist_rate"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given, settings, complaint: str) -> None:
    base, texts = given
    config, models = {"preset": "mini", **settings}, {"base": [str(base)]}
    with pytest.raises(ForgeError, match=complaint):
        submit.check(submit.plan(RunRequest("cognate", config, models, [str(texts)])))


def test_a_text_that_is_too_short_for_a_window_is_refused(given, tmp_path: Path) -> None:
    """By name, before anything is trained."""
    lines = (json.dumps({"text": "one two", "slice": s}) for s in ("train", "search"))
    rest = (json.dumps({"text": "three", "slice": s}) for s in ("selection", "test"))
    (tmp_path / "few.jsonl").write_text("\n".join((*lines, *rest)))
    home = Home(tmp_path / "home")
    cognate_runs.submit(home, base=given[0], data=[str(tmp_path / "few.jsonl")])
    with pytest.raises(ForgeError, match=r"text of domain few has \d+ tokens: a window of 64"):
        cognate_runs.finish(home)


def test_a_file_whose_name_is_no_name_of_a_model_needs_one(given, tmp_path: Path) -> None:
    """It would be a folder and a role; chosen domains need not have it."""
    odd = Path(shutil.copy(given[1] / "sums.jsonl", tmp_path / "my sums.jsonl"))
    asked = RunRequest("cognate", {"preset": "mini"}, {}, [str(odd)])
    with pytest.raises(DataError, match=r"'my sums' of the data cannot name .* --data NAME=PATH"):
        submit.plan(asked)
    named = RunRequest("cognate", {"preset": "mini"}, {}, [f"sums={odd}"])
    assert submit.plan(named).config.domains == ("sums",)


def test_a_vocabulary_that_the_text_does_not_give_says_which_it_gives(given, tmp_path: Path) -> None:
    """Before anything is recorded; with the setting that the error names, the run starts."""
    data = [str(given[1] / "law.txt")]
    plan = submit.plan(RunRequest("cognate", {"preset": "mini"}, {}, data))
    with pytest.raises(ForgeError, match=r"the text gives \d+ tokens.* needs 512.*--set") as error:
        submit.check(plan)
    count = int(str(error.value).split()[3])
    home = Home(tmp_path / "home")
    cognate_runs.submit(home, data=data, vocabulary=count, base_tokens=512, specialist_tokens=512)
    state = cognate_runs.carry_until(home, lambda state: state.started is not None)
    assert state.started is not None
    # Rows of 32 numbers in the embedding, which is the head, too.
    assert state.started.parameters == 28_960 - (512 - count) * 32
    asked = RunRequest("cognate", {"vocabulary": 300}, {"base": [str(given[0])]}, data)
    with pytest.raises(ConfigError, match="its own tokenizer: leave out vocabulary"):
        submit.plan(asked)


def test_tokenizers_that_do_not_fit_are_refused(given, tmp_path: Path) -> None:
    """No end token; more tokens than the embedding has rows."""
    base, texts = given
    data = ["cognate", "--out", str(tmp_path / "out"), "--data", str(texts), "--preset", "mini"]
    endless = altered(base, tmp_path / "endless", "tokenizer_config.json", eos_token=None)
    told = fails(tmp_path / "h", 2, *data, "--base-model", str(endless))
    assert "has no end token" in told
    extra = {str(n): {"content": f"<{n}>", "special": True} for n in (320, 321)}
    larger = Path(shutil.copytree(base, tmp_path / "larger"))
    tokenizer = json.loads((larger / "tokenizer.json").read_text())
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokenizer["added_tokens"] += [{"id": int(n), **one, **plain} for n, one in extra.items()]
    (larger / "tokenizer.json").write_text(json.dumps(tokenizer))
    told = fails(tmp_path / "h", 2, *data, "--base-model", str(larger))
    assert "has 322 tokens, the embedding 320 rows" in told


# ---- memory --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_step_that_does_not_fit_is_computed_in_parts(given, tmp_path: Path, monkeypatch) -> None:
    """As many as are needed, with a note; they are pinned. One window that does not fit ends it."""
    from agent_forge.phases.cognate import work

    whole, most = work.canary, 1

    def canary(recipe: Train, *args: Any, **more: Any) -> tuple[str, float]:
        if recipe.batch // recipe.accumulation > most:
            raise room.OutOfMemoryError("an allocation failed")
        return whole(recipe, *args, **more)

    monkeypatch.setattr(work, "canary", canary)
    state = started(Home(tmp_path / "home"), *given)
    assert state.started.accumulation == 4
    assert "computed in 4 parts" in " ".join(state.started.warnings)
    assert Cognate().trainings(state)["law"].accumulation == 4
    most = 0
    with pytest.raises(ForgeError, match="not even one window of 64 tokens fits in memory"):
        started(Home(tmp_path / "second"), *given)


# ---- several processes ---------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.slow
def test_two_processes_share_every_training_and_verify_does_too(given, made, tmp_path) -> None:
    """Other bits than one process gives, by rounding alone; the same ones again."""
    home = Home(tmp_path / "home")
    data = [f"law={given[1] / 'law.txt'}", str(given[1] / "sums.jsonl")]
    cognate_runs.submit(home, base=given[0], data=data, processes=2, **QUICK)
    state = cognate_runs.carry_until(home, lambda now: bool(now.advanced))
    (event,) = next(iter(state.advanced.values())).values()
    (one,) = made[1].advanced[event.stem].values()
    assert event.curve[0].loss == pytest.approx(one.curve[0].loss, rel=1e-5)
    assert event.curve[-1] != one.curve[len(event.curve) - 1]
    shutil.rmtree(home.artifacts / "snapshots")
    context = opened(home)
    recipe = Cognate().trainings(state)["law"]
    again = context.maker._snapshot(recipe.to(event.step))
    assert digest(again.weights) == event.digest


# ---- what is measured ----------------------------------------------------------------------------


@pytest.mark.slow
def test_questions_of_a_domain_without_text_are_left_to_the_search(given, tmp_path: Path) -> None:
    """They are items for `forge evo`; here texts are measured."""
    rows = [
        {"prompt": "2 + 2 =", "choices": [" 4", " 5"], "answer": 0, "slice": s}
        for s in ("search", "selection", "test")
    ]
    (tmp_path / "quiz.jsonl").write_text("\n".join(map(json.dumps, rows)))
    home = Home(tmp_path / "home")
    data = [str(given[1] / "sums.jsonl"), str(tmp_path / "quiz.jsonl")]
    cognate_runs.submit(home, base=given[0], data=data, **QUICK)
    state = cognate_runs.finish(home)
    assert set(figures.quality(Cognate().run(state))["sums"]) == {"sums"}


def test_text_too_short_to_measure_on_is_refused_before_any_training(given, tmp_path: Path) -> None:
    rows = [{"text": "1 + 1 = 2\n" * 99, "slice": s} for s in ("train", "search", "test")]
    rows.append({"text": "1", "slice": "selection"})
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    home = Home(tmp_path / "home")
    cognate_runs.submit(home, base=given[0], data=[str(tmp_path / "sums.jsonl")], **QUICK)
    with pytest.raises(ForgeError, match="sums in the slice selection is too short to measure on"):
        cognate_runs.finish(home)
    assert not cognate_runs.state(home).made
