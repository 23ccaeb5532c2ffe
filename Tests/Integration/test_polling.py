"""Long polls: which polls are held, which get a response, and that no push is lost between two polls."""

import asyncio
import json
import time

import pytest

from harness.client import Batch
from harness.raw import exchange, reset
from harness.waiting import eventually


async def test_pushes_without_a_reader_are_in_the_next_poll_in_order(upstream, client):
    cursor = await client.here()
    pushed = [f"message {i}" for i in range(250)]
    await upstream.push(*pushed)
    payloads, _ = await client.collect(250, cursor)
    assert payloads == pushed


async def test_earliest_returns_pushes_from_before_the_first_poll(upstream, client):
    pushed = [f"message {i}" for i in range(50)]
    await upstream.push(*pushed)
    payloads, _ = await client.collect(50, "earliest")
    assert payloads == pushed


async def test_two_pollers_with_their_own_cursors_both_get_every_push(upstream, gateway):
    first, second = gateway.client(), gateway.client()
    cursor = await first.here()
    pushed = [f"message {i}" for i in range(500)]
    pushing = asyncio.create_task(upstream.push(*pushed))
    (one, _), (two, _) = await asyncio.gather(
        first.collect(500, cursor, limit=7), second.collect(500, cursor, limit=31)
    )
    await pushing
    assert one == pushed
    assert two == pushed


async def test_an_aborted_poll_removes_no_push(upstream, gateway, client):
    cursor = await client.here()
    for round in range(20):
        poll = asyncio.create_task(client.get(cursor=cursor, wait=30))
        await eventually(lambda: held(gateway, 1), what="the poll is held")
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
        await upstream.push(f"message {round}")
        payloads, cursor = await client.collect(1, cursor)
        assert payloads == [f"message {round}"]


async def test_a_poll_aborted_during_its_response_removes_no_push(upstream, client):
    cursor = await client.here()
    pushed = []
    for round in range(50):
        poll = asyncio.create_task(client.get(cursor=cursor, wait=30))
        pushed.append(f"message {round}")
        await upstream.push(pushed[-1])
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
    payloads, _ = await client.collect(50, cursor)
    assert payloads == pushed


@pytest.mark.parametrize("behind", [b"", b"GET /v1/session HTTP/1.1\r\nHost: localhost\r\n\r\n"])
async def test_a_half_closed_client_gets_its_response(behind, upstream, gateway):
    reader, writer = await asyncio.open_connection(*gateway.address())
    writer.write(b"GET /v1/messages?wait=50 HTTP/1.1\r\nHost: localhost\r\n\r\n" + behind)
    writer.write_eof()
    # An interim response, which each client must skip, shows the gateway whether the client is still connected.
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert await held(gateway, 1)
    await upstream.push("news")
    rest = await asyncio.wait_for(reader.read(), 30)
    assert rest.startswith(b"HTTP/1.1 200 ")
    assert b'"data":"news"' in rest
    assert rest.count(b"HTTP/1.1 200 ") == (2 if behind else 1)
    writer.close()


