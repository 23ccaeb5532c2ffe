"""The command line: help texts that explain, errors that name the place, exit codes for scripts (sysexits.h)."""

import json
import os
import re
import signal
import socket

import pytest

from harness.gateway import BINARY, Gateway, run
from harness.ports import reserve_port
from harness.upstream import Upstream
from harness.waiting import eventually

USAGE, UNAVAILABLE, CONFIG = 64, 69, 78

# Replaces the default ports, which another test or a gateway on the developer's machine may use.
ANY_PORT = ("--listen", "127.0.0.1:0", "--management", "127.0.0.1:0")


async def test_version_prints_one_line():
    status, out, err = await run("version")
    assert status == 0
    assert re.fullmatch(r"drawbridge \d+\.\d+\.\d+.*\n", out)
    assert err == ""


@pytest.mark.parametrize("command", [["serve"], ["demo"], ["check-config"], ["healthcheck"], ["tail"]])
async def test_help_has_examples(command):
    status, out, _ = await run(*command, "--help")
    assert status == 0
    assert "\n  " + " ".join(["drawbridge", *command]) in out, "no line to paste"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["sevre"], "serve"),
        (["serve", "--upstram", "ws://x/"], "upstream"),
        (["serve", "--upstream"], "--upstream"),
    ],
)
async def test_a_wrong_command_line_exits_with_64_and_says_what_is_accepted(arguments, hint):
    status, out, err = await run(*arguments)
    assert status == USAGE
    assert out == ""
    assert hint in err


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--loops", "many"), ("--listen", "nonsense"), ("--log-level", "loud"), ("--upstream", "nonsense")],
)
async def test_an_error_names_the_flag_with_a_wrong_value(flag, value):
    status, out, err = await run("serve", "--upstream", "ws://127.0.0.1:1/", *ANY_PORT, flag, value)
    assert status in (USAGE, CONFIG)
    assert out == ""
    # A URL may contain a password, so the error shows the setting's name instead of the URL.
    assert value in err or "upstream.url" in err


async def test_serve_without_an_upstream_says_how_to_name_one():
    status, _, err = await run("serve", *ANY_PORT)
    assert status in (USAGE, CONFIG)
    assert "--upstream" in err


@pytest.mark.parametrize("url", ["http://x/", "nonsense", "ws://", "ws://x:99999/", "ws://user name/", "wss://x/#part"])
async def test_an_upstream_that_is_not_a_websocket_url_is_refused(url):
    status, _, err = await run("serve", "--upstream", url, *ANY_PORT)
    assert status in (USAGE, CONFIG)
    assert "upstream" in err


BAD_CONFIGURATIONS = {
    "an unknown key": ("upstream:\n  ulr: ws://x/\n", 2, 3, "url"),
    "an unknown section": ("upstraem:\n  url: ws://x/\n", 1, 1, "upstream"),
    "not a duration": ("upstream:\n  url: ws://x/\n  timeouts:\n    opening: fast\n", 4, 14, "fast"),
    "not a URL": ("upstream:\n  url: http://x/\n", 2, 8, "ws"),
    "a list where a map belongs": ("upstream:\n  - ws://x/\n", 2, 3, "upstream"),
    "a key twice": ("upstream:\n  url: ws://x/\n  url: ws://y/\n", 3, 3, "url"),
    "broken YAML": ("upstream:\n  url: [ws://x/\n", 3, 1, ""),
    "an absent variable": ('upstream:\n  url: "${env:DRAWBRIDGE_TEST_NO_SUCH}"\n', 2, 8, "DRAWBRIDGE_TEST_NO_SUCH"),
}


@pytest.mark.parametrize("name", BAD_CONFIGURATIONS)
@pytest.mark.parametrize("command", ["check-config", "serve"])
async def test_an_invalid_configuration_exits_with_78_and_file_line_and_column(tmp_path, name, command):
    text, line, column, hint = BAD_CONFIGURATIONS[name]
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    status, _, err = await run(command, "--config", path)
    assert status == CONFIG, err
    assert f"{path}:{line}:{column}" in err
    assert hint in err


async def test_an_error_names_the_missing_configuration_file(tmp_path):
    status, _, err = await run("check-config", "--config", tmp_path / "absent.yaml")
    assert status in (66, CONFIG)
    assert "absent.yaml" in err


