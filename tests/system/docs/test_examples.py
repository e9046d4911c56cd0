"""The pages' examples work when pasted, and answer what the pages say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import plain_env
from tests.system.infra.installation import Installation
from tests.unit.docs.pages import ROOT, Block, blocks, misfit, run_python

PASTED = {
    ROOT / "docs" / "tutorials" / "first-agent.md": 3,
    ROOT / "docs" / "reference" / "http-api.md": 7,
    ROOT / "docs" / "how-to" / "certify-a-tool.md": 1,
    ROOT / "docs" / "how-to" / "evidence-and-audit.md": 2,
    ROOT / "docs" / "how-to" / "policies-and-standing-approvals.md": 1,
    ROOT / "docs" / "how-to" / "stop-everything.md": 5,
}  # the minimum number of blocks
TUTORIAL = ROOT / "docs" / "tutorials" / "api-from-python.md"
# These continue the tutorial: they use its `client` and `wait`.
CONTINUED = [
    ROOT / "docs" / "how-to" / f"{name}.md"
    for name in (
        "budgets-and-limits",
        "real-models",
        "release-and-migrate-versions",
        "schedules-and-business-keys",
    )
]
ANSWERS = ("json", "text")
_END = "\x1e"
# A busy machine takes a minute to start an installation; a quiet one needs half of that for everything here.


@pytest.mark.parametrize("page", PASTED, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_examples_do_what_the_page_says(page: Path, installation: Installation) -> None:
    found = blocks(page)
    script = [block for block in found if block.language == "sh"]
    assert len(script) >= PASTED[page]
    paste = _paste(script, installation)
    for block, output in zip(script, paste, strict=True):
        following = found[found.index(block) + 1 :][:1]
        if following and following[0].language in ANSWERS:
            problem = _compare(following[0], output)
            assert problem is None, f"{page.name}:{block.line}: {problem}\n{output}"


@pytest.mark.parametrize("page", [TUTORIAL, *CONTINUED], ids=lambda page: page.stem)
def test_python_examples_do_what_the_page_says(
    page: Path, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLEAGENTS_DATA", str(installation.data))
    assert run_python(page, {} if page == TUTORIAL else _helpers()) == []


def _helpers() -> dict[str, Any]:
    """Return what the tutorial's blocks define for other pages."""
    code = [block.text for block in blocks(TUTORIAL) if block.language == "python"]
    wait = next(text for text in code if "def wait(" in text)
    names: dict[str, Any] = {}
    exec(code[0].partition("\n\nme = ")[0], names)
    exec(wait.partition("\n\nrun = ")[0], names)
    return names


def _paste(script: list[Block], installation: Installation) -> list[str]:
    lines = ["set -eu", *(f"{block.text}\nprintf '{_END}'" for block in script)]
    shell = subprocess.run(
        ["bash", "-s"],
        input="\n".join(lines),
        cwd=ROOT,
        env=installation.environment(),
        capture_output=True,
        text=True,
        timeout=180,
    )
    parts = shell.stdout.split(_END)[:-1]
    if len(parts) < len(script):
        pytest.fail(
            f"the block at line {script[len(parts)].line} failed "
            f"({shell.returncode}):\n{shell.stdout[-1000:]}\n{shell.stderr[-2000:]}"
        )
    return parts


def _compare(shown: Block, output: str) -> str | None:
    if shown.language == "text":
        return None if shown.text.strip() == output.strip() else f"the page shows\n{shown.text}"
    return misfit(json.loads(shown.text), json.loads(output))


def test_the_test_of_the_first_agent_passes(tmp_path: Path) -> None:
    """As in the tutorial: both files in a separate folder, without a database or settings."""
    for name, page in (
        ("refund_desk", ROOT / "README.md"),
        ("test_refund_desk", ROOT / "docs/tutorials/first-agent.md"),
    ):
        (code,) = (block.text for block in blocks(page) if block.language == "python")
        (tmp_path / f"{name}.py").write_text(code)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
        "--rootdir",
        tmp_path,
        tmp_path,
    ]
    environment = {**plain_env(tmp_path / "data"), "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "") and "1 passed" in done.stdout, done.stdout + done.stderr
