"""Match regular expressions of strangers in a bounded number of steps.

Python's `re` may need time exponential in the length of a text, and holds the interpreter's lock
meanwhile. A limit in seconds would make a score depend on the machine. So this module counts steps:
the same pattern and text give the same answer on every machine, or the same error. All patterns that
come from outside this program are matched here.

The syntax and the meaning are those of `re`: its own parser reads the pattern, and its own engine tests
single characters and positions. Between these a backtracking machine remembers each state that failed
(memoised backtracking, as in RE2's BitState), so most patterns need at most about (instructions ×
characters) steps; back-references and groups that look around may need more. An atomic or conditional
group in a loop that can match nothing may differ from `re`, which ends such a loop earlier. Pure;
imports no torch.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, field
from typing import Any

#: Characters of the longest pattern, and instructions of the largest program that it may become:
#: `a{1000}` has a thousand.
MOST_PATTERN, MOST_INSTRUCTIONS = 4096, 20_000
#: Steps that one match may take by default: a second or less, while replies need thousands.
MOST_STEPS = 2_000_000

#: The parser of `re`, and its constants: a module without a public name since Python 3.11.
_parser: Any = importlib.import_module("re._parser")
_codes: Any = importlib.import_module("re._constants")

#: Instructions: a character of a class, a way that splits, a jump, a test of a position, a group's
#: begin or end, an earlier group's text, a branch on an earlier group, a program that looks around, an
#: atomic program, the end of the program, and a failure.
_CHAR, _SPLIT, _JUMP, _AT, _SAVE, _REF, _IF, _LOOK, _ATOMIC, _END, _FAIL = range(11)

_CATEGORIES = {
    _codes.CATEGORY_DIGIT: r"\d",
    _codes.CATEGORY_NOT_DIGIT: r"\D",
    _codes.CATEGORY_SPACE: r"\s",
    _codes.CATEGORY_NOT_SPACE: r"\S",
    _codes.CATEGORY_WORD: r"\w",
    _codes.CATEGORY_NOT_WORD: r"\W",
}
_PLACES = {
    _codes.AT_BEGINNING: "^",
    _codes.AT_BEGINNING_STRING: r"\A",
    _codes.AT_BOUNDARY: r"\b",
    _codes.AT_NON_BOUNDARY: r"\B",
    _codes.AT_END: "$",
    _codes.AT_END_STRING: r"\Z",
}

#: Place of each referenced group's begin and end in the text; −1 if it has matched nothing.
Spans = tuple[int, ...]


class TooManyStepsError(Exception):
    """The match needs more steps than are allowed."""


@dataclass
class Steps:
    """Steps that are left for one match, or for several together."""

    left: int = MOST_STEPS

    def spend(self) -> None:
        """Take one step. Raise TooManyStepsError if none is left."""
        self.left -= 1
        if self.left < 0:
            raise TooManyStepsError


class _Characters(dict[str, bool]):
    """Character → True if the class of characters has it; asked of `re` once for each character."""

    def __init__(self, source: str, flags: int) -> None:
        super().__init__()
        self._compiled = re.compile(source, flags)

    def __missing__(self, character: str) -> bool:
        is_member = self[character] = self._compiled.fullmatch(character) is not None
        return is_member


@dataclass
class _Program:
    """Instructions: an operation and its operands."""

    code: list[tuple[int, Any, Any]] = field(default_factory=list)

    def add(self, operation: int, first: Any = None, second: Any = None) -> int:
        """Append an instruction; return its place. Raise ValueError if the program is too large."""
        if len(self.code) >= MOST_INSTRUCTIONS:
            raise ValueError(
                f"it stands for more than {MOST_INSTRUCTIONS:,} characters and choices: use smaller "
                "numbers in braces"
            )
        self.code.append((operation, first, second))
        return len(self.code) - 1


class Matcher:
    """A regular expression with the syntax and the meaning of Python's `re`."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        """Compile a pattern. Raise ValueError that says what is wrong with it."""
        if len(pattern) > MOST_PATTERN:
            raise ValueError(f"it has more than {MOST_PATTERN:,} characters")
        try:
            self._compiled = re.compile(pattern, flags)
            parsed = _parser.parse(pattern, flags)
            builder = _Builder(_referenced(parsed))
            self._program = builder.program(parsed, parsed.state.flags)
        except (re.error, RecursionError, OverflowError, MemoryError) as error:
            raise ValueError(str(error) or type(error).__name__) from error
        self._spans: Spans = (-1, -1) * len(builder.referenced)
        #: False if the pattern has no choices: then `re` itself cannot go back, and counts as a step.
        self._splits = builder.splits

    def fullmatch(self, text: str, start: int = 0, steps: Steps | None = None) -> bool:
        """Return True if the text from `start` to its end matches. Raise TooManyStepsError."""
        steps = steps or Steps()
        if not self._splits:
            steps.spend()
            return self._compiled.fullmatch(text, start) is not None
        run = _Run(text, steps)
        return run.matched(self._program, start, self._spans, set(), True) is not None

    def search(self, text: str, steps: Steps | None = None) -> bool:
        """Return True if a part of the text matches. Raise TooManyStepsError."""
        steps = steps or Steps()
        if not self._splits:
            steps.spend()
            return self._compiled.search(text) is not None
        run, failed = _Run(text, steps), set[Any]()
        return any(
            run.matched(self._program, start, self._spans, failed) is not None
            for start in range(len(text) + 1)
        )


