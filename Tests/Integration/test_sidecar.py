"""Drawbridge behind the Envoy of an application: deploy/envoy/sidecar.yaml, with the default timeouts of Envoy."""

import asyncio
import collections
import itertools

import aiohttp
import pytest
import pytest_asyncio

from harness.program import find
from harness.reverse_proxies import Envoy
from harness.sidecar import CONFIGURATION, Loser, Sidecar
from harness.streams import FORMATS
from harness.waiting import eventually

JSON = {"Content-Type": "application/json"}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest_asyncio.fixture
async def http_for():
    """`http_for(proxy)`: a client behind the proxy."""
    sessions = []

    def http_for(proxy):
        sessions.append(aiohttp.ClientSession("http://{}:{}".format(*proxy.address)))
        return sessions[-1]

    yield http_for
    for session in sessions:
        await session.close()


def addresses(gateway):
    return gateway.address(), gateway.address("management")[1]


def application(number):
    """The credentials of one of many applications. Envoy distributes the applications over the gateways."""
    return {"Authorization": f"Bearer application-{number}"}


async def ask(http, method, path, **options):
    """Status, header fields and JSON of a response of the gateway, not of Envoy."""
    async with http.request(method, path, **options) as response:
        assert "json" in response.headers["Content-Type"], (path, response.status, await response.text())
        return response.status, response.headers, await response.json(content_type=None)


async def test_the_configuration_is_valid():
    process = await asyncio.create_subprocess_exec(
        find(Envoy.program), "--mode", "validate", "-l", "error", "-c", CONFIGURATION
    )
    assert await process.wait() == 0


# -- Timeouts ---------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(120)
async def test_held_requests_end_before_the_timeout_of_the_route(start, gateway_for, upstream, tmp_path, http_for):
    """All requests are sent at once, since each takes as long as the default timeout of a route."""
    # The upstream does not read during the test, and the heartbeat must not give it up.
    env = {"DRAWBRIDGE_UPSTREAM_CORRELATION": "jsonrpc", "DRAWBRIDGE_UPSTREAM_HEARTBEAT_TIMEOUT": "60s"}
    gateway = await gateway_for(upstream, env=env)
    sidecar = await start(Sidecar(tmp_path, [addresses(gateway)]))
    http = http_for(sidecar)
    loop = asyncio.get_running_loop()
    assert (await ask(http, "PUT", "/v1/consumers/jobs", data='{"share":true}', headers=JSON))[0] == 201

    async def timed(request):
        began = loop.time()
        result = await request
        assert 13 < loop.time() - began < 15, result
        return result

    async def stream(format):
        media, parser = FORMATS[format]
        reading = parser()
        query = {"stream": "1"} if format == "lines" else {}
        async with http.get("/v1/messages", params=query, headers={"Accept": media}) as response:
            assert response.status == 200
            # An error of the connection, such as a reset by Envoy, would be raised here.
            async for data in response.content.iter_any():
                reading.feed(data)
        assert reading.last_id

    upstream.pause_reading()
    post = "/v1/messages?until=confirmed&wait=50s"
    _, _, queued = await ask(http, "POST", "/v1/messages", data="queued")
    results = await asyncio.gather(
        timed(ask(http, "GET", "/v1/messages")),
        timed(ask(http, "GET", "/v1/messages?wait=55s")),
        timed(ask(http, "POST", post, data="waits")),
        timed(ask(http, "GET", f"/v1/deliveries/{queued['id']}?wait=50s")),
        timed(ask(http, "POST", "/v1/call?wait=50s", data='{"id":1,"method":"m"}', headers=JSON)),
        timed(ask(http, "POST", "/v1/consumers/jobs/receive?wait=50s")),
        *(timed(stream(format)) for format in FORMATS),
    )
    poll, long_poll, confirmed, delivery, call, receive = results[:6]
    for status, _, body in (poll, long_poll, receive):
        assert (status, body["messages"]) == (200, [])
    assert (confirmed[0], confirmed[2]["state"]) == (202, "written")
    assert (delivery[0], delivery[2]["state"]) == (200, "written")
    assert call[0] == 504
    assert call[2]["type"].endswith("/reply-timeout")
    assert await sidecar.stats("upstream_rq_timeout") == 0
    assert await sidecar.stats("upstream_rq_retry") == 0
    upstream.resume_reading()


# -- Retries ----------------------------------------------------------------------------------------------------------


