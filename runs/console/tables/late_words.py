"""What came when a call was over, and what of the record it belies, as every page says it. The words are those of
`runs.story.findings`."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from django.utils.safestring import SafeString

from ledger.templatetags.console import title_of, visible, words
from runs.engine.tape import CALLED_BACK
from runs.story import Effect, findings


def belied(e: Effect) -> str:
    """What is on record and belied by a witness."""
    which = f"of attempt {e.told_of} " if e.is_of_earlier else ""
    return f"{which}{findings.source(e.belied)} <b>{escape(findings.on_record(e.belied))}</b>"


def witness(e: Effect) -> str:
    """What a witness told of it."""
    return escape(findings.witness(e.late, f"attempt {e.told_of} of the call" if e.is_of_earlier else "the call"))


def late_news(news: Mapping[str, Any], tools: dict[str, Any]) -> SafeString:
    """One thing that a stop for late news tells of, whatever its payload holds: the call, what is on record of it and
    what came."""
    attempt = news.get("attempt")
    which = f", attempt {attempt + 1}" if isinstance(attempt, int) else ""
    told, on_record = str(news.get("told") or CALLED_BACK), str(news.get("on_record") or "")
    return SafeString(
        f"<dt>{visible(title_of(tools, news.get('tool', '')))}{which}</dt>"
        f"<dd>on record: <b>{visible(words(findings.on_record(on_record)))}</b>, and"
        f" {visible(findings.witness(told))}</dd>"
    )
