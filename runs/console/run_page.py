"""The data for the open tab of a run's page, read in a fixed number of queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import BinaryField
from django.db.models.functions import Length, Substr
from django.urls import reverse

from ledger.codec import MAX_STORED_HEAD, unpack_head
from ledger.erasure import Erasure, erasure_of
from ledger.errors import NotFound
from ledger.models import Event, Head, OverrideRecord
from ledger.web.seeing.payloads import ERASED, HIDDEN, Hidden
from ledger.web.seeing.viewers import viewer
from ledger.web.text_safety import Change, compare, leaves, line_pieces
from runs import features, seen
from runs.console import attributes
from runs.console.graph_svg import Drawing, draw
from runs.console.questions import key_of
from runs.engine.agents import Agent
from runs.engine.gating.fields import subject
from runs.models import ENDED, Checkpoint, Run, Wait
from runs.queries import families, run_list
from runs.queries.code_here import agent_here, titles_of
from runs.queries.display import case_of, detail_text, stood_at
from runs.queries.run_facts import RunFacts, facts_of
from runs.queries.run_list import GROUPS, Card
from runs.queries.shown_attributes import ShownAttribute, of_head
from runs.queries.status import Reason, reason_by_state, reason_of
from runs.queries.tool_cards import ToolCard, cards_of
from runs.story import Effect, EventLine, Fact, Gate, Story, Talk, Want, folded
from runs.story.folded import Drawn
from runs.story.scale import Scale, place
from runs.story.transcript import latest

ROWS_SHOWN = 100
EVENTS_SHOWN = EFFECTS_SHOWN = 100
SAID_SHOWN = 200
POINTS_SHOWN = 25
CHILDREN_SHOWN = 20
ACTS_SHOWN = 100
# The status of the current node in the graph, by the reason for the run's status.
_NODE_STATUS = {
    **dict.fromkeys(("driven", "queued", "pausing", "cancelling", "undoing"), "run"),
    **dict.fromkeys(("behind_key", "not_due", "paused", "budget", "cancelled", "halted"), "hold"),
    **dict.fromkeys(("no_worker", "no_version", "draining", "no_key"), "hold"),
    **dict.fromkeys(("failed", "stopped", "damaged"), "bad"),
    **dict.fromkeys(("completed", "renewed", "handed_off"), "done"),
    "unknown_outcome": "unsure",
}


class StoredPoint(NamedTuple):
    """A checkpoint with the beginning of its stored state, and that state's full size."""

    run_id: UUID
    seq: int
    node: str
    visit: int
    at: datetime
    checksum: bytes
    head: bytes
    stored: int


@dataclass
class Point:
    """A checkpoint with its state as plain data, and the changes since the previous one.
    A large state is truncated."""

    row: StoredPoint
    before: StoredPoint | None
    hidden: Hidden | None = None

    @property
    def face(self) -> int:
        row, earlier = self.row, bytes(self.before.head) if self.before is not None else b""
        return hash((row.seq, row.node, row.visit, row.at, bytes(row.checksum), bytes(row.head), earlier))

    @property
    def digest(self) -> str:
        return bytes(self.row.checksum).hex()

    @cached_property
    def state(self) -> Any:
        return _state(self.row) if self.hidden is None else self.hidden

    @cached_property
    def changes(self) -> list[Change]:
        if self.hidden is not None:
            return []
        before = leaves(_state(self.before)) if self.before is not None else []
        return [change for change in compare(leaves(self.state), before) if change.what != "same"]


@dataclass(frozen=True, slots=True)
class PeopleRow:
    """A row of the tab "Approvals & overrides": an approval gate, an override record, or an answer to a question."""

    kind: str
    at: datetime
    gate: Gate | None = None
    override: OverrideRecord | None = None
    answer: Fact | None = None
    justification: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """A page of a long list, counted from the newest entries.
    `older` and `newer` are page numbers; 0 means none."""

    items: list[Any]
    older: int = 0
    newer: int = 0
    above: int = 0


@dataclass(frozen=True, slots=True)
class PageScope:
    """The tab and the pages of long lists that a reader sees. `is_opened` is false for a refresh of the page."""

    tab: str = "timeline"
    rows: int = 1
    effects: int = 1
    acts: int = 1
    before: int | None = None
    is_opened: bool = True

    @property
    def want(self) -> Want:
        return Want(
            row_page=self.rows if self.tab == "timeline" else 0,
            rows=ROWS_SHOWN,
            effect_page=self.effects,
            effects=EFFECTS_SHOWN,
            has_talks=self.tab == "transcript",
            acts=self.acts * ACTS_SHOWN + 1 if self.tab == "decisions" else 0,
        )


