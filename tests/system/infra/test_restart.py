"""Web and workers restart under load: no request is refused, every run completes, each effect happens once."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import CHECKOUT
from tests.system.infra.installation import Installation, assert_refused
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(600)


class Load:
    """A steady stream of requests on new and kept connections, with their results."""

    def __init__(self, site: Installation) -> None:
        self.base = f"http://127.0.0.1:{site.port}"
        keys = site.demo()["api_keys"]
        self.operator = {"Authorization": f"Bearer {keys['operator']}"}
        self.integrator = {"Authorization": f"Bearer {keys['integrator']}"}
        self.seen: Counter[str] = Counter()
        self.started: list[str] = []
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=turn, args=(kept,)) for turn in (self._read, self._start) for kept in (True, False)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)

    def _read(self, is_kept: bool) -> None:
        with httpx.Client(base_url=self.base, headers=self.operator, timeout=30) as kept:
            while not self._is_over.is_set():
                self._note(kept if is_kept else None, "GET", "/api/v1/runs?limit=5", self.operator)

    def _start(self, is_kept: bool) -> None:
        body = {"agent": "fleet-counter", "input": {"steps": 5}}
        with httpx.Client(base_url=self.base, headers=self.integrator, timeout=30) as kept:
            while not self._is_over.wait(0.2):
                answer = self._note(kept if is_kept else None, "POST", "/api/v1/runs", self.integrator, body)
                if answer is not None and answer.status_code == 201:
                    self.started.append(answer.json()["id"])

    def _note(
        self, kept: httpx.Client | None, method: str, path: str, headers: dict[str, str], body: Any = None
    ) -> httpx.Response | None:
        try:
            if kept is not None:
                answer = kept.request(method, path, json=body)
            else:
                answer = httpx.request(method, self.base + path, json=body, headers=headers, timeout=30)
        except httpx.TransportError as error:
            self.seen[f"{type(error).__name__}: {error}"] += 1
            return None
        self.seen[str(answer.status_code)] += 1
        return answer


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    class Own(Installation):
        def environment(self, **extra: str) -> dict[str, str]:
            own = {
                "DURABLEAGENTS_AGENTS": "tests.system.fleet.agents",
                "PYTHONPATH": str(CHECKOUT),
                "DURABLEAGENTS_WORKERS": "2",
            }
            return super().environment(**own, **{"COUNTER_FILE": str(self.data.parent / "effects")} | extra)

    with Own(tmp_path_factory.mktemp("restart") / "data") as found:
        yield found.up_and_ready()


def parts(site: Installation) -> dict[str, int]:
    return {name: found.pid for name in ("web", "supervisor", "sandbox", "postgres") if (found := site.part(name))}


def workers(load: Load) -> set[int]:
    rows = httpx.get(f"{load.base}/api/v1/fleet", headers=load.operator, timeout=10).json()["results"]
    return {row["pid"] for row in rows if row["kind"] == "worker"}


def test_a_rolling_restart_under_load_refuses_nobody_and_loses_nothing(site: Installation, tmp_path: Path) -> None:
    with Load(site) as load:
        before, old = parts(site), eventually(lambda: len(found := workers(load)) == 2 and found, "two workers")
        closed = threading.Thread(target=lambda: codes.append(asyncio.run(close_code(site, load))))
        codes: list[int] = []
        closed.start()
        eventually(lambda: len(load.started) > 5, "runs under way")
        done = site.run_to_its_end("--restart")
        assert done.returncode == 0, done.stderr + site_log(site)
        eventually(lambda: len(found := workers(load)) == 2 and not found & old, "other workers")
        after = len(load.started)
        eventually(lambda: len(load.started) > after + 5, "runs after it")
        closed.join(30)
    now = parts(site)
    assert now["web"] != before["web"]
    assert {name: now[name] for name in now if name != "web"} == {
        name: before[name] for name in before if name != "web"
    }
    assert set(load.seen) == {"200", "201"}, load.seen
    assert codes == [1012], "pages are told to connect again"

    def unfinished() -> list[str]:
        answers = (
            httpx.get(f"{load.base}/api/v1/runs/{run}", headers=load.operator, timeout=10).json()
            for run in load.started
        )
        return [run["id"] for run in answers if run["state"] != "completed"]

    eventually(lambda: not unfinished(), "the end of every run", 60)
    effects = Counter((site.data.parent / "effects").read_text().split())
    assert len(effects) == 5 * len(load.started)
    assert set(effects.values()) == {1}, "each effect once"
    site.remember()


async def close_code(site: Installation, load: Load) -> int:
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed

    cookie = sign_in(load.base, site.demo())
    async with connect(
        f"ws://127.0.0.1:{site.port}/ws/live", origin=load.base, additional_headers={"Cookie": cookie}
    ) as socket:
        try:
            while True:
                await socket.recv()
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else 0


def sign_in(base: str, demo: dict[str, Any]) -> str:
    with httpx.Client(base_url=base, timeout=30) as client:
        token = next(value for name, value in client.get("/login").cookies.items() if "csrf" in name)
        name = next(user["username"] for user in demo["users"] if "operator" in user["roles"])
        answer = client.post(
            "/login/demo", data={"username": name, "csrfmiddlewaretoken": token}, headers={"Referer": base}
        )
        assert answer.status_code == 302, answer.text
        return "; ".join(f"{name}={value}" for name, value in client.cookies.items())


def site_log(site: Installation) -> str:
    return "".join(
        f"\n--- {name}\n" + (site.data / "logs" / f"{name}.log").read_text()[-3000:] for name in ("web", "supervisor")
    )


def test_new_code_that_does_not_start_leaves_the_old_serving(site: Installation) -> None:
    before, status = parts(site), site.data / "up.restart"
    broken = site.data.parent / "refuse"
    broken.touch()
    try:
        done = site.run_to_its_end("--restart", COUNTER_FILE="/nowhere/effects")
    finally:
        broken.unlink()
    assert_refused(done, "the restart failed")
    assert status.read_text().startswith("failed: ")
    assert parts(site) == before and site.is_ready()


def test_without_an_up_there_is_nothing_to_restart(tmp_path: Path) -> None:
    site = Installation(tmp_path / "nowhere")
    assert_refused(site.run_to_its_end("--restart"), "nothing is running")
