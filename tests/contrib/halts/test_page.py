"""The page of halts, and the notice above every page."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from durableagents.contrib.halts.models import Halt
from ledger.models import ActRecord
from tests.integration.console.conftest import Reader, operator, reader

pytestmark = pytest.mark.django_db
__all__ = ["operator", "reader"]
WHY = "the other side answers nonsense"


def test_an_operator_halts_lifts_in_stages_and_lifts(operator: Reader) -> None:
    assert "No halts" in operator.get("/halts").content.decode()
    assert operator.post("/halts/new", kind="halt", scope="tool", key="charge", justification=WHY).status_code == 302
    page = operator.get("/halts").content.decode()
    assert "tool charge" in page and WHY in page
    (it,) = Halt.objects.all()
    sent = {"share": "10", "agents": "", "tags": "beta, vip", "revision": "0", "justification": WHY}
    assert operator.post(f"/halts/{it.halt}/stages", **sent).status_code == 302
    page = operator.get("/halts").content.decode()
    assert "partly lifted" in page and "vip" in page
    answer = operator.post(f"/halts/{it.halt}/liftings", revision="0", justification=WHY)
    page = answer.content.decode()
    assert answer.status_code == 409 and "Failed." in page and "The halt was changed by user:" in page
    # the exceptions are shown unchanged, although the other form has no field for them
    assert all(f'value="{value}"' in page for value in ("10", "beta, vip"))
    assert operator.post(f"/halts/{it.halt}/liftings", revision="1", justification=WHY).status_code == 302
    page = operator.get("/halts").content.decode()
    assert "No halts" in page and "Lifted" in page
    assert ActRecord.objects.filter(subject=f"halt {it.halt}").count() == 3


def test_every_page_of_everybody_says_what_is_halted(operator: Reader, reader: Callable[..., Reader]) -> None:
    fields = {"kind": "halt", "scope": "all", "key": "", "confirm": "halt everything"}
    assert operator.post("/halts/new", **fields, justification="<b>now</b>").status_code == 302
    for role in ("integrator", "operator", "approver_finance", "auditor"):
        for address in ("/", "/inbox", "/runs", "/agents", "/halts"):
            page = reader(role).get(address).content.decode()
            assert "Halted: the whole installation." in page, (role, address)
            assert "&lt;b&gt;now" in page and "<b>now</b>" not in page
