"""The programs of the README and of docs/recipes.md, as they are printed there."""

import asyncio
import json
import re
import shutil
import threading

import pytest
import pytest_asyncio

from harness.gateway import BINARY, PROJECT
from harness.ports import reserve_port
from harness.upstream import Upstream
from harness.waiting import eventually


def section(page, title):
    return (PROJECT / page).read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def program(page, title):
    """The first program below a heading: its language and text."""
    return re.search(r"```(\w+)\n(.*?)```", section(page, title), re.DOTALL).groups()


def recipe(title):
    return program("docs/recipes.md", title)


def loop(page, title, address):
    """A shell loop of a page as a command, with the address of a gateway."""
    language, code = program(page, title)
    return language, "-c", code.replace("localhost:8080", address)


class Program:
    """A recipe that runs until it is killed, and prints a line for each message."""

    def __init__(self, *command, folder):
        self._command = command
        self._folder = folder
        self.lines = []

    async def start(self):
        self._process = await asyncio.create_subprocess_exec(
            *self._command, cwd=self._folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        self._reader = asyncio.create_task(self._read())

    async def _read(self):
        async for line in self._process.stdout:
            self.lines.append(json.loads(line))

    async def prints(self, count):
        await eventually(lambda: len(self.lines) >= count, what=f"the recipe prints {count} messages")
        return self.lines

    async def stop(self):
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reader


def needs(tool):
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")


def host(gateway):
    return "{}:{}".format(*gateway.address())


@needs("jq")
async def test_the_shell_loop_continues_where_it_was_killed(gateway, upstream, start, tmp_path):
    language, code = recipe("A shell loop that loses nothing")
    assert language == "bash"
    code = code.replace("localhost:8080", host(gateway))
    await upstream.push('{"n":1}', "two")
    first = await start(Program("bash", "-c", code, folder=tmp_path))
    assert await first.prints(2) == [{"n": 1}, "two"]
    await eventually(lambda: (tmp_path / "cursor").exists(), what="the cursor is saved")
    await first.stop()
    await upstream.push("three", "four")
    second = await start(Program("bash", "-c", code, folder=tmp_path))
    # The first run may have been killed before it saved the cursor. The second run then handles the same messages
    # again.
    await eventually(lambda: second.lines[-2:] == ["three", "four"], what="the second run prints what came meanwhile")
    assert second.lines in (["three", "four"], [{"n": 1}, "two", "three", "four"])


@needs("jq")
async def test_the_loop_of_the_readme_works_in_a_posix_shell(gateway, upstream, start, tmp_path):
    command = loop("README.md", "Receive", host(gateway))
    assert command[0] == "sh"
    # The shell dash interprets backslashes in `echo`.
    texts = ["C:\\new\\table", "two\nlines", "\\c", "-n"]
    await upstream.push(*texts)
    # A full disk or a kill can leave an empty file.
    (tmp_path / "cursor").touch()
    first = await start(Program(*command, folder=tmp_path))
    assert [line["data"] for line in await first.prints(4)] == texts
    await eventually(lambda: (tmp_path / "cursor").read_text().startswith("p-"), what="the cursor is saved")
    await first.stop()
    upstream.reset_connections()

    async def reconnected():
        session = await gateway.client().session()
        return session["state"] == "ready" and session["generation"] > 1

    await eventually(reconnected, what="the gateway is connected again")
    await upstream.push("after the gap")
    second = await start(Program(*command, folder=tmp_path))
    lines = await second.prints(2)
    assert lines[0]["reason"] == "upstream"
    assert lines[1]["data"] == "after the gap"


@needs("jq")
async def test_the_workers_of_the_readme_divide_the_pushes(gateway, upstream, start, tmp_path):
    command = loop("README.md", "Workers", host(gateway))
    await upstream.push(*(f"message {number}" for number in range(6)))
    workers = [await start(Program(*command, folder=tmp_path)) for _ in range(2)]
    await eventually(lambda: sum(len(worker.lines) for worker in workers) >= 6, what="all pushes are handled")
    assert sorted(line["data"] for worker in workers for line in worker.lines) == [f"message {n}" for n in range(6)]

    async def is_acknowledged():
        consumer = (await gateway.client().request("GET", "/v1/consumers/workers")).json
        return consumer["lag"] == 0 and consumer["leases"] == 0

    await eventually(is_acknowledged, what="all pushes are acknowledged")


@pytest.fixture
def reborn(gateway_for, upstream):
    """`await reborn(begin, waiting)`: kills a gateway while a loop waits, and starts it again at the same address.

    The gateway has no store. `begin` starts the loop with that address, and `waiting` is the metric of held requests.
    """

    async def reborn(begin, waiting):
        address = f"127.0.0.1:{reserve_port()}"
        gateway = await gateway_for(upstream, "--listen", address)
        client = await begin(address)

        async def waits():
            return (await gateway.metrics())[waiting] == 1

        await eventually(waits, what="the loop waits for a push")
        await gateway.kill()
        await gateway_for(upstream, "--listen", address)
        return client

    return reborn


@needs("jq")
@pytest.mark.parametrize(
    ("page", "title"), [("README.md", "Receive"), ("docs/recipes.md", "A shell loop that loses nothing")]
)
async def test_a_loop_survives_a_gateway_that_is_killed_while_a_poll_is_held(
    page, title, reborn, upstream, start, tmp_path
):
    async def handles_one(address):
        client = await start(Program(*loop(page, title, address), folder=tmp_path))
        await upstream.push('"before"')
        await client.prints(1)
        return client

    client = await reborn(handles_one, "drawbridge_polls_held")
    await upstream.push('"after"')
    await eventually(lambda: "after" in json.dumps(client.lines[1:]), what="the loop prints the push after the restart")


@needs("jq")
async def test_the_workers_of_the_readme_survive_a_gateway_that_is_killed_without_a_store(
    reborn, upstream, start, tmp_path
):
    async def handles_one(address):
        client = await start(Program(*loop("README.md", "Workers", address), folder=tmp_path))
        await upstream.push("before")
        await client.prints(1)
        return client

    client = await reborn(handles_one, "drawbridge_receives_held")
    await upstream.push("after")
    await eventually(lambda: client.lines[-1].get("data") == "after", what="the worker handles the later push")


async def test_the_python_client_receives_every_push_and_sends(gateway, upstream):
    language, code = recipe("Python")
    assert language == "python"
    names = {}
    exec(code, names)
    received = []

    def read():
        for message, cursor in names["pushes"](gateway.url()):
            received.append((message["data"], cursor))
            if len(received) == 3:
                return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    for text in ("one", "two", "three"):
        await upstream.push(text)
    await eventually(lambda: len(received) == 3, what="three pushes are received")
    assert [data for data, _ in received] == ["one", "two", "three"]
    accepted = await asyncio.to_thread(names["send"], gateway.url(), {"hello": 1})
    assert accepted["state"] == "queued"
    assert await upstream.has_received(1) == ['{"hello": 1}']


@needs("node")
async def test_the_javascript_client_receives_every_push(gateway, upstream, start, tmp_path):
    language, code = recipe("JavaScript")
    assert language == "js"
    (tmp_path / "recipe.mjs").write_text(
        f'{code}\nfor await (const message of pushes("{gateway.url()}")) console.log(JSON.stringify(message.data));\n'
    )
    program = await start(Program("node", "recipe.mjs", folder=tmp_path))
    await upstream.push("one")
    await program.prints(1)
    await upstream.push("two", '{"n":3}')
    assert await program.prints(3) == ["one", "two", {"n": 3}]


class Responder(Upstream):
    """Responds to each request with its id, after pushes that are not replies."""

    async def _react(self, connection, message):
        await connection.send("noise")
        await connection.send(json.dumps({"id": 1, "of": "another client"}))
        await connection.send(json.dumps({"id": json.loads(message)["id"], "result": "fine"}))


@pytest_asyncio.fixture
async def responder(start):
    return await start(Responder())


@needs("jq")
async def test_each_request_gets_its_own_reply(responder, gateway_for, start, tmp_path):
    gateway = await gateway_for(responder)
    language, code = recipe("Send a request and wait for its reply")
    assert language == "bash"
    program = await start(Program("bash", "-c", code.replace("localhost:8080", host(gateway)), folder=tmp_path))
    (reply,) = await program.prints(1)
    assert reply["result"] == "fine"
    assert reply["id"] == json.loads(responder.received[0])["id"]


async def test_the_readme_protects_the_gateway_in_three_lines(gateway_for, upstream, tmp_path):
    make, serve, send = re.search(r"```\n(.*?)```", section("README.md", "Protect"), re.DOTALL)[1].splitlines()

    async def shell(line):
        line = line.replace("drawbridge ", f"{BINARY.resolve()} ", 1) if line.startswith("drawbridge ") else line
        process = await asyncio.create_subprocess_exec(
            "bash", "-ec", line, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        out, _ = await process.communicate()
        assert process.returncode == 0
        return out

    await shell(make)
    name, _, value = serve.split()[0].partition("=")
    gateway = await gateway_for(
        upstream, "--listen", serve.split()[-1].replace("8080", "0"), env={name: str(tmp_path / value)}
    )
    port = gateway.address()[1]
    response = json.loads(await shell(send.replace("curl ", "curl -s ").replace(":8080", f":{port}")))
    assert response["state"] == "queued"
    assert await upstream.has_received(1) == ["hello"]
