"""Sets and ends retention policies, each with a record of the act.

Only administrators may do so; the installation can require two people."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from django.db import connection, transaction
from pydantic import Field

from durableagents.contrib.retention.models import Act, Policy, PolicyEnd, Rule
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.change_control import NUMBER, SUPERUSER, account_of, holds, two_person
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, NotFound
from ledger.web.bodies import Justified
from ledger.web.text_safety import is_hidden

FAMILY = "retention"
MAX_DAYS = 36_500
MAX_POLICIES = 200

Days = Annotated[int, Field(ge=1, le=MAX_DAYS)]
Name = Annotated[str, Field(max_length=200)]
Kind = TypeVar("Kind", bound=Rule)


class RetentionPolicyBody(Justified):
    """The runs to which the policy applies (empty fields: any), and the days.

    At least one day is required, so that runs can be read for a while after their end."""

    agent: Name = Field(default="", description="Name of the agent, without version; empty: any.")
    tag: Name = Field(default="", description="Tag of the run; empty: any.")
    effects: Literal["", "pure", "idempotent_with_key", "unsafe_on_replay"] = Field(
        default="", description="Runs that made a call of this replay class; empty: any."
    )
    state: Literal["", "completed", "failed", "cancelled"] = Field(default="", description="State; empty: any.")
    checkpoint_days: Days | None = Field(
        default=None,
        description="Days from end until all checkpoints but the newest are removed; null: they stay with the run.",
    )
    archive_days: Days | None = Field(default=None, description="Days from end to archiving; null: never.")
    delete_days: Days | None = Field(default=None, description="Days from archiving to deletion; null: never.")


class NotInForce(DurableAgentsError):
    """The rule has already been ended."""

    status, code, title = 409, "illegal-state", "No longer in force"


def in_force() -> list[Policy]:
    """Return the policies in force, oldest first."""
    return list(Policy.objects.filter(end__isnull=True).order_by("pk"))


def forged() -> list[Policy]:
    """Return policies in force, and ended ones, that this installation didn't write.

    Functions in SQL take them into account, so nothing is removed while such rows exist."""
    rows = [row for row in in_force() if not row.is_authentic]
    return rows + [each.policy for each in PolicyEnd.objects.select_related("policy") if not each.is_authentic]


@two_person(FAMILY, needs=SUPERUSER, moving=frozenset({NUMBER}))
@transaction.atomic
def create(body: RetentionPolicyBody, *, by: Actor) -> Policy:
    """Put a policy in force.

    If several policies match a run, the one that keeps it longest counts, so a policy never shortens the period of
    another one. Legal holds keep runs whatever policies say. Raises InvalidInput, Forbidden, JustificationRequired."""
    why = may("retention_policy", by, body.justification)
    for field in ("agent", "tag"):
        check_text(field, getattr(body, field))
    if "@" in body.agent:
        raise wrong("agent", "names a version", "name the agent without its version")
    if body.delete_days is not None and body.archive_days is None:
        raise wrong("delete_days", "without archive_days", "only what is archived can be deleted: set archive_days")
    if body.archive_days is not None and (body.checkpoint_days or 0) > body.archive_days:
        fix = f"the run is archived with them by then: set at most {body.archive_days}, or leave it empty"
        raise wrong("checkpoint_days", "is longer than archive_days", fix)
    if len(in_force()) >= MAX_POLICIES:
        raise wrong("agent", f"there are {MAX_POLICIES} policies", "end one first")
    row = Policy(**body.model_dump(exclude={"justification"}), reason=why, set_by=by.ref, at=database_now())
    store(row)
    acted("retention_policy", by=by, subject=str(row), justification=why, before={}, after=policy_values(row))
    return row


@two_person(FAMILY, needs=SUPERUSER)
@transaction.atomic
def end(policy_id: int, *, by: Actor, justification: str) -> Policy:
    """End a policy. Raises NotInForce, NotFound, Forbidden, JustificationRequired."""
    why = may("retention_policy_end", by, justification)
    row = ended(Policy, PolicyEnd, policy_id, by, why)
    acted("retention_policy_end", by=by, subject=str(row), justification=why, before=policy_values(row), after={})
    return row


def policy_values(row: Policy) -> dict[str, Any]:
    return {name: getattr(row, name) for name in RetentionPolicyBody.model_fields if name != "justification"}


# --- shared with holds ------------------------------------------------------------------------------------------------


def ended(rule: type[Kind], end: type[Act], rule_id: int, by: Actor, why: str) -> Kind:
    """End a rule and return it. Raises NotInForce, NotFound.

    An advisory lock makes concurrent acts wait for this transaction. Locking the row itself would require the right to
    update it, which the runtime role lacks."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('retention ends', 89))")
    row = rule._default_manager.filter(pk=rule_id).first()
    if row is None:
        raise NotFound(rule.KIND, rule_id)
    if end._default_manager.filter(pk=rule_id).exists():
        raise NotInForce(f"The {row} was already ended.")
    done = end(reason=why, by=by.ref, at=database_now())
    done.pk = rule_id
    store(done)
    return row


def store(row: Any) -> None:
    """Insert a row with its code, which doesn't cover a generated primary key."""
    row.seal()
    row.save(force_insert=True)


def may(action: str, by: Actor, justification: object) -> str:
    """Check that the actor is an administrator or uses a shell; return the justification.

    Raises Forbidden, JustificationRequired."""
    if by.auth != "shell" and not holds(account_of(by), SUPERUSER):
        raise Forbidden("Only an administrator may set retention policies and legal holds.")
    return justified(action, justification)


def check_text(field: str, text: str) -> None:
    if text != text.strip() or any(character == "\n" or is_hidden(character) for character in text):
        raise wrong(field, "has blanks at its ends, or invisible characters", "write it exactly as in the run")


def wrong(field: str, problem: str, fix: str) -> InvalidInput:
    return InvalidInput(f"Invalid input: {field} {problem}.", errors=[{"field": field, "problem": problem, "fix": fix}])
