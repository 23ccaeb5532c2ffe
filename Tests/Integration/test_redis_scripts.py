"""The scripts with which gateways share sessions, on a real server. Each compares before its first write."""

import signal
from pathlib import Path

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from harness.redis import RedisServer

_SCRIPTS = Path(__file__).parents[2] / "Sources/Machines/Replication/Scripts"
_A, _B = "00000000000a", "00000000000b"
_OLD, _NEW = "0" * 40, "1" * 40
# The keys that belong to no single session.
_SHARED = {"gateways", "sessions", "sessions:owners", "sessions:removed", "sessions:n"}
_LIST = ["sessions", "sessions:owners", "sessions:removed", "sessions:n"]


def token(counter, gateway, bits=1):
    return f"{counter:08x}00000001:{gateway}:{bits:016x}"


class Session:
    """The keys of one session, and its scripts. Arguments that a test does not use have defaults."""

    def __init__(self, client):
        self.client = client
        self._scripts = {path.stem: client.register_script(path.read_text()) for path in _SCRIPTS.glob("*.lua")}

    async def run(self, name, keys, *arguments):
        prefix = "{t}:s:x:"
        keys = ["{t}:" + key if key in _SHARED else prefix + key for key in keys]
        return _text(await self._scripts[name](keys, arguments))

    async def record(self):
        return _text(await self.client.hgetall("{t}:s:x:m"))

    async def entries(self, key):
        return [(entry.decode(), fields[b"b"]) for entry, fields in await self.client.xrange("{t}:s:x:" + key)]

    async def heartbeat(self, gateway, entry, *old):
        reply = await self.run("heartbeat", ["gateways"], gateway, entry, *old)
        return dict(zip(reply[::2], reply[1::2], strict=True))

    async def acquire(
        self,
        new,
        expected="",
        history="",
        sequence=0,
        last="",
        owner="",
        entry="",
        new_history=_OLD,
        counter=1,
        name="",
        incarnation="",
    ):
        arguments = [
            expected,
            history,
            sequence,
            last,
            owner,
            entry,
            new,
            new_history,
            "00000000000c",
            "terms",
            1,
            counter,
            name,
            incarnation,
        ]
        return await self.run("acquire", ["m", "p", "gateways", "n", "sessions"], *arguments)

    async def append(self, holder, expected, number, *pushes, history=_OLD, keep="", changes="c"):
        return await self.run("append", ["m", "p", "c", "n"], holder, history, expected, number, keep, changes, *pushes)

    async def stage(self, holder, number, part, entries="s", history=_OLD):
        return await self.run("stage", ["m", "c:new"], holder, history, number, part, entries)

    async def replace(self, holder, expected, number, parts, history=_OLD):
        return await self.run("replace", ["m", "c", "c:new"], holder, history, expected, number, parts)

    async def stamp(self, holder, sequence, from_history=_OLD, to=_NEW, counter=1025):
        return await self.run("stamp", ["m", "n"], holder, from_history, to, sequence, counter)

    async def release(self, holder, sequence, successor=_B, history=_OLD):
        return await self.run("release", ["m", "n"], holder, history, sequence, successor)

    async def define(self, name, text, owner="o", total=10, per_owner=10, first="", list_id="f0"):
        return await self.run("define", [*_LIST, "m"], name, text, owner, total, per_owner, first, list_id)

    async def remove(self, name, text, owner="o", holder="", code=1000, kept=100):
        return await self.run("remove", [*_LIST, "m", "p", "c", "c:new"], name, text, owner, holder, code, kept)


def definition(incarnation, rest="{}"):
    return f"{incarnation:016x} {rest}"


def _text(reply):
    if isinstance(reply, bytes):
        return reply.decode()
    if isinstance(reply, dict):
        return {_text(key): _text(value) for key, value in reply.items()}
    return [_text(item) for item in reply] if isinstance(reply, list) else reply


@pytest_asyncio.fixture
async def server(start, tmp_path):
    return await start(RedisServer(tmp_path))


@pytest_asyncio.fixture
async def session(server):
    return Session(server.client)


@pytest_asyncio.fixture
async def held(session):
    """A session in its first term, whose holder is the gateway A."""
    await session.heartbeat(_A, "beat=1")
    assert await session.acquire(token(1, _A)) == "OK"
    return session


async def test_a_heartbeat_returns_all_entries_and_removes_unchanged_entries(session):
    assert await session.heartbeat(_A, "beat=1") == {}
    assert await session.heartbeat(_B, "beat=1", _A, "beat=0") == {_A: "beat=1"}
    assert await session.heartbeat(_B, "beat=2", _A, "beat=1") == {_B: "beat=1"}
    await session.client.flushall()
    assert await session.heartbeat(_B, "beat=3") == {}


