"""The console's queues: administrators set them up, everybody else reads, a member names their own deputy."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone

from approvals.queue_models import Deputy, Limit, Queue
from tests.console.conftest import Reader
from tests.console.test_refused_forms import Forms

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


@pytest.mark.parametrize("typed", ["50,00", "1,5", "1.000,50", "0,500", "1,0000", "50,000,0", ",500", "1,000,"])
def test_a_comma_makes_no_sum_a_hundredfold(typed: str) -> None:
    """Where it can't be one between thousands, nobody guesses."""
    admin, at = boss(), "/queues/of/legal"
    sent = {
        "limits": {"person": "", "most": typed},
        "proofs": {"minutes": "5", "above": typed},
        "grants": {"times": "3", "days": "3", "sum": typed},
    }
    for act, fields in sent.items():
        answer = admin.post(f"{at}/{act}", **fields, justification=WHY)
        assert answer.status_code == 422 and "write it with a point, such as 1250.50" in answer.content.decode()
        assert f'value="{typed}"' in answer.content.decode(), "it is kept as it was typed"
    assert not Limit.objects.exists() and Queue.objects.get(name="legal").proof is None


@pytest.mark.parametrize(("typed", "kept"), [("50,000.50", "50000.50"), ("1,000", "1000"), ("999999999", "999999999")])
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


def test_a_key_is_spoken_of_only_where_one_has_to_show_who_one_is() -> None:
    admin = boss()
    for asked, is_said in (({"type_amount": "on", "minutes": ""}, False), ({"minutes": "5"}, True)):
        assert admin.post("/queues/of/legal/proofs", above="1000", justification=WHY, **asked).status_code == 302
        page = admin.client.get("/queues/of/legal").content.decode()
        assert "What a yes has to show" in page and ("can't show who uses it" in page) == is_said


def test_who_sees_few_runs_is_told_that_only_those_are_counted(reader: Callable[..., Reader]) -> None:
    admin = boss()
    assert "0 open questions of runs that you see" in admin.read("/queues/of/legal")
    assert "Open, that you see" in admin.read("/queues")
    page = reader("auditor").read("/queues/of/legal")
    assert "0 open questions" in page and "that you see" not in page + reader("operator").read("/queues")


def test_a_member_is_away_and_the_deputy_sees_it(reader: Callable[..., Reader]) -> None:
    ann, bob = reader("approver_legal", name="ann"), reader("operator", name="bob")
    until = (timezone.now() + timedelta(days=3)).strftime("%Y-%m-%dT%H:%M")
    sent = {"deputy": "bob", "queue": "", "starts_at": "", "ends_at": until, "justification": WHY}
    assert ann.post("/queues/deputies", **sent).status_code == 302
    assert "bob</b> for ann" in ann.client.get("/queues").content.decode()
    page = bob.client.get("/queues/of/legal").content.decode()
    assert "End it now" in page and "Set a limit" not in page
    assert "for:" not in bob.client.get("/inbox").content.decode(), "what somebody holds besides roles is no role"
    row = Deputy.objects.get()
    assert reader("auditor").post(f"/queues/deputies/{row.pk}/revocations", justification=WHY).status_code == 403
    assert bob.post(f"/queues/deputies/{row.pk}/revocations", justification=WHY).status_code == 302


def test_a_hostile_name_is_shown_and_does_nothing() -> None:
    admin, name = boss(), "<script>alert(1)</script>\u202e"
    answer = admin.post("/queues/of/legal/limits", person=name, most="1", justification=WHY)
    assert answer.status_code == 422 and "<script>alert" not in answer.content.decode()
