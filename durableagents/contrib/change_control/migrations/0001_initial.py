import django.contrib.postgres.fields
import ledger.models
import pgtrigger.compiler
from django.db import migrations, models

from ledger.migration_operations import AdoptModel, append_only_triggers


class Migration(migrations.Migration):
    is_removable = True  # read by ledger/schema.py
    needed_while = (
        "coalesce((SELECT cardinality(families) > 0 FROM ledger_foureyes ORDER BY n DESC LIMIT 1), false)",
        "changes of rules need two people: let one be enough first",
    )

    initial = True

    dependencies = [
        ('ledger', '0002_verification_jobs'),
    ]

    operations = [
        AdoptModel(
            name='FourEyes',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('n', models.BigIntegerField(primary_key=True, serialize=False)),
                ('families', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None)),
                ('set_by', models.TextField()),
                ('at', models.DateTimeField()),
            ],
            options={
                'db_table': 'ledger_foureyes',
                'triggers': append_only_triggers('change_control.FourEyes', 'ledger_foureyes'),
            },
        ),
        AdoptModel(
            name='RuleChange',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.UUIDField(primary_key=True, serialize=False)),
                ('family', models.TextField()),
                ('act', models.TextField(help_text='The service, by the name of its function.')),
                ('given', models.JSONField(help_text='Arguments of the service function.')),
                ('told', models.JSONField(help_text='Records that the act would have written: action, subject, queue, before, after.')),
                ('why', models.TextField()),
                ('by', models.TextField()),
                ('person', models.BigIntegerField()),
                ('role', models.TextField(blank=True)),
                ('auth', models.TextField(blank=True)),
                ('address', models.TextField(blank=True)),
                ('made_at', models.DateTimeField()),
                ('state', models.TextField(choices=[('open', 'Open'), ('applied', 'Applied'), ('refused', 'Refused'), ('withdrawn', 'Withdrawn')], default='open')),
                ('ended_by', models.TextField(blank=True, default='')),
                ('ended_at', models.DateTimeField(null=True)),
                ('ended_why', models.TextField(blank=True, default='')),
            ],
            options={
                'db_table': 'ledger_rulechange',
                'indexes': [models.Index(fields=['-made_at'], name='ledger_rulechange_newest'), models.Index(condition=models.Q(('state', 'open')), fields=['-made_at'], name='ledger_rulechange_open')],
                'triggers': [pgtrigger.compiler.Trigger(name='kept', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot delete rows from % table', TG_TABLE_NAME;", hash='678da95f8eac4297a6211cd653ca22123c923544', operation='DELETE', pgid='pgtrigger_kept_8bffc', table='ledger_rulechange', when='BEFORE')), pgtrigger.compiler.Trigger(name='ends_once', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (OLD.state <> 'open')", func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='95da1134625da0fe14046d13f8d9cad91c211423', operation='UPDATE', pgid='pgtrigger_ends_once_ebe66', table='ledger_rulechange', when='BEFORE'))],
            },
        ),
    ]
