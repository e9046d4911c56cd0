"""Models of approvals: questions, the plans that decisions approve or reject, and the decisions."""

from __future__ import annotations

from typing import Any

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django_fsm import FSMField, transition

from approvals.queue_models import Deputy as Deputy
from approvals.queue_models import Escalation as Escalation
from approvals.queue_models import Limit as Limit
from approvals.queue_models import Queue as Queue
from approvals.talk_models import Delegation as Delegation
from approvals.talk_models import Inquiry as Inquiry
from ledger.codes import mac
from ledger.contents import ContentBytes, ContentJson, ContentText
from ledger.keys import word_key
from ledger.models import Coded, Json, append_only
from runs.engine.canonical import parsed
from runs.models import Run, Wait

KEYED = "hmac-sha256:"


def key_of(digest: str) -> str:
    """Return the stored name of an encrypted document, by the digest of its bytes.

    Nobody without the installation's key can name a document before it is stored, nor learn from the database what it
    contains.
    """
    return KEYED + mac(word_key(), b"document\x00" + digest.encode()).hex()


def listed_in_row(documents: list[Any]) -> list[dict[str, str]]:
    """Return the types and stored names of a question's documents.

    They are stored unencrypted, because SQL needs them. The documents themselves are encrypted.
    """
    return [{"media_type": each["media_type"], "sha256": key_of(each["sha256"])} for each in documents]


class ApprovalState(models.TextChoices):
    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    AMENDED = "amended"  # Its next revision asks for the same call with other arguments.


A = ApprovalState
# The basis of a decision: written with the question, never changed.
FROZEN = [
    "run",
    "wait",
    "queue",
    "revision",
    "previous",
    "tool",
    "title",
    "effect",
    "rule",
    "plan",
    "plan_hash",
    "evidence",
    "why",
    "requested_by",
    "requester",
    "opened_at",
]


class Approval(models.Model):
    """One revision of a question that is asked at a queue.

    `plan` is the exact text that `plan_hash` covers and the page shows.
    """

    id = models.UUIDField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="approvals")
    wait = models.OneToOneField(Wait, on_delete=models.PROTECT, related_name="approval")
    queue = models.TextField()
    state = FSMField(default=A.OPEN, choices=A.choices, protected=True)
    revision = models.SmallIntegerField(default=1)
    previous = models.OneToOneField("self", null=True, on_delete=models.PROTECT, related_name="next")
    tool = models.TextField()
    title = ContentText()
    effect = models.TextField(blank=True)
    rule = models.TextField()
    plan = ContentBytes(
        help_text="Canonical JSON (RFC 8785): agent, version, run, slot, tool, arguments, evidence, queue, rule."
    )
    plan_hash = models.TextField()
    evidence = ContentJson(default=list)
    documents = ContentJson(
        default=list,
        db_default=[],
        in_clear=listed_in_row,
        help_text="Documents shown with it, as named in the plan.",
    )
    why = ContentText(blank=True, help_text="The agent's own words. Untrusted.")
    requested_by = models.TextField()
    requester = models.BigIntegerField(null=True, help_text="The account of the requester: names can be changed.")
    opened_at = models.DateTimeField()
    deadline = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)
    case_id = models.UUIDField(
        null=True, help_text="Approval of the first stage, if several people decide; empty if one person decides."
    )
    # Timing other than the deadline; the journal's events repeat it. See deadlines.py.
    timing = Json(null=True, help_text="The terms of the deadline: calendar, action at the deadline, and reminders.")
    look_at = models.DateTimeField(null=True, help_text="Time of the next reminder or escalation before the deadline.")
    escalated_to = ArrayField(
        models.TextField(), null=True, help_text="Further queues to which the approval was escalated."
    )
    reminded = models.SmallIntegerField(db_default=0, default=0)
    reminded_at = models.DateTimeField(null=True)
    same = models.TextField(
        null=True, help_text="Digest to look up a standing approval by; whether it applies is checked against the plan."
    )
    call = models.TextField(
        null=True, help_text="Keyed digest of the arguments, to look up repeated requests by; older rows have none."
    )

    amount = models.TextField(null=True, help_text="The plan's amount, with which lists check people's limits.")

    class Meta:
        indexes = [
            models.Index(fields=["run", "opened_at"], name="approvals_by_run"),
            models.Index(
                fields=["same"], condition=models.Q(state="open", same__isnull=False), name="approvals_open_same"
            ),
            # Questions that the sweeper has to check, and escalated ones.
            models.Index(
                fields=["look_at"], condition=models.Q(state="open", look_at__isnull=False), name="approvals_to_look_at"
            ),
            models.Index(
                fields=["deadline", "id"],
                condition=models.Q(state="open", escalated_to__isnull=False),
                name="approvals_open_escalated",
            ),
            models.Index(
                fields=["-decided_at", "-id"],
                condition=~models.Q(state="open") & models.Q(escalated_to__isnull=False),
                name="approvals_decided_escalated",
            ),
            # One index per order: the inbox by queue and as a whole, decided questions, and the API's lists.
            models.Index(
                fields=["queue", "deadline", "id"], condition=models.Q(state="open"), name="approvals_open_by_queue"
            ),
            models.Index(
                fields=["deadline", "id"], condition=models.Q(state="open"), name="approvals_open_by_deadline"
            ),
            models.Index(
                fields=["queue", "-decided_at", "-id"],
                condition=~models.Q(state="open"),
                name="approvals_decided_by_queue",
            ),
            models.Index(
                fields=["-decided_at", "-id"], condition=~models.Q(state="open"), name="approvals_decided_by_time"
            ),
            models.Index(fields=["-opened_at", "-id"], name="approvals_by_time"),
            models.Index(fields=["state", "-opened_at", "-id"], name="approvals_by_state"),
            models.Index(fields=["queue", "state", "-opened_at", "-id"], name="approvals_by_queue_state"),
        ]
        triggers = [
            pgtrigger.ReadOnly(name="question_is_frozen", fields=FROZEN),
            pgtrigger.ReadOnly(name="case_is_frozen", fields=["case_id"]),
            pgtrigger.ReadOnly(name="terms_are_frozen", fields=["timing"]),
            pgtrigger.ReadOnly(name="documents_are_frozen", fields=["documents"]),
        ]

    def planned(self) -> dict[str, Any] | None:
        """Return the plan from the exact bytes that its hash covers; None if they were forged and don't form a plan."""
        try:
            plan = parsed(bytes(self.plan))
        except ValueError:
            return None
        return plan if isinstance(plan, dict) else None

    @transition(state, source=A.OPEN, target=A.APPROVED)
    def approve(self) -> None: ...

    @transition(state, source=A.OPEN, target=A.REJECTED)
    def reject(self) -> None: ...

    @transition(state, source=A.OPEN, target=A.EXPIRED)
    def expire(self) -> None: ...

    @transition(state, source=A.OPEN, target=A.WITHDRAWN)
    def withdraw(self) -> None: ...

    @transition(state, source=A.OPEN, target=A.AMENDED)
    def amend(self) -> None: ...

    @transition(state, source=A.WITHDRAWN, target=A.OPEN)
    def reopen(self) -> None: ...


