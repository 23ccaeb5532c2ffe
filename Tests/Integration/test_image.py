"""The image of the Dockerfile, built and run: its rights, volume, memory limit and health check, and the compose file.

The image contains the program under test. DRAWBRIDGE_IMAGE names another image instead, for example an image whose
program was compiled in a container (scripts/container-check).
"""

import asyncio
import contextlib
import json
import os
import re
import shutil

import aiohttp
import pytest

from harness import containers
from harness.client import Client
from harness.containers import Container, command
from harness.deployed import COMPOSE, replaced
from harness.gateway import BINARY, PROJECT, run
from harness.metrics import Metrics
from harness.program import find
from harness.tokens import TokenFile, bearer
from harness.waiting import eventually

DOCKERFILE = (PROJECT / "Dockerfile").read_text()
MEBIBYTE = 1 << 20
# The first test is the slowest, since it builds the images.
pytestmark = [pytest.mark.xdist_group("containers"), pytest.mark.timeout(600)]

# The options of the command in docs/deployment.md.
CONFINED = ("--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges")
PORTS = ("--publish", "127.0.0.1::8080", "--publish", "127.0.0.1::9090")
OPEN = ("--env", "DRAWBRIDGE_ACCESS=none")
# No upstream listens there, so messages stay in the queue.
NOBODY = ("serve", "--upstream", "ws://127.0.0.1:1/")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    if "DRAWBRIDGE_IMAGE" in os.environ:
        return os.environ["DRAWBRIDGE_IMAGE"]
    if not containers.is_static():
        pytest.skip("the program needs the Swift toolchain: 'make build' makes one that runs without")
    # The image contains the program under test, instead of a program that the Dockerfile's first stage would compile.
    text, stages = re.subn(r"^FROM \S+ AS builder\n.*?(?=^FROM )", "", DOCKERFILE, flags=re.MULTILINE | re.DOTALL)
    text, copies = re.subn("COPY --from=builder /out/drawbridge", "COPY drawbridge", text)
    assert (stages, copies) == (1, 1)
    folder = tmp_path_factory.mktemp("image")
    (folder / "Dockerfile").write_text(text)
    shutil.copytree(PROJECT / "config", folder / "config")
    command("install", "--strip", BINARY, folder / "drawbridge")
    return containers.build(folder, "image", f"RUNTIME_IMAGE={containers.debian()}")


class Served(Container):
    """A container of the image, and clients of its two listeners."""

    def __init__(self, image, *arguments, options=OPEN):
        super().__init__(image, *arguments, options=(*CONFINED, *PORTS, *options))

    async def start(self):
        super().start()
        await self.connect()

    async def connect(self):
        """Connects the clients when the container responds. Removes a container that ends instead."""
        try:
            assert self.inspect()["State"]["Running"], self.logs()
            self.client = Client(self.address(8080))
            self.management = Client(self.address(9090))
            await eventually(self.is_alive, what="it responds")
        except AssertionError:
            self.end()
            raise

    async def is_alive(self):
        assert self.inspect()["State"]["Running"], self.logs()
        with contextlib.suppress(aiohttp.ClientError):
            return (await self.management.request("GET", "/livez")).status == 200

    async def disconnect(self):
        await self.client.close()
        await self.management.close()

    async def restart(self, *how):
        await self.disconnect()
        self.podman(*how)
        await self.connect()

    async def stop(self):
        await self.disconnect()
        self.end()

    def end(self):
        self.remove()

    def records(self):
        return [json.loads(line) for line in self.logs().splitlines() if line.startswith("{")]


@pytest.fixture
def served(image, start):
    """`await served(*arguments, options=…)`: a container of the image that is ready."""

    async def served(*arguments, **options):
        return await start(Served(image, *arguments, **options))

    return served


