"""Gates: whether a call may leave, freezing its plan, asking people, and turning their yes into a grant for exactly
these bytes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, NoReturn, Protocol, runtime_checkable

from ledger import events as e
from runs.engine.amending import record as amending
from runs.engine.amending.put_anew import detail_of, id_of
from runs.engine.canonical import canonical, printable
from runs.engine.errors import Expired, Rejected
from runs.engine.gate import editable
from runs.engine.journal import ATTENTION, Batch, GateOpening, Grant, WaitSpec, deadline_in
from runs.engine.outcomes import Broken
from runs.engine.steps.logical_call import LogicalCall
from runs.engine.tape import LAPSED, Slot, payload_of
from runs.engine.tools import Evidence, Gate
from runs.engine.visit import Visit

# The label and the source of the evidence that tells of earlier answers and attempts.
HISTORY = ("This call was asked for before", "this run's journal")


async def passed(call: LogicalCall) -> tuple[str, str] | None:
    """The (slot, plan hash) of the grant that the intent will use, or None where no gate stands. Parks while nobody has
    decided; raises Rejected. A further attempt is looked at anew: what went out under a yes goes out again under that
    one only while today's rule asks for no other, and the database sees to it that it is in time."""
    record, gate = call.record, call.tool.gate
    rule = gate if gate is not None and gate.is_needed(call.args) else None
    if record.gate is not None:
        has_lapsed = record.decision is not None and record.decision.verdict == LAPSED
        if has_lapsed or _asks_others(call, rule, record.gate):
            await ask_anew(call)
        if problem := _not_bound(call):
            await ask_anew(call, problem)
        grant = await decided(call.visit, call.slot, record, tool=call.tool.name, arguments=call.arguments)
        return grant.slot, grant.plan_hash
    if call.grant is not None:
        if record.grants and rule is not None and rule.queue != call.grant.queue:
            await ask_anew(call)
        _check_grant(call, call.grant, call.grant.queue if rule is None else rule.queue)
        return call.grant.slot, call.grant.plan_hash
    if rule is not None or record.grants:
        await ask_anew(call)
    return None


def _asks_others(call: LogicalCall, rule: Gate | None, question: e.ApprovalRequested) -> bool:
    """Whether the yes was used by an earlier attempt, and today's rule asks other people, or for another reason."""
    was_used = question.approval_id in {approval_id for _, approval_id in call.record.grants.values()}
    return was_used and rule is not None and (rule.queue, rule.rule_for(call.args)) != (question.queue, question.rule)


def _not_bound(call: LogicalCall) -> str:
    """Why a yes to what a person made of the call doesn't let it through. They may have had no code of the agent's:
    here it is asked, before anything leaves, and what doesn't fit is put to people again."""
    record = call.record
    if amending.arguments_of(record) is None or record.was_invoked:
        return ""
    if record.decision is None or record.decision.verdict != "approved":
        return ""
    return call.misfit or amending.became(record, call.tool.gate, call.args)


def _check_grant(call: LogicalCall, grant: Grant, queue: str) -> None:
    """A yes to another call, or from other people than the tool's own gate asks, lets nothing through."""
    granted, now = (grant.queue, grant.requested_hash), (queue, call.requested_hash)
    if granted != now:
        call.visit.stop(Broken("grant_mismatch", {"slot": call.slot, "granted": granted, "now": now}))
    if is_used(call.visit, grant.slot, besides=call.slot):  # the wait's row says so too, but a row can be set back
        refuse(call, f"the approval of slot {grant.slot} was used by another call")


def refuse(call: LogicalCall, problem: str) -> NoReturn:
    """An operator has to look: something lets through what nobody has approved."""
    call.visit.stop(Broken("approval_missing", {"slot": call.slot, "tool": call.tool.name, "problem": problem}))


