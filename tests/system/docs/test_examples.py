"""The pages' examples work when pasted, and answer what the pages say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import plain_env
from tests.system.infra.installation import Installation
from tests.unit.docs.pages import ROOT, Block, blocks, misfit

PASTED = {
    ROOT / "docs" / "tutorials" / "api.md": 8,
    ROOT / "docs" / "tutorials" / "agent.md": 3,
    ROOT / "docs" / "api.md": 8,
    ROOT / "docs" / "budgets.md": 4,
    ROOT / "docs" / "certification.md": 2,
    ROOT / "docs" / "models.md": 4,
    ROOT / "docs" / "releases.md": 3,
    ROOT / "docs" / "screening.md": 1,
    ROOT / "docs" / "undo.md": 2,
}  # the minimum number of blocks
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
    for name, page in (("refund_desk", ROOT / "README.md"), ("test_refund_desk", ROOT / "docs/tutorials/agent.md")):
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
