from django.db import migrations, models

from ledger.migration_operations import AdoptModel


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('runs', '0003_protocol'),
    ]

    operations = [
        AdoptModel(
            name='Limit',
            fields=[
                ('key', models.TextField(primary_key=True, serialize=False)),
                ('given', models.JSONField(help_text='Rule set by a person; null: none.', null=True)),
                ('given_by', models.TextField(blank=True, db_default='', default='')),
                ('given_at', models.DateTimeField(null=True)),
                ('declared', models.JSONField(help_text="Rule of the installation's settings.", null=True)),
                ('of_tool', models.JSONField(help_text="Rule in the tool's own code.", null=True)),
                ('tokens', models.FloatField(db_default=0.0, default=0.0)),
                ('filled_at', models.DateTimeField(null=True)),
                ('held_until', models.DateTimeField(help_text='Upstream asked for a pause until then.', null=True)),
                ('parked_until', models.DateTimeField(help_text='When the last parked call comes back.', null=True)),
                ('breaker', models.TextField(choices=[('closed', 'Closed'), ('open', 'Open')], db_default='closed', default='closed')),
                ('is_by_hand', models.BooleanField(db_default=False, default=False)),
                ('opened_at', models.DateTimeField(null=True)),
                ('rest_until', models.DateTimeField(help_text='From then on one try at a time tests upstream; null: none does.', null=True)),
                ('openings', models.IntegerField(db_default=0, default=0)),
                ('window_at', models.DateTimeField(null=True)),
                ('ok', models.IntegerField(db_default=0, default=0)),
                ('failed', models.IntegerField(db_default=0, default=0)),
                ('ok_before', models.IntegerField(db_default=0, default=0)),
                ('failed_before', models.IntegerField(db_default=0, default=0)),
                ('last_error', models.TextField(blank=True, db_default='', default='')),
                ('last_error_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'runs_limit',
                'indexes': [models.Index(condition=models.Q(('key__endswith', '*')), fields=['key'], name='runs_limit_pattern')],
            },
        ),
        AdoptModel(
            name='Permit',
            fields=[
                ('pk', models.CompositePrimaryKey('id', 'key', blank=True, editable=False, primary_key=True, serialize=False)),
                ('id', models.UUIDField()),
                ('key', models.TextField()),
                ('worker', models.UUIDField()),
                ('run_id', models.UUIDField()),
                ('slot', models.TextField()),
                ('taken_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('is_probe', models.BooleanField(db_default=False, default=False)),
            ],
            options={
                'db_table': 'runs_permit',
                'indexes': [models.Index(fields=['key'], name='runs_permit_of_key')],
            },
        ),
        AdoptModel(
            name='LimitLine',
            fields=[
                ('pk', models.CompositePrimaryKey('key', 'worker', blank=True, editable=False, primary_key=True, serialize=False)),
                ('key', models.TextField()),
                ('worker', models.UUIDField()),
                ('since', models.DateTimeField()),
                ('seen_until', models.DateTimeField()),
                ('waiting', models.IntegerField(default=1)),
            ],
            options={
                'db_table': 'runs_limitline',
            },
        ),
    ]
