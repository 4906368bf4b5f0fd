"""Tasks of the domain of code, grades 2 and 3: several steps, or an algorithm with a name."""

# A task is a table of texts.
# ruff: noqa: E501

from __future__ import annotations

import random
from collections.abc import Callable

from agent_forge.evaluation.data.domains.common import FunctionTask, some


def _palindrome(r: random.Random) -> FunctionTask:
    what = r.choice(["text", "s", "word", "line"])
    name = r.choice(["is_palindrome", "reads_the_same_backwards", "is_mirrored"])
    doc, preamble = r.choice(
        [("whatever its case", f"{what} = {what}.lower()\n"), ("case by case", "")]
    )
    words = ("'Otto'", "'noon'", "''", "'stone'", "'Level'", "'kayak'")
    return FunctionTask(
        name,
        what,
        f"Return True if {what} reads the same backwards, {doc}.",
        f"{preamble}return {what} == {what}[::-1]",
        (
            f"{preamble}return {what} == {what}[::1]",
            f"{preamble}return {what} != {what}[::-1]",
            f"{preamble}return {what} == {what}[::-2]",
        ),
        words,
    )


def _frequencies(r: random.Random) -> FunctionTask:
    what, element = r.choice(
        [
            ("words", "word"),
            ("items", "item"),
            ("letters", "letter"),
            ("names", "name"),
            ("cities", "city"),
            ("marks", "mark"),
        ]
    )
    name = r.choice([f"count_{what}", "frequencies", f"tally_{what}"])

    def body(start: int, change: str) -> str:
        return f"counts = {{}}\nfor {element} in {what}:\n    counts[{element}] = counts.get({element}, {start}) {change}\nreturn counts"

    return FunctionTask(
        name,
        what,
        f"Return a dictionary from each {element} to how often it is in {what}.",
        body(0, "+ 1"),
        (body(1, "+ 1"), body(0, "- 1"), body(1, "+ 0")),
        ("['a', 'b', 'a']", "[]", "['x', 'x', 'x']", "['p', 'q', 'r', 'q']"),
    )


def _ranked(r: random.Random) -> FunctionTask:
    rank, place = r.choice([("second", 2), ("third", 3)])
    word, largest = r.choice([("largest", True), ("smallest", False)])
    what = r.choice(["numbers", "values", "scores", "prices", "ages"])
    step, other = (-place, place - 1) if largest else (place - 1, -place)
    return FunctionTask(
        f"{rank}_{word}",
        what,
        f"Return the {rank} {word} of the different {what}.",
        f"return sorted(set({what}))[{step}]",
        (
            f"return sorted(set({what}))[{other}]",
            f"return sorted(list({what}))[{step}]",
            f"return sorted(set({what}))[{-step}]",
        ),
        (
            "[4, 3, 1, 2]",
            "[5, 5, 4, 1, 0, 0]",
            f"{[*some(r, 8, 0, 40), 60, 61, 62, 62, -1, -2]}",
            "[-1, -2, -3, -4, -4]",
        ),
    )


def _running(r: random.Random) -> FunctionTask:
    word, op, start = r.choice([("sums", "+", 0), ("products", "*", 1)])
    what = r.choice(["numbers", "values", "steps", "factors", "terms"])
    name = r.choice([f"running_{word}", f"cumulative_{word}"])
    first = f"total, result = {start}, []\nfor n in {what}:\n"
    step, keep, end = f"    total = total {op} n\n", "    result.append(total)\n", "return result"
    return FunctionTask(
        name,
        what,
        f"Return the list of the {word} of the first one, two, three … {what}.",
        first + step + keep + end,
        (
            first + keep + step + end,
            first + step + "    result.append(n)\n" + end,
            first + "    total = total - n\n" + keep + end,
        ),
        ("[1, 2, 3, 4]", "[5, 2]", "[]", "[2, -1, 3]"),
    )


