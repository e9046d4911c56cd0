"""Large values in S3: written once, verified when read, and off the event loop that drives runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from durableagents import Context, End
from durableagents.contrib.large_values import collecting, stores
from durableagents.object_storage import create, read
from ledger import codec
from ledger.verification.runs import verify
from tests.contrib import s3
from tests.contrib.large_values.test_large_values import CANARY, LARGE, Given, Kept, passing, places
from tests.integration.runs.stage import Stage, fresh, output, waiting
from tests.tampering import run_sql
from tests.world import Item, Toolbox, agent_of


@pytest.fixture
def bucket() -> Iterator[s3.Bucket]:
    with s3.serve() as bucket:
        yield bucket


@pytest.fixture
def store(bucket: s3.Bucket, settings: Any) -> Iterator[stores.DjangoStorage]:
    backend = {"BACKEND": "storages.backends.s3.S3Storage", "OPTIONS": bucket.options(location="prod")}
    settings.STORAGES = {**settings.STORAGES, stores.ALIAS: backend}
    store = stores.configured()
    assert isinstance(store, stores.DjangoStorage)
    store.prepare()
    assert store.problem() == ""
    codec.use_store(store)
    yield store
    codec.use_store(None)


def test_run_with_values_in_s3_does_the_same_and_stops_if_one_is_altered_or_missing(
    stage: Stage, tools: Toolbox, store: stores.DjangoStorage, bucket: s3.Bucket
) -> None:
    run = stage.start(passing(tools), item=LARGE)
    stage.settle(run)
    stage.decide(run)
    stage.settle(run)
    assert fresh(run).state == "completed" and output(run) == LARGE and verify(run.id).problems == []
    objects = [each.get()["Body"].read() for each in bucket.bucket.objects.filter(Prefix=f"prod/{run.pk.hex[-2:]}/")]
    assert len(objects) > 4 and not any(CANARY.encode() in each for each in objects)
    assert list(store.runs()) == [run.pk] and sum(1 for _ in store.values(run.pk)) == len(objects)
    assert collecting.collect() == (0, 0)

    for harm, answer in (("missing", "is missing"), ("altered", "was changed")):
        run = stage.start(passing(tools), item=LARGE)
        stage.settle(run)
        (_, digest) = places(run)[-1]
        found = bucket.bucket.Object(f"prod/{run.pk.hex[-2:]}/{run.pk.hex}/{digest.hex()}")
        content = found.get()["Body"].read()
        _ = found.delete() if harm == "missing" else found.put(Body=content[:-1] + b"x")
        stage.decide(run)
        stage.drive()
        assert waiting(run)[-1].detail["reason"] == "broken_journal", harm
        assert any(f"the stored value {digest.hex()} {answer}" in problem for problem in verify(run.id).problems), harm


def test_s3_overwrites_nothing_and_an_outage_says_what_is_wrong(bucket: s3.Bucket) -> None:
    store, run_id, digest = stores.DjangoStorage(bucket.storage()), uuid4(), b"\x07" * 32
    assert "large_values prepare" in store.problem(), "a bucket that nobody prepared"
    store.prepare()
    store.prepare()
    assert store.problem() == ""
    with pytest.raises(ValueError, match="is missing"):
        store.get(run_id, digest)
    content = b"x" * 100_000
    for _ in range(2):  # the second as after a lost answer
        store.put(run_id, digest, content)
    assert store.get(run_id, digest) == content and store.get(run_id, digest, 10) == content[:10]
    with pytest.raises(stores.Unavailable, match="other content"):
        store.put(run_id, digest, b"other")
    with pytest.raises(FileExistsError):
        create(store.storage, stores.MARKER, b"other")
    assert store.get(run_id, digest) == content
    with pytest.raises(FileNotFoundError):
        read(store.storage, "none")
    store.delete(run_id, digest.hex())
    assert list(store.values(run_id)) == []

    for change, answer in (
        ({"bucket_name": "another"}, "another|NoSuchBucket|is not a store"),
        ({"endpoint_url": "http://127.0.0.1:9"}, "127.0.0.1:9"),
        ({"access_key": None, "secret_key": None, "session_profile": "none"}, "none"),
    ):
        wrong = stores.DjangoStorage(bucket.storage(**change))
        assert wrong.problem(), change
        with pytest.raises(stores.Unavailable, match=answer):
            wrong.put(run_id, digest, content)
        with pytest.raises(stores.Unavailable, match=answer):
            wrong.get(run_id, digest)
        with pytest.raises(stores.Unavailable, match=answer):
            list(wrong.runs())


class Watched(stores.Folder):
    """A folder that notes the threads of its writes and reads, and whether a row refers to what is being written."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.threads: set[int] = set()
        self.early: list[bytes] = []

    def put(self, run_id: UUID, digest: bytes, content: bytes) -> None:
        self.threads.add(threading.get_ident())
        super().put(run_id, digest, content)
        found = run_sql("SELECT count(*) FROM ledger_event WHERE position(%s::bytea in sealed) > 0", digest)
        if threading.current_thread() is not threading.main_thread():
            connection.close()
        if found[0][0]:
            self.early.append(digest)

    def get(self, run_id: UUID, digest: bytes, most: int = -1) -> bytes:
        self.threads.add(threading.get_ident())
        return super().get(run_id, digest, most)


def test_event_loop_waits_for_no_store_and_content_is_kept_before_its_row(
    stage: Stage, tools: Toolbox, tmp_path: Any
) -> None:
    store, loops = Watched(tmp_path), set()
    store.prepare()

    async def first(state: Kept, ctx: Context) -> Any:
        loops.add(threading.get_ident())
        await ctx.call(tools.look, Item(name=state.item))
        await ctx.call(tools.pay, Item(name="po", amount=5000))
        return "second"

    async def second(state: Kept, ctx: Context) -> End:
        return End(state.item)

    agent = agent_of(
        first, second, tools=tools.all(), input=Given, state=Kept, initial=lambda given: Kept(item=given.item)
    )
    codec.use_store(store)
    try:
        run = stage.start(agent, item=LARGE)
        store.threads.clear()  # of this one, which started it
        stage.drive()
        assert store.threads and loops and not store.threads & loops
        stage.decide(run)
        stage.settle(run)
        assert fresh(run).state == "completed" and verify(run.id).problems == [] and store.early == []
    finally:
        codec.use_store(None)
