"""Assertions about a story. Each message shows the actual and the expected state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from durableagents.testing.clock import Clock, to_its_end
from durableagents.testing.family import HASHER, Family, Member
from durableagents.testing.oracle import Effect, Sent, effects_of, twice
from durableagents.testing.words import now_in_words, wait_in_words
from ledger import events as e
from runs.engine.canonical import plain
from runs.engine.recordings.recording import recordings_of
from runs.engine.recordings.replaying import call_in_words, first_misfit, format_value, replay

ANY: Any = object()  # stands for an argument that isn't checked
Expected = str | tuple[str, Any] | Mapping[str, Any]


class Assertions:
    """Effects and state of a story's run, with assertions about them."""

    _family: Family
    clock: Clock

    @property
    def _current(self) -> Member:
        raise NotImplementedError

    @property
    def now(self) -> str:
        raise NotImplementedError

    # --- looking ---

    @property
    def state(self) -> str:
        """Return the run's state under its name in the API."""
        return self._current.run.state

    @property
    def output(self) -> Any:
        """Return the output of a completed run."""
        self.assert_completed()
        return self._current.run.events[-1].payload

    @property
    def effects(self) -> list[Effect]:
        """Return the effects in upstream systems, in order, each once.

        They are collected from the tools, not from the record.
        """
        return effects_of(self._family.hands.sent)

    @property
    def sent(self) -> list[Sent]:
        """Return every request that was sent, including reads and repeats."""
        return list(self._family.hands.sent)

    @property
    def events(self) -> list[e.Event]:
        """Return the run's journal."""
        return list(self._current.run.events)

    @property
    def prompts(self) -> list[tuple[str, Any]]:
        """Return every request to a model, as assistant and messages."""
        return list(self._family.minds.asked)

    # --- how it stands ---

    def assert_completed(self, output: Any = ANY) -> None:
        """Assert that the run completed, with this `output` if given."""
        if self.state != "completed":
            raise AssertionError(f"expected: the run completed. It is otherwise: {self.now}")
        if output is not ANY:
            found, wanted = self._current.run.events[-1].payload, _plain(output)
            misfit = first_misfit(wanted, found)
            if misfit:
                raise AssertionError(
                    f"expected: the run ends with {format_value(wanted)}. It ended with {format_value(found)}"
                )

    def assert_failed(self, code: str = "") -> None:
        """Assert that the run failed, with this `code` if given."""
        failed = self._current.last(e.RunFailed)
        if self.state != "failed" or code not in ("", failed.code):
            wanted = f" with {code}" if code else ""
            raise AssertionError(f"expected: the run failed{wanted}. It is otherwise: {self.now}")

    def assert_cancelled(self) -> None:
        """Assert that the run was cancelled."""
        if self.state != "cancelled":
            raise AssertionError(f"expected: the run was cancelled. It is otherwise: {self.now}")

    def assert_stopped(self, reason: str = "") -> None:
        """Assert that the run is stopped until an operator acts (for this `reason`, if given)."""
        found = [w.spec.detail.get("reason") for _, _, w in self._family.open_waits("operator")]
        if not found or (reason and reason not in found):
            wanted = f" for {reason}" if reason else ""
            raise AssertionError(f"expected: the run stopped for an operator{wanted}. It is otherwise: {self.now}")

    def assert_waits_for_approval(self, queue: str = "", *, tool: str = "") -> None:
        """Assert that the run waits for an approval by this `queue`, for a call of this `tool`."""
        self._waits("approval", "an approval", queue=queue, tool=tool)

    def assert_waits_for_answer(self, of: str = "", *, title: str = "") -> None:
        """Assert that the run waits for an answer by the queue or role `of`, to a question with this `title`."""
        self._waits("input", "an answer", of=of, title=title)

    def assert_waits_for_signal(self, name: str = "") -> None:
        """Assert that the run waits for a signal of this `name`."""
        self._waits("signal", "a signal", name=name)

    def assert_waits_for_message(self) -> None:
        """Assert that the run waits for a message."""
        self._waits("message", "a message")

    def assert_waits_for_callback(self, tool: str = "") -> None:
        """Assert that the run waits for a callback from the upstream system about a call of this `tool`."""
        self._waits("webhook", "a callback", tool=tool)

    def assert_waits_for_verdict(self, tool: str = "") -> None:
        """Assert that the run waits for a person to settle the unknown outcome of a call of this `tool`."""
        self._waits("reconcile", "a verdict", tool=tool)

    def assert_waits_for_budget(self) -> None:
        """Assert that the run waits for a higher budget."""
        self._waits("budget", "a higher budget")

    def assert_sleeps(self, until: datetime | None = None) -> None:
        """Assert that the run sleeps, `until` this time if given."""
        deadlines = [wait.spec.deadline for _, _, wait in self._family.open_waits("timer")]
        if not deadlines or (until is not None and until not in deadlines):
            wanted = f" until {until:%Y-%m-%d %H:%M:%S %Z}" if until else ""
            raise AssertionError(f"expected: the run sleeps{wanted}. It is otherwise: {self.now}")

    def _waits(self, kind: str, what: str, **detail: str) -> None:
        open_ones = self._family.open_waits(kind)
        for _, _, wait in open_ones:
            if all(value in ("", str(wait.spec.detail.get(name))) for name, value in detail.items()):
                return
        text = ", ".join(f"{name}={value!r}" for name, value in detail.items() if value)
        others = f" ({', '.join(wait_in_words(w) for _, _, w in open_ones)})" if open_ones else ""
        raise AssertionError(
            f"expected: the run waits for {what}{f' ({text})' if text else ''}. It is otherwise: {self.now}{others}"
        )

    # --- what left ---

    def assert_effects(self, expected: Sequence[Expected], *, in_order: bool = True) -> None:
        """Assert exactly these effects, in this order unless `in_order` is False.

        Each `expected` effect is a tool's name, or (name, arguments) with those arguments that are to be compared.
        """
        found = self.effects
        if not in_order:
            expected = sorted(expected, key=lambda each: _sorting(*_wanted(each)))
            found = sorted(found, key=lambda each: _sorting(each.tool, each.args))
        for i, (want, have) in enumerate(zip(expected, found, strict=False), start=1):
            tool, args = _wanted(want)
            misfit = _args_misfit(args, have.args)
            if tool != have.tool or misfit:
                raise AssertionError(
                    f"effect {i}: expected {call_in_words(tool, args)}, and {call_in_words(have.tool, have.args)} was"
                    f" carried out{f': {misfit}' if misfit and tool == have.tool else ''}"
                )
        if len(found) != len(expected):
            more = found[len(expected) :]
            rest = [call_in_words(*_wanted(want)) for want in expected[len(found) :]]
            text = f"not expected: {', '.join(call_in_words(x.tool, x.args) for x in more)}" if more else ""
            raise AssertionError(
                f"expected {len(expected)} effects, but {len(found)} were carried out;"
                f" {text or f'missing: {chr(44).join(rest)}'}; {self.now}"
            )

    def assert_each_effect_once(self) -> None:
        """Assert that no call was carried out twice and no idempotency key had two bodies."""
        problems = twice(self._family.hands.sent)
        if problems:
            raise AssertionError(f"expected: each effect once. Problems: {'; '.join(problems)}")

    def assert_follows_record(self) -> None:
        """Assert that every recorded call was made, in a story whose calls are answered from a record."""
        record = self._family.record
        left = [] if record is None else record.left_out()
        if record is None or left:
            text = f"recorded, but not made: {'; '.join(left)}" if left else "the story has no record"
            raise AssertionError(f"expected: all recorded calls are made. Problem: {text}; {self.now}")

    def assert_replays(self) -> None:
        """Assert that every visit so far replays from its checkpoint: with the same requests and the same state.

        Nothing is sent.
        """
        for member in self._family.members:
            cuts = [(seq, s.node, s.visit, s.generation, s.fingerprint, s.state) for seq, s in member.run.snapshots]
            events, depth = member.run.events, member.run.depth
            for recording in recordings_of(member.run.id, events, cuts, depth=depth):
                found = to_its_end(replay(recording, member.agent, hasher=HASHER))
                if found.difference is not None:
                    raise AssertionError(
                        f"expected: node {recording.node!r} replays. Difference: {found.difference};"
                        f" {now_in_words(member)}"
                    )


def _plain(value: Any) -> Any:
    return plain(value) if isinstance(value, BaseModel) else value


def _wanted(expected: Expected) -> tuple[str, Any]:
    if isinstance(expected, str):
        return expected, None
    if isinstance(expected, Mapping):
        return str(expected["tool"]), _plain(expected.get("args"))
    return expected[0], _plain(expected[1])


def _sorting(tool: str, args: Any) -> tuple[str, str]:
    return tool, format_value(args)


def _args_misfit(wanted: Any, found: Any) -> str | None:
    if wanted is None:
        return None
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        missing = [name for name in wanted if name not in found]
        if missing:
            return f"there is no {missing[0]!r}"
        return first_misfit(dict(wanted), {name: found[name] for name in wanted})
    return first_misfit(wanted, found)
