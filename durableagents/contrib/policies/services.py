"""Administrators' acts on policies.

Each act is one transaction that records the state before and after. From its commit on, a change applies to every call
that has not been sent yet."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Lower
from django.db.models.lookups import IsNull
from pydantic import Field

from approvals.queue_models import Queue
from approvals.queues.acts import Name, hold
from approvals.queues.labels import fields_of
from approvals.queues.who import PERMISSION, Unchanged, as_admin, check_text, wrong
from approvals.versions import LOOKED_AT, next_version
from durableagents.contrib.policies.conditions import Schema, parse_condition
from durableagents.contrib.policies.in_force import read_policies
from durableagents.contrib.policies.models import Policy, digest
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.change_control import two_person
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, NotFound
from ledger.web.bodies import NoFlag, Strict
from runs.engine.agents import registry
from runs.engine.fingerprint.described import json_schema
from runs.engine.gating.proof import Proof
from runs.engine.tools import Tool
from runs.models import PolicyRevision
from runs.queries.expressions import MAX_EXPRESSION_LENGTH, Misread
from runs.services.bodies import SteerBody

EVERY_CALL = "every call"  # must be typed to confirm a rule that stops every call
MAX_WAIT = 24 * 365
MAX_CALLS = 10_000  # largest number of calls on which a policy can be tried
Text = Annotated[str, Field(max_length=MAX_EXPRESSION_LENGTH)]


class Rule(Strict):
    """The fields of a policy."""

    agent: Name = Field(default="", description="Agent that it applies to; empty: any agent.")
    tool: Name = Field(default="", description="Tool that it applies to; empty: any tool.")
    condition: Text = Field(default="", description="Condition on the call's arguments; empty if it always applies.")
    effect: Literal["allow", "require", "deny"] = Field(description="allow, require (an approval) or deny.")
    queue: Name = Field(default="", description="Queue that must approve; required if the effect is `require`.")
    within_hours: Annotated[int, Field(strict=False, ge=1, le=MAX_WAIT), NoFlag] = Field(
        default=168, description="Hours within which the queue must decide."
    )
    rule: Text = Field(description="Explanation that approvers see.")
    proof_minutes: Annotated[int, Field(strict=False, ge=0, le=24 * 60), NoFlag] = Field(
        default=0, description="Maximum age of the approver's authentication in minutes; 0: no requirement."
    )
    second_factor: bool = Field(default=False, description="Require a second factor.")
    type_amount: bool = Field(default=False, description="Require the approver to type the amount.")
    type_target: bool = Field(default=False, description="Require the approver to type the target.")
    confirm: Name = Field(
        default="", description="`every call`, to confirm a rule that stops every call of all agents."
    )

    @property
    def proof(self) -> Proof:
        return Proof(self.proof_minutes * 60, self.second_factor, self.type_amount, self.type_target)


class TryBody(Rule):
    """A policy to try on the newest `calls` recorded calls.

    It takes the place of the policy in force with the same `name`, if any. Other fields are accepted, because a form
    sends them, and ignored."""

    name: Name = Field(default="", description="Policy in force that it would replace; empty: none.")
    rule: Text = Field(default="as tried", description="Explanation that approvers would see.")
    calls: Annotated[int, Field(strict=False, ge=1, le=MAX_CALLS), NoFlag] = Field(
        default=1000, description="Number of recorded calls to try the policy on."
    )
    seen: int | str | None = Field(default=None, description="Ignored.")
    justification: str = Field(default="", description="Ignored.")


class NewPolicyBody(Rule, SteerBody):
    """A policy with a new name."""

    name: Name = Field(description="Name of the policy.")


class PolicyBody(Rule, SteerBody):
    """A new version of a policy.

    `seen` is the version that it is based on; the request is refused if there is a newer one."""

    seen: Annotated[int, Field(strict=False, ge=1), NoFlag] | None = Field(
        default=None, description="Version that it is based on; refused with 409 if there is a newer one."
    )


MAX_POLICIES = 200  # policies in force at the same time
NAME = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
TAKEN = frozenset({"restore", "try", "new", "of"})  # these names are used in URLs
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtextextended('policy changes', 60))"
_LAST = 2**63 - 1
_ALONE = "SELECT runs_policies_alone()"


_FIELDS = fields_of(
    "p",
    name="Name",
    agent="Agent",
    tool="Tool",
    condition="When",
    effect="Action",
    queue="Approved by",
    rule="Description",
    confirm="What to type",
) | {
    "within_hours": ("p-within", "Deadline (hours)"),
    "proof_minutes": ("p-proof", "Re-authenticate within (min)"),
}
# The element on the page and the label of each field, by form.
FORM_FIELDS = {
    "add": _FIELDS,
    "try": _FIELDS,
    "change": {name: field for name, field in _FIELDS.items() if name != "name"},
    "retire": fields_of("x"),
    "restore": fields_of("r"),
}


class PolicyChanged(DurableAgentsError):
    """Someone else has changed the policy meanwhile."""

    status, code, title = 409, "policy-changed", "The policy was changed meanwhile"


class PoliciesDamaged(DurableAgentsError):
    """The policies in force differ from the record."""

    status, code, title = 409, "policies-not-authentic", "The policies were changed outside the application"


def find(name: str) -> Policy:
    """Return a policy's version in force, or else its newest version. Raises NotFound."""
    found = _newest(name)
    if found is None:
        raise NotFound("policy", name)
    return found


