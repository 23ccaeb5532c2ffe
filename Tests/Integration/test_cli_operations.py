"""`drawbridge status`, `sessions` and `reload`, and the API that they use."""

import json
import signal

from test_tail import Tail, ends

from harness.gateway import Gateway, run
from harness.streams import RawStream
from harness.waiting import eventually


class Watch(Tail):
    command = "status"


async def two_sessions(gateway_for, upstream):
    config = f"sessions: {{market: {{upstream: {{url: '{upstream.url}'}}}}}}\n"
    gateway = await gateway_for(upstream, config=config)
    await eventually(lambda: upstream.connected == 2, what="both sessions are connected")
    return gateway


async def test_status_fits_on_one_screen(gateway, upstream):
    await gateway.ready()
    await gateway.client().request(
        "PUT", "/v1/consumers/mail", data=b'{"share":true}', headers={"Content-Type": "application/json"}
    )
    status, out, err = await run("status", "--url", gateway.url(), "--format", "text")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["gateway", gateway.url()]
    assert "default: connected for " in lines[1]
    assert upstream.url in out
    assert "0 messages, 0 B" in out
    assert lines[-2].split() == ["CONSUMER", "LAG", "LEASES", "DEAD", "LETTERS"]
    assert lines[-1].split() == ["mail", "0", "0", "0"]
    assert len(lines) < 24


async def test_status_says_why_there_is_no_connection(gateway_for, upstream):
    gateway = await gateway_for(upstream)
    await gateway.ready()
    await upstream.stop()

    async def says_so():
        _, out, _ = await run("status", "--url", gateway.url(), "--format", "text")
        return "trying again" in out and "refused" in out

    await eventually(says_so, what="the reason")


async def test_status_in_a_pipe_is_json(gateway_for, upstream):
    gateway = await two_sessions(gateway_for, upstream)
    listed = json.loads((await run("status", "--url", gateway.url()))[1])
    assert [session["session"] for session in listed["sessions"]] == ["default", "market"]
    one = json.loads((await run("status", "--url", gateway.url(), "--session", "market"))[1])
    assert one["session"] == "market"
    _, out, _ = await run("status", "--url", gateway.url(), "--format", "text")
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["SESSION", "default", "market"]
    status, _, err = await run("status", "--url", gateway.url(), "--session", "other")
    assert status == 69
    assert "'other' does not exist" in err


async def test_status_watches_until_a_signal_and_over_a_restart(gateway_for, upstream, start):
    gateway = await gateway_for(upstream)
    port = gateway.address()[1]
    watch = await start(Watch("--url", gateway.url(), "--watch", "--interval", "100ms", terminal=True))
    await eventually(lambda: watch.out.count(b"connected for") > 2, what="several screens")
    assert watch.out.startswith(b"\x1b[H")
    await gateway.kill()
    await eventually(lambda: b"no response from" in watch.out, what="it says that the gateway is gone")
    await gateway_for(upstream, "--listen", f"127.0.0.1:{port}")
    seen = len(watch.out)
    await eventually(lambda: b"connected for" in watch.out[seen:], what="it is back")
    watch.process.send_signal(signal.SIGINT)
    assert await watch.ends() == 0
    status, _, err = await run("status", "--interval", "1s")
    assert status == 64
    assert "without --watch" in err


async def test_sessions_prints_a_table_or_a_json_object_per_line(gateway_for, upstream):
    gateway = await two_sessions(gateway_for, upstream)
    _, out, _ = await run("sessions", "--url", gateway.url())
    assert [json.loads(line)["session"] for line in out.splitlines()] == ["default", "market"]
    _, out, _ = await run("sessions", "--url", gateway.url(), "--format", "text", "--name", "mark*")
    head, line = out.splitlines()
    assert head.split() == ["SESSION", "QUEUED", "PUSHES", "STATE"]
    assert line.split()[:4] == ["market", "0", "0", "connected"]
    assert (await run("sessions", "--url", gateway.url(), "--ready", "false"))[1] == ""


