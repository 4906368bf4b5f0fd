"""Schemas of the OpenAPI document, which the dashboard's types are generated from.

`python -m api.openapi_document FILE` writes them without a server: `npm run types` in dashboard/ does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from agent_forge.api.app import create
from agent_forge.api.options import Options
from agent_forge.api.schemas.runs import Json
from agent_forge.runs.home import Home

#: Keywords that no type depends on. Without them a better sentence in a docstring changes no type.
PROSE = frozenset({"title", "description", "examples"})


def document() -> Json:
    """Return the document of `/openapi.json` without its paths and its prose."""
    whole = create(Home(Path()), Options(())).openapi()
    schemas = whole["components"]["schemas"]
    return {
        "openapi": whole["openapi"],
        "info": {"title": whole["info"]["title"], "version": "0"},
        "paths": {},
        "components": {"schemas": {name: shape(schemas[name]) for name in sorted(schemas)}},
    }


def shape(schema: object) -> Any:
    """Return a JSON Schema without its prose; a property may be called `title`."""
    if isinstance(schema, list):
        return [shape(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    skeleton = {key: shape(part) for key, part in schema.items() if key not in PROSE}
    if "properties" in schema:
        skeleton["properties"] = {name: shape(part) for name, part in schema["properties"].items()}
    return skeleton


def text() -> str:
    """Return the document as JSON text, as it is committed."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), "utf-8")
