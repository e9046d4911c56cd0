"""The console's queues: administrators set them up, everybody else reads, a member names their own deputy."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest
from django.contrib.auth.models import Group, User

from approvals.queue_models import Limit, Queue
from tests.cases import each_case
from tests.integration.console.conftest import Reader
from tests.integration.console.test_refused_forms import Forms

pytestmark = pytest.mark.django_db
WHY = "as agreed"


def boss() -> Reader:
    return Reader(User.objects.create_superuser("boss"))


def test_everybody_reads_and_an_administrator_sets_up(reader: Callable[..., Reader]) -> None:
    Group.objects.create(name="approver_refunds")
    sent = {"name": "refunds", "title": "Refunds", "role": "approver_refunds", "justification": WHY}
    assert boss().post("/queues/new", **sent).status_code == 302
    page = reader("auditor").client.get("/queues").content.decode()
    assert "Refunds" in page and "queue-form" not in page
    assert "out-title" not in page and "away-title" not in page, "an auditor decides nothing, so nobody stands in"
    assert "away-title" in reader("operator").client.get("/queues").content.decode()
    assert "queue-form" in Reader(User.objects.get(username="boss")).client.get("/queues").content.decode()
    assert reader("operator").post("/queues/new", **sent | {"name": "more"}).status_code == 403
    assert not Queue.objects.filter(name="more").exists()


def test_what_is_refused_is_said_and_kept(reader: Callable[..., Reader]) -> None:
    answer = boss().post("/queues/new", name="Legal", title="My title", role="operator", justification=WHY)
    page = answer.content.decode()
    assert answer.status_code == 422 and "is that of the queue legal" in page and "My title" in page


def test_a_limit_is_set_and_lifted_on_the_queues_page() -> None:
    admin = boss()
    for most, kept in (("50,000", 50000), ("", None)):
        assert admin.post("/queues/of/legal/limits", person="", most=most, justification=WHY).status_code == 302
        assert Limit.objects.get(ended_at=None).most == kept
    for wrong in ("NaN", "-5", "much"):
        assert admin.post("/queues/of/legal/limits", person="", most=wrong, justification=WHY).status_code == 422
    assert admin.post("/queues/of/legal/lifts", person="", justification=WHY).status_code == 302
    assert not Limit.objects.filter(ended_at=None).exists()


@each_case(("typed", "kept"), [("50,000.50", "50000.50"), ("1,000", "1000"), ("999999999", "999999999")])
def test_a_sum_comes_back_from_the_page_as_it_was_sent(typed: str, kept: str) -> None:
    admin, page = boss(), "/queues/of/legal"
    sent = {
        f"{page}/proofs": {"minutes": "5", "above": typed},
        f"{page}/grants": {"times": "3", "days": "3", "sum": typed},
    }
    for at, fields in sent.items():
        form = Forms(admin.get(page)).sent[at]
        assert admin.post(at, **form | fields | {"justification": WHY}).status_code == 302
        again = Forms(admin.get(page)).sent[at] | {"justification": WHY}
        assert kept in again.values()
        assert admin.post(at, **again).status_code == 422, "nothing is changed by it"
    queue = Queue.objects.get(name="legal")
    assert queue.proof is not None and queue.again is not None
    assert [Decimal(queue.proof["above"]), Decimal(queue.again["most"])] == [Decimal(kept)] * 2


def test_a_hostile_name_is_shown_and_does_nothing() -> None:
    admin, name = boss(), "<script>alert(1)</script>\u202e"
    answer = admin.post("/queues/of/legal/limits", person=name, most="1", justification=WHY)
    assert answer.status_code == 422 and "<script>alert" not in answer.content.decode()