async def test_reload_says_whether_the_configuration_is_in_effect(start, upstream, tmp_path):
    config = f"upstream:\n  url: {upstream.url}\n"
    gateway = await start(Gateway(config=config, folder=tmp_path))
    url = ("--url", gateway.url())
    gateway.rewrite(config + "log: {level: debug}\n")
    status, out, err = await run("reload", *url)
    assert (status, out, err) == (0, "reloaded\n", "")
    await gateway.logs(lambda record: record.get("message") == "configuration reloaded", what="the reload")
    gateway.rewrite("upstream: 5\n")
    status, out, err = await run("reload", *url)
    assert (status, out) == (78, "")
    assert "the old one remains in effect" in err
    state = (await gateway.client().request("GET", "/v1/reload")).json
    assert state == {"reloads": 2, "valid": False}
    gateway.rewrite(config)
    assert (await run("reload", *url))[0] == 0


async def test_a_reload_without_a_changed_setting_opens_new_connections(gateway):
    _, text, _ = await run("reload", "--help")
    assert "every session gets a new connection" in " ".join(text.split())
    assert (await run("reload", "--url", gateway.url()))[0] == 0

    async def causes():
        history = (await gateway.client().session())["history"]
        return [entry["cause"] for entry in history if entry["to"] == "replacing"]

    assert await eventually(causes, what="the connection is replaced") == ["reload without a changed setting"]


async def test_a_reload_needs_the_scope_admin_and_all_sessions(gateway_for, upstream, tokens):
    names = {
        "sender": tokens.add("sender", scopes="send,receive,call"),
        "partly": tokens.add("partly", scopes="admin", sessions="default"),
        "admin": tokens.add("admin", scopes="admin"),
    }
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_AUTHENTICATION_TOKENS": str(tokens.path)})
    for method in ("POST", "GET"):
        for name, expected in (("sender", 403), ("partly", 403), ("admin", 202 if method == "POST" else 200)):
            headers = {"Authorization": f"Bearer {names[name]}"}
            response = await gateway.client().request(method, "/v1/reload", headers=headers)
            assert response.status == expected, (method, name)
        assert (await gateway.client().request(method, "/v1/reload")).status == 401
    assert (await gateway.client().request("PUT", "/v1/reload", headers=headers)).status == 405


async def test_the_first_line_of_a_refusal_is_for_operators(raw_upstream, gateway_for, tokens):
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 29\r\n\r\n\r\nthe key is blocked\r\nsecond"
    server = await raw_upstream(ends(*[refusal] * 100))
    names = {
        name: tokens.add(name, scopes=scopes) for name, scopes in (("admin", "admin,receive"), ("receive", "receive"))
    }
    env = {
        "DRAWBRIDGE_AUTHENTICATION_TOKENS": str(tokens.path),
        "DRAWBRIDGE_UPSTREAM_URL": f"ws://127.0.0.1:{server.port}/",
    }
    gateway = await gateway_for(None, ready=False, env=env)

    async def failure(scope):
        headers = {"Authorization": f"Bearer {names[scope]}"}
        return (await gateway.client().request("GET", "/v1/session", headers=headers)).json["last_failure"] or ""

    async def has_failed():
        return "403" in await failure("admin")

    await eventually(has_failed, what="the refusal")
    assert (await failure("admin")).endswith(": the key is blocked")
    assert "blocked" not in await failure("receive")
    # The reason is shown or hidden in the same way wherever the API shows it.
    client = gateway.client()
    for scope in names:
        headers = {"Authorization": f"Bearer {names[scope]}"}
        (element,) = (await client.request("GET", "/v1/sessions", headers=headers)).json["sessions"]
        fields = f"Authorization: {headers['Authorization']}\r\n"
        stream = await RawStream.open(gateway.address(), "events=session", fields=fields)
        event = (await stream.has(1))[0]
        stream.close()
        for shown in (element["last_failure"], event.json["last_failure"]):
            assert "403" in shown
            assert ("the key is blocked" in shown) == (scope == "admin")
    headers = {"Authorization": f"Bearer {names['admin']}", "Content-Type": "application/json"}
    changed = await client.request("PATCH", "/v1/session", headers=headers, data='{"desired":"up"}')
    assert "the key is blocked" in changed.json["last_failure"]


async def test_without_authentication_a_404_does_not_mention_credentials(gateway_for, upstream):
    only_profiles = "profiles: {p: {upstream: {url: 'ws://127.0.0.1:1/'}, addresses: {allow: [127.0.0.1]}}}\n"
    for gateway in (await gateway_for(upstream), await gateway_for(None, ready=False, config=only_profiles)):
        for path in ("/v1/sessions/other", "/v1/sessions/other/messages"):
            response = await gateway.client().request("GET", path)
            assert response.status == 404
            assert "credentials" not in response.json["detail"]
