"""Error answers: RFC 9457, with the fields a program needs and a sentence a person can use."""

import pytest

CASES = {
    "an unknown path": ("GET", "/nowhere", 404),
    "an unknown path of v1": ("GET", "/v1/nowhere", 404),
    "a method that is not there": ("DELETE", "/v1/messages", 405),
    "another one": ("PUT", "/v1/messages", 405),
    "a parameter nobody knows": ("GET", "/v1/messages?colour=red", 400),
    "a broken escape": ("GET", "/v1/messages?cursor=%zz", 400),
    "a parameter on a post": ("POST", "/v1/messages?colour=red", 400),
}


@pytest.mark.parametrize("name", CASES)
async def test_every_error_is_a_problem(client, name):
    method, path, status = CASES[name]
    answer = await client.request(method, path)
    problem = answer.problem(status)
    assert problem["type"]
    assert len(problem["detail"]) > 15
    if status == 405:
        allowed = {method.strip() for method in answer.headers["Allow"].split(",")}
        assert {"GET", "POST"} <= allowed


async def test_a_parameter_given_twice_is_refused(client):
    (await client.request("GET", "/v1/messages?wait=0&wait=1")).problem(400)


async def test_every_error_has_its_own_request_id(client):
    ids = {(await client.request("GET", "/nowhere")).json["request_id"] for _ in range(20)}
    assert len(ids) == 20


async def test_head_is_get_without_the_body(client):
    answer = await client.request("HEAD", "/v1/messages?wait=0")
    assert answer.status == 200
    assert answer.body == b""
    assert answer.headers["Gateway-Cursor"]


async def test_an_error_tells_nothing_of_the_host(client, upstream):
    await upstream.kill()
    answer = await client.send("x", headers={"TTL": "0"})
    text = answer.body.decode()
    assert "/root" not in text
    assert "/home" not in text
    assert str(upstream.port) not in text
