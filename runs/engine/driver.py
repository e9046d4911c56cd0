"""Drives a claimed run until it waits, stops or ends.

Each change is written by one journal call under the worker's lease.
"""

from __future__ import annotations

from functools import partial
from typing import Any, assert_never
from uuid import UUID

from pydantic import BaseModel, ValidationError

from ledger import events as e
from ledger.protocol import SKIPPED_CHECKPOINTS
from runs.engine.agents import Agent
from runs.engine.budget import Meter
from runs.engine.canonical import plain, printable
from runs.engine.checkpoints.other_code import other_code, written_by_others
from runs.engine.checkpoints.position import position_of
from runs.engine.checkpoints.upgrading import brought_up
from runs.engine.continuation import MAX_HANDOFFS, HandedOver, Inherited, Renewed, ends_with, is_too_often, successor_of
from runs.engine.errors import JournalBroken
from runs.engine.forks import Fork
from runs.engine.journal import ATTENTION, Batch, History, Journal, Reply, Snapshot, Successor, WaitSpec
from runs.engine.messages import between, entered, handled, note, outcome_of, with_changes
from runs.engine.outcomes import Broken, Crashed, Exceeded, Parked, Stopped, waiting_state
from runs.engine.replay import Advanced, Finished, Outcome, run_visit
from runs.engine.runtime import Control, Runtime
from runs.engine.steps.late_news import problem, untold
from runs.engine.steps.spending import debit_lost, reserved_by, wait_for_raise
from runs.engine.tape import LATE_NEWS, Tape
from runs.engine.undo import UNDO_NODE, WITH_PARENT
from runs.engine.undoing import ending
from runs.engine.undoing.plan import Plan, Reason
from runs.engine.undoing.visit import Undone, undo_visit
from runs.engine.unknown import Ending
from runs.engine.visit import Visit, place_of

_AGAIN = "again"  # the record changed during a stop: read it again and continue
MAX_LOOKS = 20  # maximum attempts to continue as another run while something blocks that


