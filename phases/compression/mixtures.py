"""Mixtures: a setting for each matrix, by what its errors cost the model. Pure.

The harm of a mixture is estimated as the sum of its matrices' harms (layers quantised one at a time:
Nagel et al. 2021, arXiv 2106.08295). The mixtures on the lower convex hull of bytes and harm are then
found exactly: each matrix goes along its own hull, and the steps of all matrices are taken by what a
byte saves, the best first (Everett 1963).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """A setting for a matrix."""

    setting: str
    bytes: int
    #: Estimated rise of bits per byte.
    harm: float


@dataclass(frozen=True)
class Mixture:
    """A setting for every matrix, in the order of the matrices."""

    settings: tuple[str, ...]
    #: Bytes and harm of all matrices.
    bytes: int
    harm: float


def hull(options: Sequence[Option]) -> list[Option]:
    """Return the options on the lower convex hull of harm over bytes, from the fewest bytes up.

    The hull ends at the least harm. Ties are broken by the setting's name.
    """
    corners: list[Option] = []
    for option in sorted(options, key=lambda o: (o.bytes, o.harm, o.setting)):
        if corners and option.harm >= corners[-1].harm:
            continue
        while len(corners) > 1 and _gain(corners[-2], corners[-1]) <= _gain(corners[-2], option):
            corners.pop()
        corners.append(option)
    return corners


def _gain(less: Option, more: Option) -> float:
    """Return the harm that a byte saves between two options."""
    return (less.harm - more.harm) / (more.bytes - less.bytes)


def ladder(matrices: Sequence[Sequence[Option]]) -> list[Mixture]:
    """Return the mixtures from the fewest bytes up; from one to the next, one matrix changes."""
    hulls = [hull(options) for options in matrices]
    steps = sorted(
        (-_gain(hulls[m][i], hulls[m][i + 1]), m, i)
        for m in range(len(hulls))
        for i in range(len(hulls[m]) - 1)
    )
    place = [0] * len(hulls)
    mixtures = [_mixture(hulls, place)]
    for _, matrix, index in steps:
        place[matrix] = index + 1
        mixtures.append(_mixture(hulls, place))
    return mixtures


def _mixture(hulls: Sequence[Sequence[Option]], place: Sequence[int]) -> Mixture:
    taken = [options[at] for options, at in zip(hulls, place, strict=True)]
    return Mixture(
        tuple(o.setting for o in taken), sum(o.bytes for o in taken), sum(o.harm for o in taken)
    )


def within(mixtures: Sequence[Mixture], most: int) -> Mixture | None:
    """Return the last mixture of a ladder that takes at most `most` bytes; None if none does."""
    return next((m for m in reversed(mixtures) if m.bytes <= most), None)


def below(mixtures: Sequence[Mixture], most: float) -> Mixture | None:
    """Return the first mixture of a ladder whose harm is at most `most`; None if none is."""
    return next((m for m in mixtures if m.harm <= most), None)


def harms(errors: Mapping[str, float], probe: str, rise: float, least: float) -> dict[str, float]:
    """Return setting → harm: the squared error times what a unit of it costs at this matrix.

    `rise` is how many bits per byte more the model needed with the matrix alone at `probe`, and counts
    for at least `least`: a rise that is nought or less is noise.
    """
    cost = max(rise, least) / errors[probe] if errors[probe] else 0.0
    return {name: cost * error for name, error in errors.items()}
