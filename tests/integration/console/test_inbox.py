"""Deciding: the whole plan is shown, the first decision wins, nothing typed is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from django.contrib.auth.models import User
from pydantic import BaseModel, Field

from approvals.models import Approval, Decision
from approvals.queue_models import Queue
from durableagents import Agent, Context, End
from durableagents.identity import own_tags
from ledger import events as e
from ledger.verification.runs import verify
from runs.engine.agents import registry
from runs.models import Run, Wait
from runs.services import lifecycle
from tests.cases import each_case
from tests.integration.console.conftest import SHOP, Reader, filled_in, start, text_of
from tests.integration.console.stage import question, settled, working
from tests.integration.runs.stage import events

pytestmark = pytest.mark.django_db(transaction=True)

HOSTILE = "</textarea><script>alert(1)</script>\u202e\u200bcod\u0435\nAPPROVED BY LEGAL" + "\n" * 500 + "end"
HOSTILE_ANSWER = "<script>alert(1)</script>\u202e"


def test_money_first_then_everything_that_is_bound(finance: Reader, asked: Callable[..., Approval]) -> None:
    approval = asked(amount=84_000, extra={"deep": [{"x": None}], "none": {}})
    page = finance.read(f"/inbox/{approval.id}")
    for words in (
        "Buy it",
        "$84,000.00",
        "Spends money.",
        "extra.deep[0].x null",
        "extra.none {}",
        "item chairs",
        "Everything",
        "Quote",
        "from supplier",
        "price 84000",
        "It is needed.",
        "Requested by key:shop",
        "If approved",
        "If rejected",
        "revision 1",
    ):
        assert words in page, words
    search = re.search(r'class="hash">([^<]+)<', finance.get(f"/inbox/{approval.id}").content.decode())
    assert search is not None and search.group(1).replace(" ", "") == approval.plan_hash.replace(" ", "")


def test_hostile_words_are_inert_and_what_they_hide_is_seen(finance: Reader, asked: Callable[..., Approval]) -> None:
    approval = asked(item=HOSTILE, why=HOSTILE)
    for path in (
        f"/inbox/{approval.id}",
        "/inbox",
        "/",
        f"/runs/{approval.run_id}",
        f"/runs/{approval.run_id}?tab=journal",
        "/runs",
    ):
        page = finance.get(path).content.decode()
        assert "<script>alert" not in page and "\u202e" not in page and "\u200b" not in page, path
    page = finance.read(f"/inbox/{approval.id}")
    assert "U+202E" in page and "U+200B" in page and "U+0435" in page and "line break × 500" in page


def test_a_decision_is_taken_and_told(finance: Reader, asked: Callable[..., Approval]) -> None:
    approval = asked()
    answer = finance.client.post(
        f"/approvals/{approval.id}/decision",
        {"verdict": "approve", "plan_hash": approval.plan_hash, "justification": "Fine by me."},
        follow=True,
    )
    page = text_of(answer)
    assert (
        "Approved. The run continues." in page
        and "Approved by user:approver_finance as Finance approver" in page
        and "“Fine by me.”" in page
    )
    assert "Fine by me." in finance.read("/audit") and "Fine by me." in finance.read(
        f"/runs/{approval.run_id}", tab="decisions"
    )
    assert Decision.objects.get().role == "approver_finance"


def test_the_second_decision_learns_who_was_first_and_keeps_its_text(
    finance: Reader, reader: Callable[..., Reader], asked: Callable[..., Approval]
) -> None:
    approval = asked()
    form = {"verdict": "reject", "plan_hash": approval.plan_hash}
    finance.post(f"/approvals/{approval.id}/decision", **form, justification="No.")
    answer = reader("approver_finance", name="frank").post(
        f"/approvals/{approval.id}/decision", **form, justification="My careful reasons."
    )
    page = text_of(answer)
    assert (
        answer.status_code == 409 and "rejected by user:approver_finance at" in page and "My careful reasons." in page
    )
    assert Decision.objects.count() == 1


@each_case(
    ("change", "status", "words"),
    [
        ({"plan_hash": "sha256:0"}, 409, "names a plan that isn't the current one"),
        ({"justification": " "}, 422, "needs a reason"),
        ({"verdict": "maybe"}, 422, "Choose Approve"),
        ({"justification": "why\x00not"}, 422, "contains a NUL character"),
        ({"amount": "9"}, 422, "it does not have"),
        ({"justification": "x" * 4001}, 422, "has 4001 characters"),
        ({"plan_hash": "x" * 201}, 422, "fields: plan_hash"),
        ({"justification": "x" * 2_000_000}, 413, "larger than 1048576 bytes"),
    ],
)
def test_what_does_not_hold_is_refused_at_the_form(
    finance: Reader, asked_plainly: Approval, change: dict[str, str], status: int, words: str
) -> None:
    form = {"verdict": "approve", "plan_hash": asked_plainly.plan_hash, "justification": "Kept words."} | change
    answer = finance.post(f"/approvals/{asked_plainly.id}/decision", **form)
    assert answer.status_code == status and words in text_of(answer)
    assert form["justification"].strip().replace("\x00", "\ufffd") in answer.content.decode()
    assert Approval.objects.get().state == "open"


@each_case(
    "wrong",
    [
        {},
        {"verdict": "approve", "justification": "Why not."},
        {"verdict": "maybe"},
        {"verdict": "approve", "amount": "9"},
        {"verdict": "approve", "plan_hash": "x" * 201},
        {"verdict": "approve", "justification": "a\x00"},
        {"justification": "x" * 2_000_000},
    ],
)
def test_who_may_not_decide_is_told_so_and_nothing_of_the_form(
    reader: Callable[..., Reader], asked_plainly: Approval, wrong: dict[str, str]
) -> None:
    shop = reader("approver_finance", name="shop")  # the name that started the run
    for who, words in ((reader("approver_legal"), "Only approver_finance decides"), (shop, "You started this run")):
        answer = who.client.post(
            f"/approvals/{asked_plainly.id}/decision", {"plan_hash": asked_plainly.plan_hash} | wrong
        )
        text = text_of(answer)
        assert answer.status_code == 403 and words in text
        assert not any(word in text for word in ("Choose approve", "plan_hash", "field of this form", "NUL", "larger"))
    assert Approval.objects.get().state == "open"


@each_case("role", ["operator", "auditor", "approver_legal"])
def test_other_roles_read_along(reader: Callable[..., Reader], asked_plainly: Approval, role: str) -> None:
    page = reader(role).get(f"/inbox/{asked_plainly.id}")
    assert b'id="decide"' not in page.content and "can decide this" in text_of(page)
    is_read = role != "approver_legal"  # others without the right are told so
    assert ("$5.00" in text_of(page)) is is_read
    assert ("You can't see the details" in text_of(page)) is not is_read


def test_an_integrator_reads_only_their_own(reader: Callable[..., Reader], asked: Callable[..., Approval]) -> None:
    approval, somebody = asked(), reader("integrator")
    assert somebody.get(f"/inbox/{approval.id}").status_code == 404
    assert str(approval.id) not in somebody.get("/inbox").content.decode()
    above = lifecycle.start("buyer", {"item": "chairs"}, by=SHOP, tags=["acme"])
    Run.objects.filter(pk=approval.run_id).update(parent=above.pk, parent_slot="0.1/1", depth=1)
    own_tags.give(somebody.user, "acme", justification="Theirs.")
    assert "can decide this" in somebody.read(f"/inbox/{approval.id}") and "$5.00" in somebody.read("/inbox")


def test_someone_who_asked_has_no_button(reader: Callable[..., Reader], asked: Callable[..., Approval]) -> None:
    page = reader("approver_finance", name="shop").get(f"/inbox/{asked().id}")
    assert b'id="decide"' not in page.content and "You started this run, so someone else has to decide" in text_of(page)


def test_a_revision_stands_alongside_the_one_before_and_why_that_was_rejected(finance: Reader) -> None:
    run: Run = start(amount=100)
    with working():
        settled(run, "waiting_human")
        first = question(run)
        finance.post(
            f"/approvals/{first.id}/decision",
            verdict="reject",
            plan_hash=first.plan_hash,
            justification="Half of it will do.",
        )
        second = question(run, revision=2)
    answer = finance.get(f"/inbox/{second.id}")
    page = text_of(answer)
    assert "compared with revision 1" in page and "Revision 1 was rejected" in page and "“Half of it will do.”" in page
    assert "<del>100</del> <ins>50</ins>" in answer.content.decode() and "chairs unchanged" in page
    assert "rejected: Half of it will do." in finance.read(f"/runs/{run.id}")


def test_the_list_is_by_deadline_and_counted(finance: Reader, asked: Callable[..., Approval]) -> None:
    later, sooner = asked(item="later"), asked(item="sooner")
    Approval.objects.filter(pk=sooner.pk).update(deadline=later.opened_at)
    page = finance.get("/inbox").content.decode()
    assert page.index(f"item-{sooner.id}") < page.index(f"item-{later.id}")
    assert "2 waiting for you" in text_of(finance.get("/"))


ON_IT, LET_GO, OVER = "Assign to me (10 min)", "Release", "Take over from"


@pytest.fixture
def asked_plainly(asked: Callable[..., Approval]) -> Approval:
    return asked()


@pytest.fixture
def frank(reader: Callable[..., Reader]) -> Reader:
    return reader("approver_finance", name="frank")


def on(who: Reader, approval: Approval, **form: object) -> str:
    answer = who.client.post(f"/approvals/{approval.id}/claims", form, follow=True)
    assert answer.status_code == 200
    return text_of(answer)


@pytest.mark.needs("casework")
def test_someone_who_may_decide_says_that_they_are_on_it_and_everybody_else_reads_it(
    finance: Reader, frank: Reader, reader: Callable[..., Reader], asked_plainly: Approval
) -> None:
    page = finance.read(f"/inbox/{asked_plainly.id}")
    assert ON_IT in page and "Unassigned" in page
    page = on(finance, asked_plainly)
    assert "Assigned to you until" in page and "Extend by 10 min" in page and LET_GO in page and OVER not in page
    page = frank.read(f"/inbox/{asked_plainly.id}")
    assert re.search(r"ssigned to approver_finance until [^.]*\. You can still decide", page)
    assert f"{OVER} approver_finance" in page and ON_IT not in page
    assert "ssigned to approver_finance until" in frank.read("/inbox") and "assigned to you until" in finance.read(
        "/inbox"
    )
    for role in ("operator", "auditor"):
        page = reader(role).read(f"/inbox/{asked_plainly.id}")
        assert "ssigned to approver_finance until" in page and OVER not in page and ON_IT not in page
        assert "ssigned to approver_finance until" in reader(role).read("/inbox")
    assert "Assigned to user:approver_finance until" in reader("auditor").read(f"/inbox/{asked_plainly.id}"), (
        "its history"
    )


@pytest.fixture
def asked_deep(asked: Callable[..., Approval]) -> Approval:
    return asked(amount=84_000, extra={"deep": 1})


def changed(who: Reader, approval: Approval, **typed: Any) -> Any:
    form = {"plan_hash": approval.plan_hash, "item": "chairs", "amount": "84000", **typed}
    return who.post(f"/approvals/{approval.id}/changes", **form)


def looked_at(answer: Any) -> str:
    found = re.search(r'name="looked" value="([^"]*)"', answer.content.decode())
    assert found is not None
    return found.group(1)


def test_what_would_change_is_shown_and_then_exactly_that_is_approved(finance: Reader, asked_deep: Approval) -> None:
    assert "Change…" in finance.read(f"/inbox/{asked_deep.id}")
    page = finance.read(f"/approvals/{asked_deep.id}/changes")
    assert 'value="look">' in finance.get(f"/approvals/{asked_deep.id}/changes").content.decode()
    assert "Editable values" in page and "Approve with these changes" not in page
    look = changed(finance, asked_deep, **{"amount": "500", "step": "look"})
    words = text_of(look)
    assert "<dd><del>84000</del> <ins>500</ins></dd>" in look.content.decode().replace("\n</dd>", "</dd>"), "as it is"
    assert look.status_code == 200 and "84000 500" in words and "Approve with these changes" in words
    assert Approval.objects.get().state == "open", "looking does nothing"
    sent = changed(
        finance,
        asked_deep,
        **{"amount": "500", "step": "send", "looked": looked_at(look)},
        justification="Half a chair.",
    )
    second = Approval.objects.get(revision=2)
    assert sent.status_code == 302 and sent["Location"] == f"/inbox/{second.id}"
    page = finance.read(f"/inbox/{second.id}")
    assert "Approved" in page and "84000 500" in page and "Revision 1 was amended" in page
    first = finance.read(f"/inbox/{asked_deep.id}")
    assert "Amended by user:approver_finance" in first and "revision 2" in first
    assert json.loads(bytes(second.plan))["headline"] == "$500.00"
    with working():
        settled(asked_deep.run, "completed")
    (intent,) = events(asked_deep.run, e.ToolInvoked)
    assert intent.payload["arguments"]["amount"] == 500 and verify(asked_deep.run_id).problems == []
    for tab in ("timeline", "decisions", "journal", "transcript"):
        finance.read(f"/runs/{asked_deep.run_id}", tab=tab)
    read = finance.read(f"/runs/{asked_deep.run_id}")
    assert (
        "changed by user:approver_finance" in read
        and "approved: Half a chair." in read
        and "nobody answered" not in read
    )
    assert "amend" in finance.read("/audit", action="amend")


def test_what_was_not_looked_at_is_not_sent(finance: Reader, asked_deep: Approval) -> None:
    look = changed(finance, asked_deep, **{"amount": "500", "step": "look"})
    other = changed(
        finance, asked_deep, **{"amount": "90000", "step": "send", "looked": looked_at(look)}, justification="More."
    )
    assert other.status_code == 200 and "84000 90000" in text_of(other) and "More." in other.content.decode()
    assert Approval.objects.get().state == "open"


@each_case(
    ("typed", "words"),
    [
        ({"amount": "much"}, "whole number"),
        ({"amount": ""}, "is empty"),
        ({}, "change a value, or approve it as it is"),
        ({"why": "no field"}, "it does not have"),
    ],
)
def test_what_does_not_fit_is_said_at_its_field_and_what_was_typed_is_kept(
    finance: Reader, asked_deep: Approval, typed: dict[str, str], words: str
) -> None:
    answer = changed(finance, asked_deep, **{"item": "chairs", **typed}, step="look")
    assert answer.status_code == 422 and words in text_of(answer)
    assert Approval.objects.get().state == "open"


def test_the_second_keeps_their_text(finance: Reader, reader: Callable[..., Reader], asked_deep: Approval) -> None:
    frank = reader("approver_finance", name="frank")
    look = changed(frank, asked_deep, **{"item": "my very own chairs", "step": "look"})
    finance.post(
        f"/approvals/{asked_deep.id}/decision",
        verdict="reject",
        plan_hash=asked_deep.plan_hash,
        justification="No chairs.",
    )
    answer = changed(
        frank,
        asked_deep,
        **{"item": "my very own chairs", "step": "send", "looked": looked_at(look)},
        justification="My careful reasons.",
    )
    page = answer.content.decode()
    assert answer.status_code == 409 and "rejected by user:approver_finance" in text_of(answer)
    assert "my very own chairs" in page and "My careful reasons." in page
    assert 'value="look" disabled>' in page and 'value="send"' not in page
    assert Decision.objects.count() == 1


def test_someone_who_may_not_decide_it_changes_nothing(reader: Callable[..., Reader], asked_deep: Approval) -> None:
    legal = reader("approver_legal")
    assert "Only approver_finance decides" in legal.read(f"/approvals/{asked_deep.id}/changes")
    answer = changed(legal, asked_deep, **{"amount": "1", "step": "send"}, justification="so be it")
    assert answer.status_code == 403 and Approval.objects.get().state == "open"


HOSTILE_AREA = "</textarea><script>alert(1)</script> \"quoted\" & 'more'"
SET = {"reasons": f"Budget line is used up.\r\n\r\n  {HOSTILE_AREA}  \r\n", "justification": "as agreed"}


@pytest.fixture
def boss(db: None) -> Reader:
    return Reader(User.objects.create_superuser("boss"))


def field(page: str) -> str:
    found = re.search(r"<textarea[^>]*justification[^>]*>([^<]*)</textarea>", page)
    assert found is not None
    return found.group(1)


def test_reasons_are_set_one_in_each_line_and_shown_to_everybody(boss: Reader, finance: Reader) -> None:
    assert "None. Approvers write" in finance.read("/queues/of/finance_po")
    assert boss.post("/queues/of/finance_po/reasons", **SET).status_code == 302
    assert Queue.objects.get(name="finance_po").reasons == ["Budget line is used up.", HOSTILE_AREA]
    page = finance.get("/queues/of/finance_po").content.decode()
    assert "<script>alert" not in page and "Budget line is used up." in page and "reasons-form" not in page
    form = boss.get("/queues/of/finance_po").content.decode()
    assert "Budget line is used up.\n&lt;/textarea&gt;" in form, "the form has what is set"
    emptied = boss.post("/queues/of/finance_po/reasons", reasons=" \r\n ", justification="no more")
    assert emptied.status_code == 302 and Queue.objects.get(name="finance_po").reasons is None


def test_offered_reasons_fill_the_field_and_may_be_changed(
    boss: Reader, finance: Reader, asked_plainly: Approval
) -> None:
    assert "data-reason" not in finance.get(f"/inbox/{asked_plainly.id}").content.decode()
    boss.post("/queues/of/finance_po/reasons", **SET)
    page = finance.get(f"/inbox/{asked_plainly.id}").content.decode()
    assert page.count("data-reason=") == 2 and "<script>alert" not in page and field(page) == ""
    chosen = finance.get(f"/inbox/{asked_plainly.id}", reason="1").content.decode()
    assert field(chosen) == "Budget line is used up."
    hostile = finance.get(f"/inbox/{asked_plainly.id}", reason="2").content.decode()
    assert "<script>alert" not in hostile and field(hostile).startswith("&lt;/textarea&gt;")
    for number in ("0", "3", "-1", "x", "1" * 400, "²", "01", "\x00", "</textarea>"):
        assert field(finance.get(f"/inbox/{asked_plainly.id}", reason=number).content.decode()) == "", number
    form = {
        "verdict": "reject",
        "plan_hash": asked_plainly.plan_hash,
        "justification": "Budget line is used up. Ask in May.",
    }
    assert finance.post(f"/approvals/{asked_plainly.id}/decision", **form).status_code == 302
    assert Decision.objects.get().justification == "Budget line is used up. Ask in May."
    assert "data-reason" not in finance.get(f"/inbox/{asked_plainly.id}").content.decode()


class Wanted(BaseModel):
    title: str = "a chair"


class Address(BaseModel):
    street: str = Field(min_length=1, max_length=80)


class Visit(BaseModel):
    day: Literal["monday", "friday"]
    people: int = Field(title="How many", ge=1, le=9)
    justification: str = Field(default="", max_length=100, description="A name that the page uses too.")
    where: Address


@pytest.fixture
def run() -> Iterator[Run]:
    agent = Agent("visit", "1.0.0", input=Wanted, state=Wanted)

    @agent.node(start=True)
    async def plan(state: Wanted, ctx: Context) -> End:
        both = (
            ctx.ask(
                of,
                title=f"When? {of} {HOSTILE_ANSWER}",
                schema=Visit,
                prefilled={"day": "monday", "where": {"street": HOSTILE_ANSWER}},
            )
            for of in ("legal", "finance_po")
        )
        return End([visit.model_dump() for visit in await ctx.gather(*both)])

    agent.validate()
    run = lifecycle.start("visit", {"title": "chairs for the quay"}, by=SHOP)
    with working():
        yield settled(run, "waiting_human")
    registry.remove(agent.graph_id)


def wait_of(run: Run, of: str) -> Wait:
    return Wait.objects.get(run=run, kind="input", detail__of=of)


def form_of(answer: Any, wait: Wait) -> dict[str, str]:
    page = answer.content.decode()
    form = page[page.index(f'id="answer-{wait.id}"') :]
    form = form[: form.index("</form>")]
    return {**filled_in(form), "justification": ""}


def test_a_question_is_found_and_answered_by_whom_it_is_put_to(reader: Callable[..., Reader], run: Run) -> None:
    legal, finance = reader("approver_legal"), reader("approver_finance")
    mine, theirs = wait_of(run, "legal"), wait_of(run, "finance_po")
    for place in ("/", "/inbox"):
        page = legal.get(place).content.decode()
        assert f"#question-{mine.id}" in page and f"#question-{theirs.id}" not in page and "chairs for the quay" in page
        assert "<script>alert" not in page
    assert "1 waiting for you" in legal.read("/inbox")
    page = legal.get(f"/runs/{run.id}")
    assert f'id="answer-{mine.id}"' in page.content.decode() and f'id="answer-{theirs.id}"' not in page.content.decode()
    assert (
        "To be answered by approver finance or operator" in text_of(page)
        and "<script>alert" not in page.content.decode()
    )
    form = form_of(page, mine)
    name = next(key for key in form if key.endswith(".people")).partition(".")[0]
    typed = form | {f"{name}.people": "3", f"{name}.where.street": "Quay 1", "justification": "they called"}
    answer = legal.client.post(f"/runs/{run.id}/answers/{mine.id}", typed, follow=True)
    assert answer.status_code == 200 and "Answered. The run continues." in text_of(answer)
    (found,) = events(run, e.InputAnswered)
    assert (found.by, found.role) == ("user:approver_legal", "approver_legal")
    given = {"day": "monday", "people": 3, "where": {"street": "Quay 1"}}
    assert found.payload == {"answer": given, "justification": "they called"}
    on_people = legal.read(f"/runs/{run.id}?tab=decisions")
    assert "Question answered by user:approver_legal" in on_people and "“they called”" in on_people
    assert "InputAnswered answered by user:approver_legal" in legal.read(f"/runs/{run.id}?tab=journal")
    settled(run, "waiting_human")
    assert f"#question-{theirs.id}" in finance.get("/inbox").content.decode()
    assert f"#question-{mine.id}" not in legal.get("/inbox").content.decode()


def test_what_is_wrong_stands_at_its_field_and_nothing_typed_is_lost(operator: Reader, run: Run) -> None:
    wait = wait_of(run, "legal")
    form = form_of(operator.get(f"/runs/{run.id}"), wait)
    name = next(key for key in form if key.endswith(".people")).partition(".")[0]
    typed = {f"{name}.people": "many", f"{name}.where.street": "Kept <i>words</i>", "justification": "kept too"}
    answer = operator.post(f"/runs/{run.id}/answers/{wait.id}", **{**form, **typed})
    page = answer.content.decode()
    assert answer.status_code == 422 and not events(run, e.InputAnswered)
    assert re.search(rf'aria-invalid="true"[^>]*id="f-{name}-people"', page) and page.count('aria-invalid="true"') == 1
    text = text_of(answer)
    assert "is not a whole number; give a whole number, such as 12" in text and "is not of type" not in text
    assert 'value="many"' in page and "Kept &lt;i&gt;words&lt;/i&gt;" in page and "kept too" in page


def test_a_second_answer_is_told_whose_the_first_was(reader: Callable[..., Reader], operator: Reader, run: Run) -> None:
    wait = wait_of(run, "legal")
    form = form_of(operator.get(f"/runs/{run.id}"), wait)
    name = next(key for key in form if key.endswith(".people")).partition(".")[0]
    form |= {f"{name}.people": "2"}
    first = operator.post(f"/runs/{run.id}/answers/{wait.id}", **form)
    second = reader("approver_legal").post(
        f"/runs/{run.id}/answers/{wait.id}", **(form | {"justification": "too late"})
    )
    assert first.status_code == 302 and second.status_code == 409
    assert "It was answered by user:operator" in text_of(second) and "too late" in text_of(second)


WRONG_FORMS: dict[str, dict[str, str]] = {
    "nothing": {},
    "a stray field": {"colour": "red"},
    "too large": {"justification": "x" * 1_100_000},
    "NUL": {"justification": "a\x00"},
}


@each_case("kind", WRONG_FORMS)
def test_others_may_not_answer_nor_learn_of_faults(reader: Callable[..., Reader], run: Run, kind: str) -> None:
    wait = wait_of(run, "legal")
    form = {"justification": "please"} | WRONG_FORMS[kind]
    assert reader("integrator").client.post(f"/runs/{run.id}/answers/{wait.id}", form).status_code == 404
    for role in ("approver_finance", "auditor"):
        answer = reader(role).client.post(f"/runs/{run.id}/answers/{wait.id}", form)
        text = text_of(answer)
        assert answer.status_code == 403 and "Only approver_legal or operator may answer this" in text
        assert "is missing" not in text and "field of this form" not in text and "NUL" not in text
    assert not events(run, e.InputAnswered)
