"""App configuration."""

from django.apps import AppConfig


class RecoveryConfig(AppConfig):
    """The recovery room."""

    name = "controlplane.recovery"
    default_auto_field = "django.db.models.BigAutoField"
