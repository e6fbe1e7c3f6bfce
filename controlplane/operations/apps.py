"""App configuration."""

from django.apps import AppConfig


class OperationsConfig(AppConfig):
    """The operations room."""

    name = "controlplane.operations"
    default_auto_field = "django.db.models.BigAutoField"
