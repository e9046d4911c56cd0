"""Grant the runtime role its rights after every migration, so that neither bugs nor injected SQL can rewrite history.

Needs PostgreSQL 15 or later.
"""

# The owner role owns every table and is used for migrations only. The runtime role owns nothing: it reads and inserts
# everywhere, updates and deletes only in tables whose rows may change, and can't truncate or alter tables.

from __future__ import annotations

import json
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.db import connections
from psycopg import sql

# Tables of facts, whose rows are only added.
APPEND_ONLY = frozenset(
    {
        "ledger_event",
        "ledger_ledgerentry",
        "ledger_overriderecord",
        "ledger_actrecord",
        "approvals_decision",
        "approvals_escalation",
        "runs_agentcode",
        "runs_checkpoint",
        "runs_incident",
        "runs_price",
        "runs_policyrevision",
        "durableagents_masterkey",
        "durableagents_document",
        "django_admin_log",  # Django's log of changes under /admin/.
    }
)
# Tables whose rows may change but not be deleted: no part of a run may vanish without a trace, and only the owner
# deletes runs. The columns named here never change. (Frozen columns of approvals are protected by a trigger, even from
# the owner.)
FROZEN = {
    "ledger_head": {"run_id"},
    "ledger_rowcode": {"table_name", "key"},
    "runs_run": {
        "id",
        "agent",
        "version",
        "graph_id",
        "protocol",
        "created_by",
        "creator",
        "created_at",
        "trace_id",
        "about",
        "erased_at",
    },
    "runs_wait": {"id", "run_id", "slot", "attempt", "kind", "n", "opened_at", "detail", "token_hash"},
    "runs_signal": {"id", "run_id", "name", "n", "seq", "sender_id"},
    "runs_message": {"id", "run_id", "n", "name", "by", "sender_id", "seq"},
    "approvals_approval": {"id"},
    "approvals_queue": {"id", "name", "made_at"},
    "approvals_limit": {"id", "queue_id", "person", "most", "currency", "set_by", "set_at"},
    "approvals_deputy": {
        "id",
        "principal",
        "deputy",
        "queue_id",
        "starts_at",
        "ends_at",
        "reason",
        "set_by",
        "made_at",
    },
    "approvals_inquiry": {
        "id",
        "approval_id",
        "run_id",
        "n",
        "asker",
        "by",
        "role",
        "person",
        "to",
        "question",
        "stops_clock",
        "at",
    },
    "approvals_delegation": {
        "id",
        "approval_id",
        "run_id",
        "n",
        "principal",
        "by",
        "role",
        "deputy",
        "to",
        "reason",
        "made_at",
    },
    "runs_agentversion": {"graph_id", "first_used_at"},
}
# Tables that the runtime role reads and only the owner writes.
READ_ONLY = frozenset(
    {
        "django_migrations",
        "django_content_type",
        "auth_permission",
        "ledger_definition",
        "runs_runtag",  # a trigger writes it as the owner
        "approvals_seat",  # a trigger writes it as the owner
        "ledger_accountrecord",
        "ledger_register",
        "durableagents_endedsession",  # a trigger writes it as the owner
    }
)


def append_only() -> frozenset[str]:
    """Return all append-only tables. Apps outside the core list theirs in `append_only_tables` of their AppConfig."""
    return APPEND_ONLY.union(*(getattr(app, "append_only_tables", ()) for app in apps.get_app_configs()))


def frozen() -> dict[str, set[str]]:
    """Return the columns that never change, by table. Apps list theirs in `frozen_columns` of their AppConfig."""
    found = dict(FROZEN)
    for app in apps.get_app_configs():
        found.update(getattr(app, "frozen_columns", {}))
    return found


def read_only() -> frozenset[str]:
    """Return all tables that only the owner writes. Apps list theirs in `read_only_tables` of their AppConfig."""
    return READ_ONLY.union(*(getattr(app, "read_only_tables", ()) for app in apps.get_app_configs()))


def grant_after_migrate(sender: AppConfig, using: str, **_: Any) -> None:
    """Grant the rights. This post_migrate receiver is connected for one app only, so it runs once per `migrate`."""
    role = settings.DURABLEAGENTS_RUNTIME_ROLE
    connection = connections[using]
    if role is None or connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute("select current_user, exists(select 1 from pg_roles where rolname = %s)", [role])
        current, exists = cursor.fetchone()
        if current == role or not exists:
            return
        for statement in statements(role):
            # Statements are composed with quoted identifiers, but Django's cursor needs the final text.
            cursor.execute(statement.as_string(cursor.connection))


_GRANTS = """
        do $grants$
        declare
            name text;
            kind text;
            mutable text;
        begin
            for name, kind in
                select c.relname, c.relkind from pg_class c
                where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'S', 'v', 'm')
                and pg_get_userbyid(c.relowner) = current_user
            loop
                execute format('revoke all on public.%I from %I', name, {role_name});
                if kind = 'S' then
                    execute format('grant usage, select on public.%I to %I', name, {role_name});
                elsif name = any ({read_only}) or kind in ('v', 'm') then
                    execute format('grant select on public.%I to %I', name, {role_name});
                elsif name = any ({append_only}) then
                    execute format('grant select, insert on public.%I to %I', name, {role_name});
                elsif name = any ({kept}) then
                    execute format('grant select, insert on public.%I to %I', name, {role_name});
                    select string_agg(quote_ident(a.attname), ', ') into mutable from pg_attribute a
                    where a.attrelid = format('public.%I', name)::regclass and a.attnum > 0 and not a.attisdropped
                    and not (a.attname = any (array(select jsonb_array_elements_text({frozen}::jsonb -> name))));
                    execute format('grant update (%s) on public.%I to %I', mutable, name, {role_name});
                else
                    execute format('grant select, insert, update, delete on public.%I to %I', name, {role_name});
                end if;
            end loop;
        end
        $grants$
        """


def statements(role: str) -> list[sql.Composed]:
    """Return all grants from scratch, so that a table that became append-only loses its old grants."""
    to = sql.Identifier(role)
    plain = sql.SQL(_GRANTS)
    body = plain.format(
        role_name=sql.Literal(role),
        read_only=sql.SQL("array[{}]").format(sql.SQL(", ").join(map(sql.Literal, sorted(read_only())))),
        append_only=sql.SQL("array[{}]").format(sql.SQL(", ").join(map(sql.Literal, sorted(append_only())))),
        kept=sql.SQL("array[{}]").format(sql.SQL(", ").join(map(sql.Literal, sorted(frozen())))),
        frozen=sql.Literal(json.dumps({table: sorted(columns) for table, columns in frozen().items()})),
    )
    return [
        sql.SQL("revoke create on schema public from public").format(),
        sql.SQL("revoke create on schema public from {}").format(to),
        sql.SQL("grant usage on schema public to {}").format(to),
        sql.SQL("grant execute on all functions in schema public to {}").format(to),
        body,
    ]
