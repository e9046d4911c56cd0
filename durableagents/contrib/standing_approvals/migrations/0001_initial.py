import django.db.models.deletion
from django.db import migrations, models

from ledger.migration_operations import AdoptModel, append_only_triggers


class Migration(migrations.Migration):
    is_removable = True  # read by ledger/schema.py

    initial = True

    dependencies = [
        ('approvals', '0002_encrypted_content'),
    ]

    operations = [
        AdoptModel(
            name='StandingGrant',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField(help_text='The run in which it was given.')),
                ('queue', models.TextField()),
                ('tool', models.TextField()),
                ('agent', models.TextField(help_text='Name of the agent, in any version.')),
                ('is_of_run', models.BooleanField(help_text='Whether it applies to that run only.')),
                ('same', models.TextField()),
                ('fields', models.JSONField(help_text='Arguments that must be identical.')),
                ('count', models.IntegerField()),
                ('most', models.DecimalField(decimal_places=6, help_text='Total amount of all uses.', max_digits=36, null=True)),
                ('currency', models.TextField(blank=True, default='')),
                ('until', models.DateTimeField()),
                ('person', models.BigIntegerField(help_text='The account of the person who gave it.')),
                ('by', models.TextField()),
                ('role', models.TextField()),
                ('reason', models.TextField()),
                ('at', models.DateTimeField()),
                ('approval', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='standing_grant', to='approvals.approval')),
            ],
            options={
                'db_table': 'approvals_standinggrant',
                'indexes': [models.Index(fields=['same', 'until'], name='approvals_grant_of_same'), models.Index(fields=['until'], name='approvals_grant_until'), models.Index(fields=['run_id'], name='approvals_grant_of_run'), models.Index(fields=['queue', '-at', '-id'], name='approvals_grant_of_queue')],
                'triggers': append_only_triggers('standing_approvals.StandingGrant', 'approvals_standinggrant'),
            },
        ),
        AdoptModel(
            name='StandingUse',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('n', models.IntegerField()),
                ('run_id', models.UUIDField()),
                ('amount', models.DecimalField(decimal_places=6, max_digits=36, null=True)),
                ('at', models.DateTimeField()),
                ('approval', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='standing_use', to='approvals.approval')),
                ('grant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='uses', to='standing_approvals.standinggrant')),
            ],
            options={
                'db_table': 'approvals_standinguse',
                'indexes': [models.Index(fields=['run_id'], name='approvals_use_of_run')],
                'constraints': [models.UniqueConstraint(fields=('grant', 'n'), name='approvals_use_once')],
                'triggers': append_only_triggers('standing_approvals.StandingUse', 'approvals_standinguse'),
            },
        ),
        AdoptModel(
            name='StandingEnd',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('grant', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='end', serialize=False, to='standing_approvals.standinggrant')),
                ('person', models.BigIntegerField(null=True)),
                ('by', models.TextField()),
                ('role', models.TextField()),
                ('reason', models.TextField()),
                ('at', models.DateTimeField()),
            ],
            options={
                'db_table': 'approvals_standingend',
                'triggers': append_only_triggers('standing_approvals.StandingEnd', 'approvals_standingend'),
            },
        ),
    ]
