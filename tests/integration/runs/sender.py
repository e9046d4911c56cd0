"""Messages to a run and their answers, on the real database and the model: a part of test_model.py's machine."""

from __future__ import annotations

from functools import partial

import psycopg
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from pydantic import BaseModel

from ledger import events as e
from ledger.errors import IllegalTransition
from runs.engine.agents import Agent
from runs.models import Message
from runs.services.messages import sending
from tests.integration.runs.spender import Spender, now_and_then, owned
from tests.world import SHOP


class Said(BaseModel):
    text: str


def takes_messages(agent: Agent) -> Agent:
    @agent.message(takes=Said)
    def say(state: BaseModel, request: Said) -> None:
        return None

    return agent


class Sender(Spender):
    """Each message is recorded once, even if repeated, and answered in order."""

    @precondition(lambda self: self.model.may_be_sent < 5 and now_and_then(self))
    @rule(again=st.booleans())
    def send(self, again: bool) -> None:
        number = Message.objects.filter(run=self.run).count() + 1
        named = f"{number} of {self.run.id}"  # one name for a message over all continuations
        sending_it = partial(sending.send, self.run.id, "say", {"text": "x"}, by=SHOP, sender_id=named)
        self.is_done(sending_it, self.model.is_sent())
        if again and Message.objects.filter(run=self.run).count() == number:
            assert not sending_it().is_new

    @precondition(lambda self: owned(self) and self.model.unanswered)
    @rule(is_of_turn=st.booleans())
    def answer_message(self, is_of_turn: bool) -> None:
        came = self.write(self.journal.inbox())
        number = came.n if is_of_turn else came.n + 1
        message_handled = e.MessageHandled(name="say", n=number, outcome="answered", visit="0.1", place=0, calls=[])
        try:
            self.write(self.journal.answer(number, "answered", [message_handled]))
        except psycopg.DatabaseError:
            assert not is_of_turn, "only the oldest is answered"
            return
        assert is_of_turn
        self.model.unanswered -= 1
        self.model.tells("MessageHandled")

    @precondition(lambda self: self.model.has_ended and now_and_then(self))
    @rule()
    def send_too_late(self) -> None:
        try:
            sending.send(self.run.id, "say", {"text": "late"}, by=SHOP)
        except IllegalTransition:
            return
        raise AssertionError("a run that has ended took a message")

    @invariant()
    def nobody_waits_for_an_answer_that_never_comes(self) -> None:
        assert Message.objects.filter(run=self.run, outcome="").count() == self.model.unanswered