async def test_a_secret_from_a_file_or_the_environment_is_used_and_not_shown(tmp_path, start, upstream):
    secret = tmp_path / "url"
    secret.write_text(upstream.url + "\n")
    gateway = await start(Gateway(config=f"upstream:\n  url: ${{file:{secret}}}\n", folder=tmp_path))
    await gateway.ready()
    (tmp_path / "second").mkdir()
    other = await start(
        Gateway(
            config="upstream:\n  url: ${env:UPSTREAM_URL}\n",
            folder=tmp_path / "second",
            env={"UPSTREAM_URL": upstream.url},
        )
    )
    await other.ready()


async def test_check_config_shows_no_password_no_query_and_no_resolved_reference(tmp_path):
    path = tmp_path / "secret.yaml"
    path.write_text(
        "upstream:\n  url: wss://user:s3cret@example.org/socket?token=s3cret\n  fallback_urls: ['${env:OTHER}']\n"
        "  tls: {server_name: '${env:NAME}'}\n"
    )
    env = {"OTHER": "wss://other.example/?s3cret", "NAME": "s3cret.example"}
    status, out, err = await run("check-config", "--config", path, env=env)
    assert status == 0, err
    assert "s3cret" not in out + err
    assert "wss://***@example.org/socket?***" in out
    assert "${env:OTHER}" in out
    assert "${env:NAME}" in out


async def test_a_reload_with_a_misspelt_url_logs_no_secret(start, upstream, tmp_path):
    gateway = await start(Gateway(config=f"upstream:\n  url: {upstream.url}\n", folder=tmp_path))
    gateway.rewrite("upstream:\n  url: wsss://user:s3cret@example.org/?token=s3cret\n")
    gateway.signal(signal.SIGHUP)
    await gateway.logs(lambda record: "wsss://***@example.org/?***" in record.get("reason", ""), what="the wrong URL")
    assert "s3cret" not in gateway.output


async def test_variables_of_kubernetes_services_are_ignored_and_unknown_ones_logged(start, upstream, tmp_path):
    env = {
        "DRAWBRIDGE_UPSTREAM_URL": upstream.url,
        "DRAWBRIDGE_SERVICE_HOST": "10.0.0.1",
        "DRAWBRIDGE_SERVICE_PORT": "8080",
        "DRAWBRIDGE_PORT": "tcp://10.0.0.1:8080",
        "DRAWBRIDGE_PORT_8080_TCP_ADDR": "10.0.0.1",
        "DRAWBRIDGE_UPSTREAM_TTL": "5s",
    }
    gateway = await start(Gateway(env=env, folder=tmp_path))
    await gateway.ready()
    warnings = [record for record in gateway.records if "place" in record]
    assert {record["level"] for record in warnings} == {"warning"}
    assert [record["place"] for record in warnings] == ["environment variable DRAWBRIDGE_UPSTREAM_TTL"]
    assert "DRAWBRIDGE_UPSTREAM_QUEUE_TTL" in warnings[0]["reason"]
    status, _, err = await run("check-config", env=env)
    assert status == 0, err
    assert err.count("\n") == 1
    assert "warning: environment variable DRAWBRIDGE_UPSTREAM_TTL" in err


async def test_a_setting_may_be_a_variable_or_a_flag(start, upstream, tmp_path):
    gateway = await start(Gateway(env={"DRAWBRIDGE_UPSTREAM_URL": upstream.url}, folder=tmp_path))
    await gateway.ready()


async def test_an_error_names_the_address_that_is_in_use(upstream):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        status, out, err = await run(
            "serve", "--upstream", upstream.url, "--listen", address, "--management", "127.0.0.1:0"
        )
    assert status in (UNAVAILABLE, 71)
    assert address in out + err


async def test_healthcheck_uses_the_management_listener(gateway):
    host, port = gateway.address("management")
    status, _, err = await run("healthcheck", "--management", f"{host}:{port}")
    assert status == 0, err


