"""From a cluster's row to a client of its API, or of its metric source. Only workers and watchers hold the kubeconfig
and the headers."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings

from controlplane.errors import Refused, Unavailable
from controlplane.fleet.models import Cluster
from controlplane.kube.client import CallHook, Kube
from controlplane.kube.errors import BadCredentials
from controlplane.metrics.client import Prometheus
from controlplane.metrics.source import Source, read_options


def connect_cluster(
    cluster: Cluster, *, on_call: CallHook | None = None, timeout: float | None = None
) -> Kube:
    """A client for the cluster; nothing is sent yet. Close it after use (it is a context manager).

    `timeout` in seconds bounds each call (default LOCKSTEP_CALL_TIMEOUT). Raises Unavailable
    `no-cluster-credentials` where this process has no kubeconfig, `no-such-context` where it lacks the entry.
    """
    path = settings.LOCKSTEP_KUBECONFIG
    if not path or not Path(path).is_file():
        raise Unavailable(
            "no-cluster-credentials",
            "This process holds no cluster credentials.",
            next_action="Only workers and watchers reach clusters; set LOCKSTEP_KUBECONFIG for them.",
        )
    try:
        return Kube.from_kubeconfig(
            path,
            context=cluster.context,
            timeout=settings.LOCKSTEP_CALL_TIMEOUT if timeout is None else timeout,
            on_call=on_call,
        )
    except BadCredentials as error:
        raise Unavailable(
            "no-such-context",
            f"The kubeconfig of this process has no usable context {cluster.context!r}: {error}",
            next_action=f"Add the context, or register {cluster.name} with another one.",
            cluster=cluster.name,
        ) from error


def connect_metrics(
    cluster: Cluster, *, timeout_s: float | None = None, budget_s: float | None = None
) -> tuple[Prometheus, Source]:
    """A client for the cluster's metric source and how names look there; nothing is asked yet. Close the client
    after use (it is a context manager).

    `timeout_s` bounds each question (default LOCKSTEP_CALL_TIMEOUT), `budget_s` all of them together. Headers and
    CA certificates are files of LOCKSTEP_METRICS_CREDENTIALS that belong to the *host* of the address: whoever
    changes the address takes no credential along. Raises Refused `no-metric-source`, Unavailable
    `no-metric-credential`.
    """
    if not cluster.metrics_url:
        raise Refused(
            "no-metric-source",
            f"The cluster {cluster.name} has no metric source.",
            next_action="Give the address of its Prometheus.",
            cluster=cluster.name,
        )
    source = read_options(cluster.metrics_options)
    host = urlsplit(cluster.metrics_url).hostname or ""
    folder = Path(settings.LOCKSTEP_METRICS_CREDENTIALS) if settings.LOCKSTEP_METRICS_CREDENTIALS else None
    authority = folder / f"{host}.crt" if folder else None
    client = Prometheus(
        cluster.metrics_url,
        timeout_s=settings.LOCKSTEP_CALL_TIMEOUT if timeout_s is None else timeout_s,
        headers=_headers_of(host, source.headers, folder),
        verify=str(authority)
        if source.verify_tls and authority and authority.is_file()
        else source.verify_tls,
        budget_s=budget_s,
    )
    return client, source


def _headers_of(host: str, names: tuple[str, ...], folder: Path | None) -> dict[str, str]:
    """The values of these headers, from the file of this host; what the file says is in no error."""
    if not names:
        return {}
    try:
        found = json.loads((folder / f"{host}.json").read_text(encoding="utf-8")) if folder else None
    except (OSError, ValueError):
        found = None
    known = {str(name).lower(): value for name, value in found.items()} if isinstance(found, dict) else {}
    missing = [name for name in names if not isinstance(known.get(name.lower()), str)]
    if missing:
        raise Unavailable(
            "no-metric-credential",
            f"This worker has no value of {', '.join(missing)} for the metric source at {host}.",
            next_action=f"Mount LOCKSTEP_METRICS_CREDENTIALS with a file {host}.json: one JSON object of headers.",
            host=host,
        )
    return {name: known[name.lower()] for name in names}
