"""Every setting of Lockstep. Environment values are read by three typed readers that fail loudly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from controlplane import logs

BASE_DIR = Path(__file__).resolve().parent.parent


def env_text(name: str, default: str | None = None) -> str:
    """NAME, or the content of the file that NAME_FILE names (for mounted secrets), or the default."""
    if file := os.environ.get(f"{name}_FILE"):
        return Path(file).read_text(encoding="utf-8").strip()
    value = os.environ.get(name, default)
    if value is None:
        raise ImproperlyConfigured(f"Set {name} or {name}_FILE.")
    return value


def env_flag(name: str, default: bool) -> bool:
    """A boolean: 1, true, 0 or false; anything else is refused."""
    value = env_text(name, "1" if default else "0").lower()
    if value not in {"1", "true", "0", "false"}:
        raise ImproperlyConfigured(f"{name} must be 1, true, 0 or false, not {value!r}.")
    return value in {"1", "true"}


def env_seconds(name: str, default: float) -> float:
    """A duration in seconds, positive."""
    value = env_text(name, str(default))
    try:
        seconds = float(value)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} must be a number of seconds, not {value!r}.") from error
    if seconds <= 0:
        raise ImproperlyConfigured(f"{name} must be above 0, not {value!r}.")
    return seconds


def _database(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured(
            "DATABASE_URL must be a postgresql:// address; no other database is supported."
        )
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 0,
        "OPTIONS": {
            "connect_timeout": 5,
            "application_name": "lockstep",
            **(
                {"pool": {"min_size": 1, "max_size": 20, "timeout": 10}}
                if env_flag("LOCKSTEP_DB_POOL", False)
                else {}
            ),
        },
    }


DEBUG = False
SECRET_KEY = env_text("LOCKSTEP_SECRET_KEY", "only-for-lint" if env_flag("LOCKSTEP_LINT", False) else None)
ALLOWED_HOSTS = env_text("LOCKSTEP_HOSTS", "localhost,127.0.0.1,[::1],testserver").split(",")
DATABASES = {"default": _database(env_text("DATABASE_URL", "postgresql:///lockstep"))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django_structlog",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "controlplane.audit",
    "controlplane.access",
    "controlplane.fleet",
    "controlplane.approvals",
    "controlplane.paths",
    "controlplane.operations",
    "controlplane.upgrades",
    "controlplane.recovery",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django_structlog.middlewares.RequestMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "controlplane.urls"
ASGI_APPLICATION = "controlplane.asgi.application"
TEMPLATES: list[dict[str, Any]] = []
AUTH_USER_MODEL = "access.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
]
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = True
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env_flag("LOCKSTEP_HTTPS", False)
CSRF_COOKIE_SAMESITE = "Lax"
APPEND_SLASH = False

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "controlplane.access.authentication.TokenAuthentication",
        "controlplane.access.authentication.SignedInAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_FILTER_BACKENDS": ["controlplane.access.filters.Backend"],
    "DEFAULT_PAGINATION_CLASS": "controlplane.access.paging.Pages",
    "DEFAULT_SCHEMA_CLASS": "controlplane.access.openapi.Schema",
    "DEFAULT_METADATA_CLASS": None,  # the OpenAPI document describes; OPTIONS would run view code to do it again
    "EXCEPTION_HANDLER": "controlplane.access.problems.render",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Lockstep",
    "DESCRIPTION": "Upgrades prefill and decode together, with approvals, holds and an audit chain.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "ChangeRequestState": "controlplane.approvals.models.ChangeRequest.State",
        "OperationState": "controlplane.operations.models.Operation.State",
        "StepState": "controlplane.operations.models.Step.State",
        "RunState": "controlplane.operations.models.Run.State",
        "SeriesState": "controlplane.paths.models.ProbeSeries.State",
        "SeriesKind": "controlplane.paths.models.ProbeSeries.Kind",
        "AccountKind": "controlplane.access.models.User.Kind",
        "PlanState": "controlplane.upgrades.models.Plan.State",
        "CombinationState": "controlplane.recovery.models.Combination.State",
        "RolloutState": "controlplane.fleet.rollout_state.STATES",
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "controlplane.access.openapi.add_problems",
    ],
}

LOCKSTEP_BROKER_URL = env_text("LOCKSTEP_BROKER_URL", "redis://127.0.0.1:6379/0")
# Workers and watchers only; web processes run without it and hold no cluster credentials.
LOCKSTEP_KUBECONFIG = env_text("LOCKSTEP_KUBECONFIG", "")
LOCKSTEP_TARGET_MANIFESTS = Path(env_text("LOCKSTEP_TARGET_MANIFESTS", str(BASE_DIR / "deploy" / "target")))
# DESIGN 3: cluster calls <= 5 s, task hard limit 15 s, lease 20 s, sweep 5 s. Tests may shrink all of them together.
LOCKSTEP_CALL_TIMEOUT = env_seconds("LOCKSTEP_CALL_TIMEOUT", 5)
LOCKSTEP_TASK_HARD_LIMIT = env_seconds("LOCKSTEP_TASK_HARD_LIMIT", 15)
LOCKSTEP_LEASE = env_seconds("LOCKSTEP_LEASE", 20)
LOCKSTEP_SWEEP = env_seconds("LOCKSTEP_SWEEP", 5)
# How soon a row that has become due is rung: the grain of a Wait. The full sweep is the safety net under it.
LOCKSTEP_TICK = env_seconds("LOCKSTEP_TICK", 1)
# How long a new group must stay ready, without a restart or a flicker, before a row counts as reached.
LOCKSTEP_STABLE_FOR = env_seconds("LOCKSTEP_STABLE_FOR", 30)
# How long new groups may need to become ready before lists call the set stuck.
LOCKSTEP_STUCK_AFTER = env_seconds("LOCKSTEP_STUCK_AFTER", 900)
# How long ended runs, a person's probe series and the tokens of other series' answers are kept.
LOCKSTEP_PRUNE_AFTER = env_seconds("LOCKSTEP_PRUNE_AFTER", 7_776_000)
# How often the request paths of a cluster are read for the read model; steps that judge read them live.
LOCKSTEP_PATHS_EVERY = env_seconds("LOCKSTEP_PATHS_EVERY", 10)
# Environments (comma-separated) in which a restore of a verified combination, too, needs one vote beforehand.
LOCKSTEP_RESTORE_VOTES = frozenset(env_text("LOCKSTEP_RESTORE_VOTES", "").split(",")) - {""}
# Folder of files for probes: the addresses each is for and its headers, named by a pool's `credential`. Workers only.
LOCKSTEP_PROBE_CREDENTIALS = env_text("LOCKSTEP_PROBE_CREDENTIALS", "")
# Folder of what metric sources ask for: <host>.json with headers, <host>.crt with CA certificates. Workers only.
LOCKSTEP_METRICS_CREDENTIALS = env_text("LOCKSTEP_METRICS_CREDENTIALS", "")
if not LOCKSTEP_CALL_TIMEOUT < LOCKSTEP_TASK_HARD_LIMIT < LOCKSTEP_LEASE:
    raise ImproperlyConfigured("LOCKSTEP_CALL_TIMEOUT < LOCKSTEP_TASK_HARD_LIMIT < LOCKSTEP_LEASE must hold.")

LOGGING = logs.configure(env_text("LOCKSTEP_LOG_LEVEL", "INFO"))