async def ask_anew(call: LogicalCall, problem: str = "") -> NoReturn:
    """Put the call to its queue, with what became of it and of every answer so far, and the `problem` with the last
    one.

    The question stands at the call's own place, also where a grant of `ctx.approve` was to let it through: the node
    went on from that answer, so another one can't take its place there.
    """
    visit, tool, question, gate = call.visit, call.tool, call.record.gate, call.tool.gate
    given = visit.tape.slot(call.grant.slot) if call.grant is not None else None
    earlier = question or (given.gate if given is not None else None)
    queue, rule, headline, amount = "", "", "", {}
    if gate is not None and (earlier is None or gate.is_needed(call.args)):
        queue, rule, headline = gate.queue, gate.rule_for(call.args), gate.headline_for(call.args)
        amount = gate.amount_for(call.args)
    elif earlier is not None:
        queue, rule = earlier.queue, earlier.rule
    elif call.grant is not None:
        queue, rule = call.grant.queue, f"{visit.node} asks {call.grant.queue}"
    plan = plan_of(
        visit, call.slot, queue=queue, rule=rule, tool=tool.name, arguments=call.arguments, title=tool.title,
        effect=tool.effect, headline=headline, evidence=call.evidence,
    )  # fmt: skip
    if earlier is not None:
        plan |= {name: earlier.payload[name] for name in ("title", "effect", "headline", "evidence")}
        amount = amount or {name: earlier.payload[name] for name in ("amount",) if name in earlier.payload}
    # A gate that declares neither has the plan that it had before there were such.
    plan |= amount | ({} if gate is None else editable.told(gate.editable, tool.input))
    await open_gate(
        visit, call.slot, with_history(plan, call.record, given, problem), requested_hash=call.requested_hash,
        why=call.why, within=ATTENTION if gate is None else gate.within, n=0 if question is None else question.n + 1,
    )  # fmt: skip


def plan_of(
    visit: Visit,
    slot: str,
    *,
    queue: str,
    rule: str,
    tool: str,
    arguments: Any,
    title: str,
    effect: str,
    headline: str,
    evidence: Sequence[Evidence],
) -> dict[str, Any]:
    """All that a decision binds, as plain data: who would do what, exactly how, by which rule, on what evidence."""
    shown = [x.as_json() for x in evidence]
    title, effect, rule, headline, shown = printable([title, effect, rule, headline, shown])
    return {
        "agent": visit.agent.graph_id, "run_id": visit.run_id, "slot": slot, "queue": queue, "rule": rule,
        "tool": tool, "arguments": arguments, "title": title, "effect": effect, "headline": headline, "evidence": shown,
    }  # fmt: skip


def with_history(plan: dict[str, Any], record: Slot, given: Slot | None, problem: str = "") -> dict[str, Any]:
    """A plan that says first, if this call was asked about or made before, what was answered and what came of it:
    whoever decides binds that too. `given` is the slot whose grant was passed to the call, `problem` why the last yes
    let nothing through."""
    unused = "the call was not made under it" if problem else "it expired before the call was made"
    known = [*(() if given is None else _answers(given, record, unused)), *_answers(record, record, unused)]
    history = [*known, *_attempts(record)]
    history += [amending.in_words(event) for event, _ in record.amended]
    history += [f"Nothing was sent, and it is asked again: {problem}."] if problem else []
    evidence = [x for x in plan["evidence"] if (x["label"], x["source"]) != HISTORY]
    if history:
        label, source = HISTORY
        evidence.insert(0, Evidence(label, source, printable(history)).as_json())
    return plan | {"evidence": evidence}


def _answers(gate: Slot, record: Slot, unused: str) -> list[str]:
    """What people said, and whether the call ever went out under it, or else why not."""
    lines = []
    for decision in gate.decisions:
        used = [str(n) for n, (_, approval_id) in record.grants.items() if approval_id in ("", decision.approval_id)]
        if decision.verdict == "approved":
            what = f"attempt {', '.join(used)} went out under it" if used else unused
            lines.append(f"Approved by {decision.by} (approval {decision.approval_id}): {what}.")
        else:
            lines.append(f"{decision.verdict.capitalize()} by {decision.by} (approval {decision.approval_id}).")
    return lines


def _attempts(record: Slot) -> list[str]:
    """What became of the call so far."""
    lines = []
    for n, attempt in sorted(record.attempts.items()):
        if attempt.intent is None and attempt.result is None:
            continue
        what = "its outcome is not on record"
        if isinstance(attempt.result, e.ToolFailed):
            what = f"the other side refused it: {attempt.result.code}: {payload_of(attempt.result).get('message', '')}"
        elif attempt.reconciled is not None:
            reason = payload_of(attempt.reconciled).get("justification", "")
            verdict = attempt.reconciled.verdict.replace("_", " ")
            what = f"{attempt.reconciled.by} found: {verdict}{f': {reason}' if reason else ''}"
        lines.append(f"Attempt {n}: {what}.")
        if attempt.testimony is not None or attempt.is_called_back_late:
            lines.append(f"Attempt {n}: an answer that came later says that it did happen.")
    return lines