async def test_a_session_is_acquired_once(held):
    assert await held.acquire(token(1, _B)) == "CHANGED"
    record = await held.record()
    assert record["token"] == token(1, _A)
    assert (record["history"], record["sequence"], record["epoch"]) == (_OLD, "0", "00000000000c")
    assert (record["counter"], record["format"], record["successor"]) == ("1", "1", "")


@pytest.mark.parametrize(
    "wrong",
    [
        {"expected": token(1, _A, bits=2)},
        {"expected": token(1, _B)},
        {"history": _NEW},
        {"sequence": 2},
        {"last": ""},
        {"last": "2-0"},
    ],
)
async def test_an_acquisition_compares_the_record_that_was_read(held, wrong):
    assert await held.append(token(1, _A), 0, 1, "1-0", "push") == ["OK"]
    right = {"expected": token(1, _A), "history": _OLD, "sequence": 1, "last": "1-0"}
    before = await held.record()
    assert await held.acquire(token(2, _B), **(right | wrong)) == "CHANGED"
    assert await held.record() == before
    assert await held.acquire(token(2, _B), **right, counter=2) == "OK"
    assert (await held.record())["sequence"] == "1"


async def test_a_gateway_that_sends_heartbeats_keeps_its_session(held):
    expected = {"expected": token(1, _A), "history": _OLD}
    assert await held.acquire(token(2, _B), **expected, owner=_A, entry="beat=0") == "ALIVE"
    assert await held.acquire(token(2, _B), **expected, owner=_A, entry="") == "ALIVE"
    assert await held.acquire(token(2, _B), **expected, owner=_A, entry="beat=1") == "OK"


async def test_a_gateway_without_an_entry_is_compared(session):
    await session.acquire(token(1, _A))
    expected = {"expected": token(1, _A), "history": _OLD}
    assert await session.acquire(token(2, _B), **expected, owner=_A, entry="beat=1") == "ALIVE"
    assert await session.acquire(token(2, _B), **expected, owner=_A, entry="") == "OK"


async def test_a_batch_is_appended_once(held):
    holder = token(1, _A)
    batch = ("1-0", "one", "1-1", "gap", "2-0", "two")
    assert await held.append(holder, 0, 1, *batch) == ["OK"]
    assert await held.append(holder, 0, 1, *batch) == ["BEHIND", "1"]
    assert await held.entries("p") == [("1-0", b"one"), ("1-1", b"gap"), ("2-0", b"two")]
    assert await held.entries("c") == [("1-0", b"c")]
    # A number may be skipped, since the number of a lost write is never used again.
    assert await held.append(holder, 1, 7, changes="d") == ["OK"]
    assert (await held.entries("c"))[1:] == [("7-0", b"d")]


@pytest.mark.parametrize(
    ("arguments", "reply"),
    [
        ({"holder": token(1, _A, bits=2)}, ["FENCED"]),
        ({"holder": token(1, _B)}, ["FENCED"]),
        ({"holder": ""}, ["FENCED"]),
        ({"history": _NEW}, ["HISTORY"]),
        ({"expected": 2}, ["BEHIND", "1"]),
        ({"expected": 0}, ["BEHIND", "1"]),
        ({"number": 1}, ["ORDER"]),
    ],
)
async def test_an_invalid_append_is_not_stored(held, arguments, reply):
    assert await held.append(token(1, _A), 0, 1, "1-0", "one") == ["OK"]
    right = {"holder": token(1, _A), "expected": 1, "number": 2, "history": _OLD}
    assert await _append(held, right | arguments, "2-0", "two") == reply
    assert (await held.record())["sequence"] == "1"
    assert (len(await held.entries("p")), len(await held.entries("c"))) == (1, 1)
    assert await _append(held, right, "2-0", "two") == ["OK"]


async def _append(session, arguments, *pushes):
    arguments = dict(arguments)
    first = [arguments.pop(name) for name in ("holder", "expected", "number")]
    return await session.append(*first, *pushes, **arguments)


