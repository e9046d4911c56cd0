"""Large values are kept outside the database, are verified when they are read, and are never lost or mixed up."""

from __future__ import annotations

import asyncio
import hashlib
import io
import itertools
import json
import os
import random
import shutil
import signal
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.files.storage import FileSystemStorage, InMemoryStorage, Storage
from django.core.management import CommandError
from django.db import connection, transaction
from django.test import Client
from pydantic import BaseModel

from durableagents import Context, End, ReplayClass, ToolCall, tool
from durableagents.contrib.encryption import erasure
from durableagents.contrib.large_values import collecting, own_features, stores
from durableagents.contrib.large_values.management.commands.large_values import Command
from durableagents.contrib.large_values.models import Collection
from durableagents.contrib.retention import archiving
from durableagents.identity.auth import issue_key
from durableagents.server import health
from ledger import codec
from ledger import events as e
from ledger.codec import Cut, pack, stored_at, unpack, unpack_head
from ledger.erasure import Erased
from ledger.models import Event
from ledger.verification.runs import verify
from runs import failpoints, features
from runs.journal.claims import Worker
from runs.models import Checkpoint, Run
from runs.services import lifecycle
from runs.workers import failover
from runs.workers.run_loop import Host
from tests.contrib.retention.keeping import SHELL, age, policy
from tests.contrib.retention.test_archiving import age_archives
from tests.integration.api.conftest import Api, person
from tests.integration.runs.stage import Stage, events, facts, fresh, now, output, waiting
from tests.world import SHOP, Item, Toolbox, agent_of, ends_with

CANARY = "Kanarienvogel"
# Random, so that it is still large when it is compressed.
LARGE = f"{CANARY} " + random.Random(35).randbytes(20_000).hex()


@pytest.fixture
def store(tmp_path: Path, settings: Any) -> Iterator[stores.Folder]:
    root = tmp_path / "values"
    root.mkdir()
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"large_values": root})
    store = stores.configured()
    assert isinstance(store, stores.Folder)
    store.prepare()
    codec.use_store(store)
    yield store
    codec.use_store(None)


class Given(BaseModel):
    item: str = ""


class Kept(BaseModel):
    item: str


def passing(tools: Toolbox) -> Any:
    """Return an agent that keeps a large input in its state, hands it to a tool, asks people and returns it."""

    async def first(state: Kept, ctx: Context) -> Any:
        await ctx.call(tools.look, Item(name=state.item))
        await ctx.call(tools.pay, Item(name="po", amount=5000))
        return "second"

    async def second(state: Kept, ctx: Context) -> End:
        return End(state.item)

    return agent_of(
        first, second, tools=tools.all(), input=Given, state=Kept, initial=lambda given: Kept(item=given.item)
    )


def places(run: Run) -> list[tuple[UUID, bytes]]:
    sealed = Event.objects.filter(run_id=run.pk, sealed__isnull=False).order_by("seq").values_list("sealed", flat=True)
    return [place for each in sealed if (place := stored_at(bytes(each)))]


def test_run_with_large_values_does_the_same_and_its_rows_stay_small(
    stage: Stage, tools: Toolbox, store: stores.Folder
) -> None:
    run = stage.start(passing(tools), item=LARGE)
    stage.settle(run)
    stage.decide(run)
    stage.settle(run)
    assert fresh(run).state == "completed" and output(run) == LARGE
    assert len(places(run)) >= 3 and all(run_id == run.pk for run_id, _ in places(run))
    sizes = [len(bytes(each)) for each in Event.objects.filter(run_id=run.pk).values_list("sealed", flat=True) if each]
    assert max(sizes) < stores.KEEPS_FROM
    assert all(len(bytes(each)) < stores.KEEPS_FROM for each in Checkpoint.objects.values_list("state", flat=True))
    files = [path for path in store.root.rglob("*") if path.is_file()]
    assert len(files) > 4 and not any(CANARY.encode() in path.read_bytes() for path in files), "encrypted there too"
    assert verify(run.id).problems == []


def test_missing_or_changed_value_stops_the_run_by_name_before_anything_is_sent(
    stage: Stage, tools: Toolbox, store: stores.Folder, client: Client
) -> None:
    def lose(path: Path) -> None:
        path.unlink()

    def change(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:-1] + b"x")

    def swap(path: Path) -> None:
        other = next(each for each in path.parent.iterdir() if each != path)
        shutil.copy(other, path)

    client.force_login(person("olga", "operator"))
    for harm, answer in ((lose, "is missing"), (change, "was changed"), (swap, "was changed")):
        run = stage.start(passing(tools), item=LARGE)
        stage.settle(run)
        (_, digest) = places(run)[-1]
        paid = len(tools.outside.seen("pay"))
        harm(store.root / run.pk.hex[-2:] / run.pk.hex / digest.hex())
        stage.decide(run)
        stage.drive()
        assert waiting(run)[-1].detail["reason"] == "broken_journal", harm
        payload = unpack(Event.objects.get(run_id=run.pk, kind="OperatorNeeded").sealed)
        assert f"the stored value {digest.hex()} {answer}" in payload["problem"], harm
        assert client.get(f"/runs/{run.pk}").status_code == 200
        assert len(tools.outside.seen("pay")) == paid
        assert any(f"the stored value {digest.hex()} {answer}" in problem for problem in verify(run.id).problems), harm


