from django.db import migrations, models

from ledger.migration_operations import append_only_triggers


class Migration(migrations.Migration):
    dependencies = [
        ('retention', '0002_search_indexes'),
    ]

    operations = [
        migrations.AddField(
            model_name='policy',
            name='checkpoint_days',
            field=models.IntegerField(help_text="After the run's end.", null=True),
        ),
        migrations.AddConstraint(
            model_name='policy',
            constraint=models.CheckConstraint(condition=models.Q(('checkpoint_days__gte', 1)), name='retention_policy_checkpoint_days'),
        ),
        migrations.AddField(
            model_name='round',
            name='expired',
            field=models.IntegerField(default=0),
        ),
        migrations.CreateModel(
            name='CheckpointExpiry',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('last_seq', models.BigIntegerField(help_text='The event of the newest of these checkpoints.')),
                ('number', models.IntegerField(help_text='Number of checkpoints removed.')),
                ('policy', models.BigIntegerField()),
                ('at', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['run_id', 'id'], name='retention_expiry_of_run')],
                'triggers': append_only_triggers('retention.CheckpointExpiry'),
            },
        ),
    ]
