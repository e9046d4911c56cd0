"""What came when a call was over, and what of the record it belies, as every page says it. The words are those of
`runs.story.findings`."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from django.utils.safestring import SafeString

from ledger.templatetags.console import datum, title_of, visible, words
from runs.engine.tape import CALLED_BACK
from runs.story import Effect, findings

# Of a call that nobody answered, and of news that doesn't say.
_NO_OUTCOME = ("no_answer", "nothing")


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
    told = str(news.get("told") or CALLED_BACK)
    return SafeString(
        f"<dt>{visible(title_of(tools, news.get('tool', '')))}{which}</dt>"
        f"<dd>on record: {_on_record(news)}, and {visible(findings.witness(told))}</dd>"
    )


def _on_record(news: Mapping[str, Any]) -> str:
    """What is on record of the call. Stops of earlier versions have a failure's code where the verdict stands."""
    found, code = str(news.get("on_record") or "nothing"), news.get("code")
    if code is None and found not in (*findings.ON_RECORD, *_NO_OUTCOME):
        found, code = "refused", found
    with_code = f" with code {datum(code)}" if found == "refused" and code not in (None, "", "refused") else ""
    return f"<b>{visible(words(findings.on_record(found)))}</b>{with_code}"
