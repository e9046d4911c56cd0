"""Closes and opens versions for new runs, starts ramps between versions, and halts ramps automatically.

Each act is one transaction with its record. Every start of an agent holds a lock in shared mode. Acts take the same
lock in exclusive mode, so that no start in progress uses the old state."""

from __future__ import annotations

import logging
import re
from decimal import Decimal
from typing import Annotated, Any

from django.db import connection, transaction
from pydantic import Field

from durableagents.contrib.releases.choosing import PLACES
from durableagents.contrib.releases.models import Ramp, RampStart, VersionGate
from durableagents.contrib.releases.queries import BOUNDS, active_ramp, figures_of, percent
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.change_control import NUMBER, two_person
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, NotFound
from ledger.web.roles import OPERATOR
from ledger.web.text_safety import is_hidden
from runs.engine.agents import registry
from runs.services.bodies import SteerBody, Tag
from runs.services.version_choice import StartsUnderWay, lock_out_starts, ordered

log = logging.getLogger("durableagents.contrib.releases")

Version = Annotated[str, Field(min_length=1, max_length=40, description="For example 2.0.0.")]
Share = Annotated[
    Decimal,
    Field(
        gt=0, le=100, decimal_places=2, strict=False, description="Percentage of the starts, with two decimal places."
    ),
]
Bound = Annotated[
    int, Field(ge=1, le=100, description="Percentage of the runs that the ramp started on the newer version.")
]


class RampBody(SteerBody):
    """A gradual move of an agent's starts to another version. Starts that name a version are not affected.

    The ramp moves a share of the starts, those with one of the tags, or both. It is halted automatically when a
    figure exceeds its bound. A bound that is null never halts the ramp."""

    agent: Annotated[str, Field(min_length=1, max_length=64)] = Field(description="Agent whose starts the ramp moves.")
    from_version: Version
    to_version: Version
    share: Share | None = Field(default=None, description="Percentage of the starts that go to the newer version.")
    tags: Annotated[list[Tag], Field(min_length=1, max_length=50)] | None = Field(
        default=None, description="Tags whose runs start on the newer version."
    )
    failed: Bound | None = Field(
        default=5, description="Percentage of failed runs above which the ramp halts; null: no bound."
    )
    rejected: Bound | None = Field(
        default=20,
        description="Percentage of runs with a rejected approval above which the ramp halts; null: no bound.",
    )
    stopped: Bound | None = Field(
        default=5,
        description="Percentage of runs that stopped for an operator above which the ramp halts; null: no bound.",
    )
    at_least: Annotated[
        int, Field(ge=1, le=1000, description="Number of runs started on the newer version before the bounds apply.")
    ] = 20


class RampActBody(SteerBody):
    """With `revision` (as you last read it), the request is refused if the ramp has changed since."""

    revision: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="The ramp's revision as you last read it."
    )


class RaiseBody(RampActBody):
    """A larger share of starts for the newer version."""

    share: Share


ACTIONS = (
    "version_close",
    "version_open",
    "ramp",
    "ramp_raise",
    "ramp_resume",
    "ramp_rollback",
    "ramp_finish",
    "ramp_halt",
)


class NotInThisState(DurableAgentsError):
    """The version or ramp is already in that state, or can't change to it."""

    status, code, title = 409, "illegal-state", "The release's state does not allow this"


class RampMoved(DurableAgentsError):
    """The ramp was changed since it was read."""

    status, code, title = 409, "ramp-moved", "The ramp has changed"


# --- versions ---------------------------------------------------------------------------------------------------------

_VERSION = re.compile(r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})")


@transaction.atomic
def close_version(agent: str, version: str, *, by: Actor, justification: str) -> VersionGate:
    """Close a version to new starts. The version's code need not be installed yet.

    Active runs, continuations and child runs continue. Raises NotInThisState, InvalidInput, NotFound, Forbidden,
    JustificationRequired, StartsUnderWay."""
    why = _authorize("version_close", by, justification)
    _check_version(agent, version)
    lock_out_starts(agent)
    if (ramp := active_ramp(agent)) is not None and version in (ramp.from_version, ramp.to_version):
        raise NotInThisState(f"Ramp {ramp.pk} sends starts to {agent}@{version}. Finish it or roll it back first.")
    gate = _locked_gate(agent, version)
    if gate.is_closed:
        raise NotInThisState(f"{gate.graph_id} is already closed to new starts.")
    return _set_gate(gate, True, by=by, why=why)


