"""Links and upstreams that are slower than the timeouts. Messages that take long arrive, and arrive once."""

import asyncio
import contextlib
import os
import socket

import pytest

from harness.namespaces import Cable, needs_namespaces
from harness.raw import RawUpstream, frame, read_frame, upgrade
from harness.upstream import Upstream

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
MEBIBYTE = 1 << 20
# A busy machine alone must not make a connection look dead.
TIMEOUT = 2
QUICK_HEARTBEAT = {"DRAWBRIDGE_UPSTREAM_HEARTBEAT_TIMEOUT": f"{TIMEOUT}s"}
# With this setting, a message is sent again if the gateway gives up a connection too early.
REDELIVERY = {"DRAWBRIDGE_UPSTREAM_QUEUE_REDELIVER": "unconfirmed"}


class SlowUpstream(RawUpstream):
    """Reads `rate` bytes of messages per second, and responds to pings between them in order."""

    def __init__(self, rate, *, receive_buffer=None, certificate=None):
        super().__init__(self._converse)
        self._rate = rate
        self._receive_buffer = receive_buffer
        self._certificate = certificate
        self.received = []

    @property
    def url(self):
        return f"wss://localhost:{self.port}/" if self._certificate else super().url

    async def start(self):
        return await super().start(**({"ssl": self._certificate.server_context()} if self._certificate else {}))

    async def _converse(self, reader, writer):
        if self._receive_buffer:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        await upgrade(reader, writer)
        while True:
            opcode, payload = await read_frame(reader)
            if opcode in (TEXT, BINARY):
                self.received.append(payload)
                # This is the slowness of the upstream, not a wait of the test.
                await asyncio.sleep(len(payload) / self._rate)
            else:
                writer.write(frame(PONG if opcode == PING else CLOSE, payload))
                if opcode == CLOSE:
                    return


async def confirmed(client, *bodies):
    """Posts these messages and waits until all of them are confirmed."""

    async def post(body):
        delivery = await client.accepted(body)
        while True:
            response = await client.request("GET", f"/v1/deliveries/{delivery['id']}", params={"wait": "55s"})
            assert response.status == 200, response.body
            if response.json["state"] not in ("queued", "written"):
                return response.json["state"]

    states = await asyncio.gather(*(post(body) for body in bodies))
    assert states == ["confirmed"] * len(bodies)


@needs_namespaces
async def test_a_message_arrives_over_a_link_on_which_it_takes_longer_than_the_timeout_of_a_ping(
    start, gateway_for, tmp_path
):
    with contextlib.ExitStack() as stack:
        cable = Cable()
        cable.start()
        stack.callback(cable.stop)
        upstream = await start(Upstream(host=cable.host, listener=cable.listener, compression=None))
        sockets = [f"unix:{tmp_path}/{name}.sock" for name in ("api", "management")]
        arguments = ("--listen", sockets[0], "--management", sockets[1])
        env = QUICK_HEARTBEAT | REDELIVERY
        gateway = await gateway_for(upstream, *arguments, env=env, prefix=cable.prefix())
        # The transmission takes at least four times the timeout.
        cable.slow_down(f"{16 * 8 // (4 * TIMEOUT)}mbit")
        body = os.urandom(16 * MEBIBYTE - 1024)
        await confirmed(gateway.client(), body)
        assert [len(message) for message in upstream.received] == [len(body)], "once"
        assert (await gateway.client().session())["connections"] == 1


@pytest.mark.parametrize("way", ["small buffer", "usual buffers", "TLS"])
async def test_a_backlog_arrives_at_an_upstream_that_reads_slowly(way, start, gateway_for, certificate, authority):
    secure = certificate if way == "TLS" else None
    # The usual buffers take so much of 4 MB at once that only the upstream's pongs show its progress.
    upstream = SlowUpstream(500_000, receive_buffer=16_384 if way == "small buffer" else None, certificate=secure)
    await start(upstream)
    config = f"upstream:\n  url: {upstream.url}\n  tls: {{ca_file: {authority.path}}}\n"
    gateway = await gateway_for(None, config=config, env=QUICK_HEARTBEAT | REDELIVERY)
    bodies = [index.to_bytes(4, "big") + os.urandom(39_996) for index in range(100)]
    await confirmed(gateway.client(), *bodies)
    assert sorted(body[:4] for body in upstream.received) == [body[:4] for body in bodies], "each once"
    assert (await gateway.client().session())["connections"] == 1
