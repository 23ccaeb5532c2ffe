"""`drawbridge init`, `check-config`, `completion` and `man`: the commands before there is a gateway."""

import asyncio
import contextlib
import hashlib
import os
import pty
import shutil
import stat
import subprocess

import pytest

from harness.containers import command
from harness.gateway import BINARY, Gateway, run


async def test_init_writes_a_small_configuration_that_works(start, upstream, tmp_path):
    path = tmp_path / "drawbridge.yaml"
    status, out, err = await run("init", path, "--upstream", upstream.url)
    assert (status, err) == (0, "")
    assert f"drawbridge serve --config {path}" in out
    text = path.read_text()
    assert len(text.splitlines()) < 40
    status, out, _ = await run("check-config", "--config", path)
    assert status == 0
    assert out.startswith(f"{path}: valid\n")
    gateway = await start(Gateway(config=text, folder=tmp_path))
    await gateway.ready()


async def test_init_replaces_no_file_and_writes_nothing_wrong(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("mine")
    status, _, err = await run("init", path, "--upstream", "ws://x/")
    assert status == 73
    assert "--force" in err
    assert path.read_text() == "mine"
    status, _, err = await run("init", path, "--force", "--upstream", "http://x/")
    assert status == 78
    assert "wss://" in err
    assert path.read_text() == "mine"
    assert (await run("init", path, "--force", "--upstream", "ws://x/"))[0] == 0
    assert "ws://x/" in path.read_text()
    status, _, err = await run("init", tmp_path / "none/x.yaml", "--upstream", "ws://x/")
    assert status == 73
    assert "No such file" in err
    status, _, err = await run("init", tmp_path / "y.yaml")
    assert status == 64
    assert "--upstream" in err


async def test_init_takes_every_flag_and_quotes_what_is_given(tmp_path):
    flags = ["--upstream", "wss://x/?q='a'", "--kind", "socketio", "--listen", "127.0.0.1:1", "--store", "it's.db"]
    status, out, _ = await run("init", "-", *flags, "--tokens", "tokens")
    assert status == 0
    for text in (
        "url: 'wss://x/?q=''a'''",
        "kind: 'socketio'",
        "['127.0.0.1:1']",
        "path: 'it''s.db'",
        "tokens: 'tokens'",
    ):
        assert text in out


async def on_a_terminal(*words, answers=b""):
    """Runs the program on a terminal. Returns the exit status and all that was shown."""
    main, child = pty.openpty()
    process = await asyncio.create_subprocess_exec(BINARY, *words, stdin=child, stdout=child, stderr=child)
    os.close(child)
    os.write(main, answers)
    status = await asyncio.wait_for(process.wait(), 30)
    output = b""
    with contextlib.suppress(OSError):
        while data := os.read(main, 65536):
            output += data
    os.close(main)
    return status, output.decode()


async def test_init_asks_on_a_terminal(tmp_path):
    answers = b"wss://asked.example/\n\n127.0.0.1:9999\n\ntokens\n"
    status, output = await on_a_terminal("init", tmp_path / "asked.yaml", answers=answers)
    assert status == 0
    assert "WebSocket service to connect to" in output
    text = (tmp_path / "asked.yaml").read_text()
    for part in ("wss://asked.example/", "kind: 'websocket'", "127.0.0.1:9999", "#store:", "tokens: 'tokens'"):
        assert part in text


async def test_init_asks_again_after_an_invalid_answer(tmp_path):
    answers = b"http://wrong.example/\nws://right.example/\nsmtp\nsocketio\nnowhere\n127.0.0.1:9999\n\n\n"
    status, output = await on_a_terminal("init", tmp_path / "asked.yaml", answers=answers)
    assert status == 0
    places = [
        output.index(text)
        for text in (
            "'http://wrong.example/' is not valid for 'upstream.url'",
            "Protocol of the service",
            "'smtp' is not valid for 'upstream.kind'",
            "Address for clients",
            "'nowhere' is not valid for 'listeners.http'",
            "File that keeps messages",
        )
    ]
    assert places == sorted(places)
    text = (tmp_path / "asked.yaml").read_text()
    for part in ("url: 'ws://right.example/'", "kind: 'socketio'", "'127.0.0.1:9999'"):
        assert part in text


async def test_init_refuses_an_invalid_flag_before_it_asks(tmp_path):
    status, output = await on_a_terminal("init", tmp_path / "asked.yaml", "--listen", "nowhere")
    assert status == 78
    assert "'nowhere' is not valid for 'listeners.http'" in output
    assert "WebSocket service" not in output


@pytest.mark.parametrize("answers", [b"\n", b"\x04"])
async def test_init_writes_nothing_without_input(tmp_path, answers):
    status, output = await on_a_terminal("init", tmp_path / "asked.yaml", answers=answers)
    assert status == 64
    assert "nothing is written" in output
    assert not (tmp_path / "asked.yaml").exists()


async def test_a_token_on_a_terminal_is_printed_with_instructions():
    status, output = await on_a_terminal("token", "me")
    assert status == 0
    assert "authentication.tokens" in output
    assert "--out me.token >>tokens" in output
    assert "within two seconds" in " ".join((await run("token", "--help"))[1].split())


async def test_check_config_shows_only_what_differs(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("upstream:\n  url: ws://x/\n  queue: {ttl: 30s, messages: 7}\n")
    status, out, err = await run("check-config", "--config", path)
    assert (status, err) == (0, "")
    valid, *settings, rest = out.splitlines()
    assert valid == f"{path}: valid"
    assert [line.split(": ")[0] for line in settings] == ["upstream.url", "upstream.queue.messages"]
    assert settings[1] == f"upstream.queue.messages: 7  # {path}:3:31"
    assert "--all" in rest
    _, everything, _ = await run("check-config", "--config", path, "--all")
    assert "upstream.queue.ttl: 30s" in everything
    assert "log.level: info" in everything


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_valid_script(shell):
    out = command(BINARY, "completion", shell)
    assert "--token-file" in out or "-l token-file" in out
    if program := shutil.which(shell):
        checked = subprocess.run([program, "-n"], input=out, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sen"], {"send"}),
        (["send", "--to"], {"--topic", "--token-file"}),
        (["send", "--wait", "conf"], {"confirmed"}),
        (["store", "ex"], {"export"}),
        (["completion", "z"], {"zsh"}),
    ],
)
def test_bash_completes_commands_flags_and_values(words, expected):
    script = command(BINARY, "completion", "bash") + "\n"
    quoted = " ".join(f"'{word}'" for word in ["drawbridge", *words])
    script += f"\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _drawbridge; printf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == expected, done.stderr


async def test_completion_and_man_list_the_accepted_operands():
    for words, reason in (
        (["completion"], "bash, zsh or fish"),
        (["completion", "sh"], "bash, zsh or fish"),
        (["man", "sned"], "did you mean 'send'?"),
    ):
        status, out, err = await run(*words)
        assert (status, out) == (64, "")
        assert reason in err


def test_the_overview_fits_a_terminal():
    lines = command(BINARY, "--help").splitlines()
    assert [line for line in lines if len(line) > 80] == []


def test_each_command_has_a_manual_page():
    overview = command(BINARY, "--help")
    commands = [line.split()[1] for line in overview.splitlines() if line.startswith("  drawbridge ")]
    assert "send" in commands
    for name in commands:
        page = command(BINARY, "man", name)
        assert page.startswith(f".TH DRAWBRIDGE\\-{name.upper().replace('-', chr(92) + '-')} 1")
        if man := shutil.which("man"):
            done = subprocess.run(
                [man, "--warnings", "-l", "-"], input=page, capture_output=True, text=True, check=False
            )
            assert (done.returncode, done.stderr) == (0, ""), name


async def test_a_token_is_written_to_a_new_file_that_only_its_owner_can_read(tmp_path):
    path = tmp_path / "me.token"
    status, line, err = await run("token", "me", "--out", path)
    assert (status, err) == (0, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = path.read_text().strip()
    assert hashlib.sha256(token.encode()).hexdigest() in line
    assert token not in line
    status, line, err = await run("token", "me", "--out", path)
    assert (status, line) == (73, "")
    assert "it exists" in err
    assert path.read_text().strip() == token
    for words, expected in ((["--scopes", "none", "--out", tmp_path / "x"], 64), (["--out", tmp_path / "none/x"], 73)):
        status, line, err = await run("token", "me", *words)
        assert (status, line) == (expected, "")
        assert err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["me.token"], "an error leaves no file"


async def test_paths_in_a_configuration_begin_at_its_folder(start, upstream, tmp_path):
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "tokens").write_text((await run("token", "me"))[1])
    config = f"upstream: {{url: '{upstream.url}'}}\nauthentication: {{tokens: tokens}}\n"
    gateway = await start(Gateway(config=config, folder=folder))
    assert (await gateway.client().request("GET", "/v1/session")).status == 401
    (folder / "wrong.yaml").write_text("upstream: {url: 'ws://x/'}\nauthentication: {tokens: none}\n")
    status, _, err = await run("check-config", "--config", folder / "wrong.yaml")
    assert status == 78
    assert str(folder / "none") in err
    # In a variable, the path is relative to the working directory.
    status, _, err = await run(
        "check-config", "--config", folder / "drawbridge.yaml", env={"DRAWBRIDGE_AUTHENTICATION_TOKENS": "none"}
    )
    assert status == 78
    assert f"{os.getcwd()}/none" in err
