"""A real Kubernetes control plane without containers, for tests and for people."""

from deploy.rig.build import RigUnavailable, available

__all__ = ["RigUnavailable", "available"]
