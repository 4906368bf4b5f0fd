"""Range coding of whole numbers by their own frequencies, with an escape for rare ones.

Symbols 0 … n − 1 stand for the values low … low + n − 1. A last symbol, if it is needed, stands for any
other value, and these values are listed. The table has a byte for each symbol: its frequency, rounded
to an eighth of a power of two. That costs less than 0.001 bits a symbol, and is shorter than a table of
counts. The coder is that of the package `constriction` (Bamler 2022,
arXiv 2201.01741): the range coder of its `stream.queue`, 32-bit words, probabilities of 24 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agent_forge.runs.errors import ConfigError, SourceError, UnavailableError
from agent_forge.runs.system import packages

#: Symbols of the longest table.
MOST_SYMBOLS = 4096
#: Bytes of an escaped value, about: four, and its symbol.
ESCAPE_BYTES = 5
#: Most values for each byte of words; shorter words are filled with zeros. Otherwise a file of a few
#: bytes could make a reader fill its memory.
MOST_VALUES_A_BYTE = 8192
#: 2^(k/8) for k = 0 … 7, in 256ths: frequency k + 8 e of the table is EIGHTHS[k] · 2^e.
EIGHTHS = np.array([256, 279, 304, 332, 362, 395, 431, 470], np.int64)
#: Frequencies of a table: 2^(0/8) to 2^(255/8).
FREQUENCIES = (EIGHTHS[np.arange(256) % 8] << (np.arange(256) // 8)).astype(np.float64)
#: Largest size of an escaped value.
MOST_VALUE = 2**31 - 1


def encode(values: torch.Tensor) -> tuple[int, dict[str, torch.Tensor]]:
    """Return (low, parts): "table" uint8, "words" uint8 and, if there are any, "escaped" int32.

    `values` are int64 of any shape. Raises ConfigError for values beyond 32 bits, UnavailableError
    without the package.
    """
    flat = values.reshape(-1).numpy()
    if flat.size and int(np.abs(flat).max()) > MOST_VALUE:
        raise ConfigError("an index has more than 32 bits: choose a larger step")
    low, counts = _window(flat)
    inside = (flat >= low) & (flat < low + counts.size)
    symbols = np.where(inside, flat - low, counts.size).astype(np.int32)
    escaped = flat[~inside]
    if escaped.size:
        counts = np.append(counts, escaped.size)
    table = _table(counts)
    parts = {"table": torch.from_numpy(table), "words": _coded(symbols, table)}
    if escaped.size:
        parts["escaped"] = torch.from_numpy(escaped.astype(np.int32))
    return low, parts


def decode(low: int, parts: dict[str, torch.Tensor], count: int) -> torch.Tensor:
    """Return the values that `encode` coded, [count] int64.

    Raises SourceError for damaged bytes, UnavailableError without the package.
    """
    table, words = parts["table"].numpy(), parts["words"].numpy()
    escaped = parts["escaped"].numpy() if "escaped" in parts else np.zeros(0, np.int32)
    if not 1 <= table.size <= MOST_SYMBOLS + 1 or words.size % 4:
        raise SourceError(f"a table of {table.size:,} symbols and {words.size:,} bytes of words")
    symbols = _symbols(table, words, count)
    values = symbols.astype(np.int64) + low
    if escaped.size:
        places = np.flatnonzero(symbols == table.size - 1)
        if places.size != escaped.size:
            raise SourceError(f"{places.size:,} escapes and {escaped.size:,} values for them")
        values[places] = escaped
    return torch.from_numpy(values)


def _window(flat: NDArray[np.int64]) -> tuple[int, NDArray[np.int64]]:
    """Return (low, counts): the lowest value that is a symbol, and the counts of low, low + 1, ….

    Values at both ends are escaped if their entries in the table, gaps included, would take more bytes
    than their escapes. Values beyond the longest table are escaped, too.
    """
    if not flat.size:
        return 0, np.ones(1, np.int64)
    values, counts = np.unique(flat, return_counts=True)
    total = np.concatenate(([0], np.cumsum(counts)))
    ends = np.searchsorted(values, values + MOST_SYMBOLS)  # of a longest table from each value on
    first = int(np.argmax(total[ends] - total[:-1]))
    last = int(ends[first]) - 1
    while last > first:
        low_gain = values[first + 1] - values[first] - ESCAPE_BYTES * counts[first]
        high_gain = values[last] - values[last - 1] - ESCAPE_BYTES * counts[last]
        if max(low_gain, high_gain) <= 0:
            break
        first, last = (first + 1, last) if low_gain >= high_gain else (first, last - 1)
    low = int(values[first])
    window = np.zeros(int(values[last]) - low + 1, np.int64)
    window[values[first : last + 1] - low] = counts[first : last + 1]
    return low, window


def _table(counts: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return each symbol's entry, uint8: the frequency nearest, in ratio, to its count."""
    log_counts = np.log2(np.maximum(counts, 1).astype(np.float64)) * 8.0
    return np.rint(log_counts).clip(0, 255).astype(np.uint8)


def _coded(symbols: NDArray[np.int32], table: NDArray[np.uint8]) -> torch.Tensor:
    words = np.zeros(0, np.uint32)
    if table.size > 1:
        encoder = _package().stream.queue.RangeEncoder()
        encoder.encode(symbols, _model(table))
        words = np.asarray(encoder.get_compressed(), np.uint32)
    filled = np.zeros(max(words.size, _least_words(symbols.size)), "<u4")
    filled[: words.size] = words
    return torch.from_numpy(filled.view(np.uint8))


def _least_words(count: int) -> int:
    """Return the least number of words of `count` values."""
    return -(-count // (4 * MOST_VALUES_A_BYTE))


def _symbols(table: NDArray[np.uint8], words: NDArray[np.uint8], count: int) -> NDArray[np.int32]:
    spare = words.size == 4 * _least_words(count)
    if words.size < 4 * _least_words(count):
        raise SourceError(f"{words.size:,} bytes of words are too few for {count:,} values")
    if table.size == 1:
        if words.any() or not spare:
            raise SourceError("words of a single symbol, which needs none")
        return np.zeros(count, np.int32)
    coder = _package().stream.queue.RangeDecoder(words.view("<u4").astype(np.uint32))
    try:
        symbols = coder.decode(_model(table), count)
        if not spare and not coder.maybe_exhausted():
            raise SourceError("words are left behind the last symbol")
    except AssertionError as error:
        raise SourceError(f"the words are no coded symbols: {error}") from error
    return symbols


def _model(table: NDArray[np.uint8]) -> object:
    """Return the package's distribution of a table of at least two symbols."""
    return _package().stream.model.Categorical(FREQUENCIES[table], perfect=False)


def _package() -> Any:
    """Return the package `constriction`. Raises UnavailableError if it is not installed."""
    try:
        import constriction
    except ModuleNotFoundError as error:
        raise UnavailableError(f"{packages.missing('entropy coding', 'constriction')}.") from error
    return constriction
