"""The lists of the console and the API on a long history, each with its filters, at its beginning and deep inside."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.keyset import closed
from runs.models import Run, Wait


def paths() -> Iterator[str]:
    middle = Run.objects.order_by("created_at")[Run.objects.count() // 2]
    deep = closed(middle.created_at, middle.id)
    last = Wait.objects.filter(kind="reconcile").order_by("-opened_at")[100]
    late = Wait.objects.filter(kind="approval", resolved_at__isnull=True).order_by("-deadline")[100]
    yield from ("/", "/runs", "/runs?state=waiting_human", "/runs?state=running", "/runs?state=paused", "/runs?agent=buyer", f"/runs?before={deep}")
    yield from ("/runs?agent=rare", "/runs?agent=rare&state=failed", "/runs?agent=buyer%401.0.0", "/runs?agent=buyer%409.9.9", "/runs?agent=nobody&state=waiting")
    yield from (f"/runs?state=running&before={deep}", f"/runs?agent=buyer&before={deep}", f"/runs?agent=rare&state=completed&before={deep}")
    yield from ("/runs?q=INV-50000", "/runs?q=vendor77", "/runs?q=PO-50000", "/runs?q=nothing-of-the-kind", f"/runs?q={middle.id}", f"/runs?q={str(middle.id)[-6:]}")
    yield from ("/inbox", "/inbox?show=decided", f"/inbox?beyond={closed(late.deadline, late.id)}", f"/inbox?show=decided&beyond={deep}", "/inbox?q=vendor77", "/inbox?show=decided&q=vendor77", "/runs?q=shop%20vendor77%20nordlicht")
    yield from ("/reconcile", f"/reconcile?beyond={closed(last.opened_at, last.id)}", "/agents", "/fleet", "/fleet/recoveries", "/fleet/recoveries?host=rare")
    yield from ("/api/v1/runs", "/api/v1/runs?state=failed", "/api/v1/runs?agent=rare&state=failed", "/api/v1/runs?agent=buyer", "/api/v1/runs?q=vendor77")
    yield from ("/api/v1/approvals", "/api/v1/approvals?state=open", "/api/v1/approvals?state=expired", "/api/v1/approvals?queue=legal")
    yield from ("/api/v1/approvals?queue=legal&state=approved", "/api/v1/incidents?host=rare", "/api/v1/incidents?cause=operator")
