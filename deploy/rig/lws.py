"""The LeaderWorkerSet manager on the rig: which one, its CRDs, its real role, its webhooks."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deploy.rig.build import Built, RigUnavailable

NAMESPACE = "lws-system"
ACCOUNT = "lws-controller-manager"
ROLE = "lws-manager-role"
POD_SELECTOR = {"matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]}

Doc = dict[str, Any]


@dataclass(frozen=True)
class LwsSource:
    """One LeaderWorkerSet version: its manager and the ``config`` folder of its source tree."""

    manager: Path
    config: Path

    def crds(self) -> list[Doc]:
        """The custom resource definitions."""
        bases = self.config / "crd" / "bases"
        found = sorted(bases.glob("*.yaml"))
        if not found:
            raise RigUnavailable(f"no CRDs in {bases}")
        return [self._parse(path) for path in found]

    def role(self) -> Doc:
        """The manager's ClusterRole under the name that the shipped overlays give it."""
        role = self._parse(self.config / "rbac" / "role.yaml")
        role["metadata"] = {"name": ROLE}
        return role

    def webhooks(self, *, port: int, authority: bytes) -> list[Doc]:
        """The webhook configurations, calling a loopback port instead of a Service.

        The pod webhooks get the selector of the shipped overlays: pods of a LeaderWorkerSet only.
        """
        bundle = base64.b64encode(authority).decode()
        configurations = list(yaml.safe_load_all((self.config / "webhook" / "manifests.yaml").read_text()))
        for configuration in configurations:
            for webhook in configuration["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
                if any("pods" in rule["resources"] for rule in webhook["rules"]):
                    webhook["objectSelector"] = POD_SELECTOR
        return configurations

    def _parse(self, path: Path) -> Doc:
        parsed = path.with_suffix(".json")
        doc: Doc = json.loads(parsed.read_text()) if parsed.exists() else yaml.safe_load(path.read_text())
        return doc


def chosen(built: Built, environment: Mapping[str, str] | None = None) -> LwsSource:
    """The manager of the pinned release, or the one that LOCKSTEP_LWS_BIN names.

    LOCKSTEP_LWS_CRDS names the ``config`` folder of that version's source, or its ``config/crd/bases``;
    without it the CRDs, role and webhooks of the pinned release are used. RigUnavailable when a path does
    not exist.
    """
    env = os.environ if environment is None else environment
    manager = env.get("LOCKSTEP_LWS_BIN")
    if not manager:
        return LwsSource(built.programs["lws-manager"], built.lws_config)
    return newer(Path(manager), env.get("LOCKSTEP_LWS_CRDS"), built)


def newer(manager: Path, crds: str | None, built: Built) -> LwsSource:
    """Another manager with the files of its own version; see :func:`chosen`."""
    config = Path(crds) if crds else built.lws_config
    if config.name == "bases":
        config = config.parent.parent
    for path in (
        manager,
        config / "crd" / "bases",
        config / "rbac" / "role.yaml",
        config / "webhook" / "manifests.yaml",
    ):
        if not path.exists():
            raise RigUnavailable(f"LOCKSTEP_LWS_BIN/LOCKSTEP_LWS_CRDS: {path} does not exist")
    return LwsSource(manager, config)


def account() -> Iterable[Doc]:
    """The manager's namespace and service account with its role bound, as a real installation has them."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    yield {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": ACCOUNT, "namespace": NAMESPACE},
    }
    yield {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "lws-manager-rolebinding"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }


def manager_config(*, port: int, certificates: Path) -> Doc:
    """The manager's configuration file: one instance, our certificates, no other listeners."""
    return {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
    }
