"""The lock under which a combination is changed or restored."""

from __future__ import annotations

from controlplane.access.etags import check_version
from controlplane.errors import NotFound
from controlplane.recovery.models import Combination


def lock_combination(combination_id: int, version: int | None = None) -> Combination:
    """The combination, its row locked for the transaction, with its cluster. Raises NotFound, and StaleEdit where it
    is not of the `version` that somebody has seen."""
    found = (
        Combination.objects.select_for_update(no_key=True, of=("self",))
        .select_related("cluster")
        .filter(pk=combination_id)
        .first()
    )
    if found is None:
        raise NotFound("not-found", f"There is no combination {combination_id}.")
    if version is not None:
        check_version(expected=version, actual=found.version)
    return found
