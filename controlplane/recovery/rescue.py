"""`lockstep-rescue`: bring a recorded combination back when the database or the identity provider is down.

    lockstep-rescue --kubeconfig F --context C list
    lockstep-rescue --kubeconfig F --context C show NAMESPACE/SET [--combination N]
    lockstep-rescue --kubeconfig F --context C restore NAMESPACE/SET [--combination N] --yes SET

Needs a break-glass account: a member of the group lockstep:break-glass that may read and write everything.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from controlplane.holds.guards import TARGET, shipped_guards
from controlplane.kube.client import Kube
from controlplane.kube.errors import BadCredentials, KubeError
from controlplane.recovery.copies import Copy, list_sets, read_copies
from controlplane.recovery.rescuing import Rescue, RescueStopped
from policy.recovery.order import Options, Order

Json = dict[str, Any]
TIMEOUT_S = 10.0
STOPPED, WRONG = 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """0 done, 1 stopped (run again to go on), 2 wrong call."""
    asked = _parser().parse_args(argv)
    try:
        with Kube.from_kubeconfig(asked.kubeconfig, context=asked.context, timeout=TIMEOUT_S) as kube:
            if asked.command == "list":
                return _list(kube)
            namespace, _, name = asked.set.partition("/")
            copy = _choose(read_copies(kube, namespace, name), asked.combination)
            rescue = Rescue(
                kube=kube,
                document=copy.document,
                options=Options(accept_outage=asked.accept_outage, writers=tuple(asked.writer)),
                say=say,
                guards=_shipped(asked.guards) if asked.command == "restore" else (),
                stable_for=asked.stable_for,
                stuck_after=asked.stuck_after,
                leave_scalers=asked.leave_scalers,
            )
            return _show(copy, rescue) if asked.command == "show" else _restore(rescue, asked.yes)
    except (RescueStopped, KubeError, BadCredentials) as stopped:
        say(f"Stopped: {stopped}")
        return STOPPED


def say(line: str) -> None:
    """One line for the person at the shell."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lockstep-rescue", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--context", required=True)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="sets with recorded combinations")
    for command in ("show", "restore"):
        each = commands.add_parser(command)
        each.add_argument("set", metavar="NAMESPACE/SET")
        each.add_argument("--combination", type=int, help="its number; the newest verified one by default")
        each.add_argument(
            "--accept-outage", action="store_true", help="drain traffic where revisions would mix"
        )
        each.add_argument("--writer", action="append", default=[], help="acknowledge this outside writer")
        each.add_argument(
            "--leave-scalers", action="store_true", help="go on beside scalers that cannot be paused"
        )
        each.add_argument("--stable-for", type=float, default=30.0, help="seconds that new groups stay ready")
        each.add_argument(
            "--stuck-after", type=float, default=1800.0, help="seconds until it stops and says so"
        )
        if command == "restore":
            each.add_argument(
                "--yes", required=True, metavar="SET", help="the set's name: the one confirmation"
            )
            each.add_argument(
                "--guards", type=Path, default=TARGET, help="folder of the admission policies as shipped"
            )
    return parser


def _shipped(folder: Path) -> tuple[Json, ...]:
    try:
        return shipped_guards(folder)
    except OSError as error:
        raise RescueStopped(
            f"the admission policies as shipped cannot be read ({error}): name their folder with --guards"
        ) from error


def _list(kube: Kube) -> int:
    for namespace, name in list_sets(kube):
        for copy in read_copies(kube, namespace, name):
            say(_line(namespace, name, copy))
    return 0


def _line(namespace: str, name: str, copy: Copy) -> str:
    index = copy.index
    if copy.problem:
        return f"{namespace}/{name}  broken: {copy.problem}"
    return (
        f"{namespace}/{name}  combination {index['number']}  {index.get('state')}  revision {index.get('revision')}"
        f"  captured {index.get('captured_at')}  {index['digest']}"
    )


def _choose(copies: list[Copy], number: int | None) -> Copy:
    whole = [copy for copy in copies if not copy.problem]
    wanted = [copy for copy in whole if number in (None, int(copy.index["number"]))]
    if number is None:
        wanted = [copy for copy in wanted if copy.index.get("state") == "verified"] or [
            copy for copy in wanted if copy.index.get("state") != "revoked"
        ]
    if not wanted:
        broken = "; ".join(copy.problem for copy in copies if copy.problem)
        raise RescueStopped(f"no such combination is in the cluster{f' ({broken})' if broken else ''}")
    return wanted[0]


def _show(copy: Copy, rescue: Rescue) -> int:
    named = rescue.document["set"]
    say(_line(named["namespace"], named["name"], copy))
    _describe(rescue.look())
    return 0


def _describe(order: Order) -> None:
    for number, part in enumerate(order.parts, 1):
        say(f"{number}. {part.name} {', '.join(part.names)}: {part.reason}")
    if not order.parts:
        say("Nothing differs.")
    for refusal in order.refusals:
        say(f"refused ({refusal.code}): {refusal.sentence}; {refusal.next_action}")
    for writer in order.writers:
        say(f"also writes this set: {writer}")
    say(order.estimate.sentence)


def _restore(rescue: Rescue, confirmed: str) -> int:
    if confirmed != rescue.document["set"]["name"]:
        say(f"--yes {confirmed} is not the name of the set; nothing was written.")
        return WRONG
    _describe(rescue.look())
    bits = rescue.run()
    say(f"Restored: {bits.get('verdict')}. {'; '.join(bits.get('what') or ())}".rstrip())
    say("The installation stays read-only for this cluster until a person takes it over there.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
