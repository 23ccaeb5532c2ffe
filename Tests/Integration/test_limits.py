"""Every limit of `config/drawbridge.yaml` on requests is exceeded once, and the response names the setting."""

import asyncio
import contextlib
import gzip
import itertools
import json
import socket
from dataclasses import dataclass, field

import pytest
import yaml

from harness.abuse import abuse
from harness.gateway import PROJECT
from harness.raw import exchange
from harness.waiting import eventually

POST = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
BATCH = POST.replace(b"text/plain", b"application/x-ndjson")
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
GET = b"GET /openapi.yaml HTTP/1.1\r\nHost: x\r\n"
END = b"Connection: close\r\n\r\n"


def sized(body, fields=b"", head=POST):
    return head + fields + b"Content-Length: %d\r\n" % len(body) + END + body


@dataclass
class Case:
    """A setting with a small value, and a request that exceeds it. The request `ok` is just within the limit."""

    value: object
    data: bytes
    status: int
    type: str
    ok: bytes | None = None
    # Pieces to send one by one after `data`.
    drip: object = None
    # A partial body that another client has sent.
    occupied: bytes | None = None
    others: dict = field(default_factory=dict)
    # The number of messages that are accepted before the request.
    before: int = 0
    ready: bool = True


REFUSED = {
    "http.request_line_bytes": Case(
        256,
        b"GET /".ljust(257 - 9, b"a") + b" HTTP/1.1\r\nHost: x\r\n" + END,
        414,
        "uri-too-long",
        ok=b"GET /".ljust(256 - 9, b"a") + b" HTTP/1.1\r\nHost: x\r\n" + END,
    ),
    "http.head_bytes": Case("1KiB", GET + b"X: ".ljust(1024, b"y") + b"\r\n" + END, 431, "header-fields-too-large"),
    "http.fields": Case(8, GET + b"X: y\r\n" * 7 + END, 431, "header-fields-too-large", ok=GET + b"X: y\r\n" * 6 + END),
    "http.empty_lines": Case(1, b"\r\n" * 2 + GET + END, 400, "protocol-error", ok=b"\r\n" + GET + END),
    "http.body_bytes": Case(9, sized(bytes(10)), 413, "content-too-large", ok=sized(bytes(9))),
    "http.body_bytes (chunks)": Case(9, CHUNKED + b"5\r\nabcde\r\n5\r\n", 413, "content-too-large"),
    "http.body_bytes (gzip)": Case(
        64,
        sized(gzip.compress(bytes(65)), b"Content-Encoding: gzip\r\n"),
        413,
        "content-too-large",
        ok=sized(gzip.compress(bytes(64)), b"Content-Encoding: gzip\r\n"),
    ),
    "http.pending_body_bytes": Case(
        "64KiB",
        POST + b"Connection: close\r\nContent-Length: 60000\r\n\r\n" + bytes(40_000),
        503,
        "too-many-bodies",
        # The gateway drops the body at once. Its response follows when the whole body has arrived.
        drip=[bytes(20_000)],
        occupied=POST + b"Content-Length: 60000\r\n\r\n" + bytes(40_000),
    ),
    "http.inflation_ratio": Case(
        10,
        sized(gzip.compress(bytes(1_048_577)), b"Content-Encoding: gzip\r\n"),
        413,
        "content-too-large",
        ok=sized(gzip.compress(bytes(1_048_576)), b"Content-Encoding: gzip\r\n"),
    ),
    "http.batch_messages": Case(
        2, sized(b"a\nb\nc\n", head=BATCH), 413, "content-too-large", ok=sized(b"a\nb\n", head=BATCH)
    ),
    "http.idempotency_keys": Case(
        1,
        sized(b"b", b"Idempotency-Key: second\r\n"),
        503,
        "too-many-keys",
        ok=sized(b"a", b"Idempotency-Key: first\r\n"),
    ),
    "http.chunk_extension_bytes": Case(8, CHUNKED + b"1;a=23456789\r\n", 413, "content-too-large"),
    "http.chunk_overhead_bytes": Case(16, CHUNKED + (b"1;a=" + b"x" * 60 + b"\r\nz\r\n") * 2, 413, "content-too-large"),
    "http.trailer_bytes": Case(16, CHUNKED + b"0\r\nX: ".ljust(30, b"y") + b"\r\n\r\n", 431, "header-fields-too-large"),
    "http.trailers": Case(1, CHUNKED + b"0\r\nX: y\r\nX: y\r\n\r\n", 431, "header-fields-too-large"),
    "http.head_timeout": Case("200ms", GET, 408, "request-timeout"),
    "http.body_timeout": Case("200ms", POST + b"Content-Length: 5\r\n\r\nabc", 408, "request-timeout"),
    "http.body_minimum_rate": Case(
        1_000_000,
        POST + b"Content-Length: 1000000\r\n\r\n",
        408,
        "request-timeout",
        drip=itertools.repeat(b"x"),
        others={"http.body_timeout": "500ms"},
    ),
    "upstream.queue.messages": Case(2, sized(b"x"), 503, "queue-full", before=2, ready=False),
    "upstream.queue.bytes": Case("1KiB", sized(b"x" * 1000), 503, "queue-full", before=1, ready=False),
    "upstream.queue.rate": Case(
        1, sized(b"x", b"TTL: 0\r\n"), 503, "upstream-down", before=1, others={"upstream.queue.rate_interval": "1h"}
    ),
}

