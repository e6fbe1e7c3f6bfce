"""What looks share: whether a revision is complete, whether it stays so, and what is left of the others."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controlplane.holds.leftover import LEAK_AFTER, TAKEN_UP_AFTER, draining, not_taken_up, others_of
from controlplane.holds.live import ChildCount, LiveSet, shown
from controlplane.holds.steadiness import pod_sign, same_since

Json = dict[str, Any]
NOW = datetime(2026, 5, 4, 10, tzinfo=UTC)
GOOD, OTHER = "good", "other"


def child(revision: str, role: str, wanted: int, ready: int, *, observed: bool = True) -> Any:
    """One entry of the look's children."""
    return ("0", revision, role), ChildCount(f"chat-{revision}-{role}", wanted, ready, observed, {})


def look(*children: Any) -> LiveSet:
    """A look at a set with these children."""
    return LiveSet(body={"spec": {"roles": []}}, children=dict(children), parameter=None)


@pytest.mark.parametrize(
    ("wanted", "ready", "observed", "complete"),
    [(2, 2, True, True), (2, 1, True, False), (3, 3, True, False), (2, 2, False, False)],
)
def test_complete_is_exactly_the_count_all_ready_by_a_status_that_is_up_to_date(
    wanted: int, ready: int, observed: bool, complete: bool
) -> None:
    live = look(child(GOOD, "decode", wanted, ready, observed=observed))
    assert live.complete(("0", GOOD, "decode"), 2) is complete
    assert live.short_of(GOOD, {"decode": 2}) == ([] if complete else [f"decode {ready} of 2"])


def test_what_is_missing_is_short_and_a_role_that_wants_nothing_is_not() -> None:
    live = look(child(GOOD, "decode", 1, 1))
    assert live.short_of(GOOD, {"decode": 1, "prefill": 2, "router": 0}) == ["prefill 0 of 2"]
    assert live.short_of(GOOD, {"decode": 1}, slices=["0", "1"]) == ["decode 0 of 1"]
    assert shown(live.counts()) == {"0/good/decode": 1}


def test_others_are_those_with_groups_wanted_or_ready() -> None:
    live = look(
        child(OTHER, "prefill", 0, 1), child(OTHER, "decode", 1, 0), child("gone", "decode", 0, 0),
        child(GOOD, "decode", 1, 1),
    )  # fmt: skip
    assert others_of(live, GOOD) == [("0", OTHER, "decode"), ("0", OTHER, "prefill")]


def test_empty_sets_of_others_are_waited_for_but_not_for_long() -> None:
    live = look(child(OTHER, "decode", 0, 0), child(GOOD, "decode", 1, 1))
    assert not_taken_up(live, GOOD, waited=0) == ["chat-other-decode"]
    assert not_taken_up(live, GOOD, waited=TAKEN_UP_AFTER) == []


def test_groups_that_the_controller_has_forgotten_show_after_they_have_stood_the_same() -> None:
    standing, moved = look(child(OTHER, "decode", 2, 2)), look(child(OTHER, "decode", 1, 1))
    others = others_of(standing, GOOD)
    kept = draining(standing, others, kept=None, step=3, now=NOW)
    assert kept and json.loads(json.dumps(kept)) == kept
    late = NOW + timedelta(seconds=LEAK_AFTER)
    assert draining(standing, others, kept=kept, step=3, now=late - timedelta(seconds=1)) == kept
    assert draining(standing, others, kept=kept, step=3, now=late) is None
    assert draining(moved, others, kept=kept, step=3, now=late), "it has moved meanwhile"
    assert draining(standing, others, kept=kept, step=4, now=late), "another step begins anew"


def test_pods_that_end_may_take_their_time() -> None:
    ending = look(child(OTHER, "decode", 0, 2))
    others = others_of(ending, GOOD)
    kept = draining(ending, others, kept=None, step=3, now=NOW)
    assert draining(ending, others, kept=kept, step=3, now=NOW + timedelta(hours=1)) == kept


def pod(*, restarts: int = 0, turned: str = "2026-05-04T09:00:00Z") -> Json:
    """A ready pod."""
    return {
        "metadata": {"uid": "a"},
        "status": {
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "True", "lastTransitionTime": turned},
            ],
            "containerStatuses": [{"restartCount": restarts}],
        },
    }


def test_a_restart_and_a_flicker_between_two_looks_change_the_sign() -> None:
    signs = [pod_sign(pod()), pod_sign(pod(restarts=1)), pod_sign(pod(turned="2026-05-04T09:30:00Z"))]
    assert signs[0] not in signs[1:] and pod_sign(pod()) == signs[0]
    assert pod_sign({"metadata": {"uid": "a"}}) == ["a", "", "", 0], "a pod without a status yet"


def test_the_same_sign_keeps_its_moment_and_another_begins_anew() -> None:
    since, kept = same_since(None, step=3, sign=[1], now=NOW)
    later = NOW + timedelta(seconds=9)
    assert since == NOW
    assert same_since(kept, step=3, sign=[1], now=later) == (NOW, kept)
    assert same_since(kept, step=3, sign=[2], now=later)[0] == later
    assert same_since(kept, step=4, sign=[1], now=later)[0] == later
