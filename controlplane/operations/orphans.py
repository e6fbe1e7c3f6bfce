"""Holds that stand in a cluster without an operation that runs: findings for a person, never mended by a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.fleet.parameter import is_standing
from controlplane.operations.installation import this_installation
from controlplane.operations.models import Operation


def operation_name(operation_id: int) -> str:
    """How an operation is named in a cluster; unique together with the installation's id beside it."""
    return f"U-{operation_id}"


def running_names(cluster_id: int) -> set[str]:
    """Names of the operations of this installation that have not ended on a cluster."""
    unfinished = Operation.objects.unfinished().filter(cluster_id=cluster_id)
    return {operation_name(pk) for pk in unfinished.values_list("pk", flat=True)}


def orphan_holds(*, cluster_id: int, parameters: Iterable[Mapping[str, Any]]) -> list[str]:
    """One sentence for each standing hold parameter that no unfinished operation of this installation stands
    behind. It keeps its set from growing until somebody lets it go, so it is shown with the cluster."""
    standing = [each for each in parameters if is_standing(each)]
    if not standing:
        return []
    running, mine = running_names(cluster_id), str(this_installation().pk)
    found = []
    for each in standing:
        data, name = each.get("data") or {}, each["metadata"]["name"]
        operation, installation = data.get("operation", "nobody"), data.get("installation", mine)
        if installation != mine:
            found.append(f"{name} holds for {operation} of another installation ({installation})")
        elif operation not in running:
            found.append(
                f"{name} holds for {operation}, which does not run here: look what the set needs, then follow"
                " its to-abort and to-release lines"
            )
    return found