# These limits reset connections before a request is read, so only the log can name the settings.
LOGGED = ["http.connections", "http.connections_per_address", "http.management_connections"]

# The gateway lowers these parameters to the limit, as the API documents, and the response shows the lower value.
LOWERED = {
    "delivery.maximum_limit": (2, "limit=3"),
    "delivery.maximum_answer_bytes": (1, "max_bytes=100000"),
    "delivery.maximum_wait": ("100ms", "wait=50"),
}

# Limits that no response names or that refuse nothing, and the test of each limit.
ELSEWHERE = {
    "http.hosts": "a list of names, not a size: test_browsers.py",
    "http.origins": "a list of names, not a size: test_browsers.py",
    "http.trusted_proxies": "a list of addresses, not a size: test_proxy_protocol.py",
    "http.proxy_protocol": "no limit: test_proxy_protocol.py",
    "http.pipelined_bytes": "the rest is read later: test_abuse.py",
    "http.idle_timeout": "there is no request to respond to: test_hostile_clients.py",
    "http.write_timeout": "the client does not read: test_abuse.py",
    "http.write_minimum_rate": "the client does not read: test_abuse.py",
    "http.unsent_bytes": "the client does not read: test_abuse.py",
    "http.linger_timeout": "after the response: test_abuse.py",
    "http.linger_bytes": "after the response: test_abuse.py",
    "http.requests_per_connection": "the request is served, with Connection: close: below",
    "delivery.messages": "a gap in the next response: test_delivery.py",
    "delivery.bytes": "a gap in the next response: test_delivery.py",
    "delivery.age": "a gap in the next response: test_delivery.py",
    "delivery.total_bytes": "a gap in the next response of another session: CreatedSessionsTests.swift",
    "delivery.wait": "a default",
    "delivery.limit": "a default",
    "delivery.answer_bytes": "a default",
    "delivery.stream_heartbeat": "a heartbeat: test_streams.py",
    "delivery.stream_lifetime": "the stream ends: test_streams.py",
    "upstream.queue.ttl": "a default; the message expires: test_queue.py",
    "upstream.queue.overflow": "no limit",
    "upstream.queue.redeliver": "no limit",
    "upstream.queue.max_attempts": "the message is rejected: test_queue.py",
    "upstream.queue.confirm": "no limit",
    "upstream.queue.confirm_messages": "no limit of a request",
    "upstream.queue.confirm_delay": "no limit of a request",
    "upstream.queue.rate_interval": "with rate",
    "upstream.queue.burst": "with rate",
    "upstream.queue.high_water": "no limit of a request",
    "upstream.queue.low_water": "no limit of a request",
}


def test_every_limit_of_these_sections_is_exceeded_here_or_explained():
    settings = yaml.safe_load((PROJECT / "config/drawbridge.yaml").read_text())
    sections = {
        "http": settings["http"],
        "delivery": settings["delivery"],
        "upstream.queue": settings["upstream"]["queue"],
    }
    paths = {f"{section}.{name}" for section, names in sections.items() for name in names}
    listed = [*{name.partition(" ")[0] for name in REFUSED}, *LOGGED, *LOWERED, *ELSEWHERE]
    assert sorted(listed) == sorted(paths)


