"""`drawbridge tail` and the real gateway: over TCP, TLS and Unix sockets, through restarts, on terminals, in pipes."""

import asyncio
import json
import os
import pty
import signal

import pytest

from harness.gateway import BINARY, run
from harness.raw import says
from harness.waiting import eventually

TOPICS = {"DRAWBRIDGE_UPSTREAM_TOPIC_POINTER": "/topic"}


class Tail:
    """A running `drawbridge tail`. `out` and `err` are what it has written so far."""

    def __init__(self, *arguments, terminal=False, env=None):
        self._arguments = list(map(str, arguments))
        self._terminal = terminal
        self._env = env or {}
        self._readers = []
        self.out = b""
        self.err = b""

    async def start(self):
        loop = asyncio.get_running_loop()
        main = child = None
        if self._terminal:
            main, child = pty.openpty()
            os.set_blocking(main, False)
        self.process = await asyncio.create_subprocess_exec(
            BINARY,
            "tail",
            *self._arguments,
            env={**{k: v for k, v in os.environ.items() if not k.startswith(("DRAWBRIDGE_", "NO_COLOR"))}, **self._env},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=child if self._terminal else asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        if self._terminal:
            os.close(child)
            self._main = main
            loop.add_reader(main, self._read_terminal)
        else:
            self._readers.append(asyncio.create_task(self._read(self.process.stdout, "out")))
        self._readers.append(asyncio.create_task(self._read(self.process.stderr, "err")))
        return self

    def _read_terminal(self):
        try:
            self.out += os.read(self._main, 65536)
        except OSError:
            asyncio.get_running_loop().remove_reader(self._main)

    async def _read(self, stream, name):
        while data := await stream.read(65536):
            setattr(self, name, getattr(self, name) + data)

    def lines(self):
        return self.out.decode().splitlines()

    def messages(self):
        return [json.loads(line) for line in self.out.split(b"\n")[:-1]]

    async def has(self, count):
        await eventually(lambda: self.out.count(b"\n") >= count, what=f"{count} lines, {self.err.decode()}")
        return self.messages()

    async def follows(self, gateway, count=1):
        """Waits until its stream is open: what is pushed from now on is printed."""

        async def is_open():
            return (await gateway.metrics())["drawbridge_streams_open"] >= count

        await eventually(is_open, what="the stream is open")

    async def ends(self):
        status = await asyncio.wait_for(self.process.wait(), 30)
        await asyncio.gather(*self._readers)
        return status

    async def stop(self):
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        await asyncio.gather(*self._readers)
        if self._terminal:
            asyncio.get_running_loop().remove_reader(self._main)
            os.close(self._main)


async def test_a_pipe_gets_a_json_object_per_push_and_a_signal_ends_it(gateway, upstream, start):
    tail = await start(Tail(gateway.url()))
    await tail.follows(gateway)
    await upstream.push("text", '{"a": [1]}', b"\x00\xff")
    messages = await tail.has(3)
    assert [(m["type"], m.get("data", m.get("data_base64"))) for m in messages] == [
        ("text", "text"),
        ("json", {"a": [1]}),
        ("binary", "AP8="),
    ]
    tail.process.send_signal(signal.SIGINT)
    assert await tail.ends() == 0
    assert len(tail.messages()) == 3
    assert tail.err == b""


async def test_a_restart_of_the_gateway_is_a_gap_and_nothing_else_is_lost_or_repeated(gateway_for, upstream, start):
    gateway = await gateway_for(upstream)
    port = gateway.address()[1]
    tail = await start(Tail(gateway.url(), "--cursor", "earliest"))
    await tail.follows(gateway)
    await upstream.push(*map(str, range(5)))
    await tail.has(5)
    await gateway.kill()
    await eventually(lambda: b"Trying again" in tail.err, what="it says that the gateway is gone")
    gateway = await gateway_for(upstream, "--listen", f"127.0.0.1:{port}")
    await tail.follows(gateway)
    await upstream.push(*map(str, range(5, 10)))
    messages = await tail.has(11)
    assert [m["data"] for m in messages if m["type"] != "gap"] == list(range(10))
    assert [m["reason"] for m in messages if m["type"] == "gap"] == ["restart"]
    assert messages[5]["type"] == "gap"
    assert tail.err.count(b"Trying again") == 1
    assert b"connected again" in tail.err
    # In good order too: the stream ends with the drain.
    await gateway.stop()
    gateway = await gateway_for(upstream, "--listen", f"127.0.0.1:{port}")
    await tail.follows(gateway)
    await upstream.push("10")
    assert [m.get("data") for m in await tail.has(13)][-1] == 10
    tail.process.send_signal(signal.SIGTERM)
    assert await tail.ends() == 0


async def test_streams_that_end_by_themselves_are_followed_by_others(gateway_for, upstream, start):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_DELIVERY_STREAM_LIFETIME": "1s"})
    tail = await start(Tail(gateway.url(), "--cursor", "earliest"))

    async def has_returned():
        return (await gateway.metrics())["drawbridge_http_connections_accepted_total"] >= 5

    for number in range(100):
        await upstream.push(str(number))
    await eventually(has_returned, what="it has reconnected")
    await upstream.push("100")
    assert [m["data"] for m in await tail.has(101)] == list(range(101))
    assert tail.err == b"", "that is no failure"


async def test_a_terminal_gets_times_topics_colours_and_gaps(gateway_for, upstream, start):
    gateway = await gateway_for(upstream, env={**TOPICS, "DRAWBRIDGE_DELIVERY_MESSAGES": "4"})
    await upstream.push(*(json.dumps({"topic": "a.b", "n": n}) for n in range(6)))

    async def has_all():
        return (await gateway.metrics())["drawbridge_pushes_total"] == 6

    await eventually(has_all, what="all are there")
    tail = await start(Tail(gateway.url(), "--cursor", "earliest", terminal=True))
    await eventually(lambda: b'"n": 5' in tail.out, what="the pushes that are kept")
    lines = tail.out.decode().split("\r\n")
    assert lines[0] == "\x1b[33m-- 2 messages are missing (retention)\x1b[0m"
    time, topic, data = lines[1].split("  ")
    assert time.startswith("\x1b[2m")
    assert time.endswith("Z\x1b[0m")
    assert topic == "\x1b[36ma.b\x1b[0m"
    assert data == '{"topic": "a.b", "n": 2}'
    # What a terminal would act on is shown, not done.
    await upstream.push("\x1b[2J\x07red\u202e\nnext", b"\x1b", '"\\u001b[31m"')
    await eventually(lambda: tail.out.count(b"\n") >= 8, what="the hostile ones")
    assert [line.split("  ")[-1] for line in tail.out.decode().split("\r\n")[-4:-1]] == [
        r"\u{1B}[2J\u{07}red\u{202E}\nnext",
        "\x1b[2mbase64\x1b[0m Gw==",
        r'"\u001b[31m"',
    ]
    tail.process.send_signal(signal.SIGINT)
    assert await tail.ends() == 0
    assert b"Continue with --cursor p-" in tail.err


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {}])
async def test_colours_can_be_turned_off(gateway, upstream, start, env):
    flags = [] if env else ["--color", "never"]
    await upstream.push("one")
    tail = await start(Tail(gateway.url(), "--cursor=earliest", *flags, terminal=True, env=env))
    await eventually(lambda: b"one\r\n" in tail.out, what="the push")
    assert b"\x1b" not in tail.out