# The transitions are declared once and enforced by the database, as for runs.
pgtrigger.register(
    pgtrigger.FSM(
        name="legal_moves_only",
        field="state",
        transitions=sorted(
            {(str(t.source), str(t.target)) for t in Approval._meta.get_field("state").get_all_transitions(Approval)}
        ),
    )
)(Approval)


class Decision(Coded):
    """One person's vote on an exact plan and state of the run.

    Append-only. A vote that `closes` its question decided it. Old decisions don't record the state. `standing` holds
    the principal and the limit; it is missing if the person decided in their own role without a limit.
    """

    id = models.BigAutoField(primary_key=True)
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="decisions")
    verdict = models.TextField()
    plan_hash = models.TextField()
    justification = ContentText(run="approval.run_id")
    by = models.TextField()
    person = models.BigIntegerField(null=True)
    role = models.TextField()
    auth = models.TextField()
    address = models.TextField(blank=True)
    seq = models.BigIntegerField(null=True, help_text="The journal's last event when the person decided.")
    chain = models.BinaryField(max_length=32, null=True)
    before = Json(default=dict)
    after = Json(default=dict)
    standing = Json(null=True)
    proof = Json(null=True, help_text="The proof that the person gave, if the approval required one.")
    at = models.DateTimeField()
    closes = models.BooleanField(default=True, db_default=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["approval"], condition=models.Q(closes=True), name="approvals_decided_once")
        ]
        indexes = [
            models.Index(fields=["-at", "-id"], name="approvals_decided_by_moment"),
            models.Index(fields=["verdict", "-at", "-id"], name="approvals_decided_by_verdict"),
            models.Index(fields=["by", "-at", "-id"], name="approvals_decided_by_who"),
        ]
        triggers = append_only()

    def store(self) -> None:
        """Insert the row with its code."""
        self.seal()
        self.save(force_insert=True)


class Seat(models.Model):
    """A person who has voted in a case, as themselves or through a deputy.

    The database writes it with the decision (approvals/sql/decisions.sql) and allows one row per person and case.
    """

    id = models.BigAutoField(primary_key=True)
    case_id = models.UUIDField()
    person = models.BigIntegerField()
    decision = models.ForeignKey(Decision, on_delete=models.PROTECT, related_name="seats")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["case_id", "person"], name="approvals_seat_one_each")]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.person} in {self.case_id}"
