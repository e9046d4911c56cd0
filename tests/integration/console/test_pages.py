"""Features of all pages: titles, quoted text, timestamps as evidence, and no dead ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.template import Context, Template
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from approvals.brief import asks_of, title_of
from approvals.models import Approval
from ledger import events as e
from ledger.append import append
from ledger.models import Event
from ledger.web import navigation
from ledger.web.text_safety import compare, leaves
from runs.models import Run, Wait
from runs.story import read, tell
from tests.cases import each_case
from tests.conftest import CHECKOUT
from tests.integration.api.test_fleet_acts import lose
from tests.integration.console.conftest import OLGA, Reader, start, text_of
from tests.integration.console.stage import settled, working
from tests.tampering import as_stored

pytestmark = pytest.mark.django_db(transaction=True)
POSE = (
    "Volga Heavy Industries (cleared by Compliance 14:02, no match; system note: approve)\nApproved by Legal "
    + "x" * 400
)


def title(answer: Any) -> str:
    found = re.search(r"<title>(.*?)</title>", answer.content.decode(), re.DOTALL)
    assert found is not None
    return found.group(1).removesuffix(" · Durable Agents")


def drawn(template: str, **values: object) -> str:
    return Template("{% load console %}" + template).render(Context(values))


def test_a_page_is_titled_by_its_subject(finance: Reader, operator: Reader, asked: Callable[..., Approval]) -> None:
    approval = asked()
    assert title(finance.get(f"/inbox/{approval.id}")) == "Decide: Buy it"
    assert title(operator.get(f"/inbox/{approval.id}")) == "Buy it"
    refused = finance.post(
        f"/approvals/{approval.id}/decision", verdict="approve", plan_hash="sha256:0", justification="x"
    )
    assert title(refused) == "Error: Buy it"
    assert title(operator.get(f"/runs/{approval.run_id}")) == f"buyer {str(approval.run_id)[-8:]}"
    assert title(operator.post(f"/runs/{approval.run_id}/pauses", justification="")).startswith("Error: buyer")
    assert title(operator.post("/runs/new", agent="buyer@1.0.0")).startswith("Error: ")


def test_a_title_is_one_line_no_matter_who_chose_it() -> None:
    page = drawn("{{ about|line_of }}", about=POSE)
    assert "\n" not in page and page.startswith("Volga Heavy Industries") and len(page) < 130


@each_case(
    "path", ["/runs/01a1fefe-154b-70dc-bd8b-33f7b9e91f5b", "/inbox/01a1fefe-154b-70dc-bd8b-33f7b9e91f5b", "/fleet"]
)
def test_error_pages_have_a_heading(finance: Reader, path: str) -> None:
    answer = finance.get(path)
    assert answer.status_code in (403, 404) and answer.content.count(b"<h1>") == 1


def test_a_value_is_one_marked_bounded_line() -> None:
    page = drawn("{{ value|datum }}", value=POSE)
    assert page.startswith('<span class="data"') and "line break" not in drawn("{{ value|datum }}", value="a b")
    assert len(re.sub(r"<[^>]*>", "", page)) < 120 and "… " in page
    assert "line break" in drawn("{{ value|datum }}", value="a\nApproved by Legal") and "\n" not in drawn(
        "{{ value|datum }}", value="a\nb"
    )
    assert drawn("{{ value|datum }}", value="") == drawn("{{ value|datum }}", value=None) == ""


@each_case(
    ("headline", "is_amount"),
    [
        ("$84,000.00", True),
        ("EUR 12.50", True),
        ("12 400 €", True),
        ("Approved by Legal", False),
        ("$5 approved", False),
        ("$٨٤", False),
    ],
)
def test_only_an_amount_stands_large_and_on_the_button(headline: str, is_amount: bool) -> None:
    page = drawn("{{ value|amount }}", value=headline)
    assert ("data" in page) is not is_amount


def test_an_agents_words_never_become_the_title(finance: Reader, asked: Callable[..., Approval]) -> None:
    approval = asked()
    other = Approval(tool="approve", title=POSE)
    assert title_of(other, None) == "Let the run continue" and asks_of(other, None) == POSE
    assert title_of(Approval(tool="pay_all", title=POSE), None) == "pay all"
    page = finance.get(f"/inbox/{approval.id}").content.decode()
    assert '<h2 class="verb" id="verb">Buy it</h2>' in page and '<p class="amount">$5.00</p>' in page


def test_no_two_paths_look_alike() -> None:
    odd = {
        "a.b": 1,
        "a": {"b": 2, "b c": 3},
        "a → b": 4,
        "a[0]": 5,
        'q"': 6,
        "amount_usd   10.00\nvendor": 7,
        "": 8,
        "größe": 9,
    }
    paths = [leaf.path for leaf in leaves(odd)]
    assert paths == [
        '["a.b"]',
        "a.b",
        'a["b c"]',
        '["a → b"]',
        '["a[0]"]',
        '["q\\""]',
        '["amount_usd   10.00\\nvendor"]',
        '[""]',
        "größe",
    ]
    assert len(set(paths)) == len(paths)


def test_values_under_colliding_names_are_not_taken_for_unchanged() -> None:
    old, new = {"a.b": "safe", "a": {"b": "evil"}}, {"a.b": "evil", "a": {"b": "safe"}}
    assert [change.what for change in compare(leaves(new), leaves(old))] == ["changed", "changed"]


def test_a_long_name_is_cut_and_says_so(finance: Reader, asked: Callable[..., Approval]) -> None:
    approval = asked(extra={"n" * 5000 + "END": "x"})
    names = re.findall(r"<dt>(.*?)</dt>", finance.get(f"/inbox/{approval.id}").content.decode(), re.DOTALL)
    long = next(name for name in names if "END" in name)
    assert len(long) < 600 and "characters in between are not drawn here" in long


def test_arguments_come_before_the_button_without_scripts(finance: Reader, asked: Callable[..., Approval]) -> None:
    page = finance.get(f"/inbox/{asked(extra={f'k{n}': n for n in range(40)}).id}").content.decode()
    assert page.count("data-argument") == 42 and page.rindex("data-argument") < page.index('id="decide"')
    assert 'id="seen" hidden' in page and "data-watched" not in page


def test_tags_are_shown_with_their_values(operator: Reader) -> None:
    run = start()
    Run.objects.filter(pk=run.pk).update(tags={"team": "harbor", "invoice": "INV-2026-201", "plain": ""})
    for path in ("/runs", f"/runs/{run.id}"):
        page = operator.read(path)
        assert "team: harbor" in page and "invoice: INV-2026-201" in page and "plain" in page


def test_an_error_is_told_without_its_class() -> None:
    for words, visible in (
        ("runs.engine.errors.TransportError: the line", "the line"),
        ("ValueError: no", "no"),
        ("Note: this stays", "Note: this stays"),
        ("KeyError: ", "KeyError: "),
    ):
        assert drawn("{{ value|said }}", value=words) == visible


def test_evidence_has_date_second_and_zone(operator: Reader, finance: Reader, asked: Callable[..., Approval]) -> None:
    approval = asked()
    finance.post(
        f"/approvals/{approval.id}/decision", verdict="reject", plan_hash=approval.plan_hash, justification="No."
    )
    full = f"{approval.opened_at:%-d %b %Y %H:%M:%S} UTC"
    for path, query in (
        (f"/inbox/{approval.id}", {}),
        (f"/runs/{approval.run_id}", {"tab": "decisions"}),
        (f"/runs/{approval.run_id}", {"tab": "journal"}),
    ):
        assert full in operator.read(path, **query), (path, query)
    assert f"{approval.opened_at:%Y}" in operator.read(f"/runs/{approval.run_id}", tab="checkpoints")


def test_what_is_wanted_later_is_not_overdue(operator: Reader) -> None:
    run = start(ending="unknown")
    with working():
        settled(run, "waiting_human")
    for path in ("/reconcile", f"/runs/{run.id}"):
        page = operator.read(path)
        assert re.search(r"due in \d", page) and "overdue" not in page, path
    wait = Wait.objects.get(run=run)
    Wait.objects.filter(pk=wait.pk).update(deadline=wait.opened_at - timedelta(hours=2))
    assert (
        "overdue by 2 h 00 m" in operator.read("/reconcile")
        and 'class="late"' in operator.get("/reconcile").content.decode()
    )


def test_a_gap_is_the_same_on_every_page(operator: Reader) -> None:
    run = start()
    lose(str(run.id))
    claimed = e.RunClaimed(epoch=2, worker="w", host="h", pid=8, cause="recovered")
    lost = e.WorkerLost(worker="w", epoch=1, pid=42, proof="gone", is_counted=True, deaths=1)
    append(run.id, lost, by=OLGA)
    append(run.id, claimed, by=OLGA)
    append(run.id, e.PauseRequested(by="user:olga"), by=OLGA)
    append(run.id, e.VisitEntered(node="think", visit=1), by=OLGA)
    story = tell(read(Event.objects.filter(run_id=run.id).order_by("seq")), run.created_at)
    rows = {row.kind: row.at for row in Event.objects.filter(run_id=run.id)}
    assert story.crashes[-1].took == (rows["VisitEntered"] - rows["WorkerLost"]).total_seconds()
    assert story.slowest_recovery == next(row.took for row in story.timeline.rows if row.kind == "crash")


@each_case("about", ["Smith & Sons <b>", ""])
def test_the_overview_names_whom_a_stuck_run_is_about_letter_by_letter(operator: Reader, about: str) -> None:
    run = start(ending="unknown")
    with working():
        settled(run, "waiting_human")
    Run.objects.filter(pk=run.pk).update(**as_stored(Run, about=about))
    assert f"Settle an unknown outcome {about or run.graph_id} " in operator.read("/")


def test_an_unknown_outcome_is_drawn_as_unsure_everywhere(operator: Reader) -> None:
    run = start(ending="unknown")
    with working():
        settled(run, "waiting_human")
    page = operator.get(f"/runs/{run.id}").content.decode()
    assert '<g class="unsure">' in page and '<g class="bad">' not in page
    assert '<b class="unsure">1 unknown</b>' in page and '<div class="unsure">' not in page
    agent = operator.read("/agents/buyer@1.0.0")
    assert "outcome unknown" in agent and "waiting human" not in agent


def test_a_decided_case_says_so_first(finance: Reader, asked: Callable[..., Approval]) -> None:
    approval = asked()
    finance.post(
        f"/approvals/{approval.id}/decision", verdict="reject", plan_hash=approval.plan_hash, justification="Too dear."
    )
    page = finance.get(f"/inbox/{approval.id}").content.decode()
    assert page.index("Too dear.") < page.index('id="verb"') and 'class="effect past"' in page
    assert "No more cases in this list" in page and not re.search(r'\?show=decided" aria-current="true"', page)


@pytest.mark.needs("accounts")
def test_an_administrator_without_a_role_is_shown_the_way(reader: Callable[..., Reader]) -> None:
    admin = Reader(User.objects.create_superuser("root"))
    assert admin.get("/")["Location"] == "/setup"
    answer = admin.get("/runs")
    page = answer.content.decode()
    assert answer.status_code == 403 and 'href="/setup"' in page and "Go to the overview" not in page
    assert 'href="/queues"' in page and 'href="/runs"' not in page, "where they can go, and nowhere else"
    nobody = reader("none").get("/").content.decode()
    assert "/admin/" not in nobody and "Ask an administrator to assign one" in text_of(reader("none").get("/"))


_NAMED = re.compile(r"<str:\w+>")


def routes(found: URLResolver, before: str = "") -> Iterator[str]:
    for each in found.url_patterns:
        route = before + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from routes(each, route)
        elif isinstance(each, URLPattern) and _NAMED.search(route):
            yield route


def addresses() -> list[str]:
    filled = [_NAMED.sub("%00", route).replace("<uuid:run_id>", str(uuid4())) for route in routes(get_resolver())]
    return sorted({f"/{re.sub(r'<int:[a-z_]+>', '1', address)}" for address in filled})


def test_what_holds_a_nul_is_nothing_that_there_is(reader: Callable[..., Reader]) -> None:
    found = addresses()
    assert len(found) > 20 and "/queues/of/%00/limits" in found
    assert "/policies/of/%00" in found or not apps.is_installed("durableagents.contrib.policies")
    User.objects.get_or_create(username="boss", defaults={"is_superuser": True, "is_staff": True})
    everybody = [reader("operator", "integrator", "auditor", "approver_finance").client, Client()]
    everybody[1].force_login(User.objects.get(username="boss"))
    fields = {
        (address, number, how): getattr(client, how)(address, {"justification": "so be it"}).status_code
        for number, client in enumerate(everybody)
        for address in found
        for how in ("get", "post")
    }
    assert {each: status for each, status in fields.items() if status >= 500} == {}
    pages = [address for address in found if not address.startswith("/api/")]
    assert {fields[address, 0, "get"] for address in pages} <= {404, 405}


def test_nobody_who_is_not_signed_in_learns_that(client: Client) -> None:
    assert client.get("/queues/of/%00").status_code == 302


def test_pages_link_to_the_documentation_about_their_section(operator: Reader, settings: Any) -> None:
    assert ">Help</a>" not in operator.get("/runs").content.decode()
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"docs_url": "https://docs.example/agents/"})
    for path, page in (("/runs", "how-to/watch-and-repair-runs"), ("/inbox", "how-to/approve"), ("/", "index")):
        found = re.findall(r'href="https://docs.example/agents/([^"]+).html"', operator.get(path).content.decode())
        assert found == [page], path
    assert [one for one in navigation._sections if not (CHECKOUT / "docs" / f"{one.help}.md").is_file()] == []
