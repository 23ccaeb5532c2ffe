"""Redirections of the opening request: their targets, their number, and the header fields sent to the targets."""

import contextlib

import pytest

from harness.raw import RawUpstream, read_head, upgrade
from harness.upstream import Upstream
from harness.waiting import eventually


class Redirecting(RawUpstream):
    """Responds to each request with `response(path)`: a Location, or None for an upgrade. Records the requests."""

    def __init__(self, response, *, status="302 Found", certificate=None):
        super().__init__(self._converse)
        self._response = response
        self._status = status
        self._certificate = certificate
        self.heads = []

    async def start(self):
        await super().start(ssl=self._certificate.server_context() if self._certificate else None)
        return self

    @property
    def paths(self):
        return [head.split(" ")[1] for head in self.heads]

    async def _converse(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head.decode())
        location = self._response(self.paths[-1])
        if location is None:
            await upgrade(_Again(head), writer)
            while await reader.read(65536):
                pass
            return
        writer.write(f"HTTP/1.1 {self._status}\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        with contextlib.suppress(OSError):
            await reader.read()


class _Again:
    """A reader that first returns a head that was already read."""

    def __init__(self, head):
        self._head = head

    async def readuntil(self, _):
        return self._head


async def failure(gateway):
    async def reported():
        session = await gateway.client().session()
        return session if session["last_failure"] else None

    return await eventually(reported, what="the session reports a failure")


@pytest.mark.parametrize(
    "status",
    ["301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"],
)
@pytest.mark.parametrize("scheme", ["ws", "http"])
async def test_a_redirection_to_another_server_is_followed(status, scheme, start, upstream, gateway_for):
    location = f"{scheme}://127.0.0.1:{upstream.port}/chat?room=1#fragment"
    first = await start(Redirecting(lambda path: location, status=status))
    gateway = await gateway_for(first)
    await gateway.client().accepted("hello")
    assert await upstream.has_received(1) == ["hello"]
    assert upstream.requests[0].path == "/chat?room=1"
    assert upstream.requests[0].headers["Host"] == f"127.0.0.1:{upstream.port}"
    assert "room=1" not in gateway.output
    # The next attempt starts with the configured URL.
    upstream.reset_connections()
    await eventually(lambda: len(upstream.requests) == 2, what="a second connection")
    assert len(first.heads) == 2


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/moved", "/moved"),
        ("moved", "/a/moved"),
        ("../moved?x=1", "/moved?x=1"),
        ("?x=1", "/a/b?x=1"),
        ("moved#part", "/a/moved"),
        ("//127.0.0.1:PORT/moved", "/moved"),
    ],
)
async def test_a_reference_is_resolved(location, path, start, gateway_for):
    server = Redirecting(lambda asked: None if asked == path else location.replace("PORT", str(server.port)))
    await start(server)
    await gateway_for(None, "--upstream", f"ws://127.0.0.1:{server.port}/a/b")
    assert server.paths == ["/a/b", path]


async def test_five_hops_are_followed(start, gateway_for):
    server = await start(Redirecting(lambda path: None if path == "/0" else f"/{int(path[1:]) - 1}"))
    await gateway_for(None, "--upstream", f"ws://127.0.0.1:{server.port}/5")
    assert server.paths == ["/5", "/4", "/3", "/2", "/1", "/0"]


async def test_a_sixth_hop_is_not_followed(start, gateway_for):
    server = await start(Redirecting(lambda path: f"/{int(path[1:]) + 1}"))
    gateway = await gateway_for(None, "--upstream", f"ws://127.0.0.1:{server.port}/0", ready=False)
    told = (await failure(gateway))["last_failure"]
    assert told == f"redirected more than 5 times, the last time to ws://127.0.0.1:{server.port}/6"
    assert server.paths[:6] == ["/0", "/1", "/2", "/3", "/4", "/5"]
    assert "/6" not in server.paths


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("ftp://127.0.0.1/", "redirected to a location that is not a WebSocket URL: 'ftp' is not a WebSocket scheme"),
        ("mailto:nobody", "redirected to a location that is not a WebSocket URL"),
        ("http://127.0.0.1:99999/", "the port is not a number from 1 to 65535"),
        ("/with a blank", "a character that must be percent-encoded"),
    ],
)
async def test_a_redirection_to_another_scheme_is_not_followed(location, told, start, gateway_for):
    server = await start(Redirecting(lambda path: location))
    gateway = await gateway_for(server, ready=False)
    session = await failure(gateway)
    assert told in session["last_failure"]
    assert session["last_refusal"]["status"] == 302
    assert f"Location: {location}" in (await gateway.status_page()).refusal[0]