def _dedupe(r: random.Random) -> FunctionTask:
    what = r.choice(["items", "values", "names", "numbers"])

    def body(over: str, test: str) -> str:
        return (
            f"result = []\nfor x in {over}:\n    if x {test}:\n        result.append(x)\nreturn result"
        )

    return FunctionTask(
        r.choice(["without_repeats", "unique", "distinct"]),
        what,
        f"Return the {what} without repetitions, in the order in which they come first.",
        body(what, "not in result"),
        (
            body(what, "in result"),
            body(what, f"not in {what}"),
            body(f"reversed({what})", "not in result"),
        ),
        ("[3, 1, 3, 2, 1]", "[]", "['b', 'a', 'b']", "[7, 7, 7]"),
    )


def _chunks(r: random.Random) -> FunctionTask:
    k = r.randint(2, 6)
    what = r.choice(["items", "values", "sequence"])

    def body(end: str, step: int) -> str:
        return f"return [{what}[i:{end}] for i in range(0, len({what}), {step})]"

    return FunctionTask(
        f"groups_of_{k}",
        what,
        f"Split a list into lists of {k}; the last may be shorter.",
        body(f"i + {k}", k),
        (body(f"i * {k}", k), body(f"i + {k - 1}", k), body(f"i + {k}", k + 1)),
        ("[1, 2, 3, 4, 5, 6, 7]", "[]", "['a']", f"{list(range(3 * k))}"),
    )


def _gcd(r: random.Random) -> FunctionTask:
    a, b = r.choice([("a", "b"), ("m", "n"), ("x", "y")])
    name = r.choice(["gcd", "greatest_common_divisor", "largest_common_divisor"])
    k, m, n = r.randint(2, 20), r.randint(2, 30), r.randint(2, 30)

    def body(after: str, result: str) -> str:
        return f"while {b}:\n    {a}, {b} = {after}\nreturn {result}"

    return FunctionTask(
        name,
        f"{a}, {b}",
        f"Return the greatest common divisor of {a} and {b}.",
        body(f"{b}, {a} % {b}", a),
        (body(f"{b}, {a} // {b}", a), body(f"{b}, {a} % {b}", b), body(f"{b} % {a}, {a}", a)),
        ("12, 18", "7, 5", f"{k * m}, {k * n}", "9, 0"),
    )


def _primes(r: random.Random) -> FunctionTask:
    word, first = r.choice([("up to", "n + 1"), ("below", "n")])
    name = r.choice(["primes", "prime_numbers", "all_primes"])
    bounds = tuple(str(n) for n in (r.randint(10, 60), 2, 3, 1, r.choice([25, 29, 49])))

    def body(start: int, every: str, least: int) -> str:
        return (
            f"return [p for p in range({start}, {first}) if {every}(p % d for d in range({least}, p))]"
        )

    return FunctionTask(
        name,
        "n",
        f"Return the prime numbers {word} n, in a list.",
        body(2, "all", 2),
        (body(1, "all", 2), body(2, "any", 2), body(2, "all", 1)),
        bounds,
    )


def _run_lengths(r: random.Random) -> FunctionTask:
    what = r.choice(["text", "s", "letters"])
    name = r.choice(["run_lengths", "compress", "encode_runs"])

    def body(same: str, more: int, start: int) -> str:
        step = f"        result[-1] = (c, result[-1][1] + {more})\n    else:\n        result.append((c, {start}))\n"
        return f"result = []\nfor c in {what}:\n    if result and result[-1][0] {same} c:\n{step}return result"

    sample = "".join(r.choice("ab") * r.randint(1, 4) for _ in range(4))
    return FunctionTask(
        name,
        what,
        f"Return a list of pairs (letter, how often it is repeated there) for {what}.",
        body("==", 1, 1),
        (body("==", 1, 0), body("!=", 1, 1), body("==", 2, 1)),
        ("'aaabcc'", "''", f"'{sample}'", "'xyx'"),
    )


