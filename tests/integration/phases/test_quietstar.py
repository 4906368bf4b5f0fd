"""Quietstar runs: arms from one base, hard tokens frozen before training, the gate, the folders."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import shutil
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from agent_forge.cli import kind_views
from agent_forge.phases.quietstar import figures as quietstar_figures
from agent_forge.phases.quietstar import recipes, work
from agent_forge.phases.quietstar.figures import EXCHANGED, PLAIN, THOUGHTFUL
from agent_forge.phases.quietstar.recipes import frozen, window
from agent_forge.phases.quietstar.script import Quietstar
from agent_forge.phases.quietstar.work import Context
from agent_forge.runs.errors import ConfigError, DataError, NotFoundError
from agent_forge.runs.event_types import Figure
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import Lookup, RunRequest
from agent_forge.runs.kinds.view import overview
from agent_forge.runs.lists import model_registry
from agent_forge.studies.making.making import MakingState
from agent_forge.weights import operations
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage import model_origin
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training import complete
from testing.miniatures import quietstar_runs
from testing.models.toys import Toys
from testing.verification import (
    announced,
    assert_amounts,
    changed,
    copy_of,
    in_folder,
    kinds_of_example,
    shown_early,
    verified_again,
    written_again,
)
from tests.integration.cli.test_forge import succeeds
from tests.integration.kinds.test_forgeries import edit, relinked

KIND = Quietstar()
ARMS = ("start", "base", "continued", "pause", "thoughts", "shuffled", "silent")


@pytest.fixture(scope="module")
def made(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, MakingState, Path]:
    """A finished run with all arms: (home, state, folder of the result)."""
    folder = tmp_path_factory.mktemp("quietstar")
    home = Home(folder / "home")
    quietstar_runs.submit(home, toys.base)
    return quietstar_runs.result(home, folder / "out")


def test_hard_tokens_are_frozen_before_anything_is_trained(made) -> None:
    """The worst tenth of each domain by the given model's loss; of both slices, in the log."""
    home, state, _ = made
    types = [row.type for row in quietstar_runs.rows(home)]
    assert types.count("hard_tokens_frozen") == 2
    last = max(n for n, type_ in enumerate(types) if type_ == "hard_tokens_frozen")
    assert last < types.index("advanced")
    for on in ("selection", "test"):
        event = frozen(state, on)
        assert event is not None
        assert recipes.wrong(event, 0.1) is None
        scores = Context(state, Artifacts.of(home))._scores(event.recipe_id, PLAIN, on)
        for domain, one in scores.items():
            flat = np.concatenate(one.losses)
            places = np.concatenate(
                [
                    np.isin(np.arange(size), own)
                    for size, own in zip(event.sizes[domain], event.tokens[domain], strict=True)
                ]
            )
            assert places.sum() == math.ceil(0.1 * len(flat))
            assert flat[places].min() == event.thresholds[domain]
            assert flat[~places].max() <= flat[places].min()


def test_arms_branch_from_one_base_and_read_the_same_windows(made) -> None:
    """Steps, rows, rates and data are those of continued training; every default is written out."""
    _, state, _ = made
    recipes: Any = KIND.recipes(state)
    arms = [recipes[name] for name in ("continued", "pause", "thoughts")]
    own = {"objective", "params", "inputs", "start"}
    alike = {json.dumps(a.model_dump(mode="json", exclude=own)) for a in arms}
    assert len(alike) == 1
    assert recipes["continued"].start == recipes["base"].id
    for name, pause in (("pausing", True), ("thinking", False)):
        assert recipes[name].inputs == {"of": recipes["base"].id}
        assert recipes[name].params == {"weight": 0.1, "pause": pause}
    assert recipes["thoughts"].inputs == {"teacher": recipes["base"].id}
    assert recipes["thoughts"].params["lengths"] == [3, 2]
    assert recipes["pause"].params == {**recipes["thoughts"].params, "thinks": "pause"}
    for recipe in recipes.values():
        whole = complete(recipe) if isinstance(recipe, Train) else operations.complete(recipe)
        assert whole == recipe


