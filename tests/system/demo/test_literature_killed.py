"""A review survives a deploy and a kill: paid requests are counted elsewhere, and none was paid for twice."""

from __future__ import annotations

import math
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.demo.provider import Asked, Provider
from tests.system.infra.installation import Installation
from tests.waiting import eventually

DOCUMENTS, AT_ONCE, PACE_SECONDS, REQUEST_SECONDS = 60, 4, 1.0, 0.4
LONG_REQUEST_SECONDS = 4.0
QUESTION = "How do transactions and locks behave when a database connection is lost?"
JUST = 5.0  # seconds in which a sent answer may not be recorded yet, on a busy machine


class Review(Installation):
    provider: Provider

    def environment(self, **extra: str) -> dict[str, str]:
        own = {
            "DURABLEAGENTS_WORKERS": "2",
            "DURABLEAGENTS_MODEL": "openai-chat:neighbour",
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": self.provider.url,
        }
        return super().environment(**own, **extra)

    def api(self, role: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.demo()['api_keys'][role]}"}
        url = f"http://127.0.0.1:{self.port}/api/v1{path}"
        answer = httpx.request("GET" if body is None else "POST", url, json=body, headers=headers, timeout=30)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def paid(self, operation: str, runs: set[str]) -> list[dict[str, Any]]:
        rows = httpx.get(f"{self.demo()['sandbox_url']}/effects", timeout=30).json()
        return [row for row in rows if row["operation"] == operation and row["executed"] and row["run_id"] in runs]

    def kill_a_worker_at_work(self) -> int:
        rows = self.api("operator", "/fleet")["results"]
        busy = [row for row in rows if row["kind"] == "worker" and row["slots_used"]]
        if not busy:
            return 0
        os.kill(pid := int(max(busy, key=lambda row: row["slots_used"])["pid"]), signal.SIGKILL)
        return pid


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Review]:
    with Review(tmp_path / "data") as found:
        found.provider = Provider(REQUEST_SECONDS)
        try:
            yield found.up_and_ready()
        finally:
            found.provider.close()


def test_a_deploy_and_a_kill_in_its_middle_lose_nothing_and_pay_for_nothing_twice(site: Review) -> None:
    given = {"topic": QUESTION, "documents": DOCUMENTS, "at_once": AT_ONCE, "pace_seconds": PACE_SECONDS}
    review = site.api("integrator", "/runs", {"agent": "literature-review", "input": given})["id"]
    wait = eventually(lambda: site.api("operator", f"/runs/{review}")["waiting_for"], "the question about the scope")[0]
    assert wait["kind"] == "input" and wait["detail"]["prefilled"]["documents"] == DOCUMENTS
    agreed = {"answer": wait["detail"]["prefilled"]}
    site.api("operator", f"/runs/{review}/answers/{wait['id']}", agreed)

    eventually(lambda: len(site.provider.asked) > 2 * AT_ONCE, "some of it read")
    site.provider.seconds = LONG_REQUEST_SECONDS  # so that much is left to read however long the deploy takes
    deploy(site)
    site.provider.seconds = REQUEST_SECONDS
    assert len(site.provider.asked) < DOCUMENTS, "the deploy was to be in its middle"
    eventually(site.provider.under_way, "readers at work under the new code")
    before = time.monotonic()
    assert eventually(site.kill_a_worker_at_work, "a worker to kill")
    after = time.monotonic()
    run = eventually(lambda: ended(site, review), "the end of the review", 180)

    assert run["state"] == "completed", run["error"]
    assert run["output"]["documents_read"] == DOCUMENTS and run["output"]["unread"] == []
    children = site.api("operator", f"/runs/{review}/children?limit=1000")["results"]
    assert len(children) == DOCUMENTS and {child["state"] for child in children} == {"completed"}
    each = {review, *(child["id"] for child in children)}
    assert len({child["output"]["document_id"] for child in children}) == DOCUMENTS
    assert Counter(row["run_id"] for row in site.paid("embed", each)) == Counter(child["id"] for child in children)
    assert len(site.paid("publish", each)) == 1
    assert [one for one in each if not site.api("auditor", f"/runs/{one}/verification")["holds"]] == []
    repeated = paid_again(site.provider.asked)
    assert all(began <= after and before <= until for began, until in repeated), (before, after, repeated)
    assert len(repeated) <= AT_ONCE and len(site.provider.asked) == DOCUMENTS + 2 + len(repeated)
    # A request lost with its worker counts, also where it never reached the provider.
    lost = run["usage"]["model_calls"] - (DOCUMENTS + 2)
    assert len(repeated) <= lost <= AT_ONCE


def paid_again(asked: list[Asked]) -> list[tuple[float, float]]:
    """Return for each repeated conversation when its first request was under way."""
    first: dict[str, Asked] = {}
    again = [each for each in asked if first.setdefault(each.conversation, each) is not each]
    lost = [first[each.conversation] for each in again]
    return [(each.began, (each.answered or math.inf) + JUST) for each in lost]


def ended(site: Review, run_id: str) -> Any:
    run = site.api("operator", f"/runs/{run_id}")
    return run if run["state"] in ("completed", "failed", "cancelled") else None


def deploy(site: Review) -> None:
    done = site.run_to_its_end("--restart")
    assert done.returncode == 0, done.stderr
    site.remember()
