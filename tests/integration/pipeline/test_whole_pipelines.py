"""Whole pipelines of toy runs: the end, gates, failures, retries, kills; nothing of it needs torch."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_forge.evaluation.sandbox import sandbox
from agent_forge.pipeline.events import GateOverridden, PhaseEnded, PhaseFailed, PipelineState
from agent_forge.pipeline.kind import PipelineKind
from agent_forge.pipeline.submission import file as pipeline_file
from agent_forge.runs.errors import ConfigError, ConflictError, ForgeError, RunFailedError, SourceError
from agent_forge.runs.history import audit, repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import Lookup, RunRequest
from agent_forge.runs.panels.panels import Gates
from agent_forge.runs.record import events
from agent_forge.runs.system import packages
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import submit
from agent_forge.worker.commands.control import control
from agent_forge.worker.tasks import runner
from testing.toy import toy_pipelines, toy_runs
from testing.toy.toy_pipelines import TWO, phase
from testing.toy.toy_state import digest_of


def ask(home: Home, event: Any, run: str = "p") -> None:
    """Record what a user asks of a run."""
    with closing(home.open_store()) as store:
        control(store, run, event)


def failed(home: Home, run: str = "p") -> str:
    """Carry a pipeline on to its failure; return why it failed."""
    with pytest.raises(RunFailedError) as error:
        toy_runs.finish(home, run)
    return str(error.value)


def state(home: Home) -> PipelineState:
    """Return the pipeline's state."""
    found = toy_runs.state(home, "p")
    assert isinstance(found, PipelineState)
    return found


# ---- the end ---------------------------------------------------------------------------------


def test_a_phase_leaves_nothing_in_memory_for_the_next(home: Home) -> None:
    """Weights that a phase has in memory are gone when the next one begins."""
    toy_pipelines.submit(home)
    artifacts, kept = Artifacts.of(home), list[bool]()

    def watch(state: Any, rows: list[Any]) -> None:
        if state.run == "p.1-first":
            artifacts.put("a" * 64, {})
        elif state.run == "p.2-second":
            kept.append(artifacts.in_memory("a" * 64) is not None)

    with closing(home.open_store()) as store:
        runner.finish(runner.WorkerProcess(store, artifacts, watch), "p")
    assert kept
    assert not any(kept)


def test_a_pipeline_runs_its_phases_in_order_and_gives_what_the_last_gave(
    honest_home: Home, honest: PipelineState
) -> None:
    children = [toy_runs.state(honest_home, run) for run in ("p.1-first", "p.2-second")]
    ends = [honest.ended_phase(number) for number in (1, 2)]
    assert all(isinstance(end, PhaseEnded) for end in ends)
    for end, child in zip(ends, children, strict=True):
        assert end is not None
        assert (end.child, end.child_version, end.child_head) == (child.run, child.version, child.head)
        assert end.lineage == child.completed.lineage_digest
        assert end.figures["total"].value == child.total
    assert honest.completed.models["total"].digest == digest_of(children[1].total)
    [verdict] = honest.gates[1]
    assert verdict.verdict == "pass"
    assert 2 not in honest.gates
    for run in ("p", "p.1-first", "p.2-second"):
        assert audit.audit(toy_runs.rows(honest_home, run)) == []


def test_a_child_has_owner_priority_labels_and_cause_of_its_parent(home: Home) -> None:
    toy_pipelines.submit(home, priority=7, labels=("big",), by="ada", quarantine="worst-fitness")
    toy_runs.finish(home, "p")
    given = toy_runs.state(home, "p.1-first").submitted
    assert (given.owner, given.priority, given.labels) == ("ada", 7, ("big",))
    assert given.quarantine == "worst-fitness"
    first = toy_runs.rows(home, "p.1-first")[0]
    assert first.causation == toy_runs.rows(home, "p")[0].event_id


def test_the_lineage_is_the_same_under_another_name(home: Home, honest: PipelineState) -> None:
    """Children are named after the pipeline, and hash chains have times in them."""
    toy_pipelines.submit(home, run="another")
    other = toy_runs.finish(home, "another")
    assert other.lineage_digest() == honest.lineage_digest()


