"""Keys of the artifact store: rotation, missing keys, plain artifacts, other formats."""

from __future__ import annotations

from pathlib import Path

import pytest
from blake3 import blake3

from agent_forge.runs.errors import ConfigError, TamperedError
from agent_forge.weights.storage.artifact_store import Vault
from agent_forge.weights.storage.encryption import CHUNK, HEADER, Keys
from testing.services.artifact_stores import (
    NAME,
    NEW,
    OLD,
    OTHER,
    Raw,
    content,
    flip,
    held,
    killed,
    refuses,
    source,
)


def test_under_another_key_nothing_can_be_read(url: str, tmp_path) -> None:
    """The message names the key that is missing, or says that two share an id."""
    files = source(tmp_path / "from", {"a": b"1"})
    Vault.open(url, OLD).put(NAME, files)
    for keys, match in (
        (None, "under key old and no key was given. Set FORGE_ARTIFACT_KEY"),
        (Keys({"new": b"n" * 32}), "under key old, which is not among the keys. Add its line"),
    ):
        vault = Vault.open(url, keys)
        for act in (lambda v=vault: v.fetch(NAME, tmp_path / "x"), lambda v=vault: v.put(NAME, files)):
            with pytest.raises(ConfigError, match=match):
                act()
    with pytest.raises(TamperedError, match="or key old is another"):
        Vault.open(url, Keys({"old": b"x" * 32})).fetch(NAME, tmp_path / "x")
    assert Vault.open(url).remove(NAME)


def test_rotation_encrypts_all_under_the_first_key(url: str, tmp_path) -> None:
    """Plain files and those under an older key are rewritten; then the older key can go."""
    files = {f"f{size}": content(size) for size in (0, CHUNK, 5 * CHUNK + 1)}
    names = [f"{number:064x}" for number in range(4)]
    for name, keys in zip(names, (None, OLD, NEW, OLD), strict=True):
        Vault.open(url, keys).put(name, source(tmp_path / "from", files))
    vault, raw = Vault.open(url, NEW, plain=True), Raw(url)
    places = len(raw.places())
    dead = f"data/{OTHER}/1-{'1' * 16}"
    raw.fs.makedirs(f"{raw.root}/{dead}", exist_ok=True)
    raw.write(f"{dead}/a", b"under an older key")
    assert vault.fetch(names[0], tmp_path / "plain")
    assert vault.rotate() == 3
    assert vault.rotate() == 0
    assert Vault.open(url, NEW).rotate() == 0
    assert len(raw.places()) == places
    alone = Vault.open(url, Keys({"new": b"n" * 32}))
    for name in names:
        assert alone.fetch(name, tmp_path / name)
        assert held(tmp_path / name) == files
    with pytest.raises(ConfigError, match="needs keys"):
        Vault.open(url).rotate()


@pytest.mark.slow
@pytest.mark.parametrize("hit", range(1, 5))
def test_a_killed_rotation_loses_nothing_and_is_taken_up_again(hit: int, tmp_path) -> None:
    """Killed at each of the steps of two artifacts: file, manifest, published; then the next."""
    url, names = f"file://{tmp_path}/vault", [NAME, OTHER]
    for name in names:
        Vault.open(url, OLD).put(name, source(tmp_path / "from", {"a": content(CHUNK + 1)}))
    killed(f":{hit}", "rotate", url, NAME, "")
    for name in names:
        assert Vault.open(url, NEW).fetch(name, tmp_path / "early" / name)
    assert Vault.open(url, NEW).rotate() == (2 if hit < 3 else 1)
    for name in names:
        assert Vault.open(url, Keys({"new": b"n" * 32})).fetch(name, tmp_path / "late" / name)


def test_rotation_passes_over_what_is_damaged_and_says_so(url: str, tmp_path) -> None:
    """One bad file must not keep the old key alive for all others, nor be hidden by a new seal."""
    for name in (NAME, OTHER):
        Vault.open(url, OLD).put(name, source(tmp_path / "from", {"a": content(100)}))
    raw = Raw(url)
    raw.write(raw.file("/a"), flip(raw.read(raw.file("/a")), HEADER))
    before = raw.read(f"manifests/{NAME}")
    with pytest.raises(TamperedError, match=f"1 artifacts were .* 1 cannot be: a of artifact {NAME}"):
        Vault.open(url, NEW).rotate()
    assert raw.read(f"manifests/{NAME}") == before
    assert Vault.open(url, Keys({"new": b"n" * 32})).fetch(OTHER, tmp_path / "to")


def intruded(url: str, folder: Path) -> None:
    """A sealed artifact, and in its place a plain one of somebody who has no key."""
    files = {"model.safetensors": b"weights", "tokenizer_config.json": b"{}"}
    Vault.open(url, OLD).put(NAME, source(folder / "from", files))
    evil = source(folder / "evil", {**files, "tokenizer_config.json": b'{"chat_template": "EVIL"}'})
    raw = Raw(url)
    raw.drop(f"manifests/{NAME}")
    assert Vault.open(url).put(NAME, evil)


def test_a_plain_artifact_in_the_place_of_a_sealed_one_is_refused(url: str, tmp_path) -> None:
    """Weights have a digest of their own, tokenizer and config have not: only the seal holds them."""
    intruded(url, tmp_path)
    vault = Vault.open(url, OLD)
    for act in (lambda: vault.fetch(NAME, tmp_path / "to"), lambda: vault.files(NAME)):
        with pytest.raises(ConfigError, match=r"not encrypted, and keys are set.*rotate --plain"):
            act()
    assert not (tmp_path / "to").exists()
    assert vault.names() == [NAME], "it is left for whoever runs the store to look at"


