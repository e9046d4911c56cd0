"""What people are told of: the outbox, its deliveries, and how people and queues want to be told."""

import datetime
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0060_notices.sql")
UNDO = """
DROP TRIGGER approvals_run_failed ON runs_run;
DROP TRIGGER approvals_wait_overdue ON runs_wait;
DROP TRIGGER approvals_wait_opened ON runs_wait;
DROP TRIGGER approvals_gate_reopened ON approvals_approval;
DROP TRIGGER approvals_gate_opened ON approvals_approval;
DROP FUNCTION approvals_on_failure();
DROP FUNCTION approvals_on_wait();
DROP FUNCTION approvals_on_gate();
DROP FUNCTION approvals_tell(text, text, uuid, uuid, uuid, bigint, text, timestamptz);
"""


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0031_decided_once'),
        ('runs', '0055_by_creator'),
    ]

    operations = [
        migrations.CreateModel(
            name='Preference',
            fields=[
                ('person', models.BigIntegerField(primary_key=True, serialize=False)),
                ('ways', models.JSONField(default=dict, help_text='Kind → the ways in which they are told of it.')),
                ('zone', models.TextField(default='UTC')),
                ('quiet_from', models.TimeField(null=True)),
                ('quiet_until', models.TimeField(null=True)),
                ('digest', models.TextField(choices=[('none', 'None'), ('hourly', 'Hourly'), ('daily', 'Daily')], default='none')),
                ('digest_at', models.TimeField(default=datetime.time(8, 0))),
                ('changed_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Channel',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('form', models.TextField(choices=[('webhook', 'Webhook'), ('mailbox', 'Mailbox')])),
                ('name', models.TextField()),
                ('address', models.TextField()),
                ('shown', models.TextField()),
                ('kinds', models.JSONField()),
                ('set_by', models.TextField()),
                ('made_at', models.DateTimeField()),
                ('changed_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('queue', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='channels', to='approvals.queue')),
            ],
        ),
        migrations.CreateModel(
            name='Notice',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('fact', models.TextField(unique=True)),
                ('kind', models.TextField()),
                ('run_id', models.UUIDField(null=True)),
                ('approval_id', models.UUIDField(null=True)),
                ('wait_id', models.UUIDField(null=True)),
                ('person', models.BigIntegerField(help_text='Empty: whoever the kind is for; else this account alone.', null=True)),
                ('about', models.TextField(blank=True, default='', help_text="What has no row of its own: an agent's version.")),
                ('state', models.TextField(choices=[('new', 'New'), ('addressed', 'Addressed'), ('over', 'Over')], default='new')),
                ('note', models.TextField(blank=True, default='')),
                ('at', models.DateTimeField()),
                ('due_at', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('state', 'new')), fields=['due_at', 'id'], name='approvals_notice_due'), models.Index(condition=models.Q(('about', ''), _negated=True), fields=['kind', 'about', '-at'], name='approvals_notice_about'), models.Index(fields=['at'], name='approvals_notice_old')],
            },
        ),
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('by', models.TextField(choices=[('email', 'Email'), ('browser', 'Browser'), ('mailbox', 'Mailbox'), ('webhook', 'Webhook')])),
                ('person', models.BigIntegerField(null=True)),
                ('state', models.TextField(choices=[('waiting', 'Waiting'), ('sending', 'Sending'), ('sent', 'Sent'), ('needless', 'Needless'), ('dead', 'Dead')], default='waiting')),
                ('is_grouped', models.BooleanField(default=False, help_text='Told together with what else is due then.')),
                ('message', models.UUIDField(help_text='What it is sent as: the same for each try, and for a group.', null=True)),
                ('due_at', models.DateTimeField()),
                ('tries', models.JSONField(default=list)),
                ('note', models.TextField(blank=True, default='', help_text='Why it was not sent, or is tried again.')),
                ('made_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('channel', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='deliveries', to='approvals.channel')),
                ('notice', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='approvals.notice')),
            ],
        ),
        migrations.AddConstraint(
            model_name='channel',
            constraint=models.UniqueConstraint(fields=('name', 'made_at'), name='approvals_channel_once'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='channel',
            trigger=pgtrigger.compiler.Trigger(name='stays_ended', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."ended_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='d511903fc24831e1339474a3c98e3288c5a6ade9', operation='UPDATE', pgid='pgtrigger_stays_ended_cc27b', table='approvals_channel', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('state__in', ['waiting', 'sending'])), fields=['by', 'due_at', 'id'], name='approvals_delivery_due'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('message__isnull', False)), fields=['message'], name='approvals_delivery_sent'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(fields=['person', 'by', '-made_at'], name='approvals_delivery_of'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(fields=['-made_at', '-id'], name='approvals_delivery_log'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(fields=['state', '-made_at', '-id'], name='approvals_delivery_by_state'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.UniqueConstraint(fields=('notice', 'by', 'person', 'channel'), name='approvals_delivery_once', nulls_distinct=False),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
