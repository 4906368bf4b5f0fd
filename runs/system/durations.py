"""Times, durations and sizes in words, for reports and estimates. Pure."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Return seconds as "1 h 02 min", "3 min 04 s" or "5.6 s"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{seconds:.1f} s"


def rough(seconds: float) -> str:
    """Return seconds in their largest unit, rounded down: "12 min", "3 h", "5 d"."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length):,} {unit}"
    return f"{max(0, int(seconds))} s"


def day(recorded_at: str) -> str:
    """Return a time of the log without its seconds."""
    return recorded_at[:16].replace("T", " at ") + " UTC"


def size(count: float) -> str:
    """Return bytes as "1.2 GB", "3.4 MB" or "5.6 kB"."""
    for unit, one in (("GB", 1e9), ("MB", 1e6)):
        if count >= one:
            return f"{count / one:,.1f} {unit}"
    return f"{count / 1e3:,.1f} kB"