async def test_a_message_with_a_key_is_sent_once_although_its_responses_are_lost(
    start, gateway_for, tmp_path, http_for, upstream
):
    """With two gateways, a retry must reach the gateway that knows the key."""
    gateways = [await gateway_for(upstream), await gateway_for(upstream)]
    losers = [await start(Loser(gateway.address())) for gateway in gateways]
    sidecar = await start(Sidecar(tmp_path, [(loser.address, None) for loser in losers], never_ejects))
    http = http_for(sidecar)
    count = 60
    replayed = 0
    for number in range(count):
        headers = {"Idempotency-Key": f"key-{number}", **application(number)}
        status, fields, _ = await ask(http, "POST", "/v1/messages", data=f"message {number}", headers=headers)
        # The status is 200 if the repetition finds the message confirmed.
        assert status in (200, 202)
        replayed += fields.get("Idempotency-Replayed") == "true"
    received = collections.Counter(await upstream.has_received(count))
    assert received == {f"message {number}": 1 for number in range(count)}
    lost = sum(loser.lost for loser in losers)
    assert lost == replayed == await sidecar.stats("upstream_rq_retry")
    assert all(loser.lost for loser in losers), "both gateways are used"


async def test_a_message_without_a_key_and_a_call_are_not_repeated(start, gateway_for, tmp_path, http_for, upstream):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_UPSTREAM_CORRELATION": "jsonrpc"})
    loser = await start(Loser(gateway.address()))
    sidecar = await start(Sidecar(tmp_path, [(loser.address, None)], never_ejects))
    http = http_for(sidecar)
    for path, body in (("/v1/messages", "once"), ("/v1/call?wait=1s", '{"id":"x"}')):
        loser.requests = 0
        async with http.post(path, data=body, headers=JSON) as response:
            # Envoy itself responds: it does not know the outcome of the request.
            assert response.status == 503
            assert "reset" in await response.text()
    received = await upstream.has_received(2)
    assert len(received) == 2
    assert await sidecar.stats("upstream_rq_retry") == 0


async def test_a_poll_whose_response_is_lost_is_repeated(start, gateway_for, tmp_path, http_for, upstream):
    gateway = await gateway_for(upstream)
    loser = await start(Loser(gateway.address()))
    http = http_for(await start(Sidecar(tmp_path, [(loser.address, None)], never_ejects)))
    await upstream.push(*(f"{number}" for number in range(10)))
    cursor, seen = "earliest", []
    while len(seen) < 10:
        status, _, body = await ask(http, "GET", f"/v1/messages?limit=1&wait=10s&cursor={cursor}")
        assert (status, body["gap"]) == (200, None)
        seen += [message["data"] for message in body["messages"]]
        cursor = body["cursor"]
    assert seen == list(range(10))
    assert loser.lost >= 10


def never_ejects(cluster):
    """The test resets connections on purpose, so the resets must not count as failures of the gateway."""
    del cluster["outlier_detection"]


async def test_requests_without_credentials_are_routed_to_one_gateway(start, gateway_for, tmp_path, http_for, upstream):
    """A cursor, a delivery and a key belong to the gateway that has issued them."""
    gateways = [await gateway_for(upstream), await gateway_for(upstream)]
    http = http_for(await start(Sidecar(tmp_path, [addresses(gateway) for gateway in gateways])))
    for number in range(10):
        headers = {"Idempotency-Key": f"key-{number}"} if number % 2 else {}
        _, _, sent = await ask(http, "POST", "/v1/messages", data="a", headers=headers)
        status, _, _ = await ask(http, "GET", f"/v1/deliveries/{sent['id']}")
        assert status == 200
        _, _, batch = await ask(http, "GET", f"/v1/messages?wait=0&cursor={sent['cursor']}")
        assert batch["gap"] is None


# -- Ejection ---------------------------------------------------------------------------------------------------------


def slow_checks(cluster):
    """Health checks that would notice a dead gateway only after the test."""
    cluster["health_checks"][0] |= {"interval": "60s", "no_traffic_interval": "60s", "unhealthy_interval": "60s"}


def ejects_late(cluster):
    """Ejects a gateway only after twenty failures. Envoy then repeats that many requests."""
    slow_checks(cluster)
    cluster["outlier_detection"]["consecutive_local_origin_failure"] = 20


@pytest.fixture
def balanced(start, gateway_for, tmp_path, http_for, upstream):
    async def begin(change):
        """Two gateways with one upstream, behind a sidecar with a changed cluster. Each has received a message."""
        gateways = [await gateway_for(upstream), await gateway_for(upstream)]
        sidecar = await start(Sidecar(tmp_path, [addresses(gateway) for gateway in gateways], change))
        http = http_for(sidecar)
        for gateway in gateways:
            await serves(gateway, http)
        return gateways, sidecar, http

    return begin


