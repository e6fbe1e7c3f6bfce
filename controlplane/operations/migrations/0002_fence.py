"""The sequence behind fence numbers: one for all clusters, never reset."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("operations", "0001_initial")]

    operations = [
        migrations.RunSQL(
            "CREATE SEQUENCE lockstep_fence AS bigint MINVALUE 1 NO CYCLE CACHE 1", "DROP SEQUENCE lockstep_fence"
        )
    ]