@pytest.mark.parametrize("management", ["unix", "[::1]:0"])
async def test_healthcheck_uses_listeners_of_every_kind(start, upstream, tmp_path, management):
    if management == "unix":
        management = f"unix:{tmp_path}/management"
    gateway = await start(Gateway("--upstream", upstream.url, "--management", management, folder=tmp_path))
    await gateway.ready()
    status, out, err = await run("healthcheck", "--management", gateway.addresses("management")[0])
    assert (status, err) == (0, "")
    assert out


async def test_healthcheck_needs_a_port():
    status, _, err = await run("healthcheck", "--management", "127.0.0.1:0")
    assert status == CONFIG
    assert "--management: '127.0.0.1:0' is not valid for 'listeners.management'" in err


FLAGS = {
    "profile": "plain",
    "config": "/nowhere",
    "set": "loops=1",
    "listen": "127.0.0.1:0",
    "listen-https": "127.0.0.1:0",
    "management": "127.0.0.1:1",
    "access": "none",
    "loops": "1",
    "kind": "websocket",
    "upstream": "ws://127.0.0.1:1/",
    "subprotocol": "v1",
    "header": "X: y",
    "proxy": "http://127.0.0.1:1",
    "ca-file": "/nowhere",
    "log-level": "info",
    "log-format": "json",
}


@pytest.mark.parametrize("command", ["serve", "demo", "check-config", "healthcheck", "version"])
async def test_help_lists_the_flags_that_a_command_takes_and_the_others_are_refused(command):
    _, out, _ = await run(command, "--help")
    listed = set(re.findall(r"^  --([a-z-]+) ", out, re.MULTILINE)) - {"all"}
    assert listed <= FLAGS.keys()
    assert command != "serve" or listed == FLAGS.keys()
    for flag, value in FLAGS.items():
        # If the value is accepted, the program next fails to find the file.
        status, _, err = await run(command, f"--{flag}={value}", *(["--config=/nowhere"] if listed else []))
        if flag in listed:
            assert status == 66, err
        else:
            assert status == USAGE
            assert f"has no flag '--{flag}'" in err


async def test_the_demo_says_that_its_upstream_is_built_in():
    status, _, err = await run("demo", "--upstream", "ws://127.0.0.1:1/")
    assert status == USAGE
    assert "its upstream is built in" in err


async def test_healthcheck_fails_without_a_response():
    address = f"127.0.0.1:{reserve_port()}"
    status, _, err = await run("healthcheck", "--management", address)
    assert status != 0
    assert address in err


async def test_the_demo_connects_to_no_session_of_the_file(start, tmp_path):
    production = await start(Upstream())
    config = f"sessions: {{market: {{upstream: {{url: '{production.url}'}}}}}}\n"
    gateway = await start(Gateway(command="demo", config=config, folder=tmp_path))
    await gateway.ready()
    sessions = await gateway.client().request("GET", "/v1/sessions")
    assert [session["session"] for session in sessions.json["sessions"]] == ["default"]
    assert production.requests == []


async def test_the_demo_works_without_other_programs(start, curl):
    gateway = await start(Gateway("--listen", "127.0.0.1:0", "--management", "127.0.0.1:0", command="demo"))
    await gateway.ready()
    client = gateway.client()
    cursor = await client.here()
    await client.accepted("hello, demo")
    payloads = []
    while "hello, demo" not in payloads:
        batch = await client.poll(cursor=cursor, wait=10)
        payloads += batch.payloads
        cursor = batch.cursor
    call = await client.request("POST", "/v1/call", data='{"id":1,"method":"add"}')
    assert (call.status, call.json) == (200, {"id": 1, "method": "add"})
    page = f"Open {gateway.url('management')}/ in a browser"
    await eventually(lambda: page in gateway.output, what="it prints the address of the status page")
    # The shell has not found the program by its name, so its commands are printed with its path.
    assert f"  {os.path.abspath(BINARY)} tail --url {gateway.url().removeprefix('http://')} " in gateway.output
    figures = await gateway.manage("/", headers={"Accept": "application/json"})
    assert figures.json["payloads"] is True


async def test_the_start_logs_one_json_line_for_each_listener(gateway):
    addresses = [record for record in gateway.records if record.get("message") == "listening"]
    assert len(addresses) == 2
    assert all(json.dumps(record) for record in addresses)
    assert os.getpid() != gateway.process.pid
