"""An upstream that fails and returns under load: which messages stay queued, arrive and are refused."""

import asyncio
import collections
import time

import pytest

from harness.waiting import eventually

LANES = 8
RATE = 1000


@pytest.mark.load
@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["reset", "closed in good order"])
async def test_an_upstream_restart_under_a_thousand_posts_a_second_loses_nothing(upstream, gateway, measured, how):
    posts = Posts(gateway.client())
    sending = asyncio.create_task(posts.send_until_stopped())
    await upstream.has_received(RATE)

    await (upstream.kill() if how == "reset" else upstream.stop())
    client = gateway.client()
    await eventually(lambda: is_down(client), what="the gateway notices")
    noticed = time.monotonic()
    # The outage is long enough for the queue (1,024 messages) to fill at this rate, so that some posts are refused.
    await eventually(lambda: len(posts.refused) > 50, what="the queue fills and posts are refused")
    await upstream.start()
    await gateway.ready()
    resumed = len(posts.accepted)
    await eventually(lambda: len(posts.accepted) > resumed + RATE, what="posts are accepted again")
    posts.stop()
    await sending

    late = {label for label, started in posts.accepted.items() if started > noticed}
    await eventually(lambda: late <= set(upstream.received), within=40, what="every post made meanwhile arrives")

    assert posts.other == []
    assert all(retry_after and retry_after.isdigit() for retry_after in posts.refused)
    counts = collections.Counter(upstream.received)
    assert [label for label, count in counts.items() if count > 1] == [], "delivered twice"
    assert counts.keys() <= posts.sent, "delivered without having been sent"
    # A lane posts its messages one after another, so they have an order.
    lanes = collections.defaultdict(list)
    for label in upstream.received:
        lane, number = label.split("-")
        lanes[lane].append(int(number))
    assert all(numbers == sorted(numbers) for numbers in lanes.values())
    # Only messages that the dying connection had taken may be lost, since a socket promises no more.
    lost = posts.accepted.keys() - counts.keys()
    assert not lost & late
    measured(f"{len(posts.accepted)} accepted, {len(posts.refused)} refused, {len(lost)} died with the connection")


async def is_down(client):
    return (await client.session())["state"] != "ready"


class Posts:
    """Posts at a steady rate over several lanes. A lane waits for each response, so the order within it is known."""

    def __init__(self, client):
        self._client = client
        self._stopped = False
        self.sent = set()
        self.accepted = {}
        self.refused = []
        self.other = []

    def stop(self):
        self._stopped = True

    async def send_until_stopped(self):
        await asyncio.gather(*(self._lane(lane) for lane in range(LANES)))

    async def _lane(self, lane):
        number = 0
        due = time.monotonic() + lane / RATE
        while not self._stopped:
            await asyncio.sleep(max(0, due - time.monotonic()))
            due += LANES / RATE
            label = f"{lane}-{number}"
            number += 1
            started = time.monotonic()
            self.sent.add(label)
            response = await self._client.send(label)
            if response.status == 202:
                self.accepted[label] = started
            elif response.status == 503:
                response.problem(503)
                self.refused.append(response.headers.get("Retry-After"))
            else:
                self.other.append((response.status, response.body[:200]))


async def test_posts_made_while_the_upstream_is_away_arrive_in_order(upstream, gateway, client):
    await upstream.kill()
    await eventually(lambda: is_down(client), what="the gateway notices")
    sent = [f"message {i}" for i in range(100)]
    for message in sent:
        await client.accepted(message)
    assert upstream.received == []
    await upstream.start()
    assert await upstream.has_received(100) == sent


async def test_an_upstream_that_announces_its_restart_is_attempted_within_a_second(upstream, gateway, client):
    await upstream.stop(1012, "service restart")
    await eventually(lambda: is_down(client), what="the gateway notices")
    await client.accepted("meanwhile")
    lost = await gateway.logs(lambda record: record.get("from") == "closing", what="the loss")
    assert lost["next_attempt_in"] <= 1
    await upstream.start()
    assert await upstream.has_received(1) == ["meanwhile"]


async def test_a_message_older_than_its_ttl_is_not_sent(upstream, gateway, client):
    await upstream.kill()
    await eventually(lambda: is_down(client), what="the gateway notices")
    await client.accepted("too late", headers={"TTL": "1"})
    await client.accepted("in time", headers={"TTL": "60"})
    expired = time.monotonic() + 1
    await eventually(lambda: time.monotonic() > expired, what="a second passes")
    await upstream.start()
    assert await upstream.has_received(1) == ["in time"]


async def test_ttl_zero_needs_a_ready_session(upstream, gateway, client):
    await client.accepted("now", headers={"TTL": "0"})
    assert await upstream.has_received(1) == ["now"]
    await upstream.kill()
    await eventually(lambda: is_down(client), what="the gateway notices")
    response = await client.send("never", headers={"TTL": "0"})
    problem = response.problem(503)
    assert problem["type"].endswith("upstream-down")
    assert problem["retryable"] is True
    assert int(response.headers["Retry-After"]) >= 1


@pytest.mark.parametrize("ttl", ["soon", "-1", "1.5", ""])
async def test_an_invalid_ttl_is_refused(client, ttl):
    assert "TTL" in (await client.send("x", headers={"TTL": ttl})).problem(400)["detail"]


async def test_a_full_queue_refuses_messages_with_retry_after(upstream, gateway, client):
    await upstream.kill()
    await eventually(lambda: is_down(client), what="the gateway notices")
    responses = [await client.send(f"message {i}") for i in range(1100)]
    accepted = [response for response in responses if response.status == 202]
    assert len(accepted) == 1024
    for response in responses[1024:]:
        problem = response.problem(503)
        assert problem["type"].endswith("queue-full")
        assert problem["retryable"] is True
        assert int(response.headers["Retry-After"]) >= 1
    await upstream.start()
    assert await upstream.has_received(1024) == [f"message {i}" for i in range(1024)]


async def test_an_upstream_may_start_after_the_gateway(gateway_for, upstream):
    await upstream.kill()
    gateway = await gateway_for(upstream, ready=False)
    client = gateway.client()
    await client.accepted("early")
    assert (await gateway.manage("/readyz")).status == 503
    await upstream.start()
    assert await upstream.has_received(1) == ["early"]
    await gateway.ready()


async def test_pushes_from_before_and_after_a_restart_of_the_upstream_are_in_order(upstream, gateway, client):
    cursor = await client.here()
    for life in range(3):
        await upstream.push(*(f"{life}-{i}" for i in range(20)))
        await eventually(lambda life=life: newest_is(client, f"{life}-19"), what="the pushes are in")
        await upstream.kill()
        await upstream.start()
    payloads = []
    while len(payloads) < 60:
        batch = await client.poll(cursor=cursor, wait=10)
        payloads += batch.payloads
        cursor = batch.cursor
    assert payloads == [f"{life}-{i}" for life in range(3) for i in range(20)]


async def newest_is(client, payload):
    return (await client.poll(last=1, wait=0)).payloads == [payload]