def test_the_image_is_small_and_labelled(image, measured):
    (description,) = json.loads(command("podman", "image", "inspect", image))
    measured(f"{description['Size'] / MEBIBYTE:.1f} MiB")
    assert description["Size"] < 100 * MEBIBYTE
    config = description["Config"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", config["User"]), "Kubernetes checks a number that is not 0"
    assert config["ExposedPorts"].keys() == {"8080/tcp", "9090/tcp"}
    assert config["StopSignal"] == "SIGTERM"
    labels = {name.rpartition(".")[2]: text for name, text in config["Labels"].items() if "opencontainers" in name}
    assert (labels["title"], labels["licenses"]) == ("Drawbridge", "Apache-2.0")
    assert labels.keys() == {"title", "description", "licenses", "version", "revision"}


async def test_the_image_has_the_version_of_the_program():
    """The default of ARG VERSION is the version of the program."""
    _, version, _ = await run("version")
    default = re.search(r"^ARG VERSION=(.+)$", DOCKERFILE, re.MULTILINE)[1]
    assert version.split()[-1] == default


async def test_the_container_serves_without_rights_and_writes_nothing(served):
    container = await served("demo")
    here = await container.client.here()
    await container.client.accepted("hello, container")

    async def is_back():
        return "hello, container" in (await container.client.poll(cursor=here, wait=0)).payloads

    await eventually(is_back, what="the built-in upstream echoes it")
    status = dict(line.split(":\t", 1) for line in container.execute("cat", "/proc/1/status").splitlines())
    assert status["Uid"].split() == ["65532"] * 4
    assert {int(status[f"Cap{name}"], 16) for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    with pytest.raises(OSError, match="Read-only file system"):
        container.execute("touch", "/usr/local/bin/x", user="0")


async def test_the_health_of_the_container_follows_the_upstream(served):
    def health(container):
        container.podman("healthcheck run", check=False)
        return container.inspect()["State"]["Health"]

    container = await served("demo")
    assert container.inspect()["State"]["Health"]["Status"] == "starting"
    await eventually(lambda: health(container)["Status"] == "healthy", what="it is healthy")
    container = await served(*NOBODY)
    assert health(container)["Log"][-1]["ExitCode"] != 0


async def test_the_container_does_not_start_without_authentication(image):
    container = Container(image, *NOBODY, options=CONFINED)
    container.start()
    try:
        assert container.podman("wait") == "78"
        assert "DRAWBRIDGE_ACCESS=none" in container.logs()
    finally:
        container.remove()


async def test_data_in_the_volume_outlives_the_container(served):
    volume = f"drawbridge-test-{os.getpid()}"
    options = (*OPEN, "--env", "DRAWBRIDGE_STORE_ENGINE=sqlite", "--volume", f"{volume}:/data")
    # Without an upstream, a shutdown could not send the queue.
    options += ("--env", "DRAWBRIDGE_SHUTDOWN_FLUSH=100ms")
    command("podman", "volume", "create", volume)
    try:
        container = await served(*NOBODY, options=options)
        await container.client.accepted("kept", headers={"TTL": "600"})
        await container.restart("restart", "--time", "30")
        assert await queued(container) == 1
        await container.client.accepted("kept, too", headers={"TTL": "600"})
        container.podman("kill")
        await container.stop()
        container = await served(*NOBODY, options=options)
        assert await queued(container) == 2
        container.execute("drawbridge", "store", "backup", "/data/drawbridge.db", "/data/copy.db")
        await container.stop()
    finally:
        command("podman", "volume", "rm", "--force", volume)


async def queued(container):
    return (await container.client.session())["queue"]["messages"]


async def test_the_gateway_reads_the_memory_limit_of_the_container(served):
    container = await served(*NOBODY, options=(*OPEN, "--memory", "256m"))
    (warning,) = (record for record in container.records() if "more memory than is available" in record["message"])
    assert warning["reason"].startswith("the memory limit 256 MiB of the control group is below ")


async def test_held_requests_get_responses_when_the_container_stops(served):
    container = await served(*NOBODY)
    poll = asyncio.create_task(container.client.get(wait=50))

    async def is_held():
        metrics = Metrics((await container.management.request("GET", "/metrics")).body.decode())
        return metrics["drawbridge_polls_held"] == 1

    await eventually(is_held, what="the poll is held")
    stop = asyncio.create_task(asyncio.to_thread(container.podman, "stop", "--time", "30"))
    response = await poll
    assert (response.status, response.json["messages"]) == (200, [])
    await stop
    assert container.inspect()["State"]["ExitCode"] == 0
    messages = [record["message"] for record in container.records()]
    assert messages[-1] == "stopped"


# -- Compose ----------------------------------------------------------------------------------------------------------


class Composed(Served):
    """The service of deploy/compose, on free ports."""

    def __init__(self, image, folder):
        super().__init__(image)
        self.file = folder / "compose.yaml"
        ports = {f"127.0.0.1:{port}:{port}": f"127.0.0.1::{port}" for port in (8080, 9090)}
        self.file.write_text(replaced("compose/compose.yaml", {"image: drawbridge": f"image: {image}", **ports}))
        # Copies the configuration, with the file of tokens beside it.
        (folder / "config/drawbridge.yaml").write_text(
            replaced("compose/config/drawbridge.yaml", {"wss://example.org/socket": "ws://127.0.0.1:1/"})
        )
        self.project = f"drawbridge-test-{os.getpid()}"

    def compose(self, *words):
        tool = (find("podman-compose"), *(f"--podman-{name}" for name in containers.arguments()))
        command(*tool, "--project-name", self.project, "--file", self.file, *words)

    async def start(self):
        self.compose("up", "--detach", "--no-build")
        self.id = f"{self.project}_drawbridge_1"
        await self.connect()

    def end(self):
        self.compose("down", "--volumes")


async def test_the_compose_file_runs(image, start, tmp_path):
    (tmp_path / "config").mkdir()
    tokens = TokenFile(tmp_path / "config")
    token = tokens.add("reader", scopes="send,receive")
    container = await start(Composed(image, tmp_path))
    assert (await container.client.get(wait=0)).status == 401
    assert (await container.client.get(wait=0, headers=bearer(token))).status == 200
    # Another file replaces the file of tokens, as with an editor.
    later = tokens.add("later", scopes="receive")

    async def is_known():
        return (await container.client.get(wait=0, headers=bearer(later))).status == 200

    await eventually(is_known, what="the new token is read")
    records = container.records()
    assert any(record["message"] == "store opened" for record in records)
    assert not any(record["level"] == "error" or "more memory" in record["message"] for record in records)
    host = container.inspect()["HostConfig"]
    assert (host["ReadonlyRootfs"], host["Memory"]) == (True, 512 * MEBIBYTE)
    assert COMPOSE["services"]["drawbridge"]["mem_limit"] == "512m"
