"""A real Kubernetes control plane without containers, for tests and for people.

``with Rig() as rig:`` starts one; ``rig.kubeconfig("lockstep")`` is the file for an identity,
``rig.apply(yaml)`` writes as admin. See README.md for the identities, the pods' behaviours and the faults.
"""

from deploy.rig.api import Api, ApiError, until
from deploy.rig.build import RigUnavailable, available
from deploy.rig.identities import Identity, service_account
from deploy.rig.nodes import NodePool
from deploy.rig.parts import RigFailed
from deploy.rig.programs import PodProgram
from deploy.rig.rig import Rig, start_rig

__all__ = [
    "Api",
    "ApiError",
    "Identity",
    "NodePool",
    "PodProgram",
    "Rig",
    "RigFailed",
    "RigUnavailable",
    "available",
    "service_account",
    "start_rig",
    "until",
]
