"""The page of halts, and what every page says while anything is halted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledger.models import ActRecord
from runs.models import Halt
from tests.integration.console.conftest import Reader

pytestmark = pytest.mark.django_db
WHY = "the other side answers nonsense"


def test_an_operator_halts_lifts_in_stages_and_lifts(operator: Reader) -> None:
    assert "Nothing is halted" in operator.get("/halts").content.decode()
    assert operator.post("/halts/new", kind="halt", scope="tool", key="charge", justification=WHY).status_code == 302
    page = operator.get("/halts").content.decode()
    assert "tool charge" in page and WHY in page
    (it,) = Halt.objects.all()
    sent = {"share": "10", "agents": "", "tags": "beta, vip", "revision": "0", "justification": WHY}
    assert operator.post(f"/halts/{it.halt}/stages", **sent).status_code == 302
    page = operator.get("/halts").content.decode()
    assert "lifted for some" in page and "vip" in page
    answer = operator.post(f"/halts/{it.halt}/liftings", revision="0", justification=WHY)
    page = answer.content.decode()
    assert answer.status_code == 409 and "Not done" in page and "It was changed since you looked, by user:" in page
    # what it lets through stands there as it is, and not as the other form had nothing of it
    assert all(f'value="{value}"' in page for value in ("10", "beta, vip"))
    assert operator.post(f"/halts/{it.halt}/liftings", revision="1", justification=WHY).status_code == 302
    page = operator.get("/halts").content.decode()
    assert "Nothing is halted" in page and "Lifted" in page
    assert ActRecord.objects.filter(subject=f"halt {it.halt}").count() == 3


def test_every_page_of_everybody_says_what_is_halted(operator: Reader, reader: Callable[..., Reader]) -> None:
    said = {"kind": "halt", "scope": "all", "key": "", "confirm": "halt everything"}
    assert operator.post("/halts/new", **said, justification="<b>now</b>").status_code == 302
    for role in ("integrator", "operator", "approver_finance", "auditor"):
        for address in ("/", "/inbox", "/runs", "/agents", "/halts"):
            page = reader(role).get(address).content.decode()
            assert "Halted: the whole installation." in page, (role, address)
            assert "&lt;b&gt;now" in page and "<b>now</b>" not in page
