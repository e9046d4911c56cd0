"""Start a run again from its input, after a person has decided about each of its effects.

A damaged record may be incomplete, so the new run asks before each further call with an effect. Rows without
matching events prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from psycopg.rows import TupleRow
from pydantic import ValidationError

from durableagents.contrib.forks import unknown_outcomes
from durableagents.contrib.forks.forking import as_json, begin, create, migrate_state
from durableagents.contrib.forks.points import MAX_EVENTS, effects_of_continuations, moment, refusal
from durableagents.contrib.forks.unknown_outcomes import find_unknown
from ledger import events as e
from ledger.actors import Actor
from ledger.append import justified
from ledger.erasure import erased
from ledger.errors import IllegalTransition, InvalidInput, RecordDamaged
from ledger.models import Head, LedgerEntry
from runs.engine.agents import Agent, registry
from runs.engine.budget import Budget
from runs.engine.canonical import plain
from runs.engine.continuation import HANDOFF
from runs.engine.errors import JournalBroken
from runs.engine.forks import (
    CHILD,
    COMMITTED,
    COUNTS,
    DID_NOT,
    HAPPENED,
    OPEN,
    START_AGAIN,
    Evidence,
    Fork,
    ForkRecord,
    Place,
    child_tool,
    evidence_of,
)
from runs.engine.steps.forks import AGAIN
from runs.engine.tape import payload_of
from runs.journal.reader import EVERY, checked, forked_of
from runs.models import ENDED, Run
from runs.services import lifecycle, related_runs
from runs.services.calls import tool_here
from runs.services.command import Act
from runs.services.settling.senders import MayStillSend
from runs.services.starts import keys

NOT_GIVEN: Any = object()
MAX_PROBLEMS = 50


def attest_repeat(run: Run, wait_opened: e.WaitOpened, given: Any, now: datetime) -> str:
    """Return what an answer confirms about the senders of effects that the run may repeat; "" if nothing.

    `given` is an answer to the question `wait_opened`; `now` is the database's clock. Raises IllegalTransition,
    RecordDamaged.
    """
    if given.get("decision") != AGAIN:
        return ""
    try:
        forked = forked_of(run.pk)
    except JournalBroken as broken:
        raise RecordDamaged(run.pk, f"an intact journal ({broken})") from broken
    effects = [] if forked is None else [x for x in Fork(forked).effects if _is_meant(run, wait_opened, x)]
    try:
        words = [
            # The person who answers is shown that a started run is still active, and decides with that knowledge.
            replace(find_unknown(effect, effects_of), at_work=[]).attested(
                now=now, is_attested=bool(given.get("sender_is_gone"))
            )
            for effect in effects
        ]
    except MayStillSend as why:
        raise IllegalTransition("do it again", str(run.state), str(why)) from why
    return ", ".join(dict.fromkeys(word for word in words if word))


def _is_meant(run: Run, wait_opened: e.WaitOpened, effect: Evidence) -> bool:
    """Return whether the call might repeat this effect.

    It might if the tool is the same, if the effect's tool no longer exists, or if both are child runs.
    """
    call = payload_of(wait_opened).get("call")
    if effect.counts_as == DID_NOT:
        return False
    if effect.tool.startswith(f"{CHILD}:"):
        return bool(call == CHILD)
    return effect.tool == call or tool_here(run, effect.tool) is None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A person's verdict on one effect.

    `sender_is_gone` confirms that its sender no longer runs, if it was given up without proof of that.
    """

    slot: str
    attempt: int
    counts_as: str
    run: str = ""
    result: Any = NOT_GIVEN
    sender_is_gone: bool = False


@dataclass(frozen=True, slots=True)
class StartAgainRequest:
    """A requested start from a run's input. `input` replaces a recorded input that can't be trusted."""

    audit: Sequence[Verdict] = ()
    version: str = ""
    input: Any = NOT_GIVEN
    budget: Budget | None = None


@dataclass(frozen=True, slots=True)
class Remains:
    """The readable parts of a run. If there are `problems` in its record, parts of it may be missing."""

    created: e.RunCreated | None
    effects: list[Evidence]
    problems: list[str]
    fences_all: bool
    begins: e.RunCarriedOn | None = None  # set for a run that continues another one with its node and state


