"""A run's story: a projection of its journal, built event by event without payloads.
The projection (`Fold`) can be cached and continued. `Fold.story` copies the requested parts, so readers need no lock.
`Story.open` adds what only payloads contain."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

from ledger.web.text_safety import Change, compare, leaves
from runs.engine.tape import LATE_NEWS
from runs.story import effects, gates, scale, timeline, transcript
from runs.story.effects import Effect, Effects, message_of, trace_of
from runs.story.gates import Gate, Gates
from runs.story.lines import Bare, EventLine, Fact, clear_of, is_step, line_of, mislabelled, read
from runs.story.rows import Row, RowPage
from runs.story.scale import WORKING, Pace
from runs.story.timeline import Timeline
from runs.story.transcript import Opener, Talk, Transcript

__all__ = [
    "Bare",
    "Crash",
    "Effect",
    "Fact",
    "Fold",
    "Gate",
    "EventLine",
    "Opener",
    "Row",
    "Story",
    "Talk",
    "Trouble",
    "Want",
    "clear_of",
    "line_of",
    "mislabelled",
    "read",
    "tell",
]

CLOSED_TOLD = 20
DAMAGED_TOLD = 5


@dataclass(slots=True)
class Crash:
    """The loss of a worker and the run's next step.
    `in_flight` are the calls that were sent but not answered."""

    at: datetime
    seq: int
    worker: str
    pid: int
    proof: str
    back_at: datetime | None = None
    in_flight: int = 0

    @property
    def took(self) -> float | None:
        """Return the seconds from the loss to the next worker's first step, as shown on the recoveries page."""
        return None if self.back_at is None else (self.back_at - self.at).total_seconds()


@dataclass
class Trouble:
    """An error, described by its event, or by `plain` if the event has no description."""

    kind: str
    at: datetime
    seq: int
    where: str
    plain: str = ""
    message: str = ""
    trace: str = ""
    details: Any = None

    def open(self, lines: Mapping[int, EventLine]) -> None:
        """Add the parts that only the payload contains."""
        if line := lines.get(self.seq):
            self.message, self.trace = message_of(line), trace_of(line)
            self.details = line.get("details") if line.kind != "OperatorNeeded" else self._evidence(line.shown)
        self.message = self.message or self.plain

    def _evidence(self, evidence: Any) -> Any:
        is_said = isinstance(evidence, dict) and evidence.get("problem") == self.message
        return {key: value for key, value in evidence.items() if key != "problem"} if is_said else evidence

    @property
    def late(self) -> list[dict[str, Any]]:
        """Return the late results that stopped the run: slot, attempt, tool, the result, and the recorded outcome."""
        news = self.details.get("late") if self.plain == LATE_NEWS and isinstance(self.details, dict) else None
        return [each for each in news if isinstance(each, dict)] if isinstance(news, list) else []

    @property
    def two_calls(self) -> tuple[dict[str, Any], dict[str, Any], list[Change]] | None:
        """If a replay diverged, return the recorded call, the current one, and the arguments that differ."""
        details = self.details if isinstance(self.details, dict) else {}
        recorded, now = details.get("recorded"), details.get("now")
        if not isinstance(recorded, dict) or not isinstance(now, dict):
            return None
        both = "arguments" in recorded and "arguments" in now
        changes = compare(leaves(now["arguments"]), leaves(recorded["arguments"])) if both else []
        return recorded, now, [change for change in changes if change.what != "same"]


@dataclass(frozen=True, slots=True)
class Want:
    """The parts of a story that a page shows.
    Page numbers count from the newest page; 0 means no page. A size of None means all."""

    row_page: int = 1
    rows: int | None = None
    effect_page: int = 1
    effects: int | None = None
    has_talks: bool = True
    acts: int | None = None


ALL = Want()


