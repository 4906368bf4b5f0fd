"""Function calls: requests of a user, functions on offer, and the right calls or reply. Pure.

A task draws functions of its slice (`offered_functions.py`) and values with the words for them
(`spoken_values.py`), then writes the request and the calls from the same values. A request is a phrase
of the function in a sentence template of the slice, or the bare phrase. A dialogue has several requests
to the same functions, and what they give back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.task_families.families import IntegerDraws
from agent_forge.evaluation.task_families.offered_functions import (
    OfferedFunction,
    alike,
    draw_mention,
    draw_mentions,
    offer_function,
    results,
    shuffled,
    suitable,
    talk,
    templates,
    vocabulary,
    with_further,
)
from agent_forge.evaluation.task_families.spoken_values import Json, Mention, chance, listed, pick, put

Kind = Literal["single", "choice", "none", "ask", "several"]
#: Kind → its share in percent.
SHARES: Mapping[Kind, int] = {"single": 35, "choice": 30, "none": 22, "ask": 6, "several": 7}
#: Every kind as often as its share.
KINDS: list[Kind] = [kind for kind, share in SHARES.items() for _ in range(share)]
#: Levels of difficulty: 1 … LEVELS.
LEVELS = 5
#: First words of phrases, in the order of the phrases; place 2 is that of all other words.
ORDER = ("of that where called titled named labeled", "between among to into by", "")
ORDER += ("limited rounded accurate", "saying asking", "and but")
PLACES = {word: place for place, words in enumerate(ORDER) for word in words.split()}
#: First words of phrases that may stand before the function's phrase, or in a sentence after it.
FRONT = ("in", "on", "at", "with", "for")
TAIL = (*FRONT, "without", "as", "by")


@dataclass(frozen=True)
class CallTask:
    """A request with the functions on offer, and the right calls or the right reply in words.

    Kinds: one function on offer that fits; a choice among several; none that fits; a required
    argument to ask for; several calls (two).
    """

    kind: Kind
    level: int
    slice: Slice
    request: str
    tools: tuple[Json, ...]
    #: {"name", "arguments"}; empty if the right reply is in words.
    calls: tuple[Json, ...]
    reply: str
    #: The functions on offer, if several requests share them.
    offers: tuple[OfferedFunction, ...] = ()
    #: What the functions give back to each call, and the right words about it.
    results: tuple[Json, ...] = ()
    closing: str = ""


def task(slice_: Slice, seed: int, number: int, level: int | None = None) -> CallTask:
    """Return the task of a slice with this seed and number. Raises ValueError for another level."""
    draws = IntegerDraws("function-calls", slice_, seed, number, level or 0)
    level = 1 + draws.below(LEVELS) if level is None else level
    if not 1 <= level <= LEVELS:
        raise ValueError(f"level {level} is not from 1 to {LEVELS}")
    kind = pick(draws, KINDS)
    return _draw(draws, CallTask(kind, level, slice_, "", (), (), ""))[0]


def dialogue(slice_: Slice, seed: int, number: int, requests: int) -> list[CallTask]:
    """Return the tasks of a conversation: `requests` or more, with the same functions on offer.

    Calls have results. After a question for an argument the next request has the argument alone.
    """
    draws = IntegerDraws("function-dialogues", slice_, seed, number, requests)
    level = 1 + draws.below(LEVELS)
    first = offer_function(draws, suitable(draws, slice_, level), level)
    offers = with_further(draws, slice_, level, [first], draws.below(min(level, 4) + 1))
    empty = CallTask("single", level, slice_, "", shuffled(draws, offers), (), "", tuple(offers))
    items = list[CallTask]()
    for _ in range(requests):
        for item in _draw(draws, replace(empty, kind=pick(draws, KINDS))):
            items.append(_with_results(draws, item) if item.calls else item)
    return items


def conversation(*items: CallTask) -> Json:
    """Return a row with messages, tools and slice, as `conversations.py` reads rows."""
    messages = list[Json]()
    for item in items:
        answer: Json = {"role": "assistant", "content": item.reply}
        if item.calls:
            answer["tool_calls"] = [{"type": "function", "function": dict(call)} for call in item.calls]
        messages += [{"role": "user", "content": item.request}, answer]
        messages += [{"role": "tool", "content": json.dumps(result)} for result in item.results]
        if item.closing:
            messages.append({"role": "assistant", "content": item.closing})
    return {"messages": messages, "tools": list(items[0].tools), "slice": items[0].slice}


# ---- kinds ---------------------------------------------------------------------------------------


def _draw(draws: IntegerDraws, item: CallTask) -> list[CallTask]:
    """Return the task of the kind of `item`, and of several requests those that follow from it."""
    draw = {"none": _draw_unmet, "ask": _draw_lacking, "several": _draw_several}
    return draw.get(item.kind, _draw_fitting)(draws, item)


def _draw_offer(draws: IntegerDraws, item: CallTask) -> OfferedFunction:
    if item.offers:
        return pick(draws, item.offers)
    return offer_function(draws, suitable(draws, item.slice, item.level), item.level)


def _draw_tools(
    draws: IntegerDraws, item: CallTask, offers: list[OfferedFunction], count: int
) -> tuple[Json, ...]:
    if item.offers:
        return item.tools
    return shuffled(draws, with_further(draws, item.slice, item.level, offers, count))


def _draw_fitting(draws: IntegerDraws, item: CallTask) -> list[CallTask]:
    offer = _draw_offer(draws, item)
    mentions = draw_mentions(draws, offer)
    request = _write_request(draws, item, offer, mentions)
    more = 1 + draws.below(min(item.level, 4)) if item.kind == "choice" else 0
    tools = _draw_tools(draws, item, [offer], more)
    return [replace(item, request=request, tools=tools, calls=(_make_call(offer, mentions),))]


def _draw_unmet(draws: IntegerDraws, item: CallTask) -> list[CallTask]:
    """Return a request for a function that is not on offer, or talk."""
    offer = _draw_offer(draws, replace(item, offers=()))
    while any(alike(offer.function, x.function) for x in item.offers):
        offer = _draw_offer(draws, replace(item, offers=()))
    tools = _draw_tools(draws, item, [offer], 1 + draws.below(min(item.level, 3)))
    tools = tuple(tool for tool in tools if tool is not offer.tool)
    if draws.below(4):
        request = _write_request(draws, item, offer, draw_mentions(draws, offer))
        reply = pick(draws, vocabulary()["replies"]["none"])
        return [replace(item, request=request, tools=tools, reply=put(reply, offer.function))]
    request, reply = pick(draws, talk(item.slice))
    return [replace(item, request=request, tools=tools, reply=reply)]


def _draw_lacking(draws: IntegerDraws, item: CallTask) -> list[CallTask]:
    """Return a request that leaves out a required argument, with a question for the argument.

    Among functions of which none can lack one, return a request that lacks nothing.
    """
    lacking = [offer for offer in item.offers if any(map(offer.can_lack, offer.function["required"]))]
    if item.offers and not lacking:
        return _draw_fitting(draws, item)
    while True:
        offer = _draw_offer(draws, replace(item, offers=tuple(lacking)))
        labels = [x for x in offer.function["required"] if offer.can_lack(x)]
        if labels:
            break
    label = pick(draws, labels)
    mentions = draw_mentions(draws, offer)
    missing, call = mentions[label], _make_call(offer, mentions)
    del mentions[label]
    request = _write_request(draws, item, offer, mentions)
    what = offer.arguments[label]["description"]
    reply = put(pick(draws, vocabulary()["replies"]["ask"]), {**offer.function, "what": what})
    tools = _draw_tools(draws, item, [offer], draws.below(min(item.level, 3)))
    question = replace(item, request=request, tools=tools, reply=reply)
    if not item.offers:
        return [question]
    return [
        question,
        replace(item, kind="single", request=_finish(f"{missing.phrase}."), calls=(call,)),
    ]


def _with_results(draws: IntegerDraws, item: CallTask) -> CallTask:
    """Return a task whose calls have a result each, and words about the last one."""
    values = {
        "id": f"{'ABCDEFGHKMRST'[draws.below(13)]}-{1000 + draws.below(9000)}",
        "number": str(draws.below(100_000) / 100),
        "small": str(1 + draws.below(40)),
    }
    result, closing = pick(draws, results(item.slice))
    text = re.sub(r'"\{(number|small)\}"', lambda match: values[match[1]], json.dumps(result))
    result = json.loads(text.replace("{id}", values["id"]))
    return replace(item, results=(result,) * len(item.calls), closing=put(closing, values))


def _draw_several(draws: IntegerDraws, item: CallTask) -> list[CallTask]:
    """Return a request for two calls: of two functions, or of one with two values of an argument.

    A single function on offer has one call.
    """
    if len(item.offers) == 1:
        return _draw_fitting(draws, item)
    first, second = (_draw_offer(draws, item) for _ in range(2))
    mentions, further = draw_mentions(draws, first), draw_mentions(draws, second)
    if labels := [x for x in first.function["required"] if first.varies(x) and draws.below(3)]:
        return [_draw_twice(draws, item, first, mentions, pick(draws, labels))]
    if alike(first.function, second.function):
        return _draw_several(draws, item)
    pair = ((first, mentions), (second, further))
    clauses = [_write_clause(draws, offer, drawn, "do") for offer, drawn in pair]
    joined = put(pick(draws, templates(item.slice)["pair"]), dict(zip("xy", clauses, strict=True)))
    patterns = ["{x}."] if _is_to_me(joined) else templates(item.slice)["do"]
    request = _finish(put(pick(draws, patterns), {"x": joined}))
    tools = _draw_tools(draws, item, [first, second], draws.below(min(item.level, 3)))
    calls = tuple(_make_call(offer, drawn) for offer, drawn in pair)
    return [replace(item, request=request, tools=tools, calls=calls)]


def _draw_twice(
    draws: IntegerDraws,
    item: CallTask,
    offer: OfferedFunction,
    mentions: Mapping[str, Mention],
    label: str,
) -> CallTask:
    """Return a request for two calls of a function, which differ in one argument."""
    first = mentions[label]
    while True:
        twin = draw_mention(draws, offer, label, [])
        if twin.value != first.value and twin.frame == first.frame:
            break
    phrases = {"x": first.phrase, "y": twin.phrase}
    phrase = put(pick(draws, templates(item.slice)["twice"]), phrases)
    request = _write_request(
        draws, item, offer, {**mentions, label: replace(twin, phrase=phrase)}, label
    )
    tools = _draw_tools(draws, item, [offer], draws.below(min(item.level, 3)))
    calls = (_make_call(offer, mentions), _make_call(offer, {**mentions, label: twin}))
    return replace(item, request=request, tools=tools, calls=calls)


# ---- requests ------------------------------------------------------------------------------------


def _make_call(offer: OfferedFunction, mentions: Mapping[str, Mention]) -> Json:
    arguments = {offer.names[x]: m.value for x, m in mentions.items()}
    return {"name": offer.tool["function"]["name"], "arguments": arguments}


def _write_request(
    draws: IntegerDraws,
    item: CallTask,
    offer: OfferedFunction,
    mentions: Mapping[str, Mention],
    phrased: str = "",
) -> str:
    """Return the user's message: a template around a phrase of the function with the values.

    `phrased`: an argument that is not named by its value alone, but by its phrase.
    """
    forms = [form for form in ("do", "do", "ask", "noun") if _list_asks(offer, form, mentions, phrased)]
    form = pick(draws, forms or ["do"])
    bare = form != "noun" and chance(draws, 35)
    pattern = {"do": "{x}.", "ask": "{x}?"}[form] if bare else pick(draws, templates(item.slice)[form])
    tails = [
        x for x, m in mentions.items() if x in offer.function["optional"] and _begins(m.phrase, TAIL)
    ]
    tail = pick(draws, tails) if tails and not pattern[:-1].count(". ") and chance(draws, 30) else None
    inside = {x: m for x, m in mentions.items() if x != tail}
    clause = _write_clause(draws, offer, inside, form, phrased, bare)
    pattern = "{x}." if form == "do" and _is_to_me(clause) else pattern
    text = put(pattern, {"x": clause})
    if tail:
        text += f" {put(pick(draws, templates(item.slice)['tail']), {'x': mentions[tail].phrase})}"
    return _finish(text, chance(draws, 6))


def _list_asks(
    offer: OfferedFunction, form: str, mentions: Mapping[str, Mention], phrased: str
) -> list[str]:
    """Return the function's phrases of a form that need no other values than those mentioned."""
    free = mentions.keys() - {phrased}
    return [ask for ask in offer.function[form] if set(re.findall(r"\{(.*?)\}", ask)) <= free]