@pytest.mark.timeout(120)
async def test_a_gateway_that_dies_is_ejected_and_no_request_fails(balanced):
    gateways, sidecar, http = await balanced(slow_checks)
    await gateways[0].kill()
    numbers = itertools.count()

    async def is_ejected():
        for _ in range(4):
            number = next(numbers)
            sender = application(number)
            headers = {"Idempotency-Key": f"key-{number}", **sender}
            assert (await ask(http, "POST", "/v1/messages", data="with a key", headers=headers))[0] == 202
            # This request was not sent to the dead gateway, so Envoy repeats it even without a key.
            assert (await ask(http, "POST", "/v1/messages", data="without", headers=sender))[0] == 202
            assert (await ask(http, "GET", "/v1/messages?wait=0", headers=sender))[0] == 200
        return await sidecar.stats(r"outlier_detection\.ejections_active") == 1

    await eventually(is_ejected, what="Envoy ejects the dead gateway")
    before = await sidecar.stats("upstream_rq_retry")
    for number in range(20):
        assert (await ask(http, "POST", "/v1/messages", data="without", headers=application(number)))[0] == 202
    assert await sidecar.stats("upstream_rq_retry") == before, "no request goes to a gateway that is ejected"


@pytest.mark.timeout(120)
async def test_no_request_fails_when_a_gateway_dies_under_load(balanced):
    """A repeated poll counts as a retry until its response. There are more polls here than Envoy allows by default."""
    gateways, sidecar, http = await balanced(ejects_late)
    await gateways[0].kill()

    def requests(number):
        sender = application(number)
        yield ask(http, "GET", "/v1/messages?wait=2", headers=sender)
        yield ask(http, "POST", "/v1/messages", data="a", headers={"Idempotency-Key": f"key-{number}", **sender})
        yield ask(http, "POST", "/v1/messages", data="b", headers=sender)

    results = await asyncio.gather(*(request for number in range(40) for request in requests(number)))
    assert collections.Counter(status for status, _, _ in results) == {200: 40, 202: 80}
    assert await sidecar.stats("upstream_rq_retry") >= 20, "the dead gateway was used"
    assert await sidecar.stats("upstream_rq_retry_overflow") == 0


async def serves(gateway, http):
    numbers = itertools.count()

    async def has_served():
        headers = application(next(numbers))
        assert (await ask(http, "POST", "/v1/messages", data="to anybody", headers=headers))[0] == 202
        return (await gateway.metrics())["drawbridge_messages_accepted_total"] > 0

    await eventually(has_served, what="each gateway is used")


async def test_an_upstream_that_is_down_ejects_no_gateway(balanced, upstream):
    """All instances have the same upstream. If Envoy ejected them for their 503, none could queue messages."""
    _, sidecar, http = await balanced(slow_checks)
    await upstream.kill()

    async def is_refused():
        status, _, _ = await ask(http, "POST", "/v1/messages", data="now or never", headers={"TTL": "0"})
        return status == 503

    await eventually(is_refused, what="the gateways notice")
    for number in range(40):
        headers = {"TTL": "0", **application(number)}
        status, _, _ = await ask(http, "POST", "/v1/messages", data="now or never", headers=headers)
        assert status in (202, 503)
    assert (await ask(http, "POST", "/v1/messages", data="may wait"))[0] == 202
    assert await sidecar.stats(r"outlier_detection\.ejections_active") == 0


# -- Traces -----------------------------------------------------------------------------------------------------------


async def test_the_trace_and_the_request_id_reach_the_log(start, gateway_for, tmp_path, http_for, upstream):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_LOG_ACCESS": "all"})
    http = http_for(await start(Sidecar(tmp_path, [addresses(gateway)])))
    fields = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "X-Request-Id": "of-the-application"}
    status, _, problem = await ask(http, "GET", "/v1/messages?wait=x", headers=fields)
    assert (status, problem["request_id"]) == (400, "of-the-application")
    record = await gateway.logs(lambda record: record["message"] == "request", what="the request")
    assert (record["trace_id"], record["request_id"]) == (TRACE, "of-the-application")
    # Envoy gives an id to a request that has none.
    assert (await ask(http, "POST", "/v1/messages", data="a"))[0] == 202
    record = await gateway.logs(lambda record: record.get("method") == "POST", what="the message")
    assert len(record["request_id"]) == 36
    assert "trace_id" not in record
