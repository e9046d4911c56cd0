"""Everything that one run's page shows, gathered in a fixed number of queries and one pass over the journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from django.urls import reverse

from ledger.errors import DurableAgentsError, NotFound
from ledger.events import unseal
from ledger.models import Event, Head, OverrideRecord
from ledger.visible import Change, Leaf, compare, leaves
from ledger.visible import line as one_line
from runs import versions
from runs.asking import key_of
from runs.drawing import Drawing, draw
from runs.engine.agents import Agent, registry
from runs.looks import look, main_wait, told
from runs.models import ENDED, Checkpoint, Run, Wait
from runs.story import Effect, Gate, Line, Story, Talk, read, tell
from runs.story.scale import Scale, place
from runs.subject import subject
from runs.toolcards import ToolCard, cards_of

EVENTS_SHOWN = EFFECTS_SHOWN = 100
SAID_SHOWN = 200
CLOSED_TOLD = 20
# How a node is drawn that the run stands at, by what the run is doing.
_NOW_STATUS = {
    "running": "run", "queued": "run", "pausing": "run", "cancelling": "run", "compensating": "run", "paused": "hold",
    "failed": "bad", "stopped": "bad", "unknown": "unsure", "completed": "done", "cancelled": "hold",
}  # fmt: skip


@dataclass
class Point:
    """One checkpoint: where, when, the state as plain data, and what of it is new."""

    seq: int
    node: str
    visit: int
    at: datetime
    digest: str
    state: Any
    changes: list[Change] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Shown:
    """One line of the tab on people: a gate, an override record, or an answer to a question."""

    kind: str
    at: datetime
    gate: Gate | None = None
    override: OverrideRecord | None = None
    answer: Line | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a long list, counted in pages from its newest end. `older` and `newer` are the pages beside it, 0 if there is none."""

    items: list[Any]
    older: int = 0
    newer: int = 0
    above: int = 0

    @classmethod
    def of(cls, everything: Sequence[Any], page: int, size: int) -> Window:
        pages = max((len(everything) + size - 1) // size, 1)
        page = min(max(page, 1), pages)
        end = len(everything) - (page - 1) * size
        start = max(end - size, 0)
        return cls(list(everything[start:end]), page + 1 if page < pages else 0, page - 1, start)


@dataclass(frozen=True, slots=True)
class Closed:
    """A case of this run that is settled: what a page may say to somebody who is still writing about it."""

    key: str
    verb: str
    by: str
    at: datetime


@dataclass
class Dossier:
    """One run, as of `head.seq`."""

    run: Run
    head: Head
    lines: list[Line]
    story: Story
    waits: list[Wait]
    overrides: list[OverrideRecord]
    agent: Agent | None
    now: datetime
    is_headless: bool = False

    @property
    def url(self) -> str:
        return reverse("run", args=[self.run.id])

    @cached_property
    def blocked(self) -> str | None:
        """Why nobody drives the run though it is ready."""
        is_ready = self.run.ready_at is not None and self.run.owner is None
        return versions.why_not_driven(self.run, versions.drivable()) if is_ready else None

    @property
    def look(self) -> str:
        return look(self.run, self.head, self.waits)

    @property
    def wait(self) -> Wait | None:
        return main_wait(self.waits)

    @property
    def about(self) -> str:
        return subject(self.story.input)

    @property
    def name(self) -> str:
        """What a browser's tab says: whom the run is about first, for of one agent's runs there are many."""
        about = "".join(piece.text for piece in one_line(self.about)) if self.about else ""
        return f"{about} · {self.run.agent}" if about else f"{self.run.agent} {str(self.run.id)[-8:]}"

    @property
    def node_title(self) -> str:
        return self.titles.get(self.story.node, self.story.node)

    @cached_property
    def titles(self) -> dict[str, str]:
        return {node.name: node.title for node in self.agent.nodes.values()} if self.agent else {}

    @cached_property
    def tools(self) -> dict[str, ToolCard]:
        """The agent's tools by name, for their titles and systems; empty when this version isn't installed here."""
        return cards_of(self.agent)

    def scale(self, *, is_true: bool = False, page: int = 1) -> Scale | None:
        """The timeline, with long stretches drawn shortened unless it is to be true; a window of it where it has many rows."""
        return place(self.story.timeline, self.now, is_true=is_true, page=page)

    @cached_property
    def effects(self) -> list[Effect]:
        """Every effect, with its name upstream where only the result tells it (a call that a person or a hook settled)."""
        for effect in self.story.effects.all():
            card = self.tools.get(effect.tool)
            if effect.external_id is None and card is not None and isinstance(effect.result, dict):
                named = effect.result.get(card.external_field)
                effect.external_id = None if named is None else str(named)
        return self.story.effects.all()

    def lane(self, page: int = 1) -> Window:
        """Effects, newest last, as many as a page can hold."""
        return Window.of(self.effects, page, EFFECTS_SHOWN)

    @property
    def closed(self) -> list[Closed]:
        """The latest settled cases, for pages that hold a half-written form about one."""
        found: list[Closed] = []
        for line in reversed(self.lines):
            if line.damage or len(found) >= CLOSED_TOLD:
                continue
            if line.kind == "InputAnswered":
                found.append(Closed(key_of(line.slot, line.clear["n"]), "Answered", line.clear["by"], line.at))
            elif line.kind == "ToolReconciled":
                found.append(Closed(f"reconcile {line.slot} {line.attempt}", "Settled", line.clear["by"], line.at))
        return found

    @property
    def talks(self) -> list[Talk]:
        """The conversations, the latest of them whole; of a very long one the latest turns."""
        shown: list[Talk] = []
        room = SAID_SHOWN
        for talk in reversed(self.story.transcript.talks):
            if room <= 0:
                break
            shown.append(replace(talk, said=talk.said[-room:]))
            room -= len(talk.said)
        return shown[::-1]

    @property
    def committed_effects(self) -> int:
        return self.story.effects.count("committed")

    @property
    def unknown_effects(self) -> int:
        return self.story.effects.count("unknown")

    @property
    def chain_hex(self) -> str:
        return bytes(self.head.chain).hex()

    @property
    def case_key(self) -> str:
        """What the page calls the unknown outcome, also when it is settled."""
        return f"reconcile {self.wait.slot} {self.wait.attempt}" if self.wait is not None else ""

    @property
    def wall(self) -> float:
        return ((self.story.ended_at or self.now) - self.run.created_at).total_seconds()

    @property
    def working(self) -> float:
        return self.story.working_seconds(self.now)

    @property
    def drawing(self) -> Drawing | None:
        """The agent's graph with this run's path; without the agent's code only the path is known."""
        path = self.story.path
        if self.agent is not None:
            nodes = {node.name: node.edges for node in self.agent.nodes.values()}
            start = self.agent.start
        elif path:
            nodes = {name: tuple({b for a, b in self.story.edges if a == name}) for name in dict.fromkeys(path)}
            start = path[0]
        else:
            return None
        status = _NOW_STATUS.get(self.look, "now")
        return draw(nodes, start, self.titles, path=path, now=self.story.node, now_status=status)

    @property
    def unknown(self) -> Effect | None:
        """The call whose outcome a person has to settle now. Where the journal can't tell it, what its wait says of it."""
        wait = self.wait
        if wait is None or wait.kind != Wait.Kind.RECONCILE:
            return None
        known = self.story.effects.by_slot.get(wait.slot)
        return known or Effect(wait.slot, told(wait, "tool", "title") or "a call", "unknown", 0, wait.opened_at, changed_at=wait.opened_at)

    @property
    def checkpoints(self) -> list[Point]:
        """Every checkpoint, newest first, each with what changed since the one before."""
        points: list[Point] = []
        before: list[Leaf] = []
        for row in Checkpoint.objects.filter(run_id=self.run.id).order_by("seq"):
            point = Point(row.seq, row.node, row.visit, row.at, bytes(row.checksum).hex(), _state(row))
            now = leaves(point.state)
            point.changes = [change for change in compare(now, before) if change.what != "same"]
            before = now
            points.append(point)
        return points[::-1]

    @property
    def acts(self) -> list[Shown]:
        """What people were asked and what they did, by time. A decision is told by its gate."""
        found = [Shown("gate", gate.at, gate=gate) for gate in self.story.gates.all()]
        found += [Shown("override", record.at, override=record) for record in self.overrides]
        found += [Shown("answer", line.at, answer=line) for line in self.lines if line.kind == "InputAnswered" and not line.damage]
        return sorted(found, key=lambda shown: shown.at)

    def journal(self, before: int | None) -> tuple[list[Line], int | None]:
        """A page of the journal, newest first, and the seq that the next page goes on before."""
        lines = self.lines if before is None else self.lines[: max(before - 1, 0)]
        shown = lines[-EVENTS_SHOWN:][::-1]
        more = shown[-1].seq if shown and shown[-1].seq > 1 else None
        return shown, more


def gather(run_id: UUID) -> Dossier:
    """Read one run whole. Raises NotFound."""
    run = Run.objects.filter(id=run_id).first()
    if run is None:
        raise NotFound("run", run_id)
    lines = list(read(Event.objects.filter(run_id=run_id).order_by("seq").iterator(chunk_size=2000)))
    # The head is read after the events: what is shown as current is never newer than what it is said to be.
    head = Head.objects.filter(run_id=run_id).first()
    is_headless = head is None
    head = head or Head(run_id=run_id, chain=b"")
    if lines:
        head.seq = lines[-1].seq
    waits = [] if run.state in ENDED else list(Wait.objects.filter(run_id=run_id, resolved_at__isnull=True).order_by("opened_at"))
    now = datetime.now(UTC)
    return Dossier(
        run=run,
        head=head,
        lines=lines,
        story=tell(lines, now),
        waits=waits,
        overrides=list(OverrideRecord.objects.filter(run_id=run_id).order_by("id")),
        agent=_agent(run.graph_id),
        now=now,
        is_headless=is_headless,
    )


def _state(row: Checkpoint) -> Any:
    """The state as plain data, or words about why it can't be read."""
    try:
        return unseal(row.state)
    except (ValueError, RecursionError) as error:
        return {"unreadable": str(error)}


def _agent(graph_id: str) -> Agent | None:
    """The run's agent version, if this process has it: old runs outlive the code that made them."""
    try:
        return registry.find(graph_id)
    except DurableAgentsError:
        return None