def read_remains(run: Run) -> Remains:
    """Read what is left of a run's record, however damaged.

    Raises Erased, and InvalidInput if the record is too large.
    """
    if run.erased_at is not None:
        raise erased(run.pk)
    with connection.cursor() as cursor:
        cursor.execute(EVERY, [run.pk, MAX_EVENTS + 1])
        rows = cursor.fetchall()
    if len(rows) > MAX_EVENTS:
        raise refusal("run", f"has more than {MAX_EVENTS} events", "fork it at a late visit")
    problems: list[str] = []
    sound_events = list(_sound(run, rows, problems))
    events = [event for *_, event in sound_events]
    first = next((x for seq, _, x in sound_events if seq == 1 and isinstance(x, e.RunCreated)), None)
    forked = next((Fork(x) for x in events if isinstance(x, e.RunForked)), None)
    known = evidence_of(str(run.pk), sound_events, lambda name: tool_here(run, name))
    effects = [*(forked.effects if forked else ()), *_with_rows(run, known, events)]
    is_partial = bool(problems) or (forked is not None and forked.told.fences_all)
    try:
        later, is_open = effects_of_continuations(run)
    except JournalBroken as broken:
        later, is_open = [], True
        problems.append(f"of the run that continued it: {broken}")
    is_partial |= is_open and run.state in ENDED
    is_partial |= bool(related_runs.find_related_runs(run))
    begins = next((x for x in events if isinstance(x, e.RunCarriedOn) and x.node), None)
    return Remains(first, [*effects, *later], problems[:MAX_PROBLEMS], is_partial, begins)


def _sound(run: Run, rows: Sequence[TupleRow], problems: list[str]) -> Iterator[ForkRecord]:
    """Yield each event with a valid code, even if events next to it are damaged. Adds problems to `problems`."""
    last, prev = 0, b""
    for row in rows:
        seq, prev_hash = row[0], bytes(row[9])
        if seq != last + 1:
            problems.append(f"events {last + 1} to {seq - 1} are missing")
        elif seq > 1 and prev_hash != prev:
            problems.append(f"event {seq} does not follow event {last}")
        last, prev = seq, bytes(row[10])
        try:
            _, event = checked(run.pk, row)
        except JournalBroken as broken:
            problems.append(str(broken))
            continue
        yield seq, moment(row), event
    committed = Head.objects.values_list("seq", flat=True).get(pk=run.pk)
    if last < committed:
        problems.append(f"events {last + 1} to {committed} are missing")


def _with_rows(run: Run, known: list[Evidence], events: Iterable[e.Event]) -> Iterator[Evidence]:
    """Yield the effects, including those known only from the ledger or from rows of runs."""
    rows: dict[tuple[str, int], list[LedgerEntry]] = {}
    for row in LedgerEntry.objects.filter(run_id=run.pk).order_by("id"):
        rows.setdefault((row.slot, row.attempt), []).append(row)
    for effect in known:
        facts = rows.get((effect.slot, effect.attempt), [])
        named = next((row.external_id for row in facts if row.external_id), None)
        is_rows_word = effect.outcome == OPEN and any(row.fact == "committed" for row in facts)
        yield replace(effect, external_id=effect.external_id or named, is_verified=not is_rows_word)
    intents = {(x.slot, x.attempt) for x in events if isinstance(x, (e.ToolInvoked, e.ChildStarted))}
    for place, facts in rows.items():
        pending = next((row for row in facts if row.fact == "pending"), None)
        if pending is not None and place not in intents:
            yield Evidence(
                run=str(run.pk),
                slot=pending.slot,
                attempt=pending.attempt,
                tool=pending.tool,
                requested_hash=pending.input_hash or "",
                at=pending.at.isoformat(timespec="seconds"),
                outcome=OPEN,
                external_id=next((row.external_id for row in facts if row.external_id), None),
                is_verified=False,
            )
    for child in Run.objects.filter(parent=run.pk).order_by("created_at"):
        if (child.parent_slot, child.parent_attempt) not in intents and child.came_from is None:
            yield Evidence(
                run=str(run.pk),
                slot=child.parent_slot,
                attempt=child.parent_attempt,
                tool=child_tool(child.agent),
                requested_hash="",
                at=child.created_at.isoformat(timespec="seconds"),
                outcome=OPEN,
                external_id=str(child.pk),
                is_verified=False,
            )


