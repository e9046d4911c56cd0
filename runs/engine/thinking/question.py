"""One model request of a turn. A recorded request is replayed; otherwise its intent is recorded before it is made.

The run's models are recorded first, so that later settings don't affect the run. Unavailable models are skipped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError

from ledger import events as e
from ledger.kinds import BY_SETTING, CHOICE, CONTENT_REFUSED
from runs.engine.assistants import UNAVAILABLE, Assistant, ModelRefused, ModelTurn, Request, responses
from runs.engine.budget import Route, Usage, wanted_by
from runs.engine.canonical import plain
from runs.engine.content.files import Prompt, as_data
from runs.engine.errors import (
    ModelFailure,
    NotServed,
    Passing,
    SharedBudgetShort,
    SharedBudgetUnpriced,
    TransportError,
    describe_error,
    traceback_of,
)
from runs.engine.journal import Batch, WaitSpec
from runs.engine.limits import keys_of_model
from runs.engine.outcomes import Broken, Crashed
from runs.engine.runtime import is_being_cancelled
from runs.engine.screening import RequestScreening, ScreenedConversation
from runs.engine.steps import shared_budgets
from runs.engine.steps.permits import Hold, park_for_limit
from runs.engine.steps.retry import park_for_retry, try_until_answered
from runs.engine.steps.spending import debit, lost
from runs.engine.tape import Attempt, payload_of
from runs.engine.thinking.answers import ids_of_calls, names_of_tools, recordable
from runs.engine.thinking.notes import FROM_PEOPLE, Notes, as_parts
from runs.engine.thinking.sizes import tokens_of, tokens_of_tools
from runs.engine.visit import Visit, path_of

T = TypeVar("T")
# tokens reserved for an answer if the assistant has no length limit
USUAL_ANSWER = 4096
PRICE_REST_SECONDS = 0.5
# Seconds to wait for a permit if another model can be used instead.
PATIENCE_WITH_OTHERS = 1.0


class _NextModel(Exception):
    """This model is unavailable, but there is another one."""


class Question:
    """The request at `slot`.

    `added` is the part of the request that no other event contains. `extra_events` returns further events to commit
    with the answer.
    """

    def __init__(
        self,
        visit: Visit,
        slot: str,
        assistant: Assistant,
        messages: list[Any],
        conversation: str,
        turn: int,
        request_hash: str,
        added: Any,
        extra_events: Callable[[ModelTurn], Sequence[e.Event]] = lambda given: (),
        screened: ScreenedConversation | None = None,
    ) -> None:
        self.visit, self.slot, self.assistant, self.messages, self.turn = visit, slot, assistant, messages, turn
        self.conversation = visit.places.at(conversation)
        self.request_hash, self.added, self.extra_events = request_hash, added, extra_events
        self.record = record = visit.recall(slot, "model", request_hash)
        self.past: Attempt = record.now
        self.attempt = record.current
        self.screening = RequestScreening(
            visit, slot, assistant.name, messages, record, screened or ScreenedConversation()
        )
        self.sent: e.ModelRouted | None = None  # the request in progress, with its reservation
        self.route: Route | None = None
        self.hold = Hold(visit, slot)
        self.cleared_at = 0.0  # monotonic time when it was last known not to be halted
        self.models: list[str] = []  # the models that may still be used, the current one first

    @property
    def is_on_record(self) -> bool:
        return self.past.intent is not None or self.past.result is not None

    async def answer(self) -> Any:
        """Return the model's response. Raises ModelFailure."""
        visit, past = self.visit, self.past
        match past.result:
            case e.ModelResponded():
                return self._recalled(past.result)
            case e.ModelFailed(code=code) if code == CONTENT_REFUSED and (no := self.screening.refusal):
                raise no
            case e.ModelFailed():
                raise ModelFailure(past.result.code, payload_of(past.result).get("message", ""))
        waiting = past.open_wait("timer")
        if waiting is not None:
            visit.park(WaitSpec(visit.run_id, self.slot, self.attempt, "timer", waiting, visit.journal.now()))
        if past.route is not None:
            await self._lose(past.route)
        await self._choose()
        if await self.screening.ask() is not None:
            await self._withhold()
        while True:
            try:
                given = await try_until_answered(visit, self._try, past, self._pass_on, is_short=len(self.models) > 1)
            except _NextModel:
                self.models.pop(0)
                continue
            finally:
                self.hold.leave()
            return await self._record(given)

    def _recalled(self, event: e.ModelResponded) -> Any:
        """Return the recorded answer. Stops for an operator if the recorded answer can no longer be parsed."""
        try:
            return responses().validate_python(payload_of(event)["response"])
        except (ValidationError, KeyError) as error:
            problem = f"the recorded answer is not a model's response: {error}"
            self.visit.stop(Broken("recorded_answer", {"slot": self.slot, "problem": problem}))

    async def give_up(self, code: str, problem: str) -> NoReturn:
        """Record a failure instead of an answer, and raise it. Nothing is sent.

        If a person retries the run, the model is asked again.
        """
        await self._fail(code, problem)
        raise ModelFailure(code, problem)

    async def _withhold(self) -> NoReturn:
        no = self.screening.refusal
        assert no is not None
        await self._fail(CONTENT_REFUSED, str(no))
        raise no

    async def _fail(self, code: str, problem: str) -> None:
        visit, past = self.visit, self.past
        visit.check_stop()
        visit.afford(self.slot, self.attempt, Usage(steps=1), is_reserved=True)
        events: list[e.Event] = []
        if past.intent is None:
            past.intent = e.ModelRequested(
                slot=self.slot,
                attempt=self.attempt,
                conversation=self.conversation,
                turn=self.turn,
                model=self.assistant.name,
                request_hash=self.request_hash,
            )
            events.append(past.intent)
        failed = e.ModelFailed(
            slot=self.slot,
            attempt=self.attempt,
            conversation=self.conversation,
            turn=self.turn,
            code=code,
            payload={"message": problem},
        )
        batch = Batch([*events, *self.screening.take(), failed], usage=Usage(steps=1))
        visit.boundary(await visit.commit(batch))

    # --- choice of the model ------------------------------------------------------------------------------------------

    async def _choose(self) -> None:
        """Set the models according to the last recorded choice. If there is none, record the installation's models.

        Models that were recently unavailable come last.
        """
        visit, name = self.visit, self.assistant.name
        async with visit.choosing:
            while True:
                choices = await visit.look_up(visit.journal.models())
                ours = [choice for choice in choices if choice.assistant in ("", name)]
                if ours:
                    break
                models = list(visit.runtime.models(self.assistant))
                chosen = e.ModelsChosen(slot=CHOICE, n=len(choices), assistant=name, models=models, by=BY_SETTING)
                await visit.commit(Batch([chosen]))  # refused if a person's choice came first; that choice is then used
        resting = visit.runtime.resting
        self.models = sorted(ours[-1].models, key=lambda model: resting.get(model, 0.0) > time.monotonic())

    async def _routed(self) -> Route:
        """Return the current model with its price. If a dollar cap needs a price, wait briefly for one to be added."""
        visit, until = self.visit, time.monotonic() + self.visit.runtime.price_patience
        while True:
            route = visit.runtime.route(self.models[0])
            is_needed = visit.meter.caps.usd_micro is not None and route.price is None
            if not is_needed or time.monotonic() >= until:
                return route
            await visit.rest(PRICE_REST_SECONDS)

    async def _pass_on(self, trouble: Exception) -> NoReturn:
        """Use the next model, or park on a timer if there is none. Called when an error persists."""
        await self._nobody_served()
        self._rest_model()
        if len(self.models) > 1:
            raise _NextModel from trouble
        await park_for_retry(
            self.visit,
            self.slot,
            self.past,
            trouble,
            attempt=self.attempt,
            tool="model",
            title="Model request",
            call={},
        )

    async def _enter(self) -> None:
        """Get a permit for the next try. If that takes too long, use the next model or park on a timer."""
        patience = self.visit.runtime.limit_patience if len(self.models) == 1 else PATIENCE_WITH_OTHERS
        refused = await self.hold.take(
            keys_of_model(self.models[0]),
            lasts=self.assistant.timeout,
            patience=patience,
            earlier=self.past.waits_of("timer"),
        )
        if refused is None:
            return
        await self._nobody_served()
        if len(self.models) > 1:
            raise _NextModel
        await park_for_limit(
            self.visit,
            self.slot,
            self.past,
            refused,
            attempt=self.attempt,
            tool="model",
            title="Model request",
            call={"call": "model", "hash": self.request_hash},
        )

    async def _nobody_served(self) -> None:
        if self.sent is not None:
            await self.visit.commit(Batch([self._debit(0, 0, model_calls=0)]))
            self.sent = None

    def _rest_model(self) -> None:
        self.visit.runtime.resting[self.models[0]] = time.monotonic() + self.visit.runtime.model_rest

    # --- the intent ---------------------------------------------------------------------------------------------------

    async def _intend(self) -> e.ModelRouted:
        """Before sending, record which model will get the request and how much is reserved for it."""
        visit, past, assistant = self.visit, self.past, self.assistant
        route = await self._routed()
        tokens_in = tokens_of(self.messages) + tokens_of_tools(assistant)
        tokens_out = assistant.most_tokens or USUAL_ANSWER
        event = e.ModelRouted(
            slot=self.slot,
            attempt=self.attempt,
            n=past.routes,
            model=route.model,
            price=route.version,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            usd_micro=route.cost(tokens_in, tokens_out),
            payload={"settings": assistant.settings()},
        )
        visit.check_stop()
        if event.usd_micro is None and visit.meter.caps.usd_micro is not None:
            problem = f"the run has a cap in dollars, and {route.model} has no price: add a price, then retry"
            visit.stop(Broken("no_price", {"model": route.model, "problem": problem}))
        visit.afford(self.slot, self.attempt, wanted_by(event), is_reserved=True)
        events: list[e.Event] = [event]
        if past.intent is None:
            past.intent = e.ModelRequested(
                slot=self.slot,
                attempt=self.attempt,
                conversation=self.conversation,
                turn=self.turn,
                model=assistant.name,
                request_hash=self.request_hash,
                payload=self.added,
            )
            events.insert(0, past.intent)
        events[-1:-1] = self.screening.take()
        try:
            shared_budgets.park_if_waiting(visit, self.slot, self.attempt)
            await visit.commit(Batch(events, is_intent=True))
        except (SharedBudgetShort, SharedBudgetUnpriced) as error:
            named = {"call": "model", "hash": self.request_hash} if isinstance(events[0], e.ModelRequested) else {}
            await shared_budgets.wait_for_room(visit, self.slot, self.attempt, error, **named)
        past.routes += 1
        self.route = route
        return event

    async def _lose(self, sent: e.ModelRouted) -> None:
        """Debit everything reserved for a request whose answer was lost, because it may have been billed."""
        await self.visit.commit(Batch([lost(sent)]))
        self.sent = self.past.route = None

    # --- the request --------------------------------------------------------------------------------------------------

    async def _try(self, number: int) -> ModelTurn:
        """Send the request once. After an outage of the provider it is retried; outages never fail the run."""
        visit = self.visit
        await self._enter()
        if self.sent is None:
            self.sent = await self._intend()
            self.cleared_at = time.monotonic()
        visit.runtime.hit("CP2", "model")
        key = keys_of_model(self.models[0])[-1]
        if await visit.is_held_back(key, self.cleared_at):
            await self._nobody_served()
            visit.hold_back(key)
        try:
            with visit.control.sending(self.slot, key, self.assistant.timeout), self.hold.under_way():
                given = await _unless_cancelled(visit, self._in_time(is_first=number == 1))
            visit.runtime.hit("CP4", "model")
            known = names_of_tools(self.assistant), ids_of_calls(self.messages)
            return replace(given, response=plain(recordable(given.response, *known)))
        except ModelRefused as refusal:
            if refusal.code == UNAVAILABLE and len(self.models) > 1:
                await self._pass_on(refusal)
            await self._refused(refusal)
        except Passing as trouble:
            if not isinstance(trouble, NotServed):
                await self._lose(self.sent)
            raise
        except (Exception, asyncio.CancelledError) as bug:
            if isinstance(bug, asyncio.CancelledError) and is_being_cancelled():
                raise
            visit.stop(Crashed("model_error", f"{self.assistant.name}: {describe_error(bug)}", traceback_of(bug)))

    async def _in_time(self, *, is_first: bool) -> ModelTurn:
        """Send the request with the assistant's timeout.

        Only the first try is streamed, so that a failing stream doesn't affect the run.
        """
        limit, name, visit = self.assistant.timeout, self.assistant.name, self.visit
        overhear = visit.runtime.overhear(visit.run_id, visit.journal.lease, self.slot, self.attempt)
        try:
            async with asyncio.timeout(limit), overhear as hear:
                listener = (hear,) if hear is not None and is_first and not self.past.waits_of("timer") else ()
                return await visit.runtime.request_model(self.assistant, self.messages, self.models[0], *listener)
        except TimeoutError as error:
            raise TransportError(f"{name}: no answer from the model within {limit:g} s") from error

    # --- the outcome --------------------------------------------------------------------------------------------------

    async def _refused(self, refusal: ModelRefused) -> NoReturn:
        event = e.ModelFailed(
            slot=self.slot,
            attempt=self.attempt,
            conversation=self.conversation,
            turn=self.turn,
            code=refusal.code,
            payload={"message": str(refusal)},
        )
        batch = Batch([event, self._debit(0, 0)], usage=Usage(steps=1))
        self.visit.boundary(await self.visit.commit(batch))
        raise ModelFailure(refusal.code, str(refusal)) from refusal

    def _debit(self, tokens_in: int, tokens_out: int, *, model_calls: int = 1) -> e.BudgetDebited:
        assert self.sent is not None and self.route is not None
        cost = self.route.cost(tokens_in, tokens_out)
        return debit(self.sent, model_calls=model_calls, tokens_in=tokens_in, tokens_out=tokens_out, usd_micro=cost)

    async def _record(self, given: ModelTurn) -> Any:
        event = e.ModelResponded(
            slot=self.slot,
            attempt=self.attempt,
            conversation=self.conversation,
            turn=self.turn,
            tokens_in=given.tokens_in,
            tokens_out=given.tokens_out,
            payload={"model": given.model, "response": given.response},
        )
        events = [event, self._debit(given.tokens_in, given.tokens_out), *self.extra_events(given)]
        reply = await self.visit.commit(Batch(events, usage=Usage(steps=1)))
        self.visit.runtime.hit("CP6", "model")
        self.visit.boundary(reply)
        return responses().validate_python(given.response)