@dataclass(frozen=True, slots=True)
class Closed:
    """A case of this run that was settled while a reader may still be filling in its form."""

    key: str
    verb: str
    by: str
    at: datetime


@dataclass
class Dossier:
    """The data about a run, as of `head.seq`."""

    run: Run
    head: Head
    story: Story
    opened: folded.Opened
    drawn: Drawn
    drawn_effects: dict[tuple[int, int], str]
    sight: PageScope
    facts: RunFacts
    question_seqs: Mapping[tuple[str | None, Any], int]
    agent: Agent | None
    now: datetime
    cut: int = 0
    parent: Run | None = None
    children: list[Card] = field(default_factory=list)
    parent_head: Head | None = None
    hidden: Hidden | None = None
    """Placeholder for payloads that the reader may not see, or that were erased."""
    as_of: int = 0
    """The event up to which everything is shown. Later events are shown only in part, so the page must still reload for
    them.
    """

    @property
    def is_headless(self) -> bool:
        return self.facts.head is None

    @property
    def waits(self) -> Sequence[Wait]:
        return self.facts.waits

    @property
    def is_read(self) -> bool:
        return self.hidden is None

    @cached_property
    def erasure(self) -> Erasure | None:
        return erasure_of(self.run.id) if self.hidden is ERASED else None

    @property
    def copies(self) -> list[Fact]:
        """Return the events about forks and restarts that the viewer may see."""
        made = self.story.forks
        if not made or viewer().sees_all:
            return made
        known = seen.among(Run.objects.filter(forked_from=self.run.id).values_list("id", flat=True))
        return [one for one in made if one.clear["fork"] in map(str, known)]

    @property
    def url(self) -> str:
        return reverse("run", args=[self.run.id])

    def payload_url(self, seq: int) -> str:
        """Return the URL of an event's whole payload."""
        return reverse("event_payload", args=[self.run.id, seq]) if seq else ""

    @property
    def input_url(self) -> str:
        return self.payload_url(self.story.events[0])

    @property
    def output_url(self) -> str:
        return self.payload_url(self.story.events[1])

    @cached_property
    def reason(self) -> Reason:
        return reason_of(self.facts)

    @property
    def case(self) -> Reason | None:
        """Return the reason for the run's status according to its state and waits, even if it is halted or not driven.
        None if the data are damaged."""
        return None if self.is_headless else reason_by_state(self.facts)

    @property
    def wait(self) -> Wait | None:
        return self.facts.wait

    @property
    def about(self) -> str:
        return subject(self.story.input) if self.is_read else self.run.about

    @property
    def above(self) -> tuple[Run, Head] | None:
        return (self.parent, self.parent_head) if self.parent and self.parent_head else None

    @property
    def name(self) -> str:
        """Return the title of the browser's tab.
        The title starts with the run's subject, because an agent has many runs."""
        about = "".join(piece.text for piece in line_pieces(self.about)) if self.about else ""
        return f"{about} · {self.run.agent}" if about else f"{self.run.agent} {str(self.run.id)[-8:]}"

    @property
    def node_title(self) -> str:
        node = stood_at(self.run) if self.run.is_undoing else self.story.node
        return self.titles.get(node, node)

    @cached_property
    def attributes(self) -> list[tuple[str, ShownAttribute]]:
        return attributes.titled(self.agent, of_head(self.head))

    @cached_property
    def titles(self) -> dict[str, str]:
        return titles_of(self.agent)

    @cached_property
    def tools(self) -> dict[str, ToolCard]:
        """Return the agent's tools by name, for their titles and systems.
        {} if this process lacks the version."""
        return cards_of(self.agent)

    def scale(self, *, is_true: bool = False) -> Scale | None:
        """Return the timeline. Long gaps are shortened unless `is_true` is set."""
        return place(self.story.timeline, self.now, is_true=is_true)

    @cached_property
    def lane(self) -> Window:
        """Return a page of effects, newest last. External ids that only settled results contain are added."""
        lane = self.story.effects
        for effect in lane.shown:
            card = self.tools.get(effect.tool)
            if effect.external_id is None and card is not None and isinstance(effect.result, dict):
                named = effect.result.get(card.external_field)
                effect.external_id = None if named is None else str(named)
        return Window(lane.shown, lane.older, lane.newer, lane.above)

    @property
    def closed(self) -> list[Closed]:
        """Return the latest settled cases, for pages on which a form about one of them may be half filled in."""
        cases: list[Closed] = []
        for line in reversed(self.story.closed):
            if line.kind == "InputAnswered":
                cases.append(Closed(key_of(line.slot, line.clear["n"]), "Answered", line.clear["by"], line.at))
            else:
                cases.append(Closed(f"reconcile {line.slot} {line.attempt}", "Settled", line.clear["by"], line.at))
        return cases

    @cached_property
    def talks(self) -> list[Talk]:
        """Return the latest conversations, or the latest turns of a very long one."""
        return latest(self.story.talks, SAID_SHOWN, self.opened)

    def put(self, wait: Wait) -> EventLine | None:
        """Return the event that opened a question's wait."""
        seq = self.question_seqs.get((wait.slot, wait.n), 0)
        return self.opened([seq]).get(seq) if seq else None

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
        """Return the unknown outcome's id on the page. The id stays the same after the outcome is settled."""
        return f"reconcile {self.wait.slot} {self.wait.attempt}" if self.wait is not None else ""

    @property
    def wall(self) -> float:
        return ((self.story.ended_at or self.now) - self.run.created_at).total_seconds()

    @property
    def working(self) -> float:
        return self.story.working

    @property
    def drawing(self) -> Drawing | None:
        """Return the agent's graph with this run's path. Without the agent's code, the graph has only the path."""
        path = self.story.path
        if self.agent is not None:
            nodes = {node.name: node.edges for node in self.agent.nodes.values()}
            start = self.agent.start
        elif path:
            nodes = {name: tuple({b for a, b in self.story.edges if a == name}) for name in dict.fromkeys(path)}
            start = path[0]
        else:
            return None
        status = _NODE_STATUS.get(self.reason, "now")
        return draw(nodes, start, self.titles, path=path, now=self.story.node, now_status=status)

    @property
    def unknown(self) -> Effect | None:
        """Return the call that a person must settle.

        If the journal doesn't show the call, it is built from the wait.
        """
        wait = self.wait
        if wait is None or wait.kind != Wait.Kind.RECONCILE:
            return None
        known = self.story.effects.case
        name = detail_text(wait, "tool", "title") or "a call"
        return known or Effect(wait.slot, name, "unknown", 0, wait.opened_at, changed_at=wait.opened_at)

    @cached_property
    def checkpoints(self) -> Window:
        """Return checkpoints with changes, newest first. `older` is the seq before which the next page begins."""
        head = Substr("state", 1, MAX_STORED_HEAD, output_field=BinaryField())
        older_rows = Checkpoint.objects.filter(run_id=self.run.id).order_by("-seq")
        older_rows = older_rows.annotate(head=head, stored=Length("state"))
        if self.sight.before is not None:
            older_rows = older_rows.filter(seq__lt=self.sight.before)
        rows = [StoredPoint(*row) for row in older_rows.values_list(*StoredPoint._fields)[: POINTS_SHOWN + 1]]
        # If the one before has expired, a checkpoint is compared with itself, so that no changes are shown.
        first = rows[-1] if rows and len(rows) <= POINTS_SHOWN and self.expired_checkpoints else None
        points = [Point(row, before, self.hidden) for row, before in zip(rows, [*rows[1:], first], strict=False)][
            :POINTS_SHOWN
        ]
        return Window(points, older=points[-1].row.seq if len(rows) > POINTS_SHOWN else 0)

    @cached_property
    def expired_checkpoints(self) -> features.ExpiredCheckpoints | None:
        return features.expired_checkpoints(self.run.id) if self.run.state in ENDED else None

    @property
    def child_states(self) -> list[tuple[str, str, int]]:
        """Return the number of child runs in each state: filter, label, number."""
        found = families.states(self.head)
        counted = ((key, label, sum(found.get(state, 0) for state in of)) for key, (label, of) in GROUPS.items())
        return [(key, label, number) for key, label, number in counted if number]

    @property
    def children_count(self) -> int:
        return sum(families.states(self.head).values())

    @property
    def children_living(self) -> int:
        return families.living(self.head)

    @cached_property
    def acts(self) -> Window:
        """Return a page of requests to people and their actions, by time. A gate includes its decision."""
        most = self.sight.acts * ACTS_SHOWN
        acts_ = [PeopleRow("gate", gate.at, gate=gate) for gate in self.story.gates]
        records = OverrideRecord.objects.filter(run_id=self.run.id).order_by("-id")[: most + 1]
        acts_ += [PeopleRow("override", record.at, override=record) for record in records]
        words = self.opened(line.seq for line in self.story.answers)
        acts_ += [
            PeopleRow("answer", line.at, answer=line, justification=_answer_reason(words.get(line.seq)))
            for line in self.story.answers
        ]
        acts_.sort(key=lambda act: act.at)
        # One more row of each kind was read than fits on this page, so that both the page and the link to the next one
        # are correct.
        end = max(len(acts_) - most + ACTS_SHOWN, 0)
        start = max(end - ACTS_SHOWN, 0)
        return Window(acts_[start:end], self.sight.acts + 1 if start > 0 else 0, self.sight.acts - 1)

    @property
    def links(self) -> list[tuple[str, str]]:
        """Return the links that features add, each as its text and the name of its URL."""
        return list(features.parts_of_all(lambda each: each.run_links))

    @property
    def agent_links(self) -> list[tuple[str, str]]:
        """Return the links that features add next to the run's agent, in the same form as `links`."""
        return list(features.parts_of_all(lambda each: each.run_agent_links))

    @property
    def doubts(self) -> list[tuple[int, str]]:
        """Return the events on this page that can't be trusted, with the reason."""
        if self.sight.tab == "journal":
            self.journal  # noqa: B018  read before it is drawn
        return self.drawn.doubts

    @property
    def missing(self) -> int:
        return self.cut + (self.story.last.seq - self.story.length if self.story.last is not None else 0)

    @cached_property
    def journal(self) -> Window:
        """Return a page of the journal, newest first. `older` is the seq before which the next page begins."""
        events = self.opened.journal(self.sight.before, EVENTS_SHOWN)
        return Window(events, older=events[-1].seq if events and events[-1].seq > 1 else 0)


