"""Canary secrets, which tools leak in every way they can, are found nowhere."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from pydantic import BaseModel

from durableagents import (
    BusinessFailure,
    Context,
    DidNotHappen,
    End,
    Evidence,
    Gate,
    NotSent,
    Pending,
    ReplayClass,
    Secret,
    ToolCall,
    ToolFailure,
    TransportError,
    tool,
)
from durableagents.contrib.replay.exporting import ExportOptions, export
from durableagents.contrib.secrets import logs
from durableagents.identity.auth import issue_key
from durableagents.secret_sources import read_source
from ledger import codec, scrubbing
from ledger import events as e
from ledger.clock import database_now
from ledger.models import Event
from ledger.verification.runs import verify
from runs.connections import dsn
from runs.engine.errors import DefinitionError
from runs.models import Checkpoint
from tests.integration.api.conftest import Api, person
from tests.integration.runs.stage import Stage, events, facts, fresh, kinds
from tests.unit.engine.story import Story
from tests.world import Done, Item, Notes, Outside, agent_of

pytestmark = pytest.mark.django_db(transaction=True)
CANARIES = {"of-env": 'kanari-e"7-äöü', "of-file": "kanari-f\\8/+%&", "of-command": "kanari-c-9-0123456789"}
CONTROL = "no-secret-at-all-12345"
log = logging.getLogger("an.integrator")


class Payment(BaseModel):
    note: str = ""
    token: Secret = Secret("of-env")


class Leak(BaseModel):
    ref: str
    texts: list[str] = []
    more: dict[str, Any] = {}


class Customer(BaseModel):
    name: str
    ibans: list[str]


class Order(BaseModel):
    customer: Customer
    amount: int = 41_907


class Answer(BaseModel):
    name: str = "kept, as it is no customer's"
    customer: Customer


@pytest.fixture
def canaries(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant one secret in each source; leave the database's payloads readable for the search."""
    monkeypatch.setenv("AGENT_SECRET_OF_ENV", CANARIES["of-env"])
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "of-file").write_text(CANARIES["of-file"] + "\n")
    command = tmp_path / "get"
    command.write_text(f"#!/bin/sh\n[ $1 = of-command ] && echo {CANARIES['of-command']}\n")
    command.chmod(0o700)
    texts = ("env", f"file:{tmp_path}/secrets", f"command:{command}")
    update = {"secret_sources": [read_source(text) for text in texts], "encryption_keys": ["none"]}
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update=update)
    monkeypatch.setattr(codec, "_COMPRESS_FROM", 1 << 40)
    logs.install()


def forms(value: str) -> set[bytes]:
    """Return what to search for, made otherwise than the scrubber makes it."""
    data = value.encode()
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    inner = base64.b64encode(data)[:-4]
    return {data, escaped.encode(), data[:9], inner, data.hex().encode()}


def found_in(data: bytes) -> list[str]:
    return [name for name, value in CANARIES.items() if any(form in data for form in forms(value))]


def all_tables() -> bytes:
    """Return all rows of all tables, as COPY writes them in binary."""
    parts = []
    with psycopg.connect(dsn(name="canaries")) as link, link.cursor() as cursor:
        cursor.execute("SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = 'public'")
        for (table,) in cursor.fetchall():
            with cursor.copy(f"COPY {table} TO STDOUT (FORMAT binary)") as copy:
                parts += [bytes(part) for part in copy]
    return b"".join(parts)


def effects(values: Callable[[ToolCall], list[str]]) -> list[Any]:
    """Return tools that leak the secrets in answers, receipts and troubles of effects."""
    every = [*CANARIES]
    keyed, unsafe = ReplayClass.IDEMPOTENT_WITH_KEY, ReplayClass.UNSAFE_ON_REPLAY
    troubles: list[Exception] = []

    @tool(replay_class=keyed, external_id="ref", secrets=every)
    async def charge(args: Payment, call: ToolCall) -> Leak:
        found = values(call)
        if len(troubles) < 2:
            troubles.append([NotSent, TransportError][len(troubles)](f"no answer to {found}"))
            raise troubles[-1]
        encoded = [base64.b64encode(f"user:{value}".encode()).decode() for value in found]
        return Leak(ref=found[0], texts=[*found, *encoded, CONTROL], more={found[1]: {"deep": found[2]}})

    @tool(replay_class=keyed, answers_later=True, output=Done, secrets=every)
    async def later(args: Payment, call: ToolCall) -> Pending:
        return Pending(receipt={"said": values(call)})

    async def hook(args: Payment, call: ToolCall) -> DidNotHappen | None:
        raise RuntimeError(f"the hook saw {values(call)}")

    @tool(replay_class=unsafe, secrets=every, reconcile=hook)
    async def lose(args: Payment, call: ToolCall) -> Leak:
        if len(troubles) == 2:
            troubles.append(NotSent(f"no way to {values(call)}"))
            raise troubles[-1]
        try:
            raise KeyError(*values(call))
        except KeyError as error:
            log.exception("it broke")
            raise TransportError(f"lost {error}") from error

    return [charge, later, lose]


