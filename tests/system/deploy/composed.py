"""The services of deploy/compose.yaml as processes: their own commands, settings and secrets, without containers."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import yaml

from durableagents.dev.embedded import Server
from tests.conftest import CHECKOUT, free_ports
from tests.waiting import eventually

DEPLOY = CHECKOUT / "deploy"
DOMAIN = "localhost"
AGENTS = "tests.system.api.agents"
# What a service of ours may say in compose.yaml; what isn't a setting is up to the container runtime.
KNOWN = {"command", "environment", "secrets", "healthcheck"}
OF_THE_RUNTIME = {
    *("build", "cap_drop", "depends_on", "image", "networks", "read_only", "restart", "security_opt"),
    *("stop_grace_period", "tmpfs", "volumes"),
}
_DATA, _SECRETS, _AGENTS_FOLDER = "/var/lib/durableagents-data", "/run/secrets", "/srv/agents"


def compose(*names: str, **variables: str) -> dict[str, Any]:
    """Return the files as compose merges them: maps by key, lists one after the other."""
    whole: dict[str, Any] = {}
    for name in names:
        whole = _merged(whole, _interpolated(yaml.safe_load((DEPLOY / name).read_text()), variables))
    return whole


def _interpolated(tree: Any, variables: dict[str, str]) -> Any:
    if isinstance(tree, dict):
        return {key: _interpolated(value, variables) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_interpolated(value, variables) for value in tree]
    if not isinstance(tree, str):
        return tree
    return re.sub(r"\$\{(\w+)(?::[-?]([^}]*))?\}", lambda found: variables.get(found[1]) or found[2] or "", tree)


def _merged(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return one | {key: _merged(one.get(key), value) for key, value in other.items()}
    return one + other if isinstance(one, list) and isinstance(other, list) else other


def image_environment() -> dict[str, str]:
    """Return what the last stage of the Containerfile sets."""
    last = (DEPLOY / "Containerfile").read_text().rpartition("\nFROM ")[2].replace("\\\n", "")
    (line,) = re.findall(r"^ENV (.*)$", last, re.M)
    return dict(pair.split("=", 1) for pair in line.split())


class Composed:
    """A database, and the services that are started on it. Everything ends with the block."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, dict[str, subprocess.Popen[bytes]]()
        self.web_port, self.http_port, self.https_port, self.pooler_port = free_ports(4)
        self._server = Server(folder / "postgres")
        self.read("compose.yaml")

    @property
    def url(self) -> str:
        return f"https://{DOMAIN}:{self.https_port}"

    def read(self, *files: str) -> None:
        """Take the services from these files."""
        self.file = compose(*files, DOMAIN=DOMAIN, DURABLEAGENTS_AGENTS=AGENTS, FRONT_NETWORK="127.0.0.0/8")

    def __enter__(self) -> Self:
        self._server.prepare()
        self._server.start()
        place = f"{quote(str(self._server.layout.socket_dir), safe='')}:5432"
        secrets = str(self.folder / "secrets")
        command = [str(DEPLOY / "make-secrets"), secrets, place, f"127.0.0.1:{self.pooler_port}"]
        subprocess.run(command, check=True, timeout=30)
        psql = [self._server._binary("psql"), "--no-psqlrc", "-q", "-d", self._server.url("admin", "postgres")]
        env = {"PATH": os.environ["PATH"], "SECRETS": secrets}
        subprocess.run([*psql, "-f", DEPLOY / "postgres" / "roles.sql"], env=env, check=True, timeout=60)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(10)
        self._server.stop(at_once=True)
        self._server.close()
        for path in (self._server.layout.socket_dir, self._server.layout.pgdata.parent):
            shutil.rmtree(path, ignore_errors=True)
        for log in sorted(self.folder.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-8000:]}")  # noqa: T201

    # --- services of ours -----------------------------------------------------------------------------------------

    def environment(self, name: str) -> dict[str, str]:
        service = self.file["services"][name]
        assert set(service) <= KNOWN | OF_THE_RUNTIME, f"{name}: what is {set(service) - KNOWN - OF_THE_RUNTIME}?"
        secrets = self.folder / f"secrets of {name}"
        secrets.mkdir(exist_ok=True)
        for secret in service["secrets"]:
            source = self.file["secrets"][secret]["file"].removeprefix("./secrets/")
            shutil.copy(self.folder / "secrets" / source, secrets / secret)
        found = {**image_environment(), **service["environment"], "PATH": os.environ["PATH"]}
        places = {_SECRETS: str(secrets), _DATA: str(self.folder / "data"), _AGENTS_FOLDER: str(CHECKOUT)}
        return {key: places.get(value, value) for key, value in found.items()} | {"PORT": str(self.web_port)}

    def run(self, name: str, *command: str, **more: str) -> str:
        """Run a service, or another command in its place, to its end, and return what it printed."""
        argv = [sys.executable, "manage.py", *(command or self.file["services"][name]["command"])]
        env = self.environment(name) | more
        done = subprocess.run(argv, env=env, cwd=CHECKOUT, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, name: str) -> None:
        command = [sys.executable, "manage.py", *self.file["services"][name]["command"]]
        self._spawn(name, command, self.environment(name))

    def _spawn(self, name: str, command: list[str], env: dict[str, str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env=env, cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def is_healthy(self, name: str) -> bool:
        """Run the service's health check."""
        assert self.processes[name].poll() is None, f"{name} ended"
        _, python, *arguments = self.file["services"][name]["healthcheck"]["test"]
        assert python == "python"
        check = [each.replace(":8000/", f":{self.web_port}/") for each in arguments]
        return subprocess.run([sys.executable, *check], capture_output=True, timeout=30).returncode == 0

    def stop(self, name: str) -> int:
        self.processes[name].terminate()
        grace = self.file["services"][name]["stop_grace_period"].removesuffix("s")
        return self.processes[name].wait(int(grace))

    # --- what stands in front and between -------------------------------------------------------------------------

    def start_pooler(self, binary: str) -> None:
        folder = self.folder / "pgbouncer"
        folder.mkdir()
        shutil.copy(self.folder / "secrets" / "pgbouncer_users", folder / "users")
        (folder / "pgbouncer.ini").write_text(
            (DEPLOY / "pgbouncer" / "pgbouncer.ini")
            .read_text()
            .replace("host=db", f"host={self._server.layout.socket_dir}")
            .replace("0.0.0.0", "127.0.0.1")
            .replace("= 6432", f"= {self.pooler_port}")
            .replace("/run/secrets/pgbouncer_users", str(folder / "users"))
        )
        command = [binary, str(folder / "pgbouncer.ini")]
        if os.geteuid() == 0:  # it refuses to run as root; the socket is nobody's
            shutil.chown(folder / "users", user=pwd.getpwnam("nobody").pw_uid)
            for path in (folder, *folder.iterdir(), self.folder):
                path.chmod(0o755)
            command[1:1] = ["-u", "nobody"]
        self._spawn("pgbouncer", command, {})
        eventually(lambda: "process up" in self.log("pgbouncer"), "PgBouncer", 30)

    def start_caddy(self, binary: str) -> None:
        """Caddy with its own authority for `localhost`."""
        env = {
            **self.file["services"]["caddy"]["environment"],
            "UPSTREAM": f"127.0.0.1:{self.web_port}",
            "HTTP_PORT": str(self.http_port),
            "HTTPS_PORT": str(self.https_port),
            "HOME": str(self.folder / "caddy"),
        }
        config = ["--config", str(DEPLOY / "caddy" / "Caddyfile"), "--adapter", "caddyfile"]
        for name in ("validate", "fmt"):
            arguments = config if name == "validate" else [config[1]]
            completed = subprocess.run([binary, name, *arguments], env=env, capture_output=True, text=True, timeout=60)
            assert completed.returncode == 0, completed.stderr
        assert completed.stdout == (DEPLOY / "caddy" / "Caddyfile").read_text(), "caddy fmt would change it"
        self._spawn("caddy", [binary, "run", *config], env)

    def start_nginx(self, binary: str) -> None:
        """nginx with a certificate of its own."""
        folder = self.folder / "nginx"
        (folder / "tls").mkdir(parents=True)
        names = ["-keyout", folder / "tls" / "privkey.pem", "-out", folder / "tls" / "fullchain.pem"]
        subject = ["-subj", f"/CN={DOMAIN}", "-addext", f"subjectAltName=DNS:{DOMAIN}"]
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *names]
        subprocess.run(made, check=True, capture_output=True, timeout=60)
        config = folder / "nginx.conf"
        config.write_text(
            (DEPLOY / "nginx" / "nginx.conf")
            .read_text()
            .replace("listen 80 ", f"listen 127.0.0.1:{self.http_port} ")
            .replace("listen 443 ", f"listen 127.0.0.1:{self.https_port} ")
            .replace("/etc/nginx/tls", str(folder / "tls"))
            .replace("/run/nginx.pid", str(folder / "pid"))
            .replace("https://agents.example.com", self.url)
            .replace("agents.example.com", DOMAIN)
            .replace("127.0.0.1:8000", f"127.0.0.1:{self.web_port}")
            .replace("worker_processes auto", "worker_processes 1")
        )
        tried = subprocess.run([binary, "-t", "-c", config], capture_output=True, text=True, timeout=30)
        assert tried.returncode == 0 and "warn" not in tried.stderr, tried.stderr
        self._spawn("nginx", [binary, "-c", str(config), "-g", "daemon off;"], {})

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def stop_proxy(self, name: str) -> int:
        self.processes[name].send_signal(signal.SIGTERM)
        return self.processes[name].wait(20)


def untrusting() -> ssl.SSLContext:
    """Return a TLS context that takes any certificate: the proxies sign their own here."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
