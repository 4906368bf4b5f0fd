"""Numbers as they are stored: blocks of tensors by address.

Bfloat16, half and float32 become float32 and are rounded back to the nearest, ties to even: the same
bits as torch's conversions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.np.numpy_support import carray

from evomerge.compiled.compiler import compiled, intrinsic

#: How numbers are stored.
FLOAT32, BFLOAT16, FLOAT16 = 0, 1, 2


def _at(element: Any, width: ir.Type) -> Any:
    """Address → pointer, as numba's own intrinsics are written."""

    def pointer(typing: Any, address: Any) -> Any:
        def made(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], width.as_pointer())

        return types.CPointer(element)(types.uint64), made

    return intrinsic(pointer)


_floats_at = _at(types.float32, ir.FloatType())
_halves_at = _at(types.uint16, ir.IntType(16))


@intrinsic
def _widened(typing, half):
    """IEEE half precision, as 16 bits → float32."""

    def made(context, builder, signature, args):
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), made


@intrinsic
def _narrowed(typing, value):
    """float32 → IEEE half precision, to the nearest, ties to even, as 16 bits."""

    def made(context, builder, signature, args):
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), made


@compiled
def load(address, code, first, out):
    """Elements from `first` on as float32."""
    if code == FLOAT32:
        v = carray(_floats_at(address + np.uint64(4 * first)), out.size)
        for i in range(out.size):
            out[i] = v[i]
        return
    w = carray(_halves_at(address + np.uint64(2 * first)), out.size)
    if code == BFLOAT16:
        bits = out.view(np.uint32)
        for i in range(out.size):
            bits[i] = np.uint32(w[i]) << np.uint32(16)
    else:
        for i in range(out.size):
            out[i] = _widened(w[i])


@compiled
def pick(address, code, first, stride, out):
    """Every stride-th element from `first` on as float32."""
    if code == FLOAT32:
        v = carray(_floats_at(address + np.uint64(4 * first)), out.size * stride)
        for i in range(out.size):
            out[i] = v[i * stride]
        return
    w = carray(_halves_at(address + np.uint64(2 * first)), out.size * stride)
    if code == BFLOAT16:
        bits = out.view(np.uint32)
        for i in range(out.size):
            bits[i] = np.uint32(w[i * stride]) << np.uint32(16)
    else:
        for i in range(out.size):
            out[i] = _widened(w[i * stride])


@compiled
def store(v, address, code, first):
    """Float32 into elements from `first` on, to the nearest, ties to even; whether all are finite."""
    if code == FLOAT32:
        out = carray(_floats_at(address + np.uint64(4 * first)), v.size)
        for i in range(v.size):
            out[i] = v[i]
        return finite(v)
    halves = carray(_halves_at(address + np.uint64(2 * first)), v.size)
    if code == BFLOAT16:
        bits = v.view(np.uint32)
        for i in range(v.size):
            u = bits[i]
            rounded = (u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))) >> np.uint32(
                16
            )
            nan = (u & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
            halves[i] = np.uint16(0x7FC0) if nan else np.uint16(rounded)
        top = np.uint16(0x7F80)
    else:
        for i in range(v.size):
            halves[i] = _narrowed(v[i])
        top = np.uint16(0x7C00)
    wrong = np.uint16(0)
    for i in range(v.size):
        wrong |= np.uint16((halves[i] & top) == top)
    return wrong == 0


@compiled
def finite(v):
    """Whether nothing in it is NaN or Inf."""
    bits, top = v.view(np.uint32), np.uint32(0x7F800000)
    wrong = np.uint32(0)
    for i in range(v.size):
        wrong |= np.uint32((bits[i] & top) == top)
    return wrong == 0
