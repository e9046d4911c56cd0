"""The templates: every value is inert, and a row's cells are labelled like the table's head."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from jinja2 import nodes

from durableagents.demo.sandbox.web.rendering import TEMPLATES, environment
from tests.cases import each_case

HOSTILE = "\"'><script>alert(1)</script>\u202egnp.exe\u200b" + "\u0301" * 50
TEXTS = {path.name: path.read_text() for path in sorted(TEMPLATES.iterdir())}
# Joins of finished HTML with text, or switches of the escaping: that text would bypass `show`.
JOINS = (nodes.Add, nodes.Concat, nodes.Mod)
SWITCHES = (nodes.EvalContextModifier, nodes.MarkSafe, nodes.MarkSafeIfAutoescape)


class Marks(HTMLParser):
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


@each_case(
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


@each_case("name", TEXTS)
def test_no_template_goes_around_that(name: str) -> None:
    tree = environment.parse(TEXTS[name])

    assert list(tree.find_all(JOINS + SWITCHES)) == []
    used = {filter_.name for filter_ in tree.find_all(nodes.Filter)}
    assert used <= set(environment.filters)
    for tag in re.findall(r"<\w[^<]*?>", re.sub(r"\{%.*?%\}", "", TEXTS[name])):
        assert all(re.search(r"\|(plain|quoted)$", entry) for entry in re.findall(r"\{\{ (.*?) \}\}", tag)), tag
