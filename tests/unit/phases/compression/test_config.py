"""Settings of a compression: sizes with units, names of the menu."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from agent_forge.phases.compression.settings import MENU, CompressionConfig
from agent_forge.weights import algorithms, codecs


@pytest.mark.parametrize(
    ("given", "bytes_"),
    [("2MB", 2_000_000), ("1.5 kib", 1536), (4096, 4096), ("300kB", 300_000), ("77", 77)],
)
def test_a_budget_is_bytes_or_a_size_with_a_unit(given: object, bytes_: int) -> None:
    assert CompressionConfig.model_validate({"budget": given}).budget == bytes_


@pytest.mark.parametrize("given", ["2 miles", "-1", "", "MB", 0, -5])
def test_what_is_no_size_is_refused(given: object) -> None:
    with pytest.raises(ValidationError):
        CompressionConfig.model_validate({"budget": given})


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (["rtn-4", "rtn-5"], "there is no setting 'rtn-5'"),
        (["rtn-4", "rtn-4"], "named twice"),
        ([], "1"),
    ],
)
def test_settings_are_those_of_the_menu(settings: list[str], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        CompressionConfig.model_validate({"settings": settings})


def test_settings_may_be_one_text() -> None:
    found = CompressionConfig.model_validate({"settings": "rtn-4,gptq-3"}).settings
    assert found == ("rtn-4", "gptq-3")


@pytest.mark.parametrize("name", MENU)
def test_a_setting_of_the_menu_is_one_that_its_codec_takes(name: str) -> None:
    setting = MENU[name]
    params = codecs.of(setting.codec).Params
    for given in (setting.params, {**setting.params, **setting.embedding}):
        told = algorithms.complete(params, given, name)
        assert {key: told[key] for key in given} == dict(given)
