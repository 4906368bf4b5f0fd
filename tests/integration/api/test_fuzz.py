"""Requests made up from the OpenAPI document: no answer that it does not have, and never a 500."""

from __future__ import annotations

import threading

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from testing.waiting import PATIENCE
from testing.worlds.fake_world import RUN
from tests.integration.api.conftest import Served

#: What takes long or ends what the others look at.
LEFT_OUT = {("GET", "/live"), ("POST", "/runs/{run}/export"), ("GET", "/runs/{run}/layers")}

CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]


@pytest.mark.slow
def test_made_up_requests_are_answered_as_the_document_says(served: Served) -> None:
    """Every operation, with the runs that there are among the made-up names."""

    async def started(scope, receive, send) -> None:
        if scope["type"] == "lifespan":  # begun by the client; a second one would end with the process
            raise NotImplementedError
        await served.client.app(scope, receive, send)

    followers = [thread for thread in threading.enumerate() if thread.name == "hub"]
    schema = schemathesis.openapi.from_asgi("/openapi.json", started)
    head = {"Authorization": f"Bearer {served.tokens['admin']}"}
    first = schema["/runs/check"]["POST"].Case(body={"models": []}, headers=head)
    assert first.call(timeout=PATIENCE).status_code == 422  # the process that checks takes seconds once
    tried = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if (operation.method.upper(), operation.path) in LEFT_OUT:
            continue
        _try(served, operation)
        tried += 1
    assert tried > 30
    assert [thread for thread in threading.enumerate() if thread.name == "hub"] == followers


def _try(served: Served, operation) -> None:
    @settings(
        max_examples=12,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def one(case) -> None:
        if case.path_parameters and "run" in case.path_parameters:
            case.path_parameters["run"] = RUN
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {served.tokens['admin']}"}
        case.call_and_validate(checks=CHECKS)

    one()
