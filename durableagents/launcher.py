"""`make up`: everything of one installation, started in order, kept alive, drained in order.

    lock → end what a killed `up` left → ports → PostgreSQL → migrate → cast → sandbox → web → workers

One thread, one loop. A signal or a child's death wakes it (a byte in a pipe), nothing is polled
faster than needed. The order of draining is the reverse of who needs whom: workers finish their
steps while web, sandbox and database still answer.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from durableagents import databases, procs
from durableagents.checks import check_key
from durableagents.embedded import Server
from durableagents.embedded_layout import EmbeddedProblem, instance_id
from durableagents.env import (
    CHECKOUT,
    Environment,
    EnvironmentProblem,
    ensure_directory,
    replace_private,
)
from durableagents.interrupts import Signals, Stopped, StoppedAtOnce
from durableagents.restart import Restart
from durableagents.web import answers_ready, listen

# Together below the 20 seconds in which `up` has to be gone; each is rarely used up. The supervisor
# gives its workers STEP_SECONDS to finish their steps and needs two more to end what doesn't.
STEP_SECONDS = 10
DRAIN_SECONDS = {"supervisor": STEP_SECONDS + 2.5, "web": 2.5, "sandbox": 1.0, "postgres": 2.5}
BEAT_SECONDS = 5.0
STRAY_PATIENCE_SECONDS = 8.0


class Launcher:
    """One `make up`, from the lock to the last process's end."""

    def __init__(self, environment: Environment) -> None:
        self.env = environment
        self.data = environment.data
        self.mark = instance_id(self.data)
        self.signals = Signals()
        self.server: Server | None = None
        self.children: list[procs.Child] = []
        self.door: socket.socket | None = None
        self._restart: Restart | None = None
        self._family_file = self.data / "up.json"
        self._family: dict[int, float] = {}
        self._next_beat = 0.0
        self._is_announced = False
        self._started = time.monotonic()

    def run(self) -> int:
        """Returns the exit code. Raises EnvironmentProblem when something outside is wrong."""
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
                f"already up on {self.data} (set DURABLEAGENTS_DATA and the ports for a second one)"
            ) from None
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        return descriptor

    def _start(self) -> None:
        procs.end_strays(
            self.mark,
            self._remembered(),
            patience_seconds=STRAY_PATIENCE_SECONDS,
            idle=self.signals.idle,
        )
        self._check_ports()
        self._start_database()
        self._migrate()
        check_key()  # asked before, it had no database to ask
        self._make_cast()
        python, env = sys.executable, self._child_env()
        self._add("sandbox", [python, "-m", "durableagents.demo.sandbox"], env)
        # Ours for as long as we live: while web is restarted, whoever comes waits in its queue instead of being refused.
        self.door = listen("127.0.0.1", self.env.port)
        self.children.append(self.new_web())
        self.children[-1].start()
        self._add("supervisor", [python, "manage.py", "worker"], env)

    def new_web(self) -> procs.Child:
        """A web process on our listening socket, not started yet."""
        assert self.door is not None
        return procs.Child(
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
        for variable, port in (
            ("PORT", self.env.port),
            ("SANDBOX_PORT", self.env.sandbox_port),
            ("SANDBOX_SMTP_PORT", self.env.sandbox_smtp_port),
        ):
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
        """Start `migrate` with the code as it is on disk now; its process and its log."""
        env = {**self._child_env(), "DURABLEAGENTS_DB_ROLE": "owner"}
        log = self.data / "logs" / "migrate.log"
        procs.shorten_log(log)
        argv = [sys.executable, "manage.py", "migrate", "--noinput", "--verbosity=1"]
        return procs.spawn(argv, env=env, log=log, cwd=CHECKOUT, death_signal=signal.SIGTERM), log

    def _migrate(self) -> None:
        process, log = self.begin_migration()
        try:
            while process.poll() is None:
                self.signals.idle(0.2)
        except (Stopped, StoppedAtOnce):
            # Each migration is one transaction: what isn't committed was never begun.
            process.kill()
            process.wait()
            raise
        if process.returncode:
            raise EnvironmentProblem(f"migrate failed: {procs.last_line(log)}; see {log}")

    def _make_cast(self) -> None:
        from durableagents.demo.cast import make_cast

        make_cast(self.env)

    def _child_env(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "DJANGO_SETTINGS_MODULE": "durableagents.settings",
            "DURABLEAGENTS_DATA": str(self.data),
            "DURABLEAGENTS_DEMO": "1",
            "DURABLEAGENTS_DRAIN_SECONDS": str(STEP_SECONDS),
            "PORT": str(self.env.port),
            "SANDBOX_PORT": str(self.env.sandbox_port),
            "SANDBOX_SMTP_PORT": str(self.env.sandbox_smtp_port),
            procs.MARKER: self.mark,
        }

    def _add(self, name: str, argv: list[str], env: dict[str, str]) -> None:
        child = procs.Child(
            name,
            argv,
            env=env,
            log=self.data / "logs" / f"{name}.log",
            cwd=CHECKOUT,
            drain_seconds=DRAIN_SECONDS[name],
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
                procs.shorten_log(child.log)
        if not self._is_announced:
            self._announce_when_ready()

    def _tend_children(self) -> None:
        for child in self.children:
            pid = child.pid
            if how := child.ended():
                said = "" if how.startswith("signal") else f": {procs.last_line(child.log)}"
                self._warn(f"{child.name} (pid {pid}) ended with {how}{said}; starting it again")
                if child.name == "sandbox" and pid:
                    self._forget("sandbox", pid)
            if child.is_due():
                child.start()

    def _tend_restart(self) -> None:
        """Take up a restart that somebody asked for, once everything is up, and move it on."""
        if self._is_announced and self._restart is None and self.signals.take_restart():
            self._restart = Restart(self)
        if self._restart is not None and self._restart.has_ended():
            self._restart = None

    def _tend_database(self) -> None:
        server = self.server
        if server is None or (server.process and server.process.poll() is None):
            return
        if server.process:
            how = procs.how_it_ended(server.process.returncode)
            self._warn(f"postgres (pid {server.process.pid}) ended with {how}; starting it again")
        gone = server.process.pid if server.process else None

        def meanwhile(seconds: float) -> None:
            self._tend_children()
            self.signals.idle(seconds)

        try:
            server.start(meanwhile)
        except EmbeddedProblem as problem:
            # Said aloud and tried again: runs wait for their database, they don't fail.
            self._warn(str(problem))
            self.signals.idle(2.0)
            return
        if gone:
            self._forget("postgres", gone)

    def _beat(self) -> None:
        """Show sandbox and postmaster, which can't do it themselves, on the fleet page. While the
        database is away there is nothing to show them on; the fleet says so once and goes on."""
        from runs import fleet

        pids = [("sandbox", child.pid) for child in self.children if child.name == "sandbox" and child.pid]
        if self.server and self.server.process:
            pids.append(("postgres", self.server.process.pid))
        found = [(kind, fleet.identify(pid)) for kind, pid in pids]
        fleet.beat_all(fleet.Sign(kind, identity) for kind, identity in found if identity is not None)

    def _forget(self, kind: str, pid: int) -> None:
        from runs import fleet

        fleet.forget(kind, pid)

    def _remember(self) -> None:
        """Keep on disk who our descendants are, for a start after our own SIGKILL."""
        family = procs.family()
        if family != self._family:
            self._family = family
            replace_private(
                self._family_file, json.dumps({str(pid): at for pid, at in family.items()})
            )

    def _remembered(self) -> dict[int, float]:
        try:
            known: dict[str, Any] = json.loads(self._family_file.read_text())
            return {int(pid): float(at) for pid, at in known.items()}
        except (OSError, ValueError):
            # No file, or one cut by a full disk: the marker in the environment finds most of them.
            return {}

    # --- talking ------------------------------------------------------------------------------

    def _announce_when_ready(self) -> None:
        if not answers_ready(self.env.port):
            return
        self._is_announced = True
        procs.give_memory_back()  # the passwords of the cast were hashed here
        seconds = time.monotonic() - self._started
        self._say(
            f"Durable Agents is up after {seconds:.0f} s\n"
            f"  console  {self.env.base_url}   one click signs you in as finance, legal, operator,"
            " integrator or auditor\n"
            f"  sandbox  {self.env.sandbox_url}   the outside systems the agents act on\n"
            f"  {self.data / 'demo.json'} has the passwords (user admin: {self.env.base_url}/admin/)"
            " and the API keys\n"
            "  Ctrl-C drains and stops everything"
        )

    def _say(self, text: str) -> None:
        _print(text, sys.stdout)

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
        self._family |= procs.family()
        try:
            for name in ("supervisor", "web", "sandbox"):
                for child in (each for each in self.children if each.name == name):
                    self._drain_child(child)
            procs.end_strays(
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

    def _drain_child(self, child: procs.Child) -> None:
        child.terminate()
        deadline = time.monotonic() + child.drain_seconds
        while not child.has_ended():
            if time.monotonic() > deadline:
                self._warn(f"{child.name} did not end within {child.drain_seconds:.0f} s; killed")
                child.kill()
                deadline += 5
            self.signals.idle(0.1)

    def _family_without_database(self) -> dict[int, float]:
        """PostgreSQL's own processes end with their postmaster, in its own time."""
        alive = set(procs.family())
        return {pid: at for pid, at in self._family.items() if pid not in alive}

    def _stop_at_once(self) -> int:
        if self._restart:
            self._restart.abandon()
        self._family |= procs.family()
        for child in self.children:
            child.kill()
        if self.server:
            self.server.stop(at_once=True)
        procs.end_strays(self.mark, self._family, patience_seconds=0, idle=time.sleep)
        self._clean_up()
        return 130

    def _clean_up(self) -> None:
        if self.server:
            self.server.close()
        if self.door:
            self.door.close()
        self._family_file.unlink(missing_ok=True)


def _print(text: str, stream: Any) -> None:
    """A closed terminal or pipe must not end the installation."""
    try:
        print(text, file=stream, flush=True)
    except OSError:
        pass
