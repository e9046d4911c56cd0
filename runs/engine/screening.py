"""Asks content hooks for verdicts and records them. A recorded verdict is never asked for again."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from ledger import events as e
from runs.engine.canonical import on_one_line, plain, printable
from runs.engine.content.files import as_content, as_data
from runs.engine.content.hooks import ALWAYS, MAX_REASON_LENGTH, Piece, Redact, Screen, Withhold, characters
from runs.engine.errors import ContentRefused
from runs.engine.runtime import is_being_cancelled, log
from runs.engine.tape import Attempt, Slot, Tape, payload_of
from runs.engine.visit import Visit


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict other than pass.

    The piece's `content` is what the hook saw; `stands` is the replacement, unless the hook refused the piece.
    """

    place: str
    piece: Piece
    screen: Screen
    reason: str
    is_refused: bool
    stands: Any = None

    @property
    def marker(self) -> dict[str, str]:
        return {"withheld_by": self.screen.id, "reason": self.reason}


def screens_of(visit: Visit) -> tuple[Screen, ...]:
    """Return the hooks in use: the built-in ones, the installation's and the agent's."""
    others = (*visit.runtime.screens, *visit.agent.screens)
    return (*ALWAYS, *others) if others else ALWAYS


def due(visit: Visit, past: Attempt, after: int = 0) -> tuple[Screen, ...]:
    """Return the hooks that have no recorded verdict on this content, ignoring the first `after` screenings."""
    screens = screens_of(visit)
    if not past.screenings[after:]:
        return screens
    known = {hook for each in past.screenings[after:] for hook in each.hooks}
    return tuple(each for each in screens if each.id not in known)


async def look(visit: Visit, screens: Sequence[Screen], pieces: dict[str, Piece]) -> list[Finding]:
    """Ask the hooks in turn about each piece, with the replacements made so far.

    A refusal ends the checks of a piece.
    """
    findings: list[Finding] = []
    for place, piece in pieces.items():
        for screen in screens:
            if not screen.is_for(piece):
                continue
            found = await _ask(visit, screen, place, piece)
            if found is None:
                continue
            findings.append(found)
            if found.is_refused:
                break
            piece = replace(piece, content=found.stands)
    return findings


async def _ask(visit: Visit, screen: Screen, place: str, piece: Piece) -> Finding | None:
    problem, verdict = "", None
    try:
        given = await _in_time(visit, screen, piece)
        verdict = Redact(plain(given.content), given.reason) if isinstance(given, Redact) else given
    except TimeoutError:
        problem = f"it took more than {screen.timeout:g} s, which counts as a refusal"
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
            raise
        problem = f"it failed with {type(error).__name__}, which counts as a refusal"  # the text may quote the content
    match verdict:
        case None if not problem:
            return None
        case Redact():
            return Finding(place, piece, screen, _reason(verdict.reason), False, verdict.content)
        case Withhold():
            return Finding(place, piece, screen, _reason(verdict.reason), True)
        case None:
            pass
        case _:
            problem = f"it returned {type(verdict).__name__} as a verdict, which counts as a refusal"
    log.warning("run %s: screen %s of %s content: %s", visit.run_id, screen.id, piece.source, problem)
    return Finding(place, piece, screen, problem, True)


async def _in_time(visit: Visit, screen: Screen, piece: Piece) -> Any:
    """Return the hook's verdict on a copy of the piece. Raises TimeoutError."""
    if screen.is_quick:
        return screen.function(piece)
    own = replace(piece, content=copy.deepcopy(piece.content))
    if not inspect.iscoroutinefunction(screen.function):
        return await _in_thread(screen, own)
    began = time.monotonic()
    async with asyncio.timeout(screen.timeout):
        verdict = await screen.function(own)
    if time.monotonic() - began > screen.timeout:  # the hook blocked the event loop, so no timeout fired
        raise TimeoutError
    return verdict


# Hooks have their own threads. If they waited for a tool's thread, they would time out because of other calls.
_threads = ThreadPoolExecutor(8, thread_name_prefix="screen")
_QUEUE_SECONDS = 30.0


async def _in_thread(screen: Screen, piece: Piece) -> Any:
    """Run a hook in a thread. Its timeout begins when it starts.

    It can't be interrupted, so a late verdict is ignored.
    """
    loop, begun, began = asyncio.get_running_loop(), asyncio.Event(), 0.0

    def work() -> Any:
        nonlocal began
        began = time.monotonic()
        loop.call_soon_threadsafe(begun.set)
        return screen.function(piece), time.monotonic()

    answer = loop.run_in_executor(_threads, work)
    try:
        async with asyncio.timeout(_QUEUE_SECONDS):
            await begun.wait()
    except BaseException:
        answer.cancel()
        raise
    async with asyncio.timeout(screen.timeout):
        verdict, ended = await answer
    if ended - began > screen.timeout:  # the thread blocked the whole process, so the timeout did not fire
        raise TimeoutError
    return verdict


