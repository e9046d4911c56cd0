"""Scheduled reports: each is made once per period, stored with its digest, and announced by mail."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from hashlib import sha256
from uuid import NAMESPACE_URL, uuid5

from django.conf import settings
from django.db import connection, transaction

from durableagents.contrib.reports.catalogue import REPORTS
from durableagents.contrib.reports.models import Mailing, StoredReport
from durableagents.contrib.reports.period import Period, iso, last_complete
from durableagents.contrib.reports.reports import ReportKind, Request
from durableagents.contrib.reports.statements import SHELL_SECONDS, ReportTooLarge, in_seconds, reading
from durableagents.contrib.reports.tables import as_bytes
from durableagents.outgoing import mail
from ledger.clock import database_now
from ledger.web.seeing.viewers import Viewer, looking_as

log = logging.getLogger("durableagents.contrib.reports.schedule")

# Stored reports can be read by all operators and auditors, including those without the right to read payloads.
NO_CONTENTS = Viewer(sees_all=True, reads_all=False)
_UNITS = {"daily": "day", "weekly": "week", "monthly": "month"}
_LOCK = 0x52505432  # "RPT2" in ASCII
MAIL_TRIES, MAIL_PAUSE, MAIL_FOR = 5, timedelta(minutes=10), timedelta(days=7)


def scheduled() -> list[ReportKind]:
    return [kind for kind in REPORTS.values() if kind.is_scheduled]


def store_is_due() -> str:
    """Return the SQL condition that is true if reports of the last complete period are missing.

    It is false if no run existed before the end of the period."""
    schedule = settings.DURABLEAGENTS.report_schedule
    if schedule == "off":
        return "false"
    end = f"date_trunc('{_UNITS[schedule]}', now(), 'UTC')"
    return f"""(SELECT count(*) FROM reports_storedreport WHERE schedule = '{schedule}' AND ends_at = {end})
        < {len(scheduled())} AND EXISTS (SELECT FROM runs_run WHERE created_at < {end})"""


def store() -> int:
    """Make and store the missing reports of the last complete period. Return their number."""
    schedule = settings.DURABLEAGENTS.report_schedule
    if schedule == "off":
        return 0
    period = last_complete(schedule, database_now())
    return sum(_store(kind, schedule, period) for kind in scheduled())


@transaction.atomic
def _store(kind: ReportKind, schedule: str, period: Period) -> int:
    """Store one report unless it is stored already. Return the number of reports stored.

    A report that takes too long is stored with its problem, and not tried again."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))", [_LOCK, kind.name])
        if not cursor.fetchone()[0]:
            return 0  # another process is making this report
    of = {"name": kind.name, "schedule": schedule, "ends_at": period.end}
    if StoredReport.objects.filter(**of).exists():
        return 0
    now = database_now()
    content, problem = b"", ""
    try:
        with looking_as(NO_CONTENTS), in_seconds(SHELL_SECONDS), reading():
            content = as_bytes(kind.report(Request(now, period)).to_json())
    except ReportTooLarge as error:
        problem = error.detail
        log.error("report %s until %s: %s", kind.name, iso(period.end), problem)
    StoredReport.objects.create(
        **of,
        starts_at=period.start,
        made_at=now,
        content=content.decode(),
        sha256=sha256(content).hexdigest(),
        problem=problem,
    )
    return 1


def is_as_stored(report: StoredReport) -> bool:
    """Return whether the content still matches its digest."""
    return sha256(report.content.encode()).hexdigest() == report.sha256


# --- mail -------------------------------------------------------------------------------------------------------------


def mail_is_due() -> str:
    """Return the SQL condition that is true if reports stored in the last days may still have to be announced."""
    recipients = settings.DURABLEAGENTS.report_recipients
    if not (mail.is_set() and recipients):
        return "false"
    return f"""EXISTS (
        SELECT FROM (SELECT DISTINCT schedule, ends_at FROM reports_storedreport
                     WHERE made_at > now() - interval '{MAIL_FOR.days} days') s
        WHERE (SELECT count(DISTINCT m.recipient) FROM reports_mailing m
               WHERE m.schedule = s.schedule AND m.ends_at = s.ends_at
               AND (m.outcome IN ('sent', 'refused') OR m.at > now() - interval '{MAIL_PAUSE.seconds} seconds'))
              < {len(recipients)})"""


def announce() -> int:
    """Mail the digests of new reports to the recipients. Return the number of mails sent.

    If a process dies after sending a mail and before recording it, the mail is sent again with the same message id."""
    sent, now = 0, database_now()
    rows = StoredReport.objects.filter(made_at__gt=now - MAIL_FOR).order_by("ends_at", "name")
    periods: dict[tuple[str, datetime], list[StoredReport]] = {}
    for row in rows:
        periods.setdefault((row.schedule, row.ends_at), []).append(row)
    for (schedule, ends_at), reports in periods.items():
        if len(reports) < len(scheduled()):
            continue  # the other reports of this period are still missing
        for recipient in settings.DURABLEAGENTS.report_recipients:
            sent += _mail(recipient, schedule, ends_at, reports, now)
    return sent


@transaction.atomic
def _mail(recipient: str, schedule: str, ends_at: datetime, reports: list[StoredReport], now: datetime) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))", [_LOCK, recipient])
        if not cursor.fetchone()[0]:
            return 0
    tries = list(Mailing.objects.filter(schedule=schedule, ends_at=ends_at, recipient=recipient).order_by("id"))
    is_over = any(each.outcome in ("sent", "refused") for each in tries) or len(tries) >= MAIL_TRIES
    if is_over or (tries and tries[-1].at > now - MAIL_PAUSE):
        return 0
    subject = f"Durable Agents: {schedule} reports until {ends_at:%Y-%m-%d}"
    message = uuid5(NAMESPACE_URL, f"reports:{schedule}:{iso(ends_at)}:{recipient}")
    outcome = mail.send(recipient, subject, _text(reports), message=message)
    Mailing.objects.create(
        schedule=schedule, ends_at=ends_at, recipient=recipient, at=now, outcome=outcome.state, why=outcome.why
    )
    return int(outcome.state == "sent")


def _text(reports: list[StoredReport]) -> str:
    base = settings.DURABLEAGENTS.base_url
    parts = [f"Reports for {iso(reports[0].starts_at)} to {iso(reports[0].ends_at)}:", ""]
    for each in reports:
        parts += [REPORTS[each.name].title if each.name in REPORTS else each.name]
        parts += (
            [each.problem] if each.problem else [f"{base}/audit/reports/stored/{each.pk}", f"SHA-256 {each.sha256}"]
        )
        parts += [""]
    return "\n".join(parts)