@dataclass
class Fold:
    """The folded story. Lists are in chronological order."""

    timeline: Timeline = field(default_factory=Timeline)
    pace: Pace = field(default_factory=Pace)
    effects: Effects = field(default_factory=Effects)
    transcript: Transcript = field(default_factory=Transcript)
    gates: Gates = field(default_factory=Gates)
    crashes: list[Crash] = field(default_factory=list)
    path: list[str] = field(default_factory=list)
    input: int = 0
    output: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    last: Fact | None = None
    owner: Fact | None = None
    requested_by: str = ""
    length: int = 0
    damaged: list[Fact] = field(default_factory=list)
    damages: int = 0
    troubles: dict[str, Trouble] = field(default_factory=dict)
    closed: deque[Fact] = field(default_factory=lambda: deque(maxlen=CLOSED_TOLD))
    forks: deque[Fact] = field(default_factory=lambda: deque(maxlen=CLOSED_TOLD))
    answers: list[Fact] = field(default_factory=list)
    questions: dict[tuple[str | None, Any], int] = field(default_factory=dict)
    # The last crash, until the next worker takes a step.
    _down: Crash | None = field(default=None, repr=False)
    # The steps of all parts by kind of event, looked up once per event.
    _steps: dict[str, list[tuple[Any, Callable[[Any, Fact], None]]]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        parts: list[tuple[Any, Mapping[str, Callable[[Any, Fact], None]]]] = [
            (self.timeline, timeline.STEPS),
            (self.pace, scale.STEPS),
            (self.effects, effects.STEPS),
            (self.transcript, transcript.STEPS),
            (self.gates, gates.STEPS),
        ]
        for part, steps in parts:
            for kind, step in steps.items():
                self._steps.setdefault(kind, []).append((part, step))

    def take(self, line: Fact) -> None:
        """Fold in one event. A damaged event is only listed as damaged."""
        self.last, self.length = line, self.length + 1
        if line.damage:
            self.damages += 1
            if len(self.damaged) < DAMAGED_TOLD:
                self.damaged.append(line)
            return
        kind = line.kind
        if self._down is not None:
            self._came_back(self._down, line)
        if kind == "WorkerLost":
            self._lost(line)
        if self.timeline.crash is not None:
            self.timeline.stepped(line)
        for part, step in self._steps.get(kind, ()):
            step(part, line)
        if self.started_at is None:
            self.started_at = line.at
        for own in _OWN.get(kind, ()):
            own(self, line)

    def _came_back(self, crash: Crash, line: Fact) -> None:
        if line.kind != "WorkerLost" and is_step(line) and self.owner is not None and self.owner.seq > crash.seq:
            crash.back_at, self._down = line.at, None

    def _lost(self, line: Fact) -> None:
        clear = line.clear
        crash = Crash(line.at, line.seq, clear["worker"], clear["pid"], clear["proof"])
        crash.in_flight = self.effects.count("sent")
        self.crashes.append(crash)
        self._down = crash

    def _case(self, slot: str | None) -> Effect | None:
        effect = self.effects.by_slot.get(slot) if slot is not None else None
        return None if effect is None else replace(effect)

    def story(self, now: datetime, want: Want = ALL, case: str | None = None) -> Story:
        """Return the story at the time `now`, without its payloads.
        `case` is the slot of the call that a person must settle."""
        effects = self.effects.all()
        size = want.effects or max(len(effects), 1)
        lane, start, older, newer = window(effects, want.effect_page, size)
        return Story(
            timeline=self.timeline.shown(self.pace, now, self.ended_at, want.row_page, want.rows)
            if want.row_page
            else RowPage(),
            effects=Lane(
                [replace(effect) for effect in lane],
                dict(self.effects.tally),
                start,
                older,
                newer,
                self._case(case),
                len(self.effects.resent),
            ),
            talks=self.transcript.shown() if want.has_talks else [],
            gates=[replace(gate) for gate in self.gates.all()[-want.acts if want.acts else 0 :]]
            if want.acts != 0
            else [],
            answers=self.answers[-want.acts if want.acts else 0 :] if want.acts != 0 else [],
            crashes=[replace(crash) for crash in self.crashes],
            troubles=[replace(trouble) for trouble in self.troubles.values()],
            path=list(self.path),
            events=(self.input, self.output),
            working=self.pace.total(WORKING, now),
            started_at=self.started_at,
            ended_at=self.ended_at,
            last=self.last,
            owner=self.owner,
            requested_by=self.requested_by,
            length=self.length,
            damaged=list(self.damaged),
            damages=self.damages,
            closed=list(self.closed),
            forks=list(self.forks),
            under_way="" if self.ended_at is not None else self.timeline.under_way,
        )


@dataclass
class Lane:
    """A page of the effects, and the number of all effects by status."""

    shown: list[Effect]
    tally: dict[str, int]
    above: int = 0
    older: int = 0
    newer: int = 0
    case: Effect | None = None
    resent: int = 0
    """Number of effects sent again after a worker died."""

    def all(self) -> list[Effect]:
        return self.shown

    def count(self, *statuses: str) -> int:
        return sum(self.tally.get(status, 0) for status in statuses)


@dataclass
class Story:
    """A run's story at a given time. `open` completes it."""

    timeline: RowPage
    effects: Lane
    talks: list[Talk]
    gates: list[Gate]
    answers: list[Fact]
    crashes: list[Crash]
    troubles: list[Trouble]
    path: list[str]
    events: tuple[int, int]
    working: float
    started_at: datetime | None
    ended_at: datetime | None
    last: Fact | None
    owner: Fact | None
    requested_by: str
    length: int
    damaged: list[Fact]
    damages: int
    closed: list[Fact]
    forks: list[Fact]
    under_way: str
    input: Any = None
    output: Any = None

    @property
    def node(self) -> str:
        return self.path[-1] if self.path else ""

    @property
    def edges(self) -> set[tuple[str, str]]:
        """Return every transition between nodes."""
        return set(pairwise(self.path))

    @property
    def slowest_recovery(self) -> float | None:
        return max((crash.took for crash in self.crashes if crash.took is not None), default=None)

    @property
    def failure(self) -> str:
        message = next((trouble.message for trouble in self.troubles if trouble.kind == "RunFailed"), "").strip()
        return message if message.endswith((".", "!", "?")) or not message else f"{message}."

    @property
    def stop(self) -> Trouble | None:
        """Return why the engine last stopped the run for an operator."""
        return next((trouble for trouble in self.troubles if trouble.kind == "OperatorNeeded"), None)

    @property
    def more_damage(self) -> int:
        return self.damages - len(self.damaged)

    def open(self, opened: Opener, drawn: Container[tuple[int, int]] = ()) -> Story:
        """Add content from the payloads of the shown events.

        `drawn` are keys of effects whose HTML is already cached.
        """
        wanted = {*self.events, *(gate.decided_seq for gate in self.gates), *(trouble.seq for trouble in self.troubles)}
        calls = [effect for effect in self.effects.shown if effect.face not in drawn]
        calls += [] if self.effects.case is None else [self.effects.case]
        wanted.update(*(effect.events for effect in calls), *((row.noted, row.traced) for row in self.timeline.rows))
        lines = opened(wanted - {0})
        began, ended = (lines.get(seq) for seq in self.events)
        self.input, self.output = began.payload if began else None, ended.payload if ended else None
        parts: list[Effect | Row | Gate | Trouble] = [*calls, *self.timeline.rows, *self.gates, *self.troubles]
        for part in parts:
            part.open(lines)
        return self


def window(everything: list[Any], page: int, size: int) -> tuple[list[Any], int, int, int]:
    """Return a page of a list counted from its newest end.
    Also returns the number of items before it, and the adjacent pages (0: none)."""
    pages = max((len(everything) + size - 1) // size, 1)
    page = min(max(page, 1), pages)
    end = len(everything) - (page - 1) * size
    start = max(end - size, 0)
    return everything[start:end], start, page + 1 if page < pages else 0, page - 1


def tell(lines: Iterable[EventLine], now: datetime) -> Story:
    """Return a run's complete story from its journal, which is in ascending order, at the time `now`."""
    known = {line.seq: line for line in lines}

    def opened(seqs: Iterable[int]) -> Mapping[int, EventLine]:
        return {seq: known[seq] for seq in seqs if seq in known}

    fold = Fold()
    for line in known.values():
        fold.take(line)
    story = fold.story(now).open(opened)
    story.talks = transcript.latest(story.talks, sum(len(talk.events) for talk in story.talks) * len(known), opened)
    return story


def _created(fold: Fold, line: Fact) -> None:
    fold.input = line.seq


def _entered(fold: Fold, line: Fact) -> None:
    fold.path.append(line.clear["node"])


def _claimed(fold: Fold, line: Fact) -> None:
    fold.owner = line


def _requested(fold: Fold, line: Fact) -> None:
    fold.requested_by = line.clear["by"]


def _done(fold: Fold, line: Fact) -> None:
    # A worker that stops on request only records the role. The request records the person.
    fold.requested_by = fold.requested_by if line.clear["by"] == "operator" else line.clear["by"]


def _said_last(fold: Fold, line: Fact) -> None:
    fold.output = line.seq


def _retried(fold: Fold, line: Fact) -> None:
    fold.ended_at = None


def _opened(fold: Fold, line: Fact) -> None:
    if line.clear["wait"] == "input":
        fold.questions[(line.slot, line.clear["n"])] = line.seq


def _answered(fold: Fold, line: Fact) -> None:
    fold.closed.append(line)
    fold.answers.append(line)


def _settled(fold: Fold, line: Fact) -> None:
    fold.closed.append(line)


def _forked(fold: Fold, line: Fact) -> None:
    fold.forks.append(line)


def _ended(fold: Fold, line: Fact) -> None:
    fold.ended_at = line.at


def _troubled(fold: Fold, line: Fact) -> None:
    """Keep only the latest error of each kind, in order."""
    where = line.clear.get("tool") or line.clear.get("conversation") or (fold.path[-1] if fold.path else "")
    plain = line.clear.get("reason") or line.clear.get("code") or line.kind
    fold.troubles.pop(line.kind, None)
    fold.troubles[line.kind] = Trouble(line.kind, line.at, line.seq, where, plain)


_OWN: dict[str, tuple[Callable[[Fold, Fact], None], ...]] = {
    "RunCreated": (_created,),
    "VisitEntered": (_entered,),
    "RunClaimed": (_claimed,),
    "PauseRequested": (_requested,),
    "CancelRequested": (_requested,),
    "RunPaused": (_done,),
    "RunCancelled": (_done, _said_last, _ended),
    "RunCompleted": (_said_last, _ended),
    "RunFailed": (_ended, _troubled),
    "RunRetried": (_retried,),
    "ModelFailed": (_troubled,),
    "ToolFailed": (_troubled,),
    "ToolOutcomeUnknown": (_troubled,),
    "OperatorNeeded": (_troubled,),
    "WaitOpened": (_opened,),
    "InputAnswered": (_answered,),
    "ToolReconciled": (_settled,),
    "ForkMade": (_forked,),
}
