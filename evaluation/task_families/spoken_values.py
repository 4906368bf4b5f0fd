"""Values of arguments, and the words in which people give them: numbers, dates, lists, choices. Pure.

An argument is an entry of `function_calls.json`: a type with a range, a pool or a list of values,
choices with phrases, or a form (date, time, rate). The request says "May 5th, 2024"; the call has it in
the form that the argument's description names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TypeVar

from agent_forge.evaluation.task_families.families import IntegerDraws
from agent_forge.events.envelope import Plain

Json = Plain
T = TypeVar("T")
#: Forms of values, as descriptions name them → patterns. The first of each is the usual form.
DATES = {"YYYY-MM-DD": "{y}-{m:02}-{d:02}", "DD/MM/YYYY": "{d:02}/{m:02}/{y}"}
DATES |= {"MM/DD/YYYY": "{m:02}/{d:02}/{y}", "DD.MM.YYYY": "{d:02}.{m:02}.{y}"}
TIMES = {"HH:MM": "{h:02}:{n:02}", "H:MM AM/PM": "{t}:{n:02} {p}"}
RATES = {"percent": 1, "decimal": 100}
#: What a description adds for a form.
HINTS = {form: f", in the format {form}" for form in (*DATES, *TIMES)}
HINTS |= {
    "percent": " in percent, e.g. 5 for 5%",
    "decimal": " as a decimal number, e.g. 0.05 for 5%",
    "": "",
}
SPOKEN_DATES = ("{M} {d}, {y}", "{d} {M} {y}", "{M} {d}{th}, {y}", "the {d}{th} of {M} {y}")
SPOKEN_DATES += ("{y}-{m:02}-{d:02}", "{M:.3} {d}, {y}")
MONTHS = ("January", "February", "March", "April", "May", "June", "July")
MONTHS += ("August", "September", "October", "November", "December")
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
WORDS += ("ten", "eleven", "twelve")
FIRST_YEAR, LAST_YEAR = 2019, 2027


@dataclass(frozen=True)
class Mention:
    """A value, and the words for it: alone, and as a phrase of the request."""

    value: object
    text: str
    phrase: str
    #: The date, if the value is one.
    day: date | None = None

    @property
    def frame(self) -> str:
        """Return the phrase without the value: "with a height of " of "with a height of eight"."""
        return re.sub(rf"(?<!\w){re.escape(self.text)}(?!\w)", "", self.phrase)


def pick(draws: IntegerDraws, choices: Sequence[T]) -> T:
    """Return a random element."""
    return choices[draws.below(len(choices))]


def chance(draws: IntegerDraws, percent: int) -> bool:
    """Return True in this share of draws."""
    return draws.below(100) < percent


def put(pattern: str, texts: Mapping[str, object]) -> str:
    """Return a pattern with the texts in the places of their {names}; other braces stay."""
    return re.sub(r"\{([^{}]*)\}", lambda match: str(texts.get(match[1], match[0])), pattern)


def form_of(draws: IntegerDraws, argument: Json) -> str:
    """Return a random form of an argument's values, "" if there is one form only."""
    forms = {"date": DATES, "time": TIMES}.get(argument.get("format", ""))
    if forms is None:
        return pick(draws, list(RATES)) if argument.get("percent") else ""
    return next(iter(forms)) if chance(draws, 50) else pick(draws, list(forms))


def mention(
    draws: IntegerDraws, argument: Json, label: str, form: str, earlier: date | None
) -> Mention:
    """Return a random value of an argument, in words. `earlier`: the request's last date."""
    if choices := argument.get("choices"):
        value = pick(draws, list(choices))
        return Mention(value, value, pick(draws, choices[value]))
    if "true" in argument:
        value = bool(draws.below(2))
        return Mention(value, str(value).lower(), pick(draws, argument[str(value).lower()]))
    phrase = pick(draws, argument.get("phrases", [f"with the {label} {{v}}"]))
    #: Numbers beside signs, and in brackets, are written in digits.
    digits = bool(re.search(r"[$(\[%=#°]|\{v\} [a-z]{1,3}\b", phrase))
    day = _day(draws, argument, earlier) if argument.get("format") == "date" else None
    value, text = _date(draws, day, form) if day else _value(draws, argument, form, digits)
    return Mention(value, text, put(phrase, {"v": text}), day)


