"""Proxies between the gateway and the upstream (HTTP CONNECT and SOCKS5): their use and their refusals."""

import asyncio

import pytest

from harness.client import exchanges
from harness.gateway import run
from harness.proxy import HTTPProxy, SOCKSProxy
from harness.raw import read_head
from harness.sanitizer import memory_is_judged
from harness.upstream import Upstream
from harness.waiting import eventually

PROXIES = [HTTPProxy, SOCKSProxy]
SECRET = "open%20sesame"


async def failure(gateway):
    """The session's document, once it reports a failed attempt."""

    async def reported():
        session = await gateway.client().session()
        return session if session["last_failure"] else None

    return await eventually(reported, what="the session reports a failure")


@pytest.mark.parametrize("kind", PROXIES)
async def test_a_proxy_carries_the_session(kind, start, upstream, gateway_for):
    proxy = await start(kind())
    gateway = await gateway_for(upstream, "--proxy", proxy.url())
    await exchanges(gateway, upstream)
    assert proxy.asked == [("127.0.0.1", upstream.port)]
    session = await gateway.client().session()
    assert session["proxy"] == proxy.url()
    states = [entry["to"] for entry in session["history"]]
    assert states == ["resolving", "connecting", "proxying", "upgrading", "ready"]


@pytest.mark.parametrize("kind", PROXIES)
async def test_a_proxy_carries_tls(kind, start, gateway_for, authority, certificate):
    upstream = await start(Upstream(certificate=certificate))
    proxy = await start(kind())
    gateway = await gateway_for(upstream, "--proxy", proxy.url(), "--ca-file", authority.path)
    await exchanges(gateway, upstream)
    states = [entry["to"] for entry in (await gateway.client().session())["history"]]
    assert states == ["resolving", "connecting", "proxying", "securing", "upgrading", "ready"]


@pytest.mark.parametrize("kind", PROXIES)
async def test_socks5h_resolves_names_at_the_proxy(kind, start, upstream, gateway_for):
    proxy = await start(kind(resolves={"no-such-name.invalid": "127.0.0.1"}))
    url = f"ws://no-such-name.invalid:{upstream.port}/"
    gateway = await gateway_for(None, "--upstream", url, "--proxy", proxy.url())
    await exchanges(gateway, upstream)
    assert proxy.asked == [("no-such-name.invalid", upstream.port)]


async def test_socks5_resolves_names_at_the_gateway(start, upstream, gateway_for):
    proxy = await start(SOCKSProxy(resolves={"::1": "127.0.0.1"}))
    url = f"ws://localhost:{upstream.port}/"
    gateway = await gateway_for(None, "--upstream", url, "--proxy", proxy.url().replace("socks5h", "socks5"))
    await exchanges(gateway, upstream)
    assert proxy.asked[0][0] in ("127.0.0.1", "::1")


@pytest.mark.parametrize("kind", PROXIES)
async def test_a_proxy_gets_the_configured_credentials(kind, start, upstream, gateway_for):
    proxy = await start(kind(username="ann@example", password="open sesame"))
    gateway = await gateway_for(upstream, "--proxy", proxy.url("ann%40example", SECRET))
    await exchanges(gateway, upstream)
    assert (await gateway.client().session())["proxy"] == proxy.url()
    assert "sesame" not in gateway.output
    # The proxy's credentials do not reach the upstream.
    assert "Proxy-Authorization" not in upstream.requests[0].headers


@pytest.mark.parametrize("kind", PROXIES)
@pytest.mark.parametrize("known", [False, True], ids=["no credentials", "wrong credentials"])
async def test_refused_proxy_credentials_are_not_repeated_continuously(kind, known, start, upstream, gateway_for):
    proxy = await start(kind(username="ann", password="right"))
    url = proxy.url("ann", "wrong") if known else proxy.url()
    gateway = await gateway_for(upstream, "--proxy", url, ready=False)
    reported = (await failure(gateway))["last_failure"]
    assert ("rejected the user name or the password" if known else "requires credentials") in reported
    client = gateway.client()

    async def parked():
        return (await client.session())["state"] == "parked"

    await eventually(parked, what="the session is parked")
    # There is one attempt, and a second attempt in case the credentials have just changed.
    assert proxy.connections == 2
    assert upstream.requests == []
    assert "wrong" not in gateway.output.replace(reported, "")


