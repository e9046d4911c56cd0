import django.db.models.deletion
import pgtrigger.compiler
from django.db import migrations, models

from ledger.migration_operations import AdoptModel


class Migration(migrations.Migration):
    is_removable = True  # read by ledger/schema.py

    initial = True

    dependencies = [
        ('approvals', '0002_encrypted_content'),
    ]

    operations = [
        AdoptModel(
            name='Claim',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('person', models.BigIntegerField(help_text='The account.')),
                ('by', models.TextField(help_text="The account's name at that time.")),
                ('role', models.TextField()),
                ('at', models.DateTimeField()),
                ('until', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('ended_by', models.TextField(blank=True, default='')),
                ('why', models.TextField(blank=True, default='', help_text='How it ended.')),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='claims', to='approvals.approval')),
            ],
            options={
                'db_table': 'approvals_claim',
                'indexes': [models.Index(condition=models.Q(('ended_at__isnull', True)), fields=['person'], name='approvals_claim_of')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('approval', 'person'), name='approvals_claim_one_each')],
                'triggers': [pgtrigger.compiler.Trigger(name='stays_ended', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."ended_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='0647fb4b737225765d168a56aa137f591dca4c9e', operation='UPDATE', pgid='pgtrigger_stays_ended_a0ebc', table='approvals_claim', when='BEFORE')), pgtrigger.compiler.Trigger(name='claim_is_frozen', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."approval_id" IS DISTINCT FROM (NEW."approval_id") OR OLD."person" IS DISTINCT FROM (NEW."person") OR OLD."by" IS DISTINCT FROM (NEW."by") OR OLD."role" IS DISTINCT FROM (NEW."role") OR OLD."at" IS DISTINCT FROM (NEW."at"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='2c0c0e6b306811df76d9de42dad50da58347740a', operation='UPDATE', pgid='pgtrigger_claim_is_frozen_2bce9', table='approvals_claim', when='BEFORE'))],
            },
        ),
    ]