def _balanced(r: random.Random) -> FunctionTask:
    left, right = r.choice(["()", "[]", "{}", "<>"])
    name = r.choice(["is_balanced", "brackets_match", "well_nested"])

    def body(wrong: str, end: str) -> str:
        loop = f"for c in text:\n    if c == {left!r}:\n        depth += 1\n    elif c == {right!r}:\n        depth -= 1\n"
        return f"depth = 0\n{loop}        if depth {wrong} 0:\n            return False\nreturn depth {end} 0"

    calls = ("(a(b)c)", ")(", "((", "", "()()")
    return FunctionTask(
        name,
        "text",
        f"Return True if every {left!r} in text is closed by a {right!r} after it.",
        body("<", "=="),
        (body(">", "=="), body("<", "!="), body("<=", "==")),
        tuple(repr(t.replace("(", left).replace(")", right)) for t in calls),
    )


def _base(r: random.Random) -> FunctionTask:
    base = r.randint(2, 9)
    name = r.choice(["to_base", "digits_in_base", "in_base"])

    def body(step: str, zero: str) -> str:
        return (
            f"digits = ''\nwhile n:\n    digits = {step}\n    n //= {base}\nreturn digits or {zero!r}"
        )

    return FunctionTask(
        f"{name}_{base}",
        "n",
        f"Return the digits of n in base {base} as a text; n is not negative.",
        body(f"str(n % {base}) + digits", "0"),
        (
            body(f"digits + str(n % {base})", "0"),
            body(f"str(n // {base}) + digits", "0"),
            body(f"str(n % {base}) + digits", "1"),
        ),
        ("0", "1", f"{r.randint(50, 400)}", f"{base**3}"),
    )


def _fibonacci(r: random.Random) -> FunctionTask:
    a, b = r.choice([(0, 1), (1, 1), (2, 1), (1, 2), (1, 3), (2, 5), (3, 4), (0, 2)])
    name = r.choice(["sequence", "sums_of_two", "series"])

    def body(following: str, end: str) -> str:
        return f"result = [{a}, {b}]\nwhile len(result) < n:\n    result.append({following})\nreturn result[{end}]"

    return FunctionTask(
        name,
        "n",
        f"Return the first n numbers of the sequence that begins with {a}, {b} and goes on "
        "with the sum of the two numbers before.",
        body("result[-1] + result[-2]", ":n"),
        (
            body("result[-1] + result[-1]", ":n"),
            body("result[-1] - result[-2]", ":n"),
            body("result[-1] + result[-2]", "n:"),
        ),
        ("0", "1", "2", "8"),
    )


def _intervals(r: random.Random) -> FunctionTask:
    name = r.choice(["merge_intervals", "join_ranges", "merged", "union_of_intervals"])
    what = r.choice(["intervals", "ranges", "spans"])

    def body(touch: str, end: str) -> str:
        step = (
            f"        result[-1] = (result[-1][0], {end})\n    else:\n        result.append((a, b))\n"
        )
        return f"result = []\nfor a, b in sorted({what}):\n    if result and a {touch} result[-1][1]:\n{step}return result"

    a = r.randint(1, 9)
    return FunctionTask(
        name,
        what,
        f"Merge {what}, pairs (a, b) with a <= b, that overlap or touch; return them sorted.",
        body("<=", "max(b, result[-1][1])"),
        (
            body("<=", "min(b, result[-1][1])"),
            body(">=", "max(b, result[-1][1])"),
            body("<=", "max(a, result[-1][1])"),
        ),
        ("[(1, 3), (2, 5), (8, 9)]", "[]", f"[({a}, {a + 9}), ({a + 1}, {a + 2})]", "[(4, 6), (1, 4)]"),
    )


#: Makers of tasks, by grade.
TASKS: list[list[Callable[[random.Random], FunctionTask]]] = [
    [_palindrome, _frequencies, _ranked, _running, _dedupe, _chunks],
    [_gcd, _primes, _run_lengths, _balanced, _base, _fibonacci, _intervals],
]