async def test_topics_sessions_and_positions(gateway_for, upstream, start):
    config = f"sessions: {{market: {{upstream: {{url: '{upstream.url}', topic: {{pointer: /topic}}}}}}}}\n"
    gateway = await gateway_for(upstream, config=config)
    await eventually(lambda: upstream.connected == 2, what="both sessions are connected")
    await upstream.push(*(json.dumps({"topic": topic}) for topic in ("orders.a", "prices", "orders b&c", "x")))
    url = gateway.url()
    tail = await start(
        Tail(url, "--session", "market", "--since", "1h", "--topic", "orders.*", "--topic", "orders b&c", "--topic=x")
    )
    assert [m["topic"] for m in await tail.has(3)] == ["orders.a", "orders b&c", "x"]
    last = await start(Tail(url, "--last=1", "--format", "text"))
    await last_line(last, '{"topic": "x"}')
    missing = await run("tail", url, "--session", "other")
    assert missing[0] == 69
    assert "'other' does not exist" in missing[2]


async def last_line(tail, text):
    await eventually(lambda: tail.out.decode().rstrip("\n").endswith(text), what=text)


async def test_a_reader_that_closes_the_pipe_ends_it_quietly(gateway, upstream):
    await upstream.push(*map(str, range(20)))
    command = f"{BINARY} tail {gateway.url()} --cursor earliest | head -n 3"
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", f"{command}; echo ${{PIPESTATUS[0]}}", stdout=-1, stderr=-1
    )
    # More pushes, for a write after `head` has ended.
    pushing = asyncio.create_task(keep_pushing(upstream))
    try:
        out, err = await asyncio.wait_for(process.communicate(), 30)
    finally:
        pushing.cancel()
    assert out.splitlines()[3:] == [b"0"]
    assert err == b""


