"""The people and the outside of a light schedule, acting through the real services."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from django.db import connection

from approvals.models import Approval
from ledger.codec import read_clear
from ledger.errors import DurableAgentsError, IllegalTransition, InvalidInput, NotFound
from ledger.models import Event, LedgerEntry
from runs.engine.budget import Budget
from runs.models import Run, Wait
from runs.services import callbacks, lifecycle, questions, related_runs, signals
from runs.services.budgets.asked import budget_wait_text
from runs.services.budgets.raising import set_budget
from runs.services.families import wishes
from runs.services.messages import sending
from runs.workers import timers
from tests.system.crash.forked import AGAIN
from tests.system.crash.handed import is_handing
from tests.system.crash.light.asked import Asked, is_asked
from tests.system.crash.light.changing import Changing, may_be_changed
from tests.system.crash.light.crew import Crew
from tests.system.crash.light.granting import Granting, may_be_again
from tests.system.crash.light.handing import give_back, hand
from tests.system.crash.light.outside import Outside
from tests.system.crash.light.plan import Schedule
from tests.system.crash.light.settling import Settling
from tests.system.crash.light.sharing import Sharing
from tests.system.crash.light.shown import Shown
from tests.system.crash.light.together import at_once
from tests.system.crash.light.votes import Voters
from tests.system.crash.policed import QUEUE
from tests.system.crash.steps import GATHERED, raised
from tests.system.crash.truth import has_happened
from tests.world import FIONA, FRANK, LENA, LEO, OLGA, SHOP

ENDED = ("completed", "cancelled", "failed")
# By then a mail under way when its sender died has arrived, or never will.
SETTLING_SECONDS = 1.0
_LOOK = """
SELECT r.id::text, r.state, r.parent IS NOT NULL, r.is_told, r.owner IS NULL, w.id, w.kind, w.slot,
       w.attempt, coalesce(w.detail->>'tool', w.detail->>'name'),
       extract(epoch FROM w.deadline - clock_timestamp())::float
