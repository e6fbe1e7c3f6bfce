"""Golden outputs: what parity compares with where decode pods cannot be asked directly."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("paths", "0003_turns_and_pruning")]
    operations = [
        migrations.CreateModel(
            name="GoldenOutputs",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("revision", models.CharField(max_length=16)),
                ("model", models.CharField(max_length=500)),
                ("prompt_set", models.CharField(max_length=60)),
                ("answers", models.JSONField()),
                ("digest", models.CharField(max_length=80)),
                ("verified_by", models.JSONField(default=list)),
                ("verified_at", models.DateTimeField()),
                ("revoked_reason", models.TextField(blank=True)),
                ("recorded_at", models.DateTimeField()),
                ("version", models.PositiveIntegerField(default=1)),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="golden_outputs", to="paths.pool"
                    ),
                ),
                (
                    "series",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="golden_outputs",
                        to="paths.probeseries",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["pool", "model", "prompt_set", "-verified_at"], name="golden_to_compare_with"
                    )
                ],
            },
        ),
    ]
