"""A web page in a browser on the same machine may do nothing, unless its origin is allowed."""

import json

import pytest
from aiohttp import web

from harness.browser import Chromium
from harness.credentials import with_tokens
from harness.raw import exchange
from harness.tokens import bearer
from harness.waiting import eventually

EVIL = "https://evil.example"

PAGES = {
    "a form of another site": {"Origin": EVIL, "Sec-Fetch-Site": "cross-site"},
    "a form of another site in an old browser": {"Origin": EVIL},
    "a sandboxed page": {"Origin": "null"},
    "a page of another site without Origin": {"Sec-Fetch-Site": "cross-site"},
    "a page of another port": {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"},
    "a name that was rebound": {"Host": "evil.example"},
}

REQUESTS = {
    "api": [
        ("POST", "/v1/messages"),
        ("GET", "/v1/messages?wait=0"),
        ("HEAD", "/v1/messages?wait=0"),
        ("GET", "/v1/session"),
        ("PATCH", "/v1/session"),
        ("OPTIONS", "/v1/messages"),
        ("GET", "/openapi.yaml"),
    ],
    "management": [
        ("GET", "/"),
        ("GET", "/metrics"),
        ("GET", "/readyz"),
        ("POST", "/v1/messages"),
        ("GET", "/v1/messages?wait=0"),
        ("GET", "/v1/session"),
        ("PATCH", "/v1/session"),
    ],
}


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("listener", REQUESTS)
async def test_a_foreign_page_gets_403_for_every_request(gateway, upstream, page, listener):
    client = gateway.client(listener)
    for method, path in REQUESTS[listener]:
        data = '{"desired":"down"}' if method == "PATCH" else "forged" if method == "POST" else None
        response = await client.request(method, path, headers={"Content-Type": "text/plain", **PAGES[page]}, data=data)
        if method == "HEAD":
            assert response.status == 403
            continue
        problem = response.problem(403)
        setting = "http.hosts" if "Host" in PAGES[page] else "http.origins"
        assert setting in problem["detail"]
        assert "Access-Control-Allow-Origin" not in response.headers
    # The gateway has forwarded nothing, and the session is unchanged.
    own = gateway.client()
    await own.accepted("own")
    assert await upstream.has_received(1) == ["own"]
    assert (await own.session())["desired"] == "up"


async def test_a_link_on_a_foreign_page_is_refused_with_a_remedy(gateway):
    # Browsers send no Origin with this request, so no origin can be allowed.
    link = await gateway.manage("/", headers={"Sec-Fetch-Site": "cross-site"})
    assert "Open the address directly" in link.problem(403)["detail"]
    assert "add the page's origin" not in link.problem(403)["detail"]


async def test_a_page_of_the_gateway_may_do_everything(gateway):
    client = gateway.client()
    own = {"Origin": gateway.url(), "Sec-Fetch-Site": "same-origin"}
    await client.accepted("x", headers=own)
    assert (await client.get(headers=own, wait=0)).status == 200


async def test_a_person_may_open_an_address_in_the_browser(gateway):
    response = await gateway.manage("/", headers={"Sec-Fetch-Site": "none"})
    assert response.status == 200


async def test_settings_allow_an_origin_and_a_host(gateway_for, upstream):
    env = {
        "DRAWBRIDGE_HTTP_HOSTS": "gateway.example.org",
        "DRAWBRIDGE_HTTP_ORIGINS": "https://app.example.org",
    }
    gateway = await gateway_for(upstream, env=env)
    client = gateway.client()
    page = {"Origin": "https://app.example.org", "Sec-Fetch-Site": "cross-site", "Host": "gateway.example.org:443"}
    await client.accepted("x", headers=page)
    (await client.send("x", headers={**page, "Origin": EVIL})).problem(403)
    (await client.send("x", headers={**page, "Host": "other.example.org"})).problem(403)


@pytest.mark.parametrize(("name", "value"), [("HOSTS", "http://a.example"), ("ORIGINS", "a.example")])
async def test_an_invalid_host_or_origin_in_the_settings_prevents_the_start(gateway_for, upstream, name, value):
    with pytest.raises(AssertionError, match=rf"exit 78\)(?s:.*)http\.{name.lower()}"):
        await gateway_for(upstream, env={f"DRAWBRIDGE_HTTP_{name}": value})


async def test_a_unix_socket_accepts_any_host_and_no_foreign_origin(gateway_for, upstream, tmp_path):
    gateway = await gateway_for(upstream, "--listen", f"unix:{tmp_path}/s")
    client = gateway.client()
    await client.accepted("x", headers={"Host": "anything.example"})
    (await client.send("x", headers={"Origin": EVIL})).problem(403)


async def test_a_listener_on_every_address_accepts_any_host_and_no_foreign_origin(gateway_for, upstream):
    gateway = await gateway_for(
        upstream, "--listen", "0.0.0.0:0", "--access", "none", env={"DRAWBRIDGE_HTTP_HOSTS": ""}
    )
    client = gateway.client()
    await client.accepted("x", headers={"Host": "anything.example"})
    (await client.send("x", headers={"Origin": EVIL})).problem(403)


async def test_no_page_reads_the_management_listener(gateway_for, upstream):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_HTTP_ORIGINS": "https://app.example"})
    page = {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"}
    preflight = {**page, "Access-Control-Request-Method": "GET"}
    for listener, reads in (("api", True), ("management", False)):
        client = gateway.client(listener)
        for method, path, fields in [
            ("GET", "/v1/session" if reads else "/metrics", page),
            ("GET", "/nowhere", page),
            ("OPTIONS", "/v1/session" if reads else "/metrics", preflight),
        ]:
            response = await client.request(method, path, headers=fields)
            assert any(name.lower().startswith("access-control-") for name in response.headers) == reads, path
        # The server itself refuses this request, before the API sees it.
        request = b"GET / HTTP/1.1\r\nHost: x\r\nOrigin: https://app.example\r\nContent-Length: x\r\n\r\n"
        response = await exchange(gateway.address(listener), request)
        assert response.statuses == [400]
        assert (b"access-control-allow-origin" in response.data.lower()) == reads


async def test_a_request_without_host_is_not_from_a_browser(gateway):
    response = await exchange(gateway.address(), b"GET /v1/session HTTP/1.0\r\n\r\n")
    assert response.data.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /v1/session HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/messages?wait=0 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    ],
)
async def test_no_response_may_be_sniffed_as_another_type(gateway, request_bytes):
    response = await exchange(gateway.address(), request_bytes, end_of_input=True)
    assert b"\r\nX-Content-Type-Options: nosniff\r\n" in response.data