@two_person("releases", needs=OPERATOR)
@transaction.atomic
def open_version(agent: str, version: str, *, by: Actor, justification: str) -> VersionGate:
    """Open a version to new starts. Raises what `close_version` raises."""
    why = _authorize("version_open", by, justification)
    _check_version(agent, version)
    lock_out_starts(agent)
    gate = _locked_gate(agent, version)
    if not gate.is_closed:
        raise NotInThisState(f"{gate.graph_id} is already open to new starts.")
    return _set_gate(gate, False, by=by, why=why)


def _check_version(agent: str, version: str) -> None:
    """Check that agent and version are known. Raises NotFound for the agent, InvalidInput for the version."""
    if not registry.versions(agent):
        raise NotFound("agent", agent)
    if not _VERSION.fullmatch(version):
        errors = [{"field": "version", "problem": "is not a version", "fix": "such as 2.0.0"}]
        raise InvalidInput(f"{version[:40]!r} is not a version number.", errors=errors)


def _locked_gate(agent: str, version: str) -> VersionGate:
    found = VersionGate.objects.select_for_update().filter(agent=agent, version=version).first()
    return found or VersionGate(agent=agent, version=version, is_closed=False)


def _set_gate(gate: VersionGate, is_closed: bool, *, by: Actor, why: str) -> VersionGate:
    before = {"is_closed": gate.is_closed}
    gate.is_closed, gate.set_by, gate.set_at, gate.why = is_closed, by.ref, database_now(), why
    gate.save(update_fields=None if gate.pk is None else ["is_closed", "set_by", "set_at", "why"])
    acted(
        "version_close" if is_closed else "version_open",
        by=by,
        subject=f"version {gate.graph_id}",
        justification=why,
        before=before,
        after={"is_closed": is_closed},
    )
    return gate


# --- ramps ------------------------------------------------------------------------------------------------------------


def find_ramp(ramp_id: int) -> Ramp:
    """Return a ramp, even one that has ended. Raises NotFound."""
    found = Ramp.objects.filter(pk=ramp_id).first()
    if found is None:
        raise NotFound("ramp", ramp_id)
    return found


@two_person("releases", needs=OPERATOR, moving=frozenset({NUMBER, "counted_after"}))
@transaction.atomic
def create_ramp(body: RampBody, *, by: Actor) -> Ramp:
    """Create a ramp, and open its target version.

    Raises InvalidInput by field, NotInThisState if the agent has a ramp, Forbidden, JustificationRequired,
    StartsUnderWay."""
    why = _authorize("ramp", by, body.justification)
    if errors := _problems(body):
        raise InvalidInput(f"Invalid ramp: {errors[0]['field']} {errors[0]['problem']}.", errors=errors)
    lock_out_starts(body.agent)
    if (other := active_ramp(body.agent)) is not None:
        raise NotInThisState(f"Ramp {other.pk} of {body.agent} is active. Finish it or roll it back first.")
    if _locked_gate(body.agent, body.from_version).is_closed:
        errors = [{"field": "from_version", "problem": "is closed to new starts", "fix": "open it first"}]
        raise InvalidInput("The ramp's first version is closed to new starts.", errors=errors)
    if (gate := _locked_gate(body.agent, body.to_version)).is_closed:
        _set_gate(gate, False, by=by, why=why)
    ramp = Ramp.objects.create(
        agent=body.agent,
        from_version=body.from_version,
        to_version=body.to_version,
        share=_places(body.share),
        tags=sorted(set(body.tags or ())),
        bounds={name: getattr(body, name) for name in BOUNDS},
        least=body.at_least,
        set_by=by.ref,
        made_at=database_now(),
    )
    return _record("ramp", ramp, by=by, before={}, why=why)


@two_person("releases", needs=OPERATOR)
@transaction.atomic
def raise_ramp(ramp_id: int, body: RaiseBody, *, by: Actor) -> Ramp:
    """Raise a ramp's share. Raising the share moves keys only to the newer version.

    Raises InvalidInput for a share that isn't larger, RampMoved, NotInThisState, NotFound, Forbidden,
    JustificationRequired, StartsUnderWay."""
    why = _authorize("ramp_raise", by, body.justification)
    ramp = _locked_ramp(ramp_id, body.revision, Ramp.State.ON)
    before, share = recorded(ramp), _places(body.share)
    if share <= ramp.share:
        fix = f"more than {percent(ramp.share)}, or roll the ramp back"
        errors = [{"field": "share", "problem": "is not larger than the current share", "fix": fix}]
        raise InvalidInput("A share can only be raised.", errors=errors)
    ramp.share = share
    return _save("ramp_raise", ramp, by=by, before=before, why=why)


