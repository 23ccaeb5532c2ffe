"""`drawbridge work`: leases, commands, and the results of both."""

import asyncio
import contextlib
import json
import signal

from test_tail import Tail

from harness.gateway import run
from harness.waiting import eventually


class Work(Tail):
    """A running `drawbridge work`."""

    command = "work"

    async def receives(self, gateway, count=1):
        async def is_held():
            return (await gateway.metrics())["drawbridge_receives_held"] >= count

        await eventually(is_held, what=f"a receive is held, {self.err.decode()}")


async def consumer(gateway, name="workers"):
    return (await gateway.client().request("GET", f"/v1/consumers/{name}")).json


async def test_a_push_is_acknowledged_when_its_command_succeeds(gateway, upstream, start):
    work = await start(
        Work("--url", gateway.url(), "workers", "--", "sh", "-c", 'echo "$PUSH_ID $PUSH_DELIVERIES $(cat)"')
    )
    await work.receives(gateway)
    await upstream.push("one", '{"two": 2}')
    await eventually(lambda: work.out.count(b"\n") == 2, what="two commands")
    assert [line.split(" ", 2)[1:] for line in work.lines()] == [["1", "one"], ["1", '{"two": 2}']]

    async def is_settled():
        state = await consumer(gateway)
        return (state["lag"], state["leases"]) == (0, 0)

    await eventually(is_settled, what="both are acknowledged")
    work.process.send_signal(signal.SIGTERM)
    assert await work.ends() == 0
    assert work.err == b"drawbridge: stopping\n"


async def test_it_says_where_the_consumer_begins_on_a_terminal(gateway, start):
    async def says(*flags):
        work = await start(Work("--url", gateway.url(), "workers", *flags, "--", "cat", terminal=True))
        await work.receives(gateway)
        work.process.send_signal(signal.SIGINT)
        assert await work.ends() == 0
        return work.err.decode().splitlines()[:-1]

    consumer = f"drawbridge: consumer 'workers' of session 'default' at {gateway.url()}"
    assert await says() == [f"{consumer} is new, and begins with the next push. Ctrl-C ends the worker"]
    again = f"{consumer} continues at its position, with no push to handle. Ctrl-C ends the worker"
    assert await says() == [again]
    line, note = await says("--start", "earliest")
    assert line == again
    assert note.startswith("drawbridge: --start has no effect, since the consumer exists")
    await says("--topic", "orders.*", "--topic", "prices")
    # The topics of the consumer are named, too, if they are not on the command line.
    (line,) = await says()
    assert line.endswith(", with no push to handle, only topics 'orders.*' and 'prices'. Ctrl-C ends the worker")


async def test_a_signal_ends_a_held_receive_over_https_at_once(https_for, authority, start):
    """The worker sends close_notify, so the gateway ends the connection first, and not the worker after a wait."""
    gateway = await https_for()
    is_stopping = False
    open_connections = 0
    first_ends = []

    async def relay(reader, writer):
        nonlocal open_connections
        open_connections += 1
        upstream_reader, upstream_writer = await asyncio.open_connection(*gateway.address("https"))
        ends = []

        async def pump(source, target, name):
            kept = b""
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    # The relay keeps the gateway's last bytes until the gateway has ended the connection. Otherwise the
                    # worker could read them and end the connection before the gateway does.
                    if is_stopping and name == "gateway":
                        kept += data
                    else:
                        target.write(data)
            ends.append(name)
            target.write(kept)
            target.close()

        await asyncio.gather(
            pump(reader, upstream_writer, "worker"), pump(upstream_reader, writer, "gateway"), return_exceptions=True
        )
        first_ends.append(ends[0])
        open_connections -= 1

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as server:
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        work = await start(Work("--url", url, "--ca-file", authority.path, "workers", "--", "cat"))
        await work.receives(gateway)
        await eventually(lambda: open_connections == 1, what="the connections of earlier requests have ended")
        before = len(first_ends)
        is_stopping = True
        work.process.send_signal(signal.SIGTERM)
        assert await work.ends() == 0
        assert work.err == b"drawbridge: stopping\n"
        await eventually(lambda: len(first_ends) > before, what="the connection of the receive has ended")
    assert first_ends[before:] == ["gateway"]


async def test_a_failure_is_repeated_later_and_becomes_a_dead_letter(gateway, upstream, start):
    work = await start(
        Work(
            "--url",
            gateway.url(),
            "workers",
            "--max-deliveries",
            "2",
            "--",
            "sh",
            "-c",
            "echo $PUSH_DELIVERIES; exit 3",
        )
    )
    await work.receives(gateway)
    await upstream.push("bad")
    await eventually(lambda: work.out == b"1\n2\n", what="two deliveries")

    async def is_dead():
        return (await consumer(gateway))["dead"]["messages"] == 1

    await eventually(is_dead, what="a dead letter")
    assert b"the command ended with status 3" in work.err
    assert b"delivery 1: released for 1s" in work.err
    assert b"delivery 2: released for 2s" in work.err


