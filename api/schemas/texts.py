"""Texts in bodies of requests: no character in them steers a terminal."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from runs.errors import ConfigError
from runs.system import plain_text


def plain(text: str) -> str:
    """Return the text. Raises ValueError for characters that steer a terminal."""
    try:
        return plain_text.check(text, "the text")
    except ConfigError as error:
        raise ValueError(str(error)) from error


def named(text: str) -> str:
    """Return a new name. Raises ValueError for characters that steer a terminal or do not show."""
    try:
        return plain_text.check_name(text, "the name")
    except ConfigError as error:
        raise ValueError(str(error)) from error


def one_line(text: Any) -> Any:
    """Return what people write in several lines as one; anything else as it is."""
    return re.sub(r"[ \t]*(\r\n|[\r\n\t])[ \t]*", " ", text) if isinstance(text, str) else text


def plain_lines(text: str) -> str:
    """Return a text of several lines. Raises ValueError for characters that steer a terminal."""
    plain(re.sub(r"[\t\r\n]", " ", text))
    return text


def plain_values(setting: Any, depth: int = 0) -> Any:
    """Return settings as they are. Raises ValueError where a name or a text in them is not plain."""
    if depth > MOST_DEPTH:
        raise ValueError(f"it is nested deeper than {MOST_DEPTH} levels")
    if isinstance(setting, str):
        plain(setting)
    elif isinstance(setting, dict):
        for key, value in setting.items():
            plain(key)
            plain_values(value, depth + 1)
    elif isinstance(setting, list):
        for value in setting:
            plain_values(value, depth + 1)
    return setting


#: Levels of nested settings.
MOST_DEPTH = 16

Plain = Annotated[str, AfterValidator(plain)]
Text = Annotated[Plain, BeforeValidator(one_line), Field(max_length=2000)]
Lines = Annotated[str, AfterValidator(plain_lines)]
Name = Annotated[Plain, Field(min_length=1, max_length=1000)]
#: A name that is given to something, not one that is looked up.
NewName = Annotated[str, AfterValidator(named)]
Label = Annotated[NewName, Field(max_length=100)]
Config = Annotated[dict[str, Any], AfterValidator(plain_values)]