def test_another_seed_of_a_phase_is_another_lineage(home: Home, honest: PipelineState) -> None:
    toy_pipelines.submit(home, [TWO[0], phase("second", seed=3, steps=3)])
    assert toy_runs.finish(home, "p").lineage_digest() != honest.lineage_digest()


def test_a_short_name_means_the_pipeline_and_not_its_children(home: Home) -> None:
    toy_pipelines.submit(home, run="20261125-abc123")
    toy_runs.finish(home, "20261125-abc123")
    with closing(home.open_store()) as store:
        assert repository.full_name(store, "20261125-a") == "20261125-abc123"
        assert repository.full_name(store, "20261125-abc123.1") == "20261125-abc123.1-first"


# ---- gates -----------------------------------------------------------------------------------


def test_a_gate_stops_the_pipeline_and_a_person_overrides_it_with_a_reason(home: Home) -> None:
    toy_pipelines.submit(home, [phase("first", {"metric": "total", "at_least": 1e9}), TWO[1]])
    why = failed(home)
    assert "the gate of phase first stopped it: total is" in why
    assert "must be at least 1e+09" in why
    assert state(home).ended_phase(2) is None

    ask(home, events.Retried())
    assert "stopped it" in failed(home), "a retry alone changes no verdict"
    with pytest.raises(ConflictError, match="no gate of that phase"):
        ask(home, GateOverridden(phase=2, reason="no"))
    ask(home, GateOverridden(phase=1, reason="good enough"))
    with pytest.raises(ConflictError, match="overridden already"):
        ask(home, GateOverridden(phase=1, reason="again"))
    ask(home, events.Retried())
    ended = toy_runs.finish(home, "p")
    assert ended.completed
    assert audit.audit(toy_runs.rows(home, "p")) == []
    (gates,) = [p for p in PipelineKind().view.panels(ended) if isinstance(p, Gates)]
    overridden = gates.gates[0]
    assert (overridden.verdict, overridden.by, overridden.reason) == (
        *("overridden", ended.submitted.owner),
        "good enough",
    )


def test_a_passing_gate_is_not_overridden(honest_home: Home, home: Home) -> None:
    toy_pipelines.submit(home)
    toy_runs.finish(home, "p")
    with pytest.raises(ConflictError, match="it has completed"):
        ask(home, GateOverridden(phase=1, reason="no"))


# ---- failures --------------------------------------------------------------------------------


def test_a_phase_that_fails_ends_the_pipeline_naming_it_and_the_rest_is_not_started(home: Home) -> None:
    toy_pipelines.submit(home, [phase("first", failing="count/0/1"), TWO[1]])
    assert "phase first: run p.1-first failed: task count/0/1 failed 3 times" in failed(home)
    with closing(home.open_store()) as store:
        assert repository.stream_of(store, "p.2-second") is None
    assert audit.audit(toy_runs.rows(home, "p")) == []


def test_a_phase_whose_inputs_do_not_fit_ends_the_pipeline_naming_it(home: Home, monkeypatch) -> None:
    """Such a run fails at its start, by an error that tells its own user at once."""

    def unfit(self, task):
        if self.state.submitted.config.seed == 1:
            raise ConfigError("the sources are of two architectures.")
        return _counted(self, task)

    monkeypatch.setattr("testing.toy.toy_kind.ToyContext.carry_out", unfit)
    toy_pipelines.submit(home)
    told = failed(home)
    assert "phase first: run p.1-first failed: " in told
    assert "the sources are of two architectures" in told
    assert state(home).failed is not None
    assert audit.audit(toy_runs.rows(home, "p")) == []


def test_a_retry_of_the_pipeline_retries_the_failed_child(home: Home, monkeypatch) -> None:
    """It fails again here; so each retry is one, and no more than one."""
    toy_pipelines.submit(home, [phase("first", failing="count/0/1"), TWO[1]])
    for retries in range(3):
        assert "p.1-first failed" in failed(home)
        assert toy_runs.state(home, "p.1-first").retries == retries
        assert len(state(home).troubles(1)) == retries + 1
        ask(home, events.Retried())
    monkeypatch.setattr("testing.toy.toy_kind.ToyContext.carry_out", _counted)
    ended = toy_runs.finish(home, "p")
    assert ended.completed
    assert audit.audit(toy_runs.rows(home, "p")) == []
    assert audit.audit(toy_runs.rows(home, "p.1-first")) == []