async def test_a_refusal_is_reported_with_its_head_and_the_beginning_of_its_body(start, raw_upstream, gateway_for):
    async def refuses(reader, writer):
        await read_head(reader)
        writer.write(
            b"HTTP/1.1 403 Forbidden\r\nX-Policy: 17\r\nTransfer-Encoding: chunked\r\nSet-Cookie: secret\r\n\r\n"
            b"3\r\nno!\r\n" + b"2000\r\n" + b"x" * 0x2000 + b"\r\n0\r\n\r\n"
        )
        await writer.drain()
        await reader.read()

    proxy = await raw_upstream(refuses)
    gateway = await gateway_for(
        None, "--upstream", "ws://example.invalid/", "--proxy", f"http://127.0.0.1:{proxy.port}", ready=False
    )
    session = await failure(gateway)
    assert session["last_failure"].startswith("the proxy responded with 403 Forbidden; a tunnel requires 2xx: no!xxx")
    assert len(session["last_failure"]) < 300
    assert session["last_refusal"] == {"phase": "proxying", "status": 403}
    lines, body = (await gateway.status_page()).refusal
    assert lines == ["403 while proxying", "X-Policy: 17", "Transfer-Encoding: chunked"]
    assert body == "no!" + "x" * 4093


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(HTTPProxy, "the proxy responded with 502 Bad Gateway"), (SOCKSProxy, "connection refused (5)")],
)
async def test_an_upstream_that_the_proxy_cannot_reach_is_reported(kind, expected, start, upstream, gateway_for):
    proxy = await start(kind())
    await upstream.stop()
    gateway = await gateway_for(upstream, "--proxy", proxy.url(), ready=False)
    assert expected in (await failure(gateway))["last_failure"]
    # The gateway continues to try.
    await eventually(lambda: proxy.connections >= 3, what="the gateway reconnects")
    await upstream.start()
    await gateway.ready()


async def endless(reader, writer):
    """Sends the beginning of an HTTP response and never ends it."""
    await reader.read(1)
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while not writer.is_closing():
        writer.write(b"X-More: " + b"y" * 1000 + b"\r\n")
        await writer.drain()


async def silent(reader, writer):
    while await reader.read(65536):
        pass


async def closes(reader, writer):
    await reader.read(1)


def says(data):
    async def behave(reader, writer):
        await reader.read(1)
        writer.write(data)
        await writer.drain()
        await silent(reader, writer)

    return behave


@pytest.mark.parametrize(
    ("scheme", "behave", "expected"),
    [
        ("http", silent, "the proxy did not open a tunnel to the upstream within"),
        ("socks5h", silent, "the proxy did not open a tunnel to the upstream within"),
        ("socks5h", says(b"\x05"), "the proxy did not open a tunnel to the upstream within"),
        ("http", closes, "the proxy closed the connection before it opened a tunnel"),
        ("socks5h", closes, "the proxy closed the connection before it opened a tunnel"),
        ("http", endless, "larger than 32768 bytes"),
        ("socks5h", endless, "speaks HTTP, not SOCKS5"),
        ("http", says(b"\x05\x00"), "not valid HTTP"),
        ("http", says(b"HTTP/1.1 100 Continue\r\n\r\n" * 100), "more than 8 interim responses"),
        ("socks5h", says(b"\x05\x01"), "chose authentication method 1, which was not offered"),
        ("socks5h", says(b"\x05\x00\x05\x02"), "not allowed by its rules (2)"),
        # A server of another protocol that sends first. Its bytes come from the upstream, not from the proxy.
        ("http", says(b"HTTP/1.1 200 OK\r\n\r\n220 mail.example ESMTP\r\n"), "not valid HTTP"),
    ],
)
async def test_a_misbehaving_proxy_is_reported_and_has_limits(scheme, behave, expected, raw_upstream, gateway_for):
    proxy = await raw_upstream(behave)
    config = (
        f"upstream:\n  url: ws://example.invalid/\n  proxy: {scheme}://127.0.0.1:{proxy.port}\n"
        "  timeouts:\n    proxy: 300ms\n"
    )
    gateway = await gateway_for(None, config=config, ready=False)
    before = gateway.memory()
    assert expected in (await failure(gateway))["last_failure"]
    await eventually(lambda: proxy.connections >= 3, what="the gateway reconnects")
    await gateway.client().poll(wait=0)
    memory_is_judged()
    assert gateway.memory() < before + (8 << 20)