async def open_gate(
    visit: Visit, slot: str, plan: dict[str, Any], *, requested_hash: str, why: str, within: timedelta, n: int = 0
) -> NoReturn:
    """Put the question to its queue and park. Always unwinds. `n` counts how often the slot has asked before."""
    await must_be_known(visit, slot, plan["queue"], visit.runtime.queues, "queues")
    deadline = deadline_in(visit.journal.now(), within)
    approval_id = id_of(visit.run_id, slot, n)
    plan_hash = visit.runtime.hasher(plan)
    question = e.ApprovalRequested(
        slot=slot, payload=plan, approval_id=str(approval_id), queue=plan["queue"], tool=plan["tool"],
        requested_hash=requested_hash, plan_hash=plan_hash, rule=plan["rule"], deadline=deadline.isoformat(), n=n,
    )  # fmt: skip
    wait = WaitSpec(visit.run_id, slot, 0, "approval", n, deadline, detail_of(plan, approval_id))
    gate = GateOpening(
        approval_id, plan["queue"], plan["tool"], plan["title"], plan["effect"], plan["rule"],
        canonical(plan), plan_hash, plan["evidence"], printable(why), visit.created.by,
    )  # fmt: skip
    await visit.commit(Batch([question], wait=wait, gate=gate))
    visit.park(wait)


@runtime_checkable
class Learning(Protocol):
    """Who may be asked, where that changes while a worker lives: it is read anew before it refuses anybody."""

    async def learn(self, name: str) -> None: ...


async def must_be_known(visit: Visit, slot: str, name: str, known: Collection[str] | None, what: str) -> None:
    """To ask people who don't exist is to wait for a deadline: an operator hears of it at once, with who could be
    asked."""
    if known is not None and isinstance(known, Learning):
        await known.learn(name)
    if known is not None and name not in known:
        problem = f"{name!r} is asked, whom nobody answers for: the {what} are {', '.join(sorted(known)) or 'none'}"
        visit.stop(Broken("unknown_queue", {"slot": slot, "queue": name, "known": sorted(known), "problem": problem}))


async def decided(visit: Visit, slot: str, record: Slot, *, tool: str, arguments: Any) -> Grant:
    """The grant of an approved gate for what is about to be sent now. Parks if undecided; raises Rejected if denied.

    The plan is hashed again with the arguments in hand: if they are not what was approved, the grant won't fit its wait
    and the database refuses the intent. What the wait says is not believed, since whoever may write to the database can
    write there too: the decision, whose code was checked when it was read, must name this question and these very
    bytes. A yes that lapsed is asked for again.
    """
    question, decision = record.gate, record.decision
    assert question is not None
    if decision is None:
        visit.park(WaitSpec(visit.run_id, slot, 0, "approval", question.n, visit.journal.now()))
    if decision.verdict == LAPSED and not is_used(visit, slot):
        await open_gate(
            visit, slot, question.payload, requested_hash=question.requested_hash, why="", within=ATTENTION,
            n=question.n + 1,
        )  # fmt: skip
    if decision.verdict not in ("approved", LAPSED):
        reason = (decision.payload or {}).get("justification") or "no decision before the deadline"
        denied = Expired if decision.verdict == "expired" else Rejected
        raise denied(question.queue, reason, decision.by, decision.verdict)
    plan_hash = visit.runtime.hasher({**question.payload, "tool": tool, "arguments": arguments})
    bound, now = (decision.approval_id, decision.n, decision.plan_hash), (question.approval_id, question.n, plan_hash)
    if bound != now:
        problem = "the decision is about another question, or about other bytes than are to be sent"
        payload = {"slot": slot, "tool": tool, "problem": problem, "decided": bound, "now": now}
        visit.stop(Broken("approval_missing", payload))
    return Grant(slot, question.approval_id, plan_hash, question.requested_hash, decision.by, question.queue)


def is_used(visit: Visit, slot: str, *, besides: str = "") -> bool:
    """Whether a call went out under this slot's grant, other than the one at `besides`, which may go out anew."""
    intents = (a.intent for name, known in visit.tape.slots.items() if name != besides for a in known.attempts.values())
    return any(isinstance(x, e.ToolInvoked) and x.grant == slot for x in intents)
