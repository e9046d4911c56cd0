"""Set and lift halts, for operators and shell users.

Halts take the exclusive halts lock, which every intent shares. So no intent in a halt's scope begins after the halt's
commit (sql/halts.sql). Each new start shares the release lock of its agent; a halt of new starts takes it exclusively.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

from django.db import OperationalError, connection, transaction
from psycopg.errors import LockNotAvailable
from pydantic import Field

from durableagents.contrib.halts.models import Halt, HaltNow
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, NotFound
from ledger.keys import code_key
from ledger.web.roles import OPERATOR
from ledger.web.text_safety import is_hidden
from runs.engine.halts import RING
from runs.journal import notify
from runs.queries.halts import scope_name
from runs.services.bodies import SteerBody, Tag
from runs.services.version_choice import lock_out_starts
from runs.services.wakeups import CHANNEL

# The text that must be typed to halt the whole installation.
ALL_OF_IT = "halt everything"
UNCONFIRMED = f"To halt everything, type: {ALL_OF_IT}."

Scope = Literal["all", "tag", "agent", "version", "tool", "provider"]
Kind = Literal["halt", "quarantine", "starts"]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Names = Annotated[list[Name], Field(max_length=50)]
Share = Annotated[
    Decimal,
    Field(ge=0, lt=100, decimal_places=2, strict=False, description="Percentage of the runs, with two decimal places."),
]


class HaltBody(SteerBody):
    """Halt a scope: nothing starts in it until the halt is lifted. A quarantine halts a tool or an agent version,
    including new starts of that version. `starts` only halts new starts of an agent."""

    kind: Kind = Field(default="halt", description="halt, quarantine, or starts (new starts only).")
    scope: Scope = Field(description="Type of the scope.")
    key: Annotated[
        str, Field(max_length=300, description="The scope: a tag, an agent, name@version, a tool or a provider.")
    ] = ""
    refuse: bool = Field(False, description="With `starts`: refuse new starts (409) instead of keeping them waiting.")
    confirm: str = Field("", max_length=100, description=f"Required for the whole installation: {ALL_OF_IT!r}.")


class StageBody(SteerBody):
    """Lift a halt for some runs: a percentage, named agents, or tags. Replaces any earlier stage; with nothing given,
    the halt applies fully again."""

    share: Share | None = Field(default=None, description="Percentage of the runs that the halt lets through.")
    agents: Names | None = Field(default=None, description="Agents whose runs the halt lets through.")
    tags: Annotated[list[Tag], Field(max_length=50)] | None = Field(
        default=None, description="Tags whose runs the halt lets through."
    )
    revision: int | None = Field(
        None, ge=0, description="The halt's revision as you last read it; refused if the halt has changed since."
    )


class LiftBody(SteerBody):
    """Lift a halt completely."""

    revision: int | None = Field(
        None, ge=0, description="The halt's revision as you last read it; refused if the halt has changed since."
    )


log = logging.getLogger("durableagents.halts")

ACTIONS = ("halt", "halt_stage", "halt_whole", "halt_lift")
SCOPES_OF = {
    "halt": frozenset(Halt.Scope.values),
    "quarantine": frozenset({Halt.Scope.TOOL, Halt.Scope.VERSION}),
    "starts": frozenset({Halt.Scope.AGENT}),
}
# The server ends an intent's transaction after 5 seconds of silence, so a request that waits longer than that gets the
# lock.
PATIENCE_SECONDS, REST_SECONDS = 8.0, 0.05
_RING = f"SELECT set_config('synchronous_commit', 'off', true), pg_notify('{CHANNEL}', '{RING}')"


class HaltMoved(DurableAgentsError):
    """The halt was changed or lifted since the requester saw it."""

    status, code, title = 409, "halt-moved", "The halt has changed"


class AlreadyHalted(DurableAgentsError):
    """The same scope is already halted."""

    status, code, title = 409, "already-halted", "Already halted"


class IntentsUnderWay(DurableAgentsError):
    """Intents that were being written didn't finish in time."""

    status, code, title = 503, "intents-under-way", "Calls are still being recorded"

    def __init__(self) -> None:
        super().__init__(
            "Calls were still being recorded after 8 seconds, so the database may be overloaded. "
            "Nothing was done. Try again."
        )


class HaltNotAuthentic(DurableAgentsError):
    """The halt's rows were not all written by this installation."""

    status, code, title = 409, "halt-not-authentic", "The halt is not authentic"