def _counted(self, task):
    """Do the task that fails as if its setting were another."""
    from agent_forge.runs.kinds.decide import Start
    from testing.toy.toy_state import Counted, Started, value_of

    if isinstance(task, Start):
        return Started(warnings=(), arithmetic="sum@1")
    value = value_of(self.state, task)
    return Counted(step=task.step, slot=task.slot, value=value, digest=digest_of(value), seconds=0.0)


def test_a_child_that_was_retried_by_its_user_is_taken_as_it_ended(home: Home, monkeypatch) -> None:
    toy_pipelines.submit(home, [phase("first", failing="count/0/1"), TWO[1]])
    failed(home)
    ask(home, events.Retried(), "p.1-first")
    monkeypatch.setattr("testing.toy.toy_kind.ToyContext.carry_out", _counted)
    toy_runs.finish(home, "p.1-first")
    ask(home, events.Retried())
    assert toy_runs.finish(home, "p").completed


def test_a_cancelled_child_ends_the_pipeline_and_a_retry_begins_another(home: Home) -> None:
    toy_pipelines.submit(home)
    toy_runs.carry_until(home, lambda s: s.run == "p.1-first" and s.place > 2, "p")
    ask(home, events.Cancelled(reason="wrong"), "p.1-first")
    assert "phase first: run p.1-first was cancelled: wrong" in failed(home)
    ask(home, events.Retried())
    ended = toy_runs.finish(home, "p")
    assert ended.ended_phase(1).child == "p.1-first-1"
    assert audit.audit(toy_runs.rows(home, "p")) == []


def test_another_run_of_the_childs_name_is_not_taken_for_it(home: Home) -> None:
    toy_runs.submit(home, "p.1-first", seed=1)
    toy_runs.finish(home, "p.1-first")
    toy_pipelines.submit(home)
    assert "run p.1-first exists already, and is no part of this one" in failed(home)
    ask(home, events.Retried())
    assert toy_runs.finish(home, "p").ended_phase(1).child == "p.1-first-1"


# ---- control ---------------------------------------------------------------------------------


def under_way(home: Home) -> None:
    """Carry a pipeline into the middle of its first phase."""
    toy_pipelines.submit(home)
    toy_runs.carry_until(home, lambda s: s.run == "p.1-first" and s.place > 2, "p")


@pytest.mark.parametrize("word", ["paused", "cancelled"])
def test_what_is_asked_of_a_pipeline_is_asked_of_its_living_child(home: Home, word: str) -> None:
    under_way(home)
    event = {"paused": events.Paused, "cancelled": events.Cancelled}[word]
    ask(home, event(reason="enough"))
    assert toy_runs.state(home, "p.1-first").status == word
    assert state(home).status == word


def test_priority_goes_down_and_a_resumed_pipeline_goes_on(home: Home, honest: PipelineState) -> None:
    under_way(home)
    ask(home, events.PriorityChanged(priority=9))
    ask(home, events.Paused())
    ask(home, events.Resumed())
    assert toy_runs.state(home, "p.1-first").priority == 9
    assert toy_runs.finish(home, "p").lineage_digest() == honest.lineage_digest()
    assert toy_runs.state(home, "p.2-second").priority == 9


# ---- bad input -------------------------------------------------------------------------------


def said(*phases: dict[str, Any]) -> str:
    """Return what is wrong with a pipeline of these phases."""
    with pytest.raises(ForgeError) as error:
        submit.plan(RunRequest("pipeline", {"phases": list(phases)}))
    return str(error.value)


