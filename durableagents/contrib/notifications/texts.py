"""The texts of notices.

Of a call's arguments, the texts contain only headline and amount. Untrusted text is reduced to one short line without
links. The link in a notice grants no rights: its page requires sign-in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from django.conf import settings
from django.template.loader import render_to_string
from django.urls import NoReverseMatch, reverse

from approvals.brief import asks_of, cards_by_name, plan_of, title_of
from approvals.deadlines import deadlines
from approvals.policy import Sum
from approvals.queues.standing import asked_in
from durableagents.contrib.notifications.addressing import zone_of
from durableagents.contrib.notifications.kinds import KINDS
from durableagents.contrib.notifications.recipients import INQUIRIES, Subject
from durableagents.outgoing.http import one_line
from runs.models import Wait

MAX_LENGTH = 160
MAX_IN_A_GROUP = 50
# Text that mail and chat programs would turn into links: schemes, addresses, and names that look like hosts.
_DOTS = re.compile(r"(?<=[^\W_])\.(?=[^\W\d_]{2})")
_VERDICTS = {"happened": "it happened", "did_not": "it did not happen"}
_SIGN_IN = "You have to sign in to open the link."
Lines = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Text:
    """A notice's text: subject, labelled lines, and the URL of its page."""

    subject: str
    lines: Lines
    url: str


def harmless(text: object, length: int = MAX_LENGTH) -> str:
    """Return untrusted text as one line in which all characters are visible and nothing becomes a link."""
    return _DOTS.sub("[.]", one_line(str(text), length).replace("://", "[:]//").replace("@", "[at]"))


def text_of(subject: Subject, zone: str = "UTC") -> Text:
    """Return the text of a notice, with times in this time zone."""
    kind, (title, lines) = KINDS[subject.notice.kind], _title_and_lines(subject, zone)
    if subject.run is not None:
        lines += [("Agent", subject.run.graph_id), ("Run", str(subject.run.pk))]
    return Text(f"{kind.lead}: {title}"[:200], lines, settings.DURABLEAGENTS.base_url + page_of(subject))


def _title_and_lines(subject: Subject, zone: str) -> tuple[str, Lines]:
    notice, run = subject.notice, subject.run
    if notice.kind in INQUIRIES:
        return _of_inquiry(subject, zone)
    if subject.approval is not None:
        return _of_approval(subject, zone)
    if subject.wait is not None:
        title, lines = _of_wait(subject.wait, zone)
        if (proposal := subject.proposal) is not None:
            verdict = _VERDICTS.get(proposal.verdict, proposal.verdict)
            lines.append(("Says", f"{harmless(proposal.by)}: {verdict}"))
        return title, lines
    if notice.kind == "version_missing":
        return notice.about, [("What", f"runs of {notice.about} are ready, but no running worker has this version")]
    if notice.kind == "endpoint_stopped":
        return harmless(notice.about), [("What", "a webhook no longer gets messages: see its delivery log")]
    if (change := subject.change) is not None:
        title = harmless(change.title)
        return title, [("What", title), ("Why", harmless(change.why)), ("Proposed by", harmless(change.by))]
    if notice.kind == "test":
        return "test", [("What", "a test notification")]
    if run is None:
        return notice.about, [("What", "the run failed")]
    lines = [("What", f"the run {'was cancelled' if run.state == 'cancelled' else run.state}")]
    return run.graph_id, [*lines, *([("Error", harmless(run.error_code))] if run.error_code else [])]


def _of_inquiry(subject: Subject, zone: str) -> tuple[str, Lines]:
    """Return the text of an inquiry.

    It contains only the title of the call, since the person asked may not read payloads."""
    approval, row = subject.approval, subject.inquiry
    assert approval is not None and row is not None
    tool = cards_by_name(subject.run.graph_id if subject.run else "").get(approval.tool)
    title = harmless(title_of(approval, tool))
    lines = [("What", title), ("Asked", harmless(row.question)), ("By", harmless(row.by))]
    lines += [("Answer", harmless(row.answer)), ("From", harmless(row.ended_by))] if row.outcome == "answered" else []
    until = "no deadline" if deadlines().texts(approval).is_endless else _moment(approval.deadline, zone)
    return title, [*lines, ("Deadline", until)]


def _of_approval(subject: Subject, zone: str) -> tuple[str, Lines]:
    approval, run = subject.approval, subject.run
    assert approval is not None
    tool = cards_by_name(run.graph_id if run else "").get(approval.tool)
    title, asks, amount = harmless(title_of(approval, tool)), asks_of(approval, tool), asked_in(approval).amount
    headline = str(plan_of(approval).get("headline") or "")
    lines = [("What", title)]
    lines += [("Agent's text", harmless(text)) for text in (headline, asks) if text]
    lines += [("Amount", harmless(amount))] if isinstance(amount, Sum) else []
    lines += [
        ("Queue", ", ".join(subject.queues)),
        ("Until", "no deadline" if deadlines().texts(approval).is_endless else _moment(approval.deadline, zone)),
        ("Requested by", harmless(approval.requested_by)),
    ]
    lines += [("Revision", str(approval.revision))] if approval.revision > 1 else []
    return f"{title}{f', {harmless(amount)}' if isinstance(amount, Sum) else ''}", lines


