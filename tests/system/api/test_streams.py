"""Long polls, server-sent events and generated clients against a real web process."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from django.contrib.auth.models import Group

from durableagents.identity.auth import digest, issue_key, revoke
from durableagents.models import ApiKey
from ledger.acting import acting
from ledger.actors import Actor
from runs.engine.agents import registry
from tests.integration.api.conftest import Api, person
from tests.integration.api.worker import working
from tests.system.api import agents
from tests.system.api.web import Web, serving
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)
CLIENTS = Path(__file__).parent / "clients"
START = {"agent": "listener@1.0.0", "input": {"word": "?"}}


@pytest.fixture
def web(process_env: dict[str, str]) -> Iterator[Web]:
    env = process_env | {"DURABLEAGENTS_AGENTS": agents.__name__}
    registry.add(agents.agent) if agents.agent.graph_id not in {each.graph_id for each in registry.agents()} else None
    with serving(env) as web:
        yield web


@pytest.fixture
def begun(web: Web, integrator: Api) -> str:
    answer = web.client.post("/api/v1/runs", json=START, headers=integrator.headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def get(web: Web, api: Api, run_id: str, **query: Any) -> httpx.Response:
    return web.client.get(f"/api/v1/runs/{run_id}", params=query, headers=api.headers, timeout=90)


def act(web: Web, api: Api, run_id: str, action: str) -> httpx.Response:
    body = {"justification": "test"}
    return web.client.post(f"/api/v1/runs/{run_id}/{action}", json=body, headers=api.headers)


def test_wait_answers_at_the_next_revision_the_end_or_its_time(
    web: Web, begun: str, operator: Api, integrator: Api
) -> None:
    first = get(web, integrator, begun).json()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(get, web, integrator, begun, wait=30, after=first["revision"])
        time.sleep(1)
        assert not waiting.done()
        began = time.monotonic()
        assert act(web, operator, begun, "pause").json()["state"] == "paused"
        answer = waiting.result()
    assert answer.json()["state"] == "paused" and time.monotonic() - began < 3
    assert answer.headers["ETag"] == f'"{answer.json()["revision"]}"' and "durable-waits-for" not in answer.headers
    # A client that missed it is answered at once; one that knows it waits for its time.
    assert get(web, integrator, begun, wait=30, after=first["revision"]).json()["state"] == "paused"
    began = time.monotonic()
    assert get(web, integrator, begun, wait=1, after=answer.json()["revision"]).json()["state"] == "paused"
    assert 1 <= time.monotonic() - began < 3
    assert act(web, operator, begun, "cancel").json()["state"] == "cancelled"
    began = time.monotonic()
    assert get(web, integrator, begun, wait=60).json()["state"] == "cancelled" and time.monotonic() - began < 2
    for query in ({"wait": "61"}, {"wait": "soon"}, {"wait": "1", "after": "\x00"}, {"wait": "1", "fields": "nope"}):
        refused = get(web, integrator, begun, **query)
        assert refused.status_code == 400 and repr(list(query)[-1]) in refused.json()["detail"], refused.text


def test_a_thousand_waiting_clients_hold_no_thread_and_no_connection(web: Web, begun: str, operator: Api) -> None:
    process = psutil.Process(web.process.pid)
    head = f"GET /api/v1/runs/{begun}?wait=60 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    head += f"Authorization: {operator.headers['Authorization']}\r\n\r\n"

    async def crowd() -> tuple[int, int, list[bytes]]:
        streams = []
        for _ in range(1000):
            reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
            writer.write(head.encode())
            streams.append((reader, writer))
            if len(streams) % 50 == 0:
                await asyncio.sleep(1)  # each is asked once: they don't all come in the same moment
        await asyncio.sleep(2)
        threads, answered = process.num_threads(), sum(bool(reader._buffer) for reader, _ in streams)  # type: ignore[attr-defined]
        assert answered == 0
        for _, writer in streams[:900]:
            writer.close()
        began = time.monotonic()
        assert (await asyncio.to_thread(act, web, operator, begun, "pause")).status_code == 200
        quick = time.monotonic() - began
        assert quick < 10
        return threads, answered, await asyncio.gather(*(reader.readline() for reader, _ in streams[900:]))

    threads, _, lines = asyncio.run(crowd())
    assert threads < 40 and set(lines) == {b"HTTP/1.1 200 OK\r\n"}
    eventually(lambda: len(process.net_connections()) < 200, "their connections are closed")


@contextmanager
def streaming(web: Web, api: Api, path: str, **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
    sent = {**api.headers, "Accept": "text/event-stream", **{k.replace("_", "-"): v for k, v in headers.items()}}
    with web.client.stream("GET", f"/api/v1/runs/{path}", headers=sent, timeout=60) as answer:
        assert answer.status_code == 200, answer.read()
        yield events_in(answer.iter_lines())


def events_in(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    event: dict[str, Any] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line and name:
            event[name] = value
        elif not line:
            if "data" in event:
                yield event | {"data": json.loads(event["data"])}
            event = {}


def test_events_are_streamed_in_order_and_continue_after_the_last(web: Web, begun: str, operator: Api) -> None:
    with streaming(web, operator, f"{begun}/events") as events:
        first = next(events)
        assert first["id"] == "1" and first["data"]["kind"] == "RunCreated", first
        beyond = {**operator.headers, "Accept": "text/event-stream", "Last-Event-ID": "99999999"}
        refused = web.client.get(f"/api/v1/runs/{begun}/events", headers=beyond)
        assert refused.status_code == 400 and "last event is" in refused.json()["detail"]
        act(web, operator, begun, "pause")
        paused = next(event for event in events if event["data"]["kind"] == "RunPaused")
        assert act(web, operator, begun, "resume").status_code == 200
        act(web, operator, begun, "cancel")
        rest = list(events)
    assert [int(event["id"]) for event in rest[:-1]] == list(range(int(paused["id"]) + 1, int(rest[-2]["id"]) + 1))
    assert rest[-1] == {"event": "end", "data": {"reason": "run-ended"}}
    with streaming(web, operator, f"{begun}/events", Last_Event_ID=paused["id"]) as events:
        assert list(events) == rest
    headers = {**operator.headers, "Accept": "text/event-stream", "Last-Event-ID": rest[-2]["id"]}
    assert web.client.get(f"/api/v1/runs/{begun}/events", headers=headers).status_code == 204
    assert web.client.get(f"/api/v1/runs/{begun}/events?limit=2", headers=headers).status_code == 400
    headers["Last-Event-ID"] = "-1"
    assert web.client.get(f"/api/v1/runs/{begun}/events", headers=headers).status_code == 400


def test_a_stream_ends_with_its_key_and_streams_per_key_are_bounded(
    web: Web, begun: str, operator: Api, caller: Callable[[Any], Api]
) -> None:
    headers = {**operator.headers, "Accept": "text/event-stream"}
    unknown = {**headers, "Authorization": "Bearer da_nothing"}
    assert web.client.get(f"/api/v1/runs/{begun}/events", headers=unknown).status_code == 401

    async def many() -> list[int]:
        async with httpx.AsyncClient(base_url=str(web.client.base_url), timeout=30) as client:
            requests = [client.build_request("GET", f"/api/v1/runs/{begun}/events", headers=headers) for _ in range(52)]
            answers = []
            for each in requests:
                answers.append(await client.send(each, stream=True))
            found = [each.status_code for each in answers]
            for each in answers:
                await each.aclose()
            return found

    assert asyncio.run(many()) == [200] * 50 + [429] * 2
    with streaming(web, operator, f"{begun}/live") as output, streaming(web, operator, f"{begun}/events") as events:
        next(events)
        with acting(Actor("shell", "test", auth="shell")):
            assert revoke(ApiKey.objects.filter(hash=digest(operator.headers["Authorization"].split()[1]))) == 1
        began = time.monotonic()
        assert [event["data"] for event in (*events, *output)][-1] == {"reason": "signed-out"}
        assert time.monotonic() - began < 10
    auditor = caller("auditor")
    with streaming(web, auditor, f"{begun}/live") as output, streaming(web, auditor, f"{begun}/events") as events:
        next(events)
        Group.objects.get(name="auditor").user_set.clear()
        began = time.monotonic()
        for stream in (events, output):
            assert [event["data"] for event in stream][-1] == {"reason": "forbidden"}
        assert time.monotonic() - began < 10


def test_streams_of_an_erased_run_show_no_content_and_end_with_the_reason(web: Web, begun: str, operator: Api) -> None:
    admin = Api(issue_key(person("anna", "operator", is_superuser=True, is_staff=True), "test"))
    with streaming(web, admin, f"{begun}/events") as events, streaming(web, admin, f"{begun}/live") as output:
        next(events)
        assert act(web, operator, begun, "cancel").status_code == 200
        assert act(web, admin, begun, "erase").status_code == 200
        for stream in (events, output):  # whichever they hear of first
            assert list(stream)[-1]["data"]["reason"] in ("run-ended", "erased")
    with streaming(web, admin, f"{begun}/events") as events:
        *told, end = events
        assert told and all(event["data"]["payload"] is None for event in told)
        assert any(event["data"]["erased"] for event in told)
        assert end == {"event": "end", "data": {"reason": "erased"}}
    refused = web.client.get(f"/api/v1/runs/{begun}/live", headers={**admin.headers, "Accept": "text/event-stream"})
    assert (refused.status_code, refused.json()["code"]) == (410, "erased")


def test_streams_and_polls_end_when_the_server_stops(web: Web, begun: str, operator: Api) -> None:
    with ThreadPoolExecutor(1) as pool, streaming(web, operator, f"{begun}/events") as events:
        waiting = pool.submit(get, web, operator, begun, wait=60)
        next(events)
        time.sleep(0.5)
        web.process.terminate()
        assert [event["data"] for event in events if event.get("event") == "end"] == [{"reason": "server-stops"}]
        assert waiting.result().status_code == 200
    assert web.process.wait(15) == 0


PYTHON = """
import json, os, sys
sys.path.insert(0, os.getcwd())
from generated_client import AuthenticatedClient
from generated_client.api.runs import runs_create, runs_retrieve
from generated_client.models import StartBody
client = AuthenticatedClient(base_url=os.environ["BASE_URL"], token=os.environ["API_KEY"], timeout=60)
run = runs_create.sync(client=client, body=StartBody.from_dict(json.loads(os.environ["START"])))
while run.ended_at is None:
    run = runs_retrieve.sync(run.id, client=client, wait=30, after=run.revision)
