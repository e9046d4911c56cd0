"""Names the test file that left the database's structure changed, instead of failing in a later one."""

from __future__ import annotations

from django.db import connection

Shape = dict[str, str]

_SHAPE = """
    SELECT 'function ' || p.oid::regprocedure, md5(p.prosrc) || coalesce(p.proacl::text, '')
    FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'trigger ' || t.tgname || ' on ' || t.tgrelid::regclass, t.tgenabled::text || t.tgtype || t.tgfoid::regproc
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE c.relnamespace = 'public'::regnamespace AND NOT t.tgisinternal
    UNION ALL
    SELECT 'constraint ' || n.conname || ' on ' || n.conrelid::regclass, n.contype::text
    FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid WHERE c.relnamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'relation ' || c.relname, c.relkind::text || c.relhasrules || coalesce(c.relacl::text, '')
    FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'column ' || a.attname || ' of ' || a.attrelid::regclass,
        a.atttypid::regtype::text || a.attnotnull || coalesce(a.attacl::text, '')
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND a.attnum > 0
        AND NOT a.attisdropped
    UNION ALL
    SELECT 'settings of ' || coalesce(s.setrole::regrole::text, 'all'), s.setconfig::text
    FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase WHERE d.datname = current_database()
"""


def shape() -> Shape:
    """Return functions, triggers, constraints, tables and columns with their rights, and settings, by name."""
    with connection.cursor() as cursor:
        cursor.execute(_SHAPE)
        return dict(cursor.fetchall())


def left_behind(before: Shape, after: Shape) -> list[str]:
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
