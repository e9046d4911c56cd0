"""Where a run stands that something is to be handed to, and what that would make of it. The visit is done again from
what is on record, aside; nothing is changed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction

from ledger.append import locked_head
from ledger.errors import Busy, DurableAgentsError, InvalidInput, RecordDamaged, TooLarge
from ledger.models import Head
from runs.engine.agents import Agent
from runs.engine.errors import JournalBroken, brief
from runs.engine.injecting import Misfit, Patched, Standing, Unfit, patched, stood
from runs.journal.digests import hasher
from runs.models import Run, State, Wait
from runs.services.allowed.rules import stand_of, why_not
from runs.services.command import refusal
from runs.services.injecting.bodies import MOST_BYTES
from runs.services.lifecycle import find
from runs.services.messages.recorded import agent_of
from runs.services.migrating.aside import SECONDS, NotDone, aside
from runs.services.migrating.looking import standing_of

ACTION = "inject"


class CanNotTake(DurableAgentsError):
    """Nothing can be handed to the run where it stands; `reason` names why."""

    status, code, title = 409, "context-refused", "Nothing can be handed to the run"

    def __init__(self, run_id: UUID, reason: str, why: str) -> None:
        super().__init__(f"Nothing can be handed to run {run_id}: {why}.", reason=reason)


@dataclass(frozen=True, slots=True)
class Look:
    """Where a run stands with `seq` as its last event, of the hash `head`; and what a patch makes of its state, where
    there is one."""

    run: Run
    seq: int
    head: str
    agent: Agent
    stands: Standing
    made: Patched | None = None
    message: str = ""


def look(run_id: UUID, *, patch: dict[str, Any] | None = None, message: str | None = None) -> Look:
    """What it would make of a run. Raises NotFound, InvalidInput, TooLarge, CanNotTake, IllegalTransition,
    RecordDamaged, Busy, UnknownAgent, UnknownVersion."""
    with transaction.atomic():
        run = find(run_id)
        head = Head.objects.filter(pk=run_id).first() or locked_head(run_id)  # which says what is missing
        must_stand_still(run, head)
        agent = agent_of(run)
        try:
            created, stands, earlier, seq, is_asked = standing_of(run, head.seq)
        except JournalBroken as broken:
            raise RecordDamaged(run.pk, f"a journal that can be trusted ({broken})") from broken
    if is_asked:
        raise CanNotTake(run_id, "undoing", "it is to undo its effects, and ends then")
    if seq != head.seq:
        raise Busy("The run has moved on while it was looked at")

    def work() -> Standing:
        return asyncio.run(stood(agent, str(run.pk), created, stands, earlier, depth=run.depth, hasher=hasher()))

    try:
        found = aside(work, f"looking at run {run.pk}")
    except NotDone as no:
        raise _not_looked(run_id, agent, no) from no
    made = None if patch is None else _made(agent, found, patch)
    if message is not None:
        _must_be_heard(run_id, agent, found)
    return Look(run, head.seq, bytes(head.chain).hex(), agent, found, made, message or "")


def must_stand_still(run: Run, head: Head) -> None:
    """Raises IllegalTransition where the run's state doesn't allow that anything is handed to it."""
    is_stopped = run.waits.filter(kind=Wait.Kind.OPERATOR, resolved_at__isnull=True).exists()
    kinds = [Wait.Kind.OPERATOR] if is_stopped else []
    stand = stand_of(run, pause_asked=head.is_pause_requested, cancel_asked=head.is_cancel_requested, kinds=kinds)
    if run.state not in State.values:
        raise refusal(_IN_WORDS, run, "")
    if (hint := why_not(ACTION, stand)) is not None:
        raise refusal(_IN_WORDS, run, hint)


_IN_WORDS = "take what somebody hands to it"


def _not_looked(run_id: UUID, agent: Agent, no: NotDone) -> DurableAgentsError:
    if no.code == "busy":
        return Busy(f"Another run was tried for more than {SECONDS:g} s")
    if isinstance(no.broke, Unfit):
        return CanNotTake(run_id, no.broke.code, str(no.broke))
    if no.broke is None:
        return CanNotTake(run_id, "too_slow", f"{agent.graph_id} took more than {SECONDS:g} s to do its visit again")
    return CanNotTake(run_id, "broke", f"{agent.graph_id} broke when it did the visit again: {brief(no.broke)}")


def _made(agent: Agent, found: Standing, patch: dict[str, Any]) -> Patched:
    size = len(json.dumps(patch, ensure_ascii=False).encode("utf-8", "replace"))
    if size > MOST_BYTES:
        raise TooLarge("patch", MOST_BYTES)
    try:
        return patched(agent.state, agent.schema_version, found.state, patch)
    except Misfit as error:
        errors = [{"field": f"context.{field}", "problem": what, "fix": fix} for field, what, fix in error.problems]
        first = errors[0]
        raise InvalidInput(
            f"The patch does not fit the state of {agent.graph_id}: {first['field']} {first['problem']}.", errors=errors
        ) from error


def _must_be_heard(run_id: UUID, agent: Agent, found: Standing) -> None:
    """Words for models need somebody who hears them."""
    if not agent.assistants:
        raise CanNotTake(run_id, "no_models", f"{agent.graph_id} asks no models, so nobody would hear a message")
    if found.is_between:
        why = "it has not entered its next node yet, and a message is for the models of one: resume it first"
        raise CanNotTake(run_id, "no_node", why)