def _newest(name: str) -> Policy | None:
    """Return the version in force, or the newest one. A forged version is returned only if there is no other."""
    rows = Policy.objects.filter(name=name).order_by(IsNull(F("ended_at"), True).desc(), "-version")
    looked = list(rows[:LOOKED_AT])
    return next((row for row in looked if row.is_in_force or row.is_authentic), looked[0] if looked else None)


def _number_after(last: Policy | None, name: str) -> int:
    """Return the number of the next version. It is unused under every capitalization of the name.

    Raises InvalidInput if forged versions use all higher numbers."""
    taken = Policy.objects.alias(spelled=Lower("name")).filter(spelled=name).values_list("version", flat=True)
    number = next_version(taken, last.version if last is not None and last.is_authentic else 0)
    if number is None:
        what = "has versions that this installation did not write, the last with the highest number"
        raise wrong("name", what, "another name, or ask the database's owner to remove them")
    return number


@two_person("policies", needs=PERMISSION, trial="policy_tries")
@transaction.atomic
def create(body: NewPolicyBody, *, by: Actor) -> Policy:
    """Put a new policy in force. Raises InvalidInput with the wrong field, Forbidden, JustificationRequired."""
    by, why = as_admin(by, "change policies"), justified("policy", body.justification)
    _alone()
    if not NAME.fullmatch(body.name) or body.name in TAKEN:
        raise wrong("name", "may hold only lower-case letters, digits and _", "such as large_refunds")
    last = _newest(body.name)
    if last is not None and last.is_in_force:
        raise wrong("name", "is that of a policy that is in force", "choose another name, or change that policy")
    if Policy.objects.filter(ended_at__isnull=True).count() >= MAX_POLICIES:
        raise wrong("name", f"would exceed the limit of {MAX_POLICIES} policies", "retire one first")
    row = _version(body.name, body, by, _number_after(last, body.name))
    return _save_version("policy", row, None, by=by, why=why)


@two_person("policies", needs=PERMISSION, trial="policy_tries")
@transaction.atomic
def change(name: str, body: PolicyBody, *, by: Actor) -> Policy:
    """Replace the version in force.

    Raises the errors of `create`, NotFound, and PolicyChanged if the current version is not `seen`."""
    by, why = as_admin(by, "change policies"), justified("policy_change", body.justification)
    _alone()
    last = _live(name)
    if body.seen is not None and body.seen != last.version:
        raise PolicyChanged(f"The policy {name} is now at version {last.version}, set by {last.set_by}. Read it again.")
    row = _version(name, body, by, _number_after(last, name))
    if row.as_record() | {"version": last.version} == last.as_record() and last.is_authentic:
        raise Unchanged("rule", "change a value")
    return _save_version("policy_change", row, last, by=by, why=why)


