"""The portal's form arrives, however often either side dies."""

from __future__ import annotations

from collections.abc import Callable

from tests.waiting import eventually

from .harness import Receiver, Sandbox

Make = Callable[..., Receiver]


def request_w9(sandbox: Sandbox, url: str, key: str = "k") -> str:
    wanted = {
        "legal_name": "Baltic Cold Chain OÜ",
        "tax_id": "EE-10020030",
        "contact_email": "ap@baltic.example",
        "callback_url": url,
    }
    answer = sandbox.post("/api/portal/w9-requests", wanted, key)
    assert answer.status_code == 202
    assert answer.json()["status"] == "requested"
    return str(answer.json()["request_id"])


def is_sent(sandbox: Sandbox) -> bool:
    return ">sent<" in sandbox.client.get("/portal").text


def test_the_form_is_posted_after_the_delay(sandbox: Sandbox, receiver: Make) -> None:
    sandbox.fault(system="portal", w9_delay_seconds=0.2)
    portal_user = receiver()

    request_id = request_w9(sandbox, portal_user.url)

    notice = portal_user.next()
    assert notice.keys() == {"request_id", "status", "form"}
    assert (notice["request_id"], notice["status"]) == (request_id, "received")
    assert notice["form"].keys() == {
        "legal_name",
        "tax_id",
        "classification",
        "signed_by",
        "signed_at",
        "document_sha256",
    }
    assert notice["form"]["legal_name"] == "Baltic Cold Chain OÜ"
    # The request is the only row: callbacks are the portal's own work.
    assert [row["operation"] for row in sandbox.effects()] == ["request_w9"]
    eventually(lambda: is_sent(sandbox), "the portal to note the delivery")


def test_a_repeat_asks_the_vendor_once(sandbox: Sandbox, receiver: Make) -> None:
    sandbox.fault(w9_delay_seconds=0)
    portal_user = receiver()
    assert request_w9(sandbox, portal_user.url) == request_w9(sandbox, portal_user.url)

    portal_user.next()
    # A second form would be queued before this one.
    other = request_w9(sandbox, portal_user.url, "other")
    assert portal_user.next()["request_id"] == other


def test_a_callback_is_retried_with_the_same_bytes_across_restarts(sandbox: Sandbox, receiver: Make) -> None:
    sandbox.fault(w9_delay_seconds=0)
    portal_user = receiver(500, 302, 429, 503)
    request_w9(sandbox, portal_user.url)

    attempts = [portal_user.next_bytes() for _ in range(2)]
    sandbox.kill()
    sandbox.start()
    attempts.append(portal_user.next_bytes())
    sandbox.kill()
    sandbox.start()
    attempts += [portal_user.next_bytes() for _ in range(2)]

    assert len(set(attempts)) == 1
    eventually(lambda: is_sent(sandbox), "the portal to note the delivery")


def test_a_kill_before_the_form_is_due_only_delays_it(sandbox: Sandbox, receiver: Make) -> None:
    portal_user = receiver()
    sandbox.fault(w9_delay_seconds=1)
    request_id = request_w9(sandbox, portal_user.url)
    sandbox.kill()

    sandbox.start()

    assert portal_user.next()["request_id"] == request_id
