"""Stored numbers: blocks of tensors, read and written by address.

Bfloat16, half and float32 become float32 and are rounded back to the nearest, ties to even: the
same bits as torch's conversions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba import types
from numba.np.numpy_support import carray

from agent_forge.evomerge.merging.kernels.numba.compiler import compiled, intrinsic

#: Codes of the dtypes that numbers are stored in.
FLOAT32, BFLOAT16, FLOAT16 = 0, 1, 2


def _at(element: types.Type, width: ir.Type) -> Callable:
    """Return an intrinsic that makes a pointer of an address, written as numba's own intrinsics are."""

    def pointer(typing, address):
        def made(context, builder, signature, args):
            return builder.inttoptr(args[0], width.as_pointer())

        return types.CPointer(element)(types.uint64), made

    return intrinsic(pointer)


floats_at = _at(types.float32, ir.FloatType())
halves_at = _at(types.uint16, ir.IntType(16))


@intrinsic
def _half_widened(typing, half):
    """Return as float32 a number of IEEE half precision, given as 16 bits."""

    def made(context, builder, signature, args):
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), made


@intrinsic
def _half_narrowed(typing, value):
    """Return the 16 bits of a float32 in IEEE half precision, to the nearest, ties to even."""

    def made(context, builder, signature, args):
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), made


@intrinsic
def _bits(typing, value):
    """Return the bits of a float32."""

    def made(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(32))

    return types.uint32(types.float32), made


@intrinsic
def _float(typing, bits):
    """Return the float32 that has these bits."""

    def made(context, builder, signature, args):
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.uint32), made


@intrinsic
def _prefetch(typing, address):
    """Prefetch the cache line at an address, if any, into the second cache: the first is full."""

    def made(context, builder, signature, args):
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        constants = [ir.Constant(word, value) for value in (0, 2, 1)]  # to read, second cache, data
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        name = "llvm.prefetch.p0"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        builder.call(function, [builder.inttoptr(args[0], byte), *constants])
        return context.get_dummy_value()

    return types.void(types.uint64), made


#: Mask of a magnitude's bits: all but the sign. Magnitudes from `_INFINITE` on are Inf and NaN.
_SIZE, _INFINITE = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)
_HALF = np.uint32(16)


@compiled
def size_of(value):
    """Return the bits of a value's magnitude as a signed number.

    They sort as magnitudes do, with Inf above all numbers and NaN above Inf.
    """
    return np.int32(_bits(value) & _SIZE)


@compiled
def widened(upper):
    """Return the float32 that has these upper 16 bits; its lower bits are 0."""
    return _float(np.uint32(upper) << _HALF)


@compiled
def load(address, code, first, zero, out):
    """Write elements from `first` on, less `zero`, to `out` as float32; return True if all are finite.

    Prefetch the elements that come next: they are in the cache when the block is done.
    """
    width = 4 if code == FLOAT32 else 2
    ahead = address + np.uint64(width * (first + out.size))
    for i in range(0, width * out.size, 64):
        _prefetch(ahead + np.uint64(i))
    top = np.uint32(0)
    if code == FLOAT32:
        v = carray(floats_at(address + np.uint64(4 * first)), out.size)
        for i in range(out.size):
            d = v[i] - zero[i]
            out[i] = d
            top = max(top, _bits(d) & _SIZE)
        return top < _INFINITE
    w = carray(halves_at(address + np.uint64(2 * first)), out.size)
    if code == BFLOAT16:
        for i in range(out.size):
            d = widened(w[i]) - zero[i]
            out[i] = d
            top = max(top, _bits(d) & _SIZE)
    else:
        for i in range(out.size):
            d = _half_widened(w[i]) - zero[i]
            out[i] = d
            top = max(top, _bits(d) & _SIZE)
    return top < _INFINITE


@compiled
def pick(address, code, first, stride, out):
    """Write every stride-th element from `first` on as float32 into `out`."""
    if code == FLOAT32:
        v = carray(floats_at(address + np.uint64(4 * first)), out.size * stride)
        for i in range(out.size):
            out[i] = v[i * stride]
        return
    w = carray(halves_at(address + np.uint64(2 * first)), out.size * stride)
    if code == BFLOAT16:
        bits = out.view(np.uint32)
        for i in range(out.size):
            bits[i] = np.uint32(w[i * stride]) << np.uint32(16)
    else:
        for i in range(out.size):
            out[i] = _half_widened(w[i * stride])


@compiled
def narrowed(value):
    """Return a float32's upper 16 bits, to the nearest, ties to even, and all NaN alike: bfloat16."""
    u = _bits(value)
    even = (u >> _HALF) & np.uint32(1)
    upper = (u + np.uint32(0x7FFF) + even) >> _HALF
    return np.uint16(0x7FC0) if (u & _SIZE) > _INFINITE else np.uint16(upper)


@compiled
def store(v, factor, base, address, code, first):
    """Write v · factor + base to the elements from `first` on; return True if all are finite.

    Results are rounded to the nearest, ties to even.
    """
    top = np.uint32(0)
    if code == FLOAT32:
        out = carray(floats_at(address + np.uint64(4 * first)), v.size)
        for i in range(v.size):
            sum_ = v[i] * factor + base[i]
            out[i] = sum_
            top = max(top, _bits(sum_) & _SIZE)
        return top < _INFINITE
    halves = carray(halves_at(address + np.uint64(2 * first)), v.size)
    largest = np.uint16(0)
    if code == BFLOAT16:
        for i in range(v.size):
            h = narrowed(v[i] * factor + base[i])
            halves[i] = h
            largest = max(largest, h & np.uint16(0x7FFF))
        return largest < np.uint16(0x7F80)
    for i in range(v.size):
        h = _half_narrowed(v[i] * factor + base[i])
        halves[i] = h
        largest = max(largest, h & np.uint16(0x7FFF))
    return largest < np.uint16(0x7C00)