# The requests that a page may try. Each result is a value that the page could read, or "failed".
PAGE = """<!doctype html>
<script>
  async function tried(attempt) {
    try { return await attempt(); } catch (error) { return "failed"; }
  }
  async function attempt(base) {
    const post = { method: "POST", body: '{"a":1}', headers: {
      "Content-Type": "application/json", "Authorization": "Bearer x", "Idempotency-Key": "page", "TTL": "60" } };
    return {
      send: await tried(async () => (await fetch(base + "/v1/messages", post)).status),
      cursor: await tried(async () => (await fetch(base + "/v1/messages?wait=0")).headers.get("Gateway-Cursor")),
      missing: await tried(async () => (await (await fetch(base + "/v1/missing")).json()).type),
      change: await tried(async () => (await fetch(base + "/v1/session", { method: "PATCH", body: '{"desired":"up"}',
        headers: { "Content-Type": "application/json" } })).status),
      stream: await tried(() => new Promise((resolve, reject) => {
        const source = new EventSource(base + "/v1/messages?cursor=earliest");
        source.onmessage = (event) => { source.close(); resolve(JSON.parse(event.data).data); };
        source.onerror = () => { source.close(); reject(new Error("closed")); };
      })),
    };
  }
</script>"""


class Site:
    """A web server with one page.

    The browser knows the page's real address. From an unknown address, a page would need a permission for requests to
    this machine.
    """

    async def start(self):
        async def page(request):
            return web.Response(text=PAGE, content_type="text/html")

        app = web.Application()
        app.router.add_get("/", page)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        # For a browser, this is a different site than 127.0.0.1.
        self.origin = f"http://localhost:{self._runner.addresses[0][1]}"
        return self

    async def stop(self):
        await self._runner.cleanup()


async def attempt(gateway, site, start):
    """The results that the page reads."""
    page = await (await start(Chromium())).visit(site.origin + "/")
    return await page.evaluate(f"attempt({json.dumps(gateway.url())})")


