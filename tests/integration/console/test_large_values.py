"""Pages of a run with large values: each shows a head with its size, and a link to all of it."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel

from durableagents import Agent, Context, End, Evidence, Gate, ReplayClass, ToolCall, tool
from durableagents.identity import rights
from ledger.api import present
from ledger.api.views import PAGE_BYTES
from ledger.models import Event
from runs.console.run_views import TABS
from runs.engine.agents import registry
from runs.models import Checkpoint, Run
from runs.services import lifecycle
from tests.integration.approvals.setup import WHY, somebody
from tests.integration.console.conftest import SHOP, Reader
from tests.integration.console.stage import question, settled, working

pytestmark = pytest.mark.django_db(transaction=True)

SIZE = 15_000_000
TEXT = "row <of> a report\n" * (SIZE // 18)
MAX_PAGE = 300_000


class Asked(BaseModel):
    item: str


class Report(BaseModel):
    text: str
    rows: list[int] = []


class State(BaseModel):
    item: str
    report: Report = Report(text="")


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, title="Fetch a report", system="archive")
async def fetch(args: Asked, call: ToolCall) -> Report:
    """Return a report of 15 MB."""
    return Report(text=TEXT, rows=[1, 2, 3])


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    title="File a report",
    gate=Gate("finance_po", "Everything", headline=lambda args: "A report"),
)
async def file(args: Report, call: ToolCall) -> Report:
    """File it."""
    return args


@pytest.fixture(autouse=True)
def reporter() -> Iterator[None]:
    agent = Agent(
        "reporter",
        "1.0.0",
        input=Asked,
        state=State,
        output=Report,
        initial=lambda asked: State(item=asked.item),
        tools=[fetch, file],
    )

    @agent.node(start=True, to=["ask"])
    async def look(state: State, ctx: Context) -> str:
        state.report = await ctx.call(fetch, Asked(item="all"))
        return "ask"

    @agent.node(to=[])
    async def ask(state: State, ctx: Context) -> End:
        if state.item == "no question":
            return End(state.report)
        report = Report(text="line\n" * 10_000, rows=[7])
        return End(await ctx.call(file, report, evidence=[Evidence("Report", "archive", {"text": "x" * 500_000})]))

    agent.validate()
    try:
        yield
    finally:
        registry.remove(agent.graph_id)


def waiting() -> Run:
    with working():
        run = lifecycle.start("reporter", {"item": "all"}, by=SHOP)
        question(run)
    return run


def done() -> Run:
    with working():
        return settled(lifecycle.start("reporter", {"item": "no question"}, by=SHOP), "completed")


def event_of(run: Run) -> int:
    return Event.objects.get(run_id=run.id, kind="ToolReturned").seq


@pytest.mark.needs("forks")
def test_pages_of_a_run_with_large_values_show_heads_that_can_be_downloaded(reader: Callable[..., Reader]) -> None:
    boss = reader("operator", "approver_finance", "auditor")
    own, run = f"/runs/{done().id}", waiting()
    pages, own, approval = [f"{own}?tab={tab}" for tab in TABS], f"/runs/{run.id}", question(run)
    for page in [
        *pages,
        *(f"{own}?tab={tab}" for tab in TABS),
        *(f"{own}/{name}" for name in ("fork", "start-again", "verification", "context")),
        *("/", "/runs", "/inbox", "/reconcile", "/audit", f"/inbox/{approval.id}"),
    ]:
        answer = boss.get(page)
        assert answer.status_code == 200 and len(answer.content) < MAX_PAGE, page
    journal = boss.get(f"{own}?tab=journal").content.decode()
    assert f"/runs/{run.id}/events/{event_of(run)}/payload" in journal and "Only the beginning of 15." in journal
    assert "line\n" * 10_000 in boss.get(f"/inbox/{approval.id}").content.decode(), "what a yes binds is shown in full"


def test_api_lists_end_before_a_large_value_or_omit_it(reader: Callable[..., Reader]) -> None:
    """A page of events or of a transcript holds one large payload at most; a list of runs holds no large output."""
    boss, run = reader("operator", "auditor"), done()
    address, pages, seen = f"/api/v1/runs/{run.id}/events", 0, 0
    while address:
        page = boss.get(address).json()
        sizes = [len(json.dumps(one["payload"])) for one in page["results"]]
        assert sum(sizes) <= PAGE_BYTES or len(sizes) == 1, sizes
        address, pages, seen = page["next"], pages + 1, seen + len(sizes)
    assert seen == Event.objects.filter(run_id=run.id).count() and pages > 1
    assert [(one["output"], one["output_omitted"]) for one in boss.get("/api/v1/runs").json()["results"]] == [
        (None, True)
    ]
    one = boss.get(f"/api/v1/runs/{run.id}").json()
    assert (one["output"]["text"], one["output_omitted"]) == (TEXT, False)


def test_download_of_a_value_needs_the_right_to_read_it(reader: Callable[..., Reader]) -> None:
    run = waiting()
    approval = question(run)
    checkpoint = Checkpoint.objects.filter(run_id=run.id).latest("seq")
    auditor, operator, stranger = reader("auditor"), reader("operator"), reader("integrator", name="other")
    boss = somebody("boss", is_superuser=True, is_staff=True)
    rights.let_role_read_payloads("operator", False, by=boss, justification=WHY)
    own = f"/runs/{run.id}"
    for path, whole in [
        (f"{own}/events/{event_of(run)}/payload", TEXT),
        (f"/api/v1{own}/events/{event_of(run)}/content", TEXT),
        (f"{own}/checkpoints/{checkpoint.seq}/state", TEXT),
        (f"/approvals/{approval.id}/plan", "x" * 500_000),
    ]:
        answer = auditor.get(path)
        assert answer.status_code == 200 and json.dumps(whole, ensure_ascii=False)[1:-1] in answer.getvalue().decode()
        assert answer["Content-Disposition"].startswith("attachment; ")
        assert (answer["Content-Type"], answer["X-Content-Type-Options"]) == ("application/json", "nosniff")
        assert (operator.get(path).status_code, stranger.get(path).status_code) == (403, 404), path
    for missing in (
        f"{own}/events/999/payload",
        f"/api/v1{own}/events/999/content",
        f"{own}/checkpoints/999/state",
        f"/runs/{uuid4()}/events/1/payload",
    ):
        assert auditor.get(missing).status_code == 404


def test_part_of_a_download_is_what_the_whole_has_there(
    reader: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = done()
    auditor, address = reader("auditor"), f"/api/v1/runs/{run.id}/events/{event_of(run)}/content"
    answer = auditor.get(address)
    whole, etag = answer.getvalue(), answer["ETag"]
    size = len(whole)
    assert size > SIZE and answer["Content-Length"] == str(size) and answer["Accept-Ranges"] == "bytes"
    for wanted, begin, end in [
        ("bytes=0-9", 0, 10),
        ("bytes=-7", size - 7, size),
        (f"bytes={size - 3}-", size - 3, size),
        (f"BYTES=0-{'9' * 40}", 0, size),
        (f"bytes=-{size + 5}", 0, size),
        ("bytes=, 2-2 ,", 2, 3),
    ]:
        part = auditor.client.get(address, headers={"Range": wanted, "If-Range": etag})
        assert (part.status_code, part.getvalue()) == (206, whole[begin:end]), wanted
        assert part["Content-Range"] == f"bytes {begin}-{end - 1}/{size}"
    for wanted in (f"{size}-", "-0", f"{size + 9}-{size + 10}", f"{'9' * 40}-"):
        refused = auditor.client.get(address, headers={"Range": f"bytes={wanted}"})
        assert (refused.status_code, refused["Content-Range"]) == (416, f"bytes */{size}"), wanted
        assert f"has {size} bytes" in refused.json()["detail"]
    # Several ranges and what is no range are ignored, as RFC 9110 allows and asks.
    for ignored in ("bytes=5-2", "lines=1-2", "bytes=0-1,4-5", "bytes=-", "bytes=", "bytes=a-b", f"bytes={'9' * 200}-"):
        given = auditor.client.get(address, headers={"Range": ignored})
        assert (given.status_code, given["Content-Length"]) == (200, str(size)), ignored
    assert auditor.client.get(address, headers={"Range": "bytes=0-1", "If-Range": '"other"'}).status_code == 200
    monkeypatch.setattr(present, "MAX_INLINE", SIZE)
    rows = auditor.get(f"/api/v1/runs/{run.id}/events?after={event_of(run) - 1}").json()["results"]
    assert (rows[0]["payload"], rows[0]["omitted"], rows[0].get("damage")) == (None, True, None)


def test_downloads_in_progress_are_bounded_and_give_their_places_back(reader: Callable[..., Reader]) -> None:
    run, auditor = done(), reader("auditor")
    address = f"/runs/{run.id}/events/1/payload"
    gc.collect()  # of earlier tests
    unread: list[Any] = [auditor.get(address) for _ in range(16)]
    assert {each.status_code for each in unread} == {200}
    assert auditor.get(address).status_code == 503
    unread.pop().release()
    assert auditor.get(address).status_code == 200
    unread.clear()
    gc.collect()
    assert auditor.get(address).status_code == 200
