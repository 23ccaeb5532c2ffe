"""`drawbridge tail` with a real gateway: over TCP, TLS and Unix sockets, across restarts, to terminals and pipes."""

import asyncio
import contextlib
import json
import os
import pty
import signal
import socket
import ssl

import pytest

from harness.gateway import BINARY, run
from harness.processes import descendants, kill_all
from harness.raw import linger, read_head, says
from harness.waiting import eventually

TOPICS = {"DRAWBRIDGE_UPSTREAM_TOPIC_POINTER": "/topic"}


class Tail:
    """A running `drawbridge tail`. `out` and `err` contain its output so far."""

    command = "tail"

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
            self.command,
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
        """Waits until its stream is open. From then on, it prints every push."""

        async def is_open():
            return (await gateway.metrics())["drawbridge_streams_open"] >= count

        await eventually(is_open, what="the stream is open")

    async def ends(self):
        status = await asyncio.wait_for(self.process.wait(), 30)
        await asyncio.gather(*self._readers)
        return status

    async def stop(self):
        if self.process.returncode is None:
            # The commands of a worker inherit its standard output. The readers wait until all of these commands have
            # ended.
            commands = descendants(self.process.pid)
            self.process.kill()
            await self.process.wait()
            kill_all(commands)
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


async def test_a_restart_of_the_gateway_is_one_gap_without_repeated_messages(gateway_for, upstream, start):
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
    # The same applies after an orderly end, since the stream ends with the drain.
    await gateway.stop()
    gateway = await gateway_for(upstream, "--listen", f"127.0.0.1:{port}")
    await tail.follows(gateway)
    await upstream.push("10")
    assert [m.get("data") for m in await tail.has(13)][-1] == 10
    tail.process.send_signal(signal.SIGTERM)
    assert await tail.ends() == 0


async def test_tail_opens_another_stream_after_the_end_of_a_stream(gateway_for, upstream, start):
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
    # Characters to which a terminal would react are shown as escapes.
    await upstream.push("\x1b[2J\x07red\u202e\nnext", b"\x1b", '"\\u001b[31m"', "a\r\nFORGED\r")
    await eventually(lambda: tail.out.count(b"\n") >= 9, what="the hostile ones")
    assert [line.split("  ")[-1] for line in tail.out.decode().split("\r\n")[-5:-1]] == [
        r"\u{1B}[2J\u{07}red\u{202E}\nnext",
        "\x1b[2mbase64\x1b[0m Gw==",
        r'"\u001b[31m"',
        r"a\r\nFORGED\r",
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


async def test_tail_selects_topics_sessions_and_positions(gateway_for, upstream, start):
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


async def test_a_closed_pipe_ends_tail_quietly(gateway, upstream):
    await upstream.push(*map(str, range(20)))
    command = f"{BINARY} tail {gateway.url()} --cursor earliest | head -n 3"
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", f"{command}; echo ${{PIPESTATUS[0]}}", stdout=-1, stderr=-1
    )
    # Sends more pushes, so that tail writes after `head` has ended.
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


async def test_tail_uses_a_token_from_a_file_and_a_path_of_the_gateway(gateway_for, upstream, start, tokens, tmp_path):
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


async def test_tail_connects_over_unix_sockets_and_https(
    gateway_for, upstream, start, certificate, authority, tmp_path
):
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
    # Without the authority, tail neither trusts the certificate nor sends the token.
    tail = await start(Tail(f"https://localhost:{port}"))
    await eventually(lambda: b"Trying again" in tail.err, what="it says so")
    assert b"TLS: " in tail.err