@pytest.mark.parametrize(
    "pushes", [("1-0",), ("0-9",), ("1-1", "1-1"), ("3-0", "2-0"), ("x",), ("2",), ("2-x",), ("-1-0",), ("2-0", "2-0")]
)
async def test_an_id_that_does_not_follow_refuses_the_whole_batch(held, pushes):
    assert await held.append(token(1, _A), 0, 1, "1-0", "one") == ["OK"]
    batch = [part for push in pushes for part in (push, "x")]
    assert await held.append(token(1, _A), 1, 2, *batch) == ["ORDER"]
    assert await held.append(token(1, _A), 1, 2, "2-0") == ["ORDER"], "an id without entries"
    assert await held.entries("p") == [("1-0", b"one")]
    assert len(await held.entries("c")) == 1


async def test_an_append_drops_the_oldest_pushes(held):
    batch = [part for number in range(1, 1001) for part in (f"{number}-0", "x" * 100)]
    assert await held.append(token(1, _A), 0, 1, *batch) == ["OK"]
    assert await held.append(token(1, _A), 1, 2, "1001-0", "x", keep="900-0") == ["OK"]
    entries = await held.entries("p")
    # Redis drops only whole nodes of a stream, of at most 100 entries each.
    assert 102 <= len(entries) <= 202
    assert entries[-1][0] == "1001-0"


async def test_a_state_replaces_the_entries(held):
    holder = token(1, _A)
    await held.append(holder, 0, 1, "1-0", "one")
    # Pushes that Redis lacks come first in the same write.
    assert await held.append(holder, 1, 1, "2-0", "two", changes="") == ["OK"]
    assert await held.append(holder, 1, 1, "2-0", "two", changes="") == ["ORDER"]
    assert await held.stage(holder, 5, 1, "s1") == "OK"
    assert await held.stage(holder, 5, 2, "s2") == "OK"
    assert len(await held.entries("c")) == 1, "the old state stays until the new one is complete"
    assert await held.replace(holder, 1, 5, 2) == ["OK"]
    assert await held.entries("c") == [("5-1", b"s1"), ("5-2", b"s2")]
    assert not await held.entries("c:new")
    assert await held.append(holder, 5, 6, changes="d") == ["OK"]
    assert (await held.entries("c"))[-1] == ("6-0", b"d")


async def test_a_state_of_several_attempts_is_refused(held):
    holder = token(1, _A)
    assert await held.stage(holder, 5, 2) == "PART"
    assert await held.stage(holder, 5, 1) == "OK"
    assert await held.stage(holder, 6, 1) == "OK"
    # A delayed part of the first attempt does not belong to the second attempt.
    assert await held.stage(holder, 5, 2) == "PART"
    assert await held.replace(holder, 0, 6, 2) == ["PART"]
    assert await held.stage(holder, 6, 2) == "OK"
    assert await held.stage(holder, 6, 2) == "PART"
    assert await held.replace(holder, 0, 5, 2) == ["PART"]
    assert await held.replace(holder, 1, 6, 2) == ["BEHIND", "0"]
    assert await held.replace(holder, 0, 6, 2, history=_NEW) == ["HISTORY"]
    assert await held.replace(token(1, _B), 0, 6, 2) == ["FENCED"]
    assert await held.stage(token(1, _B), 7, 1) == "FENCED"
    assert await held.stage(holder, 7, 1, history=_NEW) == "HISTORY"
    assert await held.replace(holder, 0, 6, 2) == ["OK"]
    assert await held.replace(holder, 6, 7, 2) == ["PART"]


async def test_a_stamp_compares_the_whole_record(held):
    holder = token(1, _A)
    assert await held.stamp(token(1, _A, bits=2), 0) == "FENCED"
    assert await held.stamp(holder, 0, from_history=_NEW) == "HISTORY"
    assert await held.stamp(holder, 1) == "BEHIND"
    assert (await held.record())["history"] == _OLD
    assert await held.stamp(holder, 0) == "OK"
    record = await held.record()
    assert (record["history"], record["counter"]) == (_NEW, "1025")
    assert await held.append(holder, 0, 1) == ["HISTORY"]
    assert await held.append(holder, 0, 1, history=_NEW) == ["OK"]


async def test_a_released_session_has_a_successor(held):
    holder = token(1, _A)
    assert await held.release(token(2, _A), 0) == "FENCED"
    assert await held.release(holder, 0, history=_NEW) == "HISTORY"
    assert await held.release(holder, 1) == "BEHIND"
    assert await held.release(holder, 0) == "OK"
    record = await held.record()
    assert (record["token"], record["successor"]) == ("", _B)
    assert await held.append(holder, 0, 1) == ["FENCED"]
    assert await held.acquire(token(2, _B), history=_OLD, sequence=0) == "OK"


