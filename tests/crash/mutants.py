"""Is the harness any good? Each seeded bug of `mutations.py` is put into a copy of the checkout; something has to
notice it.

    python -m tests.crash.mutants [word …]        all of them, or those whose name has one of the words

First the copy is checked as it is, for a check that fails anyway proves nothing. One line for each bug, and how many
were caught.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from durableagents.dev.embedded import Server
from tests.conftest import CHECKOUT
from tests.crash.mutant import LIGHT, Mutant
from tests.crash.mutations import MUTANTS

# Enough for every seeded bug that they are meant for, several times over.
SCHEDULES = [
    "--schedules",
    "240",
    "--heavy",
    "0",
    "--seed",
    "mutants",
    "--lanes",
    "4",
    "--until-failure",
    "--patience",
    "30",
]
SOUND = ["--schedules", "60", "--heavy", "0", "--seed", "sound", "--lanes", "4"]


def main() -> int:
    words = sys.argv[1:]
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, _copy(Path(folder)) as copy:
        troubles = [said for check in _all_checks(chosen) if (said := copy.check(check, SOUND)) is not None]
        for said in troubles:
            _say(f"FAILS WITHOUT ANY BUG: {said}")
        # Those that change the SQL need a database of their own each; the others share one.
        caught = sum(_is_caught(copy, mutant) for mutant in sorted(chosen, key=lambda m: m.is_sql))
    _say(f"caught {caught} of {len(chosen)} in {time.monotonic() - began:.0f} s")
    return 0 if caught == len(chosen) and not troubles else 1


def _all_checks(chosen: list[Mutant]) -> list[str]:
    """Every check once: the light schedules, and all tests in one go."""
    files = sorted(
        {path for mutant in chosen if mutant.check != LIGHT for path in mutant.check.partition(" -k ")[0].split()}
    )
    return [LIGHT] * any(mutant.check == LIGHT for mutant in chosen) + [" ".join(files)] * bool(files)


def _is_caught(copy: Copy, mutant: Mutant) -> bool:
    began = time.monotonic()
    with copy.with_bug(mutant):
        said = copy.check(mutant.check, SCHEDULES, *([] if mutant.is_sql else ["--reuse-db"]))
    _say(
        f"{'SURVIVED' if said is None else 'caught  '} {mutant.name} "
        f"({time.monotonic() - began:.0f} s): {said or mutant.check}"
    )
    return said is not None


class Copy:
    """A checkout to spoil, and a database server that all its tests share."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        self._root, self._environment = root, environment

    @contextmanager
    def with_bug(self, mutant: Mutant) -> Iterator[None]:
        """Put it in, and take it out again. Raises ValueError where the code has changed, so that the bug has to be put
        in anew."""
        path = self._root / mutant.path
        sound = path.read_text()
        path.write_text(spoilt(sound, mutant))
        try:
            yield
        finally:
            path.write_text(sound)

    def check(self, check: str, schedules: list[str], *options: str) -> str | None:
        """What was found, or None. An error on the way, or no test at all, is no finding. Raises RuntimeError."""
        if check == LIGHT:
            command = ["-m", "tests.crash", *schedules]
        else:
            command = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *options, *_split(check)]
        ended = subprocess.run(
            [sys.executable, *command],
            cwd=self._root,
            env=self._environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if ended.returncode == 0:
            return None
        if ended.returncode != 1:
            raise RuntimeError(f"{check} could not be performed:\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}")
        lines = (ended.stderr if check == LIGHT else ended.stdout).splitlines()
        told = [line for line in lines if line.startswith(("duplicate:", "lost:", "stuck:", "broken:", "FAILED "))]
        return (told or lines or ["?"])[-1][:200]


def spoilt(text: str, mutant: Mutant) -> str:
    """A file's text with the bug in it. Raises ValueError."""
    if text.count(mutant.before) != 1:
        raise ValueError(
            f"{mutant.name!r} does not apply any more: {mutant.path} has changed there; put the bug in anew"
        )
    return text.replace(mutant.before, mutant.after)


def _split(check: str) -> list[str]:
    selection, _, only = check.partition(" -k ")
    return [*selection.split(), *(["-k", only.strip("'")] if only else [])]


@contextmanager
def _copy(folder: Path) -> Iterator[Copy]:
    """What is under version control as it lies there now, the environment by reference, and one database server for all
    tests."""
    root, data = folder / "checkout", folder / "data"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-c", "-o", "--exclude-standard"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (CHECKOUT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, root / name)
    data.mkdir()
    server = Server(data)
    server.prepare()
    server.start()
    try:
        urls = {
            "DURABLEAGENTS_TEST_DATABASE_URL": server.url("admin"), "DURABLEAGENTS_TEST_OWNER_URL": server.url("owner"),
            "DURABLEAGENTS_TEST_RUNTIME_URL": server.url("runtime"),
        }  # fmt: skip
        # One folder for the data of all of them, and so one key: what one left in the database is genuine for the next,
        # which would else fail over rows that nobody here wrote, whatever its bug.
        kept = {"DURABLEAGENTS_TEST_DATA": str(folder / "tests"), "PYTHONDONTWRITEBYTECODE": "1"}
        (folder / "tests").mkdir()
        ours = ("DURABLEAGENTS_", "DATABASE_", "SANDBOX_", "PORT")
        yield Copy(root, {name: text for name, text in os.environ.items() if not name.startswith(ours)} | urls | kept)
    finally:
        server.stop(patience_seconds=2)
        server.close()


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
