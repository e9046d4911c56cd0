"""Draws a light schedule's calls with special questions to people, each independently of everything else."""

from __future__ import annotations

import random

AT_A_TOOL = ("CP1", "CP2", "CP3", "CP4", "CP6")
Jobs = tuple[tuple[str, ...], ...]
Drawn = tuple[Jobs, tuple[str, ...], tuple[str, ...]]  # jobs, points, manners


def staged(seed: str, jobs: Jobs) -> tuple[Jobs, tuple[str, ...], Jobs]:
    """Draw a call that several people vote on, in every order, twice and at once; its worker dies in between."""
    dice = random.Random(f"light stages {seed}")
    jobs, points, is_drawn = _asked_with(dice, jobs, ("staged",), ("yes",))
    if not is_drawn:
        return jobs, (), ()
    bursts = []
    for _ in range(dice.randint(1, 5)):
        texts = [
            f"{dice.choice(('user', 'user', 'key'))}:{dice.randrange(4)}:"
            f"{dice.choice(('approve',) * 9 + ('abstain',) * 3 + ('reject',))}"
            for _ in range(dice.choice((1, 2, 2, 3, 5)))
        ]
        bursts.append((*texts, *texts[:1]) if dice.random() < 0.4 else tuple(texts))
    return jobs, points, tuple(bursts)


def late(seed: str, jobs: Jobs) -> Drawn:
    """Draw a call with little time, which escalates or waits on; its worker dies in between."""
    manners = ("early", "race", "race", "after", "after")
    return _asked_with(random.Random(f"light answers {seed}"), jobs, ("further", "further", "patient"), manners)


def changed(seed: str, jobs: Jobs) -> Drawn:
    """Draw a call that people change before they approve, several at once; its worker dies in between."""
    manners = ("plain", "change", "change", "race", "ask", "hand", "hand")
    return _asked_with(random.Random(f"light changes {seed}"), jobs, ("changed",), manners)


def granted(seed: str, jobs: Jobs) -> Drawn:
    """Draw the same call several times in a row, with standing approvals given and revoked."""
    manners = ("allow", "allow", "wait", "wait", "race", "revoke", "plain")
    return _asked_with(random.Random(f"light grants {seed}"), jobs, ("again",), manners, (2, 3, 4), words=6)


def _asked_with(
    dice: random.Random,
    jobs: Jobs,
    calls: tuple[str, ...],
    manners: tuple[str, ...],
    times: tuple[int, ...] = (1, 1, 2),
    words: int = 3,
) -> Drawn:
    if dice.random() < 0.75:
        return jobs, (), ()
    n = dice.randrange(len(jobs))
    at = dice.randint(0, len(jobs[n]))
    steps = tuple(dice.choice(calls) for _ in range(dice.choice(times)))
    job = (*jobs[n][:at], *steps, *jobs[n][at:])
    points = [
        f"{dice.choice(('CP8', 'CP9', 'CP10', 'CP5', 'CP7'))}:kill:{dice.randint(1, 6)}"
        if dice.random() < 0.5
        else f"{dice.choice(AT_A_TOOL)}@{dice.choice(steps)}:kill:{dice.choice((1, 1, 2))}"
        for _ in range(dice.choice((0, 1, 1, 2)))
    ]
    items = tuple(dice.choice(manners) for _ in range(words))
    return (*jobs[:n], job, *jobs[n + 1 :]), tuple(points), items
