"""Hosts with names and networks of their own, joined by a bridge whose cables can be slowed and pulled. For root."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Self

from tests.conftest import CHECKOUT

# Of the network that is set aside for tests of networks (RFC 2544).
ADDRESS, _PREFIX = "198.18.77.1", "198.18.77."


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


class Host:
    """A worker service in namespaces for its network, host name and processes."""

    def __init__(self, name: str, number: int, bridge: str) -> None:
        self.name, self._bridge = name, bridge
        self._namespace, self._cable = f"{bridge}-{number}", f"{bridge}v{number}"
        self._address = f"{_PREFIX}{number + 1}"
        self.process: subprocess.Popen[bytes] | None = None

    def build(self) -> None:
        run("ip", "netns", "add", self._namespace)
        run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self._namespace)
        run("ip", "-n", self._namespace, "address", "add", f"{self._address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            run("ip", "-n", self._namespace, "link", "set", device, "up")
        run("ip", "link", "set", self._cable, "master", self._bridge)
        self.plug_in()

    def plug_in(self) -> None:
        run("ip", "link", "set", self._cable, "up")

    def cut_off(self) -> None:
        """Drop every packet in both directions. Addresses and connections stay, as with a pulled cable."""
        run("ip", "link", "set", self._cable, "down")

    def slow_down(self) -> None:
        """Let 32 KB a second through, each way; what waits is delayed, not dropped."""
        shape = ("root", "tbf", "rate", "256kbit", "burst", "4kb", "latency", "10s")
        run("tc", "qdisc", "add", "dev", self._cable, *shape)
        run("tc", "-n", self._namespace, "qdisc", "add", "dev", "eth0", *shape)

    def start(self, env: Mapping[str, str], log: IO[bytes]) -> None:
        """Start `manage.py worker`; it ends with this process."""
        inside = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        named = ["sh", "-c", 'hostname "$1" && shift && exec "$@"', "sh", self.name]
        worker = [sys.executable, "manage.py", "worker", "--processes", "1", "--slots", "4"]
        command = ["ip", "netns", "exec", self._namespace, *inside, *named, *worker]
        self.process = subprocess.Popen(command, env=env, cwd=CHECKOUT, stdin=subprocess.DEVNULL, stderr=log)

    def remove(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
        for command in (["ip", "link", "del", self._cable], ["ip", "netns", "del", self._namespace]):
            subprocess.run(command, capture_output=True, timeout=30)


class Network:
    """A bridge, whose address is this machine's, and hosts on it."""

    def __init__(self, *names: str) -> None:
        self._bridge = f"da{secrets.token_hex(3)}"
        self.hosts = [Host(name, number, self._bridge) for number, name in enumerate(names, 1)]

    def __enter__(self) -> Self:
        try:
            run("ip", "link", "add", self._bridge, "type", "bridge")
            run("ip", "address", "add", f"{ADDRESS}/24", "dev", self._bridge)
            run("ip", "link", "set", self._bridge, "up")
            for host in self.hosts:
                host.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts:
            host.remove()
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True, timeout=30)


def allow(pgdata: Path) -> None:
    """Let the hosts connect to this cluster, by password."""
    with (pgdata / "pg_hba.conf").open("a") as rules:
        rules.write(f"host all all {_PREFIX}0/24 scram-sha-256\n")
