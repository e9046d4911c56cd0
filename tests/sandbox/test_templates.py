"""The templates: no value gets on a page but inert, and a row's cells are labelled as the table's heads say."""

from __future__ import annotations

import hashlib
import re
import smtplib
from html.parser import HTMLParser

import pytest
from jinja2 import UndefinedError, nodes

from durableagents.demo.sandbox.web.rendering import TEMPLATES, environment

from .harness import VENDOR, Sandbox

HOSTILE = "\"'><script>alert(1)</script>\u202egnp.exe\u200b" + "\u0301" * 50
TEXTS = {path.name: path.read_text() for path in sorted(TEMPLATES.iterdir())}
# What joins finished HTML with text, or switches the escaping: the text would not pass `show`.
JOINS = (nodes.Add, nodes.Concat, nodes.Mod)
SWITCHES = (nodes.EvalContextModifier, nodes.MarkSafe, nodes.MarkSafeIfAutoescape)


class Tables(HTMLParser):
    """Every table's heads, and the labels of its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.heads: list[list[str]] = []
        self.rows: list[list[list[str | None]]] = []
        self._in_head = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_head = tag == "th"
        match tag:
            case "table":
                self.heads.append([])
                self.rows.append([])
            case "th":
                self.heads[-1].append("")
            case "tr":
                self.rows[-1].append([])
            case "td":
                self.rows[-1][-1].append(dict(attrs)["data-label"])

    def handle_data(self, data: str) -> None:
        if self._in_head:
            self.heads[-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._in_head = False


class Marks(HTMLParser):
    """The elements of a piece of HTML with their attributes, and all its text."""

    def __init__(self, piece: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(piece)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize(
    "source",
    [
        "{{ value }}",
        "{% for each in [value] %}{{ each }}{% endfor %}",
        "{% macro said(it) %}{{ it }}{% endmacro %}{{ said(value) }}",
        "{% set said %}{{ value }}{% endset %}{{ said }}",
        "{% macro around() %}{{ caller() }}{% endmacro %}{% call around() %}{{ value }}{% endcall %}",
        "{% from 'parts.html' import code %}{{ code(value) }}",
    ],
)
def test_a_value_is_inert_though_the_template_does_nothing_about_it(source: str) -> None:
    drawn = environment.from_string(source).render(value=HOSTILE)
    marks = Marks(drawn)

    assert {tag for tag, _ in marks.elements} <= {"bdi", "code", "span"}
    assert "<bdi>&quot;&#x27;&gt;&lt;script&gt;alert(1)&lt;/script&gt;<span" in drawn
    assert not set("\u202e\u200b") & set(drawn) and "\u0301" * 4 not in drawn
    assert "U+202E" in marks.text and "U+200B" in marks.text and marks.text.count("U+0301") == 47


@pytest.mark.parametrize("attribute", ['title="{{ value }}"', "title='{{ value }}'", 'title="{{ value|plain }}"'])
def test_a_value_cannot_end_an_attribute(attribute: str) -> None:
    hostile = HOSTILE + " onmouseover=alert(1) \u202e style=x"
    ((tag, attributes),) = Marks(environment.from_string(f"<p {attribute}></p>").render(value=hostile)).elements
    assert (tag, list(attributes)) == ("p", ["title"])


def test_what_is_missing_is_an_error_and_no_empty_place() -> None:
    for source in ("{{ nothing }}", "{{ row.nothing }}", "{% if nothing %}x{% endif %}"):
        with pytest.raises(UndefinedError):
            environment.from_string(source).render(row={})


def test_nothing_is_a_dash_and_nought_is_a_number() -> None:
    for value, text in ((None, "–"), ("", "–"), (0, "0"), (False, "False")):
        assert Marks(environment.from_string("{{ value }}").render(value=value)).text == text


@pytest.mark.parametrize("name", TEXTS)
def test_no_template_goes_around_that(name: str) -> None:
    tree = environment.parse(TEXTS[name])

    assert list(tree.find_all(JOINS + SWITCHES)) == []
    used = {filter_.name for filter_ in tree.find_all(nodes.Filter)}
    assert used <= set(environment.filters)
    for tag in re.findall(r"<\w[^<]*?>", re.sub(r"\{%.*?%\}", "", TEXTS[name])):
        assert all(re.search(r"\|(plain|quoted)$", said) for said in re.findall(r"\{\{ (.*?) \}\}", tag)), tag


def test_no_filter_of_jinjas_own_is_there() -> None:
    for name in ("safe", "escape", "e", "forceescape", "xmlattr", "urlize", "tojson", "format", "replace"):
        assert name not in environment.filters


@pytest.mark.processes
def test_the_cells_are_labelled_as_the_heads_say(sandbox: Sandbox) -> None:
    vendor = sandbox.create_vendor("k").json()["vendor_id"]
    order = {"vendor_id": vendor, "description": "x", "amount_usd": 7}
    sandbox.post("/api/erp/purchase-orders", order, "k").raise_for_status()
    sandbox.post("/api/credentials", {"vendor_id": vendor, "scope": "x"}, "k").raise_for_status()
    w9 = {name: VENDOR[name] for name in ("legal_name", "tax_id", "contact_email")}
    sandbox.post("/api/portal/w9-requests", w9 | {"callback_url": sandbox.url}, "k").raise_for_status()
    with smtplib.SMTP("127.0.0.1", sandbox.smtp_port) as smtp:
        smtp.sendmail("a@x.example", ["b@x.example"], "Subject: x\r\n\r\nx")
    report = {"title": "x", "text": "x", "sha256": hashlib.sha256(b"x").hexdigest()}
    sandbox.post("/api/library/reports", report, "k").raise_for_status()
    sandbox.fault(system="portal", w9_delay_seconds=3600)
    with_table = {
        "/mail": 1,
        "/library": 1,
        "/erp": 2,
        "/portal": 1,
        "/credentials": 1,
        "/effects.html": 1,
        "/faults.html": 1,
    }

    for path, tables in with_table.items():
        page = Tables()
        page.feed(sandbox.client.get(path).text)
        assert len(page.heads) == tables
        for heads, (own, *rows) in zip(page.heads, page.rows, strict=True):
            assert own == [] and rows, "the heads' own row, and at least one more"
            assert all(row == heads for row in rows), path
