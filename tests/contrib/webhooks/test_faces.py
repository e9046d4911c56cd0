"""Permissions of pages and API, bad input, and recorded acts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from durableagents.contrib.webhooks import delivering, services
from durableagents.contrib.webhooks.events import EVENTS, MAX_ATTEMPTS, retry_seconds
from durableagents.contrib.webhooks.models import Message, Webhook
from durableagents.identity.auth import issue_key
from ledger.contents import text_in
from ledger.models import ActRecord
from runs.models import IdempotencyRecord
from tests.contrib.webhooks.conftest import WHY, Receiver, webhook
from tests.integration.api.conftest import Api, person
from tests.integration.console.conftest import Reader
from tests.integration.runs.stage import Stage, calling
from tests.roles import NOBODY, SUPERUSER
from tests.world import Toolbox

Begin = Callable[[], Receiver]
ACTS = ("secret", "pause", "resume", "test", "replay", "end")
ROLES = ("integrator", "operator", "approver_finance", "auditor", NOBODY, SUPERUSER)


def caller(role: str = SUPERUSER) -> Api:
    """Return a caller with one role, an administrator, or somebody without any."""
    is_admin = role == SUPERUSER
    user = person(f"{role}-calls", *([] if role in (NOBODY, SUPERUSER) else [role]), is_superuser=is_admin)
    user.is_staff = is_admin
    user.save()
    return Api(issue_key(user, "test"))


def body(receiver: Receiver, **more: Any) -> dict[str, Any]:
    return {"name": "billing", "url": receiver.url, "events": ["run.completed"], "justification": WHY} | more


def test_each_role_may_do_what_is_said(stage: Stage, receivers: Begin) -> None:
    row = webhook(receivers(), "run.completed", name="one")
    for role in ROLES:
        api, reads, sets = caller(role), role in ("operator", "auditor", SUPERUSER), role == SUPERUSER
        for path in ("webhooks", f"webhooks/{row.pk}", f"webhooks/{row.pk}/messages"):
            assert api.get(path).status_code == (200 if reads else 403), (role, path)
        for path in ("webhooks", f"webhooks/{row.pk}", *(f"webhooks/{row.pk}/{act}" for act in ACTS)):
            assert (api.post(path, {}).status_code == 403) is not sets, (role, path)
        if role not in (NOBODY, SUPERUSER):
            reader = Reader(person(f"{role}-reads", role))
            for path in ("/webhooks", f"/webhooks/{row.pk}"):
                assert reader.get(path).status_code == (200 if reads else 403), (role, path)
            for act in ("changes", "secrets", "pauses", "resumptions", "ends", "tests", "replays"):
                assert reader.post(f"/webhooks/{row.pk}/{act}").status_code == 403, (role, act)
            assert reader.post("/webhooks/new").status_code == 403
    row.refresh_from_db()
    assert row.state == "active" and set(ActRecord.objects.values_list("action", flat=True)) == {
        "webhook",
        "webhook_test",
    }


def test_the_api_sets_up_shows_and_replays(stage: Stage, tools: Toolbox, receivers: Begin) -> None:
    api, receiver = caller(), receivers()
    made = api.post("webhooks", body(receiver))
    assert made.status_code == 201, made.content
    at, receiver.secret = f"webhooks/{made.json()['id']}", made.json()["secret"]
    assert receiver.secret.startswith("whsec_") and "secret" not in api.get(at).json()
    run = stage.start(calling(tools, "order"))
    stage.settle(run)
    assert api.post(f"{at}/test").status_code == 202 and api.post(f"{at}/test").status_code == 409
    delivering.deliver()
    assert receiver.types == ["run.completed", "webhook.test"]
    test, message = api.get(f"{at}/messages").json()["results"]
    assert test["event"] == "webhook.test" and message["run_id"] == str(run.pk)
    assert [(each["outcome"], each["status"], each["answer"]) for each in message["log"]] == [("sent", 200, "ok")]
    again = {"message": message["id"], "justification": WHY}
    assert api.post(f"{at}/replay", again).json() == {"messages": 1}
    assert api.post(f"{at}/replay", again).status_code == 409
    delivering.deliver()
    assert receiver.got[2][0] == message["message_id"]
    assert api.post(f"{at}/replay", {"since": "2026-01-01", "justification": WHY}).status_code == 422
    since = {"since": message["at"], "justification": WHY}
    assert api.post(f"{at}/replay", since).json() == {"messages": 2}
    changed = api.post(at, {"events": ["run.failed"], "agent": run.agent, "justification": WHY}).json()
    assert changed["events"] == ["run.failed"] and changed["agent"] == run.agent
    rotated = api.post(f"{at}/secret", {"overlap_hours": 2, "justification": WHY}).json()
    assert rotated["secret"] != receiver.secret and rotated["previous_until"]
    assert api.post(f"{at}/pause", {"justification": WHY}).json()["state"] == "paused"
    assert api.post(f"{at}/test").status_code == 409
    assert api.post(f"{at}/resume", {"justification": WHY}).json()["state"] == "active"
    assert api.post(f"{at}/end", {"justification": WHY}).json()["state"] == "ended"
    assert api.post(f"{at}/resume", {"justification": WHY}).status_code == 409
    recorded = ActRecord.objects.filter(action__startswith="webhook").order_by("pk")
    assert [one.action for one in recorded] == [
        *("webhook", "webhook_test", "webhook_replay", "webhook_replay", "webhook_change", "webhook_secret"),
        *("webhook_pause", "webhook_resume", "webhook_end"),
    ]
    text = json.dumps([[one.before, one.after] for one in recorded])
    assert receiver.url not in text and "whsec_" not in text


def test_bad_input_is_named_and_changes_nothing(stage: Stage, receivers: Begin) -> None:
    api, receiver = caller(), receivers()
    row = webhook(receiver, "run.completed", name="one")
    known = ActRecord.objects.count()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"name": "one"}, "name"),
        ({"name": "\u202eone"}, "name"),
        ({"url": "https://169.254.169.254/"}, "url"),
        ({"url": "x" * 2001}, "url"),
        ({"url": f"https://{'a' * 70}.example.com"}, "url"),
        ({"events": []}, "events"),
        ({"events": ["run.exploded"]}, "events"),
        ({"agent": "buyer@1"}, "agent"),
        ({"agent": "no-such-agent"}, "agent"),
        ({"queue": "nowhere"}, "queue"),
        ({"started_by": "nobody-here"}, "started_by"),
        ({"justification": ""}, "justification"),
        ({"extra": 1}, "extra"),
    ]
    for given, field in cases:
        answer = api.post("webhooks", body(receiver, **{"name": "two"} | given))
        assert answer.status_code == 422, (given, answer.content)
        assert field in {each["field"] for each in answer.json()["errors"]}, (given, answer.content)
    at = f"webhooks/{row.pk}"
    wrong: list[tuple[str, dict[str, Any]]] = [
        (at, {"justification": WHY}),
        (f"{at}/secret", {"overlap_hours": 1000, "justification": WHY}),
        (f"{at}/replay", {"justification": WHY}),
        (f"{at}/replay", {"message": 1, "since": "2026-01-01T00:00:00Z", "justification": WHY}),
        (f"{at}/replay", {"since": "2020-01-01T00:00:00Z", "justification": WHY}),
    ]
    for path, given in wrong:
        assert api.post(path, given).status_code == 422, (path, given)
    assert api.post(f"{at}/replay", {"justification": WHY}).json()["detail"] == "Give either `message` or `since`."
    unsaid = api.post("webhooks", body(receiver, name="two", justification="")).json()
    assert unsaid["detail"].startswith("Creating a webhook needs a reason.")
    assert api.post(f"{at}/replay", {"message": 99, "justification": WHY}).status_code == 404
    assert api.post("webhooks/99/test").status_code == 404 and api.get("webhooks/99").status_code == 404
    assert Webhook.objects.count() == 1 and ActRecord.objects.count() == known and not Message.objects.exists()


def test_the_page_keeps_a_refused_form_and_shows_hostile_answers_as_text(
    stage: Stage, tools: Toolbox, receivers: Begin
) -> None:
    admin, receiver = Reader(person("root", is_superuser=True, is_staff=True)), receivers()
    run = stage.start(calling(tools, "order"))
    form = {"name": "billing", "url": receiver.url, "event.run.completed": "on", "agent": run.agent}
    refused = admin.post("/webhooks/new", **form)
    assert refused.status_code == 422 and b'value="billing"' in refused.content and not Webhook.objects.exists()
    response = admin.post("/webhooks/new", **form, justification=WHY)
    assert response["Cache-Control"] == "no-store"
    receiver.secret = response.content.decode().split('<pre id="secret">')[1].split("</pre>")[0]
    row = Webhook.objects.get()
    cleared = {"agent": "", "event.run.completed": "on", "justification": WHY}
    assert admin.post(f"/webhooks/{row.pk}/changes", **cleared).status_code == 302
    stage.settle(run)
    receiver.answers = [(500, {}, b"<script>alert(1)</script>")]
    delivering.deliver()
    page = admin.get(f"/webhooks/{row.pk}").content.decode()
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page and "it answered 500" in page
    assert 'placeholder="2026-01-31T00:00:00Z"' in page
    since = Message.objects.get().at.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert admin.post(f"/webhooks/{row.pk}/replays", since=since, justification=WHY).status_code == 302


def test_a_repetition_has_no_secret_and_none_is_stored(stage: Stage, receivers: Begin) -> None:
    api, receiver = caller(), receivers()
    paths = [("webhooks", body(receiver)), ("webhooks/{}/secret", {"justification": WHY})]
    webhook_id = 0
    for path, question in paths:
        key = {"Idempotency-Key": path.replace("{}", "n")}
        first, again = (api.post(path.format(webhook_id), question, headers=key) for _ in range(2))
        webhook_id = first.json()["id"]
        assert first.status_code == again.status_code and again["Idempotent-Replayed"] == "true"
        assert first.json()["secret"].startswith("whsec_") and again.json() == first.json() | {"secret": None}
        kept = [text_in(str(each)) for each in IdempotencyRecord.objects.values_list("body", flat=True)]
        assert kept and "whsec_" not in "".join(kept)
    assert Webhook.objects.count() == 1


def test_a_webhook_is_one_of_a_bounded_number(stage: Stage, receivers: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_WEBHOOKS", 1)
    webhook(receivers(), "run.completed")
    with pytest.raises(Exception, match="would exceed the limit of 1 webhooks"):
        webhook(receivers(), *EVENTS)


def test_pauses_grow_to_a_day_and_end_after_three_days() -> None:
    pauses = [retry_seconds(n) for n in range(1, MAX_ATTEMPTS)]
    assert all(pauses) and 60 * 3600 < sum(filter(None, pauses)) < 100 * 3600
    assert retry_seconds(MAX_ATTEMPTS) is None
