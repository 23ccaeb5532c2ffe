"""Clients that harm a gateway, on purpose or by accident, each until the gateway closes its connection."""

import asyncio
import contextlib
import socket
import time
from dataclasses import dataclass

from .raw import RawResponse

# From linux/tcp.h; Python has no name for it.
TCP_REPAIR = 19


@dataclass
class Ending(RawResponse):
    """The end of one abuser: the bytes that it received, and the seconds until then."""

    seconds: float = 0.0


async def abuse(address, data=b"", *, drip=None, every=0.03, within=30.0, local=None):
    """Sends `data`, and then a piece of `drip` (an iterable of bytes) every `every` seconds, until the gateway closes.

    `ended` says whether the gateway closed within the time. The result contains the bytes that the gateway sent until
    then.
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
    """Sends `data`, and then `piece` again and again, until the gateway takes no more.

    Returns the received bytes and the seconds so far. The client does not stop when the gateway has sent everything and
    closed its own direction, since a client that keeps sending notices only the end of both directions.
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
    """A connection that sends a request and does not read. Its buffer is small: the response stays in the gateway."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.connect(address)
    connection.sendall(request)
    return connection


def was_reset(connection):
    """Whether the gateway has reset `connection`, without reading from it."""
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0 or _is_closed(connection)


def _is_closed(connection):
    # The first byte of struct tcp_info is the state; 7 is TCP_CLOSE.
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 7


def vanish(connection):
    """Removes a socket without a packet to its peer, like a power failure or a lost route. Needs CAP_NET_ADMIN."""
    connection.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    connection.close()


def may_vanish():
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        except PermissionError:
            return False
        return True