def test_figures_follow_from_what_was_measured(made) -> None:
    """Means over domains of nats a hard token; the gain is over the better rival."""
    _, state, _ = made
    seen = KIND.run(state).seen
    assert set(seen) == set(ARMS) == set(state.completed.arms)
    hard = {
        arm: sum(math.fsum(e.items[f"hard/{d}"]) / sum(e.sizes[f"hard/{d}"]) for d in ("rows", "sums"))
        / 2
        for arm, e in seen.items()
    }
    figures = state.completed.figures
    rival = min(hard["continued"], hard["pause"])
    gain = rival - hard["thoughts"]
    assert figures["gain"].value == pytest.approx(gain)
    assert figures["over_pause"].value == pytest.approx(hard["pause"] - hard["thoughts"])
    cost = hard["shuffled"] - hard["thoughts"]
    assert figures["exchanged"].value == pytest.approx(cost)
    assert figures["genuine"].value == pytest.approx(cost - gain / 2)
    assert figures["hard_nats"].value == pytest.approx(hard["thoughts"])
    assert figures["moved"].value == pytest.approx(hard["base"] - hard["continued"])
    for name, one in figures.items():
        if name not in ("weight", "retention"):
            assert one.low <= one.value <= one.high, name
    assert 0 < figures["weight"].value < 1


def test_without_a_gain_the_given_model_is_passed_through(made, toys: Toys) -> None:
    """To the last bit; a null result ends well."""
    _, state, out = made
    assert state.completed.chosen == "start"
    given = digest(open_checkpoint(toys.base).tensors())
    assert state.completed.models["model"].digest == given
    assert digest(open_checkpoint(out / "model").tensors()) == given
    retention = state.completed.figures["retention"]
    assert (retention.value, retention.low, retention.high) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("gain", "genuine", "passes"),
    [((0.01, 0.2), (0.0, 0.2), True), ((0.0, 0.2), (0.0, 0.2), False), ((0.01, 1), (-0.1, 1), False)],
)
def test_the_gate_asks_for_both_worse_ends(gain: Any, genuine: Any, passes: bool) -> None:
    told = {
        name: Figure(value=0.1, low=low, high=high)
        for name, (low, high) in (("gain", gain), ("genuine", genuine))
    }
    assert quietstar_figures.passes(told) is passes


def test_a_model_whose_thoughts_help_is_the_result(made) -> None:
    """The same log with better numbers of the arm with thoughts, and bad ones of exchanged thoughts."""
    _, state, _ = made
    other = changed(state, answers=dict(state.answers))
    for arm, factor in (("thoughts", 0.5), ("shuffled", 2.0)):
        task = KIND.run(state).arms[arm]
        event: Any = state.answers[task.key]
        items = {n: tuple(factor * v for v in some) for n, some in event.items.items()}
        values = {n: factor * v for n, v in event.values.items()}
        other.answers[task.key] = event.model_copy(update={"items": items, "values": values})
    assert KIND.run(other).conclusions["chosen"] == "thoughts"
    assert KIND.named(other)["model"] == KIND.recipes(state)["silent"]
    lost = KIND.run(other).conclusions["figures"]["retention"].value
    seen = KIND.run(state).seen
    every = [quietstar_figures.mean(seen[arm], "all") for arm in ("start", "silent")]
    assert lost == pytest.approx(every[0] / every[1])


def test_losses_are_those_of_single_passes(made) -> None:
    """With thoughts, pauses and exchanged thoughts: against the file that goes with the model."""
    home, state, out = made
    context = Context(state, Artifacts.of(home))
    thinker = _modeling(out).Thinker.from_pretrained(out / "thoughts")
    recipe = KIND.recipes(state)["thoughts"]
    (document, *_) = context.documents("test")["sums"]
    scores = context._scores(recipe.id, THOUGHTFUL, "test")["sums"]
    window = torch.from_numpy(document[0])[None]
    draws = context.thinking("test", "sums").draws([0], window.shape[1] - 1)
    assert draws is not None
    for place in range(window.shape[1] - 1):
        told = thinker.next_token(window[:, : place + 1], draws=draws[0, :, place])
        alone = told[window[0, place + 1]]
        assert -float(alone) == pytest.approx(scores.losses[0][place], abs=1e-4)
    exchanged = context._scores(recipe.id, EXCHANGED, "test")["sums"]
    assert not np.array_equal(np.concatenate(exchanged.losses), np.concatenate(scores.losses))
    lengths = [sum(len(w) - 1 for w in windows) for windows in context.documents("test")["sums"]]
    assert [len(one) for one in scores.losses] == lengths
    assert max(lengths) <= 24


