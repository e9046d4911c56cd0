"""Put mutations into the code, one at a time, and run the tests that have to notice.

    python -m tests.mutants [WORD …]                  the heart's list, or its mutations whose name has one of the words
    python -m tests.mutants --sample 60 --seed 7      that many random small changes in the heart's modules

The tests are run unchanged first, since a test that fails anyway proves nothing. Exits with 1 if a mutation of the list
survives, or if fewer than `--threshold` of a sample are caught.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib.util
import json
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.conftest import CHECKOUT
from tests.mutants.heart import HEART, MODULES
from tests.mutants.operators import Operator, Site, SqlOperator, sites

TYPES = {Operator: "operator", Site: "site", SqlOperator: "sql"}
Mutation = Operator | Site | SqlOperator
SECONDS = 1200  # for one mutation's tests, on a busy machine
TEST_SECONDS = 120  # for one test: some mutations retry forever


def files(names: str) -> list[str]:
    """Return the named test files. A name has as many folders as it needs to be unique ("engine/test_reads").

    Raises SystemExit for a name that no file has or several files have.
    """
    found = []
    for name in names.split():
        paths = sorted((CHECKOUT / "tests").rglob(f"{name}.py"))
        if len(paths) != 1:
            several = ", ".join(str(path.relative_to(CHECKOUT)) for path in paths)
            raise SystemExit(f"tests.mutants: {name}.py must name one test file: {several or 'there is none'}")
        found.append(str(paths[0].relative_to(CHECKOUT)))
    return sorted(set(found))


def failing(tests: list[str], mutation: Mutation | None = None) -> str | None:
    env = dict(os.environ)
    if mutation is not None:
        env["MUTATION"] = json.dumps({"type": TYPES[type(mutation)], **dataclasses.asdict(mutation)})
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "tests.mutants.plugin",
        "-p",
        "no:cacheprovider",
        "-o",
        f"timeout={TEST_SECONDS}",
        *tests,
    ]
    seconds = None if mutation is None else SECONDS
    try:
        done = subprocess.run(command, cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"tests.mutants: tests did not end within {SECONDS} s: {' '.join(tests)}") from None
    if done.returncode == 0:
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if "+++ Timeout +++" in done.stdout + done.stderr:
        return "a test did not end in time"
    if done.returncode not in (1, 2) or not lines:
        raise SystemExit(f"tests.mutants: pytest could not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return lines[0][:160]


def sample(count: int, seed: str) -> list[tuple[str, Mutation, str]]:
    """Draw small changes from the modules' places."""
    every = [(site, tests) for module, tests in MODULES.items() for site in sites(module, _tree(module))]
    drawn = random.Random(seed).sample(every, min(count, len(every)))
    return [(f"{site.module}:{site.line} {site.change}", site, tests) for site, tests in drawn]


def _tree(module: str) -> ast.Module:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    return ast.parse(Path(spec.origin).read_text())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--sample", type=int, default=0, metavar="N")
    parser.add_argument("--seed", default=str(random.randrange(10**6)))
    parser.add_argument("--threshold", type=float, default=0.85)
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    chosen = [
        (name, mutation, tests)
        for name, (mutation, tests) in HEART.items()
        if not options.words or any(word in name for word in options.words)
    ]
    if options.sample:
        chosen = sample(options.sample, options.seed)
    began = time.monotonic()
    every = sorted({file for _, _, tests in chosen for file in files(tests)})
    if (problem := failing(every)) is not None:
        print(f"fails without a mutation: {problem}")
        return 1
    with ThreadPoolExecutor(options.at_once) as pool:
        caught = sum(pool.map(lambda each: _is_caught(*each), chosen))
    print(f"caught {caught} of {len(chosen)} in {time.monotonic() - began:.0f} s (seed {options.seed})")
    return 0 if caught >= len(chosen) * (options.threshold if options.sample else 1) else 1


def _is_caught(name: str, mutation: Mutation, tests: str) -> bool:
    began = time.monotonic()
    found = failing(files(tests), mutation)
    verdict = "SURVIVED" if found is None else "caught  "
    print(f"{verdict} {name} ({time.monotonic() - began:.0f} s): {found or tests}", flush=True)
    return found is not None


if __name__ == "__main__":
    sys.exit(main())
