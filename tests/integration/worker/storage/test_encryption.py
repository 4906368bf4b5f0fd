"""Encrypted files and their keys: every change is found, and bad keys are refused without a leak."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from nacl import bindings as sodium
from nacl.exceptions import CryptoError

from agent_forge.runs.errors import ConfigError, TamperedError
from agent_forge.weights.storage.artifact_store import split
from agent_forge.weights.storage.encryption import (
    CHUNK,
    HEADER,
    MANIFEST,
    TAG,
    Keys,
    seal,
    stored_size,
    unseal,
)

OLD = Keys({"old": b"o" * 32})
NAME, OTHER = "ab" * 32, "cd" * 32


def content(size: int) -> bytes:
    """Return bytes of which no two chunks are alike."""
    return hashlib.shake_128(f"{size}".encode()).digest(size)


def sealed(data: bytes, file: str = "a") -> bytes:
    return b"".join(seal(split(data), OLD, NAME, file))


def opened(stored: bytes, size: int | None = None, name: str = NAME, file: str = "a") -> bytes:
    """Return the plain bytes of stored ones, of which `size` are expected: all unless given."""
    whole = len(stored) if size is None else size
    return b"".join(unseal(lambda a, b: stored[a:b], whole, OLD, "old", name, file))


@pytest.mark.parametrize("size", [0, 1, CHUNK, 2 * CHUNK, 9 * CHUNK + 7])
def test_a_truncated_file_is_found_without_its_manifest(size: int) -> None:
    """The last chunk is marked as the last; a cut between two chunks leaves only valid chunks."""
    whole = sealed(content(size))
    assert len(whole) == stored_size(size, "old")
    assert opened(whole) == content(size)
    step = CHUNK + TAG
    cuts = {0, HEADER - 1, HEADER, HEADER + step, HEADER + 4 * step, len(whole) - 1}
    for left in sorted(cut for cut in cuts if cut < len(whole)):
        for expected in (left, len(whole)):
            with pytest.raises(TamperedError):
                opened(whole[:left], expected)


@pytest.mark.parametrize("size", [0, 1, CHUNK, 2 * CHUNK])
@pytest.mark.parametrize("more", [1, TAG, CHUNK + TAG])
def test_bytes_after_the_end_are_found_without_the_manifest(size: int, more: int) -> None:
    """Also after a last chunk of full size, which only its tag tells from the chunks before it."""
    with pytest.raises(TamperedError):
        opened(sealed(content(size)) + content(more))
    with pytest.raises(TamperedError):
        opened(sealed(content(size)) + sealed(content(more))[HEADER:])


def test_a_stream_that_goes_on_after_its_end_is_refused() -> None:
    """The library goes on after the end of a stream; a stored file has one end, and that is its own."""
    state = sodium.crypto_secretstream_xchacha20poly1305_state()
    stored = sodium.crypto_secretstream_xchacha20poly1305_init_push(state, b"o" * 32)
    for chunk in (content(CHUNK), b"more"):
        bound = f"{NAME}\0a".encode()
        stored += sodium.crypto_secretstream_xchacha20poly1305_push(state, chunk, bound, 3)
    assert opened(stored[: HEADER + CHUNK + TAG]) == content(CHUNK)
    with pytest.raises(TamperedError, match="goes on after its last chunk, 0"):
        opened(stored)


def test_chunks_of_another_upload_do_not_fit() -> None:
    """Two uploads of equal bytes under one key: each has a stream of its own."""
    one, two, end = sealed(content(3 * CHUNK)), sealed(content(3 * CHUNK)), HEADER + CHUNK + TAG
    for mixed in (one[:end] + two[end:], one[:HEADER] + two[HEADER:]):
        with pytest.raises(TamperedError, match="fails its check in chunk"):
            opened(mixed)


def test_no_header_and_no_ciphertext_occur_twice() -> None:
    """Equal chunks, in one file and in two, are encrypted to other bytes."""
    chunks = [b"x" * CHUNK, b"x" * CHUNK]
    one, two = (b"".join(seal(chunks, OLD, NAME, "a")) for _ in range(2))
    assert one[:HEADER] != two[:HEADER]
    found = {s[HEADER + 1 + at :][:CHUNK] for s in (one, two) for at in (0, CHUNK + TAG)}
    assert len(found) == 4


def test_a_sealed_file_can_be_read_under_no_other_name() -> None:
    """The names of the artifact and of the file are bound in."""
    stored = sealed(b"abc")
    assert opened(stored) == b"abc"
    for name, file in ((OTHER, "a"), (NAME, "b"), (NAME, MANIFEST)):
        with pytest.raises(TamperedError):
            opened(stored, name=name, file=file)


def by_library(stored: bytes, key: bytes, bound: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield chunks and tags, by the layout in the docstring and libsodium alone."""
    state = sodium.crypto_secretstream_xchacha20poly1305_state()
    sodium.crypto_secretstream_xchacha20poly1305_init_pull(state, stored[:24], key)
    for start in range(24, len(stored), 2**20 + 17):
        piece = stored[start : start + 2**20 + 17]
        yield sodium.crypto_secretstream_xchacha20poly1305_pull(state, piece, bound)


