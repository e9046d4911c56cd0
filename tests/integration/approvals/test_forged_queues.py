"""Whoever has the application's rights in the database, and not our key, changes queues and where questions went:
nobody sees anything more by it, in no process, and nobody is told anything of another queue's."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User

from approvals.consulting.delegations import delegate
from approvals.models import Approval
from approvals.notices import channels, words
from approvals.notices.addressing import is_for
from approvals.notices.bodies import ChannelBody
from approvals.notices.recipients import case_of
from approvals.outbox.models import Notice
from approvals.queue_models import Queue
from approvals.queues import acts
from approvals.queues.bodies import QueueChangeBody
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.web.roles import is_role
from runs.journal import wait_hooks
from tests.integration.approvals.setup import WHY, asked, away, boss, somebody
from tests.integration.approvals.test_damaged import client_of
from tests.integration.approvals.test_queues import forged
from tests.integration.runs.stage import Stage
from tests.world import Toolbox

pytestmark = pytest.mark.django_db
TO_LEGAL = "UPDATE approvals_queue SET role = 'approver_legal' WHERE name = 'finance_po'"
PUT = (
    "INSERT INTO approvals_queue (name, title, role, state, currency, needs_amount, set_by, made_at, changed_at, code)"
    " VALUES ('zzz', 'z', 'newcomers', 'open', 'USD', false, 'user:boss', now(), now(), '\\x00')"
)


@pytest.fixture
def lena() -> Actor:
    return somebody("lena", "approver_legal")


@pytest.fixture
def ira() -> Actor:
    """An integrator, who sees no run but their own."""
    return somebody("ira", "integrator")


@pytest.fixture
def case(stage: Stage, tools: Toolbox) -> Approval:
    return asked(stage, tools)


def over_api(case: Approval, by: Actor) -> tuple[int, object]:
    answer = client_of(by).get(f"/api/v1/approvals/{case.pk}")
    return answer.status_code, answer.json().get("arguments")


# --- no group becomes a role ------------------------------------------------------------------------------------------


def opened(case: Approval, by: Actor) -> set[str]:
    """What somebody is let in to."""
    paths = ("/runs", f"/runs/{case.run_id}", "/inbox", "/audit", "/api/v1/approvals", f"/api/v1/runs/{case.run_id}")
    return {path for path in paths if client_of(by).get(path).status_code == 200}


def test_a_queue_that_is_put_in_makes_no_group_a_role(case: Approval) -> None:
    eve, admin = somebody("eve", "newcomers"), boss()
    assert opened(case, eve) == set()
    forged(PUT)
    assert opened(case, eve) == set() and not is_role("newcomers")
    assert "zzz" in wait_hooks.queues and wait_hooks.queues["zzz"] == ""
    page = client_of(admin).get("/queues").content.decode()
    assert "zzz" in page and "not genuine" in page
    told = client_of(admin).get("/setup").content.decode()
    assert "Queue zzz" in told and "written past this installation" in told


def test_what_was_a_role_by_a_queue_is_none_once_that_is_removed_or_changed_past_us(case: Approval) -> None:
    """In the very process that has known it as one."""
    eve, now = somebody("eve", "managers"), database_now()
    older = Queue(name="older", title="Older", role="managers", set_by="user:boss", made_at=now, changed_at=now)
    older.seal()
    older.save()
    assert {"/runs", "/audit"} <= opened(case, eve) and is_role("managers")
    forged("UPDATE approvals_queue SET title = 'x' WHERE name = 'older'")
    assert opened(case, eve) == set()
    acts.change("older", QueueChangeBody(title="Older", justification=WHY), by=boss())
    assert {"/runs", "/audit"} <= opened(case, eve)
    acts.remove("older", by=Actor("user", "boss", person=User.objects.get(username="boss").pk), justification=WHY)
    assert opened(case, eve) == set() and not is_role("managers")


def test_the_roles_of_the_settings_are_roles_before_anything_was_read() -> None:
    wait_hooks.queues.forget()
    assert is_role("approver_finance") and is_role("operator") and not is_role("managers") and not is_role("")


# --- nobody reads more ------------------------------------------------------------------------------------------------


def test_whoever_is_put_in_charge_past_us_reads_nothing(case: Approval, lena: Actor, ira: Actor) -> None:
    """Neither they, nor whoever stands in for them; nor whose queue it was, until an administrator sets it anew."""
    finn, admin = somebody("finn", "approver_finance"), boss()
    away(lena, "ira")
    assert over_api(case, lena) == (200, None) and over_api(case, finn)[1] and over_api(case, ira)[0] == 404
    forged(TO_LEGAL)
    assert over_api(case, lena) == (200, None) and over_api(case, ira)[0] == 404 and over_api(case, finn) == (200, None)
    (wait,) = client_of(lena).get(f"/api/v1/runs/{case.run_id}").json()["waiting_for"]
    assert "headline" not in wait["detail"]
    assert str(case.pk) not in client_of(ira).get("/inbox").content.decode()
    acts.change("finance_po", QueueChangeBody(role="approver_finance", justification="set right"), by=admin)
    assert over_api(case, finn)[1] and over_api(case, lena) == (200, None)


@pytest.mark.parametrize("how", ["queue", "place"])
def test_what_gave_nothing_any_more_gives_nothing_again(case: Approval, lena: Actor, ira: Actor, how: str) -> None:
    """A case that was handed over by somebody who lost the role since, and decides elsewhere."""
    lea = somebody("lea", "approver_finance")
    delegate(case.id, to="ira", justification=WHY, by=lea)
    assert over_api(case, ira)[1]
    User.objects.get(pk=lea.person).groups.set([Group.objects.get(name="approver_legal")])
    assert over_api(case, ira)[0] == 404
    forged(TO_LEGAL if how == "queue" else "UPDATE approvals_approval SET escalated_to = '{legal}'")
    assert over_api(case, ira)[0] == 404


def test_where_a_question_is_said_to_have_gone_is_told_nothing(case: Approval) -> None:
    """Else its title and its sum would stand in another queue's chat."""
    admin = boss()
    body = ChannelBody(
        name="legal chat",
        queue="legal",
        form="mailbox",
        address="legal@example.org",
        kinds=["opened"],
        justification=WHY,
    )
    chat = channels.add(body, by=admin)
    notice = Notice.objects.get(kind="opened", approval_id=case.pk)
    forged("UPDATE approvals_approval SET escalated_to = '{legal}'")
    told = case_of(notice)
    assert told.queues == ["finance_po"] and not is_for(chat, told)
    assert "legal" not in str(words.said(told))