FROM runs_run r LEFT JOIN runs_wait w ON w.run_id = r.id AND w.resolved_at IS NULL
WHERE r.id = ANY(%s::uuid[]) OR r.parent = ANY(%s::uuid[])
OR r.parent IN (SELECT c.id FROM runs_run c WHERE c.parent = ANY(%s::uuid[]))"""
WHY = "The schedule says so."


class People:
    def __init__(self, outside: Outside, schedule: Schedule, ids: list[str], sharing: Sharing) -> None:
        self._outside, self._schedule, self._ids, self._sharing = outside, schedule, ids, sharing
        self.shown = Shown(schedule.manners)
        self._race, self._voters = list(schedule.race), Voters(schedule.words, self.shown)
        self._in_time = Asked(schedule.answers, self.shown)
        self._changing = Changing(schedule.changes, self.shown)
        self._granting = Granting(schedule.grants, self.shown)
        self._settling = Settling(schedule.seed)
        self._asked_at: dict[UUID, float] = {}
        self._late: list[tuple[str, Any]] = []
        self._said: set[str] = set()
        self.verdicts: list[str] = []
        self.cancelled: set[str] = set()
        self.is_waiting_for_zombies = False
        # Runs that ended for good; that were forked; that failed and can't be retried because of a competing run; and
        # the answers to forks' questions, by fork.
        self.ended: set[str] = set()
        self.begun_again: set[str] = set()
        self.left: set[str] = set()
        self._words: dict[str, tuple[str, ...]] = {}
        self._asked: dict[str, list[UUID]] = {}

    def also(self, ids: list[str]) -> None:
        self._ids = [*self._ids, *ids]

    def also_fork(self, run_id: str, words: tuple[str, ...]) -> bool:
        """Look after a fork, with these verdicts in turn. Return False if it is known already."""
        if run_id in self._words:
            return False
        self.also([run_id])
        self._words[run_id] = words
        return True

    def attend(self, crew: Crew) -> tuple[bool, float]:
        """Give every run what it needs from people now. Return whether all have ended, and when to look again."""
        if "wall_seconds" in self._schedule.budget:
            timers.ask_for_time()
        with connection.cursor() as cursor:
            cursor.execute(_LOOK, [self._ids] * 3)
            rows = cursor.fetchall()
        self.is_waiting_for_zombies = False
        seconds, acted = 1.0, self._look_after_families(rows)
        for run_id, state, is_child, _, is_free, wait_id, kind, slot, attempt, tool, due in rows:
            if state in ENDED and (is_child or self._is_for_good(run_id, state)):
                self.ended.add(run_id)
                continue
            if self._schedule.talks and kind not in (None, "message") and not is_child:
                acted |= self._say(run_id, wait_id, 1)
            if state == "failed" or kind == "operator":
                acted |= self._retry(run_id, state)
            elif kind == "budget":
                acted |= self._raise(run_id, wait_id)
            elif kind == "pool" and state != "paused":
                acted |= self._sharing.give(wait_id)
                seconds = min(seconds, 0.05)
            elif state == "paused" and is_child:  # it continues with its parent
                acted |= kind is None and self._is_beside(run_id) and self._end(run_id)
            elif state == "paused":
                acted |= self._resume(run_id)
            elif kind == "message":
                self._say(run_id, wait_id, 3)
                acted = True
            elif kind == "approval":
                acted |= self._decide(run_id, wait_id)
                if due <= 0:
                    timers.sweep()
            elif kind == "reconcile" and is_free and state == "waiting_human":
                acted |= self._settle(run_id, wait_id, (slot, attempt, tool), crew)
                seconds = min(seconds, 0.05)
            elif kind in ("signal", "input"):
                self._tell(run_id, wait_id, tool)
                acted = True
            elif kind == "timer":
                seconds = min(seconds, max(due, 0.0))
                if due <= 0:
                    timers.sweep()
                    acted = True
        if acted:
            crew.ring()
        is_over = all(row[3] if row[2] else self._is_for_good(row[0], row[1]) for row in rows)
        if is_over:
            self._deliver_late()
        return is_over, 0.0 if acted else seconds

    def _resume(self, run_id: str) -> bool:
        """Resume it, or end it if a competing run prevents that."""
        if is_handing(self._schedule.seed) and self._try(partial(hand, run_id)):
            return True
        if self._try(partial(lifecycle.resume, UUID(run_id), by=OLGA, justification=WHY)):
            return True
        return self._is_beside(run_id) and self._end(run_id)

    def _retry(self, run_id: str, state: str) -> bool:
        """Retry it; if a competing run prevents that, leave it failed or end it."""
        if self._try(partial(lifecycle.retry, UUID(run_id), by=OLGA, justification=WHY)):
            return True
        if not self._is_beside(run_id):
            return False
        if state != "failed":
            return self._end(run_id)
        self.left.add(run_id)
        return False

    def _is_beside(self, run_id: str) -> bool:
        return bool(self._words) and related_runs.find_competing_run(Run.objects.get(pk=run_id)) is not None

    def _end(self, run_id: str) -> bool:
        """Cancel it together with its top parent."""
        top = Run.objects.get(pk=run_id)
        while top.parent is not None:
            top = Run.objects.get(pk=top.parent)
        return self._try(partial(self.steer, str(top.pk), "cancel"))

    def _is_for_good(self, run_id: str, state: str) -> bool:
        """Return whether a run has ended and nobody may or need retry it."""
        if state != "failed":
            return state in ENDED
        return run_id in self.begun_again or run_id in self.left

    def _look_after_families(self, rows: list[Any]) -> bool:
        """Notify parents and pass cancels down, as the sweeper does after a crash."""
        if not any(is_child for _, _, is_child, *_ in rows):
            return False
        return timers.tell_parents() + wishes.align() > 0

    def _try(self, act: Callable[[], Any]) -> bool:
        """Return True if it was done; a refusal is an answer too."""
        try:
            act()
        except DurableAgentsError:
            return False
        return True

    def steer(self, run_id: str, what: str) -> None:
        """Pause, cancel, or give back. Raises IllegalTransition where it is too late."""
        if what == "cancel":
            self.cancelled.add(run_id)  # noted before, because the answer may get lost
            lifecycle.cancel(UUID(run_id), by=OLGA, justification=WHY, effects="undo")
        elif what == "requeue":
            give_back(run_id)
        else:
            lifecycle.pause(UUID(run_id), by=OLGA, justification=WHY)

    # --- budgets ---

    def _raise(self, run_id: str, wait_id: UUID) -> bool:
        """Raise the budget as requested, three people at once if impatient; the run may soon ask again."""
        question = budget_wait_text(Wait.objects.get(pk=wait_id))
        budget = Budget.model_validate(raised(*(question[name] for name in ("resource", "used", "reserved", "wanted"))))
        act = partial(set_budget, UUID(run_id), budget, by=OLGA, justification=WHY)
        if self._schedule.is_impatient:
            at_once([act] * 3)
            return True
        return self._try(act)

    # --- gates ---

    def _decide(self, run_id: str, wait_id: UUID) -> bool:
        approval = Approval.objects.filter(wait_id=wait_id, state="open").first()
        if approval is None:
            return False
        if may_be_changed(approval):
            return self._changing.act(approval)
        if may_be_again(approval):
            return self._granting.act(approval)
        if is_asked(approval):
            return self._in_time.act(approval)
        if approval.case_id is not None:
            return self._voters.act(approval)
        if not self._race or approval.queue == QUEUE:
            by = LENA if approval.queue == QUEUE else FIONA
            return self._try(self.shown.yes(approval, by))
        acts = [self._act_of_race(run_id, approval, what, n) for n, what in enumerate(self._race)]
        self._race = []
        at_once(acts)
        return True

    def _verdict(self, approval: Approval, verdict: str, n: int) -> Callable[[], Any]:
        return self.shown.word(approval, verdict, (FIONA, FRANK)[n % 2], "whole")

    def _act_of_race(self, run_id: str, approval: Approval, what: str, n: int) -> Callable[[], Any]:
        match what:
            case "cancel":
                return partial(self.steer, run_id, "cancel")
            case "expire":
                left = (approval.deadline - approval.opened_at).total_seconds()
                if left < 1:  # a gate that expires soon: decide just as it does
                    time.sleep(max(0.0, approval.deadline.timestamp() - time.time() - 0.002))
                return timers.sweep
            case _:
                return self._verdict(approval, what, n)

    # --- signals, answers and messages ---

    def tell_early(self) -> None:
        """Send signals before anybody waits for them, which must be kept."""
        for run_id, steps in zip(self._ids, self._schedule.jobs, strict=True):
            for at, step in enumerate(steps, start=1):
                for n, call in enumerate(GATHERED.get(step, (step,))):
                    name = f"step-{100 * at + n if step in GATHERED else at}"
                    if call == "signal":
                        self._try(partial(signals.signal, UUID(run_id), name, "told", by=SHOP, sender_id=name))

    def _tell(self, run_id: str, wait_id: UUID, name: str | None) -> None:
        """Answer three times at once: one answer is taken, the others are repeats or too late."""
        choices = self._choices(wait_id) if name is None else []
        if AGAIN in choices:
            self._consent(run_id, wait_id, choices)
        elif choices:
            fields = {"decision": "leave", "justification": WHY}
            at_once([partial(questions.answer, UUID(run_id), wait_id, fields, by=OLGA)] * 3)
        elif name is None:
            by = (OLGA, LEO, OLGA)  # not Lena: who answered a run's question may not decide its gates
            at_once([partial(questions.answer, UUID(run_id), wait_id, {"id": f"told {n}"}, by=by[n]) for n in range(3)])
        else:
            at_once([partial(signals.signal, UUID(run_id), name, "told", by=SHOP, sender_id=name)] * 3)

    def _choices(self, wait_id: UUID) -> list[str]:
        schema = Wait.objects.get(pk=wait_id).detail["schema"]  # encrypted: SQL can't read it
        return list(schema["properties"].get("decision", {}).get("enum", ()))

    def _consent(self, run_id: str, wait_id: UUID, choices: list[str]) -> None:
        """Decide whether a fork may repeat an effect, with three differing answers at once."""
        setdefault = self._asked.setdefault(run_id, [])
        if wait_id not in setdefault:
            setdefault.append(wait_id)
        words, at = self._words[run_id], setdefault.index(wait_id)
        items = [words[(at + n) % len(words)] for n in (0, 0, 1)]
        items = [word if word in choices else AGAIN for word in items]
        at_once([partial(questions.answer, UUID(run_id), wait_id, {"decision": w}, by=OLGA) for w in items])

    def _say(self, run_id: str, wait_id: UUID, times: int) -> bool:
        """Send one message per wait, this many times at once. Return True if it is new."""
        word = str(wait_id)
        is_new, self._said = word not in self._said, self._said | {word}
        if is_new or times > 1:
            say = partial(sending.send, UUID(run_id), "tell", {"word": word}, by=SHOP, sender_id=word)
            at_once([partial(self._try, say)] * times)
        return is_new

    # --- unknown outcomes ---

    def _settle(self, run_id: str, wait_id: UUID, call: tuple[str, int, str], crew: Crew) -> bool:
        """Settle an unknown call truthfully, once its sender is gone and its requests have arrived."""
        if any(m.is_stopped or m.is_leaving for m in crew.members):
            self.is_waiting_for_zombies = True
            return False
        if self._settling.asks_first(run_id, wait_id):
            return True
        slot, attempt, tool = call
        since = self._asked_at.setdefault(wait_id, time.monotonic())
        ledger = LedgerEntry.objects.filter(run_id=run_id).values("slot", "attempt", "fact", "tool", "key")
        values = Event.objects.filter(run_id=run_id, kind="ToolReconciled").values("kind", "slot", "attempt", "clear")
        events = [row | {"data": read_clear(row["clear"])} for row in values]
        is_done = has_happened(slot, attempt, ledger, events, self._outside.effects(run_id))
        if not is_done and time.monotonic() - since < SETTLING_SECONDS:
            return False
        verdict = "happened" if is_done else "did_not"
        receipt = self._outside.receipt(run_id, tool) if is_done else None
        try:
            is_settled = self._settling.say(run_id, wait_id, verdict, receipt)
        except IllegalTransition as refused:
            # Its worker is parking it; or lives and may still send: then it must be ended first, as the error says.
            for member in crew.members:
                if f"pid {member.pid} " in str(refused):
                    member.signal(signal.SIGKILL)
            return False
        self.verdicts += [verdict] if is_settled else []
        return is_settled

    # --- callbacks ---

    def deliver(self, token: str, body: Any) -> None:
        """Deliver the portal's answer to the run, in the schedule's manner."""
        match self._schedule.callbacks:
            case "twice":
                at_once([partial(callbacks.receive_callback, token, body)] * 3)
            case "forged":
                for forged, answer, refusal in (
                    (token + "x", body, NotFound),
                    (token, {"status": "received"}, InvalidInput),
                ):
                    with suppress(refusal):
                        callbacks.receive_callback(forged, answer)
            case "late":
                self._late.append((token, body))
        callbacks.receive_callback(token, body)

    def _deliver_late(self) -> None:
        """Deliver again, to runs that have ended."""
        late, self._late = self._late, []
        for token, body in late:
            callbacks.receive_callback(token, body)
