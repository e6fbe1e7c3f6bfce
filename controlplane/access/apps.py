"""App configuration."""

from django.apps import AppConfig


class AccessConfig(AppConfig):
    """The access room."""

    name = "controlplane.access"
    default_auto_field = "django.db.models.BigAutoField"
