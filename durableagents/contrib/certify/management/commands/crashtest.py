"""`manage.py crashtest AGENT`: kill its workers at every crash point of every tool, on a private stack, and report."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from durableagents.contrib.certify.crashtest import report
from durableagents.contrib.certify.crashtest.effects import (
    RUN_POINTS,
    TOOL_POINTS,
    CrashTest,
    fill_case,
    is_loopback,
    without_secrets,
)
from durableagents.env import CHECKOUT, EnvironmentProblem
from durableagents.server import child_processes
from ledger.errors import DurableAgentsError
from runs.engine.agents import registry
from runs.services.lifecycle import checked

# Variables that the private stack doesn't inherit.
_NOT_INHERITED = (
    "DATABASE_URL",
    "DATABASE_OWNER_URL",
    "DATABASE_DIRECT_URL",
    "DURABLEAGENTS_FAILPOINTS",
    "DURABLEAGENTS_BASE_URL",
    "DURABLEAGENTS_DB_ROLE",
    "DURABLEAGENTS_UNCERTIFIED_TOOLS",
)
MIGRATE_SECONDS = 300.0


class Command(BaseCommand):
    help = (
        "Kill an agent's workers at every crash point of every tool, on a private stack, and report what was doubled or"
        " lost. It REALLY calls the tools' upstream systems. Exit code 0 only if nothing was doubled or lost."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("agent", nargs="?", help="name or name@version")
        parser.add_argument(
            "--input", metavar="FILE", help="the runs' input as JSON; {case} becomes a different word in each run"
        )
        parser.add_argument("--tools", default="", help="only these, comma-separated")
        parser.add_argument("--points", default="", help=f"only these of {', '.join([*TOOL_POINTS, *RUN_POINTS])}")
        parser.add_argument("--answers", metavar="FILE", help="answers of people: approve, answers, signals, receipts")
        parser.add_argument(
            "--effects", default="", help="record of the upstream system: a file, an address, module:function"
        )
        parser.add_argument("--report", metavar="FILE", help="file for the report: .md or .json")
        parser.add_argument("--workers", type=int, default=3, help="worker processes, one run each (default: 3)")
        parser.add_argument("--patience", type=float, default=60.0, help="seconds for a run to end (default: 60)")
        parser.add_argument(
            "--yes-this-is-a-sandbox",
            dest="is_sandbox",
            action="store_true",
            help="confirm that the tools call test systems. Required without a terminal, unless --effects is an "
            "address of this host",
        )
        parser.add_argument("--inside", help=SUPPRESS)

    def handle(self, **given: Any) -> None:
        if given["inside"]:
            _inside(Path(given["inside"]))
            return
        options = _parse(given)
        if not given["is_sandbox"] and not is_loopback(options.effects):
            _confirm(options)
        target = Path(given["report"])
        with _stack(options) as folder:
            self.stdout.write(f"{options.agent} on a private stack; the tools' upstream systems are REALLY called")
            result = _run_inside(folder, options)
        result["passed"] = report.is_passed(result)
        target.write_text(json.dumps(result, indent=1) if target.suffix == ".json" else report.markdown(result))
        self.stdout.write(report.markdown(result).split("\n")[2])
        self.stdout.write(f"report: {target}")
        if not result["passed"]:
            raise CommandError("Not passed.", returncode=1)
        if left_out := result["uncovered"]:
            raise CommandError(
                f"Passed, but no worker was killed at {', '.join(left_out)}: test it separately.", returncode=3
            )


def _parse(given: dict[str, Any]) -> CrashTest:
    """Return the parameters, checked before anything starts. Raises CommandError with exit code 2."""
    if settings.DURABLEAGENTS.is_production:
        raise CommandError("crash tests are refused in production: use a test installation", returncode=2)
    if not given["agent"] or not given["input"] or not given["report"]:
        raise CommandError("name an agent, --input FILE and --report FILE", returncode=2)
    if Path(given["report"]).suffix not in (".md", ".json"):
        raise CommandError("--report is a file that ends in .md or .json", returncode=2)
    if not 1 <= given["workers"] <= 16 or not 1 <= given["patience"] <= 3600:
        raise CommandError("--workers is 1 to 16, --patience 1 to 3600 seconds", returncode=2)
    points, tools = _split(given["points"]), _split(given["tools"])
    if wrong := [each for each in points if each not in (*TOOL_POINTS, *RUN_POINTS)]:
        raise CommandError(
            f"--points {', '.join(wrong)}: known are {', '.join([*TOOL_POINTS, *RUN_POINTS])}", returncode=2
        )
    input_, answers = _json("--input", given["input"]), _json("--answers", given["answers"]) if given["answers"] else {}
    if not isinstance(answers, dict) or answers.keys() - {"approve", "answers", "signals", "receipts"}:
        raise CommandError("--answers is an object: approve, answers, signals, receipts", returncode=2)
    try:
        agent = registry.find(given["agent"])
        checked(agent, fill_case(input_, "case"))
    except DurableAgentsError as refused:
        raise CommandError(refused.detail, returncode=2) from None
    if wrong := [each for each in tools if agent.tool(each) is None]:
        raise CommandError(f"--tools: {agent.graph_id} has no {', '.join(wrong)}", returncode=2)
    return CrashTest(
        agent.graph_id, input_, tools, points, answers, given["effects"], given["patience"], given["workers"]
    )


def _confirm(options: CrashTest) -> None:
    """Ask for confirmation, since the tools may call real systems. Raises CommandError with exit code 2."""
    systems = sorted(
        {tool.system or tool.name for tool in registry.find(options.agent).all_tools() if not tool.is_pure}
    )
    targets = ", ".join(systems) or "nothing outside"
    judge = without_secrets(options.effects) or "nothing (give --effects)"
    why = f"{options.agent} acts on {targets}, and --effects is {judge}, which is not on this host"
    if not sys.stdin.isatty():
        raise CommandError(
            f"{why}. There is no terminal to ask for confirmation: add --yes-this-is-a-sandbox. Nothing was started.",
            returncode=2,
        )
    if (
        input(f"{why}. The workers are killed while they make calls there. Type yes if these are test systems: ")
        != "yes"
    ):
        raise CommandError("Nothing was started.", returncode=2)


@contextmanager
def _stack(options: CrashTest) -> Iterator[Path]:
    """Provide a temporary folder with its own database, workers and, if tools answer by callback, a web process."""
    from durableagents.dev.embedded import Server

    folder = Path(tempfile.mkdtemp(prefix="durableagents-crashtest-"))
    server, children = Server(folder), []
    try:
        (folder / "options.json").write_text(json.dumps(options.as_json()))
        (folder / "points").mkdir()
        server.prepare()
        server.start()
        env = _environment(folder, options)
        _run(["migrate", "--noinput", "--verbosity=0"], {**env, "DURABLEAGENTS_DB_ROLE": "owner"}, MIGRATE_SECONDS)
        argvs = {"worker": ["worker"]}
        if any(tool.answers_later for tool in registry.find(options.agent).all_tools()):
            argvs["web"] = ["web"]
        for name, argv in argvs.items():
            command = [sys.executable, "manage.py", *argv]
            children.append(child_processes.spawn(command, env=env, log=folder / "logs" / f"{name}.log", cwd=CHECKOUT))
        yield folder
    finally:
        for child in children:
            child_processes.send(child.pid, signal.SIGTERM)
        for child in children:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        server.stop(patience_seconds=2)
        server.close()
        shutil.rmtree(server.layout.socket_dir, ignore_errors=True)
        if server.layout.account:
            shutil.rmtree(server.layout.pgdata.parent, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def _environment(folder: Path, options: CrashTest) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    return kept | {
        "DJANGO_SETTINGS_MODULE": "durableagents.settings",
        "DURABLEAGENTS_DATA": str(folder),
        "PORT": str(_free_port()),
        "DURABLEAGENTS_FAILPOINT_DIR": str(folder / "points"),
        "DURABLEAGENTS_CALL_RECORD": str(folder / "calls.jsonl"),
        "DURABLEAGENTS_WORKERS": str(options.workers),
        "DURABLEAGENTS_SLOTS": "1",
        "DURABLEAGENTS_DRAIN_SECONDS": "2",
        "PYTHONUNBUFFERED": "1",
    }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _run_inside(folder: Path, options: CrashTest) -> dict[str, Any]:
    """Return the result of the inner process. Raises CommandError with exit code 2 and the process's error line."""
    _run(["crashtest", "--inside", str(folder)], _environment(folder, options), None)
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    if problem := result.get("problem"):
        raise CommandError(problem, returncode=2)
    result["about"]["command"] = without_secrets(" ".join(sys.argv[1:]))
    return result


def _inside(folder: Path) -> None:
    """Run inside the private stack. Its folder holds the parameters and receives the result."""
    if folder != settings.DURABLEAGENTS.data or not (folder / "options.json").exists():
        raise CommandError("--inside is reserved for the command itself", returncode=2)
    from durableagents.contrib.certify.crashtest.inside import run_crash_test

    try:
        result = run_crash_test(CrashTest(**json.loads((folder / "options.json").read_text())))
    except EnvironmentProblem as problem:
        result = {"problem": str(problem)}
    (folder / "result.json").write_text(json.dumps(result, default=str))


def _run(argv: list[str], env: dict[str, str], seconds: float | None) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", *argv], env=env, cwd=CHECKOUT, timeout=seconds, capture_output=True, text=True
    )
    if done.returncode:
        last = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        raise CommandError(f"{argv[0]} failed in the private stack: {last}", returncode=2)


def _split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _json(option: str, name: str) -> Any:
    try:
        return json.loads(Path(name).read_text())
    except (OSError, ValueError) as error:
        raise CommandError(f"{option} {name}: {error}", returncode=2) from None
