"""Seals, what they cover, keys, witnesses and deliveries, and an index by which new events are found."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


# A BRIN index holds the first and last time of each megabyte of events: a few pages for gigabytes. An append only looks at
# the summary of its own range, which exists for older ranges alone. Autovacuum summarizes each range once it is full.
BY_TIME = "CREATE INDEX seals_event_by_time ON ledger_event USING brin (at) WITH (autosummarize = on)"


class Migration(migrations.Migration):

    initial = True

    dependencies = [("ledger", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name='Seal',
            fields=[
                ('number', models.BigIntegerField(primary_key=True, serialize=False)),
                ('at', models.DateTimeField()),
                ('key', models.BigIntegerField(help_text='The number of the key that signed it.')),
                ('previous', models.BinaryField(max_length=32)),
                ('root', models.BinaryField(max_length=32)),
                ('count', models.BigIntegerField()),
                ('signature', models.BinaryField(max_length=64)),
                ('oldest_open_xid', models.BigIntegerField(help_text='No older transaction was in progress when heads were read.')),
                ('next_xid', models.BigIntegerField(help_text='Transactions from here on began later.')),
            ],
        ),
        migrations.CreateModel(
            name='SealedHead',
            fields=[
                ('pk', models.CompositePrimaryKey('run_id', 'seq', blank=True, editable=False, primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('seq', models.BigIntegerField()),
                ('hash', models.BinaryField(max_length=32)),
                ('seal', models.BigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name='SealKey',
            fields=[
                ('number', models.BigIntegerField(primary_key=True, serialize=False)),
                ('public_key', models.BinaryField(max_length=32)),
                ('made_at', models.DateTimeField()),
                ('reason', models.TextField(blank=True)),
                ('by', models.TextField()),
                ('signature', models.BinaryField(max_length=64)),
            ],
        ),
        migrations.CreateModel(
            name='Witness',
            fields=[
                ('name', models.TextField(primary_key=True, serialize=False)),
                ('due_at', models.DateTimeField()),
                ('failures', models.IntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('witness', models.TextField()),
                ('first', models.BigIntegerField(help_text='The first seal of the batch.')),
                ('last', models.BigIntegerField(help_text='The last seal of the batch that was taken, or the one that failed.')),
                ('at', models.DateTimeField()),
                ('outcome', models.TextField(choices=[('taken', 'Taken'), ('failed', 'Failed')])),
                ('error', models.TextField(blank=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('outcome', 'taken')), fields=['witness', 'last'], name='seals_delivery_taken'), models.Index(fields=['witness', '-id'], name='seals_delivery_by_witness')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='delivery',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='a094303b317fdd24b9980e29ede00aa963369b1a', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_505dc', table='seals_delivery', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='delivery',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='4c98fe64eada39951744612f23ef0a006298f280', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_af535', table='seals_delivery', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='seal',
            constraint=models.UniqueConstraint(fields=('previous',), name='seals_seal_one_successor'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='seal',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='1be3ef459250e8d6bcf1bd60d9edbd92989642be', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_f3f45', table='seals_seal', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='seal',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='471ffc53053b1297e694f534618404d6b8110f74', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_a14dc', table='seals_seal', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='sealedhead',
            index=models.Index(fields=['seal', 'run_id'], name='seals_head_by_seal'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='sealedhead',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='148330d11e2f79bd0de23d52be3dde86357320b0', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_489b3', table='seals_sealedhead', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='sealedhead',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='bac3912be7830cc2c00df52cec36488ad8db5d0b', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_dc5be', table='seals_sealedhead', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='sealkey',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='8fc0c01cc2096c013a775fc733ff9eefdc78dc63', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_c8e8e', table='seals_sealkey', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='sealkey',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='28c1bc69a3a32e7d60a243eecaaa2aee8464f22b', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_76613', table='seals_sealkey', when='BEFORE')),
        ),
        migrations.RunSQL(BY_TIME, "DROP INDEX seals_event_by_time"),
    ]
