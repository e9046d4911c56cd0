"""Only our own proxies may tell the client of a request."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from durableagents.env import Environment, EnvironmentProblem, load
from durableagents.server.proxies import Proxies, client_behind, parsed, seen_through
from tests.cases import each_case


@pytest.fixture(autouse=True)
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """One proxy on this host, behind a balancer's network."""
    environment = settings.DURABLEAGENTS.model_copy(
        update={"trusted_proxies": ["127.0.0.1", "10.1.0.0/16", "2001:db8:1::/48"]}
    )
    monkeypatch.setattr(settings, "DURABLEAGENTS", environment)


def seen(peer: str | None, *headers: tuple[bytes, bytes], kind: str = "http") -> dict[str, Any]:
    scope = {
        "type": kind,
        "client": peer and (peer, 4711),
        "scheme": "http" if kind == "http" else "ws",
        "headers": list(headers),
    }
    return {**scope, **seen_through(scope)}


@each_case(
    ("forwarded", "client"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("203.0.113.1, 198.51.100.7", "198.51.100.7"),
        ("203.0.113.1, 198.51.100.7, 10.1.2.3", "198.51.100.7"),
        ("127.0.0.1, 198.51.100.7", "198.51.100.7"),
        ("10.1.0.1, 10.1.0.2", "10.1.0.1"),
        ("198.51.100.7:61234", "198.51.100.7"),
        ("[2001:db8:2::1]:443", "2001:db8:2::1"),
        ("2001:db8:2::1", "2001:db8:2::1"),
        ("2001:db8:2::1, 2001:db8:1::9", "2001:db8:2::1"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("198.51.100.7, unknown", "127.0.0.1"),
        ("198.51.100.7, unknown, 10.1.2.3", "10.1.2.3"),
        ("", "127.0.0.1"),
        (",,,", "127.0.0.1"),
        ("<script>", "127.0.0.1"),
        ("fe80::1%eth0", "127.0.0.1"),
        ("1" * 5000, "127.0.0.1"),
        ("10.1.0.1," * 5000, "127.0.0.1"),
    ],
)
def test_the_client_is_the_rightmost_that_is_no_proxy_of_ours(forwarded: str, client: str) -> None:
    assert seen("127.0.0.1", (b"x-forwarded-for", forwarded.encode()))["client"][0] == client


def test_several_headers_are_one_list() -> None:
    found = seen("127.0.0.1", (b"x-forwarded-for", b"203.0.113.1"), (b"x-forwarded-for", b"198.51.100.7"))
    assert found["client"][0] == "198.51.100.7"


@each_case("peer", ["203.0.113.66", "10.2.0.1", "2001:db8:2::1"])
def test_what_others_say_is_ignored_and_goes_no_further(peer: str) -> None:
    found = seen(
        peer,
        (b"x-forwarded-for", b"127.0.0.1"),
        (b"x-forwarded-proto", b"https"),
        (b"x-forwarded-host", b"evil"),
        (b"host", b"x"),
    )
    assert found["client"] == (peer, 4711) and found["scheme"] == "http"
    assert found["headers"] == [(b"host", b"x")]


def test_a_proxy_on_a_unix_socket_is_one_of_ours_where_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    forwarded = (b"x-forwarded-for", b"203.0.113.1, 198.51.100.7")
    assert seen(None, forwarded)["client"] == ("198.51.100.7", 0)
    assert seen(None)["client"] is None
    monkeypatch.setattr(
        settings, "DURABLEAGENTS", settings.DURABLEAGENTS.model_copy(update={"trusted_proxies": ["none"]})
    )
    assert seen(None, forwarded)["client"] is None


@each_case(
    ("told", "kind", "scheme"),
    [
        (b"https", "http", "https"),
        (b"https", "websocket", "wss"),
        (b"HTTPS ", "http", "https"),
        (b"http", "http", "http"),
        (b"https, http", "http", "http"),
        (b"http,https", "http", "https"),
        (b"", "http", "http"),
        (b"gopher", "websocket", "ws"),
    ],
)
def test_the_scheme_is_the_nearest_proxys_word(told: bytes, kind: str, scheme: str) -> None:
    assert seen("10.1.2.3", (b"x-forwarded-proto", told), kind=kind)["scheme"] == scheme


@given(st.text(max_size=60), st.sampled_from(["127.0.0.1", "203.0.113.1"]))
def test_any_list_gives_an_address(forwarded: str, peer: str) -> None:
    assert parsed(client_behind(peer, forwarded)) is not None


async def test_everything_behind_sees_the_client() -> None:
    got: list[dict[str, Any]] = []

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        got.append(scope)

    plain = {
        "type": "http",
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "headers": [(b"x-forwarded-for", b"198.51.100.7")],
    }
    await Proxies(app)(plain, None, None)  # type: ignore[arg-type]
    await Proxies(app)({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert got[0]["client"] == ("198.51.100.7", 0) and got[1] == {"type": "lifespan"}


def test_in_production_only_this_host_is_a_proxy_unless_told_otherwise() -> None:
    def networks(**given: str) -> list[str]:
        return [str(each) for each in Environment.model_validate(given).proxy_networks]

    assert networks() == []
    assert networks(DURABLEAGENTS_ENV="production") == ["127.0.0.0/8", "::1/128"]
    assert networks(DURABLEAGENTS_ENV="production", DURABLEAGENTS_TRUSTED_PROXIES="10.0.0.7") == ["10.0.0.7/32"]
    assert networks(DURABLEAGENTS_ENV="production", DURABLEAGENTS_TRUSTED_PROXIES="none") == []


@each_case("text", ["proxy.internal", "10.0.0.0/33", "*", "10.0.0.1 10.0.0.2", "none, 10.0.0.1"])
def test_a_wrong_network_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("DURABLEAGENTS_TRUSTED_PROXIES", text)
    with pytest.raises(EnvironmentProblem, match=r"TRUSTED_PROXIES.*not an address or network"):
        load()
