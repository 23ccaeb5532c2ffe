"""Redis and Sentinels that accept only TLS with client certificates, and users with the rights of docs/scaling.md."""

import asyncio

import pytest

from harness.certificates import CertificateAuthority
from harness.numbered import confirmed, read_to
from harness.redis import Protection
from harness.replicas import Databases, Replica
from harness.waiting import eventually

_WRONG = "not-the-password"


@pytest.fixture
def databases(tmp_path, authority, certificate):
    """A primary, replicas and Sentinels. Not started."""
    protection = Protection(authority.path, certificate, authority.issue(for_clients=True))
    return Databases(tmp_path, replicas=2, sentinels=2, protection=protection)


async def _plain_reply(server):
    """What is there without TLS."""
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(b"PING\r\n")
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_the_documented_rights_and_tls_are_enough_through_a_failover(replicas_for, databases, recorder):
    replicas = await replicas_for(2, databases=databases)
    holder = await replicas.holder()
    (follower,) = await replicas.followers()
    cursor = await follower.client().here()
    pushes = []

    async def exchange(text):
        id = (await follower.client().accepted(text))["id"]
        await confirmed(holder.client(), id)
        pushes.append(await recorder.push_one())
        assert await read_to(follower.client(), cursor, pushes[-1]) == pushes

    await exchange("before")
    primary = await databases.present_primary()
    before = (await follower.gateway.metrics())["drawbridge_store_histories_total"]
    await databases.sentinels[0].client.execute_command("SENTINEL", "FAILOVER", "main")

    async def has_another_history():
        return (await follower.gateway.metrics())["drawbridge_store_histories_total"] > before

    await eventually(has_another_history, what="the follower uses the new primary")
    await exchange("after")
    assert await databases.present_primary() is not primary
    assert recorder.received == ["before", "after"]
    assert len(recorder.connections) == 1
    # Also what only a release, and a gateway that begins, need.
    await holder.drain()
    await holder.run()
    await confirmed(follower.client(), (await holder.client().accepted("last"))["id"])
    for each in [*databases.servers, *databases.sentinels]:
        assert await each.client.acl_log() == []
        assert b"PONG" not in await _plain_reply(each)
    users = {client["user"] for client in await (await databases.present_primary()).client.client_list()}
    assert users == {"default", "drawbridge"}
    for member in replicas:
        assert databases.protection.password not in member.gateway.output
        assert "Redis has refused" not in "".join(gateway.output for gateway in member.gateways)


async def test_what_is_wrong_is_in_the_log_and_no_such_gateway_is_ready(start, databases, tmp_path, recorder):
    folder = tmp_path / "other"
    folder.mkdir()
    other = CertificateAuthority(folder, "Another test CA")
    await start(databases)
    right = databases.settings(None)
    tls, password = right["tls"], right["password"]
    sentinels = [address.replace(f":{password}@", f":{_WRONG}@") for address in right["sentinels"]]
    wrong = {
        "another authority": ({"tls": {**tls, "ca_file": str(other.path)}}, "TLS: the certificate's issuer"),
        "no client certificate": ({"tls": {**tls, "client_certificate": "", "client_key": ""}}, "a client certificate"),
        "the password of the servers": ({"password": _WRONG}, "WRONGPASS"),
        "the password of the Sentinels": ({"sentinels": sentinels}, "WRONGPASS"),
    }

    async def begin(number, store):
        return await start(Replica(number, tmp_path, recorder, databases, settings={"store": store}))

    members = {name: await begin(number, store) for number, (name, (store, _)) in enumerate(wrong.items())}

    async def says_so(member):
        answer = await member.gateway.manage("/readyz")
        return (answer.status, answer.body) == (503, b"no connection to Redis\n")

    for name, member in members.items():
        record = await member.gateway.logs(lambda record: record["message"] == "no connection to Redis", what=name)
        assert wrong[name][1] in record["reason"]
        # The server or the Sentinel.
        servers = [databases.primary] if name == "the password of the servers" else databases.sentinels
        assert record["address"] in {f"127.0.0.1:{server.port}" for server in servers}
        await eventually(lambda member=member: says_so(member), what=f"/readyz fails with {name}")
    # One that has everything right.
    await (await begin(len(wrong), {})).ready()
    await recorder.opens(0)
    # At once, since each waits for a holder.
    for answer in await asyncio.gather(*(member.client().send("refused") for member in members.values())):
        assert answer.problem(503)["retryable"]
    for name, member in members.items():
        assert await says_so(member), name
        assert password not in member.gateway.output
        assert _WRONG not in member.gateway.output
    assert recorder.received == []