async def test_an_error_names_the_unreachable_proxy(upstream, gateway_for, start):
    proxy = await start(HTTPProxy())
    url = proxy.url("ann", "secret")
    await proxy.stop()
    gateway = await gateway_for(upstream, "--proxy", url, ready=False)
    reported = (await failure(gateway))["last_failure"]
    assert f"the proxy http://127.0.0.1:{proxy.port} cannot be reached" in reported
    assert "secret" not in gateway.output + reported


@pytest.mark.parametrize("rule", ["*", "127.0.0.0/8", "example.org, 127.0.0.1"])
async def test_hosts_of_no_proxy_are_connected_to_directly(rule, start, upstream, gateway_for):
    proxy = await start(HTTPProxy())
    config = f'upstream:\n  url: {upstream.url}\n  proxy: {proxy.url()}\n  no_proxy: ["{rule}"]\n'
    gateway = await gateway_for(None, config=config)
    await exchanges(gateway, upstream)
    assert proxy.connections == 0
    assert (await gateway.client().session())["proxy"] is None


async def test_proxy_variables_apply_only_if_the_setting_refers_to_them(start, upstream, gateway_for):
    proxy = await start(HTTPProxy())
    env = {name: proxy.url() for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "https_proxy", "all_proxy")}
    await exchanges(await gateway_for(upstream, env=env), upstream)
    assert proxy.connections == 0
    upstream.received.clear()
    config = 'upstream:\n  proxy: "${env:HTTPS_PROXY}"\n  no_proxy: "${env:NO_PROXY}"\n'
    env["NO_PROXY"] = "example.org,.internal"
    await gateway_for(upstream, config=config, env=env)
    assert proxy.tunnels == 1


async def test_a_session_reconnects_through_the_proxy(start, upstream, gateway_for):
    proxy = await start(SOCKSProxy())
    gateway = await gateway_for(upstream, "--proxy", proxy.url())
    upstream.reset_connections()
    await eventually(lambda: proxy.tunnels == 2 and upstream.connected == 1, what="a second tunnel")
    await gateway.ready()
    await asyncio.gather(*(gateway.client().accepted(f"{number}") for number in range(20)))
    assert sorted(await upstream.has_received(20), key=int) == [str(number) for number in range(20)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("proxy: proxy.example:3128", "this value is not valid for 'upstream.proxy': no scheme"),
        ("proxy: https://proxy.example", "TLS to the proxy itself is not supported"),
        ("proxy: socks5://us%zzer:hidden@h", "two hexadecimal digits"),
        ('no_proxy: ["10.0.0.0/99"]', "'10.0.0.0/99' is not valid for 'upstream.no_proxy': use '*'"),
    ],
)
async def test_an_invalid_proxy_setting_prevents_the_start(settings, expected, tmp_path):
    path = tmp_path / "d.yaml"
    path.write_text(f"upstream:\n  url: ws://h/\n  {settings}\n")
    status, _, err = await run("serve", "--config", path, "--listen", "127.0.0.1:0", "--management", "127.0.0.1:0")
    assert status == 78
    assert expected in err
    assert "hidden" not in err


async def test_a_password_is_not_masked_in_our_own_text(gateway_for, upstream):
    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 not pass for user\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        proxy = f"http://user:pass@127.0.0.1:{server.sockets[0].getsockname()[1]}"
        gateway = await gateway_for(upstream, ready=False, env={"DRAWBRIDGE_UPSTREAM_PROXY": proxy})

        async def failure():
            return (await gateway.client().session())["last_failure"]

        text = await eventually(failure, what="the proxy has refused")
    assert text == "the proxy responded with 407 not *** for user: it rejected the user name or the password"
