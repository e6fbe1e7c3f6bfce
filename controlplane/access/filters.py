"""List filters from the query string, with times that the database can compare."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django_filters import IsoDateTimeFilter
from django_filters.fields import IsoDateTimeField
from django_filters.rest_framework import DjangoFilterBackend, FilterSet


class MomentField(IsoDateTimeField):  # type: ignore[misc]
    """An ISO 8601 time as UTC: PostgreSQL refuses offsets of 16 hours and more, which are well-formed all the same."""

    def clean(self, value: Any) -> datetime | None:
        """The moment in UTC, None where nothing was sent. Raises ValidationError for one outside the calendar."""
        moment: datetime | None = super().clean(value)
        try:
            return moment.astimezone(UTC) if moment else None
        except OverflowError as error:
            raise ValidationError("This time is outside the calendar.", code="invalid") from error


class MomentFilter(IsoDateTimeFilter):  # type: ignore[misc]
    """Compares with a moment."""

    field_class = MomentField


class Filters(FilterSet):  # type: ignore[misc]
    """What every list's filters start from."""

    FILTER_DEFAULTS = {**FilterSet.FILTER_DEFAULTS, models.DateTimeField: {"filter_class": MomentFilter}}


class Backend(DjangoFilterBackend):  # type: ignore[misc]
    """The filter backend of every list."""

    filterset_base = Filters