@two_person("policies", needs=PERMISSION)
@transaction.atomic
def retire(name: str, *, by: Actor, justification: str) -> Policy:
    """Retire a policy. Raises PolicyChanged if already retired, NotFound, Forbidden, JustificationRequired."""
    by, why = as_admin(by, "change policies"), justified("policy_retire", justification)
    _alone()
    last = _live(name)
    return _save_version("policy_retire", None, last, by=by, why=why)


@two_person("policies", needs=PERMISSION)
@transaction.atomic
def restore(*, by: Actor, justification: str) -> None:
    """Repair policies that were changed outside the application. Until then, all calls are denied.

    Forged additions are ended; versions whose end was forged are restored as new versions. Raises
    InvalidInput if nothing is wrong, Forbidden, JustificationRequired."""
    by, why = as_admin(by, "change policies"), justified("policy_restore", justification)
    _alone()
    problem = read_policies().problem
    if not problem:
        raise wrong("justification", "is not needed here", "the policies in force match the record")
    before = [str(row) for row in _in_force()]
    for row in _in_force():
        if not row.is_authentic:  # without a code, so that the forged row doesn't become authentic
            Policy.objects.filter(pk=row.pk).update(ended_at=database_now(), ended_by=by.ref, code=None)
    for row in _lost():
        number = _number_after(_newest(row.name), row.name)
        again = Policy(**row.as_record() | {"version": number}, kinds=row.kinds, set_by=by.ref)
        again.made_at = database_now()
        again.seal()
        again.save(force_insert=True)
    after = {"in_force": [str(row) for row in _in_force()], "problem": problem}
    acted("policy_restore", by=by, subject="policies", justification=why, before={"in_force": before}, after=after)
    _turn(by)


def _lost() -> list[Policy]:
    """Return versions whose end was forged, unless their policy is in force or has a later version."""
    kept = {row.name for row in _in_force()}
    found: dict[str, Policy] = {}
    for row in Policy.objects.filter(ended_at__isnull=False).exclude(name__in=kept).order_by("name", "version"):
        was_ours = row.is_authentic
        if was_ours:
            found.pop(row.name, None)
            continue
        row.ended_at, row.ended_by = None, ""
        if row.is_authentic:
            found[row.name] = row
    return list(found.values())


def tools_of(agent: str, tool: str) -> list[tuple[str, Tool]]:
    """Return the tools of that name with their agent's graph id; if an agent is named, only its tools."""
    return [
        (each.graph_id, known)
        for each in registry.agents()
        if agent in ("", each.name)
        for known in each.all_tools()
        if known.name == tool
    ]


def schemas_of(agent: str, tool: str) -> list[tuple[str, Schema]]:
    return [(whose, json_schema(known.input)) for whose, known in tools_of(agent, tool)]


def check(body: Rule) -> dict[str, str]:
    """Check the fields, and return how each name in the condition is compared.

    Raises InvalidInput with the wrong field."""
    agents = {each.name for each in registry.agents()}
    if body.agent and body.agent not in agents:
        raise wrong("agent", "is not a known agent", f"one of {', '.join(sorted(agents)) or 'none'}, or empty")
    if body.tool and not tools_of(body.agent, body.tool):
        every = {tool.name for each in registry.agents() if body.agent in ("", each.name) for tool in each.all_tools()}
        whose = f" of {body.agent}" if body.agent else ""
        raise wrong("tool", f"is not a known tool{whose}", f"one of {', '.join(sorted(every)) or 'none'}, or empty")
    check_text("rule", body.rule, 500)
    try:
        kinds = parse_condition(body.condition, schemas_of(body.agent, body.tool) if body.tool else ()).kinds
    except Misread as error:
        raise wrong("condition", f"{error.problem} (character {error.at})", error.fix) from None
    if body.effect == "require":
        queue = Queue.objects.filter(name=body.queue).exclude(state=Queue.State.REMOVED).first()
        if queue is None:
            raise wrong("queue", "does not exist", "the queue that must approve")
        if queue.state != Queue.State.OPEN or not queue.is_authentic:
            raise wrong("queue", "decides nothing now", "open it first, or name another one")
        if body.second_factor and not body.proof_minutes:
            raise wrong("proof_minutes", "is 0, so a second factor would never be required", "a number of minutes")
    elif body.proof.is_any or body.second_factor:
        raise wrong(
            "proof_minutes",
            f"applies to approvals, but a policy with effect {body.effect} does not require one",
            "leave it empty",
        )
    elif body.queue:
        raise wrong("queue", f"has no function in a policy with effect {body.effect}", "leave it empty")
    is_all = not (body.agent or body.tool or body.condition.strip()) and body.effect != "allow"
    if is_all and body.confirm != EVERY_CALL:
        what = "refuse" if body.effect == "deny" else "hold up"
        raise wrong("confirm", f"is missing: this would {what} every call of every agent", f"type: {EVERY_CALL}")
    return dict(kinds)


