"""A gateway with a store: the state that survives an orderly end, and the state that survives a kill."""

import json

import pytest

from harness.gateway import run
from harness.store import storing
from harness.store_kills import StoreKillRun, settings
from harness.waiting import eventually


@pytest.fixture
def stored(gateway_for, upstream, tmp_path):
    """`await stored()`: a gateway with the store of this test. The previous gateway must have ended."""

    async def stored(**options):
        env = settings(tmp_path / "store.db") | options.pop("env", {})
        return await gateway_for(upstream, env=env, **options)

    return stored


async def end(gateway, *, killed):
    if killed:
        await gateway.kill()
    else:
        await gateway.stop()


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
async def test_cursors_and_pushes_survive_a_restart(stored, upstream, killed):
    gateway = await stored()
    for text in ("one", "two", "three"):
        await upstream.push(text)
    client = gateway.client()
    payloads, _ = await client.collect(3, "earliest")
    assert payloads == ["one", "two", "three"]
    first = await client.poll(cursor="earliest", limit=1)
    await end(gateway, killed=killed)

    gateway = await stored()
    client = gateway.client()
    rest = await client.poll(cursor=first.cursor)
    assert rest.payloads == ["two", "three"]
    assert rest.gap is None
    await upstream.push("four")
    last = await client.poll(cursor=rest.cursor, wait=10)
    if not last.messages:
        assert last.gap
        last = await client.poll(cursor=last.cursor, wait=10)
    assert last.payloads == ["four"]
    ids = [message["id"] for message in (await client.poll(cursor="earliest")).messages]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
async def test_queued_messages_are_sent_by_the_next_process(stored, upstream, killed):
    await upstream.kill()
    gateway = await stored(ready=False, env={"DRAWBRIDGE_SHUTDOWN_FLUSH": "100ms"})
    client = gateway.client()
    kept = await client.accepted("kept", headers={"TTL": "300"})
    keyed = await client.accepted("keyed", headers={"TTL": "300", "Idempotency-Key": "k"})
    short = await client.accepted("short", headers={"TTL": "1"})

    async def has_expired():
        return (await client.request("GET", f"/v1/deliveries/{short['id']}")).json["state"] == "expired"

    await eventually(has_expired, what="the message with the short TTL expires")
    await end(gateway, killed=killed)

    gateway = await stored(ready=False)
    client = gateway.client()
    again = await client.send("keyed", headers={"TTL": "300", "Idempotency-Key": "k"})
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.json["id"] == keyed["id"]
    assert (await client.request("GET", f"/v1/deliveries/{short['id']}")).json["state"] == "expired"
    await upstream.start()
    assert await upstream.has_received(2) == ["kept", "keyed"]

    async def is_confirmed():
        return (await client.request("GET", f"/v1/deliveries/{kept['id']}")).json["state"] == "confirmed"

    await eventually(is_confirmed, what="the message is confirmed")
    assert upstream.received == ["kept", "keyed"]


async def test_a_message_with_202_survives_a_kill(stored, upstream):
    gateway = await stored()
    client = gateway.client()
    sent = await client.accepted("sent")
    assert await upstream.has_received(1) == ["sent"]
    await end(gateway, killed=True)
    gateway = await stored()
    client = gateway.client()
    state = (await client.request("GET", f"/v1/deliveries/{sent['id']}")).json
    assert state["id"] == sent["id"]
    assert state["state"] in ("confirmed", "unknown")
    assert upstream.received == ["sent"]


async def test_an_id_that_was_issued_is_never_404(stored):
    gateway = await stored()
    client = gateway.client()
    immediate = await client.accepted("now", headers={"TTL": "0"})
    await end(gateway, killed=True)
    client = (await stored()).client()
    response = await client.request("GET", f"/v1/deliveries/{immediate['id']}")
    assert response.status == 200
    assert response.json["state"] in ("unknown", "confirmed", "written")
    prefix, _, number = immediate["id"].rpartition(".")
    lost = await client.request("GET", f"/v1/deliveries/{prefix}.{int(number) + 1000}")
    assert lost.status == 200
    assert (lost.json["state"], lost.json["reason"]) == ("unknown", "store-lost")


async def test_a_cursor_beyond_the_end_of_its_term_gets_the_gap_store(stored, upstream):
    gateway = await stored()
    await upstream.push("one")
    client = gateway.client()
    _, cursor = await client.collect(1, "earliest")
    await end(gateway, killed=True)
    client = (await stored()).client()
    prefix, _, number = cursor.rpartition(".")
    batch = await client.poll(cursor=f"{prefix}.{int(number) + 5}", wait=0)
    assert batch.gap["missed"] is None
    assert "store" in batch.gap.get("reasons", [batch.gap["reason"]])
    assert batch.messages == []


