"""The demo's agents under the same crash points and the same judge: an e-mail that leaves before its gate, and a review
that is read by children."""

from __future__ import annotations

import pytest

from tests.crash.checker import Expected, judge
from tests.crash.families import between
from tests.crash.stack import Stack

pytestmark = [pytest.mark.processes, pytest.mark.timeout(480)]

ACME = {
    "legal_name": "Acme Pallets Ltd", "country": "GB", "tax_id": "GB123456789",
    "contact_email": "hello@acme-pallets.example", "category": "Pallets",
}  # fmt: skip
MAILED = Expected({"email.send_announcement": 1, "erp.create_vendor": 1}, gates=1)
DOCUMENTS = 6
REVIEW = {"topic": "How do transactions and locks behave?", "documents": DOCUMENTS, "at_once": 3}
REVIEWED = Expected({"library.publish": 1}, children=DOCUMENTS)
READ = Expected({"library.embed": 1})


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
    run_id = stack.api.start("mail-before-gate", ACME)
    assert stack.play(run_id) == says
    assert stack.acted() == points
    assert judge(stack.facts(run_id), MAILED) == []


@pytest.mark.parametrize(
    "points",
    [
        ["CP4@model:kill:1", "CP3@embed_document:kill:1", "CP2@publish_report:kill:1"],
        ["CP2@embed_document:kill:2", "CP6@model:kill:2", "CP3@publish_report:kill:1"],
        ["CP8:kill:2", "CP7:kill:2", "CP5:kill:5"],
    ],
)
def test_a_review_reads_each_document_once_wherever_its_workers_die(stack: Stack, points: list[str]) -> None:
    run_id = stack.api.start("literature-review", REVIEW)
    (question,) = stack.waits(run_id, "input")["waiting_for"]
    stack.arm(*points)
    stack.api.answer(run_id, question)
    assert stack.play(run_id, seconds=90) == []
    assert stack.acted() == points
    review, children = stack.facts(run_id), stack.children(run_id)
    assert judge(review, REVIEWED) + [found for child in children for found in judge(child, READ)] == []
    assert list(between(review, children, REVIEWED)) == [] and len(children) == DOCUMENTS
    assert review.run["output"]["documents_read"] == DOCUMENTS
