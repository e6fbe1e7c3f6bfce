"""A pod's port that leads to a local port of its program."""

from __future__ import annotations

import asyncio

_LOOK_EVERY_S = 0.05
_CHUNK = 1 << 16


async def forward(pod_ip: str, port: int, local: int) -> None:
    """Listen on ``pod_ip:port`` from when the program listens on ``local`` until this is cancelled.

    Not earlier: a connection to a program that does not listen yet must be refused.
    """
    while not await _listens(local):
        await asyncio.sleep(_LOOK_EVERY_S)
    open_now: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        try:
            await _both_ways(reader, writer, local)
        except asyncio.CancelledError:
            pass
        finally:
            open_now.discard(task)

    server = await asyncio.start_server(serve, pod_ip, port)
    try:
        await asyncio.Event().wait()
    finally:
        server.close()
        for task in list(open_now):
            task.cancel()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def _both_ways(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, local: int) -> None:
    try:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", local)
    except OSError:
        writer.close()
        return
    try:
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
    except OSError:
        pass
    finally:
        writer.close()
        far_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
