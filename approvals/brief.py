"""Load everything that an approver sees of one question, read from the bytes that its hash covers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, Subquery, TextField
from django.db.models.expressions import RawSQL

from approvals import votes
from approvals.authentic import marks_of
from approvals.deadlines import deadlines
from approvals.guards import ApprovalPanel, documents_lack_app, feature_annotations
from approvals.models import Approval, ApprovalState, Decision
from approvals.policy import CHANGED_FIRST, Authority, Facts, No, Sum, judge, thresholds
from approvals.proofs import minutes, wanted_for
from approvals.queues.sight import asked_at, is_shown, reads
from approvals.queues.standing import FACTS, also, facts_in
from approvals.votes import NEXT, NOW, StageShown, nobody_left, stages_of
from ledger.actors import Actor
from ledger.erasure import Erasure, erasure_of
from ledger.errors import DurableAgentsError, NotFound
from ledger.models import Head
from ledger.templatetags.console import line_of, plainly
from ledger.web.seeing.payloads import WHO_GIVES
from ledger.web.text_safety import Change, compare, leaves
from runs import features
from runs.engine.agents import registry
from runs.engine.errors import DefinitionError
from runs.engine.gating.documents import DOCUMENTS, NO_APP
from runs.engine.gating.fields import editable_in, subject
from runs.engine.gating.proof import Wanted
from runs.queries.code_here import agent_here, titles_of
from runs.queries.display import stood_at
from runs.queries.tool_cards import ToolCard, cards_of

_NTH = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}
# Text and tone of an approval's chip.
CHIPS: dict[ApprovalState, tuple[str, str]] = {
    ApprovalState.OPEN: ("waiting for {queue}", "wait"),
    ApprovalState.APPROVED: ("approved", "ok"),
    ApprovalState.REJECTED: ("rejected", "bad"),
    ApprovalState.EXPIRED: ("expired", "bad"),
    ApprovalState.WITHDRAWN: ("withdrawn", ""),
    ApprovalState.AMENDED: ("amended", "hold"),
}


def chip_of(approval: Approval) -> tuple[str, str]:
    """Return the chip's text and tone. An unknown state (of a damaged row) is shown unchanged."""
    if approval.state not in ApprovalState.values:
        return str(approval.state), ""
    words, tone = CHIPS[ApprovalState(approval.state)]
    return words.format(queue=" or ".join(asked_at(approval))), tone


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier revision and its decision."""

    approval: Approval
    decision: Decision | None
    is_authentic: bool | None = None  # see authentic.py


@dataclass(frozen=True)
class ApprovalDetail:
    """One question in full, as of event `seq` of its run. `changes` compares its arguments with the previous ones."""

    approval: Approval
    plan: dict[str, Any]
    changes: list[Change]
    earlier: list[Earlier]
    decision: Decision | None
    seq: int | None
    tool: ToolCard | None
    facts: Facts
    stages: list[StageShown]
    voters: frozenset[int | None]  # who voted on any revision
    is_read: bool = True
    is_authentic: bool | None = None  # whether the code of `decision` is valid: see authentic.py

    @property
    def forged(self) -> Decision | None:
        """Return the decision if it is forged; such a decision has no effect."""
        return self.decision if self.is_authentic is False else None

    @cached_property
    def now(self) -> StageShown | None:
        """Return the current stage; None if closed."""
        return next((each for each in self.stages if each.state == NOW), None)

    @property
    def is_counted(self) -> bool:
        """Return whether more than one vote is needed, or any was given."""
        return (
            len(self.stages) > 1
            or any(each.quorum > 1 or len(each.votes) > 1 for each in self.stages)
            or (self.is_open and any(each.votes for each in self.stages))
        )

    @property
    def next_stage(self) -> StageShown | None:
        return next((each for each in self.stages if each.state == NEXT), None)

    @cached_property
    def asked_after(self) -> str:
        return " and then ".join(votes.asked_after(self.approval))

    @property
    def your_part(self) -> str:
        if self.now is None or not isinstance(self.to_approve, Authority):
            return ""
        number = _NTH.get(self.now.yes + 1, f"{self.now.yes + 1}th")
        return f"{self.now.yes} of {self.now.quorum} approved: yours would be the {number} approval."

    @cached_property
    def nobody_left(self) -> str:
        return nobody_left(self.approval, self.stages)

    @cached_property
    def standing(self) -> Authority | No:
        """Return the authority under which the reader may decide, or the reason why not.

        For display only: it is checked again at the decision.
        """
        return judge(self.facts, approves=False)

    @cached_property
    def to_approve(self) -> Authority | No:
        return judge(self.facts, approves=True)

    @property
    def role(self) -> str:
        return self.facts.queue.role if self.facts.queue is not None else ""

    @property
    def is_mine(self) -> bool:
        return isinstance(self.standing, Authority)

    @property
    def is_asked(self) -> bool:
        """Return whether the reader is among the people asked, even if something else keeps them from deciding."""
        return any(
            (each.queue is not None and each.queue.role in each.who.roles)
            or any(d.is_now(each.now) for d in each.deputyships)
            for each in (self.facts, *self.facts.also)
        )

    @property
    def why_not(self) -> str:
        """Return why the reader may not decide; empty if they may."""
        return self.standing.why if isinstance(self.standing, No) else ""

    @cached_property
    def panels(self) -> list[ApprovalPanel]:
        """Return the panels that features add for this reader."""
        return [panel for make in features.parts_of_all(lambda each: each.approval_panels) for panel in make(self)]

    @property
    def panels_at(self) -> dict[str, list[ApprovalPanel]]:
        """Return the panels, grouped by place on the page."""
        places: dict[str, list[ApprovalPanel]] = {}
        for panel in self.panels:
            places.setdefault(panel.place, []).append(panel)
        return places

    @property
    def obstacle(self) -> str:
        """Return why its content prevents approval at the moment; empty if it doesn't."""
        if self.is_read and documents_lack_app(self.plan):
            return f"It can't be approved: its documents can't be shown, since {NO_APP}."
        return next((panel.obstacle for panel in self.panels if panel.obstacle), "")

    @property
    def why_not_approve(self) -> str:
        """Return why the reader may reject it but not approve it; empty otherwise."""
        if not self.is_mine:
            return ""
        return self.obstacle or (self.to_approve.why if isinstance(self.to_approve, No) else "")

    @property
    def whom(self) -> str:
        """Return the name of the person whose deputy the reader is in this case; empty if none."""
        found = self.to_approve if isinstance(self.to_approve, Authority) else self.standing
        return found.deputyship.principal.name if isinstance(found, Authority) and found.deputyship else ""

    @property
    def amount(self) -> str:
        return str(self.facts.asked.amount) if self.is_read and isinstance(self.facts.asked.amount, Sum) else ""

    @cached_property
    def wanted(self) -> Wanted:
        """Return what the reader's approval must prove. For display only: it is checked again at the decision."""
        if not self.is_read or not isinstance(self.to_approve, Authority):
            return Wanted()
        try:
            proofs = thresholds(self.facts, self.to_approve)
            return wanted_for(self.approval, self.approval.run.graph_id, proofs)
        except DefinitionError:
            return Wanted()

    @property
    def may_hand_over(self) -> bool:
        return isinstance(self.standing, Authority) and self.standing.deputyship is None

    @property
    def proof_words(self) -> str:
        """Return a note saying that approval needs recent authentication; empty if not."""
        if not self.wanted.within:
            return ""
        what = "your second factor" if self.wanted.factor else "your password or second factor"
        return f"Approving requires {what} within the last {minutes(self.wanted.within)}. You may be asked to confirm."

    @property
    def reasons(self) -> tuple[str, ...]:
        at = self.standing.queue if isinstance(self.standing, Authority) else ""
        there = next((each for each in self.facts.also if each.name == at), self.facts)
        return there.queue.reasons if there.queue is not None else ()

    @property
    def is_open(self) -> bool:
        return bool(self.approval.state == ApprovalState.OPEN)

    @cached_property
    def erasure(self) -> Erasure | None:
        return erasure_of(self.approval.run_id) if self.approval.run.erased_at is not None else None

    @property
    def is_readable(self) -> bool:
        """Return whether the plan can be parsed, and therefore decided. True for readers who may not read it."""
        return bool(self.plan) or not self.is_read

    @property
    def title(self) -> str:
        return title_of(self.approval, self.tool)

    @property
    def is_for_me(self) -> bool:
        return self.is_open and self.is_asked

    @property
    def arguments_title(self) -> str:
        if not self.is_open:
            return "What was approved" if self.approval.state == ApprovalState.APPROVED else "What was requested"
        return "What is decided" if self.approval.tool in _NO_TOOL else "What will be sent"

    @property
    def node(self) -> str:
        """Return the title of the node that asks; "" if the run is not at a node."""
        node = stood_at(self.approval.run)
        return titles_of(agent_here(self.approval.run.graph_id)).get(node) or node.replace("_", " ")

    @property
    def has_models(self) -> bool:
        """Return whether the agent may use a model; True if this process lacks its code."""
        agent = agent_here(self.approval.run.graph_id)
        return agent is None or bool(agent.assistants)

    @property
    def name(self) -> str:
        """Return the browser tab's title: what is to be approved, and what or whom it concerns."""
        return f"{plainly(self.title)}{f' · {line_of(self.about)}' if self.about else ''}"

    @property
    def asks(self) -> str:
        """Return the agent's own title if it differs from the tool's title.

        It is untrusted and never shown as the console's own text.
        """
        return asks_of(self.approval, self.tool)

    @property
    def is_effect_fixed(self) -> bool:
        """Return whether the effect is described by the tool author's fixed text instead of the agent's."""
        return self.tool is not None and self.approval.effect == self.tool.effect

    @property
    def who_gives(self) -> str:
        """Return who grants the right to read the question, as text for readers without it; empty for others."""
        return "" if self.is_read else WHO_GIVES

    @property
    def is_rule_fixed(self) -> bool:
        return self.tool is not None and self.approval.rule == self.tool.rule

    @property
    def headline(self) -> str:
        return str(self.plan.get("headline") or "")

    @property
    def evidence(self) -> list[dict[str, Any]]:
        evidence = self.plan.get("evidence")
        return [one for one in evidence if isinstance(one, dict)] if isinstance(evidence, list) else []

    @property
    def about(self) -> str:
        return subject(self.plan.get("arguments")) if self.is_read else str(self.approval.run.about)

    @property
    def is_editable(self) -> bool:
        return self.is_mine and not self.why_no_change

    @property
    def is_made_elsewhere(self) -> bool:
        """Return whether the reader may decide only at a queue to which the question was escalated.

        Only deciders of the first queue may approve with changes.
        """
        return isinstance(self.standing, Authority) and bool(self.standing.queue)

    @property
    def why_no_change(self) -> str:
        """Return why the decider may not change any argument; empty if they may."""
        if self.is_made_elsewhere:
            return CHANGED_FIRST.format(queue=self.facts.name)
        if not editable_in(self.plan)["properties"]:
            return "This case can't be changed. Approve or reject it."
        return self.obstacle

    @property
    def covered(self) -> list[str]:
        return [name for name in self.plan if name not in ("arguments", "evidence", DOCUMENTS)]