def test_a_pipeline_is_checked_whole_before_anything_starts() -> None:
    one = phase("one")
    assert "at least one phase" in said()
    assert "two phases are called one" in said(one, one)
    assert "phase two: there is no kind of run 'nothing'. There are: " in said(
        one, {"name": "two", "kind": "nothing"}
    )
    assert "phase one: settings of a toy run: stepz" in said(phase("one", stepz=1))
    assert "asks for speed, which a toy run does not have. There are: total, " in said(
        phase("one", {"metric": "speed", "at_least": 1})
    )
    assert "give at_least or at_most" in said(phase("one", {"metric": "total"}))
    assert "phase one is given two:total of phase two, which comes later" in said(
        {**one, "models": {"base": ["two:total"]}}, phase("two")
    )
    assert "phase one is given one of itself" in said({**one, "models": {"base": "one"}})
    assert "it is given one:big, and phase one gives one:total" in said(
        one, {**phase("two"), "models": {"base": "one:big"}}
    )
    assert "it is given one:big, and phase one gives one:total" in said(
        one, {**phase("two"), "models": {"base": "one/big"}}
    )
    assert "its data is one:items, and phase one gives no such data" in said(
        one, {**phase("two"), "data": ["one:items"]}
    )
    late = {**phase("late"), "kind": "cognate", "settings": {"preset": "mini"}}
    second = {**phase("two"), "models": {"base": "one:total"}}
    with pytest.raises(ForgeError, match="late:items, which come after phase two, whose model"):
        submit.plan(RunRequest("pipeline", {"phases": [one, second, late], "test": "late:items"}))
    with pytest.raises(ForgeError, match=r"gate asks for total\. For all phases there are: bits_per"):
        submit.plan(
            RunRequest("pipeline", {"phases": [one], "gates": {"metric": "total", "at_most": 1}})
        )
    assert "which is measured on test items, and there are none" in said(
        phase("one", {"metric": "bits_per_byte", "at_most": 1})
    )
    gate = {"metric": "total", "at_least": 1, "otherwise": "pass unchanged"}
    assert "passes its input unchanged: say which model" in said(phase("one", gate))
    assert "a pipeline cannot be a phase" in said({"name": "one", "kind": "pipeline"})