def leaky(seen: list[str]) -> Any:
    """Return an agent whose tools leak the three secrets in each way that a tool has."""

    def values(call: ToolCall) -> list[str]:
        found = [call.secret(name) for name in CANARIES]
        seen.extend(found)
        for value in found:
            log.warning("%s: calling with %s", call.tool, value)
        return found

    charge, later, lose = effects(values)

    @tool(replay_class=ReplayClass.PURE, secrets=[*CANARIES])
    def refuse(args: Payment, call: ToolCall) -> Leak:
        found = values(call)
        raise BusinessFailure(f"refused {found}", details={"said": found, found[0]: 1})

    @tool(replay_class=ReplayClass.PURE)
    async def chosen(args: Payment, call: ToolCall) -> Leak:
        seen.append(call.secret(args.token))
        return Leak(ref=call.secret(args.token))

    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, gate=Gate("finance_po", "always", headline=lambda a: a.note))
    async def gated(args: Payment, call: ToolCall) -> Leak:
        return Leak(ref="x")

    async def first(state: Notes, ctx: Context) -> str:
        leak = await ctx.call(charge, Payment(note="pay"))
        ctx.log(f"charged {leak}")
        refused = ""
        try:
            await ctx.call(refuse, Payment())
        except ToolFailure as no:
            refused = f"{no} {no.details}"
        other = await ctx.call(chosen, Payment(token=Secret("of-file")))
        state.seen += [leak.model_dump(), refused, other.ref]
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        text = str(state.seen)
        await ctx.call(gated, Payment(note=text[:100]), evidence=[Evidence("text", "Seen", text)], why=text)
        await ctx.gather(ctx.call(later, Payment()), ctx.call(lose, Payment()), return_exceptions=True)
        return End(state.seen)

    return agent_of(first, second, tools=[charge, refuse, chosen, later, lose, gated], name="leaky")


def crashing(seen: list[str]) -> Any:
    """Return an agent whose tool breaks with a secret in its error."""

    @tool(replay_class=ReplayClass.PURE, secrets=["of-env"])
    def broken(args: Payment, call: ToolCall) -> Leak:
        seen.append(call.secret("of-env"))
        return {"ref": [call.secret("of-env")]}  # type: ignore[return-value]

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(broken, Payment())
        return End()

    return agent_of(node, tools=[broken], name="crashing")


def test_canaries_are_found_nowhere(
    stage: Stage, canaries: None, tmp_path: Path, caplog: pytest.LogCaptureFixture, client: Any
) -> None:
    seen: list[str] = []
    listening = psycopg.connect(dsn(name="frames"), autocommit=True)
    listening.execute("LISTEN durableagents_live")
    run, other = stage.start(leaky(seen)), stage.start(crashing(seen))
    stage.settle(other)
    assert fresh(other).state == "failed"
    assert stage.settle(run) == "parked"
    stage.decide(run)
    assert stage.settle(run) == "parked"
    stage.send_told()
    assert {"ToolOutcomeUnknown", "ToolAccepted", "ToolNotDispatched", "ToolFailed"} <= set(kinds(run))
    assert set(seen) == set(CANARIES.values()), "the tools had the values"

    dump = all_tables()
    assert CONTROL.encode() in dump, "it is searched in the clear"
    assert dump.count(b"secret://of-command") > 10
    assert found_in(dump) == []
    assert found_in(b"".join(str(codec.unpack(each.sealed)).encode() for each in Event.objects.all())) == []
    assert found_in(b"".join(map(bytes, Checkpoint.objects.values_list("state", flat=True)))) == []
    assert found_in(caplog.text.encode()) == [] and "calling with secret://of-file" in caplog.text
    frames = [each.payload.encode() for each in listening.notifies(timeout=0.5)]
    listening.close()
    assert frames and found_in(b"".join(frames)) == []

    olga = person("olga", "operator", "auditor", is_superuser=True, is_staff=True)
    api = Api(issue_key(olga, "test"))
    client.force_login(olga)
    answers = [
        api.get(f"runs/{each.pk}{path}") for each in (run, other) for path in ("", "/events", "/ledger", "/waits")
    ]
    answers += [api.get("approvals"), api.get("waits")]
    pages = [client.get(f"/runs/{each.pk}", follow=True) for each in (run, other)] + [client.get("/inbox", follow=True)]
    text = b"".join(each.content for each in answers + pages)
    assert CONTROL.encode() in text and b"secret://of-file" in text and found_in(text) == []

    export(tmp_path / "kept", ExportOptions(limit=50, since=database_now() - timedelta(days=1), payloads="full"))
    kept = b"".join(path.read_bytes() for path in (tmp_path / "kept").iterdir())
    assert b"secret://of-file" in kept and found_in(kept) == []
    assert verify(run.id).problems == [] and verify(other.id).problems == []


