"""A healthy client beside the abusers: in a process of its own, so that it measures the gateway and not the test.

As a program (`python beside.py HOST PORT`) it reads seconds from standard input, a line each; for so long it sends
short polls, one after the other on one connection that it never gives up, and writes how many and how long it took. A
request that has to wait until an attack is over makes the whole of that time its own: no median hides it.
"""

import asyncio
import socket
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
            started = time.perf_counter()
            count = 0
            while time.perf_counter() < started + float(line):
                connection.sendall(REQUEST)
                _answer(connection)
                count += 1
            sys.stdout.write(f"{count} {time.perf_counter() - started!r}\n")
            sys.stdout.flush()


class Beside:
    """The healthy client, in two measures: alone, and beside something."""

    # How many times slower than alone it may become. The abusers share the processors with it, and other programs too;
    # what is looked for is a client that waits for others' deadlines or turns, which is slower by hundreds and more.
    FACTOR = 40
    # Noise makes some attempts slower, and harm all of them.
    ATTEMPTS = 3
    WINDOW = 0.2

    def __init__(self, gateway):
        self._address = gateway.address()
        self._process = None

    async def start(self):
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            *map(str, self._address),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        await self._send()
        return self

    async def _send(self):
        """Sends for one window, or until the answer that it waits for; how many requests, and the seconds they took."""
        self._process.stdin.write(f"{self.WINDOW}\n".encode())
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert line, "the healthy client lost its connection"
        count, seconds = line.split()
        return int(count), float(seconds)

    async def unharmed_by(self, attack):
        """Runs `attack` until the client fares well beside it; what it answered, and how many times slower it was."""
        factors = []
        for _ in range(self.ATTEMPTS):
            count, seconds = await self._send()
            alone = seconds / count
            attacking = asyncio.create_task(attack())
            count, seconds = 0, 0.0
            while not attacking.done():
                more, longer = await self._send()
                count, seconds = count + more, seconds + longer
            result = await attacking
            factors.append(seconds / count / alone)
            if factors[-1] <= self.FACTOR:
                return result, factors[-1]
        raise AssertionError(f"a healthy client is {factors} times slower beside this, in one attempt after the other")

    async def stop(self):
        if self._process:
            self._process.stdin.close()
            await asyncio.wait_for(self._process.wait(), 30)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