def test_rotation_seals_nothing_that_was_not_sealed(url: str, tmp_path) -> None:
    """Else a stranger's file would have the real key's seal from then on. The others are done."""
    intruded(url, tmp_path)
    Vault.open(url, OLD).put(OTHER, source(tmp_path / "other", {"a": b"1"}))
    before = Raw(url).read(f"manifests/{NAME}")
    with pytest.raises(ConfigError, match=f"1 artifacts were .* 1 cannot be: artifact {NAME} is not"):
        Vault.open(url, NEW).rotate()
    assert Raw(url).read(f"manifests/{NAME}") == before
    assert Vault.open(url, Keys({"new": b"n" * 32})).fetch(OTHER, tmp_path / "to")


def test_whoever_has_the_files_puts_them_in_the_place_of_a_plain_artifact(url: str, tmp_path) -> None:
    """A store heals by its own workers: what they put is sealed."""
    intruded(url, tmp_path)
    vault = Vault.open(url, OLD)
    assert vault.put_folder(NAME, tmp_path / "from")
    assert vault.fetch(NAME, tmp_path / "to")
    assert held(tmp_path / "to")["tokenizer_config.json"] == b"{}"


def test_whole_sealed_artifacts_cannot_be_exchanged(url: str, tmp_path) -> None:
    """Every byte under one name is put under another: the names are bound in."""
    vault, raw, model = Vault.open(url, OLD), Raw(url), f"model-{NAME}"
    for name, text in ((OTHER, b"2"), (model, b"3")):
        vault.put(name, source(tmp_path / "from", {"a": text}))
        stolen = [p for p in raw.places() if f"/{name}" in p]
        for place in stolen:
            mine = place.replace(f"/{name}", f"/{NAME}")
            raw.fs.makedirs(f"{raw.root}/{mine}".rpartition("/")[0], exist_ok=True)
            raw.write(mine, raw.read(place))
        assert len(stolen) == 2
        refuses(url, OLD, tmp_path / "x", "^the manifest of artifact .* fails its check")


def test_a_model_and_bare_weights_have_names_of_their_own(
    url: str, keys: Keys | None, tmp_path
) -> None:
    """A champion's weights must not hide the model that a run on another machine needs."""
    vault, model = Vault.open(url, keys), f"model-{NAME}"
    assert vault.put(NAME, source(tmp_path / "bare", {"a.safetensors": b"1"}))
    assert vault.put(model, source(tmp_path / "model", {"a.safetensors": b"1", "config.json": b"{}"}))
    assert vault.names() == [NAME, model]
    assert vault.files(NAME) == ("a.safetensors",)
    assert vault.files(model) == ("a.safetensors", "config.json")
    assert vault.files(OTHER) == ()
    assert vault.fetch(model, tmp_path / "to")
    assert set(held(tmp_path / "to")) == {"a.safetensors", "config.json"}


# Other versions of the program


def other_format(data: bytes, number: int) -> bytes:
    """Return a manifest's stored bytes with another format number, and a right checksum."""
    rest = data.partition(b"\n")[2].replace(b"forge manifest 2 ", b"forge manifest %d " % number)
    return blake3(rest).hexdigest().encode() + b"\n" + rest


def test_a_newer_format_is_refused_and_not_called_damaged(
    url: str, keys: Keys | None, tmp_path
) -> None:
    """Its checksum is right: the program is to be updated, and nothing is to be removed."""
    files = source(tmp_path / "from", {"a": b"1"})
    vault = Vault.open(url, keys)
    vault.put(NAME, files)
    newer = other_format(Raw(url).read(f"manifests/{NAME}"), 3)
    Raw(url).write(f"manifests/{NAME}", newer)
    for act in (lambda: vault.fetch(NAME, tmp_path / "to"), lambda: vault.put(NAME, files)):
        with pytest.raises(ConfigError, match=r"in format 3, .* reads 2\. Update the program"):
            act()
    assert Raw(url).read(f"manifests/{NAME}") == newer


#: The first bytes of a manifest of format 1, encrypted and plain.
FORMAT_1 = {
    "sealed": b"\x89FORGE\r\n\x01" + b"old".ljust(32, b"\0") + bytes(100),
    "plain": b'{"format":1,"blake3":"' + b"0" * 64 + b'","manifest":{}}',
}


@pytest.mark.parametrize("before", FORMAT_1)
def test_a_store_of_format_1_is_refused_in_one_sentence(
    url: str, before: str, keys: Keys | None, tmp_path
) -> None:
    """No release wrote it. It is neither damaged nor taken over, and it can be removed."""
    vault, files = Vault.open(url, keys), source(tmp_path / "from", {"a": b"1"})
    vault.put(NAME, files)
    Raw(url).write(f"manifests/{NAME}", FORMAT_1[before])
    for act in (
        lambda: vault.fetch(NAME, tmp_path / "to"),
        lambda: vault.files(NAME),
        lambda: vault.put(NAME, files),
        lambda: Vault.open(url, NEW, plain=True).rotate(),
    ):
        with pytest.raises(ConfigError, match=r"was stored in format 1, .*forge artifacts remove"):
            act()
    assert vault.names() == [NAME]
    assert vault.remove(NAME)
    assert vault.put(NAME, files)
