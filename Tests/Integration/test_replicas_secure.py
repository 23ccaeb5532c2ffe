"""Redis and Sentinels that accept only TLS with client certificates, and users with the rights of docs/scaling.md."""

import asyncio

import pytest

from harness.certificates import CertificateAuthority
from harness.numbered import confirmed, read_to
from harness.redis import Protection, RedisServer
from harness.replicas import Databases, Replica
from harness.waiting import eventually

_WRONG = "not-the-password"


@pytest.fixture
def databases(tmp_path, authority, certificate):
    """A primary, replicas and Sentinels, which are not started yet."""
    protection = Protection(authority.path, certificate, authority.issue(for_clients=True))
    return Databases(tmp_path, replicas=2, sentinels=2, protection=protection)


async def _plain_reply(server):
    """The server's reply to a connection without TLS."""
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
    # The drain runs the commands that only a release and a starting gateway need.
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


async def test_wrong_settings_of_redis_are_logged_and_the_gateway_is_not_ready(start, databases, tmp_path, recorder):
    folder = tmp_path / "other"
    folder.mkdir()
    other = CertificateAuthority(folder, "Another test CA")
    await start(databases)
    plain = await start(RedisServer(tmp_path))
    right = databases.settings(None)
    tls, password = right["tls"], right["password"]
    sentinels = [address.replace(f":{password}@", f":{_WRONG}@") for address in right["sentinels"]]
    wrong = {
        "another authority": ({"tls": {**tls, "ca_file": str(other.path)}}, "TLS: the certificate's issuer"),
        "no client certificate": ({"tls": {**tls, "client_certificate": "", "client_key": ""}}, "a client certificate"),
        "the password of the servers": ({"password": _WRONG}, "WRONGPASS"),
        "the password of the Sentinels": ({"sentinels": sentinels}, "WRONGPASS"),
        "no TLS": (
            {"url": f"redis://127.0.0.1:{databases.primary.port}", "sentinels": [], "tls": {}},
            "if it expects TLS, use rediss:// instead of redis://",
        ),
        "TLS at a server without it": (
            {"url": f"rediss://127.0.0.1:{plain.port}", "sentinels": []},
            "if it does not expect TLS, use redis:// instead of rediss://",
        ),
    }
    servers = {name: databases.sentinels for name in wrong}
    servers |= {"the password of the servers": [databases.primary], "no TLS": [databases.primary]}
    servers |= {"TLS at a server without it": [plain]}

    async def begin(number, store):
        return await start(Replica(number, tmp_path, recorder, databases, settings={"store": store}))

    members = {name: await begin(number, store) for number, (name, (store, _)) in enumerate(wrong.items())}

    def problem_of(name):
        """The part of the reason that every client may know."""
        if "password" in name:
            return "Redis does not accept the user or password of this gateway"
        return "no connection to Redis"

    async def says_so(name):
        response = await members[name].gateway.manage("/readyz")
        return (response.status, response.body) == (503, f"{problem_of(name)}\n".encode())

    for name, member in members.items():
        record = await member.gateway.logs(lambda record: record["message"] == "no connection to Redis", what=name)
        assert wrong[name][1] in record["reason"]
        assert record["address"] in {f"127.0.0.1:{server.port}" for server in servers[name]}
        await eventually(lambda name=name: says_so(name), what=f"/readyz fails with {name}")
    # One gateway has correct settings.
    await (await begin(len(wrong), {})).ready()
    await recorder.opens(0)
    for name, member in members.items():
        problem = (await member.client().send("refused")).problem(503)
        assert (problem["type"], problem["retryable"]) == ("/errors/store-failed", True), name
        assert problem_of(name) in problem["detail"]
        # Without authentication, a client may read the whole reason.
        assert wrong[name][1] in problem["detail"]
        assert await says_so(name), name
        assert password not in member.gateway.output
        assert _WRONG not in member.gateway.output
    assert recorder.received == []