def title_of(approval: Approval, tool: ToolCard | None) -> str:
    """Return the fixed title: the tool author's, or a note that the run may continue.

    It does not depend on the case.
    """
    if tool is not None:
        return tool.title
    return "Let the run continue" if approval.tool in _NO_TOOL else approval.tool.replace("_", " ")


def asks_of(approval: Approval, tool: ToolCard | None) -> str:
    return "" if tool is not None and approval.title == tool.title else approval.title


# Tool names in plans of nodes that ask without a tool.
_NO_TOOL = ("", "approve")


def plan_of(approval: Approval) -> dict[str, Any]:
    """Return the plan; empty if unreadable."""
    return approval.planned() or {}


def _ordered(arguments: Any, tool: ToolCard | None) -> Any:
    """Return arguments in the order of the tool's fields, because the canonical bytes are sorted by name."""
    if tool is None or not isinstance(arguments, dict):
        return arguments
    first = [name for name in tool.fields if name in arguments]
    return {name: arguments[name] for name in [*first, *(name for name in arguments if name not in first)]}


def load_approval_detail(approval_id: UUID, held: frozenset[str], reader: Actor) -> ApprovalDetail:
    """Return one question for a reader with these roles. Raises NotFound."""
    revisions, rows = _revisions(approval_id, reader.person)
    if not revisions or not is_shown(revisions[0][0], held):
        raise NotFound("approval", approval_id)
    ours = marks_of(rows)
    (approval, decision), *rest = revisions
    earlier = [
        Earlier(one, last_decision, None if last_decision is None else ours[last_decision.pk])
        for one, last_decision in rest
    ]
    is_read = reads(approval)
    stages = stages_of([approval], [row for row in rows if row.approval_id == approval.id], ours)[approval.id]
    plan = plan_of(approval) if is_read else {}
    tool = cards_by_name(approval.run.graph_id).get(approval.tool)
    before = leaves(plan_of(earlier[0].approval).get("arguments")) if earlier and is_read else None
    now = leaves(_ordered(plan.get("arguments"), tool))
    now = now if is_read else []
    changes = [Change(leaf.path, "only", leaf, None) for leaf in now] if before is None else compare(now, before)
    return ApprovalDetail(
        approval=approval,
        plan=plan,
        changes=changes,
        earlier=earlier,
        decision=decision,
        is_authentic=None if decision is None else ours[decision.pk],
        seq=getattr(approval, "head_seq", None),
        tool=tool,
        facts=replace(
            facts_in(getattr(approval, "facts", ""), approval, approval.run, reader, held),
            also=also(approval, approval.run, reader, held),
        ),
        is_read=is_read,
        stages=stages,
        voters=frozenset(row.person for row in rows),
    )


