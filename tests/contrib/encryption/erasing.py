"""A run with content in every place that keeps some, and what a thief with all keys can read of a dump."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.db import connection

from approvals.models import Approval
from approvals.services import decide
from durableagents import Context, End
from durableagents.contrib.casework import inquiries
from ledger.codec import unpack
from ledger.models import Event
from runs.models import Checkpoint, Run
from runs.services import lifecycle
from tests.integration.approvals.setup import somebody
from tests.integration.runs.stage import Stage
from tests.papers import text
from tests.world import OLGA, SHOP, Item, Notes, Toolbox, agent_of

CANARY = "Kanarienvogel"


def filled(stage: Stage, tools: Toolbox, name: str = "") -> Run:
    """Return a run that has ended, with the canary in its input, arguments, result, state, log, progress, documents,
    question, inquiry, reasons and attributes of what people did."""
    assert tools.pay.gate is not None
    paper = text(f"{CANARY} {name}")
    # External ids are metadata, and the system of this test makes them of names.
    pay = replace(tools.pay, external_id="", gate=replace(tools.pay.gate, headline=lambda args: f"Pay {args.name}"))

    async def first(state: Notes, ctx: Context) -> Any:
        ctx.log(f"about {state.asked.text}")
        ctx.progress(1, 2, f"for {state.asked.text}")
        await ctx.call(tools.look, Item(name=state.asked.text))
        done = await ctx.call(pay, Item(name=state.asked.text, amount=2000), documents=[paper])
        state.seen.append(f"{state.asked.text} {done.ref}")
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        return End({"told": state.asked.text})

    agent = agent_of(first, second, tools=[tools.look, pay])
    run = lifecycle.start(agent.graph_id, {"text": f"{CANARY}{name}", "amount": 7}, by=SHOP)
    lifecycle.pause(run.pk, by=OLGA, justification=f"Wait for {CANARY}")
    lifecycle.resume(run.pk, by=OLGA, justification=f"Go on with {CANARY}")
    stage.settle(run)
    stage.send_told()
    case = Approval.objects.get(run=run, state="open")
    fiona, ira = somebody("fiona", "approver_finance"), somebody("ira", "integrator")
    row = inquiries.ask(case.id, to="ira", question=f"Who is {CANARY}?", by=fiona)
    inquiries.answer(case.id, row.n, answer=f"{CANARY} is a customer.", by=ira)
    decide(case.id, verdict="approve", plan_hash=case.plan_hash, justification=f"I know {CANARY}", by=fiona)
    stage.settle(run)
    return Run.objects.get(pk=run.pk)


def dumped() -> dict[str, bytes]:
    """Return what `COPY` writes of each table."""
    connection.ensure_connection()
    link: Any = connection.connection
    rows = link.execute("SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace")
    found = {}
    for (table,) in rows.fetchall():
        with link.cursor() as cursor, cursor.copy(f'COPY public."{table}" TO STDOUT') as copy:
            found[table] = b"".join(bytes(part) for part in copy)
    return found


def found_in(dump: dict[str, bytes], word: str = CANARY) -> list[str]:
    """Return the tables in which the word is, in the clear or as hexadecimal bytes."""
    sought = [each.encode() for each in (word, word.lower(), word.encode().hex(), word.lower().encode().hex())]
    return sorted(table for table, rows in dump.items() if any(each in rows for each in sought))


def read_with_all_keys(run: Run) -> list[Any]:
    """Return all payloads and states of a run that can be decrypted with the installation's keys."""
    packed = [*Event.objects.filter(run_id=run.pk).values_list("sealed", flat=True)]
    packed += [*Checkpoint.objects.filter(run_id=run.pk).values_list("state", flat=True)]
    read = []
    for each in packed:
        try:
            read.append(unpack(each))
        except ValueError:
            continue
    return [each for each in read if each is not None]
