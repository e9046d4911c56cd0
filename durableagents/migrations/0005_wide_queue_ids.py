"""The doorbells' numbers may go past 2,147,483,647: every start and every wake takes one, in the transaction that it belongs to.

django-q2 makes the column an integer, and its model still says so: it reads larger numbers, and finds none of them *by* number, which
nothing here does (the broker takes messages by its own statement). Going back is refused by the
database once a larger number is in the table.
"""

from django.db import migrations

_COLUMN = """
DO $$
DECLARE
    counter text := pg_get_serial_sequence('django_q_ormq', 'id');
BEGIN
    ALTER TABLE django_q_ormq ALTER COLUMN id TYPE {kind};
    -- An identity's sequence follows its column; the one of an older `serial` doesn't.
    EXECUTE format('ALTER SEQUENCE %s AS {kind}', counter);
END $$;
"""
_STORAGE = "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000"


class Migration(migrations.Migration):
    dependencies = [("durableagents", "0004_attempts"), ("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more")]
    operations = [
        migrations.RunSQL(_COLUMN.format(kind="bigint"), _COLUMN.format(kind="integer")),
        # Rows live for milliseconds: a queue that is emptied all day is read through what it left behind.
        migrations.RunSQL(
            f"ALTER TABLE django_q_ormq SET ({_STORAGE});",
            "ALTER TABLE django_q_ormq RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);",
        ),
    ]
