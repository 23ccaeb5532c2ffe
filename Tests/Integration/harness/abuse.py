"""Clients that mean harm, or behave as if they did: each sends in its own bad way until the gateway ends it."""

import asyncio
import contextlib
import socket
import time
from dataclasses import dataclass

from .raw import RawAnswer

# Of linux/tcp.h; Python has no name for it.
TCP_REPAIR = 19


@dataclass
class Ending(RawAnswer):
    """How one abuser ended: what it was told, and after how many seconds."""

    seconds: float = 0.0


async def abuse(address, data=b"", *, drip=None, every=0.03, within=30.0, local=None):
    """Sends `data`, and then pieces of `drip` (an iterable of bytes) every so often, until the gateway closes.

    `ended` tells whether it did within the time; what it said meanwhile is collected.
    """
    started = time.monotonic()
    reader, writer = await asyncio.open_connection(*address, local_addr=(local, 0) if local else None)
    received = bytearray()

    async def collect():
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(65536):
                received.extend(chunk)

    async def send():
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            for piece in drip or ():
                await writer.drain()
                await asyncio.sleep(every)
                writer.write(piece)

    sending = asyncio.create_task(send())
    try:
        await asyncio.wait_for(collect(), within)
        return Ending(bytes(received), True, time.monotonic() - started)
    except TimeoutError:
        return Ending(bytes(received), False, within)
    finally:
        sending.cancel()
        writer.transport.abort()


async def is_closed_on(address, data, piece, *, every=0.0, within=30.0):
    """Sends `data`, and then `piece` every so often, until the gateway takes no more: after how many bytes and seconds.

    That it has said all it will, and closed its own direction, does not end this: who goes on sending notices only the
    end of both.
    """
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, address)
        await loop.sock_sendall(connection, data)
        started, sent = time.monotonic(), 0
        try:
            async with asyncio.timeout(within):
                while True:
                    await loop.sock_sendall(connection, piece)
                    sent += len(piece)
                    await asyncio.sleep(every)
        except ConnectionError:
            return sent, time.monotonic() - started
        except TimeoutError:
            raise AssertionError(f"after {within} s and {sent} bytes the gateway still takes what comes") from None


def deaf(address, request, *, buffer=4096):
    """A connection that asks and does not read: its own buffer is small, so that the answer stays with the gateway."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.connect(address)
    connection.sendall(request)
    return connection


def was_reset(connection):
    """Whether the gateway has broken `connection` off, found out without reading what it sent."""
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0 or _is_closed(connection)


def _is_closed(connection):
    # First byte of struct tcp_info: the state; 7 is TCP_CLOSE.
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 7


def vanish(connection):
    """Takes a socket away without a word to its peer, as a power cut or a dropped route does. Needs CAP_NET_ADMIN."""
    connection.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    connection.close()


def may_vanish():
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        except PermissionError:
            return False
        return True
