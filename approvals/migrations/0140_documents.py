"""Documents in a case: their bytes by digest, and which a question shows."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0136_by_sameness'),
    ]

    operations = [
        migrations.CreateModel(
            name='Document',
            fields=[
                ('digest', models.TextField(primary_key=True, serialize=False)),
                ('size', models.IntegerField()),
                ('content', models.BinaryField()),
                ('stored_at', models.DateTimeField()),
            ],
        ),
        migrations.AddField(
            model_name='approval',
            name='documents',
            field=models.JSONField(db_default=[], default=list, help_text='What is shown with it, as the plan names it: see documents/.'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='approval',
            trigger=pgtrigger.compiler.Trigger(name='documents_are_frozen', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."documents" IS DISTINCT FROM (NEW."documents"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='0f85197993898daa64bace5aad992d0c76699814', operation='UPDATE', pgid='pgtrigger_documents_are_frozen_e949c', table='approvals_approval', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='document',
            constraint=models.CheckConstraint(condition=models.Q(('digest', models.Func(models.F('content'), output_field=models.TextField(), template="encode(sha256(%(expressions)s), 'hex')"))), name='approvals_document_is_its_digest'),
        ),
        migrations.AddConstraint(
            model_name='document',
            constraint=models.CheckConstraint(condition=models.Q(('size', models.Func(models.F('content'), function='octet_length', output_field=models.IntegerField()))), name='approvals_document_has_its_size'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='document',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='a932aafadd8cff397be5e313814e6f75a9ce1fc5', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_f1c60', table='approvals_document', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='document',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='5fd7350afca09ff4b711b2c7ca20278e2b0c9b47', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_e33ed', table='approvals_document', when='BEFORE')),
        ),
    ]
