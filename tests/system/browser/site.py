"""A running installation as its users reach it: addresses, the API and the sandbox's record."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.system.infra.installation import Installation
from tests.waiting import eventually

AGENTS = {"DURABLEAGENTS_AGENTS": "tests.system.browser.agents"}
ALONE = AGENTS | {
    "DURABLEAGENTS_DEMO": "0",
    "DURABLEAGENTS_QUEUES": "finance_po=approver_finance,legal=approver_legal",
}
NAMES = {
    "integrator": "Integrator",
    "operator": "Operator",
    "approver_finance": "Finance approver",
    "approver_legal": "Legal approver",
    "auditor": "Auditor",
}


class Site(Installation):
    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def api(self, path: str, role: str = "operator", body: Any = None, **headers: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers |= {"Authorization": f"Bearer {self.demo()['api_keys'][role]}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/api/v1{path}", data, headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def start(self, agent: str, given: dict[str, Any], role: str = "integrator", **more: Any) -> str:
        return str(self.api("/runs", role, {"agent": agent, "input": given, **more})["id"])

    def run(self, run_id: str) -> Any:
        return self.api(f"/runs/{run_id}")

    def reaches(self, run_id: str, *states: str) -> Any:
        def there() -> Any:
            run = self.run(run_id)
            return run if run["state"] in states else None

        return eventually(there, f"run {run_id} {' or '.join(states)}")

    def waiting(self, agent: str, given: dict[str, Any], **more: Any) -> str:
        run_id = self.start(agent, given, **more)
        self.reaches(run_id, "waiting_human")
        return run_id

    def question(self, run_id: str) -> Any:
        return next(a for a in self.api("/approvals?state=open&limit=1000")["results"] if a["run_id"] == run_id)

    def asked(self, agent: str, given: dict[str, Any]) -> Any:
        return self.question(self.waiting(agent, given))

    def decide(self, case: Any, verdict: str, why: str = "Fine.", role: str = "approver_finance") -> None:
        body = {"verdict": verdict, "plan_hash": case["plan_hash"], "justification": why}
        self.api(f"/approvals/{case['id']}/decision", role, body)

    def approve(self, run_id: str) -> None:
        self.reaches(run_id, "waiting_human")
        self.decide(self.question(run_id), "approve")

    def lift_halts(self) -> None:
        for halt in self.api("/halts")["results"]:
            if halt["state"] != "lifted":
                self.api(f"/halts/{halt['id']}/lift", body={"justification": "The story is over."})

    def effects(self, run_id: str) -> list[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.sandbox_port}/effects", timeout=20) as answer:
            rows = json.load(answer)
        return [f"{row['system']}.{row['operation']}" for row in rows if row["run_id"] == run_id and row["executed"]]


@contextmanager
def running(factory: pytest.TempPathFactory, **environment: str) -> Iterator[Site]:
    """Run `manage.py up` with these settings on its own data and ports; it must end cleanly."""
    with Site(factory.mktemp("site") / "data") as site:
        yield site.up_and_ready(**environment)
        site.stop()
        sys.stdout.write(site.output())  # shown with a failed test
