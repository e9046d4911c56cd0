"""The services of compose.yaml come up healthy by their own commands, behind Caddy, nginx and PgBouncer."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import psycopg
import pytest
from websockets.asyncio.client import connect

from tests.system.deploy.composed import AGENTS, DOMAIN, Composed, untrusting
from tests.waiting import eventually

PASSWORD = "a-password-for-one-test"
_PREPARED = f"""
from django.contrib.auth.models import Group, User
from durableagents.identity.auth import issue_key
ada = User.objects.create_user("ada", password="{PASSWORD}")
ada.groups.add(Group.objects.get(name="operator"))
print(issue_key(ada, "test"))
"""
SECRET = "not-for-the-log"
FORGED = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "http"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    """The services that need no other program, healthy."""
    with Composed(tmp_path_factory.mktemp("compose")) as site:
        site.run("migrate")
        _start(site)
        yield site


@pytest.fixture(scope="module")
def key(site: Composed) -> dict[str, str]:
    """Return the headers of an operator, who can also sign in."""
    return {"Authorization": f"Bearer {site.run('web', 'shell', '--no-imports', '-c', _PREPARED).split()[-1]}"}


def _start(site: Composed) -> None:
    site.start("workers")
    site.start("web")
    eventually(lambda: site.is_healthy("web"), "a healthy web process", 90)
    eventually(
        lambda: httpx.get(f"http://127.0.0.1:{site.web_port}/readyz", timeout=10).status_code == 200, "ready", 60
    )


@pytest.mark.parametrize("proxy", ["caddy", "nginx"])
def test_services_come_up_healthy_behind_a_proxy(
    program: Callable[[str], str], site: Composed, key: dict[str, str], proxy: str
) -> None:
    getattr(site, f"start_{proxy}")(program(proxy))
    with httpx.Client(base_url=site.url, verify=untrusting(), timeout=30) as client, ThreadPoolExecutor(1) as pool:
        eventually(lambda: _answers(client), "the proxy", 30)
        slow = pool.submit(_drop_time, site.https_port)
        _redirects_to_https(site)
        _bounds_bodies_and_hides_metrics(client)
        _opens_secret_addresses(site, client)
        cookie = _signs_in(client)
        asyncio.run(_passes_websockets(site, cookie))
        _streams_events(client, key)
        assert slow.result() < 20
    assert site.stop_proxy(proxy) == 0
    log = site.log(proxy)
    assert SECRET not in log and "127.0.0.1" in log and "/healthz" in log


def test_the_same_services_work_through_pgbouncer(program: Callable[[str], str], site: Composed) -> None:
    assert site.stop("web") == 0 and site.stop("workers") == 0
    site.start_pooler(program("pgbouncer"))
    with psycopg.connect((site.folder / "secrets" / "POOLED_DATABASE_URL").read_text().strip()) as pooled:
        set_by = "SELECT setting, source FROM pg_settings WHERE name IN ('jit', 'lock_timeout') ORDER BY name"
        assert pooled.execute(set_by).fetchall() == [("off", "session"), ("2000", "session")], "set by connect_query"
    site.read("compose.yaml", "compose.pgbouncer.yaml")
    _start(site)
    assert site.stop("web") == 0 and site.stop("workers") == 0


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def _drop_time(port: int) -> float:
    """Return after how long a client that sends half a request is dropped."""
    with untrusting().wrap_socket(socket.create_connection(("127.0.0.1", port), 30), server_hostname=DOMAIN) as slow:
        slow.sendall(f"GET / HTTP/1.1\r\nHost: {DOMAIN}\r\nX-Slow".encode())
        began = time.monotonic()
        try:
            slow.recv(1024)
        except OSError:
            pass  # reset: dropped as well
        return time.monotonic() - began


def _redirects_to_https(site: Composed) -> None:
    answer = httpx.get(f"http://{DOMAIN}:{site.http_port}/login?next=/", follow_redirects=False)
    assert answer.status_code in (301, 308) and answer.headers["Location"].startswith(f"https://{DOMAIN}"), answer


def _bounds_bodies_and_hides_metrics(client: httpx.Client) -> None:
    assert client.get("/metrics", headers={"Authorization": "Bearer nothing"}).status_code == 404
    large = client.post("/api/v1/callbacks/nobody", content=b"x" * 100_000)
    assert large.status_code == 413, large.text
    # Caddy 2.6 says 502 where it cuts a body that is on its way.
    assert client.post("/login", content=b"x" * 4_000_000).status_code in (413, 502)


def _opens_secret_addresses(site: Composed, client: httpx.Client) -> None:
    """Open addresses that must stay out of the log, also by requests that the proxy logs as errors."""
    headers = {"Referer": f"{site.url}/setup/{SECRET}"}
    for path in ("/setup/", "/%73etup/", "/invited/", "/reset/", "/login/sso/", "/api/v1/callbacks/", "/runs?q="):
        httpx.get(f"http://{DOMAIN}:{site.http_port}{path}{SECRET}", follow_redirects=False, headers=headers)
        client.get(f"{path}{SECRET}", headers=headers)
        assert client.post(f"{path}{SECRET}", content=b"x" * 4_000_000, headers=headers).status_code in (413, 502)


def _signs_in(client: httpx.Client) -> str:
    """Sign in by form; the forged address must not be taken for the client's. Return the cookies."""
    page = client.get("/login", headers=FORGED)
    assert page.status_code == 200 and "max-age=31536000" in page.headers["Strict-Transport-Security"]
    (token,) = set(re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text))
    form = {"username": "ada", "password": PASSWORD, "csrfmiddlewaretoken": token}
    answer = client.post("/login", data=form, headers={**FORGED, "Origin": str(client.base_url).rstrip("/")})
    assert answer.status_code == 302, answer.text
    assert all("Secure" in value for value in answer.headers.get_list("Set-Cookie"))
    account = client.get("/account").text
    assert "127.0.0.1" in account and "203.0.113.9" not in account
    return "; ".join(f"{name}={value}" for name, value in client.cookies.items())


async def _passes_websockets(site: Composed, cookie: str) -> None:
    address = site.url.replace("https", "wss") + "/ws/lists"
    headers = {"Cookie": cookie}
    async with connect(address, origin=site.url, additional_headers=headers, ssl=untrusting()) as live:
        await asyncio.wait_for(await live.ping(), 10)


def _streams_events(client: httpx.Client, headers: dict[str, str]) -> None:
    """Each event of a run arrives when it happens, and a long poll is answered, both through the proxy."""
    start = {"agent": "listener@1.0.0", "input": {"word": "?"}}
    begun = client.post("/api/v1/runs", json=start, headers=headers)
    assert begun.status_code == 201, f"{AGENTS}: {begun.text}"
    path = f"/api/v1/runs/{begun.json()['id']}"
    eventually(lambda: client.get(path, headers=headers).json()["state"].startswith("waiting"), "the run to wait")
    with client.stream("GET", f"{path}/events", headers={**headers, "Accept": "text/event-stream"}) as stream:
        kinds = (json.loads(line[6:]).get("kind") for line in stream.iter_lines() if line.startswith("data: "))
        assert next(kinds) == "RunCreated"
        began = time.monotonic()
        sent = client.post(f"{path}/signals/word", json={"payload": {"word": "yes"}}, headers=headers)
        assert sent.status_code < 300, sent.text
        assert "RunCompleted" in kinds and time.monotonic() - began < 10
    assert client.get(path, params={"wait": 30}, headers=headers).json()["state"] == "completed"