@two_person("releases", needs=OPERATOR, moving=frozenset({"counted_after"}))
@transaction.atomic
def resume_ramp(ramp_id: int, body: RampActBody, *, by: Actor) -> Ramp:
    """Resume a halted ramp; its figures restart from zero. Raises what `raise_ramp` raises."""
    why = _authorize("ramp_resume", by, body.justification)
    ramp = _locked_ramp(ramp_id, body.revision, Ramp.State.HALTED)
    before = recorded(ramp)
    last = RampStart.objects.filter(ramp=ramp, is_new=True).order_by("-id").values_list("id", flat=True).first()
    ramp.state, ramp.halted_at, ramp.halted_by = Ramp.State.ON, None, None
    ramp.counted_after, ramp.counted_from = last or 0, database_now()
    return _save("ramp_resume", ramp, by=by, before=before, why=why)


@transaction.atomic
def roll_back_ramp(ramp_id: int, body: RampActBody, *, by: Actor) -> Ramp:
    """Roll a ramp back and close the newer version; runs on the newer version stay on it.

    Raises what `raise_ramp` raises.
    """
    why = _authorize("ramp_rollback", by, body.justification)
    ramp = _locked_ramp(ramp_id, body.revision, Ramp.State.ON, Ramp.State.HALTED)
    before = recorded(ramp)
    ramp.state, ramp.share, ramp.ended_at = Ramp.State.ROLLED_BACK, 0, database_now()
    if not (gate := _locked_gate(ramp.agent, ramp.to_version)).is_closed:
        _set_gate(gate, True, by=by, why=why)
    return _save("ramp_rollback", ramp, by=by, before=before, why=why)


@two_person("releases", needs=OPERATOR)
@transaction.atomic
def finish_ramp(ramp_id: int, body: RampActBody, *, by: Actor) -> Ramp:
    """Finish a ramp: from now on, its target gets all starts by name.

    If the target is the older version, the newer one is closed. Raises the errors of `raise_ramp`, and NotInThisState
    if starts would get another version."""
    why = _authorize("ramp_finish", by, body.justification)
    ramp = _locked_ramp(ramp_id, body.revision, Ramp.State.ON)
    before = recorded(ramp)
    closed = set(VersionGate.objects.filter(agent=ramp.agent, is_closed=True).values_list("version", flat=True))
    newer = [
        a.version
        for a in registry.versions(ramp.agent)
        if a.version not in closed | {ramp.from_version} and ordered(a.version) > ordered(ramp.to_version)
    ]
    if newer:
        raise NotInThisState(
            f"{ramp.agent}@{newer[0]} is newer and open, so starts by name would get it. Close it first."
        )
    if ordered(ramp.from_version) > ordered(ramp.to_version) and ramp.from_version not in closed:
        _set_gate(_locked_gate(ramp.agent, ramp.from_version), True, by=by, why=why)
    ramp.state, ramp.share, ramp.ended_at = Ramp.State.DONE, PLACES, database_now()
    return _save("ramp_finish", ramp, by=by, before=before, why=why)


def recorded(ramp: Ramp) -> dict[str, Any]:
    """Return a ramp's values for the record of an act."""
    return {
        "agent": ramp.agent,
        "from_version": ramp.from_version,
        "to_version": ramp.to_version,
        "share": ramp.share,
        "tags": ramp.tags,
        "bounds": ramp.bounds,
        "least": ramp.least,
        "state": str(ramp.state),
        "revision": ramp.revision,
        "counted_after": ramp.counted_after,
    }


def subject_of(ramp: Ramp) -> str:
    return f"ramp {ramp.pk}"


def _save(action: str, ramp: Ramp, *, by: Actor, before: dict[str, Any], why: str, **more: Any) -> Ramp:
    ramp.revision += 1
    names = ["share", "state", "revision", "counted_after", "counted_from", "halted_at", "halted_by", "ended_at"]
    ramp.save(update_fields=names)
    return _record(action, ramp, by=by, before=before, why=why, **more)