class Driver:
    """The work of one claim on one run."""

    def __init__(
        self, agent: Agent, journal: Journal, runtime: Runtime, control: Control, *, trace_id: str, generation: int = 0
    ) -> None:
        self.agent, self.journal, self.runtime, self.control = agent, journal, runtime, control
        self.trace_id, self.generation = trace_id, generation
        self.tape, self.meter = Tape(), Meter()
        self._refused: Parked | None = None
        self.at = Snapshot("", 0, generation, agent.fingerprint(), None)
        self.created: e.RunCreated | None = None
        self.wish: e.CancelRequested | None = None  # the latest request to cancel the run
        self.entry: tuple[str, Any] | None = None  # node and state to enter first, if not from the input
        self.fork: Fork | None = None
        self.undo_asked: e.UndoAsked | None = (
            None  # set if the run was ended from outside and its effects must be undone first
        )
        self.depth = 0
        self._wrote = ""  # the fingerprint of other code that wrote the checkpoint, until an operator checked it
        self._unread: JournalBroken | None = None  # why no node can continue; ending the run needs none
        self._running: Visit | None = None
        self._at_end = Ending(agent, journal, runtime, control, trace_id)

    async def drive(self) -> str:
        """Work until the run is released. Raises StaleLease when another worker has claimed the run.

        Returns parked, paused, released, halted, completed, failed, cancelled or operator.
        """
        while True:
            try:
                how = await self._drive()
            except JournalBroken as broken:
                how = await self._operator(Broken(broken.reason, {"problem": str(broken)}))
            if how != _AGAIN:
                return how

    async def _drive(self) -> str:
        reply = await self._load()
        if reply.stop is not None:
            stopped = await self._stopped(reply.stop)
            if stopped is not None:
                return stopped
        held = await self._held()
        if held is not None:
            return held
        if self.undo_asked is not None:
            return await self._end_as_asked(self.undo_asked)
        while True:
            if self._unread is not None and not self._is_undoing:
                raise self._unread
            done = await (self._act(await self._visit()) if self.at.node else self._begin())
            if done is not None:
                return done

    # --- from the journal to a position ---

    async def _load(self) -> Reply:
        history: History = await self.journal.load()
        assert isinstance(history.created, e.RunCreated)
        self.created, self.depth = history.created, history.depth
        position = await brought_up(self.agent, self.runtime, position_of(history.snapshot or self.at, history.tail))
        self.entry, self._unread = position.entry, position.unread
        self._wrote = "" if position.unread else written_by_others(self.agent, position)
        self.fork = None if history.forked is None else self.fork or Fork(history.forked)
        self.at = ending.resumed(position.at, position.tail, self.generation, self.agent.fingerprint())
        self.tape = Tape(position.tail)
        self.wish = ending.wish_in(history.tail)
        self.undo_asked = None if self._is_undoing else ending.asked_of(history.tail)
        self.meter = Meter(history.caps, history.used, counts_reads=history.counts_reads)
        for call, usage in reserved_by(self.tape):
            self.meter.reserve(call, usage)
        return await self._note_skipped(history)

    async def _note_skipped(self, history: History) -> Reply:
        """Record, once, each newer checkpoint that can't be used. Runs of older protocols have no such event."""
        assert self.created is not None
        if not history.skipped or self.created.protocol < SKIPPED_CHECKPOINTS:
            return history.reply
        known = {event.at for event in history.tail if isinstance(event, e.CheckpointSkipped)}
        skipped = [e.CheckpointSkipped(at=seq, payload=why) for seq, why in history.skipped if seq not in known]
        return await self.journal.commit(Batch(skipped)) if skipped else history.reply

    async def _begin(self) -> str | None:
        """Enter the first node with the state made from the input, or the entry of a renewal, fork or migration."""
        assert self.created is not None
        if self.entry is not None:
            return await self._enter(*self.entry)
        try:
            first = self.agent.begin(self.agent.input.model_validate(self.created.payload))
            state = plain(first)
        except Exception as error:
            return await self._fail(
                Crashed(
                    "bad_input", f"the first state can't be built from the input: {type(error).__name__}: {error}", ""
                )
            )
        return await self._enter(self.agent.start, state)

    async def _enter(self, node: str, state: Any, buffered: tuple[e.Event, ...] = ()) -> str | None:
        """Record a visit's entry and its checkpoint in one commit, so that no call is in progress at the checkpoint.

        If the journal already contains the visit, its checkpoint was damaged: then nothing is written, and the visit's
        recorded calls stay on the tape.
        """
        visit, over = self.at.visit + 1, f"{self.at.generation}.{self.at.visit}"
        state = between(self.tape, over, state)
        if visit not in self.tape.visits and self.agent.messages:
            state, buffered = await self._answer_between(over, state, buffered)
        self.at = Snapshot(node, visit, self.generation, self.agent.fingerprint(), state)
        if visit in self.tape.visits:
            return None
        self.tape = Tape()
        self.meter.begin_visit()
        reply = await self.journal.commit(Batch([*buffered, e.VisitEntered(node=node, visit=visit)], snapshot=self.at))
        self.runtime.hit("CP7", "")
        return None if reply.stop is None else await self._stopped(reply.stop)

    async def _held(self) -> str | None:
        """Stop if an operator must act first: an open stop, a checkpoint by other code, or unreported late results."""
        stop = self.tape.open_stop()
        if stop is not None:
            return await self._stand_still(WaitSpec(self.journal.run_id, stop, 0, "operator", 0, self.journal.now()))
        if (open_budget := self.tape.open_budget()) is not None:
            return await self._stand_still(
                WaitSpec(self.journal.run_id, open_budget, 0, "budget", 0, self.journal.now())
            )
        if self._wrote and (other := await other_code(self.agent, self.journal, self.runtime, self._wrote, self.at)):
            return await self._operator(other)
        if late := untold(self.tape):
            return await self._operator(Broken(LATE_NEWS, {"problem": problem(self.tape, late), "late": late}))
        return None

    @property
    def _is_undoing(self) -> bool:
        return self.at.node == UNDO_NODE

    def _new_visit(self, node: str) -> Visit:
        assert self.created is not None
        self._running = Visit(
            self.agent,
            self.journal,
            self.runtime,
            self.control,
            self.tape,
            self.meter,
            node=node,
            number=self.at.visit,
            generation=self.at.generation,
            created=self.created,
            trace_id=self.trace_id,
            depth=self.depth,
            fork=self.fork,
        )
        return self._running

    async def _visit(self) -> Outcome | Undone:
        if self._is_undoing:
            return await undo_visit(self._new_visit(UNDO_NODE), Plan.model_validate(self.at.state))
        node = self.agent.nodes.get(self.at.node)
        if node is None:
            return Broken("unknown_node", {"node": self.at.node, "problem": f"{self.agent.graph_id} has no such node"})
        try:
            state: BaseModel = self.agent.state.model_validate(entered(self.tape, self.at))
        except ValidationError as error:
            return Broken(
                "bad_checkpoint", {"node": self.at.node, "problem": f"the checkpoint does not fit the state: {error}"}
            )
        return await run_visit(self._new_visit(node.name), node, state)

    def _buffered(self) -> list[e.Event]:
        return self._running.take_buffered() if self._running is not None else []

    # --- from an outcome to a commit ---

    async def _act(self, outcome: Outcome | Undone) -> str | None:
        """Make an outcome durable. Return how the run was released; None to continue here."""
        match outcome:
            case Advanced():
                return await self._enter(outcome.node, outcome.state, tuple(self._buffered()))
            case Finished():
                events = [*self._buffered(), e.RunCompleted(payload=outcome.output)]
                return await self._end("completed", events)
            case Renewed() | HandedOver():
                return await self._succeed(outcome)
            case Parked():
                return await self._park(outcome)
            case Exceeded():
                return await self._exceeded(outcome)
            case Stopped():
                return await self._stopped(outcome.reason, outcome.key)
            case Undone():
                return await self._end_undone()
            case Crashed() if self._is_undoing:
                return await self._operator(Broken("undo_broken", {"problem": outcome.message}))
            case Crashed():
                return await self._fail(outcome)
            case Broken():
                return await self._operator(outcome)
            case _:
                assert_never(outcome)

    async def _answer_between(
        self, over: str, state: Any, buffered: tuple[e.Event, ...]
    ) -> tuple[Any, tuple[e.Event, ...]]:
        """Answer messages that wait between two nodes.

        Buffered events are recorded first, because the answers depend on them.
        """
        while self.control.stop is None and (came := await self.journal.inbox()) is not None:
            events, _ = handled(self.agent, partial(dict, state), came, visit=over, place=0)
            reply = await self.journal.answer(came.n, outcome_of(events), [*buffered, *events])
            note(self.tape, events)
            state, buffered = with_changes(state, [x for x in events if isinstance(x, e.MessageHandled)]), ()
            if reply.stop is not None:
                break
        return state, buffered

    async def _answer_parked(self, parked: Parked) -> bool:
        """Answer messages while the node waits. Return whether to load the journal again and continue."""
        running = self._running
        assert running is not None and running.changes is not None
        slots = {slot for _, _, slot in parked.waits}
        waiting = [wait for wait in running.changes.listening if wait.slot in slots]
        place = place_of(parked.waits[0][2])
        while (came := await self.journal.inbox()) is not None:
            events, ended = handled(
                self.agent, running.changes.now, came, visit=running.places.visit, place=place, waiting=waiting
            )
            reply = await self.journal.answer(
                came.n, outcome_of(events), [*self._buffered(), *events], waits=[wait.id for wait in ended]
            )
            if not reply.is_done or ended:
                return True
            note(self.tape, events)
            running.changes.add(events)
            if reply.stop is not None:
                break
        return False

    async def _park(self, parked: Parked, *, has_mail: bool = False) -> str | None:
        self.runtime.hit("CP8", "")
        has_mail = not self._is_undoing and (has_mail or bool(self.agent.messages))
        if has_mail and await self._answer_parked(parked):
            await self._load()
            return None
        state = waiting_state({kind for _, kind, _ in parked.waits})
        event = e.RunParked(state=state, waits=[slot for _, _, slot in parked.waits])
        reply = await self.journal.leave(
            "park", [*self._buffered(), event], state=state, waits=[i for i, _, _ in parked.waits]
        )
        if reply.is_done:
            return "parked"
        if reply.stop is not None:
            return await self._stopped(reply.stop)
        if await self.journal.inbox() is not None:
            if self._is_undoing:  # the sender gets an answer when the run ends
                return await self._settle({i: kind for i, kind, _ in parked.waits}, event.waits) or _AGAIN
            return await self._park(parked, has_mail=True)  # the message arrived just now
        if self._refused == parked:
            waits = [slot for _, _, slot in parked.waits]
            return await self._operator(
                Broken(
                    "park_refused", {"waits": waits, "problem": "a wait is resolved, but the journal does not say so"}
                )
            )
        self._refused = parked
        await self._load()  # a wait was resolved before the run parked: read the result and continue
        return None

    async def _stopped(self, reason: str, key: str = "") -> str | None:
        match reason:
            case "halt":
                reply = await self.journal.set_aside([e.RunReleased(reason="halt")], key)
                return "halted" if reply.is_done or reply.stop is None else await self._stopped(reply.stop)
            case "cancel" if self._is_undoing:
                self.control.take_back(
                    "cancel"
                )  # the request is already being handled: an undo visit is the result of a cancel
                await self._load()
                return None
            case "cancel":
                return await self._cancel()
            case "drain":
                await self.journal.leave("release", [e.RunReleased(reason="drain")], state="running")
                return "released"
            case "overtaken":
                await self._load()  # an outcome was recorded before this one: read it and continue
                return None
            case _:
                reply = await self.journal.leave("pause", [e.RunPaused(by="operator")], state="paused")
                if reply.is_done:
                    return "paused"
                if reply.is_cancel_requested:
                    return await self._cancel()
                self.control.take_back("pause")  # someone resumed the run in the meantime
                await self._load()
                return None

    async def _exceeded(self, over: Exceeded) -> str | None:
        """Ask people for a higher cap, unless the cap was raised or reservations were released meanwhile."""
        reply = await self._load()
        if reply.stop is not None:
            return await self._stopped(reply.stop)
        breaches = self.meter.breaches(over.wanted)
        if not breaches:
            return None
        event, wait = wait_for_raise(self.journal, over.slot, breaches, over.wanted, self.runtime.budget_queue)
        await self.journal.commit(Batch([event, wait.opened()], wait=wait))
        return await self._stand_still(wait)

    async def _fail(self, crash: Crashed) -> str:
        reply = await self._load()  # the visit may have recorded events that are not on its tape
        if reply.stop == "cancel":
            return await self._cancel()  # the person who cancels decides about the effects
        await debit_lost(self.journal, self.tape)
        payload = printable({"message": crash.message, "traceback": crash.traceback})
        if self.agent.on_failure == "undo" and (how := await self._undo_first("failed", crash.code, payload)):
            return how
        event = e.RunFailed(code=crash.code, payload=payload)
        return await self._end("failed", [*self._buffered(), event], error=crash.code)

    async def _end_as_asked(self, undo_asked: e.UndoAsked) -> str:
        """Undo the run's effects as requested from outside, then end it. A completed run ends as cancelled."""
        if undo_asked.code != WITH_PARENT:
            return await self._fail(ending.crash_of(undo_asked))
        how = await self._undo_first("cancelled", "", ending.stated(undo_asked))
        return how or await self._end("cancelled", [ending.nothing_left(undo_asked)])

    async def _undo_first(self, reason: Reason, code: str, ends_with: Any) -> str | None:
        """Settle unknown outcomes, then begin to undo the run's effects before it ends.

        Return None if there are no effects to undo.
        """
        if waits := await ending.open_questions(self._at_end, self.tape):
            return await self._settle({w.id: w.kind for w in waits}, [w.slot for w in waits]) or _AGAIN
        await self._load()  # a hook may have reported a call's outcome
        end = Plan(reason=reason, code=code, in_flight=self.tape.outstanding())
        plan = ending.plan_for(self.agent, await self.journal.effects(), end, ends_with)
        if plan is None:
            return None
        cut = Snapshot(UNDO_NODE, self.at.visit + 1, self.generation, self.agent.fingerprint(), None)
        self.at = await ending.begin(self.journal, cut, plan, self._buffered())
        self.control.take_back("cancel")
        return _AGAIN

    async def _settle(self, waits: dict[UUID, str], slots: list[str]) -> str | None:
        """Release the run until one of these waits is resolved, even if a pause or cancel is requested."""
        state = waiting_state(set(waits.values()))
        parked = e.RunParked(state=state, waits=slots)
        reply = await self.journal.leave("settle", [parked], state=state, waits=list(waits))
        return "parked" if reply.is_done else None

    async def _end_undone(self) -> str:
        """End the run after every effect was handled. If new events arrived meanwhile, continue with those."""
        known = self.journal.seq
        await self._load()
        if self.journal.seq > known:
            return _AGAIN
        state, event, code = ending.end_of(Plan.model_validate(self.at.state), self.tape)
        return await self._end(state, [*self._buffered(), event], error=code)

    async def _end(self, state: str, events: list[e.Event], *, error: str = "") -> str:
        """End the run. If someone cancelled the run meanwhile, it ends as cancelled."""
        reply = await self.journal.leave("end", events, state=state, error=error)
        return state if reply.is_done else await self._cancel()

    async def _succeed(self, to: Renewed | HandedOver) -> str | None:
        """Complete the run and create the run that continues it.

        Messages are answered first, signals move to the new run, and a pause or cancel takes precedence.
        """
        if isinstance(to, HandedOver) and is_too_often(await self.journal.inherited()):
            problem = f"the work was handed off {MAX_HANDOFFS} times, the last time to {to.agent.graph_id}"
            return await self._fail(Crashed("too_many_handoffs", problem, ""))
        buffered, count = tuple(self._buffered()), 0
        while count < MAX_LOOKS:
            reply = await self._load()
            if reply.stop is not None:
                return await self._stopped(reply.stop)
            going, seen = to, self.journal.seq
            if isinstance(to, Renewed):
                over = f"{self.at.generation}.{self.at.visit}"
                state, buffered = await self._answer_between(over, between(self.tape, over, to.state), buffered)
                going = Renewed(to.node, state)
            count += self.journal.seq == seen  # answered messages change `seq`, but don't count as attempts
            if (await self.journal.succeed(partial(self._made_of, going, buffered))).is_done:
                return "completed"
        problem = (
            "a call, question or child run is still open, so the run can't be renewed or handed off: wait for it in "
            "the node before you return Renew or Handoff, or retry the run once it has ended"
        )
        return await self._operator(Broken("can_not_go_on", {"problem": problem}))

    def _made_of(
        self, to: Renewed | HandedOver, buffered: tuple[e.Event, ...], inherited: Inherited
    ) -> tuple[list[e.Event], Successor]:
        """Return the last events of this journal, and the run that continues this one."""
        assert self.created is not None
        successor = successor_of(
            self.journal.run_id,
            self.agent,
            to,
            input=self.created.payload,
            left=self.meter.left(),
            inherited=inherited,
        )
        return [*buffered, *ends_with(successor)], successor

    async def _operator(self, broken: Broken) -> str:
        """Open a wait of kind `operator` with the problem and a deadline, and release the run."""
        slot = f"operator/{self.journal.seq}"
        detail = {"title": "Needs an operator", "reason": broken.reason}
        wait = WaitSpec(self.journal.run_id, slot, 0, "operator", 0, self.journal.now() + ATTENTION, detail)
        event = e.OperatorNeeded(reason=broken.reason, payload=printable(broken.payload))
        await self.journal.commit(Batch([event, wait.opened()], wait=wait))
        return await self._stand_still(wait)

    async def _stand_still(self, wait: WaitSpec) -> str:
        """Release the run until someone has acted. If someone has just acted, continue from the record."""
        if wait.kind == "budget":
            reply = await self.journal.leave("budget", [e.RunPaused(by="budget")], state="paused", waits=[wait.id])
            if not reply.is_done and reply.stop is not None:
                return await self._stopped(reply.stop) or _AGAIN
            return "paused" if reply.is_done else _AGAIN
        # `settle` instead of `park`: nothing may execute before the wait is resolved, even if people requested
        # something.
        return "operator" if await self._settle({wait.id: wait.kind}, [wait.slot]) else _AGAIN

    # --- cancelling ---

    async def _cancel(self) -> str:
        """Cancel the run on request. Nothing more is sent; unknown outcomes are settled first."""
        while True:
            await self._load()
            await debit_lost(self.journal, self.tape)
            doubtful = [slot for _, slot in self.tape.in_doubt()]
            waits = await ending.questions(self._at_end, doubtful)
            request = ending.said_by(self.wish or ending.wish_in((await self.journal.effects()).events))
            is_undone = not waits and (request or {}).get("effects") == "undo"
            if is_undone and (how := await self._undo_first("cancelled", "", request)):
                return how
            if not waits:
                event = e.RunCancelled(by="operator", in_flight=self.tape.outstanding(), payload=request)
                await self.journal.leave("end", [event], state="cancelled")
                return "cancelled"
            if how := await self._settle({w.id: w.kind for w in waits}, [w.slot for w in waits]):
                return how
