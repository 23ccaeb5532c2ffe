"""The access log: one line for each request of a client, which says how the request ended."""

import asyncio
import json
import os
import re

import pytest

from harness.gateway import BINARY, Gateway
from harness.raw import exchange, reset
from harness.waiting import eventually

ALL = {"DRAWBRIDGE_LOG_ACCESS": "all"}
FIELDS = ["request_id", "principal", "client", "method", "route", "status", "bytes", "seconds", "held_seconds"]


def lines(gateway):
    return [record for record in gateway.records if record["message"] == "request"]


async def line(gateway, what="the request", **fields):
    """The only line with these values. Fails unless there is exactly one such line."""

    def matches(record):
        return record["message"] == "request" and all(record.get(name) == value for name, value in fields.items())

    return await gateway.logs(matches, what=what)


async def held(gateway, count):
    return (await gateway.metrics())["drawbridge_polls_held"] == count


@pytest.fixture
def logging_all(gateway_for, upstream):
    return gateway_for(upstream, env=ALL)


async def test_a_request_has_one_line_with_every_field(logging_all):
    gateway = await logging_all
    data = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Request-Id: abc-1\r\nContent-Length: 5\r\n\r\nhello"
    response = await exchange(
        gateway.address(), data + b"GET /openapi.yaml HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    assert response.statuses == [202, 200]
    first = await line(gateway, request_id="abc-1")
    second = await line(gateway, route="/openapi.yaml")
    assert list(first) == ["time", "level", "message", *FIELDS]
    assert (first["method"], first["route"], first["status"]) == ("POST", "/v1/messages", 202)
    assert (first["level"], first["principal"], first["held_seconds"]) == ("info", "-", 0)
    assert re.fullmatch(r"127\.0\.0\.1:\d+", first["client"])
    assert first["client"] == second["client"]
    # The two lines together count all bytes that the client received.
    assert first["bytes"] + second["bytes"] == len(response.data)
    assert 0 < first["seconds"] < 30
    assert second["request_id"] == "-", "a response without an id has none in the log"
    assert len(lines(gateway)) == 2


async def test_the_line_of_a_held_poll_says_how_long_it_was_held(logging_all):
    gateway = await logging_all
    client = gateway.client()
    await client.poll(wait=1)
    record = await line(gateway, route="/v1/messages")
    assert 1 <= record["held_seconds"] <= record["seconds"]


async def test_the_line_of_a_wait_for_a_delivery_says_how_long_it_waited(gateway_for, upstream):
    gateway = await gateway_for(upstream, env={**ALL, "DRAWBRIDGE_UPSTREAM_QUEUE_CONFIRM": "true"})
    client = gateway.client()
    accepted = await client.accepted("x")
    await client.request("GET", f"/v1/deliveries/{accepted['id']}?wait=20")
    record = await line(gateway, route="/v1/deliveries/{id}")
    assert record["status"] == 200
    assert accepted["id"] not in gateway.output


@pytest.mark.parametrize("known", [None, "client-7/a=b", "x" * 128])
async def test_the_id_in_the_line_is_the_id_in_the_response(known, logging_all):
    gateway = await logging_all
    client = gateway.client()
    headers = {"X-Request-Id": known} if known else {}
    ids = []
    # The router refuses one request, another is refused after its body was read, and the last for its parameters.
    for method, path, body in (
        ("GET", "/nowhere", None),
        ("POST", "/v1/messages", b"\xff"),
        ("GET", "/v1/messages?limit=0", None),
    ):
        fields = {**headers, "Content-Type": "text/plain"} if body else headers
        response = await client.request(method, path, data=body, headers=fields)
        ids.append(response.problem(response.status)["request_id"])
    await eventually(lambda: len(lines(gateway)) == 3, what="the lines")
    assert [record["request_id"] for record in lines(gateway)] == ids
    assert set(ids) == {known} if known else len(set(ids)) == 3


@pytest.mark.parametrize("odd", ["", "two words", 'quote"', "back\\slash", "x" * 129, "é", "a\tb"])
async def test_an_id_that_is_not_valid_is_not_used(odd, logging_all):
    gateway = await logging_all
    request = b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: " + odd.encode() + b"\r\n\r\n"
    response = await exchange(gateway.address(), request)
    problem = json.loads(response.data.partition(b"\r\n\r\n")[2])
    assert re.fullmatch(r"[0-9a-f]+-\d+-\d+", problem["request_id"])
    assert (await line(gateway))["request_id"] == problem["request_id"]


async def test_two_requests_never_have_the_same_id(logging_all):
    gateway = await logging_all
    get = b"GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n"
    response = await exchange(
        gateway.address(),
        get % (b"/v1/messages?wait=1", b"X-Request-Id: held\r\n")
        + get % (b"/nowhere", b"")
        + get % (b"/openapi.yaml", b"X-Request-Id: file\r\n")
        + get % (b"/nowhere", b"Connection: close\r\n"),
    )
    assert response.statuses == [200, 404, 200, 404]
    await eventually(lambda: len(lines(gateway)) == 4, what="the lines")
    ids = [record["request_id"] for record in lines(gateway)]
    assert (ids[0], ids[2]) == ("held", "file")
    assert [ids[1], ids[3]] == [i.decode() for i in re.findall(rb'"request_id":"([^"]+)"', response.data)]


@pytest.mark.parametrize(
    ("request_bytes", "status", "method", "route"),
    [
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400, "-", "-"),
        (b"GET /v1/session HTTP/1.1\r\n\r\n", 400, "GET", "/v1/session"),
        (b"GET /v1/session HTTP/1.1\r\nHost: x\r\nBad Name: y\r\n\r\n", 400, "-", "-"),
        (b"GET /v1/session HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 40_000 + b"\r\n\r\n", 431, "-", "-"),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, "-", "-"),
        (b"GET /v1/session HTTP/1.1\r\nHost: x\r\n", 408, "-", "-"),
        (b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc", 408, "POST", "/v1/messages"),
        (b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n", 413, "POST", "/v1/messages"),
        (b"BREW /v1/messages HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405, "-", "/v1/messages"),
        (b"GET /v1/session HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 403, "GET", "/v1/session"),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404, "GET", "-"),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else None,
)
async def test_a_refused_request_has_a_line_wherever_it_is_refused(
    request_bytes, status, method, route, gateway_for, upstream
):
    env = {**ALL, "DRAWBRIDGE_HTTP_HEAD_TIMEOUT": "1s", "DRAWBRIDGE_HTTP_BODY_TIMEOUT": "1s"}
    gateway = await gateway_for(upstream, env=env)
    response = await exchange(gateway.address(), request_bytes)
    assert response.statuses == [status]
    record = await line(gateway)
    assert (record["status"], record["method"], record["route"]) == (status, method, route)
    assert record["bytes"] == len(response.data)
    assert record["request_id"] == json.loads(response.data.partition(b"\r\n\r\n")[2])["request_id"]
    assert "aborted" not in record
    assert len(lines(gateway)) == 1


# -- Aborted -----------------------------------------------------------------------------------------------------------


async def test_the_line_says_that_a_held_request_was_aborted(logging_all):
    gateway = await logging_all
    _, writer = await asyncio.open_connection(*gateway.address())
    writer.write(b"GET /v1/messages?wait=50 HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\n\r\n")
    await eventually(lambda: held(gateway, 1), what="the poll is held")
    reset(writer)
    record = await line(gateway, aborted="held")
    assert (record["request_id"], record["status"], record["bytes"]) == ("mine", 0, 0)
    assert record["held_seconds"] > 0
    assert len(lines(gateway)) == 1


@pytest.mark.parametrize(
    "part", [b"GET /v1/ses", b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab"]
)
async def test_the_line_says_that_an_incomplete_request_was_aborted(part, logging_all):
    gateway = await logging_all
    _, writer = await asyncio.open_connection(*gateway.address())
    writer.write(b"GET /openapi.yaml HTTP/1.1\r\nHost: x\r\n\r\n" + part)
    await line(gateway, route="/openapi.yaml")
    reset(writer)
    record = await line(gateway, aborted="receiving")
    assert (record["status"], record["bytes"]) == (0, 0)
    assert record["method"] == ("POST" if part.startswith(b"POST") else "-")
    assert len(lines(gateway)) == 2


async def test_a_response_that_is_not_read_is_aborted_while_sending(gateway_for, upstream):
    gateway = await gateway_for(upstream, env={**ALL, "DRAWBRIDGE_HTTP_WRITE_TIMEOUT": "1s"})
    await upstream.push("x" * (15 << 20))
    client = gateway.client()
    await client.collect(1, "earliest")
    _, writer = await asyncio.open_connection(*gateway.address(), limit=1024)
    writer.transport.pause_reading()
    writer.write(b"GET /v1/messages?cursor=earliest HTTP/1.1\r\nHost: x\r\nX-Request-Id: lazy\r\n\r\n")
    record = await line(gateway, request_id="lazy")
    assert (record["status"], record["aborted"]) == (200, "sending")
    assert 0 < record["bytes"] < 15 << 20
    writer.transport.abort()


async def test_a_connection_without_a_request_has_no_line(logging_all):
    gateway = await logging_all
    for data in (b"", b"\r\n", b"GET /openapi.yaml HTTP/1.1\r\nHost: x\r\n\r\n"):
        _, writer = await asyncio.open_connection(*gateway.address())
        writer.write(data)
        if data.startswith(b"GET"):
            await line(gateway)
        reset(writer)

    async def all_are_gone():
        return (await gateway.metrics())["drawbridge_http_connections"] == 1

    await eventually(all_are_gone, what="the connections have ended")
    assert [record["status"] for record in lines(gateway)] == [200]


# -- Modes and formats -------------------------------------------------------------------------------------------------


async def some_requests(gateway):
    """One success, one error and one aborted request."""
    client = gateway.client()
    assert (await client.request("GET", "/openapi.yaml")).status == 200
    (await client.request("GET", "/nowhere")).problem(404)
    _, writer = await asyncio.open_connection(*gateway.address())
    writer.write(b"GET /v1/messages?wait=50 HTTP/1.1\r\nHost: x\r\n\r\n")
    await eventually(lambda: held(gateway, 1), what="the poll is held")
    reset(writer)
    await eventually(lambda: held(gateway, 0), what="the poll is given up")


@pytest.mark.parametrize(("mode", "statuses"), [(None, []), ("off", []), ("errors", [404, 0]), ("all", [200, 404, 0])])
async def test_the_mode_decides_which_requests_have_a_line(mode, statuses, gateway_for, upstream):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_LOG_ACCESS": mode} if mode else None)
    await some_requests(gateway)
    await gateway.stop()
    assert [record["status"] for record in lines(gateway)] == statuses


async def test_a_reload_changes_the_mode(gateway_for, upstream):
    config = "log: {access: %s}\n"
    gateway = await gateway_for(upstream, config=config % "off")
    client = gateway.client()
    ids = []
    for count, mode in enumerate(["all", "errors", "off", "all"], start=1):
        gateway.rewrite(config % mode)
        gateway.signal(1)

        def is_reloaded(count=count):
            return sum(record["message"] == "configuration reloaded" for record in gateway.records) == count

        await eventually(is_reloaded, what="the reload")
        for path in ("/openapi.yaml", "/nowhere"):
            ids.append(f"{count}-{mode}-{path[1:]}")
            await client.request("GET", path, headers={"X-Request-Id": ids[-1]})
    await gateway.stop()
    logged = [record["request_id"] for record in lines(gateway)]
    assert logged == [i for i in ids if "all" in i or i == "2-errors-nowhere"]


async def test_access_lines_do_not_depend_on_the_log_level(gateway_for, upstream):
    gateway = await gateway_for(upstream, config="log: {}\n")
    gateway.rewrite("log: {level: error, access: all}\n")
    gateway.signal(1)
    client = gateway.client()

    async def is_logged():
        await client.request("GET", "/openapi.yaml")
        return lines(gateway)

    await eventually(is_logged, what="a line")
    assert lines(gateway)[0]["level"] == "info"


class TextGateway(Gateway):
    """Reads the addresses of the listeners from a log in text."""

    async def _read(self, stream):
        async for line in stream:
            self.log.append(line.decode().rstrip("\n"))
            start, *fields = self.log[-1].split("  ")
            words = dict(field.partition("=")[::2] for field in fields if "=" in field)
            self.listening({"message": "listening" if "listening" in self.log[-1] else start, **words})


async def test_access_lines_have_the_format_of_the_log(start, upstream, tmp_path):
    gateway = await start(TextGateway("--upstream", upstream.url, "--log-format", "text", folder=tmp_path, env=ALL))
    client = gateway.client()
    await client.request("GET", "/openapi.yaml", headers={"X-Request-Id": "abc"})
    text = await eventually(lambda: next((line for line in gateway.log if "route=" in line), None), what="the line")
    assert re.fullmatch(
        r"\S+Z info    request  request_id=abc  principal=-  client=127\.0\.0\.1:\d+  method=GET  route=/openapi\.yaml"
        r"  status=200  bytes=\d+  seconds=\d\.\d{6}  held_seconds=0\.000000",
        text,
    )


async def test_on_the_management_listener_only_requests_of_the_api_have_lines(logging_all):
    gateway = await logging_all
    probes = ["/livez", "/readyz", "/", "/metrics", "/nowhere"]
    for path in ("/v1/messages?wait=1", *probes, "/v1/session", "/v1/x", "/%761/x"):
        await gateway.manage(path)
    await gateway.client().request("GET", "/openapi.yaml")
    await gateway.stop()
    records = lines(gateway)
    assert [record["route"] for record in records] == ["/v1/messages", "/v1/session", "-", "-", "/openapi.yaml"]
    assert records[0]["held_seconds"] > 0.5
    assert records[0]["bytes"] > 0


async def test_an_output_that_nobody_reads_delays_no_request(upstream, tmp_path):
    sockets = {name: tmp_path / name for name in ("api", "management")}
    process = await asyncio.create_subprocess_exec(
        BINARY,
        *("serve", "--upstream", upstream.url, "--loops", "1"),
        *("--listen", f"unix:{sockets['api']}", "--management", f"unix:{sockets['management']}"),
        env={**os.environ, **ALL},
        stderr=asyncio.subprocess.PIPE,
        # The reader buffers only this much. The rest stays in the pipe.
        limit=1024,
    )
    try:
        await eventually(sockets["management"].exists, what="the listeners")
        reader, writer = await asyncio.open_unix_connection(sockets["api"])
        # This is about three times the size of the pipe and the buffer.
        for _ in range(80):
            writer.write(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
            for _ in range(100):
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
                assert head.startswith(b"HTTP/1.1 404 ")
                await reader.readexactly(int(re.search(rb"Content-Length: (\d+)", head)[1]))
        writer.close()
        process.terminate()
        records = [json.loads(line) for line in (await process.stderr.read()).splitlines()]
        dropped = sum(record["count"] for record in records if record["message"] == "log lines were dropped")
        assert dropped > 0
        assert dropped + sum(record["message"] == "request" for record in records) == 8000
        assert "shutting down" in [record["message"] for record in records], "other lines have room"
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()


async def test_pipelined_requests_have_their_lines_in_order(logging_all):
    gateway = await logging_all
    paths = [b"/openapi.yaml", b"/v1/session", b"/v1/messages?wait=1", b"/nowhere"] * 25
    data = b"".join(
        b"GET %s HTTP/1.1\r\nHost: x\r\nX-Request-Id: %d\r\n%s\r\n"
        % (path, index, b"Connection: close\r\n" if index == len(paths) - 1 else b"")
        for index, path in enumerate(paths)
    ).replace(b"wait=1", b"wait=0")
    response = await exchange(gateway.address(), data)
    await eventually(lambda: len(lines(gateway)) == len(paths), what="the lines")
    assert [record["request_id"] for record in lines(gateway)] == [str(index) for index in range(len(paths))]
    assert [record["status"] for record in lines(gateway)] == response.statuses
    assert sum(record["bytes"] for record in lines(gateway)) == len(response.data)


# -- Hostile clients ---------------------------------------------------------------------------------------------------

HOSTILE = b"%0d%0a{%22level%22:%22error%22}%1b[31m%e2%80%aeSECRET"


async def test_nothing_hostile_reaches_the_access_log(logging_all):
    gateway = await logging_all
    targets = [
        b"/v1/deliveries/" + HOSTILE,
        b"/v1/sessions/" + HOSTILE + b"/messages",
        b"/errors/" + HOSTILE,
        b"/" + HOSTILE,
        b"/v1/messages?token=" + HOSTILE,
        b"http://" + b"x/v1/session?" + HOSTILE,
        b"/\x1b]0;owned\x07SECRET",
        b"/\xe2\x80\xaeSECRET",
    ]
    for target in targets:
        for method in (b"GET", b"SECRET", b"PUT"):
            await exchange(
                gateway.address(),
                method
                + b" "
                + target
                + b" HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\x7fSECRET\r\nConnection: close\r\n\r\n",
            )
    await eventually(lambda: len(lines(gateway)) == 3 * len(targets), what="the lines")
    assert all(set(record) == {"time", "level", "message", *FIELDS} for record in lines(gateway))
    text = json.dumps(lines(gateway))
    assert "SECRET" not in text
    assert "owned" not in text
    assert text.isascii()


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


async def test_the_lines_about_a_request_name_its_trace(gateway_for, upstream):
    gateway = await gateway_for(upstream, env={**ALL, "DRAWBRIDGE_LOG_LEVEL": "debug"})
    client = gateway.client()
    valid = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "X-Request-Id": "traced"}
    await client.request("GET", "/v1/messages?wait=x", headers=valid)
    assert (await line(gateway, request_id="traced"))["trace_id"] == TRACE
    refused = await gateway.logs(lambda record: record["message"] == "request refused", what="the refusal")
    assert refused["trace_id"] == TRACE
    invalid = {"traceparent": f"00-{TRACE}-0000000000000000-01", "X-Request-Id": "untraced"}
    await client.request("GET", "/v1/messages?wait=0", headers=invalid)
    assert "trace_id" not in await line(gateway, request_id="untraced")
