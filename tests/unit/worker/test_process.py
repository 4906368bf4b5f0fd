"""A device's process, as its parent starts it."""

from __future__ import annotations

from typing import Any

import pytest

from agent_forge.worker.devices.device import Process


class Stopped(Exception):
    """In the place of a process."""


def test_a_device_s_process_gets_no_password_that_it_has_no_use_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It needs the database and the store's key, not the doorbell's or the tracker's secrets."""
    given: dict[str, str] = {}

    def popen(command: Any, env: dict[str, str], **how: Any) -> None:
        given.update(env)
        raise Stopped

    monkeypatch.setattr("subprocess.Popen", popen)
    for name in ("FORGE_DATABASE_URL", "FORGE_ARTIFACT_KEY", "FORGE_BROKER_URL", "WANDB_API_KEY"):
        monkeypatch.setenv(name, "secret")
    with pytest.raises(Stopped):
        Process({"FORGE_DEVICE": "cpu"})
    secret = {name for name, value in given.items() if value == "secret"}
    assert secret == {"FORGE_DATABASE_URL", "FORGE_ARTIFACT_KEY"}
    assert given["FORGE_DEVICE"] == "cpu"
