"""ValidatingAdmissionPolicies, evaluated from the stored policies, bindings and parameters.

A policy says which writes it judges and by which expressions; a binding says that it is in force, and with which
parameters. Every parameter that a binding finds judges by itself; one refusal is enough.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from deploy.demo.emulator.expressions import EvaluationFailed, Scope
from deploy.demo.emulator.kinds import Kind
from deploy.demo.emulator.matching import Rules, policy_namespaces
from deploy.demo.emulator.memory import Change
from deploy.demo.emulator.problems import ApiProblem, forbidden, invalid
from deploy.demo.emulator.requests import Write
from deploy.demo.emulator.rights import Rights
from deploy.demo.emulator.selectors import selector_match
from deploy.demo.emulator.store import Store

Doc = dict[str, Any]
_GROUP = "admissionregistration.k8s.io"
POLICIES = f"validatingadmissionpolicies.{_GROUP}"
BINDINGS = f"validatingadmissionpolicybindings.{_GROUP}"
_STATUS = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}


class Policies:
    """The policies of one store. ``lag_s`` is how much later a policy, binding or parameter takes effect."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._views: dict[str, _View] = {}
        self.lag_s = 0.0

    def check(self, write: Write) -> None:
        """Raise ApiProblem for a write that a policy refuses."""
        if write.kind.group == _GROUP:
            return  # nobody can lock everybody out of mending a policy
        for binding in self._seen(BINDINGS):
            spec = binding["spec"]
            policy = next((each for each in self._seen(POLICIES) if _name(each) == spec["policyName"]), None)
            if policy is not None and "Deny" in (spec.get("validationActions") or ()):
                self._judge(write, policy, binding)

    def _judge(self, write: Write, policy: Doc, binding: Doc) -> None:
        namespaces = policy_namespaces(self._store)
        if not Rules(policy["spec"].get("matchConstraints") or {}).fit(write, namespaces):
            return
        if not Rules(binding["spec"].get("matchResources") or {}, optional=True).fit(write, namespaces):
            return
        names = _names(write, namespaces(write.namespace))
        try:
            for parameter in self._parameters(write, policy["spec"], binding["spec"]):
                refused = _verdict(policy["spec"], {**names, "params": parameter})
                if refused is not None:
                    raise _denied(write, policy, binding, *refused)
        except EvaluationFailed as problem:
            if policy["spec"].get("failurePolicy", "Fail") == "Fail":
                raise _denied(write, policy, binding, str(problem), "Invalid") from problem

    def _parameters(self, write: Write, spec: Doc, bound: Doc) -> Iterator[Doc | None]:
        """The documents that a binding's paramRef finds; [None] where the policy takes none."""
        of, ref = spec.get("paramKind"), bound.get("paramRef")
        if not of:
            yield None
            return
        if not ref:
            raise EvaluationFailed(
                "failed to configure binding: paramRef is required by the policy's paramKind"
            )
        try:
            kind = self._store.kinds.named(of["apiVersion"], of["kind"])
        except ApiProblem as problem:
            raise EvaluationFailed(
                f"failed to configure policy: failed to find resource of {of}"
            ) from problem
        space = (ref.get("namespace") or write.namespace) if kind.namespaced else ""
        found = [each for each in self._seen(kind.ref) if each["metadata"].get("namespace", "") == space]
        if ref.get("name"):
            found = [each for each in found if _name(each) == ref["name"]]
        else:
            found = list(filter(selector_match(ref.get("selector")), found))
        if not found and ref.get("parameterNotFoundAction", "Deny") == "Deny":
            raise EvaluationFailed("no params found for policy binding with `Deny` parameterNotFoundAction")
        yield from found

    def _seen(self, ref: str) -> list[Doc]:
        """The objects of a kind as the policies go by them: as they were ``lag_s`` ago."""
        if self.lag_s <= 0 and ref not in self._views:
            return self._store.list(ref)
        if ref not in self._views:
            self._views[ref] = _View(self._store, self._store.kinds.of(ref), self._clock)
        return self._views[ref].items(self.lag_s)


