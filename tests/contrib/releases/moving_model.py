"""Runs that enter nodes and migrate between two versions: a part of test_model.py's machine."""

from __future__ import annotations

from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from approvals.models import Approval
from durableagents.contrib.releases import migrating
from durableagents.contrib.releases.migrating import MovedRow
from durableagents.contrib.releases.migration_requests import MigrateBody, MigrationPreviewBody
from ledger import events as e
from ledger.models import OverrideRecord
from runs.engine.agents import Agent
from runs.engine.journal import Batch, Snapshot
from runs.models import Run
from tests.integration.runs.sender import takes_messages
from tests.integration.runs.spender import WHY, Spender, now_and_then, owned
from tests.integration.runs.stage import dump, events
from tests.world import OLGA, Notes, Toolbox, agent_of, ends_with

NODE = "finish"


def beside(tools: Toolbox) -> dict[str, Agent]:
    first = takes_messages(agent_of(ends_with(1), tools=tools.all()))
    second = takes_messages(agent_of(ends_with(2), tools=tools.all(), name=first.name, version="2.0.0"))
    return {agent.version: agent for agent in (first, second)}


class Mover(Spender):
    """Decides by the visit's actions what a migration may do."""

    versions: dict[str, Agent]

    @property
    def agent(self) -> Agent:
        return self.versions[self.model.version]

    @property
    def other(self) -> Agent:
        return next(agent for agent in self.versions.values() if agent.version != self.model.version)

    # --- its worker

    def begin(self) -> None:
        if not self.model.visit or self.model.is_between:
            self.enter()

    @precondition(lambda self: owned(self) and _is_at_a_cut(self) and now_and_then(self))
    @rule()
    def enter(self) -> None:
        """Commit the node's beginning and its checkpoint together."""
        self.model.enters()
        self.n, visit, generation = 0, self.model.visit, self.model.generation
        cut = Snapshot(NODE, visit, generation, self.agent.fingerprint(), Notes().model_dump(mode="json"))
        self.write(self.journal.commit(Batch([e.VisitEntered(node=NODE, visit=visit)], snapshot=cut)))

    # --- people

    @precondition(now_and_then)
    @rule()
    def move(self) -> None:
        """Preview, which changes nothing, then migrate twice by the same preview, which moves it once."""
        model, to = self.model, self.other.version
        how = model.may_move
        before, records = dump(), OverrideRecord.objects.filter(run_id=self.run.pk).count()
        found = self._asked(model.version, to, is_look=True)
        assert (found.code or found.how, found.is_moved) == (how, False), (found, how)
        assert dump() == before, "a look changes nothing"
        did = self._asked(model.version, to)
        assert (did.code or did.how, did.is_moved) == (how, not found.code), (did, how)
        if found.code:
            assert dump() == before, "what is refused changes nothing"
            return
        model.moves(to, how)
        entry = events(self.run, e.RunMigrated)[-1]
        assert (entry.to, entry.generation, entry.how) == (self.agent.graph_id, model.generation, how)
        assert OverrideRecord.objects.filter(run_id=self.run.pk).count() == records + 1
        after = dump()
        assert self._asked(self.other.version, to).code == "already" and dump() == after
        assert "approval" in model.waits or not Approval.objects.filter(run=self.run, state="open").exists()

    @precondition(lambda self: self.model.is_owned and _is_at_a_cut(self) and now_and_then(self))
    @rule(what=st.sampled_from(["nothing", "reads", "sleeps"]))
    def let_go_and_move(self, what: str) -> None:
        """Release the run first: by chance alone few runs can be moved."""
        if what == "reads":
            self.step()
        if what == "sleeps":
            self.sleep()
            self.park(False)
        if self.model.is_owned:
            self.drain()
        self.move()
        self.claim()

    def _asked(self, of: str, to: str, *, is_look: bool = False) -> MovedRow:
        runs: list[UUID] = [self.run.pk]
        fields = {"from_version": of, "to_version": to, "nodes": {NODE: NODE}, "runs": runs}
        if is_look:
            (found,) = migrating.preview(self.agent.name, MigrationPreviewBody.model_validate(fields))
        else:
            body = MigrateBody.model_validate(fields | {"justification": WHY})
            (found,) = migrating.migrate(self.agent.name, body, by=OLGA)
        return found

    def it_is_of_its_version(self, run: Run) -> None:
        model = self.model
        assert (run.version, run.graph_id, run.generation) == (model.version, self.agent.graph_id, model.generation)

    def step(self) -> None:
        raise NotImplementedError

    def sleep(self) -> None:
        raise NotImplementedError

    def park(self, is_too_late: bool) -> None:
        raise NotImplementedError

    def drain(self) -> None:
        raise NotImplementedError

    def claim(self) -> None:
        raise NotImplementedError


def _is_at_a_cut(machine: Mover) -> bool:
    model = machine.model
    return not (model.call or model.waits or model.is_routed or model.is_undoing or model.is_denied)
