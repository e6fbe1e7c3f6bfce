"""What a managed cluster needs before Lockstep may work in it."""

from __future__ import annotations

from collections.abc import Callable

from deploy.demo.folder import ROOT


def install_target(apply: Callable[[str], object]) -> None:
    """Namespace, account, rights, policies: the shipped manifests, through `apply` (YAML text)."""
    manifests = list((ROOT / "deploy" / "target").glob("*.yaml"))
    for path in sorted(manifests, key=lambda path: path.stem != "namespace"):
        if path.stem != "scrape":  # metric sources read that one
            apply(path.read_text(encoding="utf-8"))
