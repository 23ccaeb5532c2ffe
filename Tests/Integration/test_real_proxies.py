"""Proxies of other projects: tinyproxy (HTTP CONNECT) and microsocks (SOCKS5)."""

import pytest

from harness.ports import reserve_port
from harness.program import Program
from harness.upstream import Upstream
from harness.waiting import eventually

USER, PASSWORD = "ann", "open-sesame"


class Proxy(Program):
    """A proxy as a child process, listening on loopback."""

    def __init__(self, folder, *, has_credentials):
        super().__init__(folder)
        self._has_credentials = has_credentials

    def url(self, credentials=""):
        return f"{self.scheme}://{credentials}127.0.0.1:{self.port}"


class Tinyproxy(Proxy):
    program, scheme = "tinyproxy", "http"
    # With wrong credentials, the proxy responds with 401, not 407.
    refused = "it rejected the user name or the password"

    def arguments(self):
        lines = [f"Port {self.port}", "Listen 127.0.0.1", "Allow 127.0.0.1", "MaxClients 20", "Timeout 60"]
        if self._has_credentials:
            lines.append(f"BasicAuth {USER} {PASSWORD}")
        path = self._folder / "tinyproxy.conf"
        path.write_text("\n".join(lines) + "\n")
        return ["-d", "-c", path]


class Microsocks(Proxy):
    program, scheme = "microsocks", "socks5h"
    refused = "the proxy rejected the user name or the password"

    def arguments(self):
        credentials = ["-u", USER, "-P", PASSWORD] if self._has_credentials else []
        return ["-i", "127.0.0.1", "-p", str(self.port), *credentials]


PROXIES = [Tinyproxy, Microsocks]


async def last_failure(gateway):
    return (await gateway.client().session())["last_failure"]


@pytest.mark.parametrize("kind", PROXIES)
@pytest.mark.parametrize("has_credentials", [False, True], ids=["open", "with credentials"])
@pytest.mark.parametrize("secure", [False, True], ids=["ws", "wss"])
async def test_the_session_uses_the_proxy(
    kind, has_credentials, secure, start, gateway_for, tmp_path, authority, certificate
):
    upstream = await start(Upstream(echo=True, certificate=certificate if secure else None))
    proxy = await start(kind(tmp_path, has_credentials=has_credentials))
    url = proxy.url(f"{USER}:{PASSWORD}@" if has_credentials else "")
    # The URL contains a name, which the proxy looks up.
    target = f"{'wss' if secure else 'ws'}://localhost:{upstream.port}/"
    gateway = await gateway_for(None, "--upstream", target, "--proxy", url, "--ca-file", authority.path)
    client = gateway.client()
    here = await client.here()
    messages = [f"{number} " + "x" * 10_000 for number in range(50)]
    for message in messages:
        await client.accepted(message)
    assert (await client.collect(50, here))[0] == messages
    assert (await client.session())["proxy"] == proxy.url()


@pytest.mark.parametrize("kind", PROXIES)
async def test_wrong_credentials_are_reported(kind, start, upstream, gateway_for, tmp_path):
    proxy = await start(kind(tmp_path, has_credentials=True))
    gateway = await gateway_for(upstream, "--proxy", proxy.url(f"{USER}:wrong@"), ready=False)
    assert kind.refused in await eventually(lambda: last_failure(gateway), what="the session reports a failure")
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(Tinyproxy, "the proxy responded with 50"), (Microsocks, "the proxy could not connect to the upstream")],
)
async def test_an_upstream_that_the_proxy_cannot_reach_is_reported(kind, expected, start, gateway_for, tmp_path):
    proxy = await start(kind(tmp_path, has_credentials=False))
    target = f"ws://127.0.0.1:{reserve_port()}/"
    gateway = await gateway_for(None, "--upstream", target, "--proxy", proxy.url(), ready=False)
    assert expected in await eventually(lambda: last_failure(gateway), what="the session reports a failure")