def test_a_missing_secret_is_an_outage_that_ends_with_its_return(
    stage: Stage, canaries: None, tmp_path: Path, outside: Outside
) -> None:
    """Nothing is sent, also of an unsafe call, and nobody is asked."""

    @tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, secrets=["of-file"])
    async def mail(args: Item, call: ToolCall) -> Done:
        assert call.secret("of-file") in (CANARIES["of-file"], "another one")
        return await outside.take_async("mail", args, call)

    async def node(state: Notes, ctx: Context) -> End:
        one = await ctx.call(mail, Item(name="a"))
        two = await ctx.call(mail, Item(name="b"))
        return End([one.ref, two.ref])

    agent = agent_of(node, tools=[mail], name="mailer")
    path = tmp_path / "secrets" / "of-file"
    path.rename(tmp_path / "away")
    run = stage.start(agent)
    assert stage.drive() == "parked"
    assert outside.seen("mail") == [] and "ToolOutcomeUnknown" not in kinds(run)
    (wait,) = events(run, e.WaitOpened)
    assert wait.wait == "timer" and f"secret://of-file: command:{tmp_path}/get ended with 1" in str(wait)
    (tmp_path / "away").rename(path)

    def rotate(point: str, name: str) -> None:
        if point == "CP6":
            path.write_text("another one")

    stage.at = rotate
    stage.settle(run)
    assert fresh(run).state == "completed" and len(outside.seen("mail")) == 2
    assert verify(run.id).problems == [] and len(facts(run)) >= 2


def test_a_tool_without_secrets_asks_no_source(outside: Outside) -> None:
    @tool(replay_class=ReplayClass.PURE)
    async def look(args: Item, call: ToolCall) -> Done:
        return Done(ref=str(call.secrets))

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(look, Item(name="a"))).ref)

    story = Story(agent_of(node, tools=[look]), {})
    assert asyncio.run(story.drive()) == "completed" and scrubbing.scrubber is None


def test_the_command_says_where_each_secret_is(canaries: None, tmp_path: Path, capsys: Any) -> None:
    leaky([])
    call_command("secrets")
    out = capsys.readouterr().out
    assert "secret://of-env (charge, later, lose, refuse): env" in out and f"file:{tmp_path}/secrets" in out
    (tmp_path / "secrets" / "of-file").unlink()
    with pytest.raises(CommandError, match="1 of 3 secrets can't be read"):
        call_command("secrets")
    out = capsys.readouterr().out
    assert "MISSING: secret://of-file: " in out and found_in(out.encode()) == []


def test_redacted_fields_are_left_out_of_pages_api_and_exports(stage: Stage, tmp_path: Path, client: Any) -> None:
    iban, name = "DE89370400440532013000", "Grace Hopper"

    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, redact=["ibans", "customer.name"])
    async def transfer_to(args: Order, call: ToolCall) -> Answer:
        return Answer(customer=args.customer)

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(transfer_to, Order(customer=Customer(name=name, ibans=[iban])))
        return End("done")

    run = stage.start(agent_of(node, tools=[transfer_to], name="redacting"))
    stage.settle(run)
    assert iban in str(events(run, e.ToolReturned)[0].payload) and verify(run.id).problems == []
    olga = person("olga", "operator", "auditor")
    api = Api(issue_key(olga, "test"))
    client.force_login(olga)
    export(tmp_path / "kept", ExportOptions(limit=50, since=database_now() - timedelta(days=1)))
    items = [
        api.get(f"runs/{run.pk}/events").content,
        *(client.get(f"/runs/{run.pk}?tab={tab}", follow=True).content for tab in ("timeline", "effects", "journal")),
        b"".join(path.read_bytes() for path in (tmp_path / "kept").iterdir()),
    ]
    assert all(b"41907" in each or b"41,907" in each for each in (items[0], b"".join(items[1:4])))
    assert not any(text.encode() in each for text in (iban, name) for each in items)
    (seq,) = Event.objects.filter(run_id=run.pk, kind="ToolReturned").values_list("seq", flat=True)
    whole = client.get(f"/runs/{run.pk}/events/{seq}/payload")
    assert whole.status_code == 200 and iban.encode() in whole.getvalue(), "a reader of payloads may download it"
    content = api.get(f"runs/{run.pk}/events/{seq}/content").getvalue()
    assert b"kept, as" in content and iban.encode() not in content, "the API leaves out the same as in its list"
    for wrong in ("iban", [""], ["a..b"], [7]):
        with pytest.raises(DefinitionError, match="redact="):
            tool(replay_class=ReplayClass.PURE, redact=wrong)(transfer_to._function)  # type: ignore[arg-type]
