"""From a cluster's row to a client of its API. Only workers and watchers hold the kubeconfig."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from controlplane.errors import Unavailable
from controlplane.fleet.models import Cluster
from controlplane.kube.client import CallHook, Kube
from controlplane.kube.errors import BadCredentials


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
