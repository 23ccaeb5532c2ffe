"""`drawbridge send`, `call`, and `tail --exec`."""

import asyncio
import json
import signal

from test_tail import Tail

from harness.gateway import run
from harness.waiting import eventually


async def test_send_sends_an_operand_or_standard_input(gateway, upstream):
    url = ("--url", gateway.url())
    status, out, err = await run("send", *url, "hello")
    assert (status, err) == (0, "")
    assert json.loads(out)["state"] == "queued"
    assert out.endswith("}\n")
    for words in ([], ["-"]):
        assert (await run("send", *url, *words, stdin=b"from a pipe\n"))[0] == 0
    assert (await run("send", *url, stdin=b"\xff\x00"))[0] == 0
    assert (await run("send", *url, "--type", "binary", "--", "--bytes"))[0] == 0
    expected = ["hello", "from a pipe\n", "from a pipe\n", b"\xff\x00", b"--bytes"]
    await eventually(lambda: upstream.received == expected, what=f"{expected}, not {upstream.received}")


async def test_send_waits_for_a_state(gateway):
    url = ("--url", gateway.url())
    status, out, _ = await run("send", *url, "x", "--wait", "confirmed", "--format", "text")
    assert status == 0
    assert out.startswith("confirmed d-")
    status, out, _ = await run("send", *url, "x", "--wait", "written", "--timeout", "10s")
    assert status == 0
    assert json.loads(out)["state"] in ("written", "confirmed")


async def test_send_reports_the_state_of_a_message_without_an_upstream(gateway_for, upstream):
    gateway = await gateway_for(upstream)
    url = ("--url", gateway.url())
    await upstream.stop()
    await gateway.logs(lambda record: record.get("state") == "backoff" or "attempt" in str(record), what="the loss")
    status, out, _ = await run("send", *url, "x", "--format", "text")
    assert status == 0
    assert out.startswith("queued d-")
    assert (await run("send", *url, "x", "--wait", "confirmed", "--timeout", "100ms"))[0] == 75, "the wait is over"
    status, out, _ = await run("send", *url, "x", "--wait", "confirmed", "--ttl", "1ms")
    assert status == 1, "it has expired"
    assert json.loads(out)["state"] == "expired"
    status, out, err = await run("send", *url, "x", "--ttl", "0")
    assert (status, out) == (75, "")
    assert "status 503" in err


async def test_a_repetition_with_a_key_sends_nothing_again(gateway, upstream):
    words = ("send", "--url", gateway.url(), "once", "--key", "k1")
    first, second = json.loads((await run(*words))[1]), json.loads((await run(*words))[1])
    assert first["id"] == second["id"]
    status, _, err = await run("send", "--url", gateway.url(), "other", "--key", "k1")
    assert status == 69
    assert "status 422" in err
    assert (await run("send", "--url", gateway.url(), "x", "--key", "a b"))[0] == 64
    assert upstream.received == ["once"]


async def test_send_reaches_a_named_session(gateway_for, upstream):
    config = f"sessions: {{market: {{upstream: {{url: '{upstream.url}'}}}}}}\n"
    gateway = await gateway_for(upstream, config=config)
    _, out, _ = await run("send", "--url", gateway.url(), "x", "--session", "market")
    assert json.loads(out)["session"] == "market"
    status, _, err = await run("send", "--url", gateway.url(), "x", "--session", "other")
    assert status == 69
    assert "'other' does not exist" in err


async def test_wrong_uses_of_send_are_explained():
    for words, reason in (
        (["x", "--timeout", "1s"], "without --wait"),
        (["x", "--ttl", "soon"], "500ms"),
        (["x", "--wait", "never"], "queued, written, confirmed"),
        (["two", "words"], "quote a text with spaces"),
        (["x", "--session", "a b"], "name of a session"),
    ):
        status, out, err = await run("send", *words)
        assert (status, out) == (64, "")
        assert reason in err


async def test_call_prints_the_reply(gateway_for, upstream):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_UPSTREAM_CORRELATION": "{request: /id, reply: /id}"})
    await gateway.ready()
    request = '{"id":"a","method":"ping"}'
    calling = asyncio.create_task(run("call", "--url", gateway.url(), request))
    await eventually(lambda: upstream.received, what="the request")
    await upstream.push(json.dumps({**json.loads(upstream.received[0]), "result": "pong"}))
    status, out, err = await calling
    assert (status, err) == (0, "")
    assert json.loads(out) == {"id": "a", "method": "ping", "result": "pong"}
    status, out, err = await run("call", "--url", gateway.url(), "-", "--timeout", "100ms", stdin=request.encode())
    assert (status, out) in ((69, ""), (75, ""))
    assert "status 504" in err
    status, _, err = await run("call", "--url", gateway.url(), "no JSON")
    assert status == 69
    assert "status 422" in err


async def test_tail_runs_a_command_for_each_push(gateway, upstream, start):
    script = 'echo "$PUSH_TYPE $PUSH_SESSION $(cat)"; case $PUSH_TYPE in json) exit 7;; esac'
    tail = await start(Tail(gateway.url(), "--exec", script))
    await tail.follows(gateway)
    await upstream.push("first", '{"a": 1}', b"bytes")
    await eventually(
        lambda: tail.out == b'text default first\njson default {"a": 1}\nbinary default bytes\n', what=str(tail.out)
    )
    assert b"the command ended with status 7 for push p-" in tail.err
    tail.process.send_signal(signal.SIGTERM)
    assert await tail.ends() == 0
    assert b"Continue with --cursor p-" in tail.err


async def test_a_signal_reaches_the_command_of_tail(gateway, upstream, start):
    tail = await start(
        Tail(
            gateway.url(),
            "--exec",
            'trap "echo ended; exit" TERM; echo begun; read -r line <&-; while :; do sleep 0.05; done',
        )
    )
    await tail.follows(gateway)
    await upstream.push("x", "y")
    await eventually(lambda: b"begun" in tail.out, what="the command")
    tail.process.send_signal(signal.SIGTERM)
    assert await tail.ends() == 0
    assert tail.out == b"begun\nended\n"


async def test_tail_names_the_session_and_the_topics_that_it_follows(gateway, upstream, start):
    for flags, text in (
        ((), ". Ctrl-C ends it"),
        (("--topic", "orders.*"), ", only topic 'orders.*'. Ctrl-C ends it"),
        (("--topic", "a", "--topic", "b", "--topic", "c"), ", only topics 'a', 'b' and 'c'. Ctrl-C ends it"),
    ):
        tail = await start(Tail(gateway.url(), *flags, terminal=True))
        line = f"drawbridge: following session 'default' at {gateway.url()}{text}"
        await eventually(lambda tail=tail, line=line: line in tail.err.decode().splitlines(), what=line)