def impose(reason: str, why: str, *, by: Actor) -> Halt:
    """Halt everything on behalf of the system, for the given reason; return the halt, even if it was already in force.

    `reason` is a code. This halt is independent of halts set by people, and operators lift it like any other. Raises
    IntentsUnderWay.
    """

    def halt() -> Halt:
        same = HaltNow.objects.filter(kind=Halt.Kind.HALT, scope=Halt.Scope.ALL, key=reason).first()
        if same is not None:
            return find(same.halt)
        return _write(_new("halt", "all", reason), "halt", by=by, why=why, before={})

    return _locked(halt)


def begin(body: HaltBody, *, by: Actor) -> Halt:
    """Halt a scope.

    Raises InvalidInput (naming the field), AlreadyHalted, Forbidden, JustificationRequired, IntentsUnderWay.
    """
    why = _authorize("halt", by, body.justification)
    if errors := _problems_in(body):
        field, problem = errors[0]["field"], errors[0]["problem"]
        detail = UNCONFIRMED if field == "confirm" else f"Invalid halt: {field} {problem}."
        raise InvalidInput(detail, errors=errors)

    def halt() -> Halt:
        _lock_out_starts(body.kind, body.scope, body.key)
        same = HaltNow.objects.filter(kind=body.kind, scope=body.scope, key=body.key).first()
        if same is not None:
            raise AlreadyHalted(
                f"{same.by} halted {scope_name(same.kind, same.scope, same.key)} at {same.since:%Y-%m-%d %H:%M} UTC."
            )
        return _write(_new(body.kind, body.scope, body.key, body.refuse), "halt", by=by, why=why, before={})

    return _locked(halt)


def stage(halt: UUID, body: StageBody, *, by: Actor) -> Halt:
    """Lift a halt for some runs, more or fewer than before; with nothing given it covers all runs again.

    Raises InvalidInput, HaltMoved, NotFound, Forbidden, JustificationRequired, IntentsUnderWay.
    """
    share = 0 if body.share is None else int(body.share * 100)
    agents, tags = sorted(set(body.agents or ())), sorted(set(body.tags or ()))
    is_whole = not (share or agents or tags)
    action = "halt_whole" if is_whole else "halt_stage"
    why = _authorize(action, by, body.justification)

    def lift_some() -> Halt:
        last = _last_revision(halt, body.revision)
        if (last.share, sorted(last.agents), sorted(last.tags)) == (share, agents, tags):
            raise HaltMoved(
                "The halt is already lifted to this extent." if not is_whole else "The halt already applies fully."
            )
        following = _next_revision(last, Halt.Stage.WHOLE if is_whole else Halt.Stage.STAGED, share, agents, tags)
        return _write(following, action, by=by, why=why, before=halt_values(last))

    return _locked(lift_some)


def lift(halt: UUID, body: LiftBody, *, by: Actor) -> Halt:
    """Lift a halt. Halted work continues within seconds. Raises the errors of `stage`."""
    why = _authorize("halt_lift", by, body.justification)

    def lift_all() -> Halt:
        last = _last_revision(halt, body.revision)
        following = _next_revision(last, Halt.Stage.LIFTED, 0, [], [])
        return _write(following, "halt_lift", by=by, why=why, before=halt_values(last))

    return _locked(lift_all)


def find(halt: UUID) -> Halt:
    """Return the last row of a halt's record. Raises NotFound."""
    last = Halt.objects.filter(halt=halt).order_by("-n").first()
    if last is None:
        raise NotFound("halt", halt)
    return last


def subject_of(halt: UUID) -> str:
    return f"halt {halt}"


def halt_values(halt: Halt) -> dict[str, Any]:
    """Return a halt's values for the record of an act."""
    return {
        "n": halt.n,
        "kind": str(halt.kind),
        "scope": str(halt.scope),
        "key": halt.key,
        "refuses": halt.refuses,
        "stage": str(halt.stage),
        "share": halt.share,
        "agents": list(halt.agents),
        "tags": list(halt.tags),
    }


def secret_of(halt: UUID, n: int) -> bytes:
    """Return the secret that the row after row `n` must contain as `opens`, derived from the installation's key."""
    return hmac.digest(code_key(), f"halt {halt} {n}".encode(), "sha256")


def lock_of(halt: UUID, n: int) -> bytes:
    return hashlib.sha256(secret_of(halt, n)).digest()


def _new(kind: str, scope: str, key: str, refuses: bool = False) -> Halt:
    fields: dict[str, Any] = {"kind": kind, "scope": scope, "key": key, "refuses": refuses}
    return Halt(halt=uuid4(), n=0, **fields, stage=Halt.Stage.WHOLE, share=0, agents=[], tags=[])


