"""The addresses of the web process: the API of every room, under one prefix."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path
from rest_framework.routers import DefaultRouter

router = DefaultRouter(trailing_slash=False)

urlpatterns: list[URLPattern | URLResolver] = [path("api/v1/", include(router.urls))]
