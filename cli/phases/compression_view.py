"""Terminal view of a compression: how far it is, the front, what was chosen. No torch."""

from __future__ import annotations

import json
import math
from typing import Any

from cli.kind_views import View
from cli.options import say

#: Parts of all encodings after which a line is printed.
PARTS = 10


class CompressionView(View):
    """Texts of a compression."""

    def announce(self, state: Any, data: dict[str, Any], name: str) -> None:
        """Print the points of the front, the chosen one, and where its file is."""
        for row in data["points"]:
            if row["front"]:
                say(
                    f"{row['point']:14s} {row['bytes']:>14,} bytes  {row['ratio']:6.2f} × smaller  "
                    f"{row['bits_per_byte']:.4f} bits per byte  keeps {row['retention']:.4f}"
                )
        for row in data["points"]:
            if row["failure"] is not None:
                say(f"{row['point']:14s} {row['bytes']:>14,} bytes  failed: {row['failure']}")
        chosen, retention = data["chosen"], data["figures"]["retention"]
        say(
            f"chosen: {chosen['point']}, {chosen['bytes']:,} bytes, "
            f"{data['figures']['ratio']['value']:.2f} times smaller than float32; on the test slice it "
            f"keeps {retention['value']:.4f} "
            f"({retention['low']:.4f} to {retention['high']:.4f})"
        )
        if "folder" in data:
            say(f"file:   {data['folder']}/model.forge  (forge decompress FILE DIR)")
        say(f"model:  {name} is the decoded model wherever one may stand")

    def unit(self, state: Any, row: Any) -> str | None:
        """Return a line for a measurement, and for every tenth of the encodings; None for others."""
        data = json.loads(row.data)
        if row.type in ("encoded", "refused"):
            from phases.compression import recipes

            kind: Any = self.kind
            done, of = _encoded(state), len(recipes.encodings(kind.run(state)))
            step = max(1, math.ceil(of / PARTS))
            return f"encoded {done:,} of {of:,}" if done % step == 0 or done == of else None
        if row.type not in ("observed", "unmeasurable"):
            return None
        name = self.kind.names(state).get(data["recipe_id"])
        if name is None:  # a matrix alone
            return None
        if row.type == "unmeasurable":
            return f"{name}: failed: {data['reason']}"
        values = data["values"].values()
        encoding = state.made.get(data["recipe_id"])
        size = f"{encoding.bytes:,} bytes, " if encoding is not None else ""
        bits = math.fsum(values) / len(values)
        return f"{name}: {size}{bits:.4f} bits per byte on the slice {data['on']}"


def _encoded(state: Any) -> int:
    """Return the number of encodings that are done or refused."""
    count = sum(event.type == "encoded" for event in state.made.values())
    return count + len(state.refused)