@pytest.mark.parametrize(
    "status", ["300 Multiple Choices", "304 Not Modified", "305 Use Proxy", "306 Switch Proxy", "399 Whatever"]
)
async def test_a_3xx_status_that_is_not_a_redirection_is_a_refusal(status, start, upstream, gateway_for):
    server = await start(Redirecting(lambda path: upstream.url, status=status))
    session = await failure(await gateway_for(server, ready=False))
    assert session["last_failure"] == f"the upstream responded with {status} instead of 101 Switching Protocols"
    assert session["last_refusal"]["status"] == int(status[:3])
    assert upstream.requests == []


async def test_a_redirection_without_a_location_is_a_refusal(raw_upstream, gateway_for):
    async def behave(reader, writer):
        await read_head(reader)
        writer.write(b"HTTP/1.1 302 Found\r\nContent-Length: 7\r\n\r\nnowhere")
        await writer.drain()

    gateway = await gateway_for(await raw_upstream(behave), ready=False)
    session = await failure(gateway)
    assert (
        session["last_failure"] == "the upstream responded with 302 Found instead of 101 Switching Protocols: nowhere"
    )
    assert (await gateway.status_page()).refusal[1] == "nowhere"


@pytest.mark.parametrize("scheme", ["ws", "http"])
async def test_no_redirection_leads_from_wss_to_ws(scheme, start, upstream, gateway_for, authority, certificate):
    location = f"{scheme}://127.0.0.1:{upstream.port}/"
    server = await start(Redirecting(lambda path: location, certificate=certificate))
    url = f"wss://localhost:{server.port}/"
    gateway = await gateway_for(None, "--upstream", url, "--ca-file", authority.path, ready=False)
    assert "redirected from wss to ws, which is not followed" in (await failure(gateway))["last_failure"]
    assert upstream.requests == []


async def test_a_redirection_may_lead_from_ws_to_wss(start, gateway_for, authority, certificate):
    upstream = await start(Upstream(certificate=certificate))
    server = await start(Redirecting(lambda path: f"https://localhost:{upstream.port}/"))
    gateway = await gateway_for(server, "--ca-file", authority.path)
    await gateway.client().accepted("hello")
    assert await upstream.has_received(1) == ["hello"]


SECRETS = ["Authorization: Bearer one", "Cookie: two", "X-Api-Key: three"]


async def test_secrets_are_sent_to_the_same_origin_after_a_redirection(start, gateway_for):
    server = await start(Redirecting(lambda path: None if path == "/new" else "/new"))
    headers = [word for secret in SECRETS for word in ("--header", secret)]
    await gateway_for(server, *headers)
    for head in server.heads:
        assert all(secret in head for secret in SECRETS)


async def test_secrets_are_not_sent_to_another_origin(start, upstream, gateway_for):
    server = await start(Redirecting(lambda path: f"ws://127.0.0.1:{upstream.port}/"))
    headers = [word for secret in (*SECRETS, "Origin: https://app.example") for word in ("--header", secret)]
    await gateway_for(server, *headers)
    assert all(secret in server.heads[0] for secret in SECRETS)
    request = upstream.requests[0].headers
    assert not {"authorization", "cookie", "x-api-key"} & {name.lower() for name in request}
    # Origin is no secret, and servers check it.
    assert request["Origin"] == "https://app.example"


async def test_credentials_of_the_url_are_not_sent_to_another_origin(start, upstream, gateway_for):
    server = Redirecting(lambda path: "/next" if path == "/" else f"ws://127.0.0.1:{upstream.port}/")
    await start(server)
    await gateway_for(None, "--upstream", f"ws://ann:secret@127.0.0.1:{server.port}/")
    assert all("Authorization: Basic YW5uOnNlY3JldA==" in head for head in server.heads)
    assert server.paths == ["/", "/next"]
    assert "Authorization" not in upstream.requests[0].headers


async def test_a_refusal_after_a_redirection_names_the_redirection(start, raw_upstream, gateway_for):
    async def refuses(reader, writer):
        await read_head(reader)
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone")
        await writer.drain()

    second = await raw_upstream(refuses)
    server = await start(Redirecting(lambda path: second.url))
    gateway = await gateway_for(server, ready=False)
    assert "responded with 404 Not Found" in (await failure(gateway))["last_failure"]
    assert (await gateway.status_page()).refusal[1] == "gone"
