"""The lists of the console and the API on a long history, with each filter, on the first page and deep inside."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.web.cursors import closed
from runs.models import Run, Wait


def paths() -> Iterator[str]:
    middle = Run.objects.order_by("created_at")[Run.objects.count() // 2]
    deep = closed(middle.created_at, middle.id)
    last = Wait.objects.filter(kind="reconcile").order_by("-opened_at")[100]
    late = Wait.objects.filter(kind="approval", resolved_at__isnull=True).order_by("-deadline")[100]
    yield from f"""
        / /runs /runs?state=waiting_human /runs?state=running /runs?state=paused /runs?agent=buyer
        /runs?before={deep} /runs?agent=rare /runs?agent=rare&state=failed /runs?agent=buyer%401.0.0
        /runs?agent=buyer%409.9.9 /runs?agent=nobody&state=waiting /runs?state=running&before={deep}
        /runs?agent=buyer&before={deep} /runs?agent=rare&state=completed&before={deep} /runs?q=INV-50000
        /runs?q=vendor77 /runs?q=PO-50000 /runs?q=nothing-of-the-kind /runs?q={middle.id}
        /runs?q={str(middle.id)[-6:]} /inbox /inbox?show=decided /inbox?beyond={closed(late.deadline, late.id)}
        /inbox?show=decided&beyond={deep} /inbox?q=vendor77 /inbox?show=decided&q=vendor77
        /inbox?on=nobody /inbox?on=me /inbox?on=me&q=vendor77
        /runs?q=nordlicht&agent=rare /runs?q=nordlicht%20shop&agent=buyer /runs?q=nordlicht&agent=nobody
        /runs?q=shop%20vendor77%20nordlicht /reconcile /reconcile?beyond={closed(last.opened_at, last.id)}
        /agents /fleet /fleet/recoveries /fleet/recoveries?host=rare /api/v1/runs /api/v1/runs?state=failed
        /api/v1/runs?agent=rare&state=failed /api/v1/runs?agent=buyer /api/v1/runs?q=vendor77 /api/v1/approvals
        /api/v1/approvals?state=open /api/v1/approvals?state=expired /api/v1/approvals?queue=legal
        /api/v1/approvals?queue=legal&state=approved /api/v1/incidents?host=rare /api/v1/incidents?cause=operator
        /reconcile?show=effects /api/v1/effects?status=unknown /api/v1/runs?trace_id={"0" * 32}
    """.split()
