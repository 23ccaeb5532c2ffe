"""Error responses (RFC 9457): fields for programs, and a sentence for people."""

import json

import pytest

from harness.raw import exchange
from harness.waiting import eventually

CASES = {
    "an unknown path": ("GET", "/nowhere", 404),
    "an unknown path of v1": ("GET", "/v1/nowhere", 404),
    "a parameter nobody knows": ("GET", "/v1/messages?colour=red", 400),
    "a broken escape": ("GET", "/v1/messages?cursor=%zz", 400),
    "a parameter on a post": ("POST", "/v1/messages?colour=red", 400),
}


@pytest.mark.parametrize("name", CASES)
async def test_every_error_response_is_a_problem_document(client, name):
    method, path, status = CASES[name]
    response = await client.request(method, path)
    problem = response.problem(status)
    assert problem["type"]
    assert len(problem["detail"]) > 15


async def test_a_parameter_given_twice_is_refused(client):
    (await client.request("GET", "/v1/messages?wait=0&wait=1")).problem(400)


async def test_every_error_has_its_own_request_id(client):
    ids = {(await client.request("GET", "/nowhere")).json["request_id"] for _ in range(20)}
    assert len(ids) == 20


async def test_an_error_reveals_nothing_about_the_machine(client, upstream):
    await upstream.kill()
    response = await client.send("x", headers={"TTL": "0"})
    text = response.body.decode()
    assert "/root" not in text
    assert "/home" not in text
    assert str(upstream.port) not in text


POST = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\n"
PROBLEMS_OF_HTTP = {
    "a large body": (POST + b"Content-Length: 17000000\r\n\r\n", 413, "content-too-large"),
    "a large body in chunks": (POST + b"Transfer-Encoding: chunked\r\n\r\nF000001\r\n", 413, "content-too-large"),
    "a long request line": (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n", 414, "uri-too-long"),
    "a large head": (b"GET / HTTP/1.1\r\nX: " + b"a" * 40000 + b"\r\n\r\n", 431, "header-fields-too-large"),
    "another expectation": (
        POST + b"Expect: 200-ok\r\nContent-Length: 1\r\n\r\na",
        417,
        "expectation-failed",
    ),
    "another coding": (
        POST + b"Transfer-Encoding: gzip\r\n\r\n",
        501,
        "unsupported-transfer-coding",
    ),
    "another version": (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505, "unsupported-version"),
    "a CONNECT": (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 405, "method-not-allowed"),
    "no Host": (b"GET / HTTP/1.1\r\n\r\n", 400, "protocol-error"),
}


@pytest.mark.parametrize("name", PROBLEMS_OF_HTTP)
async def test_an_http_error_has_its_own_problem_type(gateway, name):
    request, status, kind = PROBLEMS_OF_HTTP[name]
    response = await exchange(gateway.address(), request)
    assert response.statuses == [status]
    problem = json.loads(response.data.partition(b"\r\n\r\n")[2])
    assert problem["type"].endswith(f"/errors/{kind}")
    assert problem["status"] == status


async def test_the_default_session_has_a_name_without_a_slash(client):
    response = await client.request("GET", "/v1/sessions/default")
    assert response.json["session"] == "default"
    (await client.request("GET", "/v1/sessions/default/")).problem(404)


async def test_every_path_refuses_parameters_that_it_does_not_take(gateway):
    for listener, paths in {
        "api": ["/v1/session", "/openapi.yaml", "/v1/messages"],
        "management": ["/", "/livez", "/readyz", "/startupz", "/metrics"],
    }.items():
        client = gateway.client(listener)
        for path in paths:
            problem = (await client.request("GET", f"{path}?colour=red")).problem(400)
            assert "'colour'" in problem["detail"]


async def test_an_error_names_the_line_of_a_batch_that_is_not_utf_8(client, upstream):
    body = b'{"a":1}\n\n\xff\xfe\nlast\n'
    problem = (await client.send(body, type="application/x-ndjson")).problem(400)
    assert "line 3" in problem["detail"]
    await client.accepted("one")
    assert await upstream.has_received(1) == ["one"]


@pytest.mark.parametrize(("setting", "value", "named"), [("MESSAGES", "2", "2 messages"), ("BYTES", "1KiB", "1KiB")])
async def test_a_full_queue_names_its_limit_and_its_cause(gateway_for, upstream, setting, value, named):
    await upstream.kill()
    env = {f"DRAWBRIDGE_UPSTREAM_QUEUE_{setting}": value, "DRAWBRIDGE_SHUTDOWN_FLUSH": "100ms"}
    gateway = await gateway_for(upstream, ready=False, env=env)
    client = gateway.client()
    await client.accepted("x" * 600)
    if setting == "MESSAGES":
        await client.accepted("x" * 600)
    problem = (await client.send("x" * 600)).problem(503)
    assert f"upstream.queue.{setting.lower()}" in problem["detail"]
    assert named in problem["detail"]
    assert "not connected" in problem["detail"]


async def test_a_problem_is_logged_under_its_request_id(gateway_for, upstream):
    gateway = await gateway_for(upstream, "--log-level", "debug")
    client = gateway.client()
    problem = (await client.request("PUT", "/v1/messages?token=SECRET")).problem(405)
    record = await gateway.logs(lambda record: record.get("request_id") == problem["request_id"], what="the problem")
    assert record["level"] == "debug"
    assert (record["status"], record["method"], record["path"]) == (405, "PUT", "/v1/messages")
    assert record["type"] == "method-not-allowed"
    assert record["detail"] == problem["detail"]
    assert record["client"].startswith("127.0.0.1:")
    assert "SECRET" not in gateway.output


async def test_a_problem_of_the_gateway_is_logged_at_info_with_a_limited_rate(gateway_for, upstream):
    await upstream.kill()
    gateway = await gateway_for(upstream, ready=False)
    client = gateway.client()
    (await client.request("GET", "/nowhere")).problem(404)
    ids = [(await client.send("x", headers={"TTL": "0"})).problem(503)["request_id"] for _ in range(200)]

    def logged():
        return [record for record in gateway.records if record["message"] == "request refused"]

    await eventually(logged, what="a line")

    # The log has no line for most of the 200 requests. A later line contains their number, however long they took.
    async def is_counted():
        await client.send("x", headers={"TTL": "0"})
        return any("suppressed" in record for record in logged())

    await eventually(is_counted, what="the count of the others")
    assert logged()[0]["request_id"] == ids[0]
    assert {record["level"] for record in logged()} == {"info"}
    assert {record["status"] for record in logged()} == {503}