def environment(settings):
    return {f"DRAWBRIDGE_{name.upper().replace('.', '_')}": str(value) for name, value in settings.items()}


#: The upstream never takes the queued messages, so a gateway does not wait for it at its end.
QUICK = {"shutdown.flush": "100ms"}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_response_above_a_limit_names_the_setting(name, gateway_for, upstream):
    case = REFUSED[name]
    setting = name.partition(" ")[0]
    if not case.ready:
        await upstream.kill()
    gateway = await gateway_for(
        upstream, ready=case.ready, env=environment({setting: case.value, **QUICK, **case.others})
    )
    for _ in range(case.before):
        await gateway.client().accepted("x" * 600)
    if case.ok:
        response = await exchange(gateway.address(), case.ok)
        assert response.statuses[0] not in (case.status, 408), response.data
    if case.occupied:
        _, writer = await asyncio.open_connection(*gateway.address())
        writer.write(case.occupied)

        async def is_counted():
            return (await gateway.metrics())["drawbridge_http_body_bytes"] >= 40_000

        await eventually(is_counted, what="a part of a body is held")
    response = await abuse(gateway.address(), case.data, drip=case.drip)
    assert response.statuses == [case.status], response.data
    head, _, body = response.data.partition(b"\r\n\r\n")
    problem = json.loads(body)
    assert problem["type"].endswith(case.type)
    assert problem["status"] == case.status
    assert setting in problem["detail"]
    # The detail also says which values are accepted.
    assert ": " in problem["detail"]
    assert (b"Retry-After: " in head) == (case.status == 503)
    assert problem["retryable"] == (case.status in (408, 503))


async def test_a_refused_message_of_a_batch_names_the_setting(gateway_for, upstream):
    await upstream.kill()
    gateway = await gateway_for(upstream, ready=False, env=environment({"upstream.queue.messages": 2, **QUICK}))
    response = await gateway.client().send("a\nb\nc\nd\n", type="application/x-ndjson")
    assert response.status == 207
    first, second, refused, like_it = response.json["results"]
    assert first["state"] == second["state"] == "queued"
    assert "upstream.queue.messages" in refused.pop("detail")
    assert refused == like_it == {"status": 503, "type": "/errors/queue-full"}


@pytest.mark.parametrize("setting", LOGGED)
async def test_the_log_names_the_limit_of_a_refused_connection(setting, gateway_for, upstream):
    management = setting == "http.management_connections"
    gateway = await gateway_for(upstream, env=environment({setting: 2}))
    address = gateway.address("management" if management else "api")

    async def is_refused():
        # The reset may arrive before the connect returns.
        with contextlib.suppress(ConnectionError), contextlib.ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(socket.create_connection(address, timeout=30))
        return any(record.get("limit") == setting for record in gateway.records)

    await eventually(is_refused, what="the log names the setting")


@pytest.mark.parametrize("setting", LOWERED)
async def test_a_parameter_above_its_maximum_is_lowered_to_it(setting, gateway_for, upstream):
    value, parameter = LOWERED[setting]
    gateway = await gateway_for(upstream, env=environment({setting: value}))
    for _ in range(3):
        await upstream.push("x" * 100)
    client = gateway.client()
    await client.collect(3, "earliest")
    if setting == "delivery.maximum_wait":
        # Without the limit, the gateway would hold the poll for longer than the client waits.
        response = await asyncio.wait_for(client.request("GET", f"/v1/messages?{parameter}"), 30)
        assert response.json["messages"] == []
        return
    batch = (await client.request("GET", f"/v1/messages?cursor=earliest&{parameter}")).json
    assert len(batch["messages"]) == (2 if setting == "delivery.maximum_limit" else 1)
    assert batch["more"]


async def test_the_last_response_of_a_connection_says_that_it_closes(gateway_for, upstream):
    gateway = await gateway_for(upstream, env=environment({"http.requests_per_connection": 2}))
    response = await exchange(gateway.address(), (GET + b"\r\n") * 3)
    assert response.statuses == [200, 200]
    assert response.ended
    assert response.data.count(b"Connection: close\r\n") == 1
