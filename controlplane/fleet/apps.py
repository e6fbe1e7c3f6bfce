"""App configuration."""

from django.apps import AppConfig


class FleetConfig(AppConfig):
    """The fleet room."""

    name = "controlplane.fleet"
    default_auto_field = "django.db.models.BigAutoField"
