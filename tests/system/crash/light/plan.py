"""A light schedule, drawn entirely from its seed: runs, crash points, faults, and people's actions."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Literal

from runs.failpoints import POINTS
from tests.system.crash.forked import AGAIN, FORK, NO, ON_RECORD, START_AGAIN
from tests.system.crash.handed import requeued
from tests.system.crash.light import asking
from tests.system.crash.light.asking import AT_A_TOOL, Jobs
from tests.system.crash.policed import MANNERS, PROOFS
from tests.system.crash.steps import BUDGETS, EFFECTS, FAMILIES, GATHERED, OF, POOLS, READS, SHARING, THOUGHTS, UNDONE

CALLS = (
    "pure",
    "keyed",
    "hooked",
    "gated",
    "brief",
    "later",
    "unsafe",
    "unsafe_gated",
    "unsafe_hooked",
    "clerk",
    *THOUGHTS,
    *GATHERED,
    *FAMILIES,
    "signal",
    "question",
    "message",
)
FREE = ("hop", "values", "sleep")

# The acts at an event of a run, with their weights.
ACTS = {"kill": 8, "freeze": 4, "cut": 5, "drain": 3, "pause": 4, "cancel": 3, "sandbox": 1, "postgres": 1}
RACES = (
    ("approve", "approve"),
    ("approve", "reject"),
    ("approve", "cancel"),
    ("approve", "expire"),
    ("approve", "approve", "reject", "cancel"),
)
LIMITS = (
    {"at_once": 1},
    {"at_once": 2, "per_minute": 600, "burst": 1},
    {"breaker": 20, "rest": 1},
    {"at_once": 1, "breaker": 50, "rest": 1},
    {"per_minute": 1200, "at_once": 1, "breaker": 20, "rest": 1},
)
Loss = Literal["question", "answer"]


@dataclass(frozen=True)
class Act:
    """Done when a run's journal reaches an event; a cut, pause or kill hits whatever the worker does then."""

    what: str
    run: int
    event: int


@dataclass(frozen=True)
class Beginning:
    """A fork or restart at a visit (or the last), after the run's end or, with `event`, when its journal reaches that.

    `words`: people's answers, in turn. `audit`: their verdicts before a restart. `points`: crash points armed then.
    `is_elsewhere`: under the other version. `cut_seconds`: when the connection is lost after the request; 0: never.
    """

    how: str
    run: int
    visit: int = 1
    event: int = 0
    words: tuple[str, ...] = (AGAIN,)
    audit: str = "happened"
    points: tuple[str, ...] = ()
    is_elsewhere: bool = False
    cut_seconds: float = 0


@dataclass(frozen=True)
class Halting:
    """A halt set when the first run's journal reaches an event: of its tag, its version, a tool or a provider.

    It holds for some seconds, then for each of `shares` (0: full again), and is then lifted. `is_waited_for`: not
    before all workers have confirmed it.
    """

    event: int
    scope: str
    key: str
    seconds: float
    shares: tuple[int, ...] = ()
    is_waited_for: bool = False