async def test_a_lease_is_extended_while_the_command_runs(gateway, client, upstream, start, tmp_path):
    script = f"echo begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo ended"
    work = await start(Work("--url", gateway.url(), "workers", "--visibility", "5s", "--", "sh", "-c", script))
    await work.receives(gateway)
    await upstream.push("long")
    await eventually(lambda: work.out == b"begun\n", what="the command runs")

    # This is longer than the lease lasts by the clock of the gateway.
    begin = await gateway.clock()

    async def has_lasted():
        state = (await client.request("GET", "/v1/consumers/workers")).json
        assert state["leases"] == 1, "the lease was lost"
        return await gateway.clock() - begin > 6

    await eventually(has_lasted, what="longer than a lease without extensions")
    (tmp_path / "go").touch()
    await eventually(lambda: work.out == b"begun\nended\n", what="it ends")
    work.process.send_signal(signal.SIGINT)
    assert await work.ends() == 0
    state = await consumer(gateway)
    assert (state["lag"], state["leases"]) == (0, 0)


async def test_after_a_signal_running_commands_finish_and_no_others_start(gateway, upstream, start, tmp_path):
    script = f"echo $(cat); while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    work = await start(Work("--url", gateway.url(), "workers", "--parallel", "2", "--", "sh", "-c", script))
    await work.receives(gateway)
    await upstream.push("a", "b", "c")
    await eventually(lambda: work.out.count(b"\n") == 2, what="two commands")
    work.process.send_signal(signal.SIGTERM)
    await eventually(lambda: b"stopping when 2 commands have ended" in work.err, what="it says so")
    (tmp_path / "go").touch()
    assert await work.ends() == 0
    assert sorted(work.lines()) == ["a", "b"]
    state = await consumer(gateway)
    assert (state["lag"], state["leases"]) == (1, 0), "the third is for another worker"


async def test_a_second_signal_is_sent_to_the_commands(gateway, upstream, start):
    work = await start(
        Work("--url", gateway.url(), "workers", "--", "sh", "-c", "echo begun; while :; do sleep 0.05; done")
    )
    await work.receives(gateway)
    await upstream.push("a")
    await eventually(lambda: work.out == b"begun\n", what="the command runs")
    work.process.send_signal(signal.SIGTERM)
    await eventually(lambda: b"stopping" in work.err, what="it says so")
    work.process.send_signal(signal.SIGTERM)
    assert await work.ends() == 0
    assert b"was ended by signal 15" in work.err
    assert (await consumer(gateway))["leases"] == 0


async def test_work_reconnects_after_a_restart_of_the_gateway(gateway_for, upstream, start):
    gateway = await gateway_for(upstream)
    port = gateway.address()[1]
    work = await start(Work("--url", gateway.url(), "workers", "--", "cat"))
    await work.receives(gateway)
    await gateway.kill()
    await eventually(lambda: b"Trying again" in work.err, what="it says that the gateway is gone")
    gateway = await gateway_for(upstream, "--listen", f"127.0.0.1:{port}")
    await work.receives(gateway)
    await upstream.push("x")
    await eventually(lambda: work.out == b"x", what="it works again")
    assert b"responds again" in work.err


async def test_a_consumer_that_exists_keeps_its_settings_without_flags(gateway, start):
    client = gateway.client()
    body = json.dumps({"share": True, "visibility": "7s", "topics": ["a"], "max_deliveries": 9})
    await client.request(
        "PUT", "/v1/consumers/workers", data=body.encode(), headers={"Content-Type": "application/json"}
    )
    work = await start(Work("--url", gateway.url(), "workers", "--", "cat"))
    await work.receives(gateway)
    before = await consumer(gateway)
    assert (before["visibility"], before["topics"], before["max_deliveries"]) == ("7s", ["a"], 9)
    more = await start(Work("--url", gateway.url(), "workers", "--visibility", "8s", "--", "cat"))
    await more.receives(gateway, 2)
    after = await consumer(gateway)
    assert (after["visibility"], after["topics"], after["max_deliveries"]) == ("8s", ["a"], 9)


async def test_errors_in_the_use_of_work_are_explained(gateway):
    url = ("--url", gateway.url())
    for words, reason in (
        (["w"], "needs a name and a command"),
        (["--", "true"], "needs a name"),
        (["a/b", "--", "true"], "letters"),
    ):
        status, _, err = await run("work", *url, *words)
        assert status == 64
        assert reason in err
    status, _, err = await run("work", *url, "w", "--session", "other", "--", "true")
    assert status == 69
    assert "'other' does not exist" in err
    await gateway.client().request(
        "PUT", "/v1/consumers/reader", data=b"{}", headers={"Content-Type": "application/json"}
    )
    status, _, err = await run("work", *url, "reader", "--", "true")
    assert status == 69
    assert "has one reader" in err
    status, _, err = await run("work", *url, "w", "--order-by", "no pointer", "--", "true")
    assert status == 69
    assert "order_by" in err


async def test_a_command_that_does_not_exist_ends_it_before_it_creates_a_consumer(gateway, tmp_path):
    (tmp_path / "text").write_text("")
    for command, reason in (
        ("/nowhere/handle", "No such file"),
        ("no-such-command", "No such file"),
        (f"{tmp_path}/text", "Permission denied"),
    ):
        status, _, err = await run("work", "--url", gateway.url(), "workers", "--", command)
        assert status == 69
        assert f"'{command}' cannot be started: {reason}" in err
    assert (await gateway.client().request("GET", "/v1/consumers/workers")).status == 404


async def test_a_command_that_disappears_ends_it_and_gives_the_push_back(gateway, upstream, start, tmp_path):
    command = tmp_path / "handle"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    work = await start(Work("--url", gateway.url(), "workers", "--", str(command)))
    await work.receives(gateway)
    command.unlink()
    await upstream.push("x")
    assert await work.ends() == 69
    assert f"'{command}' cannot be started: No such file".encode() in work.err
    assert (await consumer(gateway))["leases"] == 0
