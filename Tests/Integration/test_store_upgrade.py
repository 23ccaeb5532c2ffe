"""Stores of earlier releases: this program continues with them."""

import re
import sqlite3
import time
from pathlib import Path

import pytest

from harness.clock import ShiftedClock
from harness.gateway import run
from harness.store_kills import settings
from harness.waiting import eventually

_STORES = Path(__file__).with_name("stores")
#: When each store was written. A store contains the wall-clock times of its messages.
_TIMES = {1: 1795425949}


@pytest.fixture
def old_store(tmp_path):
    """`old_store(schema)`: the path of a store that a release with this schema has written."""

    def old_store(schema):
        path = tmp_path / "store.db"
        with sqlite3.connect(path) as database:
            database.executescript((_STORES / f"schema-{schema}.sql").read_text())
        database.close()
        return path

    return old_store


async def _schema(path):
    status, output, error = await run("store", "check", path)
    assert status == 0, error
    return int(re.search(r"is sound: schema (\d+),", output)[1])


def test_each_released_schema_has_a_store():
    assert sorted(_TIMES) == sorted(int(file.stem.removeprefix("schema-")) for file in _STORES.glob("schema-*.sql"))


@pytest.mark.parametrize("schema", sorted(_TIMES))
async def test_a_store_of_an_earlier_release_is_continued(old_store, gateway_for, upstream, tmp_path, schema):
    path = old_store(schema)
    clock = ShiftedClock(tmp_path)
    # The clock starts ten seconds after the end of that release.
    clock.shift(int(_TIMES[schema] + 10 - time.time()))
    env = settings(path) | clock.environment
    gateway = await gateway_for(upstream, env=env)
    client = gateway.client()
    epoch = "6f550ed34e92"

    # A cursor from before the upgrade first gets the later pushes, and then the gap of this start.
    batch = await client.poll(cursor=f"p-{epoch}.1.1")
    assert batch.payloads == [{"two": 2}, b"\x00\xff"]
    assert [message["id"] for message in batch.messages] == [f"p-{epoch}.1.2", f"p-{epoch}.1.3"]
    assert (await client.poll(cursor=batch.cursor, wait=10)).gap

    # Final states remain, and queued messages are sent.
    async def state(number):
        return (await client.request("GET", f"/v1/deliveries/d-{epoch}.1.{number}")).json["state"]

    assert await state(1) == "confirmed"
    assert await state(4) == "expired"
    assert await upstream.has_received(2) == ["kept", "keyed"]
    repeated = await client.send("keyed", headers={"TTL": "3600", "Idempotency-Key": "key-1"})
    assert repeated.headers["Idempotency-Replayed"] == "true"
    assert repeated.json["id"] == f"d-{epoch}.1.3"

    async def are_confirmed():
        return [await state(2), await state(3)] == ["confirmed", "confirmed"]

    await eventually(are_confirmed, what="the queued messages are confirmed")

    # New numbers belong to the second term, which has random bits. An orderly end writes everything in the current
    # schema.
    await upstream.push("new")
    messages = await eventually(lambda: _after_gap(client, batch.cursor), what="the push is stored")
    (new,) = [message["id"].split(".") for message in messages]
    assert (new[0], int(new[1]) >> 32, new[2]) == (f"p-{epoch}", 2, "4")
    await gateway.stop()
    assert await _schema(path) == max(_TIMES)


async def _after_gap(client, cursor):
    batch = await client.poll(cursor=cursor, wait=0)
    if not batch.messages:
        batch = await client.poll(cursor=batch.cursor, wait=0)
    return batch.messages