async def test_a_client_certificate_is_shown_to_a_gateway_that_requires_one(
    https_for, authority, upstream, start, tmp_path
):
    own = authority.issue("DNS:reader", for_clients=True)
    gateway = await https_for(LISTENERS_TLS_CLIENT_CERTIFICATES="required", LISTENERS_TLS_CLIENT_CA=authority.path)
    arguments = (f"https://localhost:{gateway.address('https')[1]}", "--ca-file", authority.path)
    tail = await start(Tail(*arguments, "--certificate", own.chain, "--certificate-key", own.key))
    await tail.follows(gateway)
    await upstream.push("for those who have one")
    assert [m["data"] for m in await tail.has(1)] == ["for those who have one"]
    without = await start(Tail(*arguments))
    await eventually(lambda: b"Trying again" in without.err, what="it says why it gets nothing")
    assert b"requires a client certificate" in without.err
    assert without.out == b""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["localhost"], "neither a scheme nor a port"),
        (["ws://localhost"], "another scheme"),
        (["http://"], "URL"),
        (["http://user:secret@localhost"], "--token-file"),
        (["http://localhost/?cursor=x"], "query"),
        (["unix:relative"], "absolute path"),
        (["http://localhost", "http://other"], "unexpected argument"),
        (["--since", "10m", "--last", "1"], "exclude each other"),
        (["--format", "xml"], "text, ndjson"),
        (["--session", "a b"], "name of a session"),
        (["--ca-file", "/nonexistent", "https://localhost"], "cannot be read"),
        (["--ca-file", "/nonexistent", "http://localhost"], "no effect"),
        (["--certificate", "/nonexistent", "http://localhost"], "no effect"),
        (["--certificate-key", "/nonexistent", "https://localhost"], "needs --certificate"),
        (["--certificate", "/nonexistent", "https://localhost"], "cannot be read"),
        (["--certificate", "/dev/null", "https://localhost"], "has no certificate"),
        (["--topics", "a"], "did you mean '--topic'"),
        (["http://localhost", "--url", "http://other"], "given twice"),
        (["--exec", "cat", "--format", "text"], "exclude each other"),
    ],
)
async def test_a_wrong_command_line_is_explained(arguments, reason):
    status, out, err = await run("tail", *arguments)
    assert (status, out) == (64, "")
    assert reason in err
    assert "secret" not in err


@pytest.mark.parametrize("response", [b"Content-Type: text/html\r\n\r\n", b"\r\n<html>\n"])
async def test_a_server_that_is_not_a_gateway_is_an_error(raw_upstream, response):
    """The content type or the first line shows that the server is not a gateway."""
    server = await raw_upstream(says(b"HTTP/1.0 200 OK\r\n" + response))
    status, out, err = await run("tail", f"http://127.0.0.1:{server.port}")
    assert (status, out) == (69, "")
    assert "is this the address of a gateway?" in err


# ------------------------------------------------------------------------------------------------------ Hostile servers


async def test_a_terminal_gets_json_without_control_characters(gateway, upstream, start):
    hostile = '{"a":\r"\x7f\x9b\u202e\u2028",\t"b":1}'
    await upstream.push(hostile)
    tail = await start(Tail(gateway.url(), "--cursor=earliest", "--format=ndjson", terminal=True))
    await eventually(lambda: tail.out.endswith(b"\r\n"), what="the push")
    line = tail.out.decode().removesuffix("\r\n")
    assert not set(line) & set("\r\x7f\x9b\u202e\u2028")
    assert json.loads(line)["data"] == json.loads(hostile)
    # A pipe gets the bytes of the push unchanged.
    pipe = await start(Tail(gateway.url(), "--cursor=earliest"))
    await pipe.has(1)
    assert "\x7f\x9b\u202e\u2028".encode() in pipe.out


async def test_a_reason_of_the_server_is_one_line(raw_upstream):
    body = json.dumps({"detail": "no\r\ndrawbridge: FORGED\x1b[2J"}).encode()
    server = await raw_upstream(ends(b"HTTP/1.0 403 Forbidden\r\n\r\n" + body))
    status, _, err = await run("tail", f"http://127.0.0.1:{server.port}")
    assert status == 69
    reason = r"status 403: no\r\ndrawbridge: FORGED\u{1B}[2J"
    assert err == f"drawbridge: the gateway refuses the request: {reason}\n"


