"""The URL of the upstream from a file or a command, which is read for every connection attempt (`upstream.url`)."""

import asyncio
import json
import shlex
import signal

import pytest

from harness.conventions import ConventionUpstream, listen
from harness.gateway import Gateway, run
from harness.upstream import Upstream
from harness.waiting import eventually


@pytest.fixture
def convention(start):
    async def convention(converse=listen, **options):
        return await start(ConventionUpstream(converse, **options))

    return convention


def command(script):
    """The setting of a command that runs in a shell."""
    return f"{{command: [sh, -c, {json.dumps(script)}], timeout: 500ms}}"


async def last_failure(gateway, text):
    """Waits until the last failure contains `text`, and returns the status of the session."""
    client = gateway.client()

    async def failed():
        status = await client.session()
        return status if text in (status["last_failure"] or "") else None

    return await eventually(failed, what=f"the session reports: {text}")


SETTINGS = """
upstream:
  url: %s
  headers: {X-Key: key-of-the-header}
  credential: {env: SECRET, header: "Authorization: Bearer ${credential}"}
  on_open: [{send: "login ${credential}"}]
"""


@pytest.mark.parametrize("source", ["file", "command", "pointer"])
async def test_the_url_is_a_configured_origin(convention, gateway_for, tmp_path, source):
    upstream = await convention()
    url = f"{upstream.url}socket?ticket=one-time-ticket"
    path = tmp_path / "url"
    path.write_text(f"{url}\n" if source != "pointer" else json.dumps({"browser": "x", "url": url}))
    value = {
        "file": f"{{file: '{path}'}}",
        "command": f"{{command: [cat, '{path}']}}",
        "pointer": f"{{command: [cat, '{path}'], pointer: /url}}",
    }[source]
    gateway = await gateway_for(None, config=SETTINGS % value, env={"SECRET": "s3cret"})
    assert await upstream.has_heard(1) == ["login s3cret"]
    request = upstream.last.request
    assert request.path == "/socket?ticket=one-time-ticket"
    assert (request.headers["Authorization"], request.headers["X-Key"]) == ("Bearer s3cret", "key-of-the-header")
    status = await gateway.client().session()
    assert status["upstream"] == f"{upstream.url}***"
    assert not any(part in json.dumps(status) + gateway.output for part in ("one-time-ticket", "socket?"))
    line = await gateway.logs(lambda record: record.get("to") == "ready", what="the connection")
    assert line["url"] == f"{upstream.url}***"


async def test_the_url_is_read_for_every_attempt(convention, gateway_for, tmp_path):
    first, second = await convention(), await convention()
    path = tmp_path / "url"
    path.write_text(first.url)
    gateway = await gateway_for(None, config=f"upstream: {{url: {{file: '{path}'}}}}\n")
    assert len(first.conversations) == 1
    path.write_text("")
    first.reset_connections()
    status = await last_failure(gateway, f"file '{path}' of 'upstream.url.file' is empty")
    assert status["upstream"] == ""
    path.write_text(second.url)
    await second.has_conversations(1)
    await gateway.ready()
    assert len(first.conversations) == 1, "no attempt uses the old URL"


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo half; exit 7", "the command 'sh' of 'upstream.url.command' failed with exit status 7"),
        ("sleep 600", "the command 'sh' of 'upstream.url.command' was killed: it did not end within 0.5 s"),
        ("true", "the output of 'sh' ('upstream.url.command') is empty"),
        ("yes half", "has more than 1048576 bytes"),
        ("echo https://half/", "is not a valid URL: it must begin with ws:// or wss://"),
        ("echo half", "is not a valid URL: no scheme"),
        ("printf 'ws://half/\\r\\nX: y'", "is not a valid URL: it contains a character"),
    ],
)
async def test_an_attempt_without_a_url_fails_with_the_reason(convention, gateway_for, tmp_path, script, text):
    upstream = await convention()
    path = tmp_path / "script"
    path.write_text(script)
    config = f"upstream: {{url: {command(f'. {shlex.quote(str(path))}')}, reconnect: {{maximum: 100ms}}}}\n"
    gateway = await gateway_for(None, config=config, ready=False)
    status = await last_failure(gateway, text)
    assert status["upstream"] == ""
    record = await gateway.logs(lambda record: text in record.get("detail", ""), what="the reason")
    assert record["message"] == "the upstream connection failed"
    assert "url" not in record
    assert "half" not in gateway.output
    # The next attempts run the command again.
    path.write_text(f"echo {upstream.url}")
    await gateway.ready()


async def test_a_program_that_is_missing_and_a_value_that_is_missing_are_named(gateway_for, tmp_path):
    gateway = await gateway_for(None, config="upstream: {url: {command: [/no/such/program]}}\n", ready=False)
    await last_failure(gateway, "the command '/no/such/program' of 'upstream.url.command' cannot be started")
    path = tmp_path / "json"
    path.write_text('{"ok": false, "error": "invalid_auth"}')
    config = f"upstream: {{url: {{file: '{path}', pointer: /url}}}}\n"
    gateway = await gateway_for(None, config=config, ready=False)
    await last_failure(gateway, "has no text at '/url' ('upstream.url.pointer')")
    config = f"upstream: {{url: {{file: '{tmp_path}/none'}}}}\n"
    gateway = await gateway_for(None, config=config, ready=False)
    await last_failure(gateway, f"file '{tmp_path}/none' of 'upstream.url.file' cannot be read: No such file")


