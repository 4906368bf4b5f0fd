"""Bytes of landed versions: a codec that changes them needs a new version."""

from __future__ import annotations

from typing import Any

import blake3
import pytest
import torch

from agent_forge.events import canonical_json
from agent_forge.weights import codecs
from agent_forge.weights.codecs import CODECS

#: Codec, parameters → the first digits of the digest of header and parts, as version 1 wrote them.
LANDED: list[tuple[str, dict[str, Any], str]] = [
    ("plain@1", {"dtype": "bfloat16"}, "242bcfab80224f0f"),
    ("rtn@1", {"bits": 3, "group": 8}, "adc37b855d70097f"),
    ("rtn@1", {"bits": 4, "symmetric": False, "search": False}, "fd03a3ce8e965f54"),
    ("gptq@1", {"bits": 2, "group": 16}, "a869e57132298b70"),
    ("uniform@1", {"step": 0.7}, "4589cb6b22a794c9"),
    ("uniform@1", {"step": 0.2, "rows": True}, "0d14e2f436849e14"),
    ("ternary@1", {}, "412e403532cb20d7"),
    ("ternary@1", {"group": 16, "scale": "least-squares"}, "7c9e358a08e16e42"),
]


def digest(name: str, params: dict[str, Any]) -> str:
    """Encode a matrix of multiples of 1/512 and return the digest.

    The gram is diagonal: feedback orders columns, and adds no rounding of a processor's own.
    """
    weights = ((torch.arange(20 * 48) * 7919 % 1009 - 504).float() / 512).reshape(20, 48)
    gram = torch.diag(torch.arange(1, 49, dtype=torch.float64))
    rows = torch.arange(1, 21, dtype=torch.float64) ** 3
    coded = codecs.encode(name, weights, params, gram, rows=rows)
    hasher = blake3.blake3(canonical_json(coded.header).encode())
    for key, part in sorted(coded.parts.items()):
        whole = part.clone(memory_format=torch.contiguous_format).view(-1)
        hasher.update(f"{key}{part.dtype}{list(part.shape)}".encode())
        hasher.update(whole.view(torch.uint8).numpy().tobytes())
    return hasher.hexdigest()[:16]


@pytest.mark.parametrize(("name", "params", "expected"), LANDED)
def test_the_bytes_are_those_of_the_first_day(name: str, params: dict[str, Any], expected: str) -> None:
    """Files of today decode for ever, and a run that is made again has the same digests."""
    assert digest(name, params) == expected


def test_every_codec_of_this_room_is_recorded() -> None:
    """A codec without a record may change unseen; those of other files have records of their own."""
    mine = {"plain@1", "rtn@1", "gptq@1", "uniform@1", "ternary@1"}
    assert mine <= set(CODECS)
    assert mine == {name for name, _, _ in LANDED}
