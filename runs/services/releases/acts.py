"""Closing and opening versions, and ramps between them: for operators, one transaction with an act record each.
All take the agent's release lock exclusively, which every start shares: no start in progress goes by the old state."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from django.db import OperationalError, connection, transaction
from psycopg.errors import LockNotAvailable
from pydantic import Field

from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, NotFound
from ledger.four_eyes.guards import second
from ledger.four_eyes.known import NUMBER
from ledger.web.roles import OPERATOR
from ledger.web.text_safety import is_hidden
from runs.engine.agents import registry
from runs.models import Ramp, RampStart, VersionGate
from runs.services.bodies import SteerBody, Tag
from runs.services.releases.choosing import PLACES, ordered

Version = Annotated[str, Field(min_length=1, max_length=40, description="For example 2.0.0.")]
Share = Annotated[
    Decimal,
    Field(
        gt=0, le=100, decimal_places=2, strict=False, description="Percentage of the starts, with two decimal places."
    ),
]
Bound = Annotated[int, Field(ge=1, le=100, description="Percentage of the runs that it started on the newer version.")]


class RampBody(SteerBody):
    """Moves starts by the agent's name gradually to another version: a share of them, those with one of these tags, or
    both. The ramp halts itself when a figure exceeds its bound; a null bound never halts it."""

    agent: Annotated[str, Field(min_length=1, max_length=64)] = Field(description="Agent whose starts it moves.")
    from_version: Version
    to_version: Version
    share: Share | None = Field(default=None, description="Percentage of the starts that go to the newer version.")
    tags: Annotated[list[Tag], Field(min_length=1, max_length=50)] | None = Field(
        default=None, description="Tags whose runs start on the newer version."
    )
    failed: Bound | None = Field(
        default=5, description="Percentage of failed runs above which it halts; null: no bound."
    )
    rejected: Bound | None = Field(
        default=20, description="Percentage of runs with a rejected approval above which it halts; null: no bound."
    )
    stopped: Bound | None = Field(
        default=5, description="Percentage of runs that stopped for an operator above which it halts; null: no bound."
    )
    at_least: Annotated[
        int, Field(ge=1, le=1000, description="Number of runs started on the newer version before the bounds apply.")
    ] = 20


class RampActBody(SteerBody):
    """With `revision` (the ramp's revision as last read), nothing is done if the ramp has changed since."""

    revision: Annotated[int, Field(ge=1)] | None = Field(default=None, description="The ramp's revision as last read.")


class RaiseBody(RampActBody):
    """A larger share of the starts for the newer version."""

    share: Share


_VERSION = re.compile(r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})")
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
BOUNDS = ("failed", "rejected", "stopped")


class NotInThisState(DurableAgentsError):
    """It is in that state already, or can't be."""

    status, code, title = 409, "illegal-state", "The release's state does not allow this"


class RampMoved(DurableAgentsError):
    """The ramp was changed since it was seen."""

    status, code, title = 409, "ramp-moved", "The ramp has changed"


class StartsUnderWay(DurableAgentsError):
    """Starts of the agent don't end in time."""

    status, code, title = 503, "starts-under-way", "Starts are still in progress"

    def __init__(self, agent: str) -> None:
        super().__init__(f"Starts of {agent} were still in progress after a second. Nothing was done; try again.")


def find(ramp_id: int) -> Ramp:
    """Return a ramp, also one that is over. Raises NotFound."""
    found = Ramp.objects.filter(pk=ramp_id).first()
    if found is None:
        raise NotFound("ramp", ramp_id)
    return found


# --- versions ---------------------------------------------------------------------------------------------------------


@transaction.atomic
def close(agent: str, version: str, *, by: Actor, justification: str) -> VersionGate:
    """Close a version to new starts, even before its code arrives. Active runs, continuations and child runs go on.
    Raises NotInThisState, InvalidInput, NotFound, Forbidden, JustificationRequired, StartsUnderWay."""
    why = _may("version_close", by, justification)
    _check_name(agent, version)
    alone(agent)
    if (ramp := under_way(agent)) is not None and version in (ramp.from_version, ramp.to_version):
        raise NotInThisState(f"Ramp {ramp.pk} sends starts to {agent}@{version}. Finish it or roll it back first.")
    gate = _gate(agent, version)
    if gate.is_closed:
        raise NotInThisState(f"{gate.graph_id} is closed to new starts already.")
    return _set_gate(gate, True, by=by, why=why)


