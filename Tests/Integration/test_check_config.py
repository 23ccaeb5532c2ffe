"""One validation: `check-config` and `serve` give the same verdict on the same configuration, and in the same words."""

import os
import signal

import pytest

from harness.gateway import PROJECT, Gateway, run

CONFIG = 78

GOOD = "upstream:\n  url: ws://127.0.0.1:1/\n"
SECURE = "upstream:\n  url: wss://127.0.0.1:1/\n"

# For each case: the mistake, the file, the line and column of the error, and a part of its text.
REFUSED = {
    "no URL": ("log: {level: info}\n", None, "'upstream.url' is not set"),
    "an empty URL": ("upstream:\n  url: ''\n", "2:8", "'upstream.url' is not set"),
    "a port beyond all": ("upstream:\n  url: ws://x:99999/\n", "2:8", "the port is not a number from 1 to 65535"),
    "a fragment": ("upstream:\n  url: wss://x/#part\n", "2:8", "write '#' as %23"),
    "a fallback's port": (GOOD + "  fallback_urls:\n  - ws://a/\n  - ws://b:0/\n", "5:5", "'ws://b:0/' is not valid"),
    "a proxy of another kind": (GOOD + "  proxy: https://u:s3cret@p:1\n", "3:10", "not supported"),
    "a proxy with a path": (GOOD + "  proxy: http://u:s3cret@p:1/x\n", "3:10", "must end with its port"),
    "a rule against the proxy": (GOOD + "  no_proxy: [a.example, 10.0.0.0/33]\n", "3:25", "'10.0.0.0/33'"),
    "redelivery without confirmation": (
        GOOD + "  queue:\n    confirm: false\n    redeliver: unconfirmed\n",
        "5:16",
        "needs upstream.queue.confirm",
    ),
    "water marks": (
        GOOD + "  queue: {low_water: 2KiB, high_water: 1KiB}\n",
        "3:22",
        "'upstream.queue.high_water' (1KiB)",
    ),
    "no CA file": (SECURE + "  tls:\n    ca_file: /nowhere/ca.pem\n", "4:14", "/nowhere/ca.pem cannot be read"),
    "no client certificate": (
        SECURE + "  tls:\n    client_certificate: /nowhere/c.pem\n    client_key: /nowhere/k.pem\n",
        "4:25",
        "/nowhere/c.pem cannot be read",
    ),
    "a certificate without its key": (SECURE + "  tls: {client_certificate: x.pem}\n", "3:29", "set both or none"),
    "a pin": (SECURE + "  tls: {pins: [abc]}\n", "3:16", "'abc' is not valid for 'upstream.tls.pins'"),
    "a server name": (SECURE + "  tls: {server_name: 'a b'}\n", "3:22", "'a b' is not valid"),
    "nothing trusted": (SECURE + "  tls: {system_ca: false}\n", "3:20", "no certificate is trusted"),
    "a listener": (GOOD + "listeners:\n  http: [127.0.0.1:0, nonsense]\n", "4:23", "'nonsense' is not valid"),
    "a listener's port": (GOOD + "listeners:\n  http: ['127.0.0.1:99999']\n", "4:10", "a port from 0 to 65535"),
    "a port with a sign": (GOOD + "listeners:\n  management: ['127.0.0.1:+80']\n", "4:16", "a port from 0 to 65535"),
    "a listener twice": (
        GOOD + "listeners:\n  http: ['127.0.0.1:7']\n  management: ['127.0.0.1:7']\n",
        "5:16",
        "another listener uses this address",
    ),
    "a public listener": (GOOD + "listeners:\n  http: [':0']\n", "4:10", "set access to none"),
    "no access and tokens": (
        GOOD + "access: none\nauthentication: {tokens: /dev/null}\n",
        "3:9",
        "authentication is configured as well",
    ),
    "keys for every service": (
        GOOD + "authentication:\n  jwt: {keys: /dev/null}\n",
        None,
        "'authentication.jwt.audience' is not set",
    ),
    "a certificate's scope": (
        GOOD + "authentication:\n  certificates: [{name: 'dns:a', scopes: [sned]}]\n",
        "4:42",
        "'sned' is not a scope (did you mean 'send'?)",
    ),
    "no listener": (GOOD + "listeners:\n  http: []\n", "4:9", "set at least one address"),
    "a host with a port": (GOOD + "http:\n  hosts: ['x:80']\n", "4:11", "without scheme and port"),
    "an origin without a scheme": (GOOD + "http:\n  origins: [x]\n", "4:13", "scheme://host"),
    "a subprotocol": (GOOD + "  subprotocols: [v1, 'v 2']\n", "3:22", "'v 2' is not valid"),
    "a subprotocol twice": (GOOD + "  subprotocols: [v1, v1]\n", "3:22", "is repeated"),
    "a Host header": (
        GOOD + "  headers:\n    Accept: x\n    Host: s3cret\n",
        "5:5",
        "the field Host is set by the handshake itself",
    ),
    "a credential as Host": (
        GOOD + "  credential:\n    file: /dev/null\n    header: 'Host: ${credential}'\n",
        "5:13",
        "the field Host is set by the handshake itself",
    ),
    "a credential for nothing": (GOOD + "  credential: {file: /dev/null}\n", "3:22", "it is not sent anywhere"),
    "half a subscription": (GOOD + "  subscriptions: {add: {key: /k}}\n", "3:30", "match and key must be set together"),
    "a reply to nothing": (GOOD + "  heartbeat: {server: {reply: x}}\n", "3:31", "upstream.heartbeat.server.match"),
    "an expectation of nothing": (
        GOOD + "  heartbeat: {client: {expect: x}}\n",
        "3:32",
        "upstream.heartbeat.client.message",
    ),
    "a name of a session": (
        GOOD + "sessions:\n  'a b': {}\n",
        "4:3",
        "is not a valid name of a session: use 1 to 64 letters",
    ),
    "a session without a URL": (
        GOOD + "sessions:\n  market: {delivery: {messages: 9}}\n",
        "4:3",
        "every named session needs a URL",
    ),
    "a session called default": (GOOD + "sessions: {default: {}}\n", "3:12", "by 'upstream' at the top of the file"),
    "a session's URL": (
        "sessions:\n  market: {upstream: {url: 'ws://h:0/'}}\n",
        "2:28",
        "'ws://h:0/' is not valid for 'sessions.market.upstream.url': the port is not a number",
    ),
    "a session's certificate": (
        "sessions:\n  m:\n    upstream:\n      url: wss://h/\n      tls: {ca_file: /nowhere/ca.pem}\n",
        "5:22",
        "'sessions.m.upstream.tls.ca_file' cannot be used: CA file /nowhere/ca.pem",
    ),
    "what a session shares": (
        "sessions:\n  m: {upstream: {url: 'ws://h/', network: {settle: 1s}}}\n",
        "2:34",
        "'sessions.m.upstream.network' applies to the whole gateway",
    ),
    "messages that a store cannot hold": (
        GOOD + "http: {body_bytes: 256MiB}\nstore: {engine: sqlite}\n",
        "3:20",
        "with 'store.engine: sqlite', use at most 128MiB",
    ),
    "HTTPS without a certificate": (
        GOOD + "listeners: {https: ['127.0.0.1:0'], tls: {key: key.pem}}\n",
        None,
        "'listeners.tls.certificate' is not set, but 'listeners.https' is set: set it to a PEM file",
    ),
    "a wait above its maximum": (GOOD + "delivery: {wait: 1h}\n", "3:18", "'delivery.maximum_wait' (55s, the default)"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_check_config_refuses_what_serve_refuses(tmp_path, name):
    text, place, hint = REFUSED[name]
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    status, out, err = await run("check-config", "--config", path)
    assert (status, out) == (CONFIG, ""), err
    assert hint in err
    assert "s3cret" not in err
    if place is not None:
        assert f"{path}:{place}: " in err
    assert await run("serve", "--config", path) == (status, out, err)


async def test_all_errors_are_reported_together(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(
        "log: {level: loud}\nlisteners: {http: [nonsense]}\nhttp: {origins: [x], fields: 1}\n"
        "upstream: {url: 'ws://h:99999/'}\n"
    )
    status, _, err = await run("check-config", "--config", path)
    assert status == CONFIG
    # Errors are in the order of the file.
    places = [line.split(": ")[1].removeprefix(f"{path}:") for line in err.splitlines()]
    assert places == ["1:14", "2:20", "3:18", "3:30", "4:17"]
    assert await run("serve", "--config", path) == (status, "", err)


async def test_an_error_that_follows_from_another_is_not_reported(tmp_path):
    path = tmp_path / "bad.yaml"
    # The URL is not missing: its value or its key is wrong. No second error may say that the URL is missing.
    for text in (
        "upstream: {url: 'http://h/'}\n",
        "upstraem: {url: 'ws://h/'}\n",
        "upstream: {url: '${env:NONE}'}\n",
        "]",
    ):
        path.write_text(text)
        status, _, err = await run("check-config", "--config", path)
        assert (status, len(err.splitlines())) == (CONFIG, 1), err
    # This file says nothing about a URL.
    path.write_text("log: {level: loud}\n")
    _, _, err = await run("check-config", "--config", path)
    assert "level" in err
    assert "'upstream.url' is not set" in err


async def test_a_warning_says_which_tls_files_are_not_checked(tmp_path):
    path = tmp_path / "plain.yaml"
    tls = "  tls: {ca_file: /nowhere/ca.pem, client_certificate: /nowhere/c.pem, client_key: /nowhere/k.pem}\n"
    path.write_text(GOOD + tls)
    status, _, err = await run("check-config", "--config", path)
    assert status == 0
    assert err.count("not used and not checked, because no upstream URL is wss") == 3
    assert f"warning: {path}:3:18: 'upstream.tls.ca_file'" in err
    # These settings are used by a fallback URL with `wss`.
    path.write_text(GOOD + "  fallback_urls: ['wss://127.0.0.1:1/']\n" + tls)
    status, _, err = await run("check-config", "--config", path)
    assert status == CONFIG
    assert "/nowhere/ca.pem cannot be read" in err


async def test_a_store_that_cannot_be_opened_is_a_warning(tmp_path):
    path = tmp_path / "store.yaml"
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for store, reason in (
        ("none/x.db", f"folder '{tmp_path}/none' does not exist: create it, writable for user"),
        ("file/x.db", f"'{tmp_path}/file' is not a folder"),
        ("folder", "it is a folder: add the name of a file"),
    ):
        path.write_text(GOOD + f"store:\n  engine: sqlite\n  path: {store}\n")
        status, _, err = await run("check-config", "--config", path)
        assert status == 0
        assert err.startswith(f"drawbridge: warning: {path}:5:9: a start would fail at present: store '{tmp_path}/")
        assert reason in err
        # A start fails for the same reason.
        status, _, err = await run("serve", "--config", path, "--listen", "127.0.0.1:0", "--management", "127.0.0.1:0")
        assert status not in {0, CONFIG}
        assert reason in err
    path.write_text(GOOD + "store: {engine: sqlite, path: folder/x.db}\n")
    assert (await run("check-config", "--config", path))[2] == ""
    assert list((tmp_path / "folder").iterdir()) == []


async def test_limits_of_principals_without_authentication_are_a_warning(tmp_path):
    path = tmp_path / "limits.yaml"
    path.write_text(GOOD + "limits:\n  principal: {requests: 5/s, held: 9, messages: none}\n  address: {held: 9}\n")
    status, _, err = await run("check-config", "--config", path)
    assert status == 0
    for place, setting in (("4:25", "requests"), ("4:36", "held")):
        warning = f"'limits.principal.{setting}' has no effect: the limit needs authentication"
        assert f"warning: {path}:{place}: {warning}" in err
    assert "principal.messages" not in err
    assert "limits.address" not in err.replace("'limits.address' applies", "")
    tokens = tmp_path / "tokens"
    tokens.write_text("")
    path.write_text(path.read_text() + f"authentication: {{tokens: '{tokens}'}}\n")
    status, _, err = await run("check-config", "--config", path)
    assert (status, err) == (0, "")


async def test_named_sessions_are_shown_and_need_no_default_session(tmp_path):
    path = tmp_path / "sessions.yaml"
    path.write_text(
        "upstream: {on_demand: true}\nsessions:\n  market: {upstream: {url: 'ws://h/?s3cret', queue: {messages: 9}}}\n"
    )
    status, out, err = await run("check-config", "--config", path)
    assert status == 0
    assert "s3cret" not in out
    assert [line.split("  #")[0] for line in out.splitlines() if line.startswith("sessions.")] == [
        'sessions.market.upstream.url: "ws://h/?***"',
        "sessions.market.upstream.queue.messages: 9",
    ]
    assert f"warning: {path}:1:23: 'upstream.on_demand' has no effect" in err


async def test_an_error_names_the_variable_or_the_flag():
    env = {"DRAWBRIDGE_UPSTREAM_TLS_PINS": "abc", "DRAWBRIDGE_UPSTREAM_URL": "wss://127.0.0.1:1/"}
    for command in ("check-config", "serve"):
        status, _, err = await run(command, env=env)
        assert status == CONFIG
        assert "environment variable DRAWBRIDGE_UPSTREAM_TLS_PINS: 'abc' is not valid" in err
        status, _, err = await run(command, "--upstream", "ws://127.0.0.1:1/", "--listen", "nonsense")
        assert status == CONFIG
        assert "--listen: 'nonsense' is not valid" in err


async def test_half_a_client_certificate_is_one_error(tmp_path):
    path = tmp_path / "half.yaml"
    path.write_text(SECURE + "  tls: {client_certificate: /nowhere/c.pem}\n")
    status, _, err = await run("check-config", "--config", path)
    assert status == CONFIG
    assert len(err.splitlines()) == 1
    assert "set both or none" in err


async def test_a_reload_refuses_what_serve_refuses(start, upstream, tmp_path):
    config = f"upstream:\n  url: {upstream.url}\n"
    gateway = await start(Gateway(config=config, folder=tmp_path))
    await gateway.ready()
    gateway.rewrite(config + "  tls: {pins: [abc]}\n")
    gateway.signal(signal.SIGHUP)
    await gateway.logs(lambda record: "drawbridge.yaml:3:16: 'abc'" in record.get("reason", ""), what="the place")
    assert len(upstream.requests) == 1


async def test_the_committed_configuration_is_accepted_with_an_upstream():
    path = PROJECT / "config/drawbridge.yaml"
    status, _, err = await run("check-config", "--config", path, "--upstream", "wss://example.org/")
    assert (status, err) == (0, "")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
async def test_a_file_may_have_a_byte_order_mark_and_any_line_ends(tmp_path, encoding, line_end):
    path = tmp_path / "good.yaml"
    path.write_bytes((GOOD + "  tls:\n").replace("\n", line_end).encode(encoding))
    status, out, err = await run("check-config", "--config", path)
    assert (status, err) == (0, "")
    assert 'upstream.url: "ws://127.0.0.1:1/"' in out


async def test_a_file_in_another_encoding_is_refused_with_the_place(tmp_path):
    path = tmp_path / "latin.yaml"
    path.write_bytes(GOOD.encode() + "  # f\u00fcr\n".encode("latin-1"))
    status, _, err = await run("check-config", "--config", path)
    assert status == CONFIG
    assert f"{path}:3:6: not valid UTF-8" in err


async def test_a_configuration_can_come_through_a_pipe():
    reader, writer = os.pipe()
    os.set_inheritable(reader, True)
    os.write(writer, GOOD.encode())
    os.close(writer)
    try:
        status, out, err = await run("check-config", "--config", f"/proc/{os.getpid()}/fd/{reader}")
    finally:
        os.close(reader)
    assert (status, err) == (0, "")
    assert 'upstream.url: "ws://127.0.0.1:1/"' in out


@pytest.mark.parametrize("command", ["check-config", "serve", "healthcheck", "demo"])
async def test_an_unreadable_file_exits_with_66_and_the_reason(tmp_path, command):
    status, _, err = await run(command, "--config", tmp_path)
    assert status == 66
    assert f"{tmp_path} cannot be read: Is a directory" in err