async def test_a_page_of_an_allowed_origin_sends_and_reads_in_a_browser(gateway_for, upstream, start):
    site = await start(Site())
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_HTTP_ORIGINS": site.origin})
    await upstream.push("up")
    client = gateway.client()

    async def has_push():
        return (await client.poll(cursor="earliest", wait=0)).payloads == ["up"]

    await eventually(has_push, what="the gateway has the push")
    result = await attempt(gateway, site, start)
    assert result.pop("cursor").startswith("p-"), result
    assert result == {"send": 202, "missing": "/errors/not-found", "change": 200, "stream": "up"}
    assert await upstream.has_received(1) == ['{"a":1}']


async def test_a_page_of_another_origin_cannot_send_or_read_in_a_browser(gateway_for, upstream, start):
    site = await start(Site())
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_HTTP_ORIGINS": "http://localhost:1"})
    await upstream.push("up")
    result = await attempt(gateway, site, start)
    assert set(result.values()) == {"failed"}
    await gateway.client().accepted("own")
    assert await upstream.has_received(1) == ["own"]


# ----------------------------------------------------------------------------------------------------------- The cookie

READS = """async () => {
  const status = async (options) => (await fetch("/v1/messages?wait=0", options)).status;
  return {
    get: await status({}),
    head: await status({ method: "HEAD" }),
    post: await status({ method: "POST", body: "forged", headers: { "Content-Type": "text/plain" } }),
    stream: await new Promise((resolve) => {
      const source = new EventSource("/v1/messages?cursor=earliest");
      source.onmessage = (event) => { source.close(); resolve(JSON.parse(event.data).data); };
      source.onerror = () => { source.close(); resolve("failed"); };
    }),
    withoutIt: await status({ credentials: "omit" }),
  };
}"""


async def add_cookie(page, url, token, **options):
    cookie = {"name": "drawbridge_token", "value": token, "url": f"{url}/v1/", "httpOnly": True}
    await page.context.add_cookies([{**cookie, **options}])


async def test_a_page_of_the_gateway_reads_with_the_cookie_in_a_browser(gateway_for, upstream, start, tokens):
    token = tokens.add("a", scopes="send,receive")
    gateway = await gateway_for(upstream, env=with_tokens(tokens))
    await upstream.push("up")
    page = await (await start(Chromium())).open(gateway.address(), "<!doctype html>")
    await add_cookie(page, gateway.url(), token, sameSite="Strict")
    result = await page.evaluate(READS)
    assert result == {"get": 200, "head": 200, "post": 401, "stream": "up", "withoutIt": 401}
    await gateway.client().accepted("own", headers=bearer(token))
    assert await upstream.has_received(1) == ["own"]


OF_ANOTHER_ORIGIN = """async (url) => {
  const tried = async (options) => {
    try { return (await fetch(url, { credentials: "include", ...options })).status; } catch { return "failed"; }
  };
  const image = new Promise((resolve) => {
    const element = new Image();
    element.onload = element.onerror = () => resolve("tried");
    element.src = url + "&image";
  });
  return [await tried({}), await tried({ mode: "no-cors" }), await image];
}"""


@pytest.mark.parametrize("is_allowed", [False, True])
async def test_a_page_of_another_origin_reads_with_the_cookie_only_if_its_origin_is_allowed(
    gateway_for, upstream, start, tokens, is_allowed
):
    """All ports of a host have the same cookies and are one site, so the browser adds the cookie for this page."""
    site = await start(Site())
    token = tokens.add("a", scopes="receive")
    origins = site.origin if is_allowed else "http://localhost:1"
    env = {**with_tokens(tokens), "DRAWBRIDGE_HTTP_ORIGINS": origins, "DRAWBRIDGE_LOG_ACCESS": "all"}
    gateway = await gateway_for(upstream, env=env)
    url = f"http://localhost:{gateway.address()[1]}"
    page = await (await start(Chromium())).visit(site.origin + "/")
    await add_cookie(page, url, token, sameSite="Strict")
    results = await page.evaluate(OF_ANOTHER_ORIGIN, url + "/v1/messages?wait=0")
    assert results[0] == (200 if is_allowed else "failed")

    def statuses():
        return [line["status"] for line in gateway.records if line["message"] == "request"]

    await eventually(lambda: len(statuses()) == 3, what="the requests are logged")
    # Requests without CORS have no Origin. The gateway refuses them in either case.
    assert sorted(statuses()) == ([200, 403, 403] if is_allowed else [403] * 3)