@pytest.mark.parametrize("copied", ["stopped", "running", "without its log"])
async def test_readers_of_the_original_get_a_gap_from_a_restored_copy(stored, upstream, tmp_path, copied):
    """The copy is made like a copy by `cp`, or a snapshot of a file system or machine."""
    path, log = tmp_path / "store.db", tmp_path / "store.db-wal"

    async def run_with(text):
        """The cursor after a push and the id of a delivery, from a run that is then killed."""
        gateway = await stored()
        start = (await gateway.client().poll(cursor="latest", wait=0)).cursor
        await upstream.push(text)
        payloads, cursor = await gateway.client().collect(1, start)
        assert payloads == [text]
        delivery = (await gateway.client().accepted(text))["id"]
        return gateway, cursor, delivery

    gateway, _, _ = await run_with("both")
    if copied != "running":
        await end(gateway, killed=False)
    copies = {file: file.read_bytes() for file in (path, log) if file.exists()}
    if copied == "running":
        await end(gateway, killed=True)
    gateway, cursor, delivery = await run_with("only in the original")
    await end(gateway, killed=True)
    log.unlink()
    if copied != "without its log":
        for file, content in copies.items():
            file.write_bytes(content)

    gateway, new_cursor, new_delivery = await run_with("only in the copy")
    assert new_cursor != cursor
    assert new_delivery != delivery
    client = gateway.client()
    batch = await client.poll(cursor=cursor)
    assert "store" in batch.gap.get("reasons", [batch.gap["reason"]])
    # The gateway cannot know where the two logs begin to differ, so pushes of both may come again.
    if batch.payloads == ["both"]:
        batch = await client.poll(cursor=batch.cursor)
    assert batch.payloads == ["only in the copy"]
    lost = (await client.request("GET", f"/v1/deliveries/{delivery}")).json
    assert (lost["state"], lost["reason"]) == ("unknown", "store-lost")


async def test_a_second_process_is_refused(stored, upstream, tmp_path, gateway_for):
    await stored()
    with pytest.raises(AssertionError, match=r"exit 69[\s\S]*store\.db"):
        await stored()


@pytest.mark.load
@pytest.mark.timeout(300)
async def test_no_acknowledged_message_is_lost_when_the_gateway_is_killed(start, tmp_path, measured):
    run = StoreKillRun(25, 20261123, tmp_path, settings(tmp_path / "store.db"))
    await start(run.upstream)
    verdict = await run.run()
    measured(str(verdict))
    assert verdict.faults == []
    assert verdict.accepted > 200
    assert verdict.read > 200
    assert verdict.deliveries > 200


SUBSCRIPTIONS = """
upstream:
  subscriptions:
    add: {match: {json: {/op: sub}}, key: /ch}
"""


async def test_subscriptions_end_with_the_setting_that_permits_them(stored, upstream):
    gateway = await stored(config=SUBSCRIPTIONS)
    texts = [json.dumps({"op": "sub", "ch": channel}) for channel in "ab"]
    for text in texts:
        await gateway.client().accepted(text)
    assert await upstream.has_received(2) == texts
    gateway = await restarted(gateway, stored, config=SUBSCRIPTIONS)
    assert await upstream.has_received(4) == texts * 2
    gateway = await restarted(gateway, stored)
    assert any("no longer permits" in record["message"] for record in gateway.records)
    await gateway.client().accepted("first")
    assert await upstream.has_received(5) == [*texts * 2, "first"]
    # Removed subscriptions do not return when the setting does.
    gateway = await restarted(gateway, stored, config=SUBSCRIPTIONS)
    await gateway.client().accepted("second")
    assert await upstream.has_received(6) == [*texts * 2, "first", "second"]


async def restarted(gateway, stored, **options):
    await gateway.stop()
    return await stored(**options)


async def test_a_session_without_a_configuration_is_kept_until_its_deadline(gateway_for, upstream, store_path):
    def sessions(*names):
        return "sessions:\n" + "".join(f"  {name}: {{upstream: {{url: '{upstream.url}'}}}}\n" for name in names)

    def lines(gateway, text):
        return [record for record in gateway.records if text in record["message"]]

    env = storing(store_path)
    gateway = await gateway_for(upstream, config=sessions("kept"), env=env)
    assert (await gateway.metrics())["drawbridge_store_unused_sessions"] == 0
    await gateway.stop()
    gateway = await gateway_for(upstream, config=sessions("other"), env=env)
    (line,) = lines(gateway, "the store keeps sessions")
    assert (line["sessions"], line["count"]) == ("kept", 1)
    assert (await gateway.metrics())["drawbridge_store_unused_sessions"] == 1
    await gateway.stop()
    status, output, _ = await run("store", "check", store_path)
    assert status == 0
    assert "session 'kept'" in output
    assert "the configuration has not had this session for 0 days" in output
    gateway = await gateway_for(upstream, config=sessions("other"), env={**env, "DRAWBRIDGE_STORE_KEEP_UNUSED": "0s"})
    (line,) = lines(gateway, "were removed from the store")
    assert (line["sessions"], line["count"]) == ("kept", 1)
    await gateway.stop()
    _, output, _ = await run("store", "check", store_path)
    assert "'kept'" not in output
