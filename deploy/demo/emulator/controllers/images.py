"""What stands behind image references. A tag names other content after it was pushed again."""

from __future__ import annotations

import hashlib

from deploy.demo.emulator.controllers.behaviours import repository


class Images:
    """A registry as kubelets see it: the content of a tag is its name, until something is pushed under it."""

    def __init__(self) -> None:
        self._pushed: dict[str, str] = {}

    def push(self, image: str, content: str) -> str:
        """Let a tag name other content from now on, for pods that start from now on; returns the new image ID."""
        self._pushed[image] = content
        return self.image_id(image)

    def image_id(self, image: str) -> str:
        """``<image without tag>@sha256:<digest>``, as a pod's status has it."""
        _, at, digest = image.partition("@")
        if not at:
            content = self._pushed.get(image, image)
            digest = f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"
        return f"{repository(image)}@{digest}"