@transaction.atomic
def start_again(
    run_id: UUID, request: StartAgainRequest, *, by: Actor, justification: str, most: Budget | None = None
) -> Run:
    """Start a new run from this one's input, and cancel this one if it hasn't ended.

    After an error nothing has changed. Raises NotFound, Forbidden, JustificationRequired, IllegalTransition, KeyTaken,
    VersionClosed, VersionChanged, and InvalidInput, which names each effect without a verdict.
    """
    run = lifecycle.find(run_id)
    if run.goes_on_as is not None:
        newest = run.successors().last() or run
        raise IllegalTransition(
            "start again", str(run.state), f"It was continued as run {newest.pk}. Start that one again."
        )
    if run.parent is not None and not run.is_told:
        raise IllegalTransition(
            "start again", str(run.state), f"Its parent {run.parent} waits for it. Start the parent again."
        )
    if run.business_key:
        keys.lock(run.agent, run.business_key)  # locked before any head
    justified("start_again", justification)  # before the cancellation, which locks it in its own name
    if run.state not in ENDED:
        lifecycle.cancel(run_id, by=by, justification=justification, effects="leave")
    act = begin("start_again", run_id, run.business_key, by=by, justification=justification)
    if act.run.state not in ENDED:
        raise act.refuse("It is still ending. Cancel it, settle its open waits, and start it again when it has ended.")
    found = read_remains(act.run)
    agent = registry.find(f"{run.agent}@{request.version or run.version}")
    given = _input(found, request)
    node, state = _beginning(act.run, agent, found)
    audited, gone = _apply_audit(agent, found.effects, request.audit, act)
    forked = e.RunForked(
        origin=str(run_id),
        how=START_AGAIN,
        by=by.ref,
        visit=0,
        at_seq=0,
        node=node,
        effects=len(found.effects),
        fences_all=found.fences_all,
        payload=act.payload | state | {"effects": as_json(audited)} | ({"attested": gone} if gone else {}),
    )
    return create(act, agent, forked, given, run.business_key, budget=request.budget, most=most)


def _beginning(run: Run, agent: Agent, found: Remains) -> tuple[str, dict[str, Any]]:
    """Return the node and the state with which a continuation began.

    Starting from the input would repeat its predecessors' work.
    """
    before = None if run.came_from is None else Run.objects.filter(pk=run.came_from).first()
    if run.came_from is None or (before is not None and before.goes_on_by == HANDOFF):
        return "", {}
    if found.begins is None:
        problem = f"continued run {run.came_from}, and its beginning can't be read"
        raise refusal("run", problem, "review what all of them did, then start a new run")
    if found.begins.node not in agent.nodes:
        problem = f"of {agent.graph_id} doesn't have node {found.begins.node}, where the run began"
        raise refusal("version", problem, "choose one that has it")
    payload = payload_of(found.begins)
    recorded, _ = migrate_state(agent, run, payload.get("code", ""), payload.get("state"))
    try:
        state = plain(agent.state.model_validate(recorded))
        return found.begins.node, {"state": state, "code": agent.fingerprint()}
    except (ValueError, TypeError) as error:
        problem = f"of {agent.graph_id} does not accept the state that the run began with: {str(error).splitlines()[0]}"
        raise refusal("version", problem, "choose one that does") from error


def _input(found: Remains, request: StartAgainRequest) -> Any:
    """Return the recorded input if it can be trusted, else the given one. Raises InvalidInput."""
    if found.created is not None:
        if request.input is not NOT_GIVEN:
            raise refusal("input", "is on record and sound", "leave it out; for another input, start a run")
        return found.created.payload
    if request.input is NOT_GIVEN:
        raise refusal("input", "can't be read from the record", "send the input")
    return request.input