def test_a_sealed_file_is_what_its_description_says() -> None:
    """The key, libsodium and the docstring are enough to decrypt it without this program."""
    data = content(CHUNK + 10)
    bound = NAME.encode() + b"\0" + b"a"
    found = list(by_library(sealed(data), b"o" * 32, bound))
    assert found == [(data[:CHUNK], 0), (data[CHUNK:], 3)]
    with pytest.raises(CryptoError):
        list(by_library(sealed(data), b"o" * 32, b""))


def test_a_file_that_was_sealed_earlier_can_be_read_for_ever() -> None:
    """Frozen bytes: key 00 01 … 1f under the id `first`, file `a`, text `abc`."""
    stored = bytes.fromhex(FROZEN)
    keys = Keys({"first": bytes(range(32))})
    found = unseal(lambda a, b: stored[a:b], len(stored), keys, "first", NAME, "a")
    assert list(found) == [b"abc"]


#: Made with PyNaCl 1.6.2 (libsodium) alone, not with this program.
FROZEN = "3eceb5f096ed280f02295517e47beb2de2cd137696420ea7d5afb59b284deee24ce467ca0fefc16abe219533"


KEY = base64.b64encode(b"k" * 32).decode()
KEY2 = base64.b64encode(b"l" * 32).decode()


def key_file(tmp_path: Path, text: str | bytes, mode: int = 0o600) -> dict[str, str]:
    path = tmp_path / "keys"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return {"FORGE_ARTIFACT_KEY_FILE": str(path)}


def test_keys_come_from_a_variable_or_from_a_file(tmp_path) -> None:
    """The first line encrypts; a key is never shown."""
    assert Keys.from_environment({}) is None
    alone = Keys.from_environment({"FORGE_ARTIFACT_KEY": KEY + "\n"})
    assert alone is not None
    text = f"# in use since May\nmay {KEY2}\n\n{KEY}\n"
    several = Keys.from_environment(key_file(tmp_path, text))
    assert several is not None
    assert several.first == "may"
    assert several.by_id == {"may": b"l" * 32, alone.first: b"k" * 32}
    assert "kkkk" not in repr(alone) + str(several)
    assert KEY not in repr(alone)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "holds no key"),
        ("# nothing\n", "holds no key"),
        (KEY[:-5], "line 1 .* is not base64"),
        (KEY + "\nmay !!!!", "line 2 .* is not base64"),
        (base64.b64encode(b"k" * 31).decode(), "line 1 .* holds 31 bytes instead of 32"),
        (f"may {KEY}\nmay {KEY2}", "line 2 .* a key id that was there before"),
        (f"{KEY}\n{KEY}", "line 2 .* a key id that was there before"),
        (f"m/y {KEY}", "line 1 .* a key id that is not 1 to 32"),
        (f"may june {KEY}", "line 1 .* has 3 words"),
        (b"\xff" + KEY.encode(), "is not ASCII text"),
    ],
)
def test_a_bad_key_file_is_refused_by_line(text, match: str, tmp_path) -> None:
    """Before any work, without a word of what the line holds."""
    with pytest.raises(ConfigError, match=match) as caught:
        Keys.from_environment(key_file(tmp_path, text))
    assert "FORGE_ARTIFACT_KEY_FILE" in str(caught.value)
    assert KEY[:10] not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o610])
def test_a_key_file_that_others_may_use_is_refused(mode: int, tmp_path) -> None:
    """Whoever reads it reads the weights."""
    with pytest.raises(ConfigError, match=f"mode {mode:04o}: others may use it.* chmod 600"):
        Keys.from_environment(key_file(tmp_path, KEY, mode))


def test_an_empty_variable_is_not_set() -> None:
    """That is how a compose file passes on what is not there."""
    assert Keys.from_environment({"FORGE_ARTIFACT_KEY_FILE": "", "FORGE_ARTIFACT_KEY": ""}) is None


def test_bad_variables_are_refused_and_never_shown(tmp_path) -> None:
    """Also where the key itself was given as the name of the file."""
    file = key_file(tmp_path, KEY)
    for environment, match in (
        ({"FORGE_ARTIFACT_KEY": "é"}, "FORGE_ARTIFACT_KEY is not base64. Make a key with"),
        ({"FORGE_ARTIFACT_KEY": KEY[:-4]}, "holds 30 bytes instead of 32"),
        ({"FORGE_ARTIFACT_KEY": KEY, **file}, "are both set. Unset one"),
        ({"FORGE_ARTIFACT_KEY_FILE": KEY}, "cannot be read: No such file or directory"),
        ({"FORGE_ARTIFACT_KEY_FILE": "a\0b"}, "cannot be read: ValueError"),
    ):
        with pytest.raises(ConfigError, match=match) as caught:
            Keys.from_environment(environment)
        assert KEY[:10] not in str(caught.value)
    with pytest.raises(ConfigError, match="no key"):
        Keys({})
    with pytest.raises(ConfigError, match="a key's id must be"):
        Keys({"ä": b"k" * 32})
    with pytest.raises(ConfigError, match="must have 32 bytes, not 16"):
        Keys({"a": b"k" * 16})
