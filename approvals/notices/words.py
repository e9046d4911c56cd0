"""Text of notices. Of a call's arguments only headline and amount appear; untrusted text is one short, harmless line.
The link grants nothing: its page requires sign-in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from html import escape
from urllib.parse import urlsplit

from django.conf import settings
from django.urls import reverse

from approvals.brief import asks_of, cards_by_name, plan_of, title_of
from approvals.deadlines import deadlines
from approvals.notices.addressing import zone_of
from approvals.notices.kinds import KINDS
from approvals.notices.recipients import INQUIRIES, Case
from approvals.policy import Sum
from approvals.queues.standing import asked_in
from ledger.web.text_safety import line
from runs.models import Wait

MOST = 160
MAX_IN_A_GROUP = 50
# What mail and chat programs turn into links: schemes, addresses, and names that look like hosts.
_DOTS = re.compile(r"(?<=[^\W_])\.(?=[^\W\d_]{2})")
_SAID = {"happened": "it happened", "did_not": "it did not happen"}
# By kind: the page of notices without a subject of their own. Apps add theirs.
page_names = {"test": "notifications"}
_OPENS = "You have to sign in to open the link."


@dataclass(frozen=True, slots=True)
class Said:
    subject: str
    lines: list[tuple[str, str]]
    url: str


def inert(text: object, most: int = MOST) -> str:
    """Return untrusted text as one line with everything visible and no links."""
    drawn = "".join(f"[{piece.text}]" if piece.is_mark else piece.text for piece in line(str(text), most))
    return _DOTS.sub("[.]", drawn.replace("://", "[:]//").replace("@", "[at]"))


def said(case: Case, zone: str = "UTC") -> Said:
    """Return a notice's text with times in this zone."""
    kind, (title, lines) = KINDS[case.notice.kind], _about(case, zone)
    if case.run is not None:
        lines.append(("Agent", case.run.graph_id))
        lines.append(("Run", str(case.run.pk)))
    return Said(f"{kind.lead}: {title}"[:200], lines, settings.DURABLEAGENTS.base_url + page_of(case))


def _about(case: Case, zone: str) -> tuple[str, list[tuple[str, str]]]:
    if case.notice.kind in INQUIRIES:
        return _of_inquiry(case, zone)
    if case.approval is not None:
        return _of_approval(case, zone)
    if case.wait is not None:
        title, lines = _of_wait(case.wait, zone)
        if (said := case.said) is not None:
            lines.append(("Says", f"{inert(said.by)}: {_SAID.get(said.verdict, said.verdict)}"))
        return title, lines
    if case.notice.kind == "version_missing":
        words = f"runs of {case.notice.about} are ready, but no running worker has this version"
        return case.notice.about, [("What", words)]
    if case.notice.kind == "endpoint_stopped":
        return inert(case.notice.about), [("What", "a webhook gets no messages any more: see its delivery log")]
    if case.change is not None:
        title = inert(case.change.title)
        return title, [("What", title), ("Why", inert(case.change.why)), ("Proposed by", inert(case.change.by))]
    if case.notice.kind == "test":
        return "test", [("What", "a test notification")]
    what = case.run.graph_id if case.run is not None else case.notice.about
    error = "" if case.run is None else case.run.error_code
    state = "failed" if case.run is None else case.run.state
    return what, [
        ("What", f"the run {'was cancelled' if state == 'cancelled' else state}"),
        *([("Error", inert(error))] if error else []),
    ]


