"""No password of a URL is shown, however it is written."""

from __future__ import annotations

import pytest

from agent_forge.runs.system.redaction import Address


@pytest.mark.parametrize(
    ("url", "shown", "login"),
    [
        ("http://host:8000/v1", "http://host:8000/v1", None),
        ("http://ada:PASS@host:8000/v1", "http://host:8000/v1", ("ada", "PASS")),
        ("http://ada:PA%2FSS@host/v1", "http://host/v1", ("ada", "PA/SS")),
        ("http://ada:PA/SS@host/v1", "http://host/v1", ("ada", "PA/SS")),
        ("http://ada:PA@SS@host/v1", "http://host/v1", ("ada", "PA@SS")),
        ("http://TOKEN@host/v1", "http://host/v1", ("TOKEN", "")),
        ("http://host/v1?key=PASS#PASS", "http://host/v1", None),
        ("ada:PASS@host", "host", ("ada", "PASS")),
        ("file:///mnt/a@b/store", "file:///mnt/a@b/store", None),
        ("http://host:8000/models/a@b", "http://host:8000/models/a@b", None),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1", None),
        ("http://[::1]:8000/v1/a@b", "http://[::1]:8000/v1/a@b", None),
        ("http://host/v1?q=a@b", "http://host/v1", None),
        ("http://ada:PASS@[::1]:8000/v1/a@b", "http://[::1]:8000/v1/a@b", ("ada", "PASS")),
        ("http://ada:PASS@host:80a/p@th", "http://host:80a/p@th", ("ada", "PASS")),
        ("http://ada:PA/SS@host:80/a@b", "http://host:80/a@b", ("ada", "PA/SS")),
    ],
)
def test_an_address_is_shown_without_its_login(url: str, shown: str, login) -> None:
    """An @ in a path is no login's: the request must not go to another host."""
    address = Address(url)
    assert address.shown == shown
    assert address.login == login
    assert address.bare.startswith(shown)
    assert "PASS" not in repr(address)
    assert address.has_login == (login is not None)


@pytest.mark.parametrize(
    "said", ["ada:PA%2FSS@host", "PA%2FSS", "PA/SS", "Basic YWRhOlBBL1NT", "the key k-123", "port 'PA'"]
)
def test_what_others_say_is_masked(said: str) -> None:
    """Servers and libraries repeat what they were given, encoded or not."""
    for url in ("http://ada:PA%2FSS@host/v1", "http://ada:PA/SS@host/v1"):
        told = Address(url).masked(said, "k-123", "")
        assert not any(secret in told for secret in ("PA/SS", "PA%2FSS", "YWRhOlBBL1NT", "k-123"))
    assert "PA" not in told
    assert Address("http://host").masked(said) == said