def later(kind: str, settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a phase of a model that an earlier phase makes."""
    models = {"model": "models:base"}
    return {"name": "late", "kind": kind, "settings": settings, "models": models, **more}


@pytest.mark.parametrize(
    ("phase", "missing"),
    [
        (
            later("compression", {"settings": ["rtn-4", "uniform-0.4"]}),
            "the codec uniform-0.4 needs the package constriction",
        ),
        (
            later("curriculum", {"families": ["gym-chain_sum"]}),
            "the family gym-chain_sum needs the package reasoning-gym",
        ),
        (later("measure", {}, data=["items.parquet"]), "items.parquet needs the package pyarrow"),
        (later("measure", {}, data=["lm-eval:arc_easy"]), "lm-eval:arc_easy needs the package lm-eval"),
    ],
)
def test_what_a_later_phase_needs_is_checked_before_its_model_is_made(
    phase: dict[str, Any], missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the run stops after everything but its end is done."""
    first = {"name": "models", "kind": "cognate", "settings": {"preset": "mini"}}
    submit.plan(RunRequest("pipeline", {"phases": [first]}))
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    assert said(first, phase).startswith(f"phase late: {missing}, which is not installed: pip")


def test_the_sandbox_of_a_later_phase_is_checked_before_its_model_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = {"name": "models", "kind": "cognate", "settings": {"preset": "mini"}}
    phases = [
        later("curriculum", {"families": ["tool-execution"], "levels": 5}),
        later("baking", {"families": ["calculation", "repair"]}),
    ]
    for late in phases:
        submit.plan(RunRequest("pipeline", {"phases": [first, late]}))
    monkeypatch.setattr(sandbox.Sandbox, "escapes", lambda self: "a program can write")
    for late in phases:
        assert "phase late: the sandbox does not hold on this machine" in said(first, late)
    elsewhere = Lookup(elsewhere=True)
    submit.plan(RunRequest("pipeline", {"phases": [first, *phases[:1]]}), elsewhere)


@pytest.mark.parametrize("kind", ["curriculum", "experts", "baking"])
def test_an_unknown_family_of_a_later_phase_is_refused(kind: str) -> None:
    first = {"name": "models", "kind": "cognate", "settings": {"preset": "mini"}}
    words = said(first, later(kind, {"families": ["adition"]}))
    assert words.startswith("phase late: there ")
    assert "'adition'" in words


def test_a_refused_child_says_why(home: Home) -> None:
    """A toy run takes no models: that is found when its phase begins."""
    toy_pipelines.submit(home, [TWO[0], {**phase("second"), "models": {"base": ["first:total"]}}])
    assert "phase second: run p.2-second could not be submitted: a toy run takes neither" in (
        failed(home)
    )
    [trouble] = state(home).troubles(2)
    assert isinstance(trouble, PhaseFailed)
    assert trouble.status == "refused"


def test_a_child_that_is_refused_once_is_submitted(
    home: Home, honest: PipelineState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that was found and then taken away is made again; only a second refusal is kept."""
    planned, refused = submit.plan, list[str]()

    def once(asked: RunRequest, *more: Any) -> Any:
        if asked.kind == "toy" and not refused:
            refused.append("the folder is gone")
            raise SourceError(refused[0])
        return planned(asked, *more)

    toy_pipelines.submit(home)
    monkeypatch.setattr(submit, "plan", once)
    toy_runs.finish(home, "p")
    assert state(home).lineage_digest() == honest.lineage_digest()
    assert refused


def test_another_users_run_of_the_childs_name_is_left_alone(home: Home) -> None:
    """Asking a pipeline asks no run that is no part of it."""
    toy_runs.submit(home, "p.1-first")
    toy_pipelines.submit(home)
    toy_runs.carry_until(home, lambda s: s.run == "p" and s.started is not None, "p")
    ask(home, events.Paused())
    ask(home, events.Cancelled())
    assert state(home).status == "cancelled"
    assert toy_runs.state(home, "p.1-first").status == "submitted"


def test_one_model_and_one_gate_may_be_written_without_brackets() -> None:
    phase_ = {**phase("one"), "gates": {"metric": "total", "at_least": 1}}
    config = submit.plan(RunRequest("pipeline", {"phases": [phase_]})).config
    assert [gate.metric for gate in config.phases[0].gates] == ["total"]


def test_a_model_may_be_written_with_a_slash_or_by_an_alias(tmp_path: Path, monkeypatch) -> None:
    """PHASE/ROLE is PHASE:ROLE unless a folder is there; an alias is no setting."""
    for place in ("one/total", "elsewhere"):
        (tmp_path / place).mkdir(parents=True)
    models = {"sources": ["one/total", "mine"], "base": ["mine"]}
    two = {"name": "two", "kind": "evomerge", "models": models, "unchanged": "one/total"}
    asked = {"phases": [phase("one"), two], "aliases": {"mine": str(tmp_path / "elsewhere")}}
    with_phase = submit.plan(RunRequest("pipeline", asked))
    assert with_phase.config.phases[1].given == ("one:total", "mine", "mine")
    assert with_phase.config.phases[1].unchanged == "one:total"
    assert with_phase.fields["given"]["mine"].path == str(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    with_folder = submit.plan(RunRequest("pipeline", asked))
    assert with_folder.config.phases[1].given == ("one/total", "mine", "mine")
    assert with_folder.fields["given"]["one/total"].path == str(tmp_path / "one/total")
    file = tmp_path / "two.toml"
    file.write_text('[aliases]\nmine = "a/b"\n[[phase]]\nname = "one"\nkind = "toy"\n')
    assert pipeline_file.read(file)["aliases"] == {"mine": "a/b"}
    with pytest.raises(ConfigError, match="a name and a model each"):
        submit.plan(RunRequest("pipeline", {**asked, "aliases": {"mine": 7}}))


def test_data_is_placed_where_the_pipeline_is_submitted(tmp_path: Path, monkeypatch) -> None:
    """A worker has another folder than its user, and each kind knows its own names of data."""
    from agent_forge.evaluation.data.builtin import arithmetic

    texts = (document.text for document in arithmetic.documents(60_000, 3))
    lines = [json.dumps({"text": text}) for text in texts]
    (tmp_path / "law.jsonl").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    train = {"name": "train", "kind": "cognate", "settings": {"preset": "mini"}}
    merge = {
        "name": "merge",
        "kind": "evomerge",
        "models": {"sources": ["train:law", "train:base"], "base": ["train:base"]},
    }
    phases = [{**train, "data": "law=law.jsonl"}, {**merge, "data": ["train:items", "more.jsonl"]}]
    plan = submit.plan(RunRequest("pipeline", {"phases": phases}))
    assert plan.fields["places"] == {
        "train": (f"law={tmp_path}/law.jsonl",),
        "merge": ("train:items", f"{tmp_path}/more.jsonl"),
    }
    wrong = {**merge, "models": {"sources": ["train:code"], "base": ["train:base"]}}
    assert "it is given train:code, and phase train gives train:base, train:law" in said(
        phases[0], wrong
    )
