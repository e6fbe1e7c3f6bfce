"""Volumes of a pod as folders: what lies in them, how it changes, and where a mount path leads."""

from __future__ import annotations

import base64
import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Doc = dict[str, Any]
# ("ConfigMap" or "Secret", name) -> its data, or None where it does not exist.
Sources = Mapping[tuple[str, str], Mapping[str, bytes] | None]


class NotYet(Exception):
    """A container cannot start now: ``reason`` as a kubelet gives it, ``message`` for a person."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class Mount:
    """A path inside the container, and the local one that stands for it."""

    path: str
    local: str


def data_of(stored: Doc) -> dict[str, bytes]:
    """The data of a ConfigMap or Secret as read."""
    if stored.get("kind") == "Secret":
        return {key: base64.b64decode(value) for key, value in (stored.get("data") or {}).items()}
    plain = {key: value.encode() for key, value in (stored.get("data") or {}).items()}
    binary = {key: base64.b64decode(value) for key, value in (stored.get("binaryData") or {}).items()}
    return {**plain, **binary}


def parts_of(volume: Doc) -> list[tuple[str, str, Doc]]:
    """(kind, name, source) of everything that a volume takes its files from.

    A projected volume with a service account token has none: programs get KUBECONFIG instead.
    """
    if "configMap" in volume:
        return [("ConfigMap", volume["configMap"]["name"], volume["configMap"])]
    if "secret" in volume:
        return [("Secret", volume["secret"]["secretName"], volume["secret"])]
    sources = volume.get("projected", {}).get("sources", [])
    if any("serviceAccountToken" in each for each in sources):
        return []
    maps = [
        ("ConfigMap", each["configMap"]["name"], each["configMap"]) for each in sources if "configMap" in each
    ]
    secrets = [("Secret", each["secret"]["name"], each["secret"]) for each in sources if "secret" in each]
    return maps + secrets


def files_of(volume: Doc, sources: Sources) -> dict[str, bytes]:
    """Relative path -> content; NotYet where something is missing that is not optional."""
    files: dict[str, bytes] = {}
    for kind, name, source in parts_of(volume):
        data, optional = sources.get((kind, name)), source.get("optional", False)
        if data is None:
            if optional:
                continue
            raise NotYet(
                "ContainerCreating", f'MountVolume.SetUp failed for "{volume["name"]}": no {kind} {name}'
            )
        items = source.get("items")
        if items is None:
            files.update(data)
            continue
        for item in items:
            if item["key"] in data:
                files[item["path"]] = data[item["key"]]
            elif not optional:
                raise NotYet("ContainerCreating", f"{kind} {name} has no key {item['key']}")
    return files


def write_files(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Make a volume's folder hold ``files``, all changed at once as a kubelet does it; whether any did change.

    The entries are links through ``..data``, a link that is replaced: who watches for that sees what it sees
    in a cluster.
    """
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "..data"
    if link.exists() and _read(link) == dict(files):
        return False
    fresh = folder / f"..{time.time_ns()}"
    for name, content in files.items():
        path = fresh / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    fresh.mkdir(exist_ok=True)
    old = link.resolve() if link.exists() else None
    swap = folder / "..data_tmp"
    swap.unlink(missing_ok=True)
    swap.symlink_to(fresh.name)
    swap.rename(link)
    tops = {name.split("/")[0] for name in files}
    for top in tops:
        if not (folder / top).is_symlink():
            (folder / top).symlink_to(os.path.join("..data", top))
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in tops:
            entry.unlink()
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
    return True


def _read(folder: Path) -> dict[str, bytes]:
    root = folder.resolve()
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def mounts_of(pod: Doc, container: Doc, folder: Path) -> list[Mount]:
    """Where the mount paths of a container lead; volumes that the rig does not play lead nowhere.

    A file named by ``subPath`` is copied now: in a cluster it does not follow its ConfigMap either.
    """
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
    mounts = []
    for number, mount in enumerate(container.get("volumeMounts", [])):
        volume = volumes.get(mount["name"], {})
        if not parts_of(volume) and "emptyDir" not in volume:
            continue
        local = folder / "volumes" / mount["name"]
        if mount.get("subPath"):
            local = local / mount["subPath"]
            if local.is_file():
                copy = folder / "mounts" / f"{container['name']}-{number}" / local.name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(local, copy)
                local = copy
        mounts.append(Mount(mount["mountPath"].rstrip("/"), str(local)))
    return mounts


def rewritten(text: str, mounts: list[Mount]) -> str:
    """A text of the container with local paths in place of mount paths (whole path elements only)."""
    if not mounts:
        return text
    by_path = {mount.path: mount.local for mount in mounts}
    longest_first = "|".join(re.escape(path) for path in sorted(by_path, key=len, reverse=True))
    pattern = rf"(?<![\w./-])({longest_first})(?![\w.-])"
    return re.sub(pattern, lambda found: by_path[found.group(1)], text)