def ends(*responses, requests=None):
    """Each connection gets the next response and is then closed."""
    left = list(responses)

    async def behave(reader, writer):
        head, _ = await read_head(reader)
        if requests is not None:
            requests.append(head.decode())
        writer.write(left.pop(0))
        await writer.drain()

    return behave


async def test_a_cursor_of_the_server_adds_nothing_to_the_next_request(raw_upstream):
    line = json.dumps({"type": "text", "data": "x", "cursor": "x HTTP/1.1\r\nInjected: 1\r\n\r\n"}).encode()
    requests = []
    refused = b"HTTP/1.0 403 Forbidden\r\n\r\n"
    server = await raw_upstream(ends(b"HTTP/1.0 200 OK\r\n\r\n" + line + b"\n", refused, requests=requests))
    status, out, _ = await run("tail", f"http://127.0.0.1:{server.port}")
    assert (status, out.encode()) == (69, line + b"\n")
    assert "cursor=x%20HTTP%2F1.1%0D%0AInjected%3A%201%0D%0A%0D%0A HTTP/1.0\r\n" in requests[1]
    assert "\r\nInjected" not in requests[1]


async def test_data_before_the_end_of_https_is_not_lost(raw_upstream, certificate, authority):
    """A proxy may send the last bytes and close_notify in one segment."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.chain, certificate.key)
    ok, refused = b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.0 403 Forbidden\r\n\r\n"
    line = b'{"type":"text","data":"%d","cursor":"p"}\n'
    left = [[ok + line % 1], [ok, line % 2 + line % 3], [refused + b'{"detail":"because"}']]

    async def behave(reader, writer):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_side=True)

        async def step(action):
            while True:
                try:
                    return action()
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    incoming.write(await reader.read(65536))

        await step(tls.do_handshake)
        await step(lambda: tls.read(65536))
        *first, last = left.pop(0)
        for piece in first:
            tls.write(piece)
            writer.write(outgoing.read())
            await writer.drain()
        tls.write(last)
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.unwrap()
        writer.write(outgoing.read())
        await linger(reader)

    server = await raw_upstream(behave)
    status, out, err = await run("tail", f"https://localhost:{server.port}", "--ca-file", authority.path)
    assert [json.loads(line)["data"] for line in out.splitlines()] == ["1", "2", "3"]
    assert status == 69
    assert "because" in err
    assert left == []


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.0 ", b"HTTP/1.0 403 Forbidden\r\n\r\n{"])
async def test_a_signal_ends_tail_while_it_waits_for_a_response(raw_upstream, start, beginning):
    sent = asyncio.Event()

    async def behave(reader, writer):
        await read_head(reader)
        writer.write(beginning)
        await writer.drain()
        sent.set()
        await linger(reader)

    server = await raw_upstream(behave)
    tail = await start(Tail(f"http://127.0.0.1:{server.port}"))
    await asyncio.wait_for(sent.wait(), 30)

    def waits():
        with open(f"/proc/{tail.process.pid}/status") as file:
            blocked = next(line.split()[1] for line in file if line.startswith("SigBlk:"))
        return int(blocked, 16) >> (signal.SIGTERM - 1) & 1

    await eventually(waits, what="it waits for the response, and for signals")
    tail.process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(tail.ends(), 5) == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_ends_tail_while_it_connects(number, status):
    """The first server does not accept the connection, and the second does not respond to the beginning of TLS."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        # The queue has room for one connection.
        with socket.create_connection(("127.0.0.1", port)):
            async with _background(f"http://127.0.0.1:{port}") as (tail, status_of):
                await eventually(lambda: _is_connecting(port), what="it connects")
                os.kill(tail, number)
                assert await status_of() == status
            server.accept()[0].close()
        async with _background(f"https://127.0.0.1:{port}") as (tail, status_of):
            with (await asyncio.to_thread(server.accept))[0] as connection:
                assert await asyncio.to_thread(connection.recv, 1) == b"\x16", "a handshake"
                os.kill(tail, number)
                assert await status_of() == status


