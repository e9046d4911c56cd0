"""Runs that go on as others, renewed or handed off: see runs/sql/0030_succession.sql."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0030_succession.sql")
SIGNATURE = (
    "uuid, bigint, uuid, ledger_line[], uuid, text, text, text, uuid, int, int, text, text, text[], jsonb, jsonb, "
    "bigint[], bigint[], int[], bigint[], ledger_line[]"
)
UNDO = f"DROP FUNCTION runs_succeed({SIGNATURE});"


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0029_overheard'),
    ]

    operations = [
        migrations.AddField(
            model_name='run',
            name='came_from',
            field=models.UUIDField(help_text='The run that goes on as this one.', null=True),
        ),
        migrations.AddField(
            model_name='run',
            name='first',
            field=models.UUIDField(help_text='The run that all began with, of one that goes on from another.', null=True),
        ),
        migrations.AddField(
            model_name='run',
            name='goes_on_as',
            field=models.UUIDField(help_text='The run that it goes on as: it ended by that.', null=True),
        ),
        migrations.AddField(
            model_name='run',
            name='goes_on_by',
            field=models.TextField(blank=True, db_default='', default='', help_text='renewal, handoff, or neither.'),
        ),
        migrations.AddField(
            model_name='run',
            name='handoffs',
            field=models.SmallIntegerField(db_default=0, default=0, help_text='How many of them handed off.'),
        ),
        migrations.AddField(
            model_name='run',
            name='turn',
            field=models.IntegerField(db_default=0, default=0, help_text='How many runs went before it.'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('first__isnull', False)), fields=['first', 'turn'], name='runs_run_succession'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='run',
            trigger=pgtrigger.compiler.Trigger(name='succession_is_frozen', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN ((OLD.came_from IS NOT NULL AND (NEW.came_from, NEW.first, NEW.turn) IS DISTINCT FROM (OLD.came_from, OLD.first, OLD.turn)) OR (OLD.goes_on_as IS NOT NULL AND (NEW.goes_on_as, NEW.goes_on_by) IS DISTINCT FROM (OLD.goes_on_as, OLD.goes_on_by)))', func="RAISE EXCEPTION 'which run goes on as which never changes: run %', OLD.id;", hash='14ce20ef3a083f35a4f0acb72cb463b131bd458f', operation='UPDATE OF "came_from", "first", "turn", "goes_on_as", "goes_on_by"', pgid='pgtrigger_succession_is_frozen_c6871', table='runs_run', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.UniqueConstraint(condition=models.Q(('came_from__isnull', False)), fields=('came_from',), name='runs_run_one_heir'),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
