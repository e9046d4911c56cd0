"""The body, signature and headers of a message."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.urls import reverse
from standardwebhooks.webhooks import Webhook as Signer

from approvals.models import Approval
from durableagents.contrib.webhooks.models import Message, Webhook
from durableagents.outgoing.encryption import decrypt
from ledger.accounts import PROOF, is_authentic_account
from ledger.errors import NotFound
from ledger.web.seeing.viewers import looking_as, must_see, reads, viewer_of
from runs.journal.reader import end_of
from runs.models import Run

MAX_CONTENT_BYTES = 64 * 1024


def body_of(row: Message) -> str:
    """Return the JSON text of a message, in the form recommended by Standard Webhooks."""
    data: dict[str, Any] = {"sequence": row.pk}
    if row.run_id is not None:
        data["run_id"] = str(row.run_id)
    data |= row.facts if isinstance(row.facts, dict) else {}
    data["url"] = settings.DURABLEAGENTS.base_url + _page(row, data)
    if row.webhook.has_content and row.run_id is not None:
        data["content"] = _content(row, row.run_id)
    timestamp = row.at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({"type": row.event, "timestamp": timestamp, "data": data}, ensure_ascii=False)


def headers_of(row: Message, body: str, now: datetime) -> dict[str, str]:
    """Return the headers of a message, signed with the webhook's secret and, while that is valid, with the old one.

    Raises Undecryptable."""
    now, name = now.astimezone(UTC), str(row)
    signatures = [Signer(decrypt(secret)).sign(name, now, body) for secret in _secrets(row.webhook, now)]
    return {
        "Content-Type": "application/json",
        "webhook-id": name,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


def _secrets(row: Webhook, now: datetime) -> list[str]:
    is_old_valid = row.previous_secret and row.previous_until is not None and row.previous_until > now
    return [row.secret, *([row.previous_secret] if is_old_valid else [])]


def _page(row: Message, data: dict[str, Any]) -> str:
    if row.run_id is None:
        return reverse("webhook", args=[row.webhook_id])
    approval = data.get("approval_id")
    return reverse("approval", args=[approval]) if approval else reverse("run", args=[row.run_id])


def _content(row: Message, run_id: UUID) -> Any:
    """Return the content of the event, limited to what the webhook's creator may currently read.

    Returns None if the creator may read nothing, if there is no content, or if it is too large."""
    person = row.webhook.creator
    found = User.objects.filter(pk=person, is_active=True) if person is not None else User.objects.none()
    creator = found.annotate(proof=PROOF).first()
    if creator is None or not is_authentic_account(creator):
        return None
    with looking_as(viewer_of(creator)):
        try:
            must_see(run_id)
        except NotFound:
            return None
        content = _event_of_message(row, run_id) if reads(run_id) else None
    return content if len(json.dumps(content)) <= MAX_CONTENT_BYTES else None


def _event_of_message(row: Message, run_id: UUID) -> Any:
    if row.event in ("run.completed", "run.failed"):
        run = Run.objects.get(pk=run_id)
        if run.state != row.facts.get("state"):
            return None  # its state has changed meanwhile
        payload = end_of(run_id, run.end_seq, str(run.state))[0].payload
        if row.event == "run.completed":
            return payload
        return {"message": payload.get("message")} if isinstance(payload, dict) else None
    if row.event.startswith("approval."):
        return {"title": Approval.objects.get(pk=row.facts["approval_id"]).title}
    return None
