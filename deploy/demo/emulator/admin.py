"""The emulator's own path for people and demos: ``/emulator/...``, for those who may open it (administrators).

GET    /emulator                    what stands: faults, webhooks, policy lag, parts, open watches
POST   /emulator/faults             a fault (see ``faults``); DELETE /emulator/faults takes all away, /faults/ID one
POST   /emulator/watches/drop       break watches: {"resources": [...], "users": [...]}
POST   /emulator/history/forget     watches and page tokens from before now are too old: {"resources": [...]}
POST   /emulator/webhooks           {"up": false}: the manager of LeaderWorkerSet does not answer its webhooks
POST   /emulator/policies           {"lag_s": 2}: admission policies and parameters take effect that much later
POST   /emulator/parts/NAME/ACTION  ACTION is pause, resume, stop or start
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deploy.demo.emulator.faults import read
from deploy.demo.emulator.problems import bad_request, no_such_path

if TYPE_CHECKING:
    from deploy.demo.emulator.server import Server
    from deploy.demo.emulator.streams import Stream

Doc = dict[str, Any]
PATH = "/emulator"


async def answer(server: Server, method: str, path: str, body: Any) -> Doc:
    """Carry a request to the admin path out. Raises ApiProblem."""
    parts = [part for part in path.split("/") if part][1:]
    doc: Doc = body or {}
    match (method, *parts):
        case ("GET",):
            return state(server)
        case ("POST", "faults"):
            return {"id": server.faults.add(read(doc))}
        case ("DELETE", "faults"):
            server.faults.clear()
        case ("DELETE", "faults", name):
            if not server.faults.remove(name):
                raise no_such_path()
        case ("POST", "watches", "drop"):
            return {"dropped": drop_watches(server, doc.get("resources") or [], doc.get("users") or [])}
        case ("POST", "history", "forget"):
            forget(server, doc.get("resources") or [])
        case ("POST", "webhooks"):
            server.webhooks.up = bool(doc.get("up", True))
        case ("POST", "policies"):
            server.policies.lag_s = float(doc.get("lag_s", 0.0))
        case ("POST", "parts", name, action):
            await _part(server, name, action)
        case _:
            raise no_such_path()
    return state(server)


def state(server: Server) -> Doc:
    """What stands."""
    return {
        "faults": server.faults.documents(),
        "webhooks": {"up": server.webhooks.up},
        "policies": {"lag_s": server.policies.lag_s},
        "parts": server.parts.states(),
        "watches": [{"resource": each.kind.ref, "user": each.user} for each in server.streams.open],
        "resourceVersion": str(server.store.version),
    }


def drop_watches(server: Server, resources: list[str], users: list[str]) -> int:
    """Break open watches, all or those of some resources (plural) and users; returns how many."""

    def fits(stream: Stream) -> bool:
        named = any(stream.user == each or stream.user.endswith(f":{each}") for each in users)
        return (not resources or stream.kind.plural in resources) and (not users or named)

    return server.streams.drop(fits)


def forget(server: Server, resources: list[str]) -> None:
    """Lose the history of some resources (plural) or of all, and every page token."""
    for kind in server.store.kinds:
        if not resources or kind.plural in resources:
            server.store.memory.forget(kind)
    server.lists.expire()


async def _part(server: Server, name: str, action: str) -> None:
    if name not in server.parts.states():
        raise no_such_path()
    if action == "stop":
        await server.parts.stop(name)
    elif action in ("pause", "resume", "start"):
        getattr(server.parts, action)(name)
    else:
        raise bad_request("a part can be paused, resumed, stopped and started")