_FACTS = FACTS.format(
    approval='"approvals_approval"."id"',
    queue='"approvals_approval"."queue"',
    case='coalesce("approvals_approval"."case_id", "approvals_approval"."id")',
)
# UNION, not UNION ALL, so that the query ends even if forged revisions form a cycle.
_CHAIN = """
    WITH RECURSIVE chain AS (
        SELECT id, previous_id FROM approvals_approval WHERE id = %s
        UNION SELECT a.id, a.previous_id FROM approvals_approval a JOIN chain ON a.id = chain.previous_id)
    SELECT id FROM chain"""


def _revisions(approval_id: UUID, reader: int | None) -> tuple[list[tuple[Approval, Decision | None]], list[Decision]]:
    """Return a question and its earlier revisions, newest first, each with its decision, and all votes.

    It takes two queries.
    """
    seq = Subquery(Head.objects.filter(run_id=OuterRef("run_id")).values("seq"))
    facts = RawSQL(f'CASE WHEN "approvals_approval"."id" = %s THEN {_FACTS} END', [approval_id, reader], TextField())
    rows = Approval.objects.select_related("run").filter(id__in=RawSQL(_CHAIN, [approval_id]))
    rows = rows.annotate(
        head_seq=seq,
        facts=facts,
        **deadlines().annotations(),
        **votes.vote_annotations(),
        **feature_annotations(is_whole=True),
    )
    known = {row.id: row for row in rows}
    decision_rows = (
        list(Decision.objects.filter(approval_id__in=list(known)).select_related("approval")) if known else []
    )
    decisions = {one.approval_id: one for one in decision_rows if one.closes}
    history: list[tuple[Approval, Decision | None]] = []
    at: UUID | None = approval_id
    while at in known and len(history) < len(known):
        history.append((known[at], decisions.get(at)))
        at = known[at].previous_id
    return history, decision_rows


def cards_by_name(graph_id: str) -> dict[str, ToolCard]:
    try:
        return cards_of(registry.find(graph_id))
    except DurableAgentsError:
        return {}
