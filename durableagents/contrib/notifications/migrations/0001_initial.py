import django.db.models.deletion
import pgtrigger.compiler
from django.db import migrations, models

import durableagents.contrib.notifications.models
from ledger.migration_operations import AdoptModel


class Migration(migrations.Migration):
    is_removable = True  # read by ledger/schema.py

    initial = True

    dependencies = [
        ('approvals', '0002_encrypted_content'),
    ]

    operations = [
        AdoptModel(
            name='Notice',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('fact', models.TextField(unique=True)),
                ('kind', models.TextField()),
                ('run_id', models.UUIDField(null=True)),
                ('approval_id', models.UUIDField(null=True)),
                ('wait_id', models.UUIDField(null=True)),
                ('person', models.BigIntegerField(help_text='Empty: all recipients of the kind; otherwise this account only.', null=True)),
                ('about', models.TextField(blank=True, default='', help_text="Subject without an id of its own: an agent's version.")),
                ('state', models.TextField(choices=[('new', 'New'), ('addressed', 'Addressed'), ('over', 'Over')], default='new')),
                ('note', models.TextField(blank=True, default='')),
                ('at', models.DateTimeField()),
                ('due_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'approvals_notice',
                'indexes': [models.Index(condition=models.Q(('state', 'new')), fields=['due_at', 'id'], name='approvals_notice_due'), models.Index(condition=models.Q(('about', ''), _negated=True), fields=['kind', 'about', '-at'], name='approvals_notice_about'), models.Index(fields=['at'], name='approvals_notice_old')],
            },
        ),
        AdoptModel(
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
            options={
                'db_table': 'approvals_channel',
                'constraints': [models.UniqueConstraint(fields=('name', 'made_at'), name='approvals_channel_once')],
                'triggers': [pgtrigger.compiler.Trigger(name='stays_ended', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."ended_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='b11bda98f254ec9dfe16878cad8e7fb1e584e417', operation='UPDATE', pgid='pgtrigger_stays_ended_857ec', table='approvals_channel', when='BEFORE'))],
            },
        ),
        AdoptModel(
            name='Device',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('person', models.BigIntegerField(help_text='The account.')),
                ('name', models.TextField(help_text='Name of the browser, as the browser reports it.')),
                ('service', models.TextField(help_text="Host of the device's push service.")),
                ('address', models.TextField(help_text='Endpoint and keys of the device, encrypted.')),
                ('digest', models.BinaryField(help_text='Of the endpoint.', max_length=32)),
                ('key', models.TextField(help_text="Public key of this installation that the subscription is bound to.")),
                ('token_hash', models.BinaryField(help_text='Digest of the token that the browser stores.', max_length=32)),
                ('made_at', models.DateTimeField()),
                ('told_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('why', models.TextField(blank=True, default='', help_text='Reason for its end.')),
            ],
            options={
                'db_table': 'approvals_device',
                'indexes': [models.Index(condition=models.Q(('ended_at__isnull', True)), fields=['person'], name='approvals_device_of'), models.Index(fields=['token_hash'], name='approvals_device_browser')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('digest',), name='approvals_device_once'), models.UniqueConstraint(fields=('digest', 'made_at'), name='approvals_device_made_once')],
                'triggers': [pgtrigger.compiler.Trigger(name='device_stays_ended', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."ended_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='a6d4db4189b976d3a6f2c30c72c9bd6782d431b4', operation='UPDATE', pgid='pgtrigger_device_stays_ended_a7776', table='approvals_device', when='BEFORE'))],
            },
        ),
        AdoptModel(
            name='Delivery',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('by', models.TextField(choices=[('email', 'Email'), ('browser', 'Browser'), ('mailbox', 'Mailbox'), ('webhook', 'Webhook'), ('push', 'Push')])),
                ('person', models.BigIntegerField(null=True)),
                ('state', models.TextField(choices=[('waiting', 'Waiting'), ('sending', 'Sending'), ('sent', 'Sent'), ('needless', 'Needless'), ('dead', 'Dead')], default='waiting')),
                ('is_grouped', models.BooleanField(default=False, help_text='Time when it is sent, together with other due ones.')),
                ('message', models.UUIDField(help_text='Id of the message: the same for each attempt and for all of a group.', null=True)),
                ('due_at', models.DateTimeField()),
                ('tries', models.JSONField(default=list, help_text='List of the attempts, each with at, outcome, why and message (its id).')),
                ('note', models.TextField(blank=True, default='', help_text='Why the message was not sent, or is tried again.')),
                ('made_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('channel', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='deliveries', to='notifications.channel')),
                ('notice', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='notifications.notice')),
                ('device', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='deliveries', to='notifications.device')),
            ],
            options={
                'db_table': 'approvals_delivery',
                'indexes': [models.Index(condition=models.Q(('state__in', ['waiting', 'sending'])), fields=['by', 'due_at', 'id'], name='approvals_delivery_due'), models.Index(condition=models.Q(('message__isnull', False)), fields=['message'], name='approvals_delivery_sent'), models.Index(fields=['person', 'by', '-made_at'], name='approvals_delivery_of'), models.Index(fields=['-made_at', '-id'], name='approvals_delivery_log'), models.Index(fields=['state', '-made_at', '-id'], name='approvals_delivery_by_state')],
                'constraints': [models.UniqueConstraint(fields=('notice', 'by', 'person', 'channel', 'device'), name='approvals_delivery_once', nulls_distinct=False)],
            },
        ),
        AdoptModel(
            name='Preference',
            fields=[
                ('person', models.BigIntegerField(primary_key=True, serialize=False)),
                ('ways', models.JSONField(default=dict, help_text='Media by kind of notification.')),
                ('zone', models.TextField(default='UTC')),
                ('quiet_from', models.TimeField(null=True)),
                ('quiet_until', models.TimeField(null=True)),
                ('digest', models.TextField(choices=[('none', 'None'), ('hourly', 'Hourly'), ('daily', 'Daily')], default='none')),
                ('digest_at', models.TimeField(default=durableagents.contrib.notifications.models.default_digest_time)),
                ('changed_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'approvals_preference',
            },
        ),
    ]