async def test_a_redirection_from_the_url_to_another_origin_gets_no_secret(convention, gateway_for):
    stranger = await convention()

    def redirect(connection, request):
        response = connection.respond(307, "there\n")
        response.headers["Location"] = stranger.url if request.path == "/away" else "/away"
        return response

    upstream = await convention(process_request=redirect)
    config = SETTINGS.replace('  on_open: [{send: "login ${credential}"}]\n', "") % command(f"echo {upstream.url}")
    await gateway_for(None, config=config, env={"SECRET": "s3cret"})
    await stranger.has_conversations(1)
    assert not {"Authorization", "X-Key"} & set(stranger.last.request.headers)
    gateway = await gateway_for(
        None, config=SETTINGS % command(f"echo {upstream.url}"), env={"SECRET": "s3cret"}, ready=False
    )
    await last_failure(gateway, f"redirected to {stranger.url}, another origin")
    assert stranger.last.heard == []


async def test_the_url_may_be_wss(start, gateway_for, authority, certificate):
    upstream = await start(Upstream(certificate=certificate))
    config = f"upstream: {{url: {command(f'echo {upstream.url}')}, tls: {{ca_file: '{authority.path}'}}}}\n"
    assert upstream.url.startswith("wss://")
    gateway = await gateway_for(None, config=config)
    assert (await gateway.client().session())["upstream"].startswith("wss://")


async def test_a_reload_keeps_the_connection_unless_the_url_changes(convention, gateway_for, tmp_path):
    first, second = await convention(), await convention()
    (tmp_path / "url").write_text(first.url)
    (tmp_path / "other").write_text(second.url)
    runs = tmp_path / "runs"

    def config(name, level="info"):
        script = f"echo >> {shlex.quote(str(runs))}; cat {shlex.quote(str(tmp_path / name))}"
        return f"log: {{level: {level}}}\nupstream: {{url: {command(script)}}}\n"

    gateway = await gateway_for(None, config=config("url"))
    gateway.rewrite(config("url", "debug"))
    gateway.signal(signal.SIGHUP)
    await gateway.logs(lambda record: record["message"] == "configuration reloaded", what="a reload")
    assert (len(first.conversations), len(runs.read_text())) == (1, 1)
    gateway.signal(signal.SIGHUP)
    await first.has_conversations(2)
    gateway.rewrite(config("other"))
    gateway.signal(signal.SIGHUP)
    await second.has_conversations(1)
    assert len(runs.read_text()) == 3
    await gateway.ready()


async def test_a_shutdown_kills_the_command(gateway_for, tmp_path):
    fifo = tmp_path / "pid"
    script = f"echo $$ > {shlex.quote(str(fifo))}; exec sleep 600"
    config = f"upstream: {{url: {{command: [sh, -c, {json.dumps(script)}], timeout: 60s}}}}\n"
    gateway = await gateway_for(None, config=config, ready=False)
    pid = int(await eventually(lambda: fifo.exists() and fifo.read_text().strip(), what="the command runs"))
    gateway.signal(signal.SIGTERM)
    assert await asyncio.wait_for(gateway.process.wait(), 30) == 0

    def is_gone():
        try:
            with open(f"/proc/{pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    await eventually(is_gone, what="the command has ended")


async def test_the_limit_of_the_host_applies_to_the_url(convention, gateway_for, tmp_path):
    upstream = await convention()
    runs = tmp_path / "runs"
    script = f"echo >> {shlex.quote(str(runs))}; echo {upstream.url}"
    sessions = ", ".join(f"s{number}: {{upstream: {{url: {command(script)}}}}}" for number in range(3))
    config = f"upstream: {{dials: {{per_second: 1, burst: 1}}}}\nsessions: {{{sessions}}}\n"
    gateway = await gateway_for(None, config=config)
    await upstream.has_conversations(3)
    assert (await gateway.metrics())["drawbridge_session_dials_postponed_total"] >= 2
    # A delayed attempt keeps the URL that it has read.
    assert len(runs.read_text()) == 3


async def test_a_url_on_the_command_line_replaces_the_command_of_the_file(convention, start, tmp_path):
    upstream = await convention()
    config = "upstream: {url: {command: [/no/such/program], pointer: /url}}\n"
    gateway = await start(Gateway("--upstream", upstream.url, config=config, folder=tmp_path))
    await gateway.ready()
    assert (await gateway.client().session())["upstream"] == upstream.url


async def test_the_error_of_the_service_is_shown(gateway_for, tmp_path):
    path = tmp_path / "json"
    path.write_text('{"ok":false,"error":"invalid_auth","hint":"s3cret"}')
    config = f"upstream: {{url: {{command: [cat, '{path}'], pointer: /url, error: /error}}}}\n"
    gateway = await gateway_for(None, config=config, ready=False)
    status = await last_failure(gateway, "has no text at '/url' ('upstream.url.pointer'), but the error: invalid_auth")
    assert "s3cret" not in json.dumps(status) + gateway.output


async def test_check_config_shows_no_part_of_the_command(tmp_path):
    path = tmp_path / "drawbridge.yaml"
    path.write_text("upstream: {url: {command: [curl, -H, 'Authorization: Bearer s3cret'], pointer: /url}}\n")
    status, out, err = await run("check-config", "--config", path)
    assert (status, err) == (0, "")
    assert "upstream.url.command: (secret)" in out
    assert "s3cret" not in out