def build_version(name: str, body: Rule, version: int, by: str, at: Any) -> Policy:
    """Build a version from a request body. The version is not in force yet. Raises InvalidInput."""
    is_require = body.effect == "require"
    return Policy(
        name=name,
        version=version,
        agent=body.agent,
        tool=body.tool,
        condition=body.condition.strip(),
        kinds=check(body),
        effect=body.effect,
        queue=body.queue if is_require else "",
        within_seconds=body.within_hours * 3600 if is_require else 0,
        rule=body.rule,
        set_by=by,
        made_at=at,
        proof=body.proof.as_json() if body.proof.is_any else None,
    )


def _version(name: str, body: Rule, by: Actor, version: int) -> Policy:
    hold([body.queue] if body.queue else ())  # locks the queue, so that it can't be removed at the same time
    row = build_version(name, body, version, by.ref, database_now())
    row.seal()
    return row


def _alone() -> None:
    """Allow only one policy change at a time."""
    with connection.cursor() as cursor:
        cursor.execute(_ONE_AT_A_TIME)


def _live(name: str) -> Policy:
    last = find(name)
    if not last.is_in_force:
        raise PolicyChanged(f"The policy {name} was retired by {last.ended_by}: create a policy with this name again.")
    return last


def _in_force() -> list[Policy]:
    return list(Policy.objects.filter(ended_at__isnull=True).order_by("name"))


def _end(row: Policy, by: Actor) -> None:
    row.ended_at, row.ended_by = database_now(), by.ref
    row.seal()
    row.save(update_fields=["ended_at", "ended_by", "code"])


def _save_version(action: str, new: Policy | None, last: Policy | None, *, by: Actor, why: str) -> Policy:
    """Atomically end the old version, save the new one, record the act, and increment the revision."""
    if problem := read_policies().problem:
        raise PoliciesDamaged(
            f"Nothing was changed: {problem}. Open /policies and confirm which policies are in force."
        )
    before = {} if last is None else last.as_record()
    if last is not None:
        _end(last, by)
    if new is not None:
        new.save(force_insert=True)
    of = new or last
    assert of is not None
    acted(
        action,
        by=by,
        subject=f"policy {of.name}",
        queue=of.queue,
        justification=why,
        before=before,
        after={} if new is None else new.as_record(),
    )
    _turn(by)
    return of


def _turn(by: Actor) -> None:
    """Start a new revision, so that after the commit no call is sent under the old one.

    This lock is taken last, because intents wait for it."""
    with connection.cursor() as cursor:
        cursor.execute(_ALONE)
    rows = _in_force()
    last = PolicyRevision.objects.order_by("-revision").values_list("revision", flat=True).first() or 0
    if last >= _LAST:
        raise PoliciesDamaged(
            "The revision with the last possible number was not written by this installation. The database's "
            "owner must remove it. Nothing was changed."
        )
    turned = PolicyRevision(revision=last + 1, live=len(rows), policies=digest(rows), set_by=by.ref, at=database_now())
    turned.seal()
    turned.save(force_insert=True)
