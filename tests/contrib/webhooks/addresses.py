"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from typing import Any

from durableagents.contrib.webhooks import services as webhooks
from durableagents.contrib.webhooks.models import Webhook
from durableagents.contrib.webhooks.services import WebhookBody
from ledger.actors import Actor
from tests.roles import ADMINS, OPERATE, SUPERUSER

API = [
    (
        "POST",
        ADMINS,
        """
        api-webhooks api-webhook api-webhook-secret api-webhook-pause api-webhook-resume api-webhook-end
        api-webhook-test api-webhook-replay
        """,
    ),
    ("GET", OPERATE | {"auditor", SUPERUSER}, "api-webhooks api-webhook api-webhook-messages"),
]
READ = [
    ({"operator", "auditor"}, "webhooks webhook"),
]
ACT = [
    (
        set(),
        """
        new_webhook webhook_changes webhook_secrets webhook_pauses webhook_resumptions webhook_ends
        webhook_tests webhook_replays
        """,
    ),
]


def sample_webhook() -> list[Any]:
    found = Webhook.objects.first()
    told = WebhookBody(name="one", url="https://1.1.1.1/", events=["run.failed"], justification="ok")
    return [(found or webhooks.create(told, by=Actor("os", "root", auth="shell"))[0]).pk]


SAMPLES = {"webhook_id": sample_webhook}
