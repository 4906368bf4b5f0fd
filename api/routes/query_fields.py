"""Fields of a query: those that a route knows."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from api.problems import UNPROCESSABLE, Problem


async def known_fields(request: HTTPConnection) -> None:
    """Raise Problem 422 for a field that the route does not have: a filter with a typing error."""
    names = {param.alias for param in request.scope["route"].dependant.query_params}
    faults = [
        {"field": name, "message": f"there is no such field; known are {', '.join(sorted(names))}."}
        for name in dict.fromkeys(request.query_params)
        if name not in names
    ]
    if faults:
        detail = "; ".join(f"{e['field']}: {e['message']}" for e in faults)
        raise Problem(422, UNPROCESSABLE, detail, errors=faults)
