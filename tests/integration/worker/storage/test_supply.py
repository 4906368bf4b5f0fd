"""Models and data from the store: found by a name of their own, and refused when not sealed."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_forge.evaluation import kept_items
from agent_forge.evaluation.data.items import SLICES
from agent_forge.evaluation.kept_items import ITEMS
from agent_forge.evomerge.run.events import ModelReference, SourceRecord
from agent_forge.runs.errors import SourceChangedError, UnavailableError
from agent_forge.weights.folders import companions
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from agent_forge.weights.storage.artifact_store import Vault
from agent_forge.weights.storage.encryption import Keys
from agent_forge.weights.storage.inputs import Copies, Supply, stored
from testing.models.toys import Toys

KEYS = Keys({"k": b"k" * 32})
DIGEST = "ab" * 32
GONE = ModelReference(name="champion", path="/nowhere/champion")


@pytest.fixture(params=["plain", "sealed"])
def vault(request, tmp_path) -> Vault:
    keys = KEYS if request.param == "sealed" else None
    return Vault.open(f"file://{tmp_path}/store", keys)


@pytest.fixture
def copy(toys: Toys, tmp_path: Path) -> Path:
    """A private copy of a model."""
    return Copies(tmp_path / "copies").take(toys.sources[0])


def pinned(copy: Path) -> SourceRecord:
    """What `started` records of a model."""
    found = digest(open_checkpoint(copy).tensors())
    return SourceRecord(
        name="champion",
        recipe_id="r",
        digest=found,
        sketch="",
        parameters=1,
        model=copy.name,
        files=companions.digests(copy),
    )


def there(tmp_path: Path, vault: Vault) -> Supply:
    """The supply of a machine that has nothing."""
    return Supply(tmp_path / "there" / "supply", vault)


def test_a_champion_is_fetched_as_a_source_although_its_bare_weights_are_stored(
    vault: Vault, copy: Path, tmp_path: Path
) -> None:
    """Weights and whole models have names of their own: the first to come would hide the other."""
    record = pinned(copy)
    vault.put(record.digest, {"model.safetensors": copy / "model.safetensors"})
    Supply(tmp_path / "here", vault).share_model(copy)
    found = there(tmp_path, vault).model(GONE, record)
    assert companions.digests(found) == record.files
    assert digest(open_checkpoint(found).tensors()) == record.digest
    assert sorted(vault.names()) == sorted([record.digest, stored(copy.name)])


def test_a_model_whose_tokenizer_was_exchanged_in_the_store_is_not_used(
    copy: Path, tmp_path: Path
) -> None:
    """Without keys anybody who can write to the store can change any file of it."""
    record, vault = pinned(copy), Vault.open(f"file://{tmp_path}/store")
    (copy / "tokenizer_config.json").write_text("{}", "utf-8")
    Supply(tmp_path / "here", vault).share_model(copy)
    with pytest.raises(UnavailableError, match="is not on this machine"):
        there(tmp_path, vault).model(GONE, record)


def test_bare_weights_are_no_model(vault: Vault, copy: Path, tmp_path: Path) -> None:
    """A folder without config and tokenizer would fail much later, and say something else."""
    vault.put(stored(copy.name), {"model.safetensors": copy / "model.safetensors"})
    with pytest.raises(UnavailableError, match="is not on this machine"):
        there(tmp_path, vault).model(GONE, pinned(copy))
    assert vault.names() == [stored(copy.name)]


def test_a_plain_model_in_a_sealed_store_is_not_used_and_not_removed(
    copy: Path, tmp_path: Path
) -> None:
    """The machine leaves the task to others, says why, and removes nothing."""
    url = f"file://{tmp_path}/store"
    Supply(tmp_path / "here", Vault.open(url)).share_model(copy)
    with pytest.raises(UnavailableError, match="not encrypted, and keys are set"):
        there(tmp_path, Vault.open(url, KEYS)).model(GONE, pinned(copy))
    assert Vault.open(url).names() == [stored(copy.name)]


def test_another_model_in_the_place_of_the_pinned_one_is_refused(
    toys: Toys, copy: Path, tmp_path: Path
) -> None:
    """What a run computes with is what `started` says, wherever it comes from."""
    other = ModelReference(name="champion", path=str(toys.sources[1]))
    with pytest.raises(SourceChangedError, match="champion has changed since the run started"):
        Supply(tmp_path / "there" / "supply", None).model(other, pinned(copy))


def test_items_come_back_and_something_else_under_their_name_does_not(vault: Vault, tmp_path) -> None:
    """Data that was pinned is read from the store where its files are not here."""
    (tmp_path / "other").write_text("no items")
    vault.put(DIGEST, {"other": tmp_path / "other"})
    supply = Supply(tmp_path / "there", vault)
    with pytest.raises(UnavailableError, match="the data is not on this machine"):
        kept_items.pinned(supply, ("/nowhere/data",), DIGEST)
    vault.remove(DIGEST)
    row = '{{"text": "a text", "id": "{0}", "domain": "d", "slice": "{0}"}}\n'
    (tmp_path / ITEMS).write_text("".join(map(row.format, SLICES)))
    vault.put(DIGEST, {ITEMS: tmp_path / ITEMS})
    found = kept_items.pinned(supply, ("/nowhere/data",), DIGEST) or []
    assert {item.id for item in found} == set(SLICES)
