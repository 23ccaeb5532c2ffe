"""Upstreams of other projects: their restarts and their compression."""

from harness.gateway import PROJECT
from harness.program import Program
from harness.waiting import eventually

PEERS = PROJECT / "Tests/Integration/peers"
# The harness shortens these settings. Here, the first attempt may take a second, as by default.
RECONNECT = {"DRAWBRIDGE_UPSTREAM_RECONNECT_BASE": "1s", "DRAWBRIDGE_UPSTREAM_RECONNECT_MAXIMUM": "1m"}


class Uvicorn(Program):
    program = "uvicorn"

    def arguments(self):
        return ("--app-dir", PEERS, "--host", "127.0.0.1", "--port", self.port, "asgi:application")

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/"


class Node(Program):
    program = "node"

    def arguments(self):
        return PEERS / "deflate.js", self.port

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/"


async def pushes(client, cursor, count):
    """The payloads of the next `count` pushes."""
    seen = []
    while len(seen) < count:
        batch = await client.poll(cursor=cursor, wait=30)
        seen += batch.payloads
        cursor = batch.cursor
    return seen


async def test_a_restart_of_uvicorn_is_followed_by_an_attempt_within_a_second(start, gateway_for, tmp_path):
    uvicorn = await start(Uvicorn(tmp_path))
    gateway = await gateway_for(uvicorn, env=RECONNECT)
    client = gateway.client()
    cursor = await client.here()
    await client.accepted("before")
    assert await pushes(client, cursor, 1) == ["before"]
    # Restarts like --reload, systemd and containers: SIGTERM, and then another process.
    await uvicorn.stop()
    lost = await gateway.logs(lambda record: record.get("from") == "closing", what="the loss")
    assert lost["cause"] == "closed by the upstream with 1012"
    assert lost["next_attempt_in"] <= 1
    await client.accepted("meanwhile")
    await uvicorn.start()
    batch = await client.poll(cursor=cursor, wait=0)
    assert await pushes(client, batch.cursor, 1) == ["meanwhile"]


async def test_messages_that_node_ends_with_a_final_block_are_received(start, gateway_for, tmp_path):
    node = await start(Node(tmp_path))
    gateway = await gateway_for(node)
    client = gateway.client()
    cursor = await client.here()
    # Stored blocks, blocks with fixed codes and with dynamic codes, and several blocks in one message.
    texts = ["x", "hello " * 20, " ".join(map(str, range(5000))), "é" * 100_000, "b" * 70_000]
    for text in texts:
        await client.accepted(text)
    assert await pushes(client, cursor, len(texts)) == texts
    session = await client.session()
    assert session["connections"] == 1
    await eventually(lambda: is_confirmed(client, len(texts)), what="the messages are confirmed")


async def is_confirmed(client, count):
    return (await client.session())["messages"]["confirmed"] == count