async def test_a_half_closed_http_1_0_client_gets_its_response_at_once(gateway):
    request = b"GET /v1/messages?wait=50 HTTP/1.0\r\nHost: localhost\r\n\r\n"
    response = await exchange(gateway.address(), request, end_of_input=True)
    assert response.statuses == [200]
    assert b'"messages":[]' in response.data


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_polls_of_disconnected_clients_are_not_held(ending, gateway):
    polls = [await asyncio.open_connection(*gateway.address()) for _ in range(50)]
    for _, writer in polls:
        writer.write(b"GET /v1/messages?wait=50 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await eventually(lambda: held(gateway, 50), what="the polls are held")
    for _, writer in polls:
        if ending == "reset":
            reset(writer)
        else:
            writer.close()
    await eventually(lambda: held(gateway, 0), what="the polls are given up")


async def test_a_push_ends_a_held_poll(upstream, gateway, client):
    cursor = await client.here()
    poll = asyncio.create_task(client.poll(cursor=cursor, wait=30))
    await eventually(lambda: held(gateway, 1), what="the poll is held")
    assert not poll.done()
    await upstream.push("now")
    assert (await poll).payloads == ["now"]


async def test_latest_is_the_default_and_starts_at_the_next_message(upstream, gateway, client):
    await upstream.push("before")
    await client.collect(1, "earliest")
    poll = asyncio.create_task(client.poll(wait=30))
    await eventually(lambda: held(gateway, 1), what="the poll is held")
    await upstream.push("after")
    assert (await poll).payloads == ["after"]


async def test_a_poll_without_a_push_within_its_wait_gets_an_empty_response(client):
    cursor = await client.here()
    for wait in ("0", "50ms", "1"):
        batch = await client.poll(cursor=cursor, wait=wait)
        assert (batch.messages, batch.more, batch.gap, batch.cursor) == ([], False, None, cursor)


async def test_an_empty_poll_is_held_for_its_whole_wait(client):
    # The test checks only a minimum, since a busy machine may take longer.
    started = time.monotonic()
    await client.poll(wait="700ms")
    assert time.monotonic() - started >= 0.69


@pytest.mark.parametrize("wait", [{"wait": "1s"}, {"headers": {"Prefer": "wait=1"}}])
async def test_the_wait_may_be_a_parameter_or_a_preference(client, wait):
    started = time.monotonic()
    assert Batch.of(await client.get(**wait)).messages == []
    assert time.monotonic() - started >= 0.99


@pytest.mark.parametrize("wait", ["soon", "-1", "1.5s", "", "10000000000000000000000"])
async def test_an_invalid_wait_is_refused_and_named(client, wait):
    problem = (await client.get(wait=wait)).problem(400)
    assert "wait" in problem["detail"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cursor", "nonsense"),
        ("cursor", "-5"),
        ("cursor", "since=10m"),
        ("since", "soon"),
        ("last", "-1"),
        ("topic", ""),
        ("cursor", "99999999999999999999999"),
        ("limit", "0"),
        ("limit", "-1"),
        ("limit", "many"),
        ("max_bytes", "0"),
        ("max_bytes", "1.5"),
        ("nonsense", "1"),
    ],
)
async def test_bad_and_unknown_parameters_are_refused_and_named(client, name, value):
    problem = (await client.get(**{name: value, "wait": 0})).problem(400)
    assert name in problem["detail"]


async def test_limit_applies_to_one_response_and_more_says_so(upstream, client):
    cursor = await client.here()
    await upstream.push(*(f"message {i}" for i in range(10)))
    await client.collect(10, cursor)
    batch = await client.poll(cursor=cursor, limit=4, wait=0)
    assert (len(batch.messages), batch.more) == (4, True)
    batch = await client.poll(cursor=batch.cursor, limit=4, wait=0)
    assert (len(batch.messages), batch.more) == (4, True)
    batch = await client.poll(cursor=batch.cursor, limit=4, wait=0)
    assert (len(batch.messages), batch.more) == (2, False)


async def test_max_bytes_limits_a_response_to_at_least_one_message(upstream, client):
    cursor = await client.here()
    pushed = [letter * 1000 for letter in "abcdef"]
    await upstream.push(*pushed)
    await client.collect(6, cursor)
    batch = await client.poll(cursor=cursor, max_bytes=3000, wait=0)
    assert 1 <= len(batch.messages) <= 2
    assert batch.more
    batch = await client.poll(cursor=batch.cursor, max_bytes=1, wait=0)
    assert len(batch.messages) == 1
    payloads, _ = await client.collect(6, cursor, max_bytes=1)
    assert payloads == pushed


