"""Builds the programs of the rig from the Go module proxy into the user's cache.

Every program is pinned by the go.mod and go.sum of its own module under ``gomod/``; what is built once is
kept in ``$XDG_CACHE_HOME/lockstep/rig/<module>-<digest>/`` (``~/.cache`` by default), where the digest covers
go.mod, go.sum, our own Go sources and the build flags. The manifests that a start needs (CRDs, roles,
webhooks, KWOK stages) are copied from the Go module cache beside the programs: starting needs no Go.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from deploy.rig import path_crds

GOMOD = Path(__file__).with_name("gomod")
KUBERNETES_VERSION = "v1.36.3"
KWOK_VERSION = "v0.8.0"
LWS_VERSION = "v0.9.0"

_VERSION_PACKAGE = "k8s.io/component-base/version"
_STRIP = "-s -w"
_KUBE_LDFLAGS = " ".join(
    [
        _STRIP,
        f"-X {_VERSION_PACKAGE}.gitVersion={KUBERNETES_VERSION}",
        f"-X {_VERSION_PACKAGE}.gitMajor=1",
        f"-X {_VERSION_PACKAGE}.gitMinor=36",
    ]
)

Say = Callable[[str], None]


class RigUnavailable(RuntimeError):
    """The rig cannot be built or started on this machine; ``reason`` is one sentence for a person."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Program:
    """One binary: its name in the cache, its module's folder under ``gomod/``, its package, its build flags.

    ``extra`` programs are no part of a control plane: only a rig that asks for one needs it.
    """

    name: str
    module: str
    package: str
    ldflags: str = _STRIP
    tags: str = ""
    extra: bool = False


PROGRAMS: tuple[Program, ...] = (
    Program("planner-oracle", "lws", "./planner"),
    Program("lws-manager", "lws", "sigs.k8s.io/lws/cmd"),
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    Program("kube-apiserver", "kube", "k8s.io/kubernetes/cmd/kube-apiserver", _KUBE_LDFLAGS),
    Program(
        "kube-controller-manager", "kube", "k8s.io/kubernetes/cmd/kube-controller-manager", _KUBE_LDFLAGS
    ),
    Program("kube-scheduler", "kube", "k8s.io/kubernetes/cmd/kube-scheduler", _KUBE_LDFLAGS),
    Program("epp", "epp", "sigs.k8s.io/gateway-api-inference-extension/cmd/epp", extra=True),
    # Without the tags every cloud's client library is compiled, for over 10 minutes.
    Program(
        "prometheus",
        "prometheus",
        "github.com/prometheus/prometheus/cmd/prometheus",
        tags="remove_all_sd,enable_kubernetes_sd",
        extra=True,
    ),
)
# What `build(extra=...)` takes: the extra programs, and the custom resource definitions of the request path.
PATH_CRDS = "path-crds"
EXTRAS: tuple[str, ...] = (PATH_CRDS, *(program.name for program in PROGRAMS if program.extra))

# Folder of our module -> the Go module whose files a start needs, and which of them.
_MANIFESTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "lws": (
        "sigs.k8s.io/lws",
        ("config/crd/bases/*.yaml", "config/rbac/role.yaml", "config/webhook/manifests.yaml"),
    ),
    "kwok": (
        "sigs.k8s.io/kwok",
        ("kustomize/stage/node/fast/node-*.yaml", "kustomize/stage/node/heartbeat-with-lease/node-*.yaml"),
    ),
}


@dataclass(frozen=True)
class Built:
    """What a start needs: the programs by name, and folders of manifests.

    ``path_crds`` has the custom resource definitions of the request path, one JSON file each, where asked for;
    ``lws_config`` is laid out as ``config/`` of the LWS module (crd/bases, rbac/role.yaml,
    webhook/manifests.yaml);
    ``kwok_stages`` as ``kustomize/stage/`` of the KWOK module.
    """

    programs: Mapping[str, Path]
    lws_config: Path
    kwok_stages: Path
    path_crds: Path | None = None


def cache_root() -> Path:
    """The folder that holds everything the rig builds, shared by all checkouts of one user."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "lockstep" / "rig"


def module_folder(module: str) -> Path:
    """The cache folder of one of our modules, named by what goes into its binaries."""
    source = GOMOD / module
    seen = hashlib.sha256()
    for path in sorted([source / "go.mod", source / "go.sum", *source.rglob("*.go")]):
        seen.update(str(path.relative_to(source)).encode() + b"\0" + path.read_bytes() + b"\0")
    for program in PROGRAMS:
        if program.module == module:
            tags = f" -tags {program.tags}" if program.tags else ""
            seen.update(f"{program.name} {program.package} {program.ldflags}{tags}\n".encode())
    seen.update(platform.machine().encode())
    return cache_root() / f"{module}-{seen.hexdigest()[:16]}"


def missing(extra: Collection[str] = ()) -> list[Program]:
    """The programs that are not in the cache yet, in the order in which they are built: the rig's own first."""
    wanted = [program for program in PROGRAMS if not program.extra or program.name in extra]
    return [program for program in wanted if not (module_folder(program.module) / program.name).exists()]


