"""The table of tools."""

from __future__ import annotations

from api.mcp import asking, reading
from api.mcp.tool import Tool
from runs.kinds.controls import CONTROLS

TOOLS = (
    Tool(reading.list_kinds),
    Tool(reading.show_settings),
    Tool(asking.check_run, "submitter", outside=True),
    Tool(asking.start_run, "submitter", reads=False, idempotent=False, outside=True),
    Tool(reading.list_runs),
    Tool(reading.show_run),
    Tool(reading.show_panel),
    Tool(reading.follow_run),
    Tool(reading.read_events),
    Tool(reading.compare_runs),
    *map(asking.tool_of, CONTROLS.values()),
    Tool(reading.list_models),
    Tool(reading.explain_model),
)

BY_NAME = {tool.name: tool for tool in TOOLS}
