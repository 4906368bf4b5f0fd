"""Counter-based random generator: masks and noise from keys.

Philox-4x64 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") keyed by SHA-256 of
(recipe seed, purpose, tensor name, source index). Lane e of a tensor is 16 bits of word e // 4, so
an element's bits do not depend on the thread, shard or order that computes them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agent_forge.runs import keys

#: Values of one lane: probabilities are multiples of 1 / LANES.
LANES = 1 << 16
#: Lanes that the generator makes at a time: four words of 64 bits.
BLOCK = 16


def words(count: int, *parts: str | int) -> NDArray[np.uint64]:
    """Return [count] random words, uint64, of the generator whose key is these parts."""
    return np.random.Philox(key=keys.key(*parts)).random_raw(count)


def lanes(count: int, *parts: str | int, start: int = 0) -> NDArray[np.uint16]:
    """Return [count] random uint16, one an element from `start` on, keyed by these parts."""
    generator = np.random.Philox(key=keys.key(*parts))
    block, skipped = divmod(start, BLOCK)
    if block:
        generator.advance(block)
    raw = generator.random_raw(-(-(skipped + count) // 4))
    return raw.astype("<u8", copy=False).view("<u2")[skipped : skipped + count]


def uniform(count: int, *parts: str | int) -> NDArray[np.float64]:
    """Return [count] uniform float64 in (0, 1): (word's upper 52 bits + ½) / 2⁵²."""
    return ((words(count, *parts) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def gaussian(count: int, *parts: str | int) -> NDArray[np.float64]:
    """Return [count] standard normal float64 values: the normal quantiles of `uniform`."""
    return inverse_normal(uniform(count, *parts))


def _poly(x: NDArray[np.float64], coefficients: tuple[float, ...]) -> NDArray[np.float64]:
    """Return a polynomial's values at `x` by Horner's rule; the highest power's coefficient is first.

    It adds and multiplies only, so the bits are the same on every machine.
    """
    result = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        result = result * x + c
    return result


# AS 241 (Wichura 1988, "The percentage points of the normal distribution", routine PPND16).
_A = (
    2.5090809287301226727e3,
    3.3430575583588128105e4,
    6.7265770927008700853e4,
    4.5921953931549871457e4,
    1.3731693765509461125e4,
    1.9715909503065514427e3,
    1.3314166789178437745e2,
    3.3871328727963666080e0,
)
_B = (
    5.2264952788528545610e3,
    2.8729085735721942674e4,
    3.9307895800092710610e4,
    2.1213794301586595867e4,
    5.3941960214247511077e3,
    6.8718700749205790830e2,
    4.2313330701600911252e1,
    1.0,
)
_C = (
    7.74545014278341407640e-4,
    2.27238449892691845833e-2,
    2.41780725177450611770e-1,
    1.27045825245236838258e0,
    3.64784832476320460504e0,
    5.76949722146069140550e0,
    4.63033784615654529590e0,
    1.42343711074968357734e0,
)
_D = (
    1.05075007164441684324e-9,
    5.47593808499534494600e-4,
    1.51986665636164571966e-2,
    1.48103976427480074590e-1,
    6.89767334985100004550e-1,
    1.67638483018380384940e0,
    2.05319162663775882187e0,
    1.0,
)
_E = (
    2.01033439929228813265e-7,
    2.71155556874348757815e-5,
    1.24266094738807843860e-3,
    2.65321895265761230930e-2,
    2.96560571828504891230e-1,
    1.78482653991729133580e0,
    5.46378491116411436990e0,
    6.65790464350110377720e0,
)
_F = (
    2.04426310338993978564e-15,
    1.42151175831644588870e-7,
    1.84631831751005468180e-5,
    7.86869131145613259100e-4,
    1.48753612908506148525e-2,
    1.36929880922735805310e-1,
    5.99832206555887937690e-1,
    1.0,
)
_LN2 = 0.6931471805599453
#: 1 / 31, 1 / 29, …, 1 / 3, 1: the series of artanh(z) / z in z².
_ARTANH = tuple(1.0 / k for k in range(31, 0, -2))


def _log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the natural logarithm of each x > 0, from basic IEEE arithmetic alone.

    x = m 2^e with m in [1/√2, √2); log m = 2 artanh((m − 1) / (m + 1)). A library's logarithm may
    differ in the last bit from one version or processor to the next, this logarithm cannot.
    """
    mantissa, exponent = np.frexp(x)
    low = mantissa < 0.7071067811865476
    mantissa = np.where(low, mantissa * 2.0, mantissa)
    exponent = exponent - low
    z = (mantissa - 1.0) / (mantissa + 1.0)
    return exponent * _LN2 + 2.0 * z * _poly(z * z, _ARTANH)


def inverse_normal(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard normal quantile of p in (0, 1), relative error about 1e-15 (AS 241)."""
    q = p - 0.5
    central = np.abs(q) <= 0.425
    r = 0.180625 - q * q
    middle = q * _poly(r, _A) / _poly(r, _B)
    tail = np.sqrt(-_log(np.where(central, 0.25, np.where(q < 0, p, 1.0 - p))))
    near = tail <= 5.0
    t = np.where(near, tail - 1.6, tail - 5.0)
    outer = np.where(near, _poly(t, _C) / _poly(t, _D), _poly(t, _E) / _poly(t, _F))
    return np.where(central, middle, np.where(q < 0, -outer, outer))


def permutation(count: int, *parts: str | int) -> NDArray[np.int64]:
    """Return [count] int64, the numbers 0 … count − 1 in a random order: that of raw words.

    Numpy's permutation is not used, because its algorithm may change with its version.
    """
    return np.argsort(words(count, *parts), kind="stable").astype(np.int64)
