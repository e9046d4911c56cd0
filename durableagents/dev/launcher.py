"""Start everything of an installation in order (`make up`), keep it alive, and drain it in reverse order."""

# The order is: lock → end the processes of a killed `up` → ports → PostgreSQL → migrate → companion → web → workers.
# The companion is an additional process with data of its own (the demo's sandbox). One thread runs one loop; signals
# and deaths of children wake it (through a byte in a pipe).

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from django.apps import apps

from durableagents import databases
from durableagents.checks import check_keys
from durableagents.dev.embedded import Server
from durableagents.dev.embedded_layout import EmbeddedProblem, instance_id
from durableagents.dev.restart import Restart
from durableagents.env import CHECKOUT, Environment, EnvironmentProblem, ensure_directory, replace_private
from durableagents.server import child_processes
from durableagents.server.serve import answers_ready, listen


class Alone:
    """No companion, as in an installation without the demo."""

    name = "none"
    drain_seconds = 0.0

    def __init__(self, environment: Environment) -> None:
        self._env = environment
        self.argv: list[str] = []
        self.ports: dict[str, int] = {}
        self.environment = {"DURABLEAGENTS_DEMO": "0"}
        self.greeting = f"  console  {environment.base_url}\n"

    def prepare(self) -> None:
        """Prepare the greeting. Called once the database is migrated."""
        from runs import features

        for line in features.parts_of_all(lambda each: each.greetings):
            self.greeting += f"  {line(self._env)}\n"


# One Ctrl-C may be delivered twice (by the terminal and by a forwarding parent). Within this time, two signals count as
# one.
SECOND_CTRL_C_AFTER_SECONDS = 0.3


class Stopped(Exception):
    """A signal asked the launcher to drain."""


class StoppedAtOnce(Exception):
    """A second Ctrl-C asked the launcher to stop without draining."""


