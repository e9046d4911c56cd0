"""Refused forms and concurrent edits: nothing typed is lost or overwritten unseen."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from durableagents.contrib.notifications.models import Channel
from tests.integration.console.conftest import Reader
from tests.integration.console.test_refused_forms import WHY, refused_and_given_back

pytestmark = pytest.mark.django_db


@pytest.fixture
def boss(db: None) -> Reader:
    return Reader(User.objects.create_superuser("boss"))


def test_a_refused_form_of_a_channel_is_kept(boss: Reader) -> None:
    page = "/notifications/channels"
    made = {"name": "law", "queue": "legal", "form": "mailbox", "address": "law@example.org", "justification": WHY}
    refused_and_given_back(boss, page, f"{page}/new", made | {"address": "nowhere", "kind.opened": "on"})
    assert boss.post(f"{page}/new", **made, **{"kind.opened": "on"}).status_code == 302
    row = Channel.objects.get()
    other = {"address": "nowhere", "justification": WHY, "kind.due_soon": "on"}
    refused_and_given_back(boss, page, f"{page}/{row.pk}/changes", other)
    refused_and_given_back(boss, page, f"{page}/{row.pk}/ends", {"justification": "x" * 5000})
