"""The process that opens models and data for the server: `python -m worker.devices.reading_process`.

It draws panels and pictures of reports too: a picture takes a second and a drawing library. A foreign
file may grow, shrink, block or fill the memory while it is read. A file that is truncated under a
memory map kills the process. So the server itself opens no such file. One line of JSON on stdin is an
order, one line on stdout the answer. The process ends when stdin ends, that is with the server.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import queue
import resource
import sys
import threading
from pathlib import Path

from agent_forge.events.envelope import Plain
from agent_forge.runs import errors

#: An order, as JSON.
Order = Plain

log = logging.getLogger("agent_forge.worker.devices.reading_process")

#: The memory that a container may fill (cgroup v2): bytes, or "max" if there is no limit.
CGROUP = Path("/sys/fs/cgroup/memory.max")


def check(order: Order) -> Order:
    """Return a run's plan as JSON; if the order says `open`, also what its models and data are.

    Settings name only models and data that the order has `placed`.
    """
    from agent_forge.runs import kinds
    from agent_forge.runs.kinds.asked import Lookup, PlacedInputs, RunRequest
    from agent_forge.worker.commands import submit as plans

    request = RunRequest(order["kind"], order["config"], order["models"], order["data"])
    plan = plans.plan(request, Lookup(elsewhere=True, placed=PlacedInputs(**order["placed"])))
    event = kinds.of(plan.kind).submitted(run="", owner="", config=plan.config, **plan.fields)
    answer: dict[str, object] = {
        "config": plan.config.model_dump(mode="json"),
        "submitted": event.model_dump(mode="json", exclude={"run", "owner"}),
    }
    if order["open"]:
        _bound_memory()
        facts = plans.check(plan)
        answer |= {
            "warnings": list(facts.warnings),
            "parameters": facts.parameters,
            "items": facts.items,
        }
    return answer


def measure(order: Order) -> dict[str, object]:
    """Return a dict of the path, digest, bytes, parameters and origin of the model at `path`."""
    from agent_forge.worker.commands import model_registry

    return vars(model_registry.measure(Path(order["path"])))


def gguf_types(order: Order) -> dict[str, object]:
    """Return {"types": the GGUF types that the model at the order's `path` can be written as}."""
    from agent_forge.worker.exports import gguf_export

    return {"types": gguf_export.fitting(Path(order["path"]))}


def draw_report(order: Order) -> dict[str, object]:
    """Return {"file": a report's picture, an SVG in base64, or None if the kind draws none}."""
    from agent_forge.runs import kinds

    drawn = kinds.of(order["kind"]).view.picture(order["report"])
    return {"file": drawn and base64.b64encode(drawn).decode()}


def draw(order: Order) -> dict[str, object]:
    """Return {"file": the order's `panel` as an SVG or PNG (its `form`), in base64}."""
    from pydantic import TypeAdapter

    from agent_forge.runs.panels.panels import Panel
    from agent_forge.worker.exports import panel_picture

    panel = TypeAdapter(Panel).validate_python(order["panel"])
    return {"file": base64.b64encode(panel_picture.picture(panel, order["form"])).decode()}


def _bound_memory() -> None:
    """Limit this process to half of the memory: one check must not stop the machine.

    A lower hard limit that the process was started with stays.
    """
    half = _memory() // 2
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = half if hard == resource.RLIM_INFINITY else min(half, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _memory() -> int:
    """Return the bytes of memory of the machine, or of the container if its limit is lower."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = CGROUP.read_text("ascii").strip()
    except OSError:  # no cgroup v2, or no container
        return machine
    return machine if limit == "max" else min(machine, int(limit))


ORDERS = {
    "check": check,
    "measure": measure,
    "gguf_types": gguf_types,
    "draw": draw,
    "draw_report": draw_report,
}


def answered(order: Order) -> dict[str, object]:
    """Carry out an order; return {"answer": …}, or {"error": class name, "detail": text}."""
    try:
        return {"answer": ORDERS[order["order"]](order)}
    except errors.ForgeError as error:
        return {"error": type(error).__name__, "detail": str(error)}
    except MemoryError:
        detail = "It needs more than half of this machine's memory: give less data."
        return {"error": errors.ConfigError.__name__, "detail": detail}
    except Exception as error:  # a defect: the server answers 500, and goes on
        log.exception("an order failed")
        return {"error": "", "detail": f"{type(error).__name__}: {error}"}


def _listen(orders: queue.SimpleQueue[Order]) -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    os._exit(0)


def main() -> None:
    """Answer orders until the server ends. The output of libraries goes to stderr."""
    logging.basicConfig(level=logging.WARNING)
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), name="listener", daemon=True).start()
    while True:
        out.write(json.dumps(answered(orders.get())) + "\n")


if __name__ == "__main__":
    main()