class _View:
    """A kind as it was a while ago."""

    def __init__(self, store: Store, kind: Kind, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._items = {_key(doc): doc for doc in store.list(kind)}
        self._late: deque[tuple[float, Change]] = deque()
        store.memory.listen(kind.ref, lambda change: self._late.append((clock(), change)))

    def items(self, lag_s: float) -> list[Doc]:
        while self._late and self._late[0][0] <= self._clock() - lag_s:
            _, change = self._late.popleft()
            if change.type == "DELETED":
                self._items.pop(_key(change.new), None)
            else:
                self._items[_key(change.new)] = change.new
        return list(self._items.values())


class PolicyRights:
    """Who makes a policy or binding must be able to read what it takes as parameters."""

    def __init__(self, store: Store, rights: Rights) -> None:
        self._store = store
        self._rights = rights

    def check(self, write: Write) -> None:
        """Raise ApiProblem 422 for somebody who may not."""
        if write.object is None or write.subresource or write.kind.ref not in (POLICIES, BINDINGS):
            return
        spec = write.object["spec"]
        if write.old is not None and write.old["spec"] == spec:
            return
        if write.kind.ref == POLICIES:
            self._check_kind(write, spec)
        else:
            self._check_ref(write, spec)

    def _check_kind(self, write: Write, spec: Doc) -> None:
        of = spec.get("paramKind")
        if not of:
            return
        group, _, version = of["apiVersion"].rpartition("/")
        plural = self._plural(of)
        if not self._rights.may(write.user, "get", group, plural, "", "", "*"):
            what = (
                f"kind={of['kind']}, apiVersion={group}/{version}"
                if group
                else f"kind={of['kind']}, apiVersion={version}"
            )
            why = (
                f'Forbidden: user {write.user.name} must have "get" permission on all objects of the referenced '
                f"paramKind ({what})"
            )
            raise invalid(write.kind, write.name, [("spec.paramKind", "FieldValueForbidden", why)])

    def _check_ref(self, write: Write, spec: Doc) -> None:
        ref = spec.get("paramRef")
        policy = self._store.find(POLICIES, "", spec["policyName"])
        of = policy["spec"].get("paramKind") if policy else None
        if not ref or not of:
            return
        group = of["apiVersion"].rpartition("/")[0]
        where = (ref.get("namespace") or "", ref.get("name") or "*")
        if not self._rights.may(write.user, "get", group, self._plural(of), "", *where):
            why = (
                f'Forbidden: user {write.user.name} does not have "get" permission on the object referenced '
                "by paramRef"
            )
            raise invalid(write.kind, write.name, [("spec.paramRef", "FieldValueForbidden", why)])

    def _plural(self, of: Doc) -> str:
        try:
            return self._store.kinds.named(of["apiVersion"], of["kind"]).plural
        except ApiProblem:
            return f"{of['kind'].lower()}s"


def _verdict(spec: Doc, names: Doc) -> tuple[str, str] | None:
    """What a policy has against a write under one parameter: message and reason. Raises EvaluationFailed."""
    variables = {each["name"]: each["expression"] for each in spec.get("variables") or ()}
    scope = Scope(names, variables)
    if not _meant(spec, names):
        return None
    for validation in spec.get("validations") or ():
        expression = validation["expression"]
        try:
            passed = scope.value(expression)
        except EvaluationFailed as problem:
            raise EvaluationFailed(f"expression '{expression}' resulted in error: {problem}") from problem
        if passed is not True:
            return _message(scope, validation), validation.get("reason") or "Invalid"
    return None


def _meant(spec: Doc, names: Doc) -> bool:
    """Whether every matchCondition holds. One that is false decides, also where another one fails."""
    conditions = Scope(names, {})
    failed: EvaluationFailed | None = None
    for each in spec.get("matchConditions") or ():
        try:
            if conditions.value(each["expression"]) is not True:
                return False
        except EvaluationFailed as problem:
            failed = failed or problem
    if failed is not None:
        raise failed
    return True


def _message(scope: Scope, validation: Doc) -> str:
    if expression := validation.get("messageExpression"):
        try:
            said = scope.value(expression)
        except EvaluationFailed:
            said = None  # then the plain message counts, or the expression itself
        if isinstance(said, str) and said.strip() and "\n" not in said:
            return said
    return str(validation.get("message") or f"failed expression: {validation['expression'].strip()}")


def _denied(write: Write, policy: Doc, binding: Doc, message: str, reason: str) -> ApiProblem:
    said = f"ValidatingAdmissionPolicy '{_name(policy)}' with binding '{_name(binding)}' denied request: {message}"
    refused = forbidden(write.kind, write.name, said)
    refused.reason, refused.status = reason, _STATUS.get(reason, 422)
    refused.details["causes"] = [{"message": said}]
    return refused


def _names(write: Write, namespace: Doc | None) -> Doc:
    """What expressions see, apart from variables and params. Absent fields of the request are absent here too."""
    request: Doc = {
        "operation": write.operation,
        "kind": {"group": write.kind.group, "version": write.kind.version, "kind": write.kind.kind},
        "resource": {
            "group": write.kind.group,
            "version": write.kind.version,
            "resource": write.kind.plural,
        },
        "name": write.name,
        "dryRun": write.dry_run,
        "userInfo": {"username": write.user.name, "groups": list(write.user.all_groups)},
    }
    if write.subresource:
        request["subResource"] = write.subresource
    if write.namespace:
        request["namespace"] = write.namespace
    return {"object": write.object, "oldObject": write.old, "request": request, "namespaceObject": namespace}


def _key(doc: Doc) -> tuple[str, str]:
    return doc["metadata"].get("namespace", ""), doc["metadata"]["name"]


def _name(doc: Doc) -> str:
    return str(doc["metadata"]["name"])