async def test_a_poll_starts_at_a_cursor_a_count_or_a_time(upstream, client):
    await upstream.push("one", "two", "three")
    payloads, end = await client.collect(3, "earliest")
    assert payloads == ["one", "two", "three"]
    assert (await client.poll(last=2, wait=0)).payloads == ["two", "three"]
    assert (await client.poll(last=100, wait=0)).payloads == ["one", "two", "three"]
    assert (await client.poll(cursor="latest", wait=0)).messages == []
    assert (await client.poll(since="1h", wait=0)).payloads == ["one", "two", "three"]
    batch = await client.poll(cursor="earliest", limit=1, wait=0)
    assert (await client.poll(cursor=batch.cursor, wait=0)).payloads == ["two", "three"]
    assert (await client.poll(cursor=end, wait=0)).cursor == end


async def test_the_id_of_a_message_is_the_cursor_after_it(upstream, client):
    cursor = await client.here()
    await upstream.push("one", "two", "three")
    await client.collect(3, cursor)
    batch = await client.poll(cursor=cursor, wait=0)
    assert (await client.poll(cursor=batch.messages[0]["id"], wait=0)).payloads == ["two", "three"]
    assert batch.messages[-1]["id"] == batch.cursor


async def test_a_cursor_is_not_a_delivery_id_and_a_delivery_id_not_a_cursor(upstream, client):
    """If the id of a delivery were accepted as a cursor, a poll from the id of a POST would skip the reply to it."""
    sent = (await client.accepted("question"))["id"]
    cursor = await client.here()
    assert (sent[:2], cursor[:2]) == ("d-", "p-")
    detail = (await client.get(cursor=sent, wait=0)).problem(400)["detail"]
    assert "the id of a delivery" in detail
    assert "the cursor of an earlier response" in detail
    detail = (await client.request("GET", f"/v1/deliveries/{cursor}")).problem(404)["detail"]
    assert "a cursor or the id of a push" in detail
    assert "begins with 'd-'" in detail
    assert (await client.request("GET", f"/v1/deliveries/{sent}")).status == 200


async def test_the_time_of_a_message_is_rfc_3339(upstream, client):
    cursor = await client.here()
    await upstream.push("one")
    await client.collect(1, cursor)
    message = (await client.poll(cursor=cursor, wait=0)).messages[0]
    parsed = time.strptime(message["time"].split(".")[0].rstrip("Z"), "%Y-%m-%dT%H:%M:%S")
    assert message["time"].endswith("Z")
    assert parsed.tm_year >= 2024


async def held(gateway, count):
    return (await gateway.metrics())["drawbridge_polls_held"] == count


async def test_equal_polls_get_one_rendered_response_and_others_do_not(upstream, gateway, client):
    cursor = await client.here()
    await upstream.push("one", "two")
    await client.collect(2, cursor)
    shared = [(await client.get(cursor=cursor, wait=0)).body for _ in range(4)]
    assert len(set(shared)) == 1
    assert [message["data"] for message in json.loads(shared[0])["messages"]] == ["one", "two"]

    # Each of these requests has a response of its own, because of a parameter, its method or its version.
    assert (await client.poll(cursor=cursor, wait=0, limit=1)).payloads == ["one"]
    assert (await client.request("HEAD", f"/v1/messages?cursor={cursor}&wait=0")).body == b""
    for version, field in (("1.1", "Connection: close\r\n"), ("1.0", "")):
        request = f"GET /v1/messages?cursor={cursor}&wait=0 HTTP/{version}\r\nHost: x\r\n{field}\r\n"
        response = await exchange(gateway.address(), request.encode())
        assert response.ended
        assert b"Connection: close\r\n" in response.data
        assert response.data.endswith(shared[0])

    # The response contains new pushes, although the request is the same.
    end = (await client.poll(cursor=cursor, wait=0)).cursor
    await upstream.push("three")
    assert (await client.collect(1, end))[0] == ["three"]
    assert (await client.poll(cursor=cursor, wait=0)).payloads == ["one", "two", "three"]
