"""The documentation names everything that exists, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from durableagents.env import Environment
from ledger.web.roles import ROLES
from tests.integration.api.test_roles import MATRIX, UNLISTED, api_routes
from tests.unit.docs.pages import PAGES, ROOT, anchors, blocks, links, rows

API = ROOT / "docs" / "api.md"
# Their cells name queues.
OF_A_QUEUE = {"api-approval-decision", "api-approval-claim", "api-approval-release"}
README = ROOT / "README.md"
PUBLIC_PAGES = ("/healthz", "/readyz", "/metrics")


def test_every_link_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in links(page):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not (file.is_relative_to(ROOT) and file.exists()) or (anchor and anchor not in anchors(file)):
                broken.append(f"{page.name} links to {target}")
    assert broken == []


def test_every_picture_is_shown_and_taken_by_the_one_command() -> None:
    """A picture taken by hand would not be renewed when the console changes."""
    kept = {path.stem for path in (ROOT / "docs/pictures").iterdir()}
    shown = {Path(target).stem for page in PAGES for target in links(page) if "pictures/" in target}
    scripts = "".join(path.read_text() for path in (ROOT / "tests/system/browser").glob("pictures*.py"))
    assert kept == shown == set(re.findall(r'picture\(\w+, "([\w-]+)"', scripts))


def test_every_file_that_is_named_exists() -> None:
    name = re.compile(r"`((?:durableagents|runs|approvals|ledger|tests|docs|templates|static)/[\w/.-]+)`")
    named = {(page.name, file) for page in PAGES for file in name.findall(page.read_text())}
    assert sorted((page, file) for page, file in named if not (ROOT / file).exists()) == []


def test_every_page_is_linked_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / target.partition("#")[0]).resolve() for target in links(index)}
    pages = {page for page in PAGES if page.parent in (index.parent, index.parent / "tutorials")}
    assert pages - linked == {index}


def test_readme_is_short_and_changelog_entries_too() -> None:
    assert len(README.read_text().splitlines()) <= 200
    assert len((ROOT / "CHANGELOG.md").read_text().splitlines()) <= 60


def test_page_titles_are_unique() -> None:
    titles = [page.read_text().partition("\n")[0] for page in PAGES if page.parent.name != "decisions"]
    assert len(titles) == len(set(titles))


def test_no_page_has_a_link_inside_a_code_fence() -> None:
    fences = {page: " ".join(block.text for block in blocks(page) if not block.language) for page in PAGES}
    assert [page.name for page, text in fences.items() if re.search(r"\]\([\w/]+\.md", text)] == []


def test_every_setting_is_documented_with_its_default() -> None:
    table = rows(ROOT / "docs" / "settings.md")
    said = {name: cells[1] for cells in table if len(cells) == 3 for name in re.findall(r"`([A-Z_]+)`", cells[0])}
    for field in Environment.model_fields.values():
        name = str(field.validation_alias)
        assert name in said, f"{name} is not in docs/settings.md"
        if isinstance(field.default, int) and not isinstance(field.default, bool) and field.default:
            assert said[name] == str(field.default)
    everywhere = "".join(
        path.read_text() for folder in ("durableagents", "runs") for path in (ROOT / folder).rglob("*.py")
    )
    read = {str(field.validation_alias) for field in Environment.model_fields.values()}
    assert all(name in read or name in everywhere for name in said)


def test_every_make_target_is_documented() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)) - {"help"}
    assert targets == set(re.findall(r"`make ([a-z-]+)`", (ROOT / "CONTRIBUTING.md").read_text()))


DEPENDS = {
    "api-run-event-content",
    "api-run-evidence",
    "api-run-pause",
    "api-run-resume",
    "api-run-cancel",
    "api-run-budget",
    "api-schedule",
    "api-schedule-pause",
    "api-schedule-resume",
    "api-schedule-delete",
    "api-run-transcript",
    "api-run-live",
    "api-run-view",
    "api-document",
    "api-document-pages",
    "api-document-page",
    "api-inquiries",
    "api-inquiry-answer",
    "api-inquiry-withdraw",
    "api-delegations",
    "api-delegation-end",
    "api-deputy-revoke",
}


@pytest.mark.needs  # the pages describe every app
def test_every_route_has_its_heading_and_its_row_of_roles() -> None:
    """The table of roles is the matrix that the API's own test compares with the code."""
    by_name = {name: _documented(path) for name, path in api_routes() if name not in UNLISTED}
    page = API.read_text()
    table = {cells[0].strip("`"): cells[1:] for cells in rows(API) if len(cells) == 1 + len(ROLES)}
    for (name, method), allowed in MATRIX.items():
        endpoint = f"{method} {by_name[name]}"
        assert re.search(rf"^#+ .*`{re.escape(endpoint)}`", page, re.MULTILINE), f"no heading names {endpoint}"
        if None not in allowed and name not in OF_A_QUEUE:
            # Where the run decides as well, a cell says for which runs.
            shown = ["yes" if cell and name in DEPENDS else cell for cell in table[endpoint]]
            assert shown == ["yes" if role in allowed else "" for role in ROLES], f"roles of {endpoint}"
    assert all(f"`GET {path}`" in page for path in PUBLIC_PAGES)


def test_every_problem_code_is_in_the_api_page() -> None:
    sources = "".join(
        path.read_text()
        for app in ("durableagents", "runs", "approvals", "ledger")
        for path in (ROOT / app).rglob("*.py")
    )
    codes = set(re.findall(r'status, code, title = 4\d\d, "([a-z-]+)"', sources))
    codes |= set(re.findall(r'document\(\s*[45]\d\d,\s*"([a-z-]+)"', sources)) | set(
        re.findall(r': "([a-z-]+)",\n', _framework_codes())
    )
    # A worker's, a page's, and those of account pages: never an answer of the API.
    codes -= {"stale-lease", "form-used", "form-in-use", "unknown-link", "ended-link", "name-taken", "account-closed"}
    codes -= {"already-set-up", "already-invited", "invitation-ended", "tag-already-own", "tag-not-own"}
    codes -= {"account-changed-meanwhile", "session-ended", "already-verifying", "nothing-verified"}
    assert len(codes) >= 15 and not {code for code in codes if f"`{code}`" not in API.read_text()}


def test_pages_show_shells_as_sh_or_console() -> None:
    """`sh` blocks are run by the tests; others are `console` sessions."""
    assert all(
        block.language in ("sh", "console", "json", "text", "python", "sql", "ini", "yaml", "")
        for page in PAGES
        for block in blocks(page)
    )


def _documented(path: str) -> str:
    return "/" + re.sub(r"<\w+:(\w+)>", r"{\1}", re.sub(r"<\w+:(?:run_id|approval_id|schedule_id)>", "{id}", path))


def _framework_codes() -> str:
    text = (ROOT / "ledger/web/problems.py").read_text()
    return text[text.index("_CODES = {") : text.index("}", text.index("_CODES = {"))]
