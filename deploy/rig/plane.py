"""Command lines of the control plane's programs, as they were run and measured for a throw-away cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deploy.rig.build import Built
from deploy.rig.identities import Credentials
from deploy.rig.slots import Slot

SERVICE_RANGE = "10.0.0.0/16"
ISSUER = "https://kubernetes.default.svc"

# Without node-lifecycle-controller the not-ready taint of new nodes stays and nothing schedules; without the
# quota controller a ResourceQuota never has a status and admits everything.
CONTROLLERS = (
    "statefulset-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "deployment-controller",
    "replicaset-controller",
    "endpointslice-controller",
    "horizontal-pod-autoscaler-controller",
    "node-lifecycle-controller",
    "disruption-controller",
    "resourcequota-controller",
    "job-controller",
)

# Clients first and etcd last: an API server without etcd ignores SIGTERM for a long time and keeps its port.
RUNNER = "runner"
STOP_ORDER = (RUNNER, "lws", "kwok", "scheduler", "controller-manager", "apiserver", "etcd")


@dataclass(frozen=True)
class Plane:
    """Where one rig lives: its programs, folder, credentials and ports."""

    built: Built
    folder: Path
    credentials: Credentials
    slot: Slot

    @property
    def server(self) -> str:
        """The API server's URL."""
        return server_url(self.slot)

    @property
    def webhook_port(self) -> int:
        """The port on which the LeaderWorkerSet manager answers admission requests."""
        return self.slot.port(3)

    @property
    def closed_port(self) -> int:
        """A port of ours on which nothing listens, for webhooks that cannot be reached."""
        return self.slot.port(4)

    def etcd(self) -> list[str | Path]:
        """One member, no fsync: the data outlives nothing."""
        client, peer = (f"http://127.0.0.1:{self.slot.port(index)}" for index in (1, 2))
        return [
            self.built.programs["etcd"],
            f"--data-dir={self.folder / 'etcd'}",
            "--name=rig",
            "--unsafe-no-fsync",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=rig={peer}",
            "--log-level=warn",
        ]

    def apiserver(self) -> list[str | Path]:
        """RBAC on, users from a token file, no endpoint of its own in the cluster."""
        trust = self.credentials
        return [
            self.built.programs["kube-apiserver"],
            f"--etcd-servers=http://127.0.0.1:{self.slot.port(1)}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.slot.port(0)}",
            f"--tls-cert-file={trust.serving_certificate}",
            f"--tls-private-key-file={trust.serving_key}",
            f"--cert-dir={trust.folder / 'apiserver'}",
            "--authorization-mode=RBAC",
            f"--token-auth-file={trust.token_file}",
            "--endpoint-reconciler-type=none",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={trust.service_account_key}",
            f"--service-account-signing-key-file={trust.service_account_key}",
            "--shutdown-delay-duration=0s",
            "--profiling=false",
        ]

    def controller_manager(self) -> list[str | Path]:
        """The controllers that a set needs, each under its own service account as in a real cluster."""
        return [
            self.built.programs["kube-controller-manager"],
            f"--kubeconfig={self.credentials.kubeconfig('controller-manager')}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--controllers={','.join(CONTROLLERS)}",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self.credentials.service_account_key}",
            f"--root-ca-file={self.credentials.ca}",
            # A machine that stalls must not look like a cluster whose nodes are lost.
            "--node-monitor-grace-period=300s",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]

    def scheduler(self) -> list[str | Path]:
        """The default profile."""
        config = self.folder / "scheduler.yaml"
        config.write_text(
            "apiVersion: kubescheduler.config.k8s.io/v1\n"
            "kind: KubeSchedulerConfiguration\n"
            "leaderElection: {leaderElect: false}\n"
            f"clientConnection: {{kubeconfig: {self.credentials.kubeconfig('scheduler')}, qps: 500, "
            "burst: 1000}\n"
        )
        return [self.built.programs["kube-scheduler"], f"--config={config}", "--secure-port=0"]

    def kwok(self) -> list[str | Path]:
        """Plays every kubelet; pods get loopback addresses, so a simulated engine can listen on its own."""
        return [
            self.built.programs["kwok"],
            f"--kubeconfig={self.credentials.kubeconfig('kwok')}",
            f"--config={self.folder / 'stages.yaml'}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=40",
            f"--cidr={self.slot.pod_cidr}",
        ]


def server_url(slot: Slot) -> str:
    """The API server's URL on a slot."""
    return f"https://127.0.0.1:{slot.port(0)}"
