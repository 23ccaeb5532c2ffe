"""A healthy client beside the abusers: in a process of its own, so that it measures the gateway and not the test.

As a program (`python beside.py HOST PORT`) it reads counts from standard input, a line each, sends so many short polls,
one after the other on one connection that it never gives up, and writes the median of their times in seconds.
"""

import asyncio
import socket
import statistics
import sys
import time

REQUEST = b"GET /v1/messages?wait=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"


def _answer(connection):
    """Reads one answer, which must be a 200 with a Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise ConnectionError(f"a healthy request was answered {head[:200]!r}")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += _some(connection)


def _some(connection):
    data = connection.recv(65536)
    if not data:
        raise ConnectionError("the healthy connection was closed")
    return data


def _serve(host, port):
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for line in sys.stdin:
            times = []
            for _ in range(int(line)):
                started = time.perf_counter()
                connection.sendall(REQUEST)
                _answer(connection)
                times.append(time.perf_counter() - started)
            sys.stdout.write(f"{statistics.median(times)!r}\n")
            sys.stdout.flush()


class Beside:
    """The healthy client, and how it fares alone: `await start()` before the abuse begins."""

    # How many times slower than alone it may become. The abusers share the processors with it, and other programs too;
    # what is looked for is a client that waits for others' deadlines or turns, which is slower by hundreds.
    FACTOR = 20
    SAMPLES = 60
    ROUNDS = 6

    def __init__(self, gateway):
        self._address = gateway.address()
        self._process = None
        self.alone = None

    async def start(self):
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            *map(str, self._address),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        await self.median()
        self.alone = await self.median()
        return self

    async def median(self):
        """The median time of a request now, in seconds."""
        self._process.stdin.write(f"{self.SAMPLES}\n".encode())
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert line, "the healthy client lost its connection"
        return float(line)

    async def is_unharmed(self):
        """Measures until a round is as quick as it should be: noise makes some rounds slower, and harm all of them."""
        found = []
        for _ in range(self.ROUNDS):
            found.append(await self.median())
            if found[-1] <= self.FACTOR * self.alone:
                return found[-1] / self.alone
        raise AssertionError(f"a healthy client needs {min(found) * 1e3:.1f} ms, and alone {self.alone * 1e3:.1f} ms")

    async def stop(self):
        if self._process:
            self._process.stdin.close()
            await asyncio.wait_for(self._process.wait(), 30)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