def _reason(given: Any) -> str:
    text: str = printable(str(given))
    return on_one_line(text)[:MAX_REASON_LENGTH] or "no reason given"


def recorded(
    visit: Visit,
    slot: str,
    attempt: int,
    past: Attempt,
    *,
    to: str,
    screens: Sequence[Screen],
    pieces: dict[str, Piece],
    findings: Sequence[Finding],
    replaced: dict[str, Any],
    seen: Sequence[str] = (),
) -> list[e.Event]:
    """Return the events that record a screening, and add them to `past`.

    The list is empty if only the built-in hooks applied and found nothing.
    """
    if not findings and set(screens) <= set(ALWAYS):
        return []
    first = len(past.withheld)
    screened = e.ContentScreened(
        slot=slot,
        attempt=attempt,
        n=len(past.screenings),
        to=to,
        hooks=[each.id for each in screens],
        pieces=len(pieces),
        refused=sum(each.is_refused for each in findings),
        replaced=sum(not each.is_refused for each in findings),
        payload=_record_fields(replaced, seen),
    )
    withheld = [
        e.ContentWithheld(
            slot=slot,
            attempt=attempt,
            n=first + i,
            place=each.place,
            source=_source(each.piece),
            to=_to(each.piece),
            verdict="refused" if each.is_refused else "replaced",
            hook=each.screen.name,
            version=each.screen.version,
            digest=visit.runtime.hasher(_hashable(each.piece.content)),
            size=characters(each.piece.content),
            reason=each.reason,
            is_restored=each.piece.is_restored,
        )
        for i, each in enumerate(findings)
    ]
    past.screenings.append(screened)
    past.withheld.extend(withheld)
    return [screened, *withheld]


def _record_fields(replaced: dict[str, Any], seen: Sequence[str]) -> dict[str, Any] | None:
    fields = ({"stands": replaced} if replaced else {}) | ({"seen": list(seen)} if seen else {})
    return fields or None


def recorded_replacements(record: Slot) -> dict[str, Any]:
    """Return all recorded replacements, so that no later attempt lets through what an earlier one withheld."""
    replaced: dict[str, Any] = {}
    for _, attempt in sorted(record.attempts.items()):
        for each in attempt.screenings:
            known = payload_of(each).get("stands", {})
            replaced |= known if isinstance(known, dict) else {}
    return replaced


def refused_at(record: Slot) -> set[str]:
    return {each.place for a in record.attempts.values() for each in a.withheld if each.verdict == "refused"}


def refusal(past: Attempt) -> ContentRefused | None:
    """Return the error for the last recorded refusal; None if there is none.

    The refusal may also be in an answer that was taken over from another run.
    """
    last = next((each for each in reversed(past.withheld) if each.verdict == "refused"), None)
    if last is not None:
        return ContentRefused(last.source, last.to, f"{last.hook}@{last.version}", last.reason)
    withheld = payload_of(past.result).get("withheld")
    return ContentRefused(**withheld) if isinstance(withheld, dict) else None


def _source(piece: Piece) -> str:
    return on_one_line(f"{piece.source} {piece.name}".strip())


def _to(piece: Piece) -> str:
    return on_one_line(f"{piece.to} {piece.target}".strip())


def _hashable(content: Any) -> Any:
    """Return content as its stored text, so that content without a canonical form can be hashed too.

    Large numbers and lone surrogates have no canonical form.
    """
    return json.dumps(content, sort_keys=True).encode("utf-8", "backslashreplace").decode()


@dataclass
class ScreenedConversation:
    """Facts about a conversation's parts, by their id().

    `restored` parts were read from the journal, `held` are markers in place of refused parts, and `seen` maps each part
    to the hooks that saw it.
    """

    source: str = "prompt"
    restored: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    seen: dict[int, set[str]] = field(default_factory=dict)