def _referenced(parsed: Any) -> list[int]:
    """Return the numbers of the groups that a pattern refers to, sorted."""
    groups: set[int] = set()
    waiting = [parsed]
    while waiting:
        value = waiting.pop()
        if isinstance(value, _parser.SubPattern):
            for operation, operand in value:
                if operation is _codes.GROUPREF:
                    groups.add(operand)
                elif operation is _codes.GROUPREF_EXISTS:
                    groups.add(operand[0])
                waiting.append(operand)
        elif isinstance(value, tuple | list):
            waiting += value
    return sorted(groups)


class _Builder:
    """Translator of a parsed pattern into programs."""

    def __init__(self, referenced: list[int]) -> None:
        #: Group → place of its begin in the spans.
        self.referenced = {group: 2 * place for place, group in enumerate(referenced)}
        #: True if a program has a choice.
        self.splits = False
        self._classes: dict[tuple[str, int], _Characters] = {}

    def program(self, parsed: Any, flags: int) -> _Program:
        """Return the program of a pattern. Raise ValueError if it is too large."""
        program = _Program()
        self._sequence(program, parsed, flags)
        program.add(_END)
        return program

    def _sequence(self, program: _Program, parsed: Any, flags: int) -> None:
        for operation, operand in parsed:
            self._node(program, operation, operand, flags)

    def _node(self, program: _Program, operation: Any, operand: Any, flags: int) -> None:
        match operation:
            case _codes.LITERAL | _codes.NOT_LITERAL | _codes.RANGE | _codes.IN | _codes.ANY:
                program.add(_CHAR, self._characters(operation, operand, flags))
            case _codes.AT:
                kept = flags & (re.MULTILINE | re.ASCII)
                program.add(_AT, re.compile(_PLACES[operand], kept))
            case _codes.SUBPATTERN:
                group, more, less, inner = operand
                self._group(program, group, inner, (flags | more) & ~less)
            case _codes.BRANCH:
                self._branch(program, operand[1], flags)
            case _codes.MAX_REPEAT | _codes.MIN_REPEAT:
                self._repeat(program, operand, flags, operation is _codes.MAX_REPEAT)
            case _codes.POSSESSIVE_REPEAT:
                inner = _Program()
                self._repeat(inner, operand, flags, True)
                inner.add(_END)
                program.add(_ATOMIC, inner)
            case _codes.ATOMIC_GROUP:
                program.add(_ATOMIC, self.program(operand, flags))
                self.splits = True
            case _codes.ASSERT | _codes.ASSERT_NOT:
                direction, inner = operand
                back = inner.getwidth()[0] if direction < 0 else 0
                meant = operation is _codes.ASSERT
                program.add(_LOOK, self.program(inner, flags), (back, meant))
                self.splits = True
            case _codes.GROUPREF:
                program.add(_REF, self.referenced[operand], bool(flags & re.IGNORECASE))
                self.splits = True
            case _codes.GROUPREF_EXISTS:
                self._condition(program, operand, flags)
            case _codes.FAILURE:
                program.add(_FAIL)
            case _:
                raise ValueError(f"{operation} is not supported")

    def _characters(self, operation: Any, operand: Any, flags: int) -> _Characters:
        source = _class_source(operation, operand)
        kept = flags & (re.IGNORECASE | re.ASCII | re.DOTALL)
        if (source, kept) not in self._classes:
            self._classes[source, kept] = _Characters(source, kept)
        return self._classes[source, kept]

    def _group(self, program: _Program, group: int | None, inner: Any, flags: int) -> None:
        place = self.referenced.get(group) if group is not None else None
        if place is None:
            self._sequence(program, inner, flags)
            return
        # The begin counts once the group has ended, so both are saved together at the end.
        program.add(_SAVE, None, None)
        self._sequence(program, inner, flags)
        program.add(_SAVE, place, None)

    def _branch(self, program: _Program, branches: list[Any], flags: int) -> None:
        self.splits = True
        jumps: list[int] = []
        for number, branch in enumerate(branches, 1):
            last = number == len(branches)
            split = None if last else program.add(_SPLIT)
            self._sequence(program, branch, flags)
            if split is not None:
                jumps.append(program.add(_JUMP))
                program.code[split] = (_SPLIT, split + 1, len(program.code))
        for jump in jumps:
            program.code[jump] = (_JUMP, len(program.code), None)

    def _repeat(self, program: _Program, operand: Any, flags: int, greedy: bool) -> None:
        least, most, inner = operand
        for _ in range(least):
            before = len(program.code)
            self._sequence(program, inner, flags)
            if len(program.code) == before:  # nothing, any number of times
                return
        self.splits |= least != most
        splits: list[int] = []
        if most is _codes.MAXREPEAT:
            splits.append(program.add(_SPLIT))
            self._sequence(program, inner, flags)
            program.add(_JUMP, splits[0])
        else:
            for _ in range(most - least):
                splits.append(program.add(_SPLIT))
                self._sequence(program, inner, flags)
        end = len(program.code)
        for split in splits:
            ways = (split + 1, end) if greedy else (end, split + 1)
            program.code[split] = (_SPLIT, *ways)

    def _condition(self, program: _Program, operand: Any, flags: int) -> None:
        self.splits = True
        group, yes, no = operand
        branch = program.add(_IF)
        self._sequence(program, yes, flags)
        jump = program.add(_JUMP)
        program.code[branch] = (_IF, self.referenced[group], len(program.code))
        if no is not None:
            self._sequence(program, no, flags)
        program.code[jump] = (_JUMP, len(program.code), None)


