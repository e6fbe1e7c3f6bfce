"""What a container says about its program, read as a kubelet reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.rig.programs import PodProgram, RunnerConfig, repository
from deploy.rig.runner import probes, spec, volumes
from deploy.rig.runner.volumes import Mount, NotYet

Doc = dict[str, Any]
POD: Doc = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a/b": "c"}},
    "spec": {"nodeName": "gpu-0"},
    "status": {"podIP": "127.9.0.1"},
}


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("registry.example:5000/team/x:v1", "registry.example:5000/team/x"),
        ("registry.example:5000/team/x", "registry.example:5000/team/x"),
        ("registry.example/x:v1@sha256:abcd", "registry.example/x"),
        ("x@sha256:abcd", "x"),
    ],
)
def test_images_without_tag_and_digest(image: str, expected: str) -> None:
    assert repository(image) == expected


def test_mount_paths_are_whole_path_elements() -> None:
    mounts = [Mount("/etc/app", "/local/a"), Mount("/etc/app/deep", "/local/d")]
    text = "--a=/etc/app/x.yaml,/etc/app/deep/y /etc/apparent /my/etc/app (/etc/app)"
    expected = "--a=/local/a/x.yaml,/local/d/y /etc/apparent /my/etc/app (/local/a)"
    assert volumes.rewritten(text, mounts) == expected


@pytest.mark.parametrize(
    ("args", "pod_port", "rest"),
    [
        (["--v=1"], 9002, ["--v=1"]),
        (["--grpc-port=9100", "--v=1"], 9100, ["--v=1"]),
        (["-grpc-port", "9100", "--v=1"], 9100, ["--v=1"]),
        (["--grpc-port-other=5"], 9002, ["--grpc-port-other=5"]),
    ],
)
def test_port_flags(args: list[str], pod_port: int, rest: list[str]) -> None:
    assert spec.pod_ports(args, {9002: "--grpc-port"}) == {"--grpc-port": pod_port}
    assert spec.with_ports(args, {"--grpc-port": 23100}) == [*rest, "--grpc-port=23100"]


def test_arguments_know_the_containers_own_variables() -> None:
    container = {
        "command": ["/router", "--first"],
        "args": ["--ip=$(IP)", "$$(IP)", "$(UNKNOWN)"],
        "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
    }
    values = spec.environment(POD, container, {})
    assert spec.arguments(container, values) == ["--first", "--ip=127.9.0.1", "$(IP)", "$(UNKNOWN)"]


def test_environments_from_whole_objects_and_labels() -> None:
    container = {
        "envFrom": [
            {"prefix": "P_", "configMapRef": {"name": "c"}},
            {"secretRef": {"name": "s", "optional": True}},
        ],
        "env": [{"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}}],
    }
    pod = {**POD, "spec": {"containers": [container]}}
    assert spec.references(pod) == {("ConfigMap", "c"), ("Secret", "s")}
    sources = {("ConfigMap", "c"): {"K": b"v"}, ("Secret", "s"): None}
    assert spec.environment(pod, container, sources) == {"P_K": "v", "L": "c"}
    with pytest.raises(NotYet, match="configmap 'c' not found"):
        spec.environment(pod, container, {})


def test_what_the_rig_cannot_fill_in_is_said() -> None:
    container = {"env": [{"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]}
    with pytest.raises(NotYet, match="does not know the source of C: resourceFieldRef"):
        spec.environment(POD, container, {})


def test_a_volume_changes_all_at_once_and_only_when_it_changes(tmp_path: Path) -> None:
    folder = tmp_path / "volume"
    assert volumes.write_files(folder, {"a": b"1", "deep/b": b"2"})
    with (folder / "a").open() as open_file:
        assert not volumes.write_files(folder, {"a": b"1", "deep/b": b"2"})
        assert volumes.write_files(folder, {"a": b"3", "c": b""})
        assert open_file.read() == "1"
    assert (folder / "a").read_text() == "3" and (folder / "..data").is_symlink()
    assert sorted(path.name for path in folder.iterdir() if not path.name.startswith("..")) == ["a", "c"]


def test_a_file_by_sub_path_does_not_follow(tmp_path: Path) -> None:
    container = {"name": "m", "volumeMounts": [{"name": "v", "mountPath": "/x.yaml", "subPath": "a"}]}
    pod = {"spec": {"volumes": [{"name": "v", "configMap": {"name": "c"}}]}}
    volumes.write_files(tmp_path / "volumes" / "v", {"a": b"1"})
    (mount,) = volumes.mounts_of(pod, container, tmp_path)
    volumes.write_files(tmp_path / "volumes" / "v", {"a": b"2"})
    assert mount.path == "/x.yaml" and Path(mount.local).read_text() == "1"


def test_volumes_that_are_not_played_lead_nowhere(tmp_path: Path) -> None:
    token = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    container = {"name": "m", "volumeMounts": [{"name": "t", "mountPath": "/var/run/secrets"}]}
    assert volumes.mounts_of({"spec": {"volumes": [token]}}, container, tmp_path) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp", ("tcp", 8000, "")),
        ("tcp:9", ("tcp", 9, "")),
        ("http:/healthz:9", ("http", 9, "/healthz")),
        ("grpc-health:9003:inference-extension", ("grpc", 9003, "inference-extension")),
        ("grpc-health", ("grpc", 8000, "")),
    ],
)
def test_readiness_in_words(text: str, expected: tuple[str, int, str]) -> None:
    probe = probes.readiness({"ports": [{"containerPort": 8000}]}, text)
    assert probe is not None and (probe.kind, probe.port, probe.detail) == expected


def test_the_containers_own_probe_goes_first() -> None:
    own = {"grpc": {"port": 9003, "service": "s"}, "periodSeconds": 30, "failureThreshold": 2}
    probe = probes.readiness({"readinessProbe": own}, "tcp:1")
    assert probe == probes.Probe("grpc", 9003, "s", period_s=1.0, timeout_s=1.0, successes=1, failures=2)
    assert probes.readiness({}, "tcp") is None
    with pytest.raises(ValueError, match="no readiness check"):
        probes.readiness({}, "sometimes")


def test_the_runner_reads_what_it_was_told(tmp_path: Path) -> None:
    program = PodProgram("i", ("a", "b"), {9002: "--grpc-port"}, "tcp:1", "nobody", {"X": "y"})
    config = RunnerConfig("k", "f", (program,), {"admin": "a"}, {"user": "admin"}, (1, 2))
    read = RunnerConfig.read(config.write(tmp_path / "runner.json"))
    assert read.ports == (1, 2) and read.programs[0].port_flags == {9002: "--grpc-port"}
    assert list(read.programs[0].argv) == ["a", "b"] and read.programs[0].env == {"X": "y"}
