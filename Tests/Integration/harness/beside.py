"""A healthy client beside the abusers. It runs in its own process, so it measures the gateway and not the test.

As a program (`python beside.py HOST PORT`) it reads numbers of seconds from standard input, one per line. For that time
it sends short polls, one after another on one connection, and writes their number and the seconds. A request that waits
until the end of an attack counts with its whole time, so no median hides it.
"""

import asyncio
import socket
import sys
import time

REQUEST = b"GET /v1/messages?wait=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"


def _response(connection):
    """Reads one response, which must have status 200 and a Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise ConnectionError(f"a healthy request got {head[:200]!r}")
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
                _response(connection)
                count += 1
            sys.stdout.write(f"{count} {time.perf_counter() - started!r}\n")
            sys.stdout.flush()


class Beside:
    """The healthy client, measured alone and beside an attack."""

    # The maximum factor by which an attack may slow the client down. Abusers and other programs use the same
    # processors. A client that waits for deadlines or turns of others would be hundreds of times slower.
    FACTOR = 40
    # Noise makes only some attempts slower; harm makes all attempts slower.
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
        """Sends for one window, or longer until its last response. Returns the number of requests and the seconds."""
        self._process.stdin.write(f"{self.WINDOW}\n".encode())
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert line, "the healthy client lost its connection"
        count, seconds = line.split()
        return int(count), float(seconds)

    async def unharmed_by(self, attack):
        """Runs `attack` until an attempt leaves the client fast. Returns the attack's result and the slowness."""
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
