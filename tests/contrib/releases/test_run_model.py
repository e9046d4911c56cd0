from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from functools import partial
from uuid import UUID, uuid4

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from approvals.models import Approval
from approvals.services import AlreadyDecided, decide
from ledger import events as e
from ledger.errors import StaleLease
from ledger.models import Event
from ledger.verification.runs import verify
from runs.engine.canonical import canonical
from runs.engine.errors import ApprovalMissing, BudgetShort
from runs.engine.journal import Entry, GateOpening, WaitSpec
from runs.engine.outcomes import LateAnswer
from runs.journal.digests import hasher
from runs.journal.postgres import PgJournal
from runs.models import Run, Wait
from runs.services import callbacks, lifecycle, reconciling
from runs.services.fleet import requeue
from runs.services.late_results import lost_worker, record_late_result
from runs.workers import failover, timers
from tests.contrib.casework.talking_model import Talker
from tests.contrib.forks.forking_model import Forker
from tests.contrib.releases.moving_model import beside
from tests.integration.runs.aging import runs_out
from tests.integration.runs.going_on import Going
from tests.integration.runs.model import Model
from tests.integration.runs.sender import Sender
from tests.integration.runs.spender import WHY, now_and_then, owned
from tests.integration.runs.stage import Stage, fresh, head, kinds, now
from tests.integration.runs.undoing_model import Undoer
from tests.tiers import of_a_machine
from tests.world import FIONA, OLGA, Toolbox
from tests.writing import intend, record

CLASSES = {"order": "idempotent_with_key", "mail": "unsafe_on_replay", "ask": "idempotent_with_key"}


def free(machine: Machine) -> bool:
    return owned(machine) and not machine.model.call


def asks_nobody(machine: Machine) -> bool:
    return "reconcile" not in machine.model.waits


def invoked(slot: str, tool: str, attempt: int = 0) -> e.ToolInvoked:
    return e.ToolInvoked(
        slot=slot,
        attempt=attempt,
        tool=tool,
        replay_class=CLASSES[tool],
        requested_hash="h",
        executed_hash="h",
        payload={"arguments": {"name": "x"}},
    )


