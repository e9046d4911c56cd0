"""Inquiries, delegations and injections on the real database and the model: a part of test_model.py's machine."""

from __future__ import annotations

from copy import deepcopy

from django.contrib.auth.models import Group, User
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from approvals.models import Approval, Inquiry
from durableagents.contrib.casework import delegations, inquiries
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from runs.services.injecting import ContextBody, StateSeen, go_on
from tests.contrib.change_control.settling_model import Sayer
from tests.integration.runs.spender import WHY, now_and_then
from tests.integration.runs.stage import dump, head
from tests.world import OLGA

HOW = ["answered", "withdrawn", "waiting"]


def approver(name: str) -> Actor:
    user, _ = User.objects.get_or_create(username=name)
    user.groups.add(Group.objects.get_or_create(name="approver_finance")[0])
    return Actor("user", name, role="approver_finance", auth="session", person=user.pk)


class Talker(Sayer):
    """Talk about a question never decides it, and a refused injection changes nothing."""

    @precondition(lambda self: "approval" in self.model.waits)
    @rule(how=st.sampled_from(HOW))
    def ask_about_it(self, how: str) -> None:
        asker, question, case = approver("asker"), approver("asked"), self._case()
        if Inquiry.objects.filter(approval=case, ended_at=None).count() >= inquiries.MAX_OPEN:
            return
        row = inquiries.ask(case.id, to="asked", question=WHY, by=asker)
        self.model.tells("InquiryMade")
        if how == "answered":
            inquiries.answer(case.id, row.n, answer=WHY, by=question)
        elif how == "withdrawn":
            inquiries.withdraw(case.id, row.n, justification=WHY, by=asker)
        self.model.tells(*["InquiryEnded"] * (how != "waiting"))

    @precondition(lambda self: "approval" in self.model.waits and now_and_then(self))
    @rule()
    def hand_it_over_and_take_it_back(self) -> None:
        asker, question, case = approver("asker"), approver("asked"), self._case()
        row = delegations.delegate(case.id, to=question.name, justification=WHY, by=asker)
        delegations.take_back(case.id, row.n, justification=WHY, by=asker)
        self.model.tells("ApprovalDelegated", "DelegationEnded")

    @precondition(lambda self: _is_free(self) and now_and_then(self))
    @rule(how=st.sampled_from(HOW))
    def ask_people_who_talk(self, how: str) -> None:
        """Open a question first: by chance alone few are open."""
        self.ask_people()
        self.ask_about_it(how)

    def _case(self) -> Approval:
        return Approval.objects.get(run=self.run, state="open")

    @precondition(lambda self: self.model.state in ("paused", "failed") or now_and_then(self))
    @rule(act=st.sampled_from(["resume", "retry"]), is_stale=st.booleans())
    def hand_it_something(self, act: str, is_stale: bool) -> None:
        """Inject values with the action that continues the run, or not at all."""
        before, top, after = dump(), head(self.run), deepcopy(self.model)
        seen = StateSeen(seq=top.seq, head=(bytes(32) if is_stale else bytes(top.chain)).hex())
        after.tells("ContextInjected")
        is_legal = not is_stale and self.model.may_be_handed and getattr(after, act)()
        context = ContextBody(patch={"seen": [top.seq]}, seen=seen)
        try:
            go_on(act, self.run.id, context, by=OLGA, justification=WHY)
        except DurableAgentsError:
            if is_legal:
                raise
            assert dump() == before, "what is refused changes nothing"
        else:
            assert is_legal
            self.model = after

    @precondition(lambda self: _is_free(self) and not self.model.has_done and now_and_then(self))
    @rule()
    def stand_still_and_be_handed(self) -> None:
        """Pause first: by chance alone few runs are in a state that permits injections."""
        self.steer("pause")
        if self.model.wants_pause:
            self.stand_still()
        self.hand_it_something("resume", False)

    def ask_people(self) -> None:
        raise NotImplementedError

    def steer(self, what: str) -> None:
        raise NotImplementedError

    def stand_still(self) -> None:
        raise NotImplementedError


def _is_free(machine: Talker) -> bool:
    return machine.model.is_owned and not machine.model.call and not machine.model.waits
