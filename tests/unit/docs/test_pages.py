"""The documentation names everything that exists, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from durableagents.dev import docs_reference
from runs.models import State, Wait
from runs.queries.status import REASONS
from tests.unit.docs.pages import PAGES, ROOT, anchors, blocks, links, rows

README = ROOT / "README.md"


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
    kept = {path.stem for path in (ROOT / "docs/pictures").glob("*.png")}
    stems = {Path(target).stem for page in PAGES for target in links(page) if re.search(r"pictures/.*\.png$", target)}
    scripts = "".join(path.read_text() for path in (ROOT / "tests/system/browser").glob("pictures*.py"))
    assert kept == stems == set(re.findall(r'picture\(\w+, "([\w-]+)"', scripts))


def test_every_file_that_is_named_exists() -> None:
    name = re.compile(r"`((?:durableagents|runs|approvals|ledger|tests|docs|templates|static)/[\w/.-]+)`")
    named = {(page.name, file) for page in PAGES for file in name.findall(page.read_text())}
    assert sorted((page, file) for page, file in named if not (ROOT / file).exists()) == []


def test_readme_is_short_and_changelog_entries_too() -> None:
    assert len(README.read_text().splitlines()) <= 200
    assert len((ROOT / "CHANGELOG.md").read_text().splitlines()) <= 60


def test_page_titles_are_unique() -> None:
    titles = [page.read_text().partition("\n")[0] for page in PAGES]
    assert len(titles) == len(set(titles))


def test_no_page_has_a_link_inside_a_code_fence() -> None:
    fences = {page: " ".join(block.text for block in blocks(page) if not block.language) for page in PAGES}
    assert [page.name for page, text in fences.items() if re.search(r"\]\([\w/]+\.md", text)] == []


@pytest.mark.needs  # the pages describe every app
def test_the_generated_reference_is_up_to_date() -> None:
    for page, text in docs_reference.pages().items():
        assert page.read_text() == text, f"{page.name}: run manage.py docs_reference"


@pytest.mark.needs  # the pages describe every app
def test_the_page_of_states_has_every_reason_and_kind_of_wait() -> None:
    first = {cells[0].strip("`") for cells in rows(ROOT / "docs" / "reference" / "states.md")}
    assert {*REASONS, *Wait.Kind.values, *State.values} <= first


def test_every_make_target_is_documented() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)) - {"help"}
    assert targets == set(re.findall(r"`make ([a-z-]+)`", (ROOT / "CONTRIBUTING.md").read_text()))


def test_python_blocks_of_explanations_run() -> None:
    pages = (page for page in PAGES if page.parent.name == "explanation")
    found = [block for page in pages for block in blocks(page) if block.language == "python"]
    for block in found:
        exec(compile(block.text, f"line {block.line}", "exec"), {"__name__": "page"})
    assert found


def test_pages_show_shells_as_sh_or_console() -> None:
    """`sh` blocks are run by the tests; others are `console` sessions."""
    assert all(
        block.language in ("sh", "console", "json", "text", "python", "sql", "ini", "yaml", "")
        for page in PAGES
        for block in blocks(page)
    )