print(run.id, run.state)
"""


def with_python(folder: Path, env: dict[str, str]) -> list[str]:
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none", "--path", "schema.json"]
    subprocess.run([*command, "--output-path", "generated_client"], cwd=folder, check=True, capture_output=True)
    return [sys.executable, "-c", PYTHON]


def with_typescript(folder: Path, env: dict[str, str]) -> list[str]:
    shutil.copytree(CLIENTS, folder, dirs_exist_ok=True)
    for command in (
        "npm install --no-package-lock --no-audit --no-fund --ignore-scripts",
        "npx openapi-typescript schema.json -o schema.d.ts",
        "npx tsc",
    ):
        done = subprocess.run(command.split(), cwd=folder, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, f"{command}: {done.stdout[-3000:]} {done.stderr[-1000:]}"
    return ["node", "start.js"]


def test_generated_clients_start_a_run_and_wait_for_its_end(web: Web, integrator: Api, tmp_path: Path) -> None:
    kinds = {"python": with_python, "typescript": with_typescript}
    if not (shutil.which("node") and shutil.which("npm")):
        assert "CI" not in os.environ, "node and npm are missing: .ci/run installs them"
        del kinds["typescript"]
    schema = web.client.get("/api/schema", headers=integrator.headers).content
    env = os.environ | {
        "BASE_URL": str(web.client.base_url).rstrip("/"),
        "API_KEY": integrator.headers["Authorization"].removeprefix("Bearer "),
        "START": json.dumps(START),
    }
    with working() as host:
        for name, made in kinds.items():
            folder = tmp_path / name
            folder.mkdir()
            (folder / "schema.json").write_bytes(schema)
            known = {row["id"] for row in web.client.get("/api/v1/runs", headers=integrator.headers).json()["results"]}
            with subprocess.Popen(made(folder, env), cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as client:
                run_id = ""

                def is_waiting(known: set[str] = known) -> bool:
                    nonlocal run_id
                    host.ring()
                    rows = web.client.get("/api/v1/runs", headers=integrator.headers).json()["results"]
                    run_id = next((row["id"] for row in rows if row["id"] not in known and row["waiting_for"]), "")
                    return bool(run_id)

                eventually(is_waiting, f"{name}: its run waits", 60)
                path = f"/api/v1/runs/{run_id}/signals/word"
                sent = web.client.post(path, json={"payload": {"word": name}}, headers=integrator.headers)
                assert sent.status_code == 202
                eventually(lambda: host.ring() or client.poll() is not None, f"{name}: it ends", 60)
                assert client.stdout is not None and client.stdout.read().split() == [run_id, "completed"]
    if "typescript" not in kinds:
        pytest.skip("the TypeScript client was NOT tested: node or npm is missing")