@dataclass(frozen=True)
class Schedule:
    """Everything about a light schedule.

    `points`: as in runs/failpoints.py, `{0}` is the first run's id. `losses`: the n-th round trips, by connection and
    process, whose question or answer is lost. `skew_days`: the error of the workers' clocks. `budget`: per run, until
    people raise it. `talks`: a message for each wait. `pools`, `sharing`: shared budgets, and what people do when one
    is used up. `limits`: per tool, in this schedule alone. `ramp`: bursts of acts and starts by name (light/ramps.py).
    `moves`: migrations, as soon as possible. `policies`: at which event of the first run a policy on `policed` (empty:
    all tools) requires an approval, allows, or is retired. `proofs`: what each approval must show; `manners`: how
    people approve first (light/shown.py). `forks`: acts and moves count these after `jobs`. `words`: votes at once
    (light/votes.py). `answers`, `changes`, `grants`: manners of light/asked.py, light/changing.py, light/granting.py.
    `halts`: light/halting.py.
    """

    seed: str
    jobs: Jobs
    points: tuple[str, ...] = ()
    acts: tuple[Act, ...] = ()
    losses: tuple[tuple[int, Loss], ...] = ()
    race: tuple[str, ...] = ()
    callbacks: str = "plain"
    tells_early: bool = False
    workers: int = 1
    skew_days: int = 0
    is_impatient: bool = False
    keeps_house: bool = False
    is_watched: bool = False
    sandbox: dict[str, Any] = field(default_factory=dict)
    budget: dict[str, Any] = field(default_factory=dict)
    talks: bool = False
    pools: tuple[tuple[str, Any], ...] = ()
    sharing: str = "raise"
    limits: dict[str, int] = field(default_factory=dict)
    ramp: Jobs = ()
    moves: tuple[Act, ...] = ()
    forks: tuple[Beginning, ...] = ()
    policed: str = ""
    policies: tuple[tuple[int, str], ...] = ()
    proofs: tuple[str, ...] = ()
    manners: tuple[str, ...] = ()
    words: Jobs = ()
    answers: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    halts: tuple[Halting, ...] = ()

    @property
    def has_zombies(self) -> bool:
        """Return whether a living worker will be believed dead."""
        return _stops_somebody(self.points, self.acts)

    def __str__(self) -> str:
        items = [f"schedule {self.seed}", *(f"  run {n}: {' '.join(job)}" for n, job in enumerate(self.jobs))]
        given = {name: value for name, value in vars(self).items() if name not in ("seed", "jobs", "acts") and value}
        items += [f"  {name}: {value}" for name, value in given.items()]
        items += [f"  {act.what} at event {act.event} of run {act.run}" for act in self.acts]
        return "\n".join(items)


def draw(seed: str) -> Schedule:
    dice = random.Random(f"light {seed}")
    jobs = tuple(_job(dice) for _ in range(dice.choice((1, 1, 1, 1, 2, 3))))
    points, acts = _points(dice, jobs), _acts(dice, jobs)
    acts = (*acts, *(Act("requeue", n, at) for n, at in requeued(seed, [len(job) for job in jobs])))
    if _stops_somebody(points, acts):
        # A wrongly suspected worker may still send, which no hook can see. Where a person is asked, they wait for it.
        instead = {"unsafe_hooked": "unsafe", "quartet": "trio"}
        jobs = tuple(tuple(instead.get(step, step) for step in job) for job in jobs)
    jobs, points = _undone(seed, jobs, points, has_zombies=_stops_somebody(points, acts))
    jobs, struck = _regretted(seed, jobs)
    jobs, at_votes, words = asking.staged(seed, jobs)
    jobs, at_answers, answers = asking.late(seed, jobs)
    jobs, at_changes, changes = asking.changed(seed, jobs)
    jobs, at_grants, grants = asking.granted(seed, jobs)
    ramp, more = _ramp(seed)
    moves = _moves(seed, jobs)
    forks, later, moved = _forks(seed, jobs := _with_visits(seed, jobs))
    return Schedule(
        seed,
        jobs,
        (*points, *more, *struck, *at_votes, *at_answers, *at_changes, *at_grants),
        (*acts, *later),
        _losses(dice),
        race=dice.choice(RACES) if dice.random() < 0.25 else (),
        callbacks=dice.choice(("plain", "plain", "twice", "forged", "late")),
        tells_early=dice.random() < 0.3,
        workers=dice.choice((1, 1, 1, 2)),
        skew_days=dice.choice((0, 0, 0, 0, -1, 1)),
        is_impatient=dice.random() < 0.5,
        keeps_house=dice.random() < 0.15,
        is_watched=dice.random() < 0.2,
        sandbox=_sandbox(dice),
        budget=dice.choice(BUDGETS) if dice.random() < 0.35 else {},
        talks=dice.random() < 0.4,
        **_shared(seed),
        limits=dice.choice(LIMITS) if dice.random() < 0.3 else {},
        ramp=ramp,
        moves=(*moves, *moved),
        forks=forks,
        **_policies(
            seed, jobs, is_plain=not (forks or moves or moved)
        ),  # an approval by a policy doesn't count for the other version
        words=words,
        answers=answers,
        changes=changes,
        grants=grants,
        halts=_halts(seed, jobs, is_plain=not (forks or moves or moved)),
    )