def _class_source(operation: Any, operand: Any) -> str:
    """Return the pattern of one character."""
    match operation:
        case _codes.ANY:
            return "."
        case _codes.LITERAL:
            return f"[{_escaped(operand)}]"
        case _codes.NOT_LITERAL:
            return f"[^{_escaped(operand)}]"
        case _codes.RANGE:
            return f"[{_escaped(operand[0])}-{_escaped(operand[1])}]"
    parts: list[str] = []
    for kind, value in operand:
        match kind:
            case _codes.NEGATE:
                parts.append("^")
            case _codes.LITERAL:
                parts.append(_escaped(value))
            case _codes.RANGE:
                parts.append(f"{_escaped(value[0])}-{_escaped(value[1])}")
            case _:
                parts.append(_CATEGORIES[value])
    return f"[{''.join(parts)}]"


def _escaped(character: int) -> str:
    return f"\\U{character:08x}"


def _saved(begin: int | None, place: int, spans: Spans, begins: Any) -> tuple[Spans, Any]:
    """Return the groups' spans and the begins of open groups behind a begin (None) or an end."""
    if begin is None:
        return spans, (place, begins)
    return (*spans[:begin], begins[0], place, *spans[begin + 2 :]), begins[1]


class _Run:
    """One match over a text."""

    def __init__(self, text: str, steps: Steps) -> None:
        self._text, self._steps = text, steps

    def matched(
        self, program: _Program, start: int, spans: Spans, failed: set[Any], whole: bool = False
    ) -> tuple[int, Spans] | None:
        """Return where the first match from `start` ends and the groups' spans; None for no match.

        With `whole` the match ends with the text. `failed` has the states that led to no match.
        """
        text, end, code, left = self._text, len(self._text), program.code, self._steps.left
        waiting: list[tuple[int, int, Spans, Any]] = [(0, start, spans, None)]
        while waiting:
            at, place, spans, begins = waiting.pop()
            while True:
                left -= 1
                if left < 0:
                    self._steps.left = 0
                    raise TooManyStepsError
                operation, first, second = code[at]
                at += 1
                if operation == _CHAR:
                    if place == end or not first[text[place]]:
                        break
                    place += 1
                elif operation == _SPLIT:
                    state = (at, place, spans, begins) if spans else at * (end + 1) + place
                    if state in failed:
                        break
                    failed.add(state)
                    waiting.append((second, place, spans, begins))
                    at = first
                elif operation == _JUMP:
                    at = first
                elif operation == _SAVE:
                    spans, begins = _saved(first, place, spans, begins)
                elif operation == _IF:
                    at = at if spans[first] >= 0 else second
                elif operation == _END:
                    if whole and place != end:
                        break
                    self._steps.left = left
                    return place, spans
                else:
                    self._steps.left = left
                    passed = self._passed(code[at - 1], place, spans)
                    left = self._steps.left
                    if passed is None:
                        break
                    place, spans = passed
        self._steps.left = left
        return None

    def _passed(
        self, instruction: tuple[int, Any, Any], place: int, spans: Spans
    ) -> tuple[int, Spans] | None:
        """Return place and spans behind an instruction that is a match of its own; None for none."""
        operation, first, second = instruction
        if operation == _REF:
            length = self._repeated(spans[first], spans[first + 1], place, second)
            if length is None:
                return None
            self._steps.left -= length
            return place + length, spans
        if operation == _AT:
            return None if first.match(self._text, place) is None else (place, spans)
        if operation == _FAIL:
            return None
        back, meant = second or (0, True)
        inner = self.matched(first, place - back, spans, set()) if place >= back else None
        if (inner is not None) != meant:
            return None
        if inner is None:
            return place, spans
        return (inner[0] if operation == _ATOMIC else place), inner[1]

    def _repeated(self, begin: int, end: int, place: int, any_case: bool) -> int | None:
        """Return the characters of an earlier group's text if they stand at `place`; else None."""
        if begin < 0:
            return None
        earlier, here = self._text[begin:end], self._text[place : place + end - begin]
        if any_case:
            earlier, here = earlier.lower(), here.lower()
        return end - begin if earlier == here else None
