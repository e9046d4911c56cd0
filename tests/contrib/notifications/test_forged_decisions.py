"""Forged rows of decisions, queues and records: none counts, and verification names each."""

from __future__ import annotations

import pytest

from approvals.models import Approval
from durableagents.contrib.notifications import channels, texts
from durableagents.contrib.notifications.addressing import receives
from durableagents.contrib.notifications.channels import ChannelBody
from durableagents.contrib.notifications.models import Notice
from durableagents.contrib.notifications.recipients import read_subject
from tests.integration.approvals.setup import WHY, asked, boss
from tests.integration.runs.stage import Stage
from tests.tampering import run_sql
from tests.world import Toolbox

pytestmark = [pytest.mark.django_db, pytest.mark.every(3)]


@pytest.fixture
def case(stage: Stage, tools: Toolbox) -> Approval:
    return asked(stage, tools)


def test_where_a_question_is_said_to_have_gone_is_told_nothing(case: Approval) -> None:
    """Otherwise its title and sum would appear in another queue's chat."""
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
    run_sql("UPDATE approvals_approval SET escalated_to = '{legal}'")
    subject = read_subject(notice)
    assert subject.queues == ["finance_po"] and not receives(chat, subject)
    assert "legal" not in str(texts.text_of(subject))
