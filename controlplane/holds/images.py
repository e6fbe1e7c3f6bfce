"""What the pods of a set really run: image IDs by role and container."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.fleet.names import SET_ROLE, labels_of

Json = dict[str, Any]


def images_by_role(pods: Iterable[Mapping[str, Any]]) -> Json:
    """role → container → {image, image_ids}; more than one image ID means that the tag moved between nodes."""
    found: Json = {}
    for pod in pods:
        role = labels_of(pod).get(SET_ROLE, "")
        asked = {c["name"]: c["image"] for c in pod["spec"]["containers"]}
        for status in pod.get("status", {}).get("containerStatuses", []):
            name, containers = status["name"], found.setdefault(role, {})
            image = asked.get(name, status["image"])
            if containers.get(name, {"image": image})["image"] != image:  # leader and worker may differ
                name = f"{name} ({image})"
            entry = containers.setdefault(name, {"image": image, "image_ids": []})
            image_id = status.get("imageID", "")
            if image_id not in entry["image_ids"]:
                entry["image_ids"] = sorted([*entry["image_ids"], image_id])
    return found