def _record(action: str, ramp: Ramp, *, by: Actor, before: dict[str, Any], why: str, **more: Any) -> Ramp:
    acted(
        action,
        by=by,
        subject=subject_of(ramp),
        justification=why,
        before=before,
        after=recorded(ramp) | more,
        is_systems=by.kind == "system",
    )
    return ramp


def _locked_ramp(ramp_id: int, revision: int | None, *states: str) -> Ramp:
    lock_out_starts(find_ramp(ramp_id).agent)
    ramp = Ramp.objects.select_for_update().get(pk=ramp_id)
    if revision is not None and revision != ramp.revision:
        raise RampMoved(f"The ramp was changed after you read it ({ramp.get_state_display().lower()}). Read it again.")
    if ramp.state not in states:
        raise NotInThisState(f"The ramp is {str(ramp.state).replace('_', ' ')}.")
    return ramp


def _authorize(action: str, by: Actor, justification: str) -> str:
    """Return the trimmed justification. Raises Forbidden, JustificationRequired."""
    if by.role != OPERATOR and by.auth != "shell":
        raise Forbidden("Only an operator may choose the version for new starts.")
    return justified(action, justification)


def _places(share: Decimal | None) -> int:
    return 0 if share is None else int(share * 100)


def _problems(body: RampBody) -> list[dict[str, str]]:
    versions = [agent.version for agent in registry.versions(body.agent)]
    if not versions:
        known = sorted({agent.name for agent in registry.agents()})
        return [{"field": "agent", "problem": "is unknown here", "fix": f"one of {', '.join(known)}"}]
    problems = [
        {"field": field, "problem": "is unknown here", "fix": f"one of {', '.join(versions)}"}
        for field in ("from_version", "to_version")
        if getattr(body, field) not in versions
    ]
    if body.from_version == body.to_version:
        problem = "is the version that it starts from"
        problems.append({"field": "to_version", "problem": problem, "fix": "another version"})
    if body.share is None and body.tags is None:
        problems.append({"field": "share", "problem": "is missing, as are tags", "fix": "give one or both"})
    if any(tag != tag.strip() or any(c == "\n" or is_hidden(c) for c in tag) for tag in body.tags or ()):
        problem = "hold invisible characters, or spaces around them"
        problems.append({"field": "tags", "problem": problem, "fix": "plain text"})
    return problems


# --- automatic halts --------------------------------------------------------------------------------------------------

IS_DUE = "EXISTS (SELECT FROM runs_ramp WHERE state = 'on')"
_SYSTEM = Actor(kind="system", name="releases")


def halt_ramps() -> int:
    """Halt the ramps with too many runs that failed, were rejected or stopped for an operator. Return their number."""
    return sum(_halt(ramp_id) for ramp_id in _ramps_above())


def _ramps_above() -> list[int]:
    """Return the ramps to halt. Only one process checks at a time."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended('release watch', 38))")
        if not cursor.fetchone()[0]:
            return []
        ramps = list(Ramp.objects.filter(state=Ramp.State.ON))
        figures = figures_of(ramps)
        return [ramp.pk for ramp in ramps if figures[ramp.pk].above(ramp)]


def _halt(ramp_id: int) -> bool:
    """Halt a ramp if a figure is still above its bound.

    If starts in progress don't end in time, the next check tries again."""
    try:
        with transaction.atomic():
            lock_out_starts(find_ramp(ramp_id).agent)
            ramp = Ramp.objects.select_for_update().get(pk=ramp_id)
            figures = figures_of([ramp])[ramp.pk]
            above = figures.above(ramp)
            if not ramp.is_on or not above:
                return False
            before = recorded(ramp)
            ramp.state, ramp.halted_at = Ramp.State.HALTED, database_now()
            ramp.halted_by = figures.model_dump() | {"above": above}
            why = f"of {figures.begun} runs begun: {', '.join(f'{getattr(figures, name)} {name}' for name in above)}"
            _save("ramp_halt", ramp, by=_SYSTEM, before=before, why=why, figures=ramp.halted_by)
    except StartsUnderWay as busy:
        log.warning("ramp %s is above its bounds, and can't be halted yet: %s", ramp_id, busy.detail)
        return False
    log.warning("ramp %s (%s) halted: %s", ramp_id, ramp, why)
    return True