# Steps whose calls nobody may deny: their node or model could not continue.
_MUST_BE = {"ponder", "aide", *FAMILIES, *UNDONE}


def _with_visits(seed: str, jobs: Jobs) -> Jobs:
    """Add a visit to half of the jobs where something is forked, for a later point to begin at."""
    dice = random.Random(f"light fork visits {seed}")
    if not _forks(seed, jobs)[0]:
        return jobs
    places = [dice.randint(0, len(job)) if dice.random() < 0.5 else None for job in jobs]
    return tuple(job if at is None else (*job[:at], "hop", *job[at:]) for job, at in zip(jobs, places, strict=True))


def _forks(seed: str, jobs: Jobs) -> tuple[tuple[Beginning, ...], tuple[Act, ...], tuple[Act, ...]]:
    """Draw forks, the acts on them and their migrations, independently of the rest."""
    dice, cuts = random.Random(f"light forks {seed}"), random.Random(f"light fork cuts {seed}")
    if dice.random() < 0.72:
        return (), (), ()
    drawn: list[Beginning] = []
    acts: list[Act] = []
    moves: list[Act] = []
    for _ in range(dice.choice((1, 1, 1, 2))):
        n = dice.randrange(len(jobs))
        how, steps = dice.choice((FORK,) * 8 + (START_AGAIN,) * 2), set(jobs[n])
        words = tuple(dice.choice((AGAIN, AGAIN, ON_RECORD, NO)) for _ in range(3))
        words = tuple(AGAIN if word == NO and steps & _MUST_BE else word for word in words)
        event = dice.randint(2, 4 + 3 * len(jobs[n])) if dice.random() < 0.3 and how != START_AGAIN else 0
        points = tuple(
            f"{'+' if k else ''}{dice.choice(POINTS)}:kill:{dice.choice((1, 1, 2, 3))}"
            for k in range(dice.choice((0, 1, 1, 2)))
        )
        visit = dice.choice((1, *range(1, jobs[n].count("hop") + 2)))
        drawn.append(
            Beginning(
                how,
                n,
                visit,
                event,
                words,
                dice.choice(("happened", "happened", "unknown")),
                points,
                is_elsewhere=dice.random() < 0.2,
                cut_seconds=cuts.choice((0, 0, 0.005, 0.02, 0.04, 0.06)),
            )
        )
        ours = len(jobs) + len(drawn) - 1
        if dice.random() < 0.5:
            what = dice.choice(("kill", "kill", "cut", "drain", "pause", "cancel"))
            acts.append(Act(what, ours, dice.randint(2, 4 + 3 * len(jobs[n]))))
        if dice.random() < 0.25:
            moves.append(Act("move", ours, dice.randint(2, 4 + 3 * len(jobs[n]))))
    return tuple(drawn), tuple(acts), tuple(moves)


def _policies(seed: str, jobs: Jobs, *, is_plain: bool) -> dict[str, Any]:
    """Draw a policy that requires approvals of running calls and is relaxed again."""
    dice = random.Random(f"light policies {seed}")
    if dice.random() < 0.7 or not is_plain:
        return {}
    events = sorted(dice.randint(0, 4 + 3 * len(jobs[0])) for _ in range(dice.choice((1, 2, 2, 3, 4))))
    acts = [dice.choice(("require", "require", "allow", "retire")) for _ in events]
    tools = sorted({step for job in jobs for step in job} & {*EFFECTS, "pure"} - {*THOUGHTS, "clerk"})
    drawn = {"policed": dice.choice(("", *tools)), "policies": tuple(zip(events, acts, strict=True))}
    dice = random.Random(f"proofs {seed}")
    if dice.random() < 0.4:
        return drawn
    manners = tuple(dice.choice(tuple(MANNERS)) for _ in range(dice.randint(0, 4)))
    return drawn | {"proofs": tuple(dice.choice(PROOFS) for _ in events), "manners": manners}


