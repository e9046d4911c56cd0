"""A fact of the ledger: the effect was undone."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0016_journal_size'),
    ]

    operations = [
        migrations.AlterField(
            model_name='ledgerentry',
            name='fact',
            field=models.TextField(choices=[('pending', 'Pending'), ('committed', 'Committed'), ('failed', 'Failed'), ('unknown', 'Unknown'), ('reconciled', 'Reconciled'), ('compensated', 'Compensated')]),
        ),
    ]