class Machine(Forker, Going, Sender, Talker, Undoer):
    """Each rule does one thing to the run and to the model, which says what must result."""

    def __init__(self, stage: Stage, tools: Toolbox) -> None:
        super().__init__()
        self.stage, self.versions = stage, beside(tools)
        self.stale: list[PgJournal] = []
        self.start()

    def start(self) -> None:
        self.take(self.stage.start(self.versions["1.0.0"], text="go"), Model())

    def take(self, run: Run, model: Model) -> None:
        self.run = run
        self.model, self.n, self.token, self.slot = model, 0, "", ""
        self.gate: WaitSpec | None = None
        self.denied, self.asked = ("", ""), 0  # the slot and tool of a call that a person declared undone
        self.resolved: list[UUID] = []

    @precondition(lambda self: self.model.has_ended)
    @rule()
    def start_another(self) -> None:
        self.start()

    # --- workers

    @precondition(lambda self: not self.model.is_owned)
    @rule()
    def claim(self) -> None:
        ready = Run.objects.filter(ready_at__isnull=False)
        ready.filter(pk=self.run.pk).update(ready_at=now())  # a delay after deaths passes
        ready.exclude(pk=self.run.pk).update(ready_at=now() + timedelta(days=1))  # nobody takes it any more
        worker = self.stage.hire(is_dead=True)
        assert not self.stage.claim(worker, graphs=[self.other.graph_id]), "who has another version leaves it alone"
        taken = self.stage.claim(worker, graphs=[self.agent.graph_id])
        assert len(taken) == self.model.may_be_claimed
        if taken:
            self.journal = self.stage.journal(taken[0], worker)
            self.model.claim()
            self.begin()

    @precondition(owned)
    @rule()
    def step(self) -> None:
        read = e.ToolRead(
            slot=self.next_slot(), tool="look", requested_hash="h", payload={"arguments": {}, "result": {}}
        )
        reply = self.write(record(self.journal, [read]))
        assert (reply.is_pause_requested, reply.is_cancel_requested) == (
            self.model.wants_pause,
            self.model.wants_cancel,
        )
        self.model.tells("ToolRead")

    @precondition(free)
    @rule(tool=st.sampled_from(sorted(CLASSES)), is_granted=st.booleans())
    def intend(self, tool: str, is_granted: bool) -> None:
        slot, model = self.next_slot(), self.model
        model.tool, found = tool, invoked(slot, tool)
        entry, wait, events = Entry(slot, 0, "pending", tool, CLASSES[tool], key=slot), None, [found]
        if tool == "ask":
            self.token = uuid4().hex
            wait = self.spec("webhook", slot, token_hash=hashlib.sha256(self.token.encode()).digest())
            events.append(e.WaitOpened(slot=slot, wait="webhook", n=0, deadline=wait.deadline.isoformat()))  # type: ignore[arg-type]
        grant = (self.gate.slot, self.plan_hash) if is_granted and self.gate else None
        is_wished = model.wants_pause or model.wants_cancel
        try:
            reply = self.write(intend(self.journal, events, entry=entry, grant=grant, wait=wait))
        except BudgetShort:
            assert model.is_broke and not is_wished
            return
        except ApprovalMissing:
            assert grant and not model.grants and not is_wished
            return
        assert reply.is_done is not is_wished
        if reply.is_done:
            assert not model.is_broke
            assert grant is None or model.grants == 1
            model.grants -= grant is not None
            model.call, self.slot = "sent", slot
            self.became(slot, 0, "open")
            model.waits += ["webhook"] * (wait is not None)
            model.tells(*(event.KIND for event in events))

    @precondition(lambda self: owned(self) and self.model.call == "sent")
    @rule()
    def answer(self) -> None:
        tool, slot = self.model.tool, self.slot
        if tool == "ask":
            tool_accepted: e.Event = e.ToolAccepted(slot=slot, tool=tool, payload={"receipt": {}})
            self.write(record(self.journal, [tool_accepted]))
        else:
            tool_accepted = e.ToolReturned(slot=slot, tool=tool, payload={"result": {}})
            self.write(
                record(self.journal, [tool_accepted], entries=[Entry(slot, 0, "committed", tool, CLASSES[tool])])
            )
            self.became(slot, 0, "committed")
        self.model.call = "accepted" if tool == "ask" else ""
        self.model.tells(tool_accepted.KIND)

    @precondition(
        lambda self: (
            owned(self)
            and self.model.call == "sent"
            and self.model.tool != "ask"
            and asks_nobody(self)
            and self.is_sure
        )
    )
    @rule()
    def doubt(self) -> None:
        wait = self.spec("reconcile", self.slot)
        unknown = e.ToolOutcomeUnknown(slot=self.slot, tool=self.model.tool, is_sender_done=True)
        opened = e.WaitOpened(slot=self.slot, wait="reconcile", n=0, deadline=wait.deadline.isoformat())
        entry = Entry(self.slot, 0, "unknown", self.model.tool, CLASSES[self.model.tool])
        self.write(record(self.journal, [unknown, opened], entries=[entry], wait=wait))
        self.model.call = "unknown"
        self.model.waits.append("reconcile")
        self.model.tells("ToolOutcomeUnknown", "WaitOpened")

    @property
    def is_sure(self) -> bool:
        """Return whether no call of the run was ever in doubt: the model knows one at a time."""
        return not Wait.objects.filter(run=self.run, kind="reconcile").exists()

    @precondition(lambda self: free(self) and not self.model.waits and not self.model.is_denied and self.is_sure)
    @rule(tool=st.sampled_from(["mail", "order"]), is_contradicted=st.booleans())
    def be_denied(self, tool: str, is_contradicted: bool) -> None:
        """Reach a *did not* and its contradiction, whose steps chance alone seldom takes in order."""
        self.intend(tool, False)
        if self.model.call == "sent":
            self.doubt()
            self.park(False)
            self.reconcile("did_not")
            self.claim()
            if is_contradicted and self.model.is_denied:
                self.testify()

    @precondition(lambda self: free(self) and self.model.is_denied)
    @rule()
    def attempt_again(self) -> None:
        (slot, tool), model = self.denied, self.model
        found = invoked(slot, tool, attempt=1)
        entry = Entry(slot, 1, "pending", tool, CLASSES[tool], key=f"{slot} again")
        try:
            reply = self.write(intend(self.journal, [found], entry=entry))
        except BudgetShort:
            assert model.is_broke and model.may_be_attempted_again
            return
        assert reply.is_done is model.may_be_attempted_again
        if reply.is_done:
            answer = e.ToolReturned(slot=slot, attempt=1, tool=tool, payload={"result": {}})
            self.write(record(self.journal, [answer], entries=[Entry(slot, 1, "committed", tool, CLASSES[tool])]))
            model.is_denied = False
            self.became(slot, 1, "committed")
            model.tells("ToolInvoked", "ToolReturned")

    @precondition(lambda self: free(self) and self.model.is_contradicted and asks_nobody(self))
    @rule()
    def ask_again(self) -> None:
        self.asked += 1
        wait = replace(self.spec("reconcile", self.denied[0]), n=self.asked, detail={"tool": self.denied[1]})
        self.write(record(self.journal, [wait.opened()], wait=wait))
        self.model.waits.append("reconcile")
        self.model.tells("WaitOpened")

    @precondition(lambda self: self.model.is_denied)
    @rule()
    def testify(self) -> None:
        """Let the worker that sent the call report that it happened."""
        (slot, tool), model = self.denied, self.model
        exists = Wait.objects.filter(run=self.run, kind="reconcile", slot=slot, resolved_at=None).exists()
        settles = exists and (not model.is_owned or tool == "mail")
        answer = LateAnswer(str(self.run.id), slot, 0, tool, result={"ref": "x"})
        assert record_late_result(answer, lost_worker(uuid4())) is settles
        self.became(slot, 0, "committed" if settles else "open")
        if settles:
            model.is_denied = model.is_contradicted = False
            self._resolved("reconcile", "ToolReconciled")
        else:
            model.is_contradicted = True
            model.tells("ToolAnsweredLate")

    @precondition(lambda self: free(self) and not self.model.waits)
    @rule()
    def ask_people(self) -> None:
        slot, plan = self.next_slot(), {"run": str(self.run.id), "n": self.n}
        self.plan_hash, self.gate = hasher()(plan), self.spec("approval", slot)
        approval_requested = e.ApprovalRequested(
            slot=slot,
            payload=plan,
            approval_id=str(uuid4()),
            queue="finance_po",
            tool="pay",
            requested_hash="h",
            plan_hash=self.plan_hash,
            rule="Always",
            deadline=self.gate.deadline.isoformat(),
        )
        gate = GateOpening(
            UUID(approval_requested.approval_id),
            "finance_po",
            "pay",
            "Pay",
            "",
            "Always",
            canonical(plan),
            self.plan_hash,
            [],
            "",
            "key:shop",
        )
        self.write(record(self.journal, [approval_requested], wait=self.gate, gate=gate))
        self.model.grants = 0
        self.model.waits.append("approval")
        self.model.tells("ApprovalRequested")

    @precondition(lambda self: owned(self) and "timer" not in self.model.waits)
    @rule()
    def sleep(self) -> None:
        wait = self.spec("timer", self.next_slot())
        self.write(record(self.journal, [wait.opened({"call": "sleep", "hash": ""})], wait=wait))
        self.model.waits.append("timer")
        self.model.tells("WaitOpened")

    @precondition(lambda self: owned(self) and self.model.waits and "budget" not in self.model.waits)
    @rule(is_too_late=st.booleans())
    def park(self, is_too_late: bool) -> None:
        late = self.resolved[-1:] if is_too_late else []
        state = self.model.named()
        ids = [wait.id for wait in Wait.objects.filter(run=self.run, resolved_at=None)]
        reply = self.write(
            self.journal.leave("park", [e.RunParked(state=state, waits=[])], state=state, waits=[*ids, *late])
        )
        in_the_way = self.model.wants_pause or self.model.wants_cancel or self.model.unanswered or late
        assert reply.is_done is not bool(in_the_way)
        if reply.is_done:
            self.model.let_go(state, "RunParked")

    @precondition(lambda self: owned(self) and self.model.call in ("", "accepted") and not self.model.is_routed)
    @rule(state=st.sampled_from(["completed", "cancelled", "failed"]))
    def end(self, state: str) -> None:
        if not self.may_end(state):
            return
        entry = {
            "completed": e.RunCompleted(),
            "failed": e.RunFailed(code="x", payload=self.said),
            "cancelled": e.RunCancelled(by="x", in_flight=[], payload=self.said),
        }[state]
        reply = self.write(self.journal.leave("end", [entry], state=state))
        assert reply.is_done is (state == "cancelled" or not self.model.wants_cancel)
        if reply.is_done:
            self.model.end(state, entry.KIND)

    @precondition(lambda self: owned(self) and (self.model.wants_pause or now_and_then(self)))
    @rule()
    def stand_still(self) -> None:
        reply = self.write(self.journal.leave("pause", [e.RunPaused(by="x")], state="paused"))
        assert reply.is_done is (self.model.wants_pause and not self.model.wants_cancel)
        if reply.is_done:
            self.model.wants_pause = False
            self.model.let_go("paused", "RunPaused", woken=True)

    @precondition(lambda self: owned(self) and now_and_then(self))
    @rule()
    def drain(self) -> None:
        self.write(self.journal.leave("release", [e.RunReleased(reason="drain")], state="running"))
        self.model.let_go("running", "RunReleased", ready=True)

    @precondition(lambda self: owned(self) and now_and_then(self) and self.model.kinds.count("WorkerLost") < 9)
    @rule()
    def die(self) -> None:
        assert failover.worker_died(self.journal.worker.id, "the model says so") == 1
        assert failover.worker_died(self.journal.worker.id, "twice") == 0
        self.stale.append(self.journal)
        self.model.dies()

    @precondition(lambda self: now_and_then(self) and self.model.kinds.count("WorkerLost") < 9)
    @rule()
    def give_back(self) -> None:
        self.stale += [self.journal] if self.model.is_owned else []
        Run.objects.filter(pk=self.run.pk, ready_at__isnull=False).update(ready_at=now())
        self.is_done(partial(requeue, self.run.id, by=OLGA, justification=WHY), self.model.is_given_back())

    @precondition(lambda self: self.stale)
    @rule(which=st.sampled_from(["record", "intend", "leave"]), data=st.data())
    def come_back_from_the_dead(self, which: str, data: st.DataObject) -> None:
        zombie, run_released = data.draw(st.sampled_from(self.stale)), e.RunReleased(reason="late")
        late = {
            "record": partial(record, zombie, [run_released]),
            "intend": partial(intend, zombie, [run_released]),
            "leave": partial(zombie.leave, "release", [run_released], state="running"),
        }
        with pytest.raises(StaleLease):
            self.write(late[which]())

    # --- people, time, the outside

    # Of a late result people must say whether it is undone: test_belied.py.
    @precondition(lambda self: len(self.model.kinds) > 9 and now_and_then(self) and not self.model.is_contradicted)
    @rule()
    def cancel(self) -> None:
        self.steer("cancel")

    @precondition(lambda self: self.model.state == "paused" or self.model.wants_pause)
    @rule()
    def resume(self) -> None:
        self.steer("resume")

    @precondition(now_and_then)
    @rule(what=st.sampled_from(["pause", "resume", "retry"]))
    def steer(self, what: str) -> None:
        steering = partial(getattr(lifecycle, what), self.run.id, by=OLGA, justification=WHY)
        self.is_done(steering, getattr(self.model, what)())

    @precondition(lambda self: "approval" in self.model.waits)
    @rule(verdict=st.sampled_from(["approve", "reject"]))
    def decide(self, verdict: str) -> None:
        approval = Approval.objects.get(run=self.run, state="open")
        deciding = partial(decide, approval.id, verdict=verdict, plan_hash=self.plan_hash, justification=WHY, by=FIONA)
        deciding()
        with pytest.raises(AlreadyDecided):
            deciding()
        self.model.grants = int(verdict == "approve")
        self._resolved("approval", "ApprovalDecided")

    @precondition(lambda self: "reconcile" in self.model.waits)
    @rule(verdict=st.sampled_from(["happened", "did_not", "fail"]))
    def reconcile(self, verdict: str) -> None:
        receipt = {"ref": "x"} if verdict == "happened" else None
        (wait,) = Wait.objects.filter(run=self.run, kind="reconcile", resolved_at=None)
        fields = {"verdict": verdict, "receipt": receipt, "justification": WHY, "wait_id": wait.id}
        settling = partial(reconciling.reconcile, self.run.id, **fields, by=OLGA)
        is_again = self.model.is_denied and wait.slot == self.denied[0]
        is_legal = not self.model.is_owned and not (verdict == "fail" and self.model.is_undoing)
        self.is_done(settling, is_legal)
        if is_legal:
            if not is_again:
                self.model.call, self.denied, self.asked = "", (wait.slot, self.model.tool), 0
            if not is_again or verdict != "fail":
                self.model.is_denied, self.model.is_contradicted = verdict == "did_not", False
            if verdict != "fail":
                self.became(wait.slot, 0, "committed" if verdict == "happened" else "")
            is_end = verdict == "fail" and not self.model.wants_cancel
            self._resolved("reconcile", "ToolReconciled")
            if is_end:
                self.model.end("failed", "RunFailed")

    @precondition(lambda self: self.token and "webhook" in self.model.waits)
    @rule()
    def call_back(self) -> None:
        for _ in range(2):
            callbacks.receive_callback(self.token, {"ref": "x"})
        self.model.call = ""
        self.became(self.slot, 0, "committed")
        self._resolved("webhook", "CallbackReceived")

    @precondition(lambda self: {"timer", "approval"} & set(self.model.waits))
    @rule()
    def let_time_pass(self) -> None:
        kind = "timer" if "timer" in self.model.waits else "approval"
        runs_out(self.run.id, kind)
        timers.sweep()
        timers.sweep()
        self._resolved(kind, "WaitResolved" if kind == "timer" else "ApprovalDecided")

    def _resolved(self, kind: str, told: str) -> None:
        self.resolved += (
            Wait.objects.filter(run=self.run, kind=kind).exclude(resolved_at=None).values_list("id", flat=True)
        )
        self.model.resolved(kind, told)

    # --- invariants ---

    @invariant()
    def they_agree(self) -> None:
        run, top, model = fresh(self.run), head(self.run), self.model
        self.it_is_of_its_version(run)
        assert kinds(self.run) == model.kinds
        assert (str(run.state), run.owner is not None, run.ready_at is not None, run.is_woken) == (
            model.state,
            model.is_owned,
            model.is_ready,
            model.is_woken,
        )
        values = top.is_pause_requested, top.is_cancel_requested, top.epoch
        assert values == (model.wants_pause, model.wants_cancel, model.epoch)
        waiting = Wait.objects.filter(run=self.run, resolved_at=None).values_list("kind", flat=True)
        assert Counter(waiting) == Counter(model.waits)
        assert (top.lease is not None) is model.is_owned

    @invariant()
    def the_journal_holds(self) -> None:
        rows = list(Event.objects.filter(run_id=self.run.id).order_by("seq").values_list("seq", "kind"))
        assert [seq for seq, _ in rows] == list(range(1, len(rows) + 1))
        assert verify(self.run.id, using=()).problems == []  # handwritten steps have no matching rows in other tables
        matching = [kind for _, kind in rows]
        if "CancelRequested" in matching:
            begun = matching.index("UndoBegun") if "UndoBegun" in matching else None  # undo was requested
            assert "ToolInvoked" not in matching[matching.index("CancelRequested") : begun]

    @invariant()
    def it_is_one_thing_at_a_time(self) -> None:
        run = fresh(self.run)
        is_waiting = str(run.state).startswith("waiting") and Wait.objects.filter(run=run, resolved_at=None).exists()
        is_ended = str(run.state) in ("completed", "failed", "cancelled")
        is_paused = str(run.state) == "paused"
        assert [run.owner is not None, run.ready_at is not None, is_waiting, is_paused, is_ended].count(True) == 1


def test_a_run_is_what_the_model_says_whatever_is_done_to_it(stage: Stage, tools: Toolbox) -> None:
    run_state_machine_as_test(lambda: Machine(stage, tools), settings=of_a_machine(30, 4, steps=40))
