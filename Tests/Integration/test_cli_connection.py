"""The common behaviour of the commands that are clients: one client, uniform errors, and quiet ends of pipes."""

import asyncio
import socket

import pytest
from test_tail import ends

from harness.gateway import BINARY, run
from harness.ports import reserve_port

# Further arguments for each command, with which the command does not wait.
COMMANDS = {
    "send": ["send", "hello"],
    "call": ["call", "{}"],
    "work": ["work", "workers", "--", "true"],
    "status": ["status"],
    "sessions": ["sessions"],
    "reload": ["reload"],
}

every_command = pytest.mark.parametrize("name", COMMANDS)


def arguments(name, *flags):
    """The words of a command, with further flags."""
    first, *rest = COMMANDS[name]
    return [first, *map(str, flags), *rest]


@pytest.mark.parametrize("password", ["p/secret", "p%C3%A4secret", "pä secret"])
async def test_a_password_in_a_url_is_not_shown(password):
    status, out, err = await run("status", "--url", f"http://admin:{password}@127.0.0.1:1")
    assert status == 64
    assert "secret" not in out + err


@every_command
async def test_a_failed_connection_names_the_flag_for_another_address(name):
    url = f"127.0.0.1:{reserve_port()}"
    status, out, err = await run(*arguments(name, "--url", url))
    assert (status, out) == (69, "")
    assert f"no response from http://{url}" in err
    assert "Connection refused" in err
    assert "--url" in err
    assert err.count("\n") == 1


@every_command
async def test_the_address_may_be_in_the_environment(name):
    url = f"127.0.0.1:{reserve_port()}"
    status, _, err = await run(*arguments(name), env={"DRAWBRIDGE_URL": url})
    assert status == 69
    assert url in err


@every_command
async def test_a_missing_token_names_the_flag_for_a_token(name, gateway_for, upstream, tokens, tmp_path):
    tokens.add("somebody", scopes="send")
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_AUTHENTICATION_TOKENS": str(tokens.path)})
    url = gateway.url("management" if name == "reload" else "api")
    status, out, err = await run(*arguments(name, "--url", url))
    assert (status, out) == (69, "")
    assert "status 401" in err
    assert "--token-file" in err
    (tmp_path / "token").write_text("wrong")
    status, _, err = await run(*arguments(name, "--url", url, "--token-file", tmp_path / "token"))
    assert status == 69
    assert "Is the token in --token-file right?" in err
    assert "wrong" not in err
    status, _, err = await run(*arguments(name, "--url", url), env={"DRAWBRIDGE_TOKEN_FILE": "/nowhere"})
    assert status == 66
    assert "/nowhere cannot be read" in err


@every_command
async def test_an_untrusted_certificate_names_the_flag_to_trust_it(name, https_for, authority):
    gateway = await https_for()
    url = f"https://localhost:{gateway.address('https')[1]}"
    status, out, err = await run(*arguments(name, "--url", url))
    assert (status, out) == (69, "")
    assert "is not trusted" in err
    assert "--ca-file" in err
    if name not in ("work", "reload", "call"):
        assert (await run(*arguments(name, "--url", url, "--ca-file", authority.path)))[0] == 0
        assert (await run(*arguments(name, "--url", url), env={"DRAWBRIDGE_CA_FILE": str(authority.path)}))[0] == 0


@every_command
async def test_a_server_that_is_not_a_gateway_is_an_error(name, raw_upstream):
    server = await raw_upstream(ends(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n<html></html>\n"))
    status, out, err = await run(*arguments(name, "--url", f"127.0.0.1:{server.port}"))
    assert (status, out) == (69, "")
    assert "is this the address of" in err
    server = await raw_upstream(ends(b"SSH-2.0-OpenSSH_9.9\r\n"))
    status, out, err = await run(*arguments(name, "--url", f"127.0.0.1:{server.port}"))
    assert (status, out) == (69, "")
    assert "is this the address of" in err


@every_command
async def test_an_incomplete_response_is_an_error(name, raw_upstream):
    server = await raw_upstream(ends(b'HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\n{"id":"d-1","state":"queued"}'))
    status, out, err = await run(*arguments(name, "--url", f"127.0.0.1:{server.port}"))
    assert (status, out) == (69, "")
    assert "cut off" in err


@pytest.mark.parametrize("name", ["tail", *COMMANDS])
@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--tokn-file", "x"], "did you mean '--token-file'?"),
        (["--url"], "needs a value"),
        (["--url", "ftp://x"], "another scheme"),
        (["--url", "gateway"], "neither a scheme nor a port"),
        (["--url", "http://me:secret@x"], "--token-file"),
        (["--ca-file", "/nowhere", "--url", "http://x"], "no effect"),
        (["--ca-file", "/nowhere", "--url", "https://x"], "cannot be read"),
        (["--upstream", "ws://x"], "only 'drawbridge serve' has it"),
    ],
)
async def test_a_wrong_flag_is_explained(name, flags, reason):
    status, out, err = await run(name, *flags)
    assert (status, out) == (64, "")
    assert reason in err
    assert "secret" not in err


@pytest.mark.parametrize("name", ["send", "status", "sessions"])
async def test_a_closed_pipe_ends_the_command_quietly(name, gateway):
    read, write = socket.socketpair()
    read.close()
    process = await asyncio.create_subprocess_exec(
        BINARY, *arguments(name, "--url", gateway.url()), stdout=write.fileno(), stderr=asyncio.subprocess.PIPE
    )
    write.close()
    _, err = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, err) == (0, b"")


@pytest.mark.parametrize("name", ["send", "status", "sessions"])
async def test_a_full_disk_is_reported(name, gateway):
    words = " ".join([str(BINARY), *arguments(name, "--url", gateway.url())])
    process = await asyncio.create_subprocess_shell(f"{words} >/dev/full", stderr=asyncio.subprocess.PIPE)
    _, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 74
    assert b"No space left" in err


async def test_a_gateway_is_reached_on_a_unix_socket_and_below_a_path(gateway_for, upstream, tmp_path):
    gateway = await gateway_for(upstream, "--listen", f"unix:{tmp_path}/api")
    await gateway.ready()
    assert (await run("send", "x", "--url", f"unix:{tmp_path}/api"))[0] == 0
    status, _, err = await run("status", "--url", f"unix:{tmp_path}/other")
    assert status == 69
    assert "No such file" in err


async def test_variables_of_the_client_commands_are_not_settings(upstream):
    env = {"DRAWBRIDGE_URL": "x:1", "DRAWBRIDGE_TOKEN_FILE": "x", "DRAWBRIDGE_CA_FILE": "x"}
    status, _, err = await run("check-config", "--upstream", upstream.url, env=env)
    assert (status, err) == (0, "")


@pytest.mark.parametrize("name", [*COMMANDS, "tail"])
async def test_a_refusal_in_plain_text_is_shown(name, https_for):
    gateway = await https_for()
    host, port = gateway.address("https")
    words = ["tail"] if name == "tail" else arguments(name)
    status, _, err = await run(words[0], "--url", f"{host}:{port}", *words[1:])
    assert status == 69
    assert "status 400: This port accepts HTTPS only: use an https:// URL" in err
