"""Addresses that name what nothing can be called."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests.integration.console.conftest import Reader

pytestmark = pytest.mark.django_db
_NAMED = re.compile(r"<str:\w+>")


def routes(found: URLResolver, before: str = "") -> Iterator[str]:
    """Every address that names something by a text."""
    for each in found.url_patterns:
        route = before + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from routes(each, route)
        elif isinstance(each, URLPattern) and _NAMED.search(route):
            yield route


def addresses() -> list[str]:
    filled = [_NAMED.sub("%00", route).replace("<uuid:run_id>", str(uuid4())) for route in routes(get_resolver())]
    return sorted({f"/{re.sub(r'<int:[a-z_]+>', '1', address)}" for address in filled})


def test_what_holds_a_nul_is_nothing_that_there_is(reader: Callable[..., Reader]) -> None:
    found = addresses()
    assert len(found) > 40 and "/queues/of/%00/limits" in found and "/policies/of/%00" in found
    User.objects.get_or_create(username="boss", defaults={"is_superuser": True, "is_staff": True})
    everybody = [reader("operator", "integrator", "auditor", "approver_finance").client, Client()]
    everybody[1].force_login(User.objects.get(username="boss"))
    told = {
        (address, number, how): getattr(client, how)(address, {"justification": "so be it"}).status_code
        for number, client in enumerate(everybody)
        for address in found
        for how in ("get", "post")
    }
    assert {each: status for each, status in told.items() if status >= 500} == {}
    pages = [address for address in found if not address.startswith("/api/")]
    assert {told[address, 0, "get"] for address in pages} <= {404, 405}


def test_nobody_who_is_not_signed_in_learns_that(client: Client) -> None:
    assert client.get("/queues/of/%00").status_code == 302
