"""The addresses of the web process: the API of every room under one prefix, and the process itself."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularAPIView
from rest_framework.permissions import AllowAny
from rest_framework.routers import DefaultRouter

from controlplane import health
from controlplane.access import api as access
from controlplane.access import openapi as openapi  # registers the security schemes
from controlplane.access.session_api import MeView, SessionView
from controlplane.approvals import api as approvals
from controlplane.fleet import api as fleet
from controlplane.operations import api as operations
from controlplane.paths import api as paths
from controlplane.recovery import api as recovery
from controlplane.upgrades import api as upgrades

router = DefaultRouter(trailing_slash=False)
router.include_root_view = False
router.include_format_suffixes = False
for room in (access, approvals, fleet, paths, operations, upgrades, recovery):
    room.routes(router)

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/session", SessionView.as_view(), name="session"),
    path("api/v1/me", MeView.as_view(), name="me"),
    path("api/v1/schema", SpectacularAPIView.as_view(permission_classes=[AllowAny]), name="schema"),
    path("api/v1/", include(router.urls)),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
]

handler400 = "controlplane.access.problems.bad_request"
handler403 = "controlplane.access.problems.permission_denied"
handler404 = "controlplane.access.problems.page_not_found"
handler500 = "controlplane.access.problems.server_error"
