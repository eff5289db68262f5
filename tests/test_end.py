"""Whoever ended a server is called as people know them."""

import pytest

from spectrum_spawner.end import End


@pytest.mark.parametrize(
    ("actor", "name"),
    [
        ("user:bob", "bob"),
        ("service:spectrum", "Spectrum"),
        ("service:nightly", "service nightly"),
        # its token is that of all who are in it
        ("server:alice/gpu", "somebody in it"),
        ("hub", "the hub"),
        ("", ""),
    ],
)
def test_an_actor_as_a_page_calls_them(actor: str, name: str) -> None:
    assert End(action="stop", at="2026-01-31T10:00:00Z", by=actor).who == name
