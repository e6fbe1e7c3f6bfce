"""Hazards of the planned pods: time to start, time to end, images that can change under their name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from policy.rollout.facts import PlanFacts, RoleFacts
from policy.rollout.hazard import Hazard
from policy.rollout.wording import listed

_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
# A tag with a number in it names a release by custom; words such as latest or nightly are meant to move.
_RELEASE = re.compile(r"[0-9]")
_MOVING = re.compile(r"(^|[-_.])(latest|main|master|nightly|dev|edge|stable|head)([-_.]|$)")


def pod_hazards(facts: PlanFacts) -> Iterator[Hazard]:
    """All hazards of this kind; none where no pod is made anew."""
    if not facts.scope.rolls:
        return
    planned = [role for role in facts.roles if role.target_groups is not None]
    yield from _start(planned)
    yield from _end(planned)
    yield from _images(planned)


def _start(roles: list[RoleFacts]) -> Iterator[Hazard]:
    short = {
        role.name: [role.pods.startup_seconds, role.load_seen_seconds]
        for role in roles
        if role.pods.startup_seconds is not None
        and role.load_seen_seconds is not None
        and role.pods.startup_seconds < role.load_seen_seconds
    }
    if short:
        said = [f"{name} allows {allowed} s, seen {seen} s" for name, (allowed, seen) in short.items()]
        yield Hazard(
            "startup-probe-short",
            "warn",
            "The startup probe gives up before a load as long as one seen before ends "
            f"({'; '.join(said)}). The group would restart for ever.",
            "Raise failureThreshold or periodSeconds of the startup probe.",
            {"allowed_and_seen_seconds": short},
        )


def _end(roles: list[RoleFacts]) -> Iterator[Hazard]:
    short = {}
    for role in roles:
        needed = role.pods.pre_stop_seconds + role.drain_seconds + (role.longest_stream_seconds or 0)
        if role.pods.grace_seconds is not None and role.pods.grace_seconds < needed:
            short[role.name] = [role.pods.grace_seconds, needed]
    if short:
        said = [f"{name} has {grace} s, needs {needed} s" for name, (grace, needed) in short.items()]
        yield Hazard(
            "grace-period-short",
            "warn",
            f"Pods may be killed before their hook, drain and longest stream end ({'; '.join(said)}): "
            "answers would be cut off.",
            "Let the owner of the set raise terminationGracePeriodSeconds.",
            {"grace_and_needed_seconds": short},
        )


def _images(roles: list[RoleFacts]) -> Iterator[Hazard]:
    images = dict.fromkeys(image for role in roles for image in role.pods.images)
    moving = [image for image in images if not _DIGEST.search(image) and _moves(image)]
    tagged = [image for image in images if not _DIGEST.search(image) and not _moves(image)]
    if moving:
        yield Hazard(
            "mutable-tag",
            "warn",
            f"Images that may change under their name: {listed(moving)}. Groups that start at different "
            "times can run different bits, and going back may not bring the old ones.",
            "Name images by digest.",
            {"images": moving},
        )
    if tagged:
        yield Hazard(
            "tag-without-digest",
            "info",
            f"Images named by a tag: {listed(tagged)}. The image IDs of all new pods are compared, so a "
            "tag that moves is seen.",
            "Name images by digest to be sure.",
            {"images": tagged},
        )


def _moves(image: str) -> bool:
    _, colon, tag = image.rsplit("/", 1)[-1].partition(":")
    return not colon or not _RELEASE.search(tag) or bool(_MOVING.search(tag))