def _apply_audit(
    agent: Agent, effects: list[Evidence], audit: Sequence[Verdict], act: Act
) -> tuple[list[Evidence], list[str]]:
    """Return the effects with their verdicts, and the attestations.

    Raises InvalidInput, which names each invalid verdict.
    """
    fields: dict[Place, Verdict] = {}
    errors: list[dict[str, str]] = []
    places = {effect.place for effect in effects}
    runs = {effect.run for effect in effects}
    for verdict in audit:
        run = verdict.run or (next(iter(runs)) if len(runs) == 1 else "")
        place = run, verdict.slot, verdict.attempt
        if place not in places:
            errors.append(_error("is not an effect of this run", "see GET …/start-again", *place))
        elif place in fields:
            errors.append(_error("is decided twice", "say it once", *place))
        fields[place] = verdict
    is_for_two, gone = unknown_outcomes.is_for_two(act.by), []
    decided = []
    for effect in effects:
        verdict_on = fields.get(effect.place)
        decided.append(_apply_verdict(agent, effect, verdict_on, act.by, errors))
        if verdict_on is not None and (word := _attest_verdict(effect, verdict_on, act, errors, is_for_two=is_for_two)):
            gone.append(f"{effect.tool} at {effect.slot}: {word}")
    if errors:
        raise InvalidInput(f"{len(errors)} of its effects prevent this: {errors[0]['problem']}.", errors=errors[:100])
    return decided, gone


def _attest_verdict(
    effect: Evidence, verdict: Verdict, act: Act, errors: list[dict[str, str]], *, is_for_two: bool
) -> str:
    """Return what was confirmed about the sender of an unknown outcome, under the rules of the effect's own run.

    Problems are added to `errors`.
    """
    if verdict.counts_as not in (HAPPENED, DID_NOT):
        return ""
    named = f"{effect.tool} ({effect.external_id or effect.slot})"
    found = find_unknown(effect, effects_of)
    is_new = verdict.result is not NOT_GIVEN and not (effect.has_result and effect.result == verdict.result)
    if is_for_two and (found or (verdict.counts_as == HAPPENED and is_new)):
        errors.append(_error(f"{named}: {unknown_outcomes.TWO_PEOPLE}", unknown_outcomes.LEAVE_UNKNOWN, *effect.place))
        return ""
    if verdict.counts_as == HAPPENED:
        return ""
    try:
        return found.attested(now=act.now, is_attested=verdict.sender_is_gone)
    except MayStillSend as why:
        errors.append(_error(f"{named}: {str(why).removesuffix('.')}", "unknown, or what that says", *effect.place))
        return ""


def effects_of(run: Run) -> tuple[list[Evidence], bool]:
    """Return a run's recorded effects, and whether there may be more.

    Raises InvalidInput if the record is too large.
    """
    found = read_remains(run)
    return found.effects, found.fences_all


def _apply_verdict(
    agent: Agent, effect: Evidence, verdict: Verdict | None, by: Actor, errors: list[dict[str, str]]
) -> Evidence:
    named = f"{effect.tool} ({effect.external_id or effect.slot})"
    if verdict is None or verdict.counts_as not in COUNTS:
        errors.append(_error(f"{named} is not decided", f"one of {', '.join(COUNTS)}", *effect.place))
        return effect
    counted = replace(effect, counts_as=verdict.counts_as, by=by.ref)
    if verdict.counts_as == DID_NOT and effect.outcome == COMMITTED and effect.is_verified:
        errors.append(_error(f"{named} is recorded as done", "happened, or unknown", *effect.place))
    if verdict.counts_as != HAPPENED:
        return counted
    if verdict.result is NOT_GIVEN and not effect.has_result:
        errors.append(_error(f"{named}: its result is not in the record", "give its result", *effect.place))
        return counted
    result = effect.result if verdict.result is NOT_GIVEN else verdict.result
    tool = None if effect.tool.startswith(f"{CHILD}:") else agent.tool(effect.tool)
    try:
        return replace(
            counted, has_result=True, result=plain(result if tool is None else tool.output.model_validate(result))
        )
    except (ValidationError, ValueError, TypeError) as error:
        problem = str(error).splitlines()[0]
        errors.append(_error(f"{named}: its result is invalid: {problem}", "give one that does", *effect.place))
        return counted


def _error(problem: str, fix: str, run: str, slot: str, attempt: int) -> dict[str, str]:
    return {"field": f"audit.{slot}.{attempt}", "problem": f"{problem} (run {run})", "fix": fix}
