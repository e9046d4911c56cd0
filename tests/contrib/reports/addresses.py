"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256

from django.utils import timezone

from durableagents.contrib.reports import catalogue
from durableagents.contrib.reports.models import StoredReport
from durableagents.contrib.reports.tables import as_bytes
from tests.integration.console.conftest import Reader, agent, reader  # noqa: F401 (fixtures)
from tests.roles import EVERY, OPERATE

API = [
    ("GET", EVERY, "api-reports api-report"),
    ("GET", OPERATE | {"auditor"}, "api-stored-reports api-stored-report api-findings"),
    ("POST", OPERATE | {"auditor"}, "api-findings api-finding-close"),
]
READ = [
    (EVERY, "reports report run_report insights"),
    ({"operator", "auditor"}, "stored_report"),
]
ACT = [
    ({"operator", "auditor"}, "new_finding finding_closures"),
]


def stored_report() -> StoredReport:
    content = catalogue.make(catalogue.find("overrides")).to_json()
    text = as_bytes(content).decode()
    now = timezone.now()
    return StoredReport.objects.create(
        name="overrides",
        schedule="monthly",
        starts_at=now - timedelta(days=30),
        ends_at=now,
        made_at=now,
        content=text,
        sha256=sha256(text.encode()).hexdigest(),
    )


SAMPLES = {
    "report": lambda: [kind.name for kind in catalogue.REPORTS.values() if not kind.of_run],
    "stored_id": lambda: [stored_report().pk],
}
