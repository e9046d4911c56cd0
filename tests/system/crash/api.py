"""The installation as a patient API client and the sandbox's oracle see it. Imports no app code."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from tests.system.crash.forked import AGAIN, ON_RECORD

ANOTHER = " two"  # after a role: its second person
ENDED = ("completed", "failed", "cancelled")
PATIENCE_SECONDS = 60.0


class Api:
    def __init__(self, demo: Mapping[str, Any], *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._keys: dict[str, str] = demo["api_keys"]
        self._http = httpx.Client(base_url=demo["base_url"], timeout=10, trust_env=False)
        self._sandbox = httpx.Client(base_url=demo["sandbox_url"], timeout=10, trust_env=False)
        self._patience_seconds = patience_seconds

    def close(self) -> None:
        self._http.close()
        self._sandbox.close()

    # --- the API ------------------------------------------------------------------------------------------------------

    def start(self, agent: str, given: Any, budget: Mapping[str, Any] | None = None, key: str = "") -> str:
        """Start a run, queued behind those of its key if any; return its id."""
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        body = {"agent": agent, "input": given, "budget": budget or None}
        if key:
            body |= {"business_key": key, "on_conflict": "queue"}
        answer = self._ask("integrator", "POST", "/runs", json=body, headers=headers)
        return str(_good(answer)["id"])

    def schedule(self, agent: str, given: Any) -> str:
        """Set a yearly schedule; return its id."""
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        body = {"name": "crash", "agent": agent, "input": given, "cron": "@yearly", "missed": "once"}
        return str(_good(self._ask("operator", "POST", "/schedules", json=body, headers=headers))["id"])

    def scheduled(self, schedule_id: str) -> dict[str, Any]:
        return _good(self._ask("auditor", "GET", f"/schedules/{schedule_id}"))

    def found(self, q: str) -> list[dict[str, Any]]:
        return list(self._all(f"/runs?q={q}"))

    def run(self, run_id: str) -> dict[str, Any]:
        """Return the run, or an empty mapping if the API doesn't know it."""
        answer = self._ask("auditor", "GET", f"/runs/{run_id}")
        return {} if answer.status_code == 404 else _good(answer)

    def events(self, run_id: str) -> list[dict[str, Any]]:
        return list(self._all(f"/runs/{run_id}/events"))

    def ledger(self, run_id: str) -> list[dict[str, Any]]:
        return list(self._all(f"/runs/{run_id}/ledger"))

    def approvals(self, run_id: str = "", *, state: str = "") -> list[dict[str, Any]]:
        wanted = {"run_id": run_id, "state": state}
        return list(self._all("/approvals?" + "&".join(f"{name}={value}" for name, value in wanted.items() if value)))

    def fleet(self) -> list[dict[str, Any]]:
        return list(self._all("/fleet"))

    def decide(self, approval: Mapping[str, Any], verdict: str = "approve") -> bool:
        """Decide as the queue's role, as a second person where needed. Return False if it was decided already."""
        role = {"finance_po": "approver_finance", "legal": "approver_legal"}[approval["queue"]]
        body = {"verdict": verdict, "plan_hash": approval["plan_hash"], "justification": "The test says so."}
        answer = self._ask(role, "POST", f"/approvals/{approval['id']}/decision", json=body)
        if answer.status_code == 409 and answer.json()["code"] == "already-voted":
            answer = self._ask(f"{role}{ANOTHER}", "POST", f"/approvals/{approval['id']}/decision", json=body)
        return answer.status_code != 409 and bool(_good(answer))

    def reconcile(
        self, run_id: str, verdict: str, receipt: Any = None, *, wait_id: str | None = None
    ) -> httpx.Response:
        """Settle an unknown outcome; return the raw response, which may be a refusal."""
        body = {"verdict": verdict, "receipt": receipt, "justification": "The oracle says so.", "wait_id": wait_id}
        return self._ask("operator", "POST", f"/runs/{run_id}/reconcile", json=body)

    def tell(self, run_id: str, wait: Mapping[str, Any]) -> None:
        """Send the signal or answer that a run waits for; it may have arrived, or the run may have ended."""
        if wait["kind"] == "signal":
            name = wait["detail"]["name"]
            body = {"payload": "told", "id": name}
            answer = self._ask("integrator", "POST", f"/runs/{run_id}/signals/{name}", json=body)
            if answer.status_code == 404:  # an operator began it, such as a fork
                self._ask("operator", "POST", f"/runs/{run_id}/signals/{name}", json=body)
        else:
            choices = wait["detail"].get("schema", {}).get("properties", {}).get("decision", {}).get("enum", ())
            # A fork takes recorded results over half of the times it can, and repeats the rest.
            is_taken = ON_RECORD in choices and uuid.UUID(wait["id"]).int % 2
            fields = {"decision": ON_RECORD if is_taken else AGAIN} if AGAIN in choices else {"id": "told"}
            answer = wait["detail"]["prefilled"] or fields
            self._ask("operator", "POST", f"/runs/{run_id}/answers/{wait['id']}", json={"answer": answer})

    def set_budget(self, run_id: str, budget: Mapping[str, Any]) -> httpx.Response:
        """Raise the run's budget; return the raw response, which may be a refusal."""
        body = {"budget": budget, "justification": "The test says so."}
        return self._ask("operator", "POST", f"/runs/{run_id}/budget", json=body)

    def steer(self, run_id: str, action: str) -> httpx.Response:
        return self._ask("operator", "POST", f"/runs/{run_id}/{action}", json={"justification": "The test says so."})

    def visits(self, run_id: str) -> list[int]:
        points = _good(self._ask("operator", "GET", f"/runs/{run_id}/fork"))["points"]
        return [point["visit"] for point in points if not point["problem"]]

    def fork(self, run_id: str, visit: int) -> httpx.Response:
        """Fork it once; return the raw response, which may be a refusal."""
        headers, body = {"Idempotency-Key": str(uuid.uuid4())}, {"visit": visit, "justification": "The test says so."}
        return self._ask("operator", "POST", f"/runs/{run_id}/fork", json=body, headers=headers)

    def migrate(self, agent: str, run_id: str, of: str, to: str) -> dict[str, Any]:
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        body = {
            "from_version": of,
            "to_version": to,
            "nodes": {"work": "work"},
            "runs": [run_id],
            "justification": "The test says so.",
        }
        answer = _good(self._ask("operator", "POST", f"/agents/{agent}/migrations", json=body, headers=headers))
        (found,) = answer["results"]
        return dict(found)

    def is_ready(self) -> bool:
        try:
            return self._http.get("/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    # --- the sandbox --------------------------------------------------------------------------------------------------

    def effects(self, run_id: str = "") -> list[dict[str, Any]]:
        query = {"run_id": run_id} if run_id else {}
        rows: list[dict[str, Any]] = self._patiently(lambda: self._sandbox.get("/effects", params=query)).json()
        return rows

    def faults(self, **entry: Any) -> None:
        self._patiently(lambda: self._sandbox.post("/faults", json=entry)).raise_for_status()

    def no_faults(self) -> None:
        self._patiently(lambda: self._sandbox.delete("/faults")).raise_for_status()

    # --- asking -------------------------------------------------------------------------------------------------------

    def _all(self, path: str) -> Iterator[dict[str, Any]]:
        page = _good(self._ask("auditor", "GET", f"{path}{'&' if '?' in path else '?'}limit=1000".replace("?&", "?")))
        while True:
            yield from page["results"]
            if page["next"] is None:
                return
            url = httpx.URL(page["next"]).raw_path.decode().removeprefix("/api/v1")
            page = _good(self._ask("auditor", "GET", url))

    def _ask(self, role: str, method: str, path: str, **request: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._keys[role]}", **request.pop("headers", {})}
        return self._patiently(lambda: self._http.request(method, f"/api/v1{path}", headers=headers, **request))

    def _patiently(self, ask: Any) -> httpx.Response:
        deadline = time.monotonic() + self._patience_seconds
        while True:
            try:
                answer: httpx.Response = ask()
                if answer.status_code != 503:
                    return answer
                trouble = f"503: {answer.text[:200]}"
            except httpx.TransportError as error:
                trouble = f"{type(error).__name__}: {error}"
            if time.monotonic() > deadline:
                raise AssertionError(f"no answer within {self._patience_seconds:g} s: {trouble}")
            time.sleep(0.1)


def _good(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code < 300, f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text}"
    found: dict[str, Any] = answer.json()
    return found
