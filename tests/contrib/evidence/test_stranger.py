"""A stranger with the page docs/how-to/evidence-and-audit.md, Python, and the bundle of a refund of the demo."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from approvals.models import Approval
from approvals.services import decide
from durableagents.demo.customer_refund import agent
from runs.models import Run
from tests.contrib.evidence.conftest import bundle_of
from tests.integration.approvals.setup import somebody
from tests.integration.demo.conftest import _process, sandbox
from tests.integration.runs.stage import Stage
from tests.system.sandbox.harness import Sandbox

__all__ = ["_process", "sandbox"]
pytestmark = pytest.mark.django_db
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "evidence-and-audit.md"
# The receiver's part of the page.
SECTION = PAGE.read_text().partition("## Check an evidence bundle\n")[2].partition("\n## ")[0]


@pytest.fixture
def refunded(stage: Stage, sandbox: Sandbox) -> Run:
    """A refund of the demo, proposed by its agent, approved by a person, and paid by the shop."""
    run = stage.start(agent, **agent.samples[0].input)
    assert stage.settle(run) == "parked"
    approval = Approval.objects.get(state="open")
    finance = replace(somebody("finance", "approver_finance"), role="approver_finance")
    why = "the guest's photos show it"
    decide(approval.id, verdict="approve", plan_hash=approval.plan_hash, justification=why, by=finance)
    assert stage.settle(run) == "completed"
    return run


def test_the_page_leads_a_stranger_to_who_approved_and_what_was_sent(refunded: Run, tmp_path: Path) -> None:
    """The page's commands are run as they are, in an empty folder, and its output is what they print."""
    bundle = bundle_of(refunded.pk)
    (tmp_path / "bundle.zip").write_bytes(bundle)
    python = shutil.which("python3")
    assert python is not None
    text = ""
    for command in re.findall(r"^\$ (.*)$", SECTION, re.MULTILINE):
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=tmp_path,
            env={"PATH": f"{Path(python).parent}:/usr/bin:/bin", "HOME": os.environ["HOME"]},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        text += done.stdout
    assert "approved by user:finance as approver_finance" in text
    (sample,) = re.findall(r"```text\n(.*?)```", SECTION, re.DOTALL)
    printed = {_shape(line) for line in text.splitlines()}
    assert [line for line in sample.splitlines() if _shape(line) not in printed] == [], text


def _shape(line: str) -> Any:
    """Return a line without the numbers that differ from run to run."""
    return re.sub(r"[0-9a-f]{16,}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+", "#", line).strip()
