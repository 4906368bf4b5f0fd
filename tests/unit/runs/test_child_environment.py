"""Child processes get what they need of our environment, and none of our secrets."""

from __future__ import annotations

import pytest

from agent_forge.runs.system.child_environment import OFFLINE, child_environment

SECRETS = {
    "FORGE_ARTIFACT_KEY": "a",
    "FORGE_ARTIFACT_KEY_FILE": "/etc/forge.keys",
    "FORGE_DATABASE_URL": "postgresql://forge:pw@db/forge",
    "AWS_SECRET_ACCESS_KEY": "b",
    "AWS_ACCESS_KEY_ID": "c",
    "GOOGLE_APPLICATION_CREDENTIALS": "/etc/gcs.json",
    "PGPASSWORD": "d",
    "SOMETHING_NOBODY_THOUGHT_OF_TOKEN": "e",
}
HUB = {"HF_TOKEN": "hf", "HUGGING_FACE_HUB_TOKEN": "hf", "HTTPS_PROXY": "http://u:pw@proxy"}
ELSEWHERE = {"FORGE_BROKER_URL": "redis://:pw@r", "FORGE_ENDPOINT_KEY": "f", "WANDB_API_KEY": "g"}
PLAIN = {"PATH": "/bin", "HOME": "/root", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": "/x"}
TASKS = {"FORGE_TASK_FOLDERS": "/tasks", "FORGE_WORKER": "w", "HF_HOME": "/hub"}
OURS = {**SECRETS, **HUB, **ELSEWHERE, **PLAIN, **TASKS}


def test_a_scorer_gets_no_secret() -> None:
    """An allow-list: also what nobody thought of stays here."""
    assert child_environment("scorer", OURS) == PLAIN


def test_a_scorer_gets_what_its_user_names() -> None:
    """A scorer may need a key of its own, of the model that judges, say."""
    named = {"FORGE_SCORER_ENVIRONMENT": "JUDGE_KEY  OTHER", "JUDGE_KEY": "j"}
    assert child_environment("scorer", {**OURS, **named}) == {**PLAIN, "JUDGE_KEY": "j"}


def test_a_reader_of_tasks_gets_the_hub_s_token_and_no_other() -> None:
    """Data sets behind a licence need it."""
    assert child_environment("task", OURS) == {**PLAIN, **TASKS, **HUB}


@pytest.mark.parametrize("said", ["1", "on", "True", "YES"])
def test_a_reader_that_may_not_ask_the_hub_gets_no_token(said: str) -> None:
    """Offline: nothing that could be sent is there."""
    found = child_environment("task", {**OURS, "HF_HUB_OFFLINE": said})
    assert "hf" not in found.values()
    assert found == {**PLAIN, **TASKS, "HTTPS_PROXY": OURS["HTTPS_PROXY"], **OFFLINE}


def test_a_server_that_may_not_ask_the_hub_says_so_to_its_readers() -> None:
    """A reader has no way to the log and the store either: it looks at what strangers name."""
    alone = {"SOMETHING_NOBODY_THOUGHT_OF_TOKEN": "e"}
    read = child_environment("reader", OURS)
    assert read == {**PLAIN, **TASKS, **HUB, **alone}
    offline = child_environment("reader", OURS, hub=False)
    assert "hf" not in offline.values()
    assert offline == {**PLAIN, **TASKS, **alone, "HTTPS_PROXY": OURS["HTTPS_PROXY"], **OFFLINE}


def test_a_device_gets_database_and_keys_but_no_password_that_it_does_not_use() -> None:
    """A device's process appends to the log and opens the store; it rings no doorbell."""
    assert child_environment("device", OURS) == {**SECRETS, **HUB, **PLAIN, **TASKS}


def test_this_process_s_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_ARTIFACT_KEY", "secret")
    assert "PATH" in child_environment("scorer")
    assert "FORGE_ARTIFACT_KEY" not in child_environment("scorer")
