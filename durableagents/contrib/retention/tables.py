"""The tables that have rows of runs. `migrate`, which runs as the owner, stores them for the functions in sql/."""

from __future__ import annotations

from typing import Any

from django.db import connections

from ledger.verification.runs import tables as verified

# In the order in which rows are restored, so that triggers that derive rows find either all the rows that they need or
# none. A run can have any number of rows in the bulk tables.
BULK = (
    "ledger_event",
    "ledger_ledgerentry",
    "ledger_overriderecord",
    "ledger_actrecord",
    "runs_checkpoint",
    "runs_logline",
)
_BY_APPROVAL = "approval_id IN (SELECT id FROM approvals_approval WHERE run_id = $1)"
_BY_DECISION = f"decision_id IN (SELECT id FROM approvals_decision WHERE {_BY_APPROVAL})"
SMALL = {
    "ledger_head": "run_id = $1",
    "runs_run": "id = $1",
    **dict.fromkeys(
        (
            "runs_wait",
            "runs_signal",
            "runs_message",
            "runs_incident",
            "runs_cachedread",
            "runs_searchterm",
            "runs_telling",
            "runs_held",
            "runs_stood",
            "runs_attribute",
            "runs_runtag",
            "approvals_approval",
        ),
        "run_id = $1",
    ),
    "approvals_claim": _BY_APPROVAL,
    "approvals_decision": _BY_APPROVAL,
    "approvals_seat": _BY_DECISION,
    "approvals_assertion": "run_id = $1",
    "approvals_delegation": "run_id = $1",
    "approvals_escalation": "run_id = $1",
    "approvals_inquiry": "run_id = $1",
}
# Tables that name runs but are not archived, with the reason.
KEPT = {
    "runs_poolcharge": "the accounts of shared budgets",
    "runs_rampstart": "the records of ramps",
    "runs_firing": "the history of schedules",
    "runs_batchitem": "the records of bulk operations",
    "approvals_standinggrant": "runs with standing approvals are not archived",
    "approvals_standinguse": "likewise",
    "approvals_notice": "sent notices, which expire by themselves",
    "runs_listener": "who watches now",
    "runs_overheard": "live output, which expires by itself",
    "runs_permit": "calls in flight",
    "encryption_erasure": "the register of erasures",
}
_ORDERING = """
    SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY array_position(i.indkey::int2[], a.attnum))
    FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
    WHERE i.indisprimary AND i.indrelid = to_regclass(%s)"""


def rows() -> list[tuple[str, str, bool]]:
    """Return the tables in the order in which they are restored.

    Each has the SQL condition for a run's rows, and whether it is a bulk table. Apps add tables by
    `Feature.run_tables`."""
    own = {
        table: f"{column} = $1"
        for table, column in verified.items()
        if table not in SMALL and table not in BULK and table not in KEPT
    }
    return [
        *((table, "run_id = $1", True) for table in BULK),
        *((table, condition, False) for table, condition in {**SMALL, **own}.items()),
    ]


def write_down(*, using: str, **_: Any) -> None:
    """After a migration, store the list of tables that exist."""
    from durableagents.contrib.retention.models import RunTable

    connection = connections[using]
    present = set(connection.introspection.table_names())
    if RunTable._meta.db_table not in present:
        return  # after `migrate retention zero`
    found = []
    with connection.cursor() as cursor:
        for n, (table, condition, is_bulk) in enumerate(rows()):
            if table in present:
                cursor.execute(_ORDERING, [table])
                found.append(
                    RunTable(name=table, condition=condition, ordering=cursor.fetchone()[0], n=n, is_bulk=is_bulk)
                )
    known = RunTable.objects.using(using)
    known.exclude(name__in=[each.name for each in found]).delete()
    known.bulk_create(
        found,
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=["condition", "ordering", "n", "is_bulk"],
    )