def _halts(seed: str, jobs: Jobs, *, is_plain: bool) -> tuple[Halting, ...]:
    """Draw halts that are set and lifted, at once or in stages, while runs are under way."""
    dice = random.Random(f"halts {seed}")
    if dice.random() < 0.65:
        return ()
    steps = {each for job in jobs for step in job for each in GATHERED.get(step, (step,))}
    tools = sorted(({OF.get(step, step) for step in steps} & {*EFFECTS, *READS}) - {*THOUGHTS, "clerk"})
    thinks = bool(steps & {*THOUGHTS, "clerk"})
    scopes = ["tag"] * 3 + ["version"] * 2 * is_plain + ["tool"] * 3 * bool(tools) + ["provider"] * 2 * thinks
    drawn: list[Halting] = []
    for _ in range(dice.choice((1, 1, 2, 3))):
        scope = dice.choice(scopes)
        key = {"tool": dice.choice(tools or [""]), "provider": "scripted"}.get(scope, "")
        shares = dice.choice(((), (), (), (50,), (50, 0), (30, 70))) if scope in ("tag", "version") else ()
        drawn.append(
            Halting(
                dice.randint(0, 4 + 3 * len(jobs[0])),
                scope,
                key,
                dice.choice((0, 0.05, 0.2, 0.4, 1.0)),
                shares,
                is_waited_for=dice.random() < 0.6,
            )
        )
    return tuple(drawn)


def _moves(seed: str, jobs: Jobs) -> tuple[Act, ...]:
    """Draw migrations to another version and back while runs are under way."""
    dice = random.Random(f"light moves {seed}")
    if dice.random() < 0.7:
        return ()
    runs = [dice.randrange(len(jobs)) for _ in range(dice.choice((1, 1, 2, 3)))]
    return tuple(Act("move", n, dice.randint(1, 4 + 3 * len(jobs[n]))) for n in runs)


def _ramp(seed: str) -> tuple[Jobs, tuple[str, ...]]:
    """Draw starts by name while people move a ramp and workers crash."""
    dice = random.Random(f"light ramp {seed}")
    if dice.random() < 0.8:
        return (), ()
    bursts = [(f"begin:{dice.choice((1, 30, 60))}", "start:a")]
    for _ in range(dice.randint(2, 4)):
        act = dice.choice(("raise:50", "raise:80", "raise:100", "rollback", "rollback", "finish", "begin:50"))
        cut = dice.choice(((), (), ("cut:0.002",), ("cut:0.006",)))
        bursts.append((*(f"start:{dice.choice('abcd')}" for _ in range(dice.choice((1, 2, 3)))), act, *cut))
    points = [f"{dice.choice(AT_A_TOOL)}@keyed:kill:{dice.choice((1, 2, 3))}" for _ in range(dice.choice((0, 1, 1)))]
    return tuple(bursts), tuple(points)


def _undone(seed: str, jobs: Jobs, points: tuple[str, ...], *, has_zombies: bool) -> tuple[Jobs, tuple[str, ...]]:
    """Draw a child that fails, undoes its effects, and is killed meanwhile."""
    dice = random.Random(f"light undo {seed}")
    if dice.random() < 0.7:
        return jobs, points
    step, at = dice.choice(("undone", "undone_mailed")), dice.randint(0, len(jobs[0]))
    first = (*jobs[0][:at], "undone" if has_zombies else step, *jobs[0][at:])
    tools = ("booked", "bought", "unbooked", "refunded", *(("mailed", "unmailed") if first[at] != "undone" else ()))
    more = [
        f"{dice.choice(AT_A_TOOL)}@{dice.choice(tools)}:kill:{dice.choice((1, 1, 2))}"
        for _ in range(dice.choice((0, 1, 1, 2)))
    ]
    return (first, *jobs[1:]), (*points, *more)


