"""The console's policies: everybody reads all rules in one list, administrators set them, what they change is shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from approvals.models import Policy
from ledger.models import ActRecord
from tests.integration.console.conftest import Reader

pytestmark = pytest.mark.django_db
SENT = {
    "name": "dear_things",
    "agent": "buyer",
    "tool": "",
    "condition": "cost > 5",
    "effect": "require",
    "queue": "legal",
    "within_hours": "",
    "rule": "Dear things need the law",
    "justification": "as agreed",
}


def boss() -> Reader:
    return Reader(User.objects.create_superuser("boss"))


def page(reader: Reader, path: str = "/policies") -> str:
    return str(reader.client.get(path).content.decode())


def test_everybody_reads_and_an_administrator_sets(reader: Callable[..., Reader]) -> None:
    admin = boss()
    assert admin.post("/policies/new", **SENT).status_code == 302
    told = page(reader("integrator"))
    assert "Dear things need the law" in told and "cost &gt; 5" in told and "policy-form" not in told
    assert "policy-form" in page(admin)
    assert reader("operator").post("/policies/new", **SENT | {"name": "more"}).status_code == 403
    assert Policy.objects.count() == 1


def test_a_changed_version_shows_what_it_changed_and_who_did_it(reader: Callable[..., Reader]) -> None:
    admin = boss()
    admin.post("/policies/new", **SENT)
    form = page(admin, "/policies/of/dear_things")
    assert 'name="seen" value="1"' in form and 'value="cost &gt; 5"' in form and 'value="168"' in form
    sent = {key: value for key, value in SENT.items() if key != "name"} | {"seen": "1", "condition": "cost > 9"}
    assert admin.post("/policies/of/dear_things/versions", **sent).status_code == 302
    told = page(reader("auditor"), "/policies/of/dear_things")
    assert "<del>cost &gt; 5</del>" in told and "<ins>cost &gt; 9</ins>" in told and "user:boss" in told
    again = admin.post("/policies/of/dear_things/versions", **sent | {"condition": "cost > 11"})
    assert again.status_code == 409 and "at version 2 by now" in again.content.decode()
    assert "cost &gt; 11" in again.content.decode(), "what was typed is kept"
    assert admin.post("/policies/of/dear_things/retirements", justification="not needed").status_code == 302
    assert "Retired" in page(admin) and "dear_things" in page(admin)
    assert [row.action for row in ActRecord.objects.order_by("id")] == ["policy", "policy_change", "policy_retire"]


def test_what_is_refused_is_said_at_its_field_and_kept() -> None:
    admin = boss()
    answer = admin.post("/policies/new", **SENT | {"condition": "cost > much"})
    told = answer.content.decode()
    assert answer.status_code == 422 and "which is no number (character 8)" in told and "cost &gt; much" in told
    answer = admin.post("/policies/new", **SENT | {"agent": "", "condition": ""})
    told = answer.content.decode()
    assert answer.status_code == 422 and "every call of every agent" in told and 'name="confirm"' in told
    assert not Policy.objects.exists()
    assert admin.post("/policies/new", **SENT | {"within_hours": "soon"}).status_code == 422
    assert admin.post("/policies/of/nothing/retirements", justification="none").status_code == 404


def test_hostile_words_are_inert(reader: Callable[..., Reader]) -> None:
    admin = boss()
    said = "<script>alert(1)</script> <b>{{ x }}"
    assert admin.post("/policies/new", **SENT | {"rule": said}).status_code == 302
    for path in ("/policies", "/policies/of/dear_things"):
        told = page(reader("auditor", name=f"a{len(path)}"), path)
        assert "<script>alert(1)" not in told and "&lt;script&gt;alert(1)" in told