def test_missing_input_is_the_only_problem_that_verification_finds(
    stage: Stage, tools: Toolbox, store: stores.Folder
) -> None:
    run = stage.start(passing(tools), item=LARGE)
    stage.settle(run)
    assert verify(run.pk).problems == []
    place = stored_at(bytes(Event.objects.get(run_id=run.pk, seq=1).sealed))
    assert place is not None
    (store.root / run.pk.hex[-2:] / run.pk.hex / place[1].hex()).unlink()
    found = verify(run.pk).problems
    assert len(found) == 1, found
    problem = found[0]
    assert problem.startswith("event 1 can't be read") and "is missing" in problem


def test_store_that_is_away_is_an_outage_and_loses_nothing(
    stage: Stage, tools: Toolbox, store: stores.Folder, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = passing(tools)
    run = stage.start(agent, item=LARGE)
    stage.settle(run)
    away = store.root.rename(store.root.with_name("unmounted"))
    store.root.mkdir()  # where the volume was mounted
    before = Run.objects.count()
    with pytest.raises(stores.Unavailable, match="mount its volume"):
        lifecycle.start(agent.graph_id, {"item": LARGE}, by=SHOP)
    assert Run.objects.count() == before and list(store.root.iterdir()) == []
    api = Api(issue_key(person("olga", "operator"), "test"))
    answer = api.get(f"runs/{run.pk}/events")
    assert (answer.status_code, answer.json()["code"]) == (503, "store-unavailable")
    assert stores.refusal() is not None
    monkeypatch.setitem(health.more_checks, "large_values", store.problem)
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["checks"]["large_values"]["ok"]) == (503, False)
    store.root.rmdir()
    away.rename(store.root)
    assert client.get("/readyz").json()["checks"]["large_values"]["ok"] is True
    stage.decide(run)
    stage.settle(run)
    assert fresh(run).state == "completed" and verify(run.id).problems == []
    store.root.rename(away)
    store.root.mkdir()
    assert api.get(f"runs/{run.pk}").status_code == 503
    for address in (f"runs/{run.pk}", "runs"):  # nothing of the run's content is asked for
        assert api.get(address, fields="id,state").status_code == 200, address


def test_head_of_a_large_value_is_read_alone(stage: Stage, tools: Toolbox, store: stores.Folder) -> None:
    run_id = stage.start(passing(tools)).pk
    for text in ("".join(random.Random(2).choices("abcd", k=600_000)), random.Random(1).randbytes(400_000).hex()):
        packed = pack({"text": text}, run_id)
        assert packed is not None and len(packed) == codec.REFERENCE.size and unpack(packed) == {"text": text}
        head = unpack_head(packed)["text"]
        assert isinstance(head, Cut) and text.startswith(head) and len(head) > 100_000
        assert head.size == codec.size_of(packed) == codec.size_of(packed[:20], len(packed))
    with pytest.raises(ValueError, match="cut off"):
        unpack((packed or b"")[:-1])


