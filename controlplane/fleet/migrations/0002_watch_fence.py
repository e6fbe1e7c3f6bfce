"""Fence numbers of watchers: one sequence for all clusters, so a number is never used twice."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("fleet", "0001_initial")]
    operations = [
        migrations.RunSQL(
            "CREATE SEQUENCE fleet_watch_fence AS bigint", reverse_sql="DROP SEQUENCE fleet_watch_fence"
        )
    ]
