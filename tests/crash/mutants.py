"""Is the harness any good? Each of these breaks the heart in one way, in a copy of the checkout; a crash test has to notice.

    python -m tests.crash.mutants [name …]
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.conftest import CHECKOUT

FENCING, FAILPOINTS = "tests/crash/test_fencing.py", "tests/crash/test_failpoints.py"


@dataclass(frozen=True)
class Mutant:
    """`before` occurs once in `path`; with `after` in its place some test of `tests` that matches `only` must fail."""

    name: str
    path: str
    before: str
    after: str
    tests: str
    only: str


MUTANTS = [
    Mutant(
        "no fence: a stale lease may write", "ledger/sql/append.sql",
        "IF p_epoch IS NOT NULL AND (", "IF false AND (", FENCING, "keyed and CP4",
    ),
    Mutant(
        "a claim keeps epoch and lease", "runs/sql/steps.sql",
        "    h.epoch := h.epoch + 1;\n    h.lease := gen_random_uuid();\n", "    h.lease := coalesce(h.lease, gen_random_uuid());\n",
        FENCING, "keyed and CP6",
    ),
    Mutant(
        "an unsafe call in doubt is simply sent again", "runs/engine/calls.py",
        "if self.tool.is_unsafe and not isinstance(answer, DidNotHappen):", "if False:", FAILPOINTS, "unsafe and CP3",
    ),
    Mutant(
        "a repeat has a key of its own", "runs/engine/calls.py",
        'self.key, self.token = intent.get("key"), intent.get("callback_token")',
        'self.key, self.token = (intent.get("key") or "") + "-again" or None, intent.get("callback_token")',
        FAILPOINTS, "keyed and CP3",
    ),
    Mutant(
        "the hook is not asked", "runs/engine/calls.py",
        "answer = await ask_hook(self.tool, self.args, self._tool_call())", "answer = None", FAILPOINTS, "asked_about",
    ),
    Mutant(
        "an intent is recorded after the call", "runs/engine/calls.py",
        "        await self._intend(grant)\n        return await self.dispatch()",
        "        self.key = idempotency_key(self.visit.run_id, self.slot, self.attempt)\n        await self._send()\n"
        "        await self._intend(grant)\n        return await self.dispatch()",
        FAILPOINTS, "keyed and effect_and_record",
    ),
    Mutant(
        "a commit whose answer is lost counts as not done", "runs/store.py",
        "return claimed.reply if await self._is_written(events, seen) else None", "return None", FENCING, "found_out",
    ),
    Mutant(
        "a commit whose answer is lost counts as done", "runs/store.py",
        "return claimed.reply if await self._is_written(events, seen) else None", "return claimed.reply", FENCING, "found_out",
    ),
    Mutant(
        "a run parks on what was resolved before", "runs/sql/steps.sql",
        "OR (p_how IN ('park', 'settle') AND EXISTS", "OR (false AND EXISTS", FENCING, "found_out or cut_at",
    ),
    Mutant(
        "a dead worker's runs are left alone", "runs/recovery.py",
        "    if run.owner != incarnation_id:\n        return 0\n", "    return 0\n", FAILPOINTS, "pure and CP3",
    ),
    Mutant(
        "a call may be sent again while its sender lives", "runs/settle.py",
        "if sender is None or sender.ended_at is not None or is_gone(sender):", "if True:", FENCING, "still_be_sending",
    ),
]  # fmt: skip


def main() -> int:
    wanted = sys.argv[1:]
    chosen = [mutant for mutant in MUTANTS if not wanted or any(word in mutant.name for word in wanted)]
    survivors = [mutant.name for mutant in chosen if not _is_caught(mutant)]
    _say(f"mutants {len(chosen)} survived {len(survivors)}")
    return 1 if survivors else 0


def _is_caught(mutant: Mutant) -> bool:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder) / "checkout"
        _copy_checkout(copy)
        path = copy / mutant.path
        text = path.read_text()
        if text.count(mutant.before) != 1:
            _say(f"DOES NOT APPLY  {mutant.name}: {mutant.path} has changed")
            return False
        path.write_text(text.replace(mutant.before, mutant.after))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", mutant.tests, "-k", mutant.only]
        ended = subprocess.run(command, cwd=copy, capture_output=True, text=True)
        _end_what_is_left(copy)
    last = ended.stdout.strip().splitlines()[-1] if ended.stdout.strip() else ended.stderr[-200:]
    # An error on the way to a test, or no test at all, is no verdict.
    is_caught = " failed" in last
    _say(f"{'caught' if is_caught else 'SURVIVED'}  {mutant.name}: {last}")
    return is_caught


def _copy_checkout(copy: Path) -> None:
    """What is under version control as it lies there now, and the environment by reference."""
    listed = subprocess.run(["git", "ls-files", "-z", "-c", "-o", "--exclude-standard"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (CHECKOUT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, copy / name)
    (copy / ".venv").symlink_to(Path(sys.prefix))


def _end_what_is_left(copy: Path) -> None:
    """A test run that was cut off by its own time limit leaves its installation up."""
    for process in psutil.process_iter():
        try:
            is_launcher = process.cwd() == str(copy) and process.cmdline()[1:] == ["manage.py", "up"]
        except psutil.Error:
            continue  # gone meanwhile, or somebody else's
        if is_launcher:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