@second("releases", needs=OPERATOR)
@transaction.atomic
def reopen(agent: str, version: str, *, by: Actor, justification: str) -> VersionGate:
    """Open a version to new starts. Raises what `close` raises."""
    why = _may("version_open", by, justification)
    _check_name(agent, version)
    alone(agent)
    gate = _gate(agent, version)
    if not gate.is_closed:
        raise NotInThisState(f"{gate.graph_id} is open to new starts.")
    return _set_gate(gate, False, by=by, why=why)


def _gate(agent: str, version: str) -> VersionGate:
    known = VersionGate.objects.select_for_update().filter(agent=agent, version=version).first()
    return known or VersionGate(agent=agent, version=version, is_closed=False)


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


@second("releases", needs=OPERATOR, moving=frozenset({NUMBER, "counted_after"}))
@transaction.atomic
def begin(body: RampBody, *, by: Actor) -> Ramp:
    """Create a ramp, and open the version it leads to.
    Raises InvalidInput by field, NotInThisState if the agent has one, NotFound, Forbidden, JustificationRequired,
    StartsUnderWay."""
    why = _may("ramp", by, body.justification)
    if errors := _wrong(body):
        raise InvalidInput(f"Invalid ramp: {errors[0]['field']} {errors[0]['problem']}.", errors=errors)
    alone(body.agent)
    if (other := under_way(body.agent)) is not None:
        raise NotInThisState(f"Ramp {other.pk} of {body.agent} is active. Finish it or roll it back first.")
    if _gate(body.agent, body.from_version).is_closed:
        errors = [{"field": "from_version", "problem": "is closed to new starts", "fix": "open it first"}]
        raise InvalidInput("The ramp's first version is closed to new starts.", errors=errors)
    if (gate := _gate(body.agent, body.to_version)).is_closed:
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
    return done("ramp", ramp, by=by, before={}, why=why)


@second("releases", needs=OPERATOR)
@transaction.atomic
def raise_to(ramp_id: int, body: RaiseBody, *, by: Actor) -> Ramp:
    """Raise a ramp's share; no key changes back.
    Raises InvalidInput for a share that isn't more, RampMoved, NotInThisState, NotFound, Forbidden,
    JustificationRequired, StartsUnderWay."""
    why = _may("ramp_raise", by, body.justification)
    ramp = _locked(ramp_id, body.revision, Ramp.State.ON)
    before, share = shown(ramp), _places(body.share)
    if share <= ramp.share:
        fix = f"more than {percent(ramp.share)}, or take the ramp back"
        errors = [{"field": "share", "problem": "is not larger than the current share", "fix": fix}]
        raise InvalidInput("A share can only be raised.", errors=errors)
    ramp.share = share
    return _changed("ramp_raise", ramp, by=by, before=before, why=why)


@second("releases", needs=OPERATOR, moving=frozenset({"counted_after"}))
@transaction.atomic
def go_on(ramp_id: int, body: RampActBody, *, by: Actor) -> Ramp:
    """Resume a halted ramp with new figures. Raises what `raise_to` raises."""
    why = _may("ramp_resume", by, body.justification)
    ramp = _locked(ramp_id, body.revision, Ramp.State.HALTED)
    before = shown(ramp)
    last = RampStart.objects.filter(ramp=ramp, is_new=True).order_by("-id").values_list("id", flat=True).first()
    ramp.state, ramp.halted_at, ramp.halted_by = Ramp.State.ON, None, None
    ramp.counted_after, ramp.counted_from = last or 0, database_now()
    return _changed("ramp_resume", ramp, by=by, before=before, why=why)


@transaction.atomic
def roll_back(ramp_id: int, body: RampActBody, *, by: Actor) -> Ramp:
    """Roll a ramp back and close the newer version; its runs stay on it. Raises what `raise_to` raises."""
    why = _may("ramp_rollback", by, body.justification)
    ramp = _locked(ramp_id, body.revision, Ramp.State.ON, Ramp.State.HALTED)
    before = shown(ramp)
    ramp.state, ramp.share, ramp.ended_at = Ramp.State.ROLLED_BACK, 0, database_now()
    if not (gate := _gate(ramp.agent, ramp.to_version)).is_closed:
        _set_gate(gate, True, by=by, why=why)
    return _changed("ramp_rollback", ramp, by=by, before=before, why=why)


@second("releases", needs=OPERATOR)
@transaction.atomic
def finish(ramp_id: int, body: RampActBody, *, by: Actor) -> Ramp:
    """Finish a ramp: its target gets all starts by name. A newer version that the ramp leads away from is closed.
    Raises what `raise_to` raises, and NotInThisState if starts would get another version."""
    why = _may("ramp_finish", by, body.justification)
    ramp = _locked(ramp_id, body.revision, Ramp.State.ON)
    before = shown(ramp)
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
        _set_gate(_gate(ramp.agent, ramp.from_version), True, by=by, why=why)
    ramp.state, ramp.share, ramp.ended_at = Ramp.State.DONE, PLACES, database_now()
    return _changed("ramp_finish", ramp, by=by, before=before, why=why)