def _of_wait(wait: Wait, zone: str) -> tuple[str, Lines]:
    detail = wait.detail if isinstance(wait.detail, dict) else {}
    stopped = "the run is stopped" if wait.kind in ("budget", "operator") else ""
    title = harmless(detail.get("title") or stopped or wait.kind, 80)
    lines = [("What", title)]
    lines += [("Why", harmless(detail["reason"]))] if detail.get("reason") else []
    lines += [("Asked of", harmless(detail["of"]))] if detail.get("of") else []
    return title, [*lines, ("Until", _moment(wait.deadline, zone))]


def page_of(subject: Subject) -> str:
    """Return the path of the page about the subject. The path contains only an id, and the page requires sign-in."""
    if subject.approval is not None:
        return reverse("approval", args=[subject.approval.pk])
    if subject.run is not None:
        return reverse("run", args=[subject.run.pk])
    if subject.change is not None:
        return reverse("rule_change", args=[subject.change.pk])
    try:
        return reverse(KINDS[subject.notice.kind].page)
    except NoReverseMatch:  # the app with this page has been removed since
        return reverse("overview")


def _moment(at: datetime, zone: str) -> str:
    return f"{at.astimezone(zone_of(zone)):%Y-%m-%d %H:%M %Z}"


# --- as mail, chat message and push message ---------------------------------------------------------------------------


def mail_subject(texts: list[Text]) -> str:
    """Return the subject of a mail. For several texts, it has their number and the first one."""
    return texts[0].subject if len(texts) == 1 else f"{len(texts)} notifications, first: {texts[0].subject}"[:200]


def as_text(texts: list[Text], *, is_own: bool) -> str:
    """Return the plain text of a mail."""
    parts = [_block(one) for one in texts[:MAX_IN_A_GROUP]]
    if len(texts) > MAX_IN_A_GROUP:
        parts.append(f"And {len(texts) - MAX_IN_A_GROUP} more.")
    return "\n\n".join([*parts, *_footer(is_own)]) + "\n"


def _block(one: Text) -> str:
    return "\n".join([one.subject, *(f"  {label}: {text}" for label, text in one.lines), f"  {one.url}"])


def _footer(is_own: bool) -> list[str]:
    where = settings.DURABLEAGENTS.base_url + reverse("notifications")
    return [_SIGN_IN, *([f"Notification settings: {where}"] if is_own else [])]


def as_html(texts: list[Text], *, is_own: bool) -> str:
    """Return the HTML of a mail. The HTML loads nothing, and has only our own links."""
    values = {"texts": texts[:MAX_IN_A_GROUP], "more": len(texts[MAX_IN_A_GROUP:]), "footer": _footer(is_own)}
    return render_to_string("notifications/mail.html", values)


def as_push(texts: list[Text]) -> dict[str, str]:
    """Return the text for a lock screen: kind, queue and deadline, but no amount or headline."""
    first = texts[0]
    values = dict(first.lines)
    title = f"{first.subject.partition(':')[0]}: {values['What']}" if "What" in values else first.subject
    if len(texts) > 1:
        title = f"{len(texts)} notifications, first: {title}"
        return {"title": title[:MAX_LENGTH], "body": "", "url": reverse("inbox")}
    body = "\n".join(f"{name}: {values[name]}" for name in ("Queue", "Until", "Asked of") if name in values)
    return {"title": title[:MAX_LENGTH], "body": body[:MAX_LENGTH], "url": urlsplit(first.url).path}


def as_browser_notification(text: Text, *, tag: str) -> dict[str, str]:
    """Return a text in the form of the notification that an open page shows."""
    body = "\n".join(value for label, value in text.lines if label in ("Amount", "Queue", "Why"))
    return {"tag": tag, "title": text.subject, "body": body, "url": urlsplit(text.url).path}


def as_chat(texts: list[Text]) -> dict[str, object]:
    """Return a Slack-compatible message.

    Text between < and > is escaped, because Slack would interpret it as a command."""
    blocks = []
    for one in texts[:MAX_IN_A_GROUP]:
        lines = [f"{label}: {_for_chat(text)}" for label, text in one.lines]
        blocks.append("\n".join([f"*{_for_chat(one.subject)}*", *lines, f"<{one.url}|Open>"]))
    return {"text": "\n\n".join(blocks), "unfurl_links": False, "unfurl_media": False}


def _for_chat(text: str) -> str:
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("*", "∗").replace("`", "ˋ").replace("|", "¦")
