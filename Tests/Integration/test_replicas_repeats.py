"""A POST that is repeated at another gateway is sent once, whether its client or the forwarding gateway repeats it."""

import asyncio

import pytest

from harness.created_sessions import Sessions
from harness.replicas import LEASE
from harness.waiting import eventually

KINDS = ["configured", "created"]


class Repeated:
    """Posts messages with a key each, and remembers the id of each."""

    def __init__(self, session):
        self._session = session
        self.ids = {}

    def client(self, member):
        return member.gateway.client(session=self._session)

    async def post(self, member, text):
        self.ids[text] = (await self.client(member).accepted(text, headers={"Idempotency-Key": text}))["id"]

    async def send_nothing_again(self, members):
        for member in members:
            for text, id in self.ids.items():
                again = await self.client(member).send(text, headers={"Idempotency-Key": text})
                assert again.status in (200, 202), again.body
                assert (again.headers.get("Idempotency-Replayed"), again.json["id"]) == ("true", id), text


@pytest.fixture
def shared_by(replicas_for, recorder):
    """`await shared_by(kind)`: gateways that share a session of that kind, and its name; None if it is configured."""

    async def shared_by(kind, **options):
        upstream = {"url": f"{recorder.url}{{symbol}}"}
        market = {"variables": {"symbol": {}}, "addresses": {"allow": ["127.0.0.1"]}, "upstream": upstream}
        replicas = await replicas_for(settings={"profiles": {"market": market}}, **options)
        if kind == "configured":
            return replicas, None
        # The holder of the configured session will also become the holder of this session.
        await Sessions((await replicas.holder()).gateway).created("btc", symbol="BTC")
        for member in replicas:
            await Sessions(member.gateway).ready("btc")
        return replicas, "btc"

    return shared_by


@pytest.mark.parametrize("way", ["drain", "kill", "freeze", "partition"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_repeated_post_is_sent_once_however_its_holder_fails(shared_by, recorder, kind, way):
    replicas, session = await shared_by(kind, lease=LEASE)
    holder = await replicas.holder()
    others = await replicas.followers()
    repeated = Repeated(session)
    for number, member in enumerate(replicas):
        await repeated.post(member, f"keyed-{number}")
    # The holder executes these requests, but its responses are lost.
    holder.entrance.mute()
    client = repeated.client(others[0])
    plain = [asyncio.create_task(client.send(f"plain-{number}")) for number in range(8)]
    keyed = asyncio.create_task(client.send("keyed", headers={"Idempotency-Key": "lost"}))
    texts = {*repeated.ids, *(f"plain-{number}" for number in range(8)), "keyed"}
    await eventually(lambda: texts <= set(recorder.received), what="the holder sends the messages")
    match way:
        case "drain":
            await holder.drain()
        case "kill":
            await holder.kill()
        case "freeze":
            holder.freeze()
        case "partition":
            holder.network.stall()
    # Each request is repeated at the next holder.
    responses = await asyncio.gather(*plain, keyed)
    assert {response.status for response in responses} <= {200, 202}, [response.body for response in responses]
    again = await repeated.client(others[1]).send("keyed", headers={"Idempotency-Key": "lost"})
    assert again.json["id"] == responses[-1].json["id"]
    await repeated.send_nothing_again(others)
    await repeated.client(others[1]).accepted("last")
    await eventually(lambda: "last" in recorder.received, what="the next holder sends")
    assert sorted(recorder.received) == sorted([*texts, "last"])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_repeated_post_is_sent_once_through_a_rolling_restart(shared_by, recorder, kind):
    replicas, session = await shared_by(kind)
    repeated = Repeated(session)
    for turn, member in enumerate(replicas):
        for number, each in enumerate(replicas):
            await repeated.post(each, f"{turn}-{number}")
        await member.drain()
        await repeated.send_nothing_again(replicas.running)
        await member.run()
        await member.ready()
        await repeated.send_nothing_again(replicas.running)
    await repeated.client(replicas[0]).accepted("last")
    await eventually(lambda: "last" in recorder.received, what="the last message is sent")
    assert sorted(recorder.received) == sorted([*repeated.ids, "last"])


async def test_a_post_that_a_gateway_with_a_longer_lease_repeats_is_sent_once(replicas_for, recorder):
    replicas = await replicas_for(lease=LEASE)
    holder = await replicas.holder()
    member = (await replicas.followers())[0]
    await member.drain()
    # This attempt lasts longer than the holder would remember the id according to its own `store.lease`.
    member.lease = 5 * LEASE
    await member.run()
    await member.ready()
    await member.client().accepted("first")

    async def attempts():
        return (await member.gateway.metrics())["drawbridge_forwarded_attempts_total"]

    before = await attempts()
    holder.entrance.mute()
    post = asyncio.create_task(member.client().send("repeated"))
    await eventually(lambda: "repeated" in recorder.received, what="the holder sends the message")

    async def is_repeated():
        return await attempts() > before + 1

    await eventually(is_repeated, within=60, what="the gateway repeats the request")
    holder.entrance.heal()
    answer = await asyncio.wait_for(post, 60)
    assert answer.status in (200, 202), answer.body
    await member.client().accepted("last")
    await eventually(lambda: "last" in recorder.received, what="the holder sends")
    assert recorder.received == ["first", "repeated", "last"]