def _write_clause(
    draws: IntegerDraws,
    offer: OfferedFunction,
    mentions: Mapping[str, Mention],
    form: str,
    phrased: str = "",
    bare: bool = False,
) -> str:
    """Return a phrase of the function with its values, in an order that reads well."""
    slots = {x: m.text for x, m in mentions.items()}
    ask = pick(draws, _list_asks(offer, form, mentions, phrased) or [offer.function["gist"]])
    rest = [x for x in mentions if f"{{{x}}}" not in ask]
    rest = [rest.pop(draws.below(len(rest))) for _ in range(len(rest))]
    if rest and not phrased and all(map(offer.plain, rest)) and chance(draws, 6):
        names = {x: offer.arguments[x]["names"] for x in rest}
        names = {
            x: next((n for n in y if len(n) > 2), y[0]).replace("_", " ") for x, y in names.items()
        }
        return f"{put(ask, slots)} ({', '.join(f'{names[x]}: {slots[x]}' for x in rest)})"
    rest.sort(key=lambda x: PLACES.get(mentions[x].phrase.split()[0], 2))
    leads = [x for x in rest if _begins(mentions[x].phrase, FRONT)] if bare else []
    lead = pick(draws, leads) if leads and chance(draws, 20) else ""
    merged = [x for x in rest if x not in (lead, phrased) and _measured(offer, mentions, x)]
    rest = [x for x in rest if x != lead and x not in merged[1:]]
    withs = (
        "with " + listed([mentions[x].phrase.removeprefix("with ") for x in merged]) if merged else ""
    )
    phrases = [withs if x in merged else mentions[x].phrase for x in rest]
    text = " ".join([put(ask, slots), *phrases])
    return f"{mentions[lead].phrase}, {text}" if lead else text


def _is_to_me(clause: str) -> bool:
    """Return True for "remind me to …", which does not follow "I want to"."""
    return bool(re.search(r"\bme\b", re.sub(r'".*?"', "", clause)))


def _measured(offer: OfferedFunction, mentions: Mapping[str, Mention], label: str) -> bool:
    """Return True if a phrase may be merged: "with a" and "with b" to "with a and b"."""
    type_ = offer.arguments[label]["type"]
    return type_ in ("integer", "number") and mentions[label].phrase.startswith("with ")


def _begins(phrase: str, words: tuple[str, ...]) -> bool:
    return phrase.split()[0] in words


def _finish(text: str, casual: bool = False) -> str:
    """Return a text with capitals and the right articles; if casual, without the first and the last."""
    text = re.sub(r"([.?!]\")\.", r"\1", re.sub(r"\b([Aa]) (?=[aeio])(?!one\b)", r"\1n ", text))
    text = re.sub(r"\b[Tt]he (?=[Tt]he )", "", text)
    text = re.sub(r"([.?!] )([a-z])", lambda match: match[1] + match[2].upper(), text)
    return text.removesuffix(".") if casual else text[0].upper() + text[1:]
