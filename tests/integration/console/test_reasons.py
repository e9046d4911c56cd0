"""Reasons to choose from: set on a queue's page, offered on its cases, with scripts and without."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User

from approvals.models import Approval, Decision
from approvals.queue_models import Queue
from tests.integration.console.conftest import Reader, start
from tests.integration.console.stage import question, settled, working

pytestmark = pytest.mark.django_db(transaction=True)
HOSTILE = "</textarea><script>alert(1)</script> \"quoted\" & 'more'"
SET = {"reasons": f"Budget line is used up.\r\n\r\n  {HOSTILE}  \r\n", "justification": "as agreed"}


@pytest.fixture
def boss(db: None) -> Reader:
    return Reader(User.objects.create_superuser("boss"))


@pytest.fixture
def asked() -> Approval:
    run = start()
    with working():
        settled(run, "waiting_human")
    return question(run)


def field(page: str) -> str:
    found = re.search(r"<textarea[^>]*justification[^>]*>([^<]*)</textarea>", page)
    assert found is not None
    return found.group(1)


def test_reasons_are_set_one_in_each_line_and_shown_to_everybody(boss: Reader, finance: Reader) -> None:
    assert "None are offered" in finance.read("/queues/of/finance_po")
    assert boss.post("/queues/of/finance_po/reasons", **SET).status_code == 302
    assert Queue.objects.get(name="finance_po").reasons == ["Budget line is used up.", HOSTILE]
    page = finance.get("/queues/of/finance_po").content.decode()
    assert "<script>alert" not in page and "Budget line is used up." in page and "reasons-form" not in page
    form = boss.get("/queues/of/finance_po").content.decode()
    assert "Budget line is used up.\n&lt;/textarea&gt;" in form, "the form has what is set"
    emptied = boss.post("/queues/of/finance_po/reasons", reasons=" \r\n ", justification="no more")
    assert emptied.status_code == 302 and Queue.objects.get(name="finance_po").reasons is None


def test_they_are_offered_on_the_case_and_one_that_is_chosen_may_be_changed(
    boss: Reader, finance: Reader, asked: Approval
) -> None:
    assert "data-reason" not in finance.get(f"/inbox/{asked.id}").content.decode()
    boss.post("/queues/of/finance_po/reasons", **SET)
    page = finance.get(f"/inbox/{asked.id}").content.decode()
    assert page.count("data-reason=") == 2 and "<script>alert" not in page and field(page) == ""
    chosen = finance.get(f"/inbox/{asked.id}", reason="1").content.decode()
    assert field(chosen) == "Budget line is used up."
    hostile = finance.get(f"/inbox/{asked.id}", reason="2").content.decode()
    assert "<script>alert" not in hostile and field(hostile).startswith("&lt;/textarea&gt;")
    for number in ("0", "3", "-1", "x", "1" * 400, "²", "01", "\x00", "</textarea>"):
        assert field(finance.get(f"/inbox/{asked.id}", reason=number).content.decode()) == "", number
    form = {"verdict": "reject", "plan_hash": asked.plan_hash, "justification": "Budget line is used up. Ask in May."}
    assert finance.post(f"/approvals/{asked.id}/decision", **form).status_code == 302
    assert Decision.objects.get().justification == "Budget line is used up. Ask in May."
    assert "data-reason" not in finance.get(f"/inbox/{asked.id}").content.decode()