@contextlib.asynccontextmanager
async def _background(url):
    """The process of `drawbridge tail`, and a function that waits for the exit status that its shell reports."""
    # Starts the command like a shell without job control.
    shell = f"trap '' INT TERM; {BINARY} tail {url} & echo $!; wait $!; echo $?"
    process = await asyncio.create_subprocess_exec(
        "bash", "-m", "-c", shell, stdin=asyncio.subprocess.DEVNULL, stdout=-1, stderr=-1
    )
    tail = int(await asyncio.wait_for(process.stdout.readline(), 30))

    async def status():
        out, err = await asyncio.wait_for(process.communicate(), 30)
        assert b"drawbridge: " not in err
        return int(out)

    try:
        yield tail, status
    finally:
        if process.returncode is None:
            os.kill(tail, signal.SIGKILL)
            await process.wait()


def _is_connecting(port):
    """Whether a SYN to this port still has no response."""
    with open("/proc/net/tcp") as file:
        return any(line.split()[2:4] == [f"0100007F:{port:04X}", "02"] for line in file)


async def test_a_stream_counts_as_lost_after_three_missed_heartbeats(raw_upstream, start):
    requests = {1: [], 600: []}

    def silent(heartbeat):
        async def behave(reader, writer):
            requests[heartbeat].append((await read_head(reader))[0])
            fields = f"Gateway-Cursor: p-1.1\r\nGateway-Heartbeat: {heartbeat}\r\n"
            writer.write(f"HTTP/1.0 200 OK\r\n{fields}\r\n".encode())
            await linger(reader)

        return behave

    tails = {}
    for heartbeat in (600, 1):
        server = await raw_upstream(silent(heartbeat))
        tails[heartbeat] = await start(Tail(f"http://127.0.0.1:{server.port}"))
        await eventually(lambda heartbeat=heartbeat: requests[heartbeat], what="it has connected")
    await eventually(lambda: len(requests[1]) == 2, what="the one with short heartbeats has reconnected")
    assert b"no byte for 3 s" in tails[1].err
    assert b"cursor=p-1.1 " in requests[1][1]
    assert len(requests[600]) == 1
    assert tails[600].err == b""


# ---------------------------------------------------------------------------------------------------- Output and tokens


async def test_an_output_that_cannot_be_written_is_an_error(gateway, upstream):
    await upstream.push("one")
    command = f"{BINARY} tail {gateway.url()} --cursor earliest >/dev/full"
    process = await asyncio.create_subprocess_exec("bash", "-c", command, stderr=-1)
    _, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 74
    assert err == b"drawbridge: standard output cannot be written: No space left on device\n"


async def test_replacing_the_token_file_does_not_end_tail(gateway_for, upstream, start, tokens, tmp_path):
    token = tokens.add("reader", scopes="receive")
    gateway = await gateway_for(
        upstream,
        env={"DRAWBRIDGE_AUTHENTICATION_TOKENS": str(tokens.path), "DRAWBRIDGE_DELIVERY_STREAM_LIFETIME": "1s"},
    )
    file = tmp_path / "token"
    file.write_text(token)
    tail = await start(Tail(gateway.url(), "--token-file", file))
    await tail.follows(gateway)
    for number, (wrong, reason) in enumerate([("", b"is not valid"), ("another", b"status 401")]):
        file.write_text(wrong)
        await eventually(lambda reason=reason: reason in tail.err, what=f"{reason} is reported")
        file.write_text(token)
        await upstream.push(str(number))
        assert [m["data"] for m in await tail.has(number + 1)] == list(range(number + 1))
    assert token.encode() not in tail.err


async def test_a_token_file_that_others_can_read_causes_a_warning(raw_upstream, tmp_path):
    (tmp_path / "token").write_text("secret")
    for host, is_warned in (("0.0.0.0", True), ("127.0.0.1", False), ("localhost", False)):
        server = await raw_upstream(ends(b"HTTP/1.0 403 Forbidden\r\n\r\n"))
        _, _, err = await run("tail", f"http://{host}:{server.port}", "--token-file", tmp_path / "token")
        assert ("others on the network can read the token" in err) == is_warned
        assert "secret" not in err