def _next_revision(last: Halt, to: str, share: int, agents: list[str], tags: list[str]) -> Halt:
    return Halt(
        halt=last.halt,
        n=last.n + 1,
        kind=last.kind,
        scope=last.scope,
        key=last.key,
        refuses=last.refuses,
        stage=to,
        share=share,
        agents=agents,
        tags=tags,
        opens=secret_of(last.halt, last.n),
    )


def _last_revision(halt: UUID, revision: int | None) -> Halt:
    last = find(halt)
    if last.lock is not None and bytes(last.lock) != lock_of(last.halt, last.n):
        raise HaltNotAuthentic(
            f"Row {last.n} of halt {halt} was written with another key, or outside the application. It is in force "
            "all the same; only the database's owner can remove it."
        )
    if last.stage == Halt.Stage.LIFTED:
        raise HaltMoved(f"The halt was already lifted by {last.by}.")
    if revision is not None and revision != last.n:
        raise HaltMoved(f"The halt was changed by {last.by} after you read it. Read it again.")
    _lock_out_starts(last.kind, last.scope, last.key)
    return last


def _write(halt: Halt, action: str, *, by: Actor, why: str, before: dict[str, Any]) -> Halt:
    halt.by, halt.why, halt.at = by.ref, why, database_now()
    halt.lock = None if halt.stage == Halt.Stage.LIFTED else lock_of(halt.halt, halt.n)
    halt.seal()
    halt.save(force_insert=True)
    acted(
        action,
        by=by,
        subject=subject_of(halt.halt),
        justification=why,
        before=before,
        after=halt_values(halt),
        is_systems=by.auth == "system",
    )
    transaction.on_commit(lambda: notify.notify_after_commit(connection, _RING))
    log.warning("%s: %s, by %s: %s", action, scope_name(halt.kind, halt.scope, halt.key), by.ref, why)
    return halt


def _lock_out_starts(kind: str, scope: str, key: str) -> None:
    """Block new starts of the agent and wait for those in progress, if the halt affects them. Raises StartsUnderWay."""
    if kind == Halt.Kind.STARTS or (kind == Halt.Kind.QUARANTINE and scope == Halt.Scope.VERSION):
        lock_out_starts(key.partition("@")[0])


def _locked(act: Any) -> Halt:
    """Run `act` under the exclusive halts lock. Raises IntentsUnderWay."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with transaction.atomic():
                with connection.cursor() as cursor:
                    cursor.execute("SELECT runs_halts_alone()")
                done: Halt = act()
                return done
        except OperationalError as error:
            if not isinstance(error.__cause__, LockNotAvailable):
                raise
            if time.monotonic() >= until:
                raise IntentsUnderWay from error
        time.sleep(REST_SECONDS)


def _authorize(action: str, by: Actor, justification: str) -> str:
    if by.role != OPERATOR and by.auth not in ("shell", "system"):
        raise Forbidden("Only an operator may halt anything, or lift a halt.")
    return justified(action, justification)


def _problems_in(body: HaltBody) -> list[dict[str, str]]:
    """Return the problem of an invalid halt: the field, what is wrong, and how to fix it."""
    wrong: list[tuple[str, str, str]] = []
    if body.scope not in SCOPES_OF[body.kind]:
        fix = f"one of {', '.join(sorted(SCOPES_OF[body.kind]))}"
        wrong.append(("scope", f"is not allowed for a {body.kind}", fix))
    if body.scope == Halt.Scope.ALL:
        if body.key:
            wrong.append(("key", "must be empty for the whole installation", "leave it empty"))
        if body.confirm.strip().lower() != ALL_OF_IT:
            wrong.append(("confirm", "does not confirm it", f"type {ALL_OF_IT}"))
    elif not body.key:
        wrong.append(("key", "is missing", f"the {body.scope}'s name"))
    elif body.key != body.key.strip() or any(c == "\n" or is_hidden(c) for c in body.key):
        wrong.append(("key", "holds invisible characters, or spaces around it", "plain text"))
    elif body.scope == Halt.Scope.VERSION and "@" not in body.key:
        wrong.append(("key", "is not a version", "such as vendor-onboard@1.0.0"))
    elif body.scope == Halt.Scope.AGENT and "@" in body.key:
        wrong.append(("key", "is a version", "the agent's name, or the scope version"))
    if body.refuse and body.kind != Halt.Kind.STARTS:
        wrong.append(("refuse", "requires kind starts", "leave it out"))
    return [{"field": field, "problem": problem, "fix": fix} for field, problem, fix in wrong]