def available(extra: Collection[str] = ()) -> tuple[bool, str]:
    """Whether the rig (with the extras that are named) can be had here, and why not or what it will cost."""
    if sys.platform != "linux":
        return False, "the rig needs Linux: its pods have loopback addresses"
    left = [program.name for program in missing(extra)]
    if PATH_CRDS in extra and not path_crds.there(cache_root()):
        left.append(PATH_CRDS)
    if not left:
        return True, "built"
    if shutil.which("go") is None:
        return False, f"Go (1.26 or newer) is not on PATH and not everything is built yet: {', '.join(left)}"
    return True, f"{len(left)} programs will be built first (about 12 minutes on two cores for all)"


def build(say: Say | None = None, *, extra: Collection[str] = ()) -> Built:
    """Build what is missing and return where everything is.

    ``extra`` names what a control plane can do without (see EXTRAS); it comes last. Safe to call from several
    processes at once: one builds, the others wait. ``say`` gets one line per program.
    Raises RigUnavailable when Go is missing or a build fails, ValueError for an extra that is not known.
    """
    unknown = set(extra) - set(EXTRAS)
    if unknown:
        raise ValueError(f"the rig knows no {', '.join(sorted(unknown))}")
    core = missing()
    for program in core:
        _build_once(program, say or _to_stderr)
    for module in _MANIFESTS:
        _copy_manifests(module)
    if PATH_CRDS in extra and not path_crds.there(cache_root()):
        with _only_one():
            path_crds.fetch(cache_root(), _download)
    for program in missing(extra):
        _build_once(program, say or _to_stderr)
    return Built(
        programs={
            program.name: module_folder(program.module) / program.name
            for program in PROGRAMS
            if not program.extra or program.name in extra
        },
        lws_config=module_folder("lws") / "config",
        kwok_stages=module_folder("kwok") / "kustomize" / "stage",
        path_crds=path_crds.folder(cache_root()) if PATH_CRDS in extra else None,
    )


def binary(name: str) -> Path:
    """The path of one program, built now if it is not there (``planner-oracle`` takes seconds).

    Raises KeyError for a name the rig does not know, RigUnavailable when it cannot be built.
    """
    program = {each.name: each for each in PROGRAMS}[name]
    _build_once(program, _to_stderr)
    return module_folder(program.module) / program.name


def _build_once(program: Program, say: Say) -> None:
    """The lock is taken per program: who waits for one of the first need not wait for the last."""
    path = module_folder(program.module) / program.name
    if not path.exists():
        with _only_one():
            if not path.exists():
                _build_program(program, say)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def _only_one() -> Iterator[None]:
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    with (root / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _go(*arguments: str, module: str) -> str:
    go = shutil.which("go")
    if go is None:
        raise RigUnavailable("Go (1.26 or newer) is not on PATH; the rig is built with it")
    done = subprocess.run([go, *arguments], cwd=GOMOD / module, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join(done.stderr.splitlines()[-20:])
        raise RigUnavailable(f"go {' '.join(arguments)} failed in gomod/{module}:\n{tail}")
    return done.stdout


def _download(module: str, checksum: str) -> Path:
    """The folder of a module (``path@version``) in Go's cache, fetched without a module of ours around it."""
    answer = json.loads(_go("mod", "download", "-json", module, module="."))
    if answer["Sum"] != checksum:
        raise RigUnavailable(f"{module} has the checksum {answer['Sum']}, not the pinned {checksum}")
    return Path(answer["Dir"])


def _build_program(program: Program, say: Say) -> None:
    folder = module_folder(program.module)
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f".{program.name}.{os.getpid()}"
    say(f"rig: building {program.name} ({program.package})")
    try:
        flags = ["-trimpath", "-buildvcs=false", "-ldflags", program.ldflags]
        if program.tags:
            flags += ["-tags", program.tags]
        _go("build", *flags, "-o", str(fresh), program.package, module=program.module)
        fresh.rename(folder / program.name)
    finally:
        fresh.unlink(missing_ok=True)


def _copy_manifests(module: str) -> None:
    folder = module_folder(module)
    done = folder / "manifests.done"
    if done.exists():
        return
    name, patterns = _MANIFESTS[module]
    with _only_one():
        source = Path(_go("list", "-m", "-f", "{{.Dir}}", name, module=module).strip())
        for pattern in patterns:
            found = sorted(source.glob(pattern))
            if not found:
                raise RigUnavailable(f"{name} has no {pattern}: the rig does not know this version")
            for path in found:
                target = folder / path.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
                if "crd" in path.parts:
                    # CRDs are 3 MB of YAML: parsed once here instead of at every start.
                    target.with_suffix(".json").write_text(json.dumps(yaml.safe_load(path.read_text())))
        done.touch()
