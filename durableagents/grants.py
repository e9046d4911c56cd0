"""What the runtime role may do, put right after every migration.

The owner role owns every table and is used for migrations only. Everything else runs as the
runtime role, which owns nothing: it reads and adds everywhere, changes and deletes only where a
row may change at all, and can neither truncate a table nor alter one. So a bug, or SQL smuggled
into the application, can't rewrite what happened, whatever it says to the ORM or in raw SQL.

Written for PostgreSQL 15 and later.
"""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db import connections
from psycopg import sql

# Facts: rows are added, never changed or taken away.
APPEND_ONLY = frozenset(
    {
        "ledger_event",
        "ledger_ledgerentry",
        "ledger_overriderecord",
        "approvals_decision",
        "runs_checkpoint",
        "runs_incident",
        "durableagents_masterkey",
    }
)
# Known to the runtime role, but the owner's business alone.
READ_ONLY = frozenset({"django_migrations", "django_content_type", "auth_permission"})


def grant_after_migrate(sender: AppConfig, using: str, **_: Any) -> None:
    """post_migrate receiver, connected for one app so that it runs once per `migrate`."""
    role = settings.DURABLEAGENTS_RUNTIME_ROLE
    connection = connections[using]
    if role is None or connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "select current_user, exists(select 1 from pg_roles where rolname = %s)", [role]
        )
        current, exists = cursor.fetchone()
        if current == role or not exists:
            return
        for statement in statements(role):
            # Composed with identifiers quoted; Django's cursor wants the finished text.
            cursor.execute(statement.as_string(cursor.connection))


def statements(role: str) -> list[sql.Composed]:
    """The grants, from nothing: a table that became append-only loses what it had."""
    to = sql.Identifier(role)
    plain = sql.SQL(
        """
        do $grants$
        declare
            name text;
            kind text;
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
                else
                    execute format('grant select, insert, update, delete on public.%I to %I', name, {role_name});
                end if;
            end loop;
        end
        $grants$
        """
    )
    body = plain.format(
        role_name=sql.Literal(role),
        read_only=sql.SQL("array[{}]").format(
            sql.SQL(", ").join(map(sql.Literal, sorted(READ_ONLY)))
        ),
        append_only=sql.SQL("array[{}]").format(
            sql.SQL(", ").join(map(sql.Literal, sorted(APPEND_ONLY)))
        ),
    )
    return [
        sql.SQL("revoke create on schema public from public").format(),
        sql.SQL("revoke create on schema public from {}").format(to),
        sql.SQL("grant usage on schema public to {}").format(to),
        sql.SQL("grant execute on all functions in schema public to {}").format(to),
        body,
    ]
