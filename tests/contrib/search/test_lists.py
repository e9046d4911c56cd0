"""Lists: filters are in the address, every run appears once, and a page's cost doesn't grow with their number."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from durableagents.contrib.search import queries
from durableagents.contrib.search.models import Attribute
from runs.management.commands import runs as command
from tests.integration.console.test_lists import sale, sold  # noqa: F401 (fixture)

pytestmark = pytest.mark.django_db


def said(**options: Any) -> list[str]:
    out = StringIO()
    call_command("runs", stdout=out, **options)
    return out.getvalue().splitlines()


@pytest.mark.usefixtures("db")
def test_it_lists_what_fits_in_order_over_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [sold(score=n, urgent=n % 2 == 0) for n in range(9)]
    assert [line.split()[0] for line in said()] == made[::-1]
    assert [line.split()[0] for line in said(limit=2)] == made[:6:-1] and said(limit=0) == []
    monkeypatch.setattr(command, "AT_ONCE", 2)
    monkeypatch.setattr(queries, "FEW", -1)
    monkeypatch.setattr(queries, "MAX_EXAMINED", 2)
    found = said(where="urgent = true and score > 1", sort="-score", agent="sale", state="pending")
    assert [line.split()[0] for line in found] == [made[8], made[6], made[4], made[2]]
    assert found[0].endswith('{"score": 8, "urgent": true}') and "pending" in found[0] and "sale@1.0.0" in found[0]
    assert said(where="score > 100") == [] and said(state="failed") == []


@pytest.mark.usefixtures("db")
def test_hostile_text_does_nothing_to_a_terminal() -> None:
    run = sold(customer="ACME")
    hostile = "\x1b[2Jgone\r\n\u202eevil"  # refused today; an old or a forged row
    Attribute.objects.filter(run_id=run, name="customer").update(word=hostile)
    (line,) = said()
    assert line.isascii() and "\x1b" not in line and "\\u001b[2Jgone" in line
