"""A lane's worker processes: forked, read over pipes, stopped, resumed, and reaped."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from runs.fleet import members
from tests.system.crash.light.child import DRAIN, RING, Ends, live
from tests.system.crash.light.plan import Schedule


@dataclass
class Member:
    """One incarnation. `is_stopped`: by SIGSTOP, so it will be believed dead."""

    pid: int
    id: UUID
    hears: int
    says: int
    backends: list[int] = field(default_factory=list)
    is_stopped: bool = False
    is_declared_dead: bool = False
    is_leaving: bool = False
    rest: bytes = b""

    def tell(self, what: bytes) -> None:
        try:
            os.write(self.hears, what)
        except BrokenPipeError:
            pass  # it died meanwhile, as its pid will show

    def words(self) -> list[list[str]]:
        try:
            self.rest += os.read(self.says, 65536)
        except BlockingIOError:
            return []
        *lines, self.rest = self.rest.split(b"\n")
        return [line.decode().split() for line in lines]

    def signal(self, signum: int) -> None:
        os.kill(self.pid, signum)

    def close(self) -> None:
        os.close(self.hears)
        os.close(self.says)


class Crew:
    """All incarnations of one schedule that have not been reaped."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.members: list[Member] = []

    def at_work(self) -> list[Member]:
        return [m for m in self.members if not (m.is_stopped or m.is_declared_dead or m.is_leaving)]

    def hire(self) -> Member:
        """Fork a worker and register it before it can claim anything."""
        (ours_heard, says), (hears, ours_said) = os.pipe(), os.pipe()
        parent, (found, go) = os.getpid(), os.pipe()
        pid = os.fork()
        if pid == 0:
            for end in (ours_heard, ours_said, go):
                os.close(end)
            os.read(found, 1)  # until it is registered
            identity = members.identify(os.getpid())
            assert identity is not None
            live(self._schedule, Ends(hears, says), members.incarnation_id(identity), parent)
        for end in (hears, says, found):
            os.close(end)
        os.set_blocking(ours_heard, False)
        identity = members.identify(pid)
        assert identity is not None
        while not members.beat_all([members.Sign("worker", identity)]):
            pass  # the database is restarting
        os.close(go)
        member = Member(pid, members.incarnation_id(identity), ours_said, ours_heard)
        self.members.append(member)
        return member

    def ring(self) -> None:
        for member in self.at_work():
            member.tell(RING)

    def drain(self, member: Member) -> None:
        member.is_leaving = True
        member.tell(DRAIN)

    def wake(self, zombie: Member) -> None:
        """Let a stopped worker continue; it finishes its current work and claims nothing more."""
        zombie.is_stopped, zombie.is_leaving = False, True
        zombie.tell(DRAIN)
        zombie.signal(signal.SIGCONT)

    def look(self) -> list[tuple[Member, int]]:
        """Reap the dead and return them with their exit status; note stopped ones."""
        dead: list[tuple[Member, int]] = []
        for member in list(self.members):
            pid, status = os.waitpid(member.pid, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                continue
            if os.WIFSTOPPED(status):
                member.is_stopped = True
                continue
            self.members.remove(member)
            dead.append((member, status))
        return dead

    def dismiss(self) -> None:
        for member in self.members:
            member.signal(signal.SIGKILL)
            os.waitpid(member.pid, 0)
            member.close()
            members.bury(member.id)
        self.members.clear()


def is_killed(status: int) -> bool:
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def describe(status: Any) -> str:
    return (
        f"reaped: signal {os.WTERMSIG(status)}"
        if os.WIFSIGNALED(status)
        else f"reaped: exit {os.waitstatus_to_exitcode(status)}"
    )
