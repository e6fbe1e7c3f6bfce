"""A claim as a writer of its set. Beside `writer` because a rescue writes without operations, which are in the
database."""

from __future__ import annotations

from controlplane.holds.writer import SetWriter
from controlplane.operations.contract import StepContext
from controlplane.operations.orphans import operation_name


def writer_of(context: StepContext) -> SetWriter:
    """This claim as a writer of the set that its operation remembers (`namespace`, `name`, `uid`, `installation`)."""
    memory = context.operation.memory
    return SetWriter(
        kube=context.kube,
        namespace=str(memory["namespace"]),
        name=str(memory["name"]),
        uid=str(memory["uid"]),
        operation=operation_name(context.operation.id),
        installation=str(memory["installation"]),
        fence=context.fence,
    )