def _value(draws: IntegerDraws, argument: Json, form: str, digits: bool) -> tuple[object, str]:
    """Return (value, its words) of an argument that is no date, no choice and no object."""
    if argument["type"] == "array":
        return _list(draws, argument, digits)
    if argument.get("format") == "time":
        return _time(draws, form)
    if "range" in argument:
        return _number(draws, argument, form, digits)
    entry = pick(draws, argument["values"])
    return (entry, entry) if isinstance(entry, str) else (entry[0], pick(draws, entry[1:]))


def _number(draws: IntegerDraws, argument: Json, form: str, digits: bool) -> tuple[int | float, str]:
    """Return (number, its words): digits, at times with commas, or a word up to twelve."""
    low, high, step = argument["range"]
    value = round(low + draws.below(int((high - low) / step + 1.5)) * step, 3)
    value = int(value) if value == int(value) else value
    text = str(value)
    if isinstance(value, int) and not digits and 2 <= value <= 12 and chance(draws, 25):
        text = WORDS[value]
    elif value >= 1000 and step >= 50 and chance(draws, 40):
        text = f"{value:,}"
    return (round(value / 100, 5), text) if form == "decimal" else (value, text)


def _list(draws: IntegerDraws, argument: Json, digits: bool) -> tuple[list[object], str]:
    """Return (two to four different values, or as many as the argument has, the values in words)."""
    count, values, texts = argument.get("length") or 2 + draws.below(3), list[object](), list[str]()
    while len(values) < count:
        value, text = _value(draws, argument["items"], "", True)
        if value not in values:
            values.append(value)
            texts.append(text)
    plain = digits or (argument["items"]["type"] != "string" and chance(draws, 40))
    return values, ", ".join(texts) if plain else listed(
        texts, ", and " if chance(draws, 30) else " and "
    )


def listed(texts: Sequence[str], last: str = " and ") -> str:
    """Return texts as "a, b and c"."""
    last = " and " if len(texts) == 2 else last
    return last.join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else texts[0]


def _day(draws: IntegerDraws, argument: Json, earlier: date | None) -> date:
    """Return a random date; of a second date, one to three weeks after the first."""
    if argument.get("later") and earlier:
        return earlier + timedelta(days=1 + draws.below(21))
    first, last = argument.get("years", (FIRST_YEAR, LAST_YEAR))
    return date(first, 1, 1) + timedelta(days=draws.below(365 * (last - first + 1)))


def _date(draws: IntegerDraws, day: date, form: str) -> tuple[str, str]:
    """Return (date in its form, the date as people write it)."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10 if day.day not in (11, 12, 13) else 0, "th")
    parts = {"y": day.year, "m": day.month, "d": day.day, "M": MONTHS[day.month - 1], "th": ending}
    return DATES[form].format(**parts), pick(draws, SPOKEN_DATES).format(**parts)


def _time(draws: IntegerDraws, form: str) -> tuple[str, str]:
    """Return (time in its form, the time as people write it)."""
    hour, minute = 7 + draws.below(16), 15 * draws.below(4) if draws.below(2) else 0
    half, twelfth = "PM" if hour >= 12 else "AM", (hour - 1) % 12 + 1
    spoken = [f"{twelfth}:{minute:02} {half}", f"{twelfth}:{minute:02} {half.lower()}"]
    if not minute:
        spoken += [f"{twelfth} {half.lower()}", f"{twelfth} {half}", f"{twelfth}{half.lower()}"]
    if hour >= 13:
        spoken.append(f"{hour}:{minute:02}")
    return TIMES[form].format(h=hour, n=minute, t=twelfth, p=half), pick(draws, spoken)