async def test_changes_are_published(held):
    async with held.client.pubsub() as channel:
        await channel.subscribe("{t}:s:x:n")
        assert (await channel.get_message(timeout=5))["type"] == "subscribe"
        holder = token(1, _A)
        await held.append(holder, 0, 1, changes="d")
        await held.append(holder, 1, 2, "1-0", "one")
        await held.stamp(holder, 2)
        await held.release(holder, 2, history=_NEW)
        await held.acquire(token(2, _B), history=_NEW, sequence=2, last="1-0")
        published = [(await channel.get_message(timeout=5))["data"] for _ in range(4)]
        assert published == [b"1", b"2", b"2", b"2"]


async def test_a_full_server_keeps_its_holders(held):
    """At `maxmemory`, Redis stores nothing more, but sessions can still be stamped, released and acquired."""
    holder = token(1, _A)
    await held.stage(holder, 2, 1)
    await held.client.set("fill", b"x" * 3_000_000)
    await held.client.config_set("maxmemory", "2mb")
    for refused in (held.append(holder, 0, 1, "1-0", "one"), held.stage(holder, 2, 2)):
        with pytest.raises(ResponseError, match="maxmemory"):
            await refused
    assert _A in await held.heartbeat(_A, "beat=2")
    assert await held.replace(holder, 0, 2, 1) == ["OK"]
    assert await held.stamp(holder, 2) == "OK"
    assert await held.release(holder, 2, history=_NEW) == "OK"
    assert await held.acquire(token(2, _B), history=_NEW, sequence=2) == "OK"
    assert not await held.entries("p")


async def test_wait_after_a_read_covers_earlier_writes(start, server, held, tmp_path):
    """After a reconnect, a holder reads its record and waits. This confirms the writes of its earlier connections.

    Since Redis 7.2, WAIT waits for the last write of its own connection. The holder thus publishes to a channel without
    subscribers after the read.
    """
    replica = await start(RedisServer(tmp_path, server))
    assert await replica.history() == await server.history()
    await held.append(token(1, _A), 0, 1)

    async def confirms(milliseconds):
        fresh = Redis(host="127.0.0.1", port=server.port, single_connection_client=True)
        async with fresh:
            await fresh.hget("{t}:s:x:m", "sequence")
            await fresh.publish("{t}:nobody", "")
            return await fresh.wait(1, milliseconds)

    assert await confirms(5000) == 1
    assert await replica.client.hget("{t}:s:x:m", "sequence") == b"1"
    replica._process.send_signal(signal.SIGSTOP)
    try:
        await held.append(token(1, _A), 1, 2)
        assert await confirms(100) == 0
    finally:
        replica._process.send_signal(signal.SIGCONT)


async def test_a_promotion_and_a_restart_begin_new_histories(start, server, held, tmp_path):
    before = await server.history()
    replica = await start(RedisServer(tmp_path, server))
    await held.append(token(1, _A), 0, 1)
    assert await server.client.wait(1, 5000) == 1
    await replica.client.execute_command("REPLICAOF", "NO", "ONE")
    assert await replica.history() != before
    shared = Session(replica.client)
    assert (await shared.record())["sequence"] == "1"
    # The server has a new history. The session has the old history until its holder stamps it.
    after = await replica.history()
    assert await shared.append(token(1, _A), 1, 2, history=after) == ["HISTORY"]
    assert await shared.stamp(token(1, _A), 1, to=after) == "OK"
    assert await shared.append(token(1, _A), 1, 2, history=after) == ["OK"]


async def test_a_session_is_defined_once(session):
    assert await session.define("x", definition(1)) == ["OK", "f0 1"]
    # The reply was lost, so the gateway repeats the command.
    assert await session.define("x", definition(1), list_id="f1") == ["OK", "f0 1"]
    assert await session.define("x", definition(2)) == ["EXISTS", definition(1), "f0 1"]
    assert await session.define("y", definition(3), list_id="f1") == ["OK", "f0 2"]
    assert _text(await session.client.hgetall("{t}:sessions")) == {
        "": "f0 2",
        "x": definition(1),
        "y": definition(3),
    }
    assert _text(await session.client.hgetall("{t}:sessions:owners")) == {"o": "2"}


