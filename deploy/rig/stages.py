"""How pods behave on the rig: KWOK stages of our own, chosen per pod by annotation, environment or image tag.

The product may change only image, arguments, environment and resources of a set, so a behaviour must be
reachable through those; the table is in README.md. A pod's behaviour is the first that is named by the
annotation ``rig.lockstep.dev/behaviour``, by the environment variable ``RIG_BEHAVIOUR`` of any container, or
by a word of an image tag (``engine:v2-never-ready``).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

ANNOTATION = "rig.lockstep.dev"
BEHAVIOURS = ("ready", "late", "never-ready", "flicker", "crash", "pull-error")
# "ready" is no word of a tag: it is the end of "never-ready", and what a pod does anyway.
_TAG_WORDS = "|".join(BEHAVIOURS[1:])
LATE_DEFAULT_MS = 5000
PERIOD_DEFAULT_MS = 3000

# jq; the words of a tag are parted by - _ . so that "latest" is not "late".
_FUNCTIONS = f"""
def note(n): .metadata.annotations["{ANNOTATION}/" + n];
def env(n): [.spec.containers[].env[]? | select(.name == n) | .value] | first;
def tag(re): [.spec.containers[].image | capture(":(?:[^/@]*[-_.])?(?:" + re + ")(?:[-_.@]|$)") | .v] | first;
def after: note("ready-after") // env("RIG_READY_AFTER") // tag("late-?(?<v>[0-9]+(?:ms|s|m))");
def named: note("behaviour") // env("RIG_BEHAVIOUR") // tag("(?<v>{_TAG_WORDS})(?:-?[0-9]+(?:ms|s|m))?");
def behaviour: named // (if after then "late" else "ready" end);
"""

_IMAGE_ID = (
    '{{ regexReplaceAll "(:[^/:@]+)?(@.*)?$" .image "" }}@'
    '{{ if contains "@sha256:" .image }}{{ regexFind "sha256:[0-9a-f]+" .image }}'
    "{{ else }}sha256:{{ sha256sum .image }}{{ end }}"
)

_ADDRESSES = """
{{ with NodeIPsWith .spec.nodeName }}
hostIP: {{ index . 0 | Quote }}
hostIPs: [{{ range . }}{ip: {{ . | Quote }}},{{ end }}]
{{ end }}
{{ $own := .metadata }}
{{ with PodIPsWith .spec.nodeName (or .spec.hostNetwork false) $own.uid $own.name $own.namespace }}
podIP: {{ index . 0 | Quote }}
podIPs: [{{ range . }}{ip: {{ . | Quote }}},{{ end }}]
{{ end }}
startTime: {{ Now | Quote }}
initContainerStatuses:
{{ range .spec.initContainers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: IMAGE_ID
  ready: true
  restartCount: 0
  {{ if eq (or .restartPolicy "") "Always" }}
  started: true
  state: {running: {startedAt: {{ Now | Quote }}}}
  {{ else }}
  started: false
  state:
    terminated:
      {exitCode: 0, reason: Completed, startedAt: {{ Now | Quote }}, finishedAt: {{ Now | Quote }}}
  {{ end }}
{{ end }}
""".replace("IMAGE_ID", _IMAGE_ID)

_RUNNING = "{running: {startedAt: {{ Now | Quote }}}}"
_CRASHED = (
    "{terminated: {exitCode: 1, reason: Error, finishedAt: {{ Now | Quote }}, startedAt: {{ Now | Quote }}}}"
)


def _status(
    *,
    ready: bool,
    started: bool,
    state: str = _RUNNING,
    last_state: str = "{}",
    crashed: bool = False,
    phase: str = "Running",
    first: bool = False,
    pulled: bool = True,
    handed_over: bool = False,
) -> str:
    """A pod status as a kubelet would write it, as a template of KWOK (Go text/template with sprig)."""
    condition = f'status: "{ready}", lastTransitionTime: {{{{ Now | Quote }}}}' + (
        "" if ready else ", reason: ContainersNotReady"
    )
    restarts = "{{ if $was }}{{ (index $was $i).restartCount }}{{ else }}0{{ end }}"
    if crashed:
        restarts = "{{ if $was }}{{ add1 (index $was $i).restartCount }}{{ else }}1{{ end }}"
    # The runner's mark, see runner/status.py.
    mark = "- {type: PodReadyToStartContainers, status: 'True', lastTransitionTime: {{ Now | Quote }}}"
    return f"""
{{{{ $was := .status.containerStatuses }}}}
phase: {phase}
conditions:
{mark if handed_over else ""}
- {{type: Initialized, status: "True", lastTransitionTime: {{{{ Now | Quote }}}}}}
- {{type: ContainersReady, {condition}}}
- {{type: Ready, {condition}}}
{{{{ range .spec.readinessGates }}}}
- {{type: {{{{ .conditionType | Quote }}}}, status: "True", lastTransitionTime: {{{{ Now | Quote }}}}}}
{{{{ end }}}}
containerStatuses:
{{{{ range $i, $container := .spec.containers }}}}
{{{{ with $container }}}}
- name: {{{{ .name | Quote }}}}
  image: {{{{ .image | Quote }}}}
  imageID: {f'"{_IMAGE_ID}"' if pulled else '""'}
  ready: {str(ready).lower()}
  started: {str(started).lower()}
  restartCount: {restarts}
  state: {state}
  lastState: {last_state}
{{{{ end }}}}
{{{{ end }}}}
{_ADDRESSES if first else ""}
"""


def _when(key: str, *values: str, negate: bool = False) -> dict[str, Any]:
    if values:
        return {"key": _FUNCTIONS + key, "operator": "NotIn" if negate else "In", "values": list(values)}
    return {"key": key, "operator": "DoesNotExist" if negate else "Exists"}


_ALIVE = _when(".metadata.deletionTimestamp", negate=True)
_PENDING = _when(".status.phase", "Pending")
_RUNS = _when(".status.phase", "Running")
_FRESH = _when(".status.containerStatuses", negate=True)
_IS_READY = _when('.status.conditions[]? | select(.type == "Ready") | .status', "True")
_NOT_READY = _when('.status.conditions[]? | select(.type == "Ready") | .status', "False")
_NOT_STARTED = _when(".status.containerStatuses[0].started", "false")
_STARTED = _when(".status.containerStatuses[0].started", "true")
_BEHAVIOUR = "behaviour"
_IN_JOB = '[.metadata.ownerReferences[]?.kind] | any(. == "Job")'


def _stage(
    name: str, when: list[dict[str, Any]], following: dict[str, Any], delay: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
        "selector": {"matchExpressions": when},
        "next": following,
    }
    if delay:
        spec["delay"] = dict(delay)
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


def _delay(default_ms: int, expression: str) -> dict[str, Any]:
    return {
        "durationMilliseconds": default_ms,
        "durationFrom": {"expressionFrom": _FUNCTIONS + expression},
    }


def _patch(**status: Any) -> dict[str, Any]:
    return {"statusTemplate": _status(**status)}


def _first_stages() -> list[dict[str, Any]]:
    """What a bound pod's first status is."""
    pull = '{waiting: {reason: ImagePullBackOff, message: "back-off pulling image"}}'
    return [
        _stage(
            "pod-ready",
            [_ALIVE, _PENDING, _FRESH, _when(_BEHAVIOUR, "ready", "flicker")],
            _patch(ready=True, started=True, first=True),
        ),
        _stage(
            "pod-start",
            [_ALIVE, _PENDING, _FRESH, _when(_BEHAVIOUR, "late", "never-ready", "crash")],
            _patch(ready=False, started=False, first=True),
        ),
        _stage(
            "pod-pull-error",
            [_ALIVE, _PENDING, _FRESH, _when(_BEHAVIOUR, "pull-error")],
            _patch(ready=False, started=False, state=pull, phase="Pending", pulled=False, first=True),
        ),
        _stage(
            "pod-late-ready",
            [_ALIVE, _RUNS, _NOT_STARTED, _when(_BEHAVIOUR, "late")],
            _patch(ready=True, started=True),
            _delay(LATE_DEFAULT_MS, "after"),
        ),
    ]


def _restless_stages() -> list[dict[str, Any]]:
    """Pods that never come to rest: flicker and crash."""
    period = _delay(PERIOD_DEFAULT_MS, 'note("period") // env("RIG_PERIOD")')
    back_off = '{waiting: {reason: CrashLoopBackOff, message: "back-off restarting failed container"}}'
    return [
        _stage(
            "pod-flicker-down",
            [_ALIVE, _RUNS, _IS_READY, _when(_BEHAVIOUR, "flicker")],
            _patch(ready=False, started=True),
            period,
        ),
        _stage(
            "pod-flicker-up",
            [_ALIVE, _RUNS, _NOT_READY, _STARTED, _when(_BEHAVIOUR, "flicker")],
            _patch(ready=True, started=True),
            period,
        ),
        _stage(
            "pod-crash",
            [_ALIVE, _RUNS, _when(".status.containerStatuses[0].state.running"), _when(_BEHAVIOUR, "crash")],
            _patch(ready=False, started=False, state=back_off, last_state=_CRASHED, crashed=True),
            period,
        ),
        _stage(
            "pod-crash-restart",
            [_ALIVE, _RUNS, _when(".status.containerStatuses[0].state.waiting"), _when(_BEHAVIOUR, "crash")],
            _patch(ready=False, started=False, last_state=_CRASHED),
            period,
        ),
    ]


def _last_stages() -> list[dict[str, Any]]:
    """How pods end."""
    return [
        _stage(
            "pod-complete", [_ALIVE, _RUNS, _when(_IN_JOB, "true")], {"statusTemplate": "phase: Succeeded"}
        ),
        _stage(
            "pod-delete",
            [_when(".metadata.deletionTimestamp")],
            {"delete": True},
            _delay(0, 'note("terminate-after") // env("RIG_TERMINATE_AFTER")'),
        ),
    ]


def _program(images: Collection[str]) -> str:
    """jq: whether a pod is the runner's: one of the images, and no behaviour named for it."""
    known = " or ".join(f". == {json.dumps(image)}" for image in images)
    return (
        _FUNCTIONS
        + '([.spec.containers[].image | sub("@.*$"; "") | sub(":[^/:]+$"; "")]'
        + f" | any({known})) and (named | not)"
    )


def _program_stages(images: Collection[str]) -> list[dict[str, Any]]:
    """Pods of the runner: an address, and an end only where the pod never got that far."""
    program = _when(_program(images), "true")
    creating = "{waiting: {reason: ContainerCreating}}"
    first = _patch(ready=False, started=False, state=creating, phase="Pending", first=True, handed_over=True)
    return [
        _stage("pod-program", [_ALIVE, _PENDING, _FRESH, program], first),
        _stage(
            "pod-program-unborn", [_when(".metadata.deletionTimestamp"), _FRESH, program], {"delete": True}
        ),
    ]


def pod_stages(images: Collection[str] = ()) -> list[dict[str, Any]]:
    """The life of a pod, a stage per step; a pod without a named behaviour is Ready with its first status.

    ``images`` (without tag) are those of programs: their pods are left to the runner unless a behaviour is named.
    """
    stages = [*_first_stages(), *_restless_stages(), *_last_stages()]
    if not images:
        return stages
    for stage in stages:
        stage["spec"]["selector"]["matchExpressions"].append(_when(_program(images), "false"))
    return [*stages, *_program_stages(images)]


def write_stages(path: Path, kwok_stages: Path, images: Collection[str] = ()) -> None:
    """One file for ``kwok --config``: KWOK's own stages for nodes, ours for pods."""
    nodes = [yaml.safe_load(found.read_text()) for found in sorted(kwok_stages.glob("node/*/node-*.yaml"))]
    path.write_text(yaml.safe_dump_all([*nodes, *pod_stages(images)], width=1_000_000))
