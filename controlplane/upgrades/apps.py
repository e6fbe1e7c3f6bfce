"""App configuration."""

from django.apps import AppConfig


class UpgradesConfig(AppConfig):
    """The upgrades room."""

    name = "controlplane.upgrades"
    default_auto_field = "django.db.models.BigAutoField"
