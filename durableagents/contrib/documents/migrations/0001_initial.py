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
            name='Document',
            fields=[
                ('digest', models.TextField(primary_key=True, serialize=False)),
                ('size', models.IntegerField()),
                ('content', models.BinaryField()),
                ('stored_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'approvals_document',
                'constraints': [models.CheckConstraint(condition=models.Q(('digest', models.Func(models.F('content'), output_field=models.TextField(), template="encode(sha256(%(expressions)s), 'hex')")), ('digest__startswith', 'hmac-sha256:'), _connector='OR'), name='approvals_document_is_its_digest'), models.CheckConstraint(condition=models.Q(('size', models.Func(models.F('content'), function='octet_length', output_field=models.IntegerField())), ('digest__startswith', 'hmac-sha256:'), _connector='OR'), name='approvals_document_has_its_size')],
                'triggers': append_only_triggers('documents.Document', 'approvals_document'),
            },
        ),
    ]
