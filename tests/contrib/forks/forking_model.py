"""Forks and restarts on the real database and the model: a part of test_model.py's machine."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from durableagents.contrib.forks import forking
from durableagents.contrib.forks.forking import ForkRequest
from durableagents.contrib.forks.starting_again import StartAgainRequest, Verdict, start_again
from ledger import events as e
from ledger.errors import IllegalTransition, InvalidInput
from runs.engine.forks import Fork
from runs.models import Run
from runs.services import lifecycle
from tests.contrib.releases.moving_model import NODE, Mover
from tests.integration.runs.model import Model
from tests.integration.runs.spender import WHY, now_and_then
from tests.integration.runs.stage import dump, events, fresh, kinds
from tests.world import OLGA


class Forker(Mover):
    """The new run knows exactly the origin's effects, and only one of the two continues."""

    def take(self, run: Run, model: Model) -> None:
        raise NotImplementedError

    def became(self, slot: str, attempt: int, what: str) -> None:
        """Record a call of the run as committed, open, or without effect."""
        place = str(self.run.pk), slot, attempt
        self.model.effects.pop(place, None)
        if what:
            self.model.effects[place] = what

    @precondition(now_and_then)
    @rule(back=st.integers(-1, 2), is_other=st.booleans(), is_taken=st.booleans())
    def fork(self, back: int, is_other: bool, is_taken: bool) -> None:
        """Fork at one of the newest visits, or after them, which must be refused."""
        model, visit = self.model, self.model.visit - back
        agent = self.other if is_other else self.agent
        wanted = ForkRequest(visit, version=agent.version)
        is_there = 0 < visit <= model.visit - model.is_undoing  # a fork can't begin at the undo
        if not is_there or (model.is_undoing and not model.has_ended):
            self._is_refused(lambda: forking.fork(self.run.pk, wanted, by=OLGA, justification=WHY), InvalidInput)
            return
        made = forking.fork(self.run.pk, wanted, by=OLGA, justification=WHY)
        new = Model(version=agent.version, is_between=True, carried=model.done_since(visit), is_fenced=model.fences_all)
        self._begun(made, new, "fork", is_taken=is_taken)

    @precondition(lambda self: now_and_then(self) and len(self.model.kinds) > 9)
    @rule(counts_as=st.sampled_from(["unknown", "unknown", "did_not", "happened", ""]), is_taken=st.booleans())
    def start_it_again(self, counts_as: str, is_taken: bool) -> None:
        """Restart the run; a run still going is cancelled by it, or neither happens."""
        model, effects = self.model, self.model.done_since(0)
        items = [Verdict(slot, n, counts_as, run=run, result={"ref": "x"}) for run, slot, n in effects]
        wanted = StartAgainRequest(items if counts_as else [], version=self.agent.version)
        ended = deepcopy(model)
        if not model.has_ended:
            ended.cancel()
        by_person = lambda: start_again(self.run.pk, wanted, by=OLGA, justification=WHY)  # noqa: E731
        if not ended.has_ended:
            self._is_refused(by_person, IllegalTransition)
            return
        if effects and (not counts_as or (counts_as == "did_not" and "committed" in effects.values())):
            self._is_refused(by_person, InvalidInput)
            return
        made = by_person()
        self.model = ended
        new = Model(version=model.version, is_between=model.is_renewed, carried=effects, is_fenced=ended.fences_all)
        if counts_as == "did_not":
            assert all(x.counts_as == "did_not" for x in _told(made).effects)
        self._begun(made, new, "start_again", is_taken=is_taken)

    @precondition(lambda self: self.model.forks and now_and_then(self))
    @rule()
    def drop_a_fork(self) -> None:
        """Cancel a fork: without effects it competes with nobody once it has ended."""
        fork = Run.objects.filter(forked_from=self.run.pk, ended_at=None).first()
        assert fork is not None
        lifecycle.cancel(fork.pk, by=OLGA, justification=WHY)
        self.model.forks -= 1

    def _begun(self, made: Run, new: Model, how: str, *, is_taken: bool) -> None:
        """Check that both journals agree; continue with one of the two runs."""
        model, result = self.model, _told(made)
        assert (result.told.origin, result.told.how, result.told.node) == (
            str(self.run.pk),
            how,
            NODE if new.is_between else "",
        )
        found = {x.place: x.outcome for x in result.effects}
        assert found == new.carried, (found, new.carried)
        assert result.told.fences_all is new.is_fenced
        assert (made.version, made.generation, str(made.state)) == (new.version, 0, "pending")
        new.kinds = kinds(made)
        assert [kind for kind in new.kinds if kind != "BudgetSet"] == ["RunCreated", "RunForked"]
        model.tells("ForkMade")
        assert kinds(self.run) == model.kinds and str(fresh(self.run).state) == model.state
        model.forks += 1
        if is_taken:
            self.take(made, new)

    def _is_refused(self, act: Any, error: type[Exception]) -> None:
        before = dump()
        with pytest.raises(error):
            act()
        assert dump() == before, "what is refused changes nothing"


def _told(run: Run) -> Fork:
    (forked,) = events(run, e.RunForked)
    return Fork(forked)