def _modeling(out: Path) -> Any:
    """Import the file that lies in the folder of the model that thinks."""
    name = "modeling_thoughts_exported"
    spec = importlib.util.spec_from_file_location(name, out / "thoughts" / "modeling_thoughts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_the_folder_loads_with_plain_transformers_and_with_thoughts(made) -> None:
    """Without thoughts it is the ordinary model of the folder; with them other numbers come out."""
    _, state, out = made
    plain: Any = AutoModelForCausalLM.from_pretrained(out / "thoughts")
    silent = state.made[KIND.recipes(state)["silent"].id].digest
    assert digest(open_checkpoint(out / "thoughts").tensors()) == silent
    thinker = _modeling(out).Thinker.from_pretrained(out / "thoughts")
    assert thinker.length == 2
    ids = torch.arange(5, 12)[None]
    with torch.no_grad():
        wanted = plain(input_ids=ids).logits[0, -1].log_softmax(-1)
    torch.testing.assert_close(thinker.next_token(ids, think=False), wanted)
    assert not torch.equal(thinker.next_token(ids), wanted)
    assert "modeling_thoughts" in (out / "thoughts" / "README.md").read_text()
    drawn = [thinker.generate(ids, 2, generator=torch.Generator().manual_seed(n)) for n in (3, 3)]
    assert torch.equal(*drawn)
    greedy = plain.generate(ids, max_new_tokens=4, do_sample=False, eos_token_id=None)
    assert torch.equal(thinker.generate(ids, 4, think=False), greedy)


def test_documents_are_cut_to_their_first_tokens(made) -> None:
    home, state, _ = made
    context = Context(state, Artifacts.of(home))
    texts = [text for text in context.text.texts if text.domain == "sums" and text.slice == "test"]
    few = work.cut(texts, context.text.tokenizer, 10, 25, 60)
    assert [sum(len(w) - 1 for w in windows) for windows in few] == [25, 25, 25]
    assert [len(w) for w in few[0]] == [11, 11, 6]
    assert few[0][0][-1] == few[0][1][0]


def test_models_are_found_by_name_and_tell_where_they_came_from(made) -> None:
    home, state, _ = made
    with closing(home.open_store()) as store:
        for name in ("thoughts", "silent", "pause"):
            origin = model_origin.find(store, f"q:{name}")
            assert origin is not None
            assert origin.recipe_id == KIND.recipes(state)[name].id
        rows, total = model_registry.listed(store)
    assert total == 1
    assert rows[0]["parameters"] == state.started.model.parameters
    places = [one.place for one in KIND.models.ancestry(state, "silent")]
    assert places == ["silent", "thoughts", "thinking", "base", "model", "given"]
    with pytest.raises(NotFoundError, match="no model 'poetry'"):
        KIND.models.origin(state, (), "poetry")


def test_its_panels_and_its_terminal_show_the_arms(made) -> None:
    home, state, out = made
    shown = overview(state)
    names = [panel.name for panel in shown.panels]
    assert names == ["arms", "gate", "quality", "loss", "speed", "norm", "rate", "models"]
    assert shown.head.result is not None
    assert shown.head.result.value == state.completed.figures["hard_nats"].value
    view = kind_views.of("quietstar")
    lines = [line for row in quietstar_runs.rows(home) if (line := view.unit(state, row))]
    assert any("measured thoughts (shuffled), test: " in line for line in lines)
    told = succeeds(home.folder, "show", "q", "--all")
    assert "Gate: is it the thoughts?" in told.stdout
    assert "passed through unchanged" in announced(state, out)
    assert "hard token" in "\n".join(KIND.view.summary(state, ()))
    assert shown_early(state).panels == ()


def test_a_model_is_written_again_where_its_folder_and_cache_are_gone(made, tmp_path) -> None:
    home, state, _ = made
    place = written_again(home, state, tmp_path)
    assert digest(open_checkpoint(place).tensors()) == state.completed.models["model"].digest


@pytest.mark.slow
def test_everything_is_made_again_by_verify(made) -> None:
    home, state, out = made
    found, said = verified_again(home, state.run)
    assert found == []
    assert len([line for line in said if "as recorded" in line]) == 8
    assert in_folder(home, state, out) == []
    assert len(in_folder(home, state, out, models={"model": "0" * 64})) == 2
    for name in ("model", "thoughts"):
        assert in_folder(home, state, out / name) == []


def _other_places(rows: Any) -> Any:
    """Another hard token in the first document of the first slice."""
    row = next(row for row in rows if row.type == "hard_tokens_frozen")
    tokens = json.loads(row.data)["tokens"]
    tokens["rows"][0] = tokens["rows"][0][1:]
    return edit("hard_tokens_frozen", 0, tokens=tokens)(rows)


def _other_tokens(rows: Any) -> Any:
    """An arm that was measured on fewer hard tokens."""
    row = next(row for row in rows if row.type == "observed")
    data = json.loads(row.data)
    data["sizes"]["hard/rows"][0] += 1
    return edit("observed", 0, sizes=data["sizes"])(rows)


@pytest.mark.parametrize(
    ("forgery", "what"),
    [
        (edit("completed", figures={}), "the figures are not those"),
        (edit("completed", chosen="thoughts"), "the chosen are not those"),
        (_other_places, "another share than was asked for"),
        (_other_tokens, "other tokens than those that were frozen|do not follow"),
    ],
)
def test_forged_figures_are_found(made, forgery, what: str) -> None:
    """Without a model: the end no longer follows from the events."""
    rows = quietstar_runs.rows(made[0])
    found = [str(one.message) for one in audit.audit(relinked(forgery(rows)))]
    assert any(re.search(what, one) for one in found), found


def test_a_forecast_tries_the_start_and_some_steps(made, tmp_path: Path) -> None:
    home, state, _ = made
    copied = copy_of(home, tmp_path)
    told = KIND.forecast(state.submitted, Artifacts.of(copied), tmp_path / "models")
    assert open_checkpoint(told.models["model"]).parameters == state.started.model.parameters
    assert_amounts(told)
    assert "by a part of some" in told.seconds.how


def test_what_cannot_run_is_refused_before_any_work(toys: Toys) -> None:
    """The toy takes 64 tokens, thoughts among them."""
    model = {"model": [str(toys.base)]}

    def refused(error: type[Exception], match: str, **settings: Any) -> None:
        with pytest.raises(error, match=match):
            KIND.check(KIND.plan(RunRequest("quietstar", settings, model), Lookup()))

    refused(ConfigError, "a window of 60 tokens and 7 places for thoughts", context=60)
    refused(ConfigError, "set a smaller context", thought_lengths=[60])
    refused(ConfigError, "passes", passes=1)
    refused(ConfigError, "a list is needed", thought_lengths="abc")
    refused(ConfigError, "a list of at least 1 is needed, not of 0", thought_lengths=[])
    refused(ConfigError, "a list of at most 16 is needed, not of 17", thought_lengths=[1] * 17)
    refused(DataError, "no text of it: it has code, math", domains=["poetry"])
    assert window(KIND.settings.parse({}), 64) == 57
    assert window(KIND.settings.parse({}), None) == 64


def test_the_example_is_a_pipeline_that_can_start() -> None:
    assert kinds_of_example("quietstar") == ["cognate", "bake", "quietstar"]


@pytest.mark.slow
def test_a_fork_goes_on_from_the_frozen_tokens_and_ends_alike(made, tmp_path: Path) -> None:
    """From right after they were frozen, in a cache of its own."""
    from agent_forge.worker.commands import fork

    home, state, _ = made
    copied = copy_of(home, tmp_path)
    shutil.rmtree(copied.artifacts)
    rows = quietstar_runs.rows(copied)
    place = max(n for n, row in enumerate(rows, 1) if row.type == "hard_tokens_frozen")
    with closing(copied.open_store()) as store:
        with pytest.raises(ConfigError, match="hard cannot change"):
            fork.plan(store, "q", place, None, {"hard": 0.2})
        name = fork.fork(store, fork.plan(store, "q", place, None, {}))
    forked = quietstar_runs.finish(copied, name)
    assert forked.completed.figures == state.completed.figures
    assert forked.completed.models == state.completed.models
    assert audit.audit(quietstar_runs.rows(copied, name)) == []


@pytest.mark.slow
def test_an_archive_is_taken_elsewhere_and_verified_there(made, tmp_path: Path) -> None:
    home, _, _ = made
    file = str(tmp_path / "q.forge")
    for place, words in (
        (home.folder, ("archive", "q", file, "--weights")),
        (tmp_path / "there", ("import", file)),
        (tmp_path / "there", ("verify", "q")),
        (tmp_path / "there", ("show", "q")),
    ):
        told = succeeds(place, *words)
    assert "which the run was given, unchanged" in told.stdout