async def test_the_limits_count_all_sessions_and_the_sessions_of_an_owner(session):
    for number in range(3):
        assert (await session.define(f"a{number}", definition(number), "a", total=5, per_owner=3))[0] == "OK"
    assert await session.define("a3", definition(3), "a", total=5, per_owner=3) == ["OWNER"]
    assert await session.define("a2", definition(2), "a", total=5, per_owner=3) == ["OK", "f0 3"]
    for number in range(4, 6):
        assert (await session.define(f"b{number}", definition(number), "b", total=5, per_owner=3))[0] == "OK"
    assert await session.define("b6", definition(6), "b", total=5, per_owner=3) == ["TOTAL"]
    # The limits do not apply to a session that Redis has lost and that is then defined again.
    assert (await session.define("b6", definition(6), "b", total="", per_owner=""))[0] == "OK"
    assert (await session.remove("b6", definition(6), "b"))[0] == "OK"
    assert await session.define("b7", definition(7), "b", total=5, per_owner=3) == ["TOTAL"]
    assert (await session.remove("a0", definition(0), "a"))[0] == "OK"
    assert (await session.define("a7", definition(8), "a", total=5, per_owner=3))[0] == "OK"
    for name, number in (("a1", 1), ("a2", 2), ("a7", 8)):
        assert (await session.remove(name, definition(number), "a"))[0] == "OK"
    assert _text(await session.client.hgetall("{t}:sessions:owners")) == {"b": "2"}


async def test_a_removed_session_leaves_no_key(session):
    await session.define("x", definition(1), first=_B)
    assert await session.record() == {"successor": _B}
    holder = token(1, _A)
    assert await session.acquire(holder, name="x", incarnation=definition(1)[:16]) == "OK"
    assert await session.append(holder, 0, 1, "1-0", "one") == ["OK"]
    assert await session.stage(holder, 2, 1) == "OK"
    assert await session.remove("x", definition(2)) == ["CHANGED", definition(1)]
    assert await session.remove("x", definition(1), holder=token(2, _A)) == ["FENCED"]
    assert await session.remove("x", definition(1), holder=holder) == ["OK", "f0 2"]
    assert await session.remove("x", definition(1), holder=holder) == ["CHANGED", ""]
    assert {_text(key) for key in await session.client.keys("*")} == {"{t}:sessions", "{t}:sessions:removed"}
    # The holder and others may send these commands before they know of the removal. The commands change nothing.
    assert await session.append(holder, 1, 2, "2-0", "two") == ["FENCED"]
    assert await session.stage(holder, 2, 2) == "FENCED"
    assert await session.release(holder, 1) == "FENCED"
    assert await session.acquire(token(2, _B), name="x", incarnation=definition(1)[:16]) == "REMOVED"
    assert not await session.record()


async def test_a_removed_session_is_not_defined_again(session):
    await session.define("x", definition(1))
    assert (await session.remove("x", definition(1), kept=2))[0] == "OK"
    assert await session.define("x", definition(1), total="", per_owner="") == ["REMOVED"]
    assert (await session.define("x", definition(2)))[0] == "OK"
    assert (await session.remove("x", definition(2), kept=2))[0] == "OK"
    assert (await session.define("x", definition(3)))[0] == "OK"
    assert (await session.remove("x", definition(3), kept=2))[0] == "OK"
    # Only the last removed sessions are remembered.
    assert _text(await session.client.zrange("{t}:sessions:removed", 0, -1)) == [definition(2)[:16], definition(3)[:16]]


async def test_an_acquisition_of_another_incarnation_is_refused(session):
    await session.define("x", definition(2))
    assert await session.acquire(token(1, _A), name="x", incarnation=definition(1)[:16]) == "REMOVED"
    assert await session.acquire(token(1, _A), name="y", incarnation=definition(2)[:16]) == "REMOVED"
    assert not await session.record()
    assert await session.acquire(token(1, _A), name="x", incarnation=definition(2)[:16]) == "OK"


async def test_definitions_and_removals_are_published(session):
    async with session.client.pubsub() as channel:
        await channel.subscribe("{t}:sessions:n")
        assert (await channel.get_message(timeout=5))["type"] == "subscribe"
        await session.define("x", definition(1))
        await session.define("x", definition(1))
        await session.define("x", definition(2))
        await session.remove("x", definition(2))
        await session.remove("x", definition(1), code=4001)
        await session.define("x", definition(3))
        published = [_text((await channel.get_message(timeout=5))["data"]) for _ in range(3)]
        assert published == [
            f"f0 1 x +{definition(1)}",
            f"f0 2 x -4001 {definition(1)[:16]}",
            f"f0 3 x +{definition(3)}",
        ]


async def test_a_full_server_removes_sessions(session):
    await session.define("x", definition(1))
    await session.client.set("fill", b"x" * 3_000_000)
    await session.client.config_set("maxmemory", "2mb")
    with pytest.raises(ResponseError, match="maxmemory"):
        await session.define("y", definition(2))
    assert (await session.remove("x", definition(1)))[0] == "OK"
