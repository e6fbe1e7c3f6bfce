"""Small documents, their paths, and refusals: what tests of the emulator's verbs have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deploy.rig import ApiError

Doc = dict[str, Any]


def config(namespace: str, name: str = "c", **data: str) -> Doc:
    """A ConfigMap."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def path(namespace: str, name: str = "", plural: str = "configmaps") -> str:
    """The path of an object of the core group, or of its collection."""
    return f"/api/v1/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def refused(call: Callable[[], object]) -> ApiError:
    """The refusal that a call ends with."""
    with pytest.raises(ApiError) as found:
        call()
    return found.value
