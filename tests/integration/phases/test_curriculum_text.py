"""Ordinary text among the items of a curriculum: its windows, its share, and a run with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_forge.evaluation.training_text import kept_text
from agent_forge.phases.curriculum.items import text_streams, windows
from agent_forge.phases.curriculum.mixing import mix
from agent_forge.phases.curriculum.mixing.frontier_rule import cells, even
from agent_forge.phases.curriculum.script import Curriculum
from agent_forge.phases.curriculum.settings import CurriculumConfig
from agent_forge.runs.errors import ConfigError, DataError
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.view import overview
from agent_forge.weights.training.objectives.answers import ends
from testing.miniatures import curriculum_runs
from testing.models.toys import Toys


def test_a_window_is_an_item_that_predicts_all_but_its_first_token() -> None:
    """Leave out what is left over at the end of the text."""
    found = windows(np.arange(11, dtype=np.int32), 4)
    assert found.tolist() == [0, -2, -3, -4, 4, -6, -7, -8]
    assert ends(found).tolist() == [4, 8]
    assert found.dtype == np.int32


def test_text_that_is_shorter_than_a_window_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stream would be empty, and nothing said that the domain is not trained on."""
    ids = np.arange(99, dtype=np.int32)
    monkeypatch.setattr(kept_text, "builtin", lambda *given: {"math": []})
    monkeypatch.setattr(kept_text, "stream", lambda documents, tokenizer: ids)
    config = CurriculumConfig(text=0.4, text_domains=("math",), text_tokens=100)
    with pytest.raises(DataError, match=r"domain math has 99 tokens, and a window of it 100: set more"):
        text_streams(config, None)
    whole = text_streams(config.model_copy(update={"text_tokens": 99}), None)
    assert [len(one) for one in whole.values()] == [99]


def test_text_has_its_share_and_the_others_keep_their_proportions() -> None:
    config = CurriculumConfig(text=0.4, text_domains=("math", "code"), levels=2)
    shares = even(cells(config))
    found = mix.with_text(config, shares)
    assert sum(found.values()) == pytest.approx(1)
    assert (found["text/code"], found["text/math"]) == (0.2, 0.2)
    assert {name: found[name] for name in shares} == pytest.approx(
        {name: 0.6 * share for name, share in shares.items()}
    )
    assert mix.with_text(CurriculumConfig(), shares) == shares


def test_a_run_trains_on_tasks_and_text(toys: Toys, tmp_path: Path) -> None:
    """The text is pinned by its digest like the items; it is no cell, and is not measured."""
    home, arms = Home(tmp_path / "home"), ["adaptive", "uniform"]
    curriculum_runs.submit(home, toys.base, **{**curriculum_runs.WITH_TEXT, "arms": arms})
    state = curriculum_runs.finish(home)
    assert state.status == "completed"
    assert audit.audit(curriculum_runs.rows(home)) == []
    text = {"text/code", "text/math", "text/data"}
    for arm in ("adaptive", "uniform"):
        for recipe in Curriculum().run(state).courses[arm].segments:
            assert text <= set(recipe.data) == set(recipe.data_digests)
            assert sum(recipe.data[name] for name in text) == pytest.approx(0.5)
    assert not text & set(state.started.pool)
    shown: Any = [panel for panel in overview(state).panels if panel.name == "mix"]
    last = shown[0].parts[-1]
    assert (last.name, last.values) == ("text", pytest.approx((0.5, 0.5, 0.5)))


def test_what_does_not_fit_is_refused_before_any_work(toys: Toys, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with pytest.raises(ConfigError, match=r"window of ordinary text has 62 tokens.*context of 60"):
        curriculum_runs.submit(home, toys.base, text=0.1, text_tokens=62)
    with pytest.raises(ConfigError, match="no built-in text of poetry: of code, math"):
        curriculum_runs.submit(home, toys.base, text=0.1, text_domains=["poetry"])