class RequestScreening:
    """The screening of one request. `events` are recorded together with its intent."""

    def __init__(
        self,
        visit: Visit,
        slot: str,
        assistant: str,
        messages: Sequence[Any],
        record: Slot,
        screened: ScreenedConversation,
    ) -> None:
        self._visit, self._slot, self._attempt, self._past = visit, slot, record.current, record.now
        self._assistant, self._shown = assistant, screened
        self._parts = {str(n): part for n, part in enumerate(_parts_of(messages))}
        self.events: list[e.Event] = []
        for place, content in recorded_replacements(record).items():
            if place in self._parts:
                self._put(place, content, is_held=(place in refused_at(record)))

    @property
    def refusal(self) -> Exception | None:
        return refusal(self._past)

    async def ask(self) -> Finding | None:
        """Screen the request's parts, and apply replacements. Return the refusal of the prompt itself, if any."""
        screens = due(self._visit, self._past)
        pieces = {
            place: self._piece(place, part)
            for place, part in self._parts.items()
            if id(part) not in self._shown.held and not {each.id for each in screens} <= self._seen(part)
        }
        findings = await look(self._visit, screens, pieces)
        for place in pieces:
            self._seen(self._parts[place]).update(each.id for each in screens)
        replaced: dict[str, Any] = {}
        no = None
        for found in findings:
            if found.is_refused and _is_prompt(self._parts[found.place]) and found.place == "0":
                no = no or found
                continue
            replaced[found.place] = found.marker if found.is_refused else found.stands
            self._put(found.place, replaced[found.place], is_held=found.is_refused)
        self.events += recorded(
            self._visit,
            self._slot,
            self._attempt,
            self._past,
            to=f"model {self._assistant}",
            screens=screens,
            pieces=pieces,
            findings=findings,
            replaced=replaced,
        )
        return no

    def take(self) -> list[e.Event]:
        """Return the pending events, to be written with the current commit."""
        taken, self.events = self.events, []
        return taken

    def _piece(self, place: str, part: Any) -> Piece:
        source, name = self._shown.source, self._visit.node
        if not _is_prompt(part):
            source, name = "tool", part.tool_name
        elif place != "0":
            source, name = "transcript", self._assistant
        return Piece(
            content=as_data(part.content),
            source=source,
            name=name,
            to="model",
            target=self._assistant,
            agent=self._visit.graph_id,
            run_id=self._visit.run_id,
            is_restored=id(part) in self._shown.restored,
        )

    def _seen(self, part: Any) -> set[str]:
        """Return the hooks that saw a part in this visit. Its content doesn't change, so their verdicts still apply."""
        return self._shown.seen.setdefault(id(part), set())

    def _put(self, place: str, content: Any, *, is_held: bool) -> None:
        part = self._parts[place]
        is_prompt = _is_prompt(part)
        part.content = str(content) if is_prompt and not isinstance(content, (str, list)) else content
        if isinstance(part.content, list):
            part.content = as_content(content, is_prompt=is_prompt)
        if is_held:
            self._shown.held.add(id(part))


def _is_prompt(part: Any) -> bool:
    return bool(part.part_kind == "user-prompt")


def _parts_of(messages: Sequence[Any]) -> list[Any]:
    """Return the parts that come from outside: not from the engine, the assistant's author or the model itself."""
    return [
        part
        for message in messages
        if message.kind == "request"
        for part in message.parts
        if part.part_kind in ("user-prompt", "tool-return")
    ]


async def received(
    visit: Visit, slot: str, record: Slot, content: Any, *, source: str, name: str, place: str = "0"
) -> Any:
    """Return content from outside in the form that the node may see. Raises ContentRefused."""
    past = record.now
    seen = {each for known in past.screenings for each in payload_of(known).get("seen", ())}
    if place in seen:
        return _known(record, place, content)
    piece = Piece(
        content=plain(content),
        source=source,
        name=name,
        to="node",
        target=visit.node,
        agent=visit.graph_id,
        run_id=visit.run_id,
    )
    screens = [each for each in screens_of(visit) if each.is_for(piece)]
    if not screens or _went_on(visit.tape, slot):
        return content
    findings = await look(visit, screens, {place: piece})
    is_refused = any(each.is_refused for each in findings)
    replaced = {} if is_refused or not findings else {place: findings[-1].stands}
    events = recorded(
        visit,
        slot,
        record.current,
        past,
        to=f"node {visit.node}",
        screens=screens,
        pieces={place: piece},
        findings=findings,
        replaced=replaced,
        seen=[place],
    )
    for event in events:  # recorded with the next step or the run's end, because nothing depends on it before
        visit.buffer(event)
    return _known(record, place, content)


def _known(record: Slot, place: str, content: Any) -> Any:
    if place in refused_at(record):
        last = next(each for each in reversed(record.now.withheld) if (each.place, each.verdict) == (place, "refused"))
        raise ContentRefused(last.source, last.to, f"{last.hook}@{last.version}", last.reason)
    return recorded_replacements(record).get(place, content)


def _went_on(tape: Tape, slot: str) -> bool:
    """Return whether the node continued: a later call is recorded, on the same or an enclosing branch."""
    own = slot.split("/")
    return any(
        _is_after(tape, own, name.split("/"))
        for name, known in tape.slots.items()
        if name[:1].isdigit() and (known.what is not None or known.branches is not None)
    )


def _is_after(tape: Tape, own: list[str], other: list[str]) -> bool:
    for n, (mine, theirs) in enumerate(zip(own, other, strict=False)):
        if mine != theirs:
            parent = tape.slots.get("/".join(own[:n]))
            is_line = parent is None or parent.branches is None
            return is_line and n > 0 and int(theirs) > int(mine)
    return False
