"""Stores that an earlier program has written, with records of all kinds. This program reads them and continues.

`DRAWBRIDGE_WRITE_GOLDEN=1 pytest Tests/Integration/test_golden_stores.py` writes the files again, by the same story.
Only ids, times and tokens differ then. Do so only when the story gets a new kind of record. A program always
understands its own files, so new files would hide that it does not understand older files.
"""

import datetime
import json
import os
import time

import pytest

from harness import golden
from harness.clock import ShiftedClock
from harness.created_sessions import Sessions
from harness.gateway import run
from harness.redis import RedisServer
from harness.store import storing
from harness.upstream import Upstream
from harness.waiting import eventually

_WRITES = "DRAWBRIDGE_WRITE_GOLDEN" in os.environ
#: Seconds between the end of the earlier program and the start of this one.
_PAUSE = 10
_HEADER = "{} Written by Tests/Integration/test_golden_stores.py, which says when to write it anew.\n"


def _expected(name):
    return json.loads((golden.FOLDER / f"{name}.json").read_text())


def _write(name, suffix, text, expected):
    golden.FOLDER.mkdir(exist_ok=True)
    (golden.FOLDER / f"{name}.{suffix}").write_text(text)
    (golden.FOLDER / f"{name}.json").write_text(json.dumps({"time": int(time.time()), **expected}, indent=1) + "\n")


@pytest.fixture
def chat(start):
    async def chat(**options):
        return await start(golden.ChatUpstream(**options))

    return chat


async def _told(gateway_for, start, chat, *, config=None, env=None):
    """Runs the story on a gateway with these settings, and returns it."""
    plain, server = await start(golden.PlainUpstream()), await chat(recovers=False)
    gateway = await gateway_for(None, config=golden.configuration(plain, server, **(config or {})), env=env)
    await server.has_conversations(1)
    story = golden.Story(gateway, plain, server)
    await story.tell()
    return story


def _clock(expected, folder):
    """The environment for programs that start some seconds after the end of the earlier program."""
    clock = ShiftedClock(folder)
    clock.shift(int(expected["time"] + _PAUSE - time.time()))
    return clock.environment


def _is_same(new, old):
    """Compares two documents of a delivery. Times are converted to a clock and back, so they may differ a little."""
    assert new | {"time": None} == old | {"time": None}
    new, old = (datetime.datetime.fromisoformat(delivery["time"]).timestamp() for delivery in (new, old))
    assert abs(new - old) < 1


