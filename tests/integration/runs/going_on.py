"""Continuations on the real database and the model: a part of test_model.py's machine."""

from __future__ import annotations

from hypothesis.stateful import precondition, rule

from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.budget import Meter
from runs.engine.continuation import HandedOver, Inherited, Renewed, ends_with, successor_of
from runs.engine.journal import Reply, Successor
from runs.journal.postgres import PgJournal
from runs.models import Run
from tests.integration.runs.model import Model
from tests.integration.runs.spender import Spender, now_and_then, owned
from tests.integration.runs.stage import fresh, kinds


async def succeed(journal: PgJournal, agent: Agent, *, is_handoff: bool = False) -> Reply:
    """Continue the run as its worker does when nothing prevents it."""
    history = await journal.load()
    assert isinstance(history.created, e.RunCreated)
    given = history.created.payload
    to = HandedOver(agent, given, ()) if is_handoff else Renewed(agent.start, {"asked": given, "seen": []})
    left = Meter(history.caps, history.used).left()

    def make(inherited: Inherited) -> tuple[list[e.Event], Successor]:
        successor = successor_of(journal.run_id, agent, to, input=given, left=left, inherited=inherited)
        return ends_with(successor), successor

    return await journal.succeed(make)


def _may_go_on(machine: Spender) -> bool:
    model = machine.model
    is_free = owned(machine) and model.call in ("", "accepted") and not (model.is_routed or model.is_undoing)
    return is_free and now_and_then(machine)


class Going(Spender):
    @property
    def agent(self) -> Agent:
        raise NotImplementedError

    def take(self, run: Run, model: Model) -> None:
        raise NotImplementedError

    def _go_on(self, *, is_handoff: bool) -> None:
        model, run = self.model, self.run
        reply = self.write(succeed(self.journal, self.agent, is_handoff=is_handoff))
        is_asked = model.unanswered and not is_handoff  # a handoff tells senders that the run has ended
        assert reply.is_done is not bool(model.waits or model.wants_pause or model.wants_cancel or is_asked)
        successor = Run.objects.filter(came_from=run.pk).first()
        assert (successor is not None) is reply.is_done and fresh(run).goes_on_as == (successor and successor.pk)
        if successor is None:
            return
        model.tells("RunHandedOff" if is_handoff else "RunRenewed")
        model.end("completed", "RunCompleted")
        assert kinds(run) == model.kinds and str(fresh(run).state) == "completed"
        assert (successor.version, successor.generation) == (model.version, 0)
        is_renewed = not is_handoff
        self.take(
            successor,
            Model(
                is_broke=model.is_broke,
                kinds=kinds(successor),
                version=model.version,
                is_between=is_renewed,
                is_renewed=is_renewed,
            ),
        )
        items = [kind for kind in self.model.kinds if kind != "BudgetSet"]
        assert items == ["RunCreated", "RunCarriedOn"] and successor.time_up_at == fresh(run).time_up_at

    @precondition(_may_go_on)
    @rule()
    def renew(self) -> None:
        self._go_on(is_handoff=False)

    @precondition(_may_go_on)
    @rule()
    def hand_off(self) -> None:
        self._go_on(is_handoff=True)