@contextmanager
def at_most(megabytes: float) -> Iterator[None]:
    """Check how much memory is allocated at a time inside."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
    assert peak < megabytes, f"{peak:.0f} MB"


def test_memory_for_large_values_is_bounded(stage: Stage, tools: Toolbox, store: stores.Folder, client: Client) -> None:
    run = stage.start(passing(tools), item=LARGE)
    stage.settle(run)
    text = random.Random(3).randbytes(10_000_000).hex()
    with at_most(2.7 * 20):  # its text, twice while it is encoded, and room for it compressed
        packed = pack({"text": text}, run.pk)
    with at_most(2.2 * 20):  # the value, and its text while that is decoded
        assert unpack(packed) == {"text": text}
    with at_most(5):
        assert len(unpack_head(packed)["text"]) > 100_000
    large = stage.start(passing(tools), item=text[:6_000_000])
    stage.settle(large)
    client.force_login(person("olga", "operator"))
    client.get(f"/runs/{run.pk}")  # reads templates
    with at_most(5):
        assert client.get(f"/runs/{large.pk}").status_code == 200
    with at_most(4.2 * 6):
        assert len(client.get(f"/runs/{large.pk}/events/1/payload").getvalue()) > 6_000_000


@pytest.mark.long
def test_run_with_a_value_of_60_mb_is_bounded_in_memory(
    stage: Stage, tools: Toolbox, store: stores.Folder, client: Client
) -> None:
    """From the API's input to the download of a tool's result, which gives the same bytes."""
    text = random.Random(3).randbytes(30_000_000).hex()

    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, title="Fetch a report")
    async def fetch(args: Given, call: ToolCall) -> Kept:
        return Kept(item=text[::-1])

    async def first(state: Kept, ctx: Context) -> End:
        return End((await ctx.call(fetch, Given(item="all"))).item)

    agent = agent_of(first, tools=[fetch], input=Given, state=Kept, initial=lambda given: Kept(item=given.item))
    shop = Api(issue_key(person("shop", "integrator", "operator"), "test"))
    body = json.dumps({"agent": agent.name, "input": {"item": text}}).encode()
    with at_most(6.5 * 60):
        answer = shop.send("runs", body)
    assert answer.status_code == 201
    run = Run.objects.get(pk=answer.json()["id"])
    with at_most(6.5 * 60):
        stage.settle(run)
    assert fresh(run).state == "completed" and verify(run.pk).problems == []
    last = Event.objects.get(run_id=run.pk, kind="RunCompleted").seq
    with at_most(3.5 * 60):
        got: Any = shop.get(f"runs/{run.pk}/events/{last}/content")
        digest = hashlib.sha256()
        for piece in got.streaming_content:
            digest.update(piece)
    assert digest.digest() == hashlib.sha256(f'"{text[::-1]}"'.encode()).digest()
    visible = shop.get(f"runs/{run.pk}").json()
    assert (visible["output"], visible["output_omitted"]) == (None, True)
    for more, statement in ((8_300_000, "larger than 68157440"), (7_200_000, "may have 67108864: store it elsewhere")):
        answer = shop.post("runs", {"agent": agent.name, "input": {"item": text + text[:more]}})
        assert answer.status_code in (413, 422) and statement in answer.json()["detail"], answer.json()["detail"]


def test_only_old_values_that_nothing_refers_to_are_deleted(stage: Stage, tools: Toolbox, store: stores.Folder) -> None:
    run = stage.start(passing(tools), item=LARGE)
    stage.settle(run)
    with transaction.atomic():
        pack({"text": LARGE}, run.pk)
        transaction.set_rollback(True)
    archived = uuid4()
    pack({"text": LARGE}, archived)
    (store.root / run.pk.hex[-2:] / run.pk.hex / "0.part").write_bytes(b"half")
    assert collecting.collect() == (0, 0), "all are young"
    deleted = collecting.collect(timedelta(seconds=-5))
    assert deleted.values >= 2 and deleted.bytes > len(LARGE) / 2
    assert collecting.collect(timedelta(seconds=-5)) == (0, 0)
    assert list(store.values(archived)), "a run that isn't here may be archived"
    assert verify(run.id).problems == [] and LARGE in str(events(run, e.RunCreated)[0].payload)
    collecting.collect_when_due()
    collecting.collect_when_due()
    assert Collection.objects.count() == 1


def killed_after_upload(worker: Worker, nth: int) -> int:
    """Let a worker in a process of its own be killed after its nth upload; return how it ended."""
    passed = itertools.count(1)

    def hit(point: str, tool: str = "", run: str = "") -> None:
        if point == "UP1" and next(passed) == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    connection.close()
    child = os.fork()
    if child == 0:
        try:
            failpoints.hit = hit  # type: ignore[assignment]
            signal.alarm(30)
            asyncio.run(Host(slots=1, incarnation=worker.id).serve())
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


def test_worker_killed_between_upload_and_commit_loses_and_doubles_nothing(
    stage: Stage, tools: Toolbox, store: stores.Folder
) -> None:
    for nth in (1, 2):
        run, worker = stage.start(passing(tools), item=LARGE), stage.hire()
        assert killed_after_upload(worker, nth) == signal.SIGKILL, nth
        assert fresh(run).owner == worker.id and verify(run.pk).problems == [], nth
        failover.worker_died(worker.id, "the test says so")
        Run.objects.filter(pk=run.pk).update(ready_at=now())
        stage.settle(run)
        stage.decide(run)
        stage.settle(run)
        assert fresh(run).state == "completed" and output(run) == LARGE and verify(run.pk).problems == [], nth
        assert facts(run) == ["pending", "committed"] and len(tools.outside.seen("pay")) == nth
    kept = {name for run_id in store.runs() for name, _, _ in store.values(run_id)}
    referred = {digest.hex() for run in Run.objects.all() for _, digest in places(run)}
    assert collecting.collect() == (0, 0), "all are young"
    assert collecting.collect(timedelta(seconds=-5)).values == 2, "one orphan of each kill"
    left = {name for run_id in store.runs() for name, _, _ in store.values(run_id)}
    assert referred <= left < kept and all(verify(run.pk).problems == [] for run in Run.objects.all())


def test_values_of_erased_runs_and_of_deleted_archives_are_deleted(
    stage: Stage, tools: Toolbox, store: stores.Folder, settings: Any, tmp_path: Path
) -> None:
    (tmp_path / "archive").mkdir()
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"archive": tmp_path / "archive"})
    agent = agent_of(ends_with("done"), tools=tools.all(), input=Given, state=Kept, initial=lambda x: Kept(item=x.item))
    erased, archived, held = (stage.start(agent, item=LARGE) for _ in range(3))
    for run in (erased, archived, held):
        stage.settle(run)
    erasure.erase(erased.pk, by=SHELL, justification="request of the person concerned")
    policy(delete_days=1)
    age(archived.pk)
    assert archiving.run().archived == 1
    assert collecting.collect(timedelta(seconds=-5)).values >= 1
    assert not list(store.values(erased.pk)) and list(store.values(archived.pk)) and list(store.values(held.pk))
    found = verify(erased.pk)
    assert found.problems == [] and found.notes[0].startswith("Content erased on ")
    with pytest.raises(Erased):
        events(erased, e.RunCreated)
    age_archives()
    assert archiving.run().deleted == 1
    assert collecting.collect(timedelta(seconds=-5)).values >= 1
    assert not list(store.values(archived.pk)) and list(store.values(held.pk))
    assert verify(archived.pk).problems == verify(held.pk).problems == []


def test_large_state_is_said_once_in_the_log_and_on_the_page(
    stage: Stage,
    tools: Toolbox,
    store: stores.Folder,
    client: Client,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(features.installed, "large values", own_features.feature(store))
    client.force_login(person("olga", "operator"))
    for item, is_said in ((LARGE, 0), (LARGE * 4, 1)):
        caplog.clear()
        run = stage.start(passing(tools), item=item)
        stage.settle(run)
        stage.decide(run)
        stage.settle(run)
        items = [each for each in caplog.messages if f"run {run.pk}: its state has" in each]
        assert len(items) == is_said, items
        assert (b"large-state" in client.get(f"/runs/{run.pk}").content) == bool(is_said)


def test_storage_of_django_keeps_values_too(tmp_path: Path) -> None:
    content, run_id, digest = b"x" * 100_000, uuid4(), b"\x07" * 32
    every: list[Storage] = [FileSystemStorage(location=tmp_path), InMemoryStorage()]
    for storage in every:
        store = stores.DjangoStorage(storage)
        with pytest.raises(ValueError, match="is missing"):
            store.get(run_id, digest)
        store.put(run_id, digest, content)
        assert store.get(run_id, digest) == content and store.get(run_id, digest, 10) == content[:10]
        assert list(store.runs()) == [run_id]
        ((name, _, size),) = store.values(run_id)
        assert (name, size) == (digest.hex(), 100_000)
        store.delete(run_id, name)
        assert list(store.values(run_id)) == []


def test_command_names_what_is_wrong(settings: Any, tmp_path: Path) -> None:
    def said(*words: str) -> str:
        out = io.StringIO()
        try:
            # As from the shell: call_command would leave out the checks before a command.
            command = Command(stdout=out)
            options = command.create_parser("manage.py", "large_values").parse_args(words)
            command.execute(**vars(options))
        except CommandError as error:
            return str(error)
        return out.getvalue()

    def use(root: Path) -> None:
        settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"large_values": root})

    assert "no store is set" in said("status")
    use(Path("values"))
    assert "absolute path" in said("prepare") and "absolute path" in said("status")
    use(tmp_path / "none")
    assert "not an existing folder" in said("prepare") and "is not there: mount its volume" in said("status")
    use(tmp_path)
    assert "prepare" in said("status") and stores.refusal() is not None
    assert "ready" in said("prepare") and said("status") == "0 run(s), 0 value(s), 0 bytes\n"
    assert stores.refusal() is None
    stores.Folder(tmp_path).put(uuid4(), b"\x01" * 32, b"y" * 9000)
    assert said("status") == "1 run(s), 1 value(s), 9000 bytes\n"
    (tmp_path / "ff").write_text("not a folder")
    with pytest.raises(stores.Unavailable, match="the store of large values"):
        stores.Folder(tmp_path).put(UUID(int=255), b"\x01" * 32, b"y" * 9000)