class Later:
    """The current program after the earlier program, on the same store, a few seconds later."""

    def __init__(self, expected, gateway, plain, chat):
        self.expected, self.gateway, self.plain, self.chat = expected, gateway, plain, chat
        self.client, self.chatting = gateway.client(), gateway.client(session="chat")

    async def opens(self):
        """Waits until the sessions have a holder, and opens the session that an operator had closed."""

        async def is_closed():
            return (await self.client.session())["state"] == "stopped"

        await eventually(is_closed, what="the session is held, and still closed")
        assert self.plain.requests == []
        opened = await self.client.request("PATCH", "/v1/session", json={"desired": "up"})
        assert opened.status == 200, opened.body

    async def shows_what_was(self):
        """Clients see the same state as before, and the gateway sends queued messages."""
        for name, client in (("default", self.client), ("chat", self.chatting)):
            expected = self.expected[name]
            now = await golden.observed(client, self.expected["deliveries"][name])
            # One log ends with a gap, and this start adds no further gap. The server of the other session has restored
            # its state.
            for member in ("transcript", "consumers", "dead"):
                assert now[member] == expected[member], member
            for label, delivery in expected["deliveries"].items():
                if delivery["state"] == "queued":
                    await golden.becomes(client, delivery["id"], "confirmed")
                    continue
                _is_same(now["deliveries"][label], delivery)

    async def has_sent_what_was_queued(self):
        assert await self.plain.has_received(8) == [
            '{"op":"resume","after":26}',
            '{"op":"sub","id":2}',
            '{"op":"sub","id":3}',
            "second of a topic",
            "with a key",
            "4",
            "5",
            b"\x00\xff\n",
        ]
        assert self.chat.connects == [
            '40{"pid":"p2","offset":"o2"}',
            '40/admin,{"pid":"q2","offset":"o3"}',
        ]
        assert (await self.chat.has_heard(4))[2:] == [
            '451-/admin,["file",{"_placeholder": true, "num": 0}]',
            b"\x01\x02\x03",
        ]

    async def goes_on(self):
        client, leases = self.client, self.expected["leases"]
        ids = self.expected["deliveries"]["default"]
        for key, body, label, kind in (
            ("single", "with a key", "keyed", "text/plain; charset=utf-8"),
            ("batch", "1\n2\n3\n", "batch 1", "application/x-ndjson"),
        ):
            ttl = golden.KEPT if key == "single" else {}
            again = await client.send(body, headers={**ttl, "Idempotency-Key": key}, type=kind)
            first = again.json.get("results", [again.json])[0]
            assert (again.headers.get("Idempotency-Replayed"), first["id"]) == ("true", ids[label]), again.body
        changed = await client.send("other", headers={"Idempotency-Key": "single"})
        assert changed.status == 422, changed.body

        # The leases that the earlier program gave are still valid.
        response = await golden.settle(client, "workers", ack=[leases["extended"], leases["acknowledged"]])
        assert response.status == 200, response.body
        assert (await golden.settle(client, "workers", ack=[leases["released"]])).status == 409
        response = await golden.settle(client, "workers", release=[leases["leased"]])
        assert response.status == 200, response.body
        again = await golden.receive(client, "workers", limit=1, wait=10)
        assert [message["deliveries"] for message in again["messages"]] == [2]
        assert again["messages"][0]["data"]["seq"] == 10

        # New pushes come after the old pushes.
        await self.plain.push('{"channel":"new","seq":100}')

        async def last():
            seen = await golden.transcript(client)
            return seen[-1] if seen[-1] != "gap upstream" else None

        assert (await eventually(last, what="the new push"))["data"] == {"channel": "new", "seq": 100}
        posted = await client.accepted("new")
        await golden.becomes(client, posted["id"], "confirmed")
        call = await client.request("POST", "/v1/call?wait=20s", data='{"jsonrpc":"2.0","id":"x","method":"add"}')
        assert call.json == {"jsonrpc": "2.0", "id": "x", "result": 3}
        event = {"event": "said", "args": ["again"]}
        posted_event = await self.chatting.send(json.dumps(event), type="application/json")
        assert posted_event.status == 202
        await golden.becomes(self.chatting, posted_event.json["id"], "confirmed")
        await self.chat.last.say('42["four","o4"]')
        await eventually(self._has_chatted, what="the new event is a push")
        return {"default": {"new": posted["id"]}, "chat": {"new": posted_event.json["id"]}}

    async def _has_chatted(self):
        return (await golden.transcript(self.chatting))[-1]["topic"] == "four"

    async def seen(self, deliveries):
        return [
            await golden.observed(self.client, deliveries["default"]),
            await golden.observed(self.chatting, deliveries["chat"]),
        ]


def _is_continued(before, after):
    """Checks that a restart has changed only the end of the log."""
    for old, new in zip(before, after, strict=True):
        assert new["transcript"][: len(old["transcript"])] == old["transcript"]
        for member in ("consumers", "dead"):
            assert new[member] == old[member], member
        for label, delivery in old["deliveries"].items():
            _is_same(new["deliveries"][label], delivery)