def gather(run_id: UUID, page_scope: PageScope = PageScope()) -> Dossier:
    """Read the data that a page shows about a run. Raises NotFound."""
    around = families.around(run_id, most=CHILDREN_SHOWN)
    if around is None:
        raise NotFound("run", run_id)
    run_list.without_hidden_kin([around.run, *around.children])
    run, open_waits = around.run, families.open_waits(around.ids)
    waits = [] if run.state in ENDED else open_waits.get(run_id, [])
    now = datetime.now(UTC)
    with folded.locked_story(run_id, is_opened=page_scope.is_opened) as kept:
        fold, drawn = kept.fold, kept.drawn
        story = fold.story(now, page_scope.want, case=case_of(waits))
        question_seqs: dict[tuple[str | None, Any], int] = {
            place: seq for wait in waits if (seq := fold.questions.get(place := (wait.slot, wait.n)))
        }
    # The run's row is read before the events, and the head after them: see `as_of`.
    heads = families.heads([*around.ids, *([around.parent.pk] if around.parent else [])])
    head = heads.get(run_id)
    is_headless, head = head is None, head or Head.standing_in(run_id)
    last = story.last.seq if story.last is not None else 0
    # So events written in between are noticed. Missing events were removed, because event and head are written in one
    # transaction.
    cut = head.seq - last if head.seq > last and not Event.objects.filter(run_id=run_id, seq=head.seq).exists() else 0
    if story.last is not None:
        head.seq = last
    facts = facts_of([run], {} if is_headless else {run_id: head}, {run_id: waits})[run_id]
    hidden = ERASED if run.erased_at else None if seen.readable({run_id: run.creator}) else HIDDEN
    drawn = drawn if hidden is None else Drawn()  # only viewers who may read payloads use the cache
    if hidden is ERASED:
        folded.undraw(run_id)
    opened, agent = folded.Opened(run_id, drawn, hidden=hidden, is_head=True), agent_here(run.graph_id)
    # These are looked up now, so that HTML that the cache drops meanwhile can still be used.
    lane = {
        effect.face: html
        for effect in story.effects.shown
        if (html := drawn.get(("effect", agent is None, effect.face))) is not None
    }
    return Dossier(
        run,
        head,
        story.open(opened, lane),
        opened,
        drawn,
        lane,
        page_scope,
        facts,
        question_seqs,
        agent,
        now,
        cut,
        around.parent if run.parent else None,
        run_list.carded(around.children, heads, open_waits),
        heads.get(around.parent.pk) if around.parent and run.parent else None,
        hidden,
        min(head.seq, getattr(run, "row_seq", None) or head.seq),
    )


def _answer_reason(answer: EventLine | None) -> str:
    return str(answer.get("justification") or "") if answer is not None else ""


def _state(row: StoredPoint) -> Any:
    try:
        return unpack_head(row.head, row.stored)
    except (ValueError, RecursionError) as error:
        return {"unreadable": str(error)}
