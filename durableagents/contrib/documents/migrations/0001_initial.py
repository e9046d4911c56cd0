import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

from ledger.migration_operations import AdoptModel


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
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='18d3c460f9b59b69b725420e5ae787b13a383aa7', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_655a8', table='approvals_document', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='96f68e2cab81077f1bb346230e661856ba55eb56', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_1949c', table='approvals_document', when='BEFORE'))],
            },
        ),
    ]