class Signals:
    """Turn INT, TERM and HUP into exceptions at waiting points, never within a step."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._hurry = False
        self._draining = False
        self._is_restart_requested = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def install(self) -> None:
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self._note)
        # A process started with nohup must survive a hang-up.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._note)
        signal.signal(signal.SIGUSR1, self._note_restart)
        # The handler does nothing; installing one makes the wake-up descriptor report a child's death at once.
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _note(self, signum: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now
        elif signum == signal.SIGINT and now - self._first > SECOND_CTRL_C_AFTER_SECONDS:
            self._hurry = True

    def _note_restart(self, *_: object) -> None:
        self._is_restart_requested = True

    def take_restart(self) -> bool:
        """Return whether a restart was requested since the last call, and clear the request."""
        requested, self._is_restart_requested = self._is_restart_requested, False
        return requested

    def start_draining(self) -> None:
        self._draining = True

    def idle(self, seconds: float) -> None:
        """Sleep until the timeout, the death of a child or a signal. Raises Stopped, then StoppedAtOnce."""
        self._raise_if_requested()
        select.select([self._read], [], [], seconds)
        try:
            while os.read(self._read, 512):
                pass
        except BlockingIOError:
            pass
        self._raise_if_requested()

    def _raise_if_requested(self) -> None:
        if self._hurry:
            raise StoppedAtOnce
        if self._first is not None and not self._draining:
            raise Stopped


# Together these stay below the 20 seconds that `up` has. The supervisor gives workers STEP_SECONDS to finish and needs
# two more seconds to end the rest.
STEP_SECONDS = 10
DRAIN_SECONDS = {"supervisor": STEP_SECONDS + 2.5, "web": 2.5, "postgres": 2.5}
BEAT_SECONDS = 5.0
STRAY_PATIENCE_SECONDS = 8.0


class Companion(Protocol):
    """A companion process; none if `argv` is empty.

    `ports` maps variables to ports. `greeting` is printed once everything is up, and `environment` is passed to every
    process.
    """

    name: str
    argv: list[str]
    drain_seconds: float
    ports: dict[str, int]
    greeting: str
    environment: dict[str, str]

    def prepare(self) -> None: ...


class Launcher:
    """One run of `make up`, from taking the lock to the end of the last process."""

    def __init__(
        self,
        environment: Environment,
        companion: Companion,
        *,
        before_serving: Callable[[], None] | None = None,
        notice: Callable[[], str] | None = None,
    ) -> None:
        """Prepare a launcher.

        `before_serving` is called after the database was migrated and before web and workers start. `notice` is called
        once everything is up and returns lines to print then.
        """
        self.env = environment
        self._before_serving = before_serving
        self._notice = notice
        self.companion = companion
        self.data = environment.data
        self.mark = instance_id(self.data)
        self.signals = Signals()
        self.server: Server | None = None
        self.children: list[child_processes.Child] = []
        self.door: socket.socket | None = None
        self.renewals = child_processes.Lines()
        self._restart: Restart | None = None
        self._family_file = self.data / "up.json"
        self._family: dict[int, float] = {}
        self._next_beat = 0.0
        self._is_announced = False
        self._started = time.monotonic()

    def run(self) -> int:
        """Start everything, run until stopped and return the exit code. Raises EnvironmentProblem."""
        lock = self._lock()
        self.signals.install()
        try:
            self._start()
            while True:
                self._tend()
                self.signals.idle(0.5 if self._is_announced and self._restart is None else 0.2)
        except Stopped:
            return self._drain()
        except StoppedAtOnce:
            return self._stop_at_once()
        except BaseException:
            self._stop_at_once()
            raise
        finally:
            os.close(lock)

    # --- starting -----------------------------------------------------------------------------

    def _lock(self) -> int:
        ensure_directory(self.data)
        path = self.data / "up.lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise EnvironmentProblem(f"cannot write {path}: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise EnvironmentProblem(
                f"already running on {self.data} (set DURABLEAGENTS_DATA and the ports for a second one)"
            ) from None
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        return descriptor

    def _start(self) -> None:
        child_processes.end_strays(
            self.mark,
            self._remembered(),
            patience_seconds=STRAY_PATIENCE_SECONDS,
            idle=self.signals.idle,
        )
        self._check_ports()
        self._begin("starting PostgreSQL" if self.env.database_url is None else "connecting to PostgreSQL")
        self._start_database()
        self._begin("migrating the database")
        self._migrate()
        check_keys()  # needs the database
        for config in apps.get_app_configs():
            getattr(config, "make_keys", lambda: None)()
        if self.companion.argv:
            self._begin("creating demo users")
        self.companion.prepare()
        if self._before_serving is not None:
            self._before_serving()
        self._begin("starting web, workers and sandbox" if self.companion.argv else "starting web and workers")
        if self.companion.argv:
            self._add(self.companion.name, self.companion.argv, self.companion.drain_seconds)
        # This process keeps the socket until it ends: while the web process restarts, clients wait in its queue instead
        # of being refused.
        self.door = listen("127.0.0.1", self.env.port)
        self.children.append(self.new_web())
        self.children[-1].start()
        report = self.renewals.theirs
        argv = [sys.executable, "manage.py", "worker", f"--report-fd={report}"]
        self._add("supervisor", argv, DRAIN_SECONDS["supervisor"], pass_fds=[report])

    def new_web(self) -> child_processes.Child:
        """Return an unstarted web process on our listening socket."""
        assert self.door is not None
        return child_processes.Child(
            "web",
            [sys.executable, "manage.py", "web", f"--fd={self.door.fileno()}"],
            env=self._child_env(),
            log=self.data / "logs" / "web.log",
            cwd=CHECKOUT,
            drain_seconds=DRAIN_SECONDS["web"],
            pass_fds=[self.door.fileno()],
            stop_signal=signal.SIGINT,
        )

    def _check_ports(self) -> None:
        for variable, port in {"PORT": self.env.port, **self.companion.ports}.items():
            try:
                listen("127.0.0.1", port).close()
            except OSError as error:
                raise EnvironmentProblem(
                    f"port {port} cannot be used: {(error.strerror or str(error)).lower()}"
                    f" (set {variable} to a free one)"
                ) from None

    def _start_database(self) -> None:
        if self.env.database_url is None:
            self.server = Server(self.data)
            self.server.prepare()
            self.server.start(self.signals.idle)
            databases.point_django_at(databases.django_databases(self.env))
            return
        if self.env.database_owner_url is None:
            self._warn(
                "DATABASE_URL's role migrates and runs: it owns the tables, so nothing in the database"
                " keeps the application from rewriting its records (set DATABASE_OWNER_URL)"
            )
        databases.check_server()

    def begin_migration(self) -> tuple[subprocess.Popen[bytes], Path]:
        """Start `migrate` with the code on disk; return its process and its log."""
        env = {**self._child_env(), "DURABLEAGENTS_DB_ROLE": "owner"}
        log = self.data / "logs" / "migrate.log"
        child_processes.shorten_log(log)
        argv = [sys.executable, "manage.py", "migrate", "--noinput", "--verbosity=1"]
        return child_processes.spawn(argv, env=env, log=log, cwd=CHECKOUT, death_signal=signal.SIGTERM), log

    def _migrate(self) -> None:
        process, log = self.begin_migration()
        try:
            while process.poll() is None:
                self.signals.idle(0.2)
        except (Stopped, StoppedAtOnce):
            # Each migration is one transaction, so an uncommitted one has no effect.
            process.kill()
            process.wait()
            raise
        if process.returncode:
            raise EnvironmentProblem(f"migrate failed: {child_processes.last_line(log)}; see {log}")

    def _child_env(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "DURABLEAGENTS_DATA": str(self.data),
            **self.companion.environment,
            "DURABLEAGENTS_DRAIN_SECONDS": str(STEP_SECONDS),
            "PORT": str(self.env.port),
            **{variable: str(port) for variable, port in self.companion.ports.items()},
            child_processes.MARKER: self.mark,
        }

    def _add(self, name: str, argv: list[str], drain_seconds: float, *, pass_fds: Sequence[int] = ()) -> None:
        child = child_processes.Child(
            name,
            argv,
            env=self._child_env(),
            log=self.data / "logs" / f"{name}.log",
            cwd=CHECKOUT,
            drain_seconds=drain_seconds,
            pass_fds=pass_fds,
        )
        child.start()
        self.children.append(child)

    # --- keeping alive ------------------------------------------------------------------------

    def _tend(self) -> None:
        self._tend_children()
        self._tend_database()
        self._tend_restart()
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + BEAT_SECONDS
            self._remember()
            self._beat()
            for child in self.children:
                child_processes.shorten_log(child.log)
        if not self._is_announced:
            self._announce_when_ready()

    def _tend_children(self) -> None:
        for child in self.children:
            pid = child.pid
            if how := child.ended():
                last = "" if how.startswith("signal") else f": {child_processes.last_line(child.log)}"
                self._warn(f"{child.name} (pid {pid}) ended with {how}{last}; starting it again")
                if child.name == self.companion.name and pid:
                    self._forget(child.name, pid)
            if child.is_due():
                child.start()

    def _tend_restart(self) -> None:
        """Begin a requested restart once everything is up, and advance it."""
        if self._is_announced and self._restart is None and self.signals.take_restart():
            self._restart = Restart(self)
        if self._restart is not None and self._restart.has_ended():
            self._restart = None

    def _tend_database(self) -> None:
        server = self.server
        if server is None or (server.process and server.process.poll() is None):
            return
        if server.process:
            how = child_processes.how_it_ended(server.process.returncode)
            self._warn(f"postgres (pid {server.process.pid}) ended with {how}; starting it again")
        gone = server.process.pid if server.process else None

        def meanwhile(seconds: float) -> None:
            self._tend_children()
            self.signals.idle(seconds)

        try:
            server.start(meanwhile)
        except EmbeddedProblem as problem:
            # Report and retry: runs wait for their database and don't fail.
            self._warn(str(problem))
            self.signals.idle(2.0)
            return
        if gone:
            self._forget("postgres", gone)

    def _beat(self) -> None:
        """Report the companion and the postmaster to the fleet.

        If the database is unreachable, log that once and continue.
        """
        from runs.fleet import members

        name = self.companion.name
        pids = [(name, child.pid) for child in self.children if child.name == name and child.pid]
        if self.server and self.server.process:
            pids.append(("postgres", self.server.process.pid))
        identities = [(kind, members.identify(pid)) for kind, pid in pids]
        members.beat_all(members.Sign(kind, identity) for kind, identity in identities if identity is not None)

    def _forget(self, kind: str, pid: int) -> None:
        from runs.fleet import members

        members.forget(kind, pid)

    def _remember(self) -> None:
        """Save the pids of our descendants, for the next start after a SIGKILL of this process."""
        family = child_processes.family()
        if family != self._family:
            self._family = family
            replace_private(self._family_file, json.dumps({str(pid): at for pid, at in family.items()}))

    def _remembered(self) -> dict[int, float]:
        try:
            known: dict[str, Any] = json.loads(self._family_file.read_text())
            return {int(pid): float(at) for pid, at in known.items()}
        except (OSError, ValueError):
            # The file is missing, or was truncated by a full disk. Most of them are still found by the marker in their
            # environment.
            return {}

    # --- talking ------------------------------------------------------------------------------

    def _announce_when_ready(self) -> None:
        if not answers_ready(self.env.port):
            return
        self._is_announced = True
        # This process hashed the passwords of new accounts, which takes much memory.
        child_processes.give_memory_back()
        seconds = time.monotonic() - self._started
        notice = self._notice() if self._notice is not None else ""
        greeting = f"{notice}{self.companion.greeting}  Ctrl-C drains and stops everything"
        self._say(f"Durable Agents is up after {seconds:.0f} s\n{greeting}")

    def _say(self, text: str) -> None:
        _print(text, sys.stdout)

    def _begin(self, stage: str) -> None:
        seconds = time.monotonic() - self._started
        self.tell(f"{stage} (after {seconds:.0f} s)" if seconds >= 2 else stage)

    def tell(self, text: str) -> None:
        self._say(f"up: {text}")

    def _warn(self, text: str) -> None:
        _print(f"up: {text}", sys.stderr)

    # --- ending -------------------------------------------------------------------------------

    def _drain(self) -> int:
        self.signals.start_draining()
        if self._restart:
            self._restart.abandon()
        self._say("draining (Ctrl-C again stops at once)")
        self._family |= child_processes.family()
        try:
            for name in ("supervisor", "web", self.companion.name):
                for child in (each for each in self.children if each.name == name):
                    self._drain_child(child)
            child_processes.end_strays(
                self.mark,
                self._family_without_database(),
                patience_seconds=0.5,
                idle=self.signals.idle,
            )
            if self.server:
                self.server.stop(patience_seconds=DRAIN_SECONDS["postgres"], idle=self.signals.idle)
        except StoppedAtOnce:
            return self._stop_at_once()
        self._clean_up()
        self._say("stopped")
        return 0

    def _drain_child(self, child: child_processes.Child) -> None:
        child.terminate()
        deadline = time.monotonic() + child.drain_seconds
        while not child.has_ended():
            if time.monotonic() > deadline:
                self._warn(f"{child.name} did not end within {child.drain_seconds:.0f} s; killed")
                child.kill()
                deadline += 5
            self.signals.idle(0.1)

    def _family_without_database(self) -> dict[int, float]:
        """Return our processes except those of PostgreSQL, which end with their postmaster."""
        alive = set(child_processes.family())
        return {pid: at for pid, at in self._family.items() if pid not in alive}

    def _stop_at_once(self) -> int:
        if self._restart:
            self._restart.abandon()
        self._family |= child_processes.family()
        for child in self.children:
            child.kill()
        if self.server:
            self.server.stop(at_once=True)
        child_processes.end_strays(self.mark, self._family, patience_seconds=0, idle=time.sleep)
        self._clean_up()
        return 130

    def _clean_up(self) -> None:
        if self.server:
            self.server.close()
        if self.door:
            self.door.close()
        self.renewals.close()
        self._family_file.unlink(missing_ok=True)


def _print(text: str, stream: Any) -> None:
    """Print a line. A closed terminal or pipe must not end the installation."""
    try:
        print(text, file=stream, flush=True)
    except OSError:
        pass