def under_way(agent: str) -> Ramp | None:
    return Ramp.objects.filter(agent=agent, ended_at__isnull=True).first()


def percent(share: int) -> str:
    """Return a share as people write it."""
    whole, rest = divmod(share, 100)
    return f"{whole}.{rest:02}".rstrip("0").rstrip(".") if rest else str(whole)


def shown(ramp: Ramp) -> dict[str, Any]:
    """Return a ramp as an act's record keeps it."""
    names = (
        "agent",
        "from_version",
        "to_version",
        "share",
        "tags",
        "bounds",
        "least",
        "state",
        "revision",
        "counted_after",
    )
    return {name: getattr(ramp, name) for name in names} | {"state": str(ramp.state)}


def subject_of(ramp: Ramp) -> str:
    return f"ramp {ramp.pk}"


def alone(agent: str) -> None:
    """Lock out starts of the agent until this transaction ends. Raises StartsUnderWay."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT runs_release_alone(%s)", [agent])
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise StartsUnderWay(agent) from error
        raise


def done(action: str, ramp: Ramp, *, by: Actor, before: dict[str, Any], why: str, **more: Any) -> Ramp:
    """Record an action on a ramp."""
    acted(
        action,
        by=by,
        subject=subject_of(ramp),
        justification=why,
        before=before,
        after=shown(ramp) | more,
        is_systems=by.kind == "system",
    )
    return ramp


def store(ramp: Ramp) -> None:
    """Save the fields of a ramp that can change."""
    ramp.save(
        update_fields=[
            "share",
            "state",
            "revision",
            "counted_after",
            "counted_from",
            "halted_at",
            "halted_by",
            "ended_at",
        ]
    )


def _changed(action: str, ramp: Ramp, *, by: Actor, before: dict[str, Any], why: str) -> Ramp:
    ramp.revision += 1
    store(ramp)
    return done(action, ramp, by=by, before=before, why=why)


def _locked(ramp_id: int, revision: int | None, *states: str) -> Ramp:
    alone(find(ramp_id).agent)
    ramp = Ramp.objects.select_for_update().get(pk=ramp_id)
    if revision is not None and revision != ramp.revision:
        raise RampMoved(f"The ramp was changed after you read it ({ramp.get_state_display().lower()}). Read it again.")
    if ramp.state not in states:
        raise NotInThisState(f"The ramp is {str(ramp.state).replace('_', ' ')}.")
    return ramp


def _may(action: str, by: Actor, justification: str) -> str:
    if by.role != OPERATOR and by.auth != "shell":
        raise Forbidden("Only an operator may choose the version for new starts.")
    return justified(action, justification)


def _places(share: Decimal | None) -> int:
    return 0 if share is None else int(share * 100)


def _check_name(agent: str, version: str) -> None:
    """Raises NotFound for an unknown agent, InvalidInput for an invalid version."""
    if not registry.versions(agent):
        raise NotFound("agent", agent)
    if not _VERSION.fullmatch(version):
        errors = [{"field": "version", "problem": "is no version", "fix": "such as 2.0.0"}]
        raise InvalidInput(f"{version[:40]!r} is not a version number.", errors=errors)


def _wrong(body: RampBody) -> list[dict[str, str]]:
    versions = [agent.version for agent in registry.versions(body.agent)]
    if not versions:
        known = sorted({agent.name for agent in registry.agents()})
        return [{"field": "agent", "problem": "is unknown here", "fix": f"one of {', '.join(known)}"}]
    wrong = [
        {"field": field, "problem": "is unknown here", "fix": f"one of {', '.join(versions)}"}
        for field in ("from_version", "to_version")
        if getattr(body, field) not in versions
    ]
    if body.from_version == body.to_version:
        wrong.append({"field": "to_version", "problem": "is the version that it starts from", "fix": "another version"})
    if body.share is None and body.tags is None:
        wrong.append({"field": "share", "problem": "is missing, and there are no tags", "fix": "give one or both"})
    if any(tag != tag.strip() or any(c == "\n" or is_hidden(c) for c in tag) for tag in body.tags or ()):
        wrong.append(
            {"field": "tags", "problem": "hold invisible characters, or spaces around them", "fix": "plain text"}
        )
    return wrong