# -- SQLite -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["killed", "stopped"])
async def test_a_store_of_an_earlier_version_is_continued(gateway_for, start, chat, store_path, tmp_path, ending):
    name = f"sqlite-{ending}"
    if _WRITES:
        path = tmp_path / "written.db"
        earlier = await _told(gateway_for, start, chat, env=storing(path, sync="always"))
        expected = await earlier.observed()
        await (earlier.gateway.kill() if ending == "killed" else earlier.gateway.stop())
        _write(name, "sql", _HEADER.format("--") + golden.sqlite_text(path), expected)

    expected = _expected(name)
    golden.load_sqlite((golden.FOLDER / f"{name}.sql").read_text(), store_path)
    plain, server = await start(golden.PlainUpstream()), await chat(recovers=True)
    options = {
        "config": golden.configuration(plain, server),
        "env": storing(store_path, sync="always") | _clock(expected, tmp_path),
    }
    later = Later(expected, await gateway_for(None, **options), plain, server)
    await later.shows_what_was()
    await later.has_sent_what_was_queued()
    deliveries = await later.goes_on()
    before = await later.seen(deliveries)
    await later.gateway.stop()
    status, output, error = await run("store", "check", store_path)
    assert status == 0, output + error
    restarted = Later(expected, await gateway_for(None, **options), plain, server)
    _is_continued(before, await restarted.seen(deliveries))


# -- Redis ------------------------------------------------------------------------------------------------------------


def _shared(database, listeners):
    store = {"engine": "redis", "url": f"redis://127.0.0.1:{database.port}", "prefix": "drawbridge", "lease": "3s"}
    return {"store": store, "listeners": {"peers": listeners}}


async def test_idempotency_keys_of_an_earlier_version_are_continued(gateway_for, start, chat, tmp_path):
    """The earlier gateway was killed. One gateway takes over its sessions, and another gateway follows them."""
    if _WRITES:
        database, tick = await start(RedisServer(tmp_path)), await start(Upstream())
        config = {**_shared(database, "127.0.0.1:0"), "tick": tick}
        earlier = await _told(gateway_for, start, chat, config=config)
        ticks = Sessions(earlier.gateway)
        await ticks.created("btc", symbol="btc")
        await ticks.ready("btc")
        await ticks.created("eth", symbol="eth")
        assert (await ticks.delete("eth")).status == 204
        await tick.push("tick 1")
        client = earlier.gateway.client(session="btc")
        posted = await client.accepted("to btc")
        await golden.becomes(client, posted["id"], "confirmed")
        closed = await earlier.gateway.client().request("PATCH", "/v1/session", json={"desired": "down"})
        assert closed.status == 200, closed.body
        expected = await earlier.observed()
        expected["btc"] = await golden.observed(client, {"posted": posted["id"]})
        await earlier.gateway.kill()
        _write("redis", "commands", _HEADER.format("#") + await golden.redis_text(database), expected)

    expected = _expected("redis")
    database = await start(RedisServer(tmp_path))
    # The id of this server's history replaces the id of the earlier server's history.
    await golden.load_redis((golden.FOLDER / "redis.commands").read_text(), database)
    plain, server, tick = await start(golden.PlainUpstream()), await chat(recovers=True), await start(Upstream())
    options = {
        "config": golden.configuration(plain, server, tick=tick, **_shared(database, "127.0.0.1:0")),
        "env": _clock(expected, tmp_path),
    }
    first, second = [await gateway_for(None, ready=False, **options) for _ in range(2)]
    later = Later(expected, first, plain, server)
    await later.opens()
    await later.shows_what_was()
    await later.has_sent_what_was_queued()
    deliveries = await later.goes_on()
    before = await later.seen(deliveries)
    # Each gateway serves the whole state, whichever gateway is the holder.
    _is_continued(before, await Later(expected, second, plain, server).seen(deliveries))
    posted = {"posted": expected["btc"]["deliveries"]["posted"]["id"]}
    _is_continued([expected["btc"]], [await golden.observed(second.client(session="btc"), posted)])
    await first.stop()
    _is_continued(before, await Later(expected, second, plain, server).seen(deliveries))