async def ask_once(visit: Visit, slot: str, assistant: Assistant, prompt: Prompt) -> str:
    """Make one request without tools and return the text of the answer. Raises ModelFailure."""
    from pydantic_ai.messages import ModelRequest, TextPart, UserPromptPart

    task: dict[str, Any] = {
        "assistant": assistant.name,
        "instructions": assistant.instructions,
        "prompt": as_data(prompt),
    }
    notes = Notes(visit).new(slot)
    task |= {FROM_PEOPLE: notes} if notes else {}
    parts = [UserPromptPart(content=prompt), *as_parts(notes)]
    request = ModelRequest(parts=parts, instructions=assistant.instructions)
    asking = assistant.asking(_for_text(assistant))
    question = Question(visit, slot, asking, [request], path_of(slot), 0, visit.runtime.hasher(task), task)
    response = await question.answer()
    return "".join(p.content for p in response.parts if isinstance(p, TextPart))


def _for_text(assistant: Assistant) -> Request:
    from pydantic_ai.models import ModelRequestParameters

    return Request(ModelRequestParameters(), {}, 0)


async def _unless_cancelled(visit: Visit, asking: Coroutine[Any, Any, T]) -> T:
    """Await an operation without effects, unless the run is cancelled."""
    answer = asyncio.ensure_future(asking)
    cancelled = asyncio.ensure_future(visit.control.cancelled.wait())
    try:
        await asyncio.wait({answer, cancelled}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            visit.check_stop()
        return await answer
    finally:
        answer.cancel()
        cancelled.cancel()