def _regretted(seed: str, jobs: Jobs) -> tuple[Jobs, tuple[str, ...]]:
    """Draw a child that fails after its own child has completed, which is reopened."""
    dice = random.Random(f"light reopened {seed}")
    if dice.random() < 0.85:
        return jobs, ()
    n = dice.randrange(len(jobs))
    at = dice.randint(0, len(jobs[n]))
    job = (*jobs[n][:at], "regretted", *jobs[n][at:])
    tools = ("booked", "bought", "unbooked", "refunded")
    points = [
        f"{dice.choice((*AT_A_TOOL, 'CP5', 'CP7', 'CP8', 'CP9', 'CP10'))}:kill:{dice.randint(1, 12)}"
        if dice.random() < 0.3
        else f"{dice.choice(AT_A_TOOL)}@{dice.choice(tools)}:kill:{dice.choice((1, 1, 2))}"
        for _ in range(dice.choice((0, 1, 1, 2)))
    ]
    return (*jobs[:n], job, *jobs[n + 1 :]), tuple(points)


def _shared(seed: str) -> dict[str, Any]:
    """Draw shared budgets independently, so that earlier schedules stay the same."""
    dice = random.Random(f"light pools {seed}")
    if dice.random() < 0.6:
        return {}
    drawn = dict(dice.choice(POOLS) for _ in range(dice.choice((1, 1, 2, 3))))
    return {"pools": tuple(drawn.items()), "sharing": dice.choice(SHARING)}


def _stops_somebody(points: tuple[str, ...], acts: tuple[Act, ...]) -> bool:
    return any(":stop:" in point for point in points) or any(act.what in ("freeze", "requeue") for act in acts)


def _job(dice: random.Random) -> tuple[str, ...]:
    calls = [dice.choice(CALLS) for _ in range(dice.randint(1, 4))]
    return tuple(step for call in calls for step in ((call, dice.choice(FREE)) if dice.random() < 0.25 else (call,)))


def _points(dice: random.Random, jobs: Jobs) -> tuple[str, ...]:
    """Draw up to three crash points; later ones strike anywhere, or after the one before: a crash during recovery."""
    drawn: list[str] = []
    for _ in range(dice.choice((0, 1, 1, 1, 2, 2, 3))):
        n = dice.randrange(len(jobs))
        calls = [step for step in jobs[n] if (step in EFFECTS and step not in THOUGHTS) or step == "pure"]
        point, tool = dice.choice(POINTS), dice.choice(["", *calls])
        at = f"@{tool}" if tool and point in AT_A_TOOL else ""
        then = "+" if drawn and dice.random() < 0.7 else ""
        act = dice.choice(("kill",) * 9 + ("stop",) * 2 + ("raise",))
        whose = "" if FAMILIES.keys() & set(jobs[n]) and dice.random() < 0.6 else f"/{{{n}}}"  # of any run: a child's
        drawn.append(f"{then}{point}{at}{whose}:{act}:{dice.choice((1, 1, 1, 2, 3))}")
    return tuple(drawn)


def _acts(dice: random.Random, jobs: Jobs) -> tuple[Act, ...]:
    drawn: list[Act] = []
    for _ in range(dice.choice((0, 0, 1, 1, 2))):
        [what] = dice.choices(list(ACTS), weights=list(ACTS.values()))
        if what in ("sandbox", "postgres") and dice.random() < 0.9:
            what = "cut"  # a restart costs seconds, and hits every lane
        n = dice.randrange(len(jobs))
        drawn.append(Act(what, n, dice.randint(1, 4 + 3 * len(jobs[n]))))
    return tuple(drawn)


def _losses(dice: random.Random) -> tuple[tuple[int, Loss], ...]:
    if dice.random() < 0.7:
        return ()
    drawn = sorted({dice.randint(2, 24) for _ in range(dice.randint(1, 3))})
    return tuple((n, dice.choice(("question", "answer", "answer"))) for n in drawn)


def _sandbox(dice: random.Random) -> dict[str, Any]:
    if dice.random() < 0.8:
        return {}
    return {
        "latency_ms": dice.choice((0, 10, 60)),
        "error_rate": dice.choice((0, 0, 0.2)),
        "drop_after_execute_rate": dice.choice((0, 0.3)),
        "w9_delay_seconds": 0,
    }
