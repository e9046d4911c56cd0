import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


# Whoever asks is whoever started the run.
WHO = """
UPDATE approvals_approval a SET requester = r.creator FROM runs_run r WHERE r.id = a.run_id AND a.requested_by = r.created_by
"""


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0009_who'),
        ("approvals", "0002_guards"),
    ]

    operations = [
        pgtrigger.migrations.RemoveTrigger(
            model_name='approval',
            name='question_is_frozen',
        ),
        migrations.AddField(
            model_name='approval',
            name='requester',
            field=models.BigIntegerField(help_text='The account of whoever asked: names can be changed.', null=True),
        ),
        migrations.AddField(
            model_name='decision',
            name='after',
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name='decision',
            name='before',
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name='decision',
            name='chain',
            field=models.BinaryField(max_length=32, null=True),
        ),
        migrations.AddField(
            model_name='decision',
            name='person',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='decision',
            name='seq',
            field=models.BigIntegerField(help_text="The journal's last event when the person decided.", null=True),
        ),
        migrations.AddIndex(
            model_name='decision',
            index=models.Index(fields=['-at', '-id'], name='approvals_decided_by_moment'),
        ),
        migrations.AddIndex(
            model_name='decision',
            index=models.Index(fields=['verdict', '-at', '-id'], name='approvals_decided_by_verdict'),
        ),
        migrations.AddIndex(
            model_name='decision',
            index=models.Index(fields=['by', '-at', '-id'], name='approvals_decided_by_who'),
        ),
        migrations.RunSQL(WHO, migrations.RunSQL.noop),
        pgtrigger.migrations.AddTrigger(
            model_name='approval',
            trigger=pgtrigger.compiler.Trigger(name='question_is_frozen', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."run_id" IS DISTINCT FROM (NEW."run_id") OR OLD."wait_id" IS DISTINCT FROM (NEW."wait_id") OR OLD."queue" IS DISTINCT FROM (NEW."queue") OR OLD."revision" IS DISTINCT FROM (NEW."revision") OR OLD."previous_id" IS DISTINCT FROM (NEW."previous_id") OR OLD."tool" IS DISTINCT FROM (NEW."tool") OR OLD."title" IS DISTINCT FROM (NEW."title") OR OLD."effect" IS DISTINCT FROM (NEW."effect") OR OLD."rule" IS DISTINCT FROM (NEW."rule") OR OLD."plan" IS DISTINCT FROM (NEW."plan") OR OLD."plan_hash" IS DISTINCT FROM (NEW."plan_hash") OR OLD."evidence" IS DISTINCT FROM (NEW."evidence") OR OLD."why" IS DISTINCT FROM (NEW."why") OR OLD."requested_by" IS DISTINCT FROM (NEW."requested_by") OR OLD."requester" IS DISTINCT FROM (NEW."requester") OR OLD."opened_at" IS DISTINCT FROM (NEW."opened_at"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='2c598e2b19674449a564fd7c10fd96da48862c42', operation='UPDATE', pgid='pgtrigger_question_is_frozen_01ef7', table='approvals_approval', when='BEFORE')),
        ),
    ]
