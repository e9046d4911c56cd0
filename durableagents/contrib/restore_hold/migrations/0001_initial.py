"""Marks, lines of marks that ended, workers that vouch, and findings. No mark exists at first: nothing was acknowledged."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Mark',
            fields=[
                ('id', models.SmallIntegerField(primary_key=True, serialize=False)),
                ('line', models.UUIDField(help_text='Replaced when an operator accepts a restored database.')),
                ('number', models.BigIntegerField()),
                ('host', models.UUIDField(help_text='The host that set it last.', null=True)),
                ('host_name', models.TextField(blank=True, default='')),
                ('at', models.DateTimeField()),
                ('timeline', models.IntegerField(help_text='Of the server when this line began: a promoted server begins another.')),
                ('began_with', models.UUIDField(help_text='The halt whose lifting began this line.', null=True)),
            ],
        ),
        migrations.CreateModel(
            name='PastLine',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('line', models.UUIDField()),
                ('had', models.BigIntegerField(help_text='The last mark of it that this database has.', null=True)),
                ('accepted', models.BigIntegerField(help_text='The last mark with which a host may follow this database.')),
                ('halt', models.UUIDField(null=True)),
                ('at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Voucher',
            fields=[
                ('worker', models.UUIDField(primary_key=True, serialize=False)),
                ('timeline', models.IntegerField()),
                ('server_began', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Finding',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('code', models.BinaryField(null=True)),
                ('halt', models.UUIDField()),
                ('host', models.UUIDField()),
                ('host_name', models.TextField()),
                ('reason', models.TextField(help_text='A code of comparing.py, requested, or found.')),
                ('head', models.JSONField(help_text="The host's head file, without anything secret.")),
                ('database', models.JSONField(help_text='What the database said of itself.')),
                ('at', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['halt', 'host', '-id'], name='restore_hold_of_halt')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='finding',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='0ce1f5d49e75db573e235264d1d34b6afcb1dc6b', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_4fc97', table='restore_hold_finding', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='finding',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='a0e1d147c3d581bb3404d1685d13a8c3c4f94be9', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_5ef93', table='restore_hold_finding', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='pastline',
            index=models.Index(fields=['line'], name='restore_hold_past_line'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='pastline',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='d935952690e318f09abefff8354f16f0a032123b', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_70212', table='restore_hold_pastline', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='pastline',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='6574d224cf9b204e1b71364222353cd09c44f483', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_66ae6', table='restore_hold_pastline', when='BEFORE')),
        ),
    ]