async def keep_pushing(upstream):
    while True:
        await upstream.push("more")
        await asyncio.sleep(0.05)


async def test_a_token_from_a_file_and_a_path_below_which_the_gateway_is(
    gateway_for, upstream, start, tokens, tmp_path
):
    token = tokens.add("reader", scopes="receive")
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_AUTHENTICATION_TOKENS": str(tokens.path)})
    file = tmp_path / "token"
    file.write_text(token + "\n")
    tail = await start(Tail(gateway.url() + "/", "--token-file", file))
    await tail.follows(gateway)
    await upstream.push("secret")
    assert (await tail.has(1))[0]["data"] == "secret"
    status, out, err = await run("tail", gateway.url())
    assert (status, out) == (69, "")
    assert "status 401" in err
    file.write_text("two tokens")
    status, _, err = await run("tail", gateway.url(), "--token-file", str(file))
    assert status == 66
    assert "two tokens" not in err
    assert (await run("tail", gateway.url(), "--token-file", str(tmp_path / "none")))[0] == 66
    assert (await run("tail", gateway.url() + "/below"))[0] == 69


async def test_unix_sockets_and_https(gateway_for, upstream, start, certificate, authority, tmp_path):
    gateway = await gateway_for(
        upstream,
        *("--listen", f"unix:{tmp_path}/api", "--listen-https", "127.0.0.1:0"),
        env={
            "DRAWBRIDGE_LISTENERS_TLS_CERTIFICATE": str(certificate.chain),
            "DRAWBRIDGE_LISTENERS_TLS_KEY": str(certificate.key),
        },
    )
    port = gateway.address("https")[1]
    trusted = ("--ca-file", authority.path)
    tails = [
        await start(Tail(f"unix:{tmp_path}/api")),
        await start(Tail(f"https://localhost:{port}", *trusted)),
        await start(Tail(f"https://127.0.0.1:{port}/", *trusted)),
    ]
    await tails[0].follows(gateway, 3)
    large = "x" * 300_000
    await upstream.push("small", large, "last")
    for tail in tails:
        assert [m["data"] for m in await tail.has(3)] == ["small", large, "last"]
    # Without the authority the certificate is not trusted, and the token is not sent.
    tail = await start(Tail(f"https://localhost:{port}"))
    await eventually(lambda: b"Trying again" in tail.err, what="it says so")
    assert b"TLS: " in tail.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["localhost:8080"], "another scheme"),
        (["http://"], "URL"),
        (["http://user:secret@localhost"], "--token-file"),
        (["http://localhost/?cursor=x"], "query"),
        (["unix:relative"], "absolute path"),
        (["http://localhost", "http://other"], "unexpected argument"),
        (["--since", "10m", "--last", "1"], "exclude each other"),
        (["--format", "xml"], "text, ndjson"),
        (["--session", "a b"], "name of a session"),
        (["--ca-file", "/nonexistent", "https://localhost"], "cannot be read"),
        (["--topics", "a"], "did you mean 'topic'"),
    ],
)
async def test_a_wrong_command_line_is_explained(arguments, reason):
    status, out, err = await run("tail", *arguments)
    assert (status, out) == (64, "")
    assert reason in err
    assert "secret" not in err


async def test_a_server_that_is_no_gateway_is_an_error(raw_upstream):
    server = await raw_upstream(says(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n<html>\n"))
    status, out, err = await run("tail", f"http://127.0.0.1:{server.port}")
    assert (status, out) == (69, "")
    assert "is this the address of a gateway?" in err
