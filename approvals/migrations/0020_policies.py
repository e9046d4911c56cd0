"""Policies: the rules that administrators keep, by versions that stay."""

import django.db.models.functions.text
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0009_asked'),
    ]

    operations = [
        migrations.CreateModel(
            name='Policy',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.TextField()),
                ('version', models.IntegerField()),
                ('agent', models.TextField(blank=True, default='')),
                ('tool', models.TextField(blank=True, default='')),
                ('condition', models.TextField(blank=True, default='')),
                ('kinds', models.JSONField(default=dict)),
                ('effect', models.TextField(choices=[('allow', 'Allow'), ('require', 'Require'), ('deny', 'Deny')])),
                ('queue', models.TextField(blank=True, default='')),
                ('within_seconds', models.IntegerField(default=0)),
                ('rule', models.TextField(help_text='Why, in words for people and agents.')),
                ('set_by', models.TextField()),
                ('made_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('ended_by', models.TextField(blank=True, default='')),
            ],
            options={
                'constraints': [models.UniqueConstraint(django.db.models.functions.text.Lower('name'), condition=models.Q(('ended_at__isnull', True)), name='approvals_policy_one_in_force'), models.UniqueConstraint(django.db.models.functions.text.Lower('name'), models.F('version'), name='approvals_policy_version_once')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='policy',
            trigger=pgtrigger.compiler.Trigger(name='stays_ended', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."ended_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='7b914634cad928fd239415a218cb0f8333c73d00', operation='UPDATE', pgid='pgtrigger_stays_ended_665a2', table='approvals_policy', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='policy',
            trigger=pgtrigger.compiler.Trigger(name='stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot delete rows from % table', TG_TABLE_NAME;", hash='4c8c3d405fb9d39ab7ad631ea53f7b711b433f6d', operation='DELETE', pgid='pgtrigger_stays_50c04', table='approvals_policy', when='BEFORE')),
        ),
    ]
