"""The demo's agents under the same crash points and the same judge: an e-mail that leaves before its gate, and a review
that is read by children."""

from __future__ import annotations

import pytest

from tests.system.crash.checker import judge
from tests.system.crash.families import judge_family
from tests.system.crash.guests import DOCUMENTS, MAIL, REVIEW
from tests.system.crash.stack import Stack

pytestmark = [pytest.mark.processes, pytest.mark.timeout(480)]


@pytest.mark.parametrize(
    ("points", "says"),
    [
        (["CP1@send_announcement:kill:1"], []),
        (["CP2@send_announcement:kill:1"], ["did_not"]),
        (["CP3@send_announcement:kill:1"], []),
        (["CP4@send_announcement:kill:1"], []),
        (["CP6@send_announcement:kill:1"], []),
        (["CP2@create_vendor:kill:1"], []),
        (["CP3@create_vendor:kill:1"], []),
        (["CP4@create_vendor:kill:1"], []),
        (["CP4@send_announcement:kill:1", "CP0:kill:1", "CP3@create_vendor:kill:1"], []),
    ],
)
def test_the_e_mail_leaves_once_wherever_the_worker_dies(stack: Stack, points: list[str], says: list[str]) -> None:
    """The mail server's list tells what became of a mail that it has; of one that it has not, a person does."""
    stack.arm(*points)
    run_id = stack.api.start(MAIL.agent, MAIL.input)
    assert stack.play(run_id) == says
    assert stack.acted() == points
    assert judge(stack.facts(run_id), MAIL.expected) == []


@pytest.mark.parametrize(
    "points",
    [
        ["CP4@model:kill:1", "CP3@embed_document:kill:1", "CP2@publish_report:kill:1"],
        ["CP2@embed_document:kill:2", "CP6@model:kill:2", "CP3@publish_report:kill:1"],
        ["CP8:kill:1", "CP7:kill:2", "CP5:kill:5"],
    ],
)
def test_a_review_reads_each_document_once_wherever_its_workers_die(stack: Stack, points: list[str]) -> None:
    run_id = stack.api.start(REVIEW.agent, REVIEW.input)
    (question,) = stack.waits(run_id, "input")["waiting_for"]
    stack.arm(*points)
    stack.api.tell(run_id, question)
    assert stack.play(run_id, seconds=90) == []
    assert sorted(stack.acted()) == sorted(points), "which of them comes first the children's pace decides"
    review, children = stack.facts(run_id), stack.children(run_id)
    assert judge_family(review, children, REVIEW.expected, REVIEW.childs) == [] and len(children) == DOCUMENTS
    assert review.run["output"]["documents_read"] == DOCUMENTS
