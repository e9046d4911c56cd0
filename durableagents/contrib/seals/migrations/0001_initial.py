"""Seals, what they cover, keys, witnesses and deliveries."""

from django.db import migrations, models

from ledger.migration_operations import append_only_triggers


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
                ('next_xid', models.BigIntegerField(help_text='Transactions with this id or a higher one began later.')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('previous',), name='seals_seal_one_successor')],
                'triggers': append_only_triggers('seals.Seal'),
            },
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
            options={
                'indexes': [models.Index(fields=['seal', 'run_id'], name='seals_head_by_seal')],
                'triggers': append_only_triggers('seals.SealedHead'),
            },
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
            options={'triggers': append_only_triggers('seals.SealKey')},
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
                ('last', models.BigIntegerField(help_text='The last seal of the batch that the witness accepted, or the one that failed.')),
                ('at', models.DateTimeField()),
                ('outcome', models.TextField(choices=[('taken', 'Taken'), ('failed', 'Failed')])),
                ('error', models.TextField(blank=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('outcome', 'taken')), fields=['witness', 'last'], name='seals_delivery_taken'), models.Index(fields=['witness', '-id'], name='seals_delivery_by_witness')],
                'triggers': append_only_triggers('seals.Delivery'),
            },
        ),
    ]