def _of_inquiry(case: Case, zone: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the text of an inquiry; of the call only its title, since the person asked may not read payloads."""
    approval, row = case.approval, case.inquiry
    assert approval is not None and row is not None
    tool = cards_by_name(case.run.graph_id if case.run else "").get(approval.tool)
    title = inert(title_of(approval, tool))
    lines = [("What", title), ("Asked", inert(row.question)), ("By", inert(row.by))]
    lines += [("Answer", inert(row.answer)), ("From", inert(row.ended_by))] if row.outcome == "answered" else []
    until = "no deadline" if deadlines().texts(approval).is_endless else _moment(approval.deadline, zone)
    return title, [*lines, ("Deadline", until)]


def _of_approval(case: Case, zone: str) -> tuple[str, list[tuple[str, str]]]:
    approval, run = case.approval, case.run
    assert approval is not None
    tool = cards_by_name(run.graph_id if run else "").get(approval.tool)
    title, asks, amount = inert(title_of(approval, tool)), asks_of(approval, tool), asked_in(approval).amount
    headline = str(plan_of(approval).get("headline") or "")
    lines = [("What", title)]
    lines += [("Agent's text", inert(text)) for text in (headline, asks) if text]
    lines += [("Amount", inert(amount))] if isinstance(amount, Sum) else []
    lines += [
        ("Queue", ", ".join(case.queues)),
        ("Until", "no deadline" if deadlines().texts(approval).is_endless else _moment(approval.deadline, zone)),
        ("Requested by", inert(approval.requested_by)),
    ]
    lines += [("Revision", str(approval.revision))] if approval.revision > 1 else []
    return f"{title}{f', {inert(amount)}' if isinstance(amount, Sum) else ''}", lines


def _of_wait(wait: Wait, zone: str) -> tuple[str, list[tuple[str, str]]]:
    detail = wait.detail if isinstance(wait.detail, dict) else {}
    named = {"budget": "the run is stopped", "operator": "the run is stopped"}.get(wait.kind, "")
    title = inert(detail.get("title") or named or wait.kind, 80)
    lines = [("What", title)]
    lines += [("Why", inert(detail["reason"]))] if detail.get("reason") else []
    lines += [("Asked of", inert(detail["of"]))] if detail.get("of") else []
    return title, [*lines, ("Until", _moment(wait.deadline, zone))]


def page_of(case: Case) -> str:
    """Return the page to read it on: its URL holds only an id, and it requires sign-in."""
    if case.approval is not None:
        return reverse("approval", args=[case.approval.pk])
    if case.run is not None:
        return reverse("run", args=[case.run.pk])
    if case.change is not None:
        return reverse("rule_change", args=[case.change.pk])
    return reverse(page_names.get(case.notice.kind, "agents"))


def _moment(at: datetime, zone: str) -> str:
    return f"{at.astimezone(zone_of(zone)):%Y-%m-%d %H:%M %Z}"


# --- as a mail, as a chat's message, for a browser --------------------------------------------------------------------


def subject_of(all_: list[Said]) -> str:
    """Return a mail's subject: of several, the count and the first."""
    if len(all_) == 1:
        return all_[0].subject
    return f"{len(all_)} notifications, first: {all_[0].subject}"[:200]


def as_text(all_: list[Said], *, is_own: bool) -> str:
    """Return a mail's plain text."""
    parts = [_block(one) for one in all_[:MAX_IN_A_GROUP]]
    if len(all_) > MAX_IN_A_GROUP:
        parts.append(f"And {len(all_) - MAX_IN_A_GROUP} more.")
    return "\n\n".join([*parts, *_tail(is_own)]) + "\n"


def _block(one: Said) -> str:
    return "\n".join([one.subject, *(f"  {label}: {text}" for label, text in one.lines), f"  {one.url}"])


def _tail(is_own: bool) -> list[str]:
    where = settings.DURABLEAGENTS.base_url + reverse("notifications")
    return [_OPENS, *([f"Notification settings: {where}"] if is_own else [])]


def as_html(all_: list[Said], *, is_own: bool) -> str:
    """Return it as plain HTML: nothing is loaded, and only our links are in it."""
    parts = []
    for one in all_[:MAX_IN_A_GROUP]:
        rows = "".join(
            f'<tr><td style="padding-right:1em;color:#666">{escape(label)}</td><td>{escape(text)}</td></tr>'
            for label, text in one.lines
        )
        parts.append(
            f'<p><b>{escape(one.subject)}</b></p><table>{rows}</table><p><a href="{escape(one.url)}">Open</a></p>'
        )
    if len(all_) > MAX_IN_A_GROUP:
        parts.append(f"<p>And {len(all_) - MAX_IN_A_GROUP} more.</p>")
    tail = "".join(f'<p style="color:#666">{escape(text)}</p>' for text in _tail(is_own))
    return f'<div style="font-family:sans-serif">{"<hr>".join(parts)}{tail}</div>'


def as_push(all_: list[Said]) -> dict[str, str]:
    """Return a lock screen's text: kind, queue and deadline, without amount and headline."""
    first, rest = all_[0], len(all_) - 1
    told = dict(first.lines)
    lead = first.subject.partition(":")[0]
    body = [f"{name}: {told[name]}" for name in ("Queue", "Until", "Asked of") if name in told]
    title = f"{lead}: {told['What']}" if "What" in told else first.subject
    if rest:
        return {"title": f"{len(all_)} notifications, first: {title}"[:MOST], "body": "", "url": reverse("inbox")}
    return {"title": title[:MOST], "body": "\n".join(body)[:MOST], "url": urlsplit(first.url).path}


def as_chat(all_: list[Said]) -> dict[str, object]:
    """Return a Slack-compatible message. Text between < and > is a command there."""
    blocks = []
    for one in all_[:MAX_IN_A_GROUP]:
        lines = [f"{label}: {_chat(text)}" for label, text in one.lines]
        blocks.append("\n".join([f"*{_chat(one.subject)}*", *lines, f"<{one.url}|Open>"]))
    return {"text": "\n\n".join(blocks), "unfurl_links": False, "unfurl_media": False}


def _chat(text: str) -> str:
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("*", "∗").replace("`", "ˋ").replace("|", "¦")
