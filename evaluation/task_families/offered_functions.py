"""Functions on offer: the vocabulary of function calls, its division among slices, schemas. Pure.

The vocabulary (`function_calls.json`) has topics with arguments and functions. A function on offer has
a random spelling of its names, forms of its dates, and some of its optional arguments.

Functions, sentence templates and talk are divided among the slices by the order of their digests: none
of the selection or test slice is in another slice. The search slice shares those of the train slice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from hashlib import sha256
from pathlib import Path

from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.task_families.families import IntegerDraws
from agent_forge.evaluation.task_families.spoken_values import (
    HINTS,
    Json,
    Mention,
    chance,
    form_of,
    listed,
    mention,
    pick,
    put,
)

#: Spellings of function names, of 20, whose arguments are in camelCase.
CAMEL = range(9, 18)
VOCABULARY = Path(__file__).with_name("function_calls.json")


@dataclass(frozen=True)
class OfferedFunction:
    """A function as a task offers it. `names`, `forms`: argument → its name, its form of values."""

    function: Json
    arguments: Json
    names: Mapping[str, str]
    forms: Mapping[str, str]
    tool: Json

    def plain(self, label: str) -> bool:
        """Return True if an argument has values of its own words, and no fixed phrases."""
        return not self.arguments[label].keys() & {"choices", "true", "properties", "percent"}

    def can_lack(self, label: str) -> bool:
        """Return True if a request can leave out an argument, and a question can ask for it."""
        asks = [ask for form in ("do", "ask", "noun") for ask in self.function[form]]
        noun = not self.arguments[label]["description"].startswith(("how", "whether", "way"))
        return noun and any(f"{{{label}}}" not in ask for ask in asks)

    def varies(self, label: str) -> bool:
        """Return True if a request can name two values of an argument, each for a call."""
        source = self.arguments[label]
        dates = [x for x in self.names if self.arguments[x].get("format") == "date"]
        single = source["type"] != "array" and not (label in dates and len(dates) > 1)
        return self.plain(label) and single and "phrases" in source


# ---- vocabulary ----------------------------------------------------------------------------------


@cache
def vocabulary() -> Json:
    """Return templates, replies, talk, pools of values, and topics with arguments and functions."""
    return json.loads(VOCABULARY.read_text("utf-8"))


def partition(texts: Sequence[str], slice_: Slice) -> list[str]:
    """Return the texts of a slice: a seventh for test, a ninth for selection, at least one each."""
    ranked = sorted(texts, key=lambda text: sha256(text.encode()).digest())
    tests = max(1, len(texts) // 7)
    end = tests + max(1, len(texts) // 9)
    return {"test": ranked[:tests], "selection": ranked[tests:end]}.get(slice_, ranked[end:])


@cache
def functions(slice_: Slice) -> list[Json]:
    """Return the functions of a slice, each with its "topic" and "difficulty"."""
    listed = list[Json]()
    for topic, content in vocabulary()["topics"].items():
        members = partition([function["names"][0] for function in content["functions"]], slice_)
        for function in (f for f in content["functions"] if f["names"][0] in members):
            types = [arguments_of(topic)[label]["type"] for label in function["required"]]
            nested = sum(type_ in ("array", "object") for type_ in types)
            listed.append({**function, "topic": topic, "difficulty": len(types) + nested})
    return listed


@cache
def templates(slice_: Slice) -> Mapping[str, list[str]]:
    """Return the sentence templates of a slice, by form."""
    return {form: partition(texts, slice_) for form, texts in vocabulary()["templates"].items()}


@cache
def talk(slice_: Slice) -> list[tuple[str, str]]:
    """Return requests of a slice that no function fits, each with its reply."""
    replies = dict(vocabulary()["talk"])
    return [(request, replies[request]) for request in partition(list(replies), slice_)]


@cache
def results(slice_: Slice) -> list[tuple[Json, str]]:
    """Return what functions of a slice give back, each with its reply in words."""
    replies = {json.dumps(result): (result, reply) for result, reply in vocabulary()["results"]}
    return [replies[text] for text in partition(list(replies), slice_)]


@cache
def arguments_of(topic: str) -> Json:
    """Return the arguments of a topic, in which pools of values have been put."""
    pools = vocabulary()["pools"]

    def filled(source: Json) -> Json:
        inner = {"items": filled(source["items"])} if "items" in source else {}
        return {**source, **inner, **({"values": pools[source["pool"]]} if "pool" in source else {})}

    content = {**vocabulary()["arguments"], **vocabulary()["topics"][topic]["arguments"]}
    return {label: filled(source) for label, source in content.items()}


def alike(a: Json, b: Json) -> bool:
    """Return True if a request for one of two functions might fit the other one."""
    pair = {a["names"][0], b["names"][0]}
    return len(pair) == 1 or any(pair <= set(group) for group in vocabulary()["alike"])


# ---- functions on offer --------------------------------------------------------------------------


def suitable(draws: IntegerDraws, slice_: Slice, level: int) -> Json:
    """Return a function of a slice whose number and types of arguments suit the level."""
    return pick(draws, [f for f in functions(slice_) if level - 2 <= f["difficulty"] <= level + 1])


def with_further(
    draws: IntegerDraws, slice_: Slice, level: int, offers: Sequence[OfferedFunction], count: int
) -> list[OfferedFunction]:
    """Return functions on offer and `count` further ones, of which no two fit the same request."""
    offers, most, topic = list(offers), len(offers) + count, offers[0].function["topic"]
    while len(offers) < most:
        near = level > 2 and draws.below(2)
        free = [
            f
            for f in functions(slice_)
            if (f["topic"] == topic) == bool(near) and not any(alike(f, x.function) for x in offers)
        ]
        if free:
            offers.append(offer_function(draws, pick(draws, free), level))
    return offers


def shuffled(draws: IntegerDraws, offers: Sequence[OfferedFunction]) -> tuple[Json, ...]:
    """Return the schemas of functions on offer in random order."""
    tools = [offer.tool for offer in offers]
    return tuple(tools.pop(draws.below(len(tools))) for _ in range(len(tools)))


def offer_function(draws: IntegerDraws, function: Json, level: int) -> OfferedFunction:
    """Return a function as it is offered: names in a random spelling, some optional arguments."""
    arguments, spelling = arguments_of(function["topic"]), draws.below(20)
    optional = list(function["optional"])
    count = draws.below(level + 1)
    while len(optional) > count:
        optional.pop(draws.below(len(optional)))
    names, forms = dict[str, str](), dict[str, str]()
    labels = [*function["required"], *optional]
    for label in [y for x in labels for y in (x, *arguments[x].get("properties", ()))]:
        style = "camel" if spelling in CAMEL else "snake"
        spelled = [_spelled(name, style) for name in arguments[label]["names"]]
        names[label] = pick(draws, [name for name in spelled if name not in names.values()])
        forms[label] = form_of(draws, arguments[label])
    properties = {names[x]: _property(draws, arguments, x, names, forms, x in optional) for x in labels}
    required = [names[x] for x in function["required"]]
    parameters = {"type": "object", "properties": properties, "required": required}
    description = function["description"]
    if level > 2 and chance(draws, 35):
        description += (
            f" It takes the {listed([arguments[x]['description'] for x in function['required']])}."
        )
    name = _function_name(pick(draws, function["names"]), function["topic"], spelling)
    schema = {"name": name, "description": description, "parameters": parameters}
    tool = {"type": "function", "function": schema}
    return OfferedFunction(function, arguments, names, forms, tool)


def _property(
    draws: IntegerDraws, arguments: Json, label: str, names: Json, forms: Json, optional: bool
) -> Json:
    """Return the schema of an argument, whose description names form, example and default."""
    source = arguments[label]
    schema: Json = {"type": source["type"], "description": _described(draws, source, forms[label])}
    if choices := source.get("choices"):
        schema["enum"] = list(choices)
    if source["type"] == "array":
        schema["items"] = {"type": source["items"]["type"]}
    if source["type"] == "number" and chance(draws, 25):
        schema["format"] = "float"
    if inner := source.get("properties"):
        schema["properties"] = {
            names[x]: _property(draws, arguments, x, names, forms, False) for x in inner
        }
        schema["required"] = [names[x] for x in inner]
    if optional:
        default = False if "true" in source else next(iter(choices or source.get("range", ())), None)
        if default is not None and forms[label] == "decimal":
            default = round(default / 100, 5)
        known_default = default is not None and chance(draws, 60)
        schema["description"] += (
            f" Default is {json.dumps(default)}." if known_default else " Optional."
        )
        if known_default and chance(draws, 40):
            schema["default"] = default
    return schema


def _described(draws: IntegerDraws, source: Json, form: str) -> str:
    """Return the description of an argument as a sentence, at times with an example."""
    text = source["description"]
    article = not text.startswith(("whether", "how", "what", "who", "way")) and chance(draws, 40)
    example = source.get("values") if not form and chance(draws, 15) else None
    hint = f", e.g. {json.dumps(_value_of(pick(draws, example)))}" if example else HINTS.get(form, "")
    return f"The {text}{hint}." if article else f"{text[0].upper()}{text[1:]}{hint}."


def _value_of(entry: str | list[str]) -> str:
    return entry if isinstance(entry, str) else entry[0]


def _spelled(words: str, style: str) -> str:
    """Return words in snake_case, camelCase or PascalCase."""
    parts = re.split(r"[ _]", words)
    if style == "snake":
        return "_".join(parts).lower()
    camel = "".join(part[0].upper() + part[1:] for part in parts)
    return camel if style == "Pascal" else camel[0].lower() + camel[1:]


def _function_name(words: str, topic: str, spelling: int) -> str:
    """Return a function's name: 6 of 20 snake_case, 4 camelCase, 2 PascalCase, 8 dotted."""
    snake, camel = _spelled(words, "snake"), _spelled(words, "camel")
    hyphens = topic.title().replace(" ", "-")
    dotted = [f"{_spelled(topic, 'snake')}.{snake}"] * 3 + [f"{hyphens}.{camel}"]
    names = [snake] * 6 + dotted + [f"{_spelled(topic, 'camel')}.{camel}"] * 2
    names += (
        [f"{_spelled(topic, 'Pascal')}.{camel}"] * 2 + [camel] * 4 + [_spelled(words, "Pascal")] * 2
    )
    return names[spelling]


def draw_mentions(draws: IntegerDraws, offer: OfferedFunction) -> dict[str, Mention]:
    """Return required argument → value, and some of the optional ones on offer."""
    labels = [x for x in offer.names if x in offer.function["required"]]
    labels += [x for x in offer.names if x in offer.function["optional"] and draws.below(2)]
    mentions = dict[str, Mention]()
    for label in labels:
        while True:
            drawn = draw_mention(draws, offer, label, [m.day for m in mentions.values() if m.day])
            if drawn.text not in [m.text for m in mentions.values()] or not offer.plain(label):
                break
        mentions[label] = drawn
    return mentions


def draw_mention(draws: IntegerDraws, offer: OfferedFunction, label: str, days: list[date]) -> Mention:
    """Return a value of an argument; of an object, the values of its properties."""
    source, earlier = offer.arguments[label], days[-1] if days else None
    if "properties" not in source:
        return mention(draws, source, label, offer.forms[label], earlier)
    inner = {
        x: mention(draws, offer.arguments[x], x, offer.forms[x], None) for x in source["properties"]
    }
    phrase = put(pick(draws, source["phrases"]), {x: m.text for x, m in inner.items()})
    return Mention({offer.names[x]: m.value for x, m in inner.items()}, phrase, phrase)
