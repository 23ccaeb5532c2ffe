"""Settings of several gateways that contradict each other, and the report of each gateway about them."""

import json

import pytest

from harness.ports import reserve_port
from harness.recorder import RecordingUpstream
from harness.replicas import Databases, Replica
from harness.waiting import eventually

_UNREACHABLE = "this gateway cannot reach another gateway"
_OWN = "no other gateway can reach this gateway"
_OTHER_HOST = "another gateway with the same store.prefix connects a session to another host"


@pytest.fixture
async def begin(start, tmp_path, recorder):
    """`await begin(settings, upstream)`: starts one more gateway on the same Redis, which may not become ready."""
    databases = await start(Databases(tmp_path))
    members = []

    async def begin(settings=None, upstream=recorder):
        members.append(Replica(len(members), tmp_path, upstream, databases, settings=settings))
        return await start(members[-1])

    return begin


async def _log(member, beginning):
    return await member.gateway.logs(lambda record: record["message"].startswith(beginning), what=beginning)


async def _readiness(member):
    response = await member.gateway.manage("/readyz")
    return response.status, response.body.decode()


@pytest.mark.parametrize("way", ["nothing listens there", "another gateway states it too"])
async def test_the_log_names_an_address_that_no_other_gateway_reaches(begin, recorder, way):
    first = await (await begin()).ready()
    configuration = json.loads(first.configuration())
    address = f"127.0.0.1:{reserve_port()}"
    if way == "another gateway states it too":
        address = configuration["listeners"]["peer_address"]
    second = await begin({"listeners": {"peer_address": address}})

    record = await _log(first, _UNREACHABLE)
    assert record["address"] == address
    assert record["reason"]
    assert (await _log(second, _OWN))["address"] == address

    async def is_not_ready():
        return await _readiness(second) == (
            503,
            "other gateways cannot reach this one (listeners.peer_address)\n",
        )

    await eventually(is_not_ready, what="/readyz of the gateway that is not reached fails")
    assert (await first.gateway.metrics())["drawbridge_peers_unreachable"] == 1

    # The gateway that the others cannot reach takes over the session.
    await first.drain()
    await recorder.opens(1)
    await first.run()
    problem = (await first.client().send("refused")).problem(503)
    assert problem["type"] == "/errors/holder-unavailable"
    if way == "nothing listens there":
        assert address in problem["detail"]
        assert "listeners.peer_address" in problem["detail"]


async def test_gateways_that_reach_each_other_log_no_warning(begin):
    members = [await (await begin()).ready() for _ in range(2)]

    async def is_checked():
        return [(await member.gateway.metrics())["drawbridge_peer_connections"] for member in members] == [0, 0]

    await eventually(is_checked, what="metrics")
    for member in members:
        assert (await member.client().accepted("x"))["id"]
        assert (await _readiness(member))[0] == 200
        assert not any(text in member.gateway.output for text in (_UNREACHABLE, _OWN, _OTHER_HOST))


async def test_another_installation_with_the_same_prefix_is_reported_at_once(begin, start):
    first = await (await begin()).ready()
    other = await start(RecordingUpstream())
    second = await begin(upstream=other)
    hosts = [member._upstream.url.removeprefix("ws://").rstrip("/") for member in (first, second)]
    for member, (own, theirs) in ((first, hosts), (second, hosts[::-1])):
        record = await _log(member, _OTHER_HOST)
        assert (record["session"], record["host"], record["other_host"]) == ("default", own, theirs)

        async def says_so(member=member, own=own, theirs=theirs):
            status, text = await _readiness(member)
            line = (
                "another gateway with the same store.prefix connects session default to another host: "
                f"{own} here, {theirs} there\n"
            )
            return status == 200 and line in text

        await eventually(says_so, what="/readyz names both hosts")
        assert (await member.gateway.metrics())["drawbridge_store_other_upstreams"] == 1


async def test_redis_needs_a_prefix(gateway_for):
    with pytest.raises(AssertionError) as error:
        await gateway_for(
            None,
            config="store: {engine: redis, url: 'redis://127.0.0.1:1'}\nlisteners: {peers: '127.0.0.1:0'}\n"
            "upstream: {url: 'ws://127.0.0.1:1/'}\n",
            ready=False,
        )
    assert "store.prefix" in str(error.value)
