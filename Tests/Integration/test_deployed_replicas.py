"""The files of deploy/replicas: whether they agree with each other, and whether all of them run on loopback."""

import contextlib
import json
import random
import re

import pytest_asyncio
import yaml
from compose_spec import PyCompose
from redis.asyncio import Redis
from redis.exceptions import RedisError

from harness.client import Client
from harness.deployed import DEPLOY
from harness.gateway import PROJECT, Gateway, run
from harness.memory import memory_group
from harness.program import Program
from harness.tokens import TokenFile, bearer
from harness.waiting import eventually

FOLDER = DEPLOY / "replicas"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
CONFIG = (FOLDER / "config/drawbridge.yaml").read_text()
HAPROXY = (FOLDER / "haproxy.cfg").read_text()
SENTINEL = (FOLDER / "redis/sentinel.conf").read_text()
SERVICES = COMPOSE["services"]


def services(prefix):
    return {name: service for name, service in SERVICES.items() if name.startswith(prefix)}


def addresses(prefix, network):
    return [service["networks"][network]["ipv4_address"] for service in services(prefix).values()]


# -- The contents of the files
# ------------------------------------------------------------------------------------------


def test_compose_accepts_every_member_of_the_file():
    # COMPOSE has its `<<` keys already merged, since the tool does not understand them.
    PyCompose.from_yaml(json.dumps(COMPOSE)).validate()


def test_the_services_have_only_the_rights_that_they_need():
    for name, service in SERVICES.items():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"]), name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
    # Redis has no password, so the load balancer, which clients can reach, must not be in its network.
    assert COMPOSE["networks"]["inside"]["internal"] is True
    assert [name for name, service in SERVICES.items() if "inside" not in service["networks"]] == ["haproxy"]
    build = services("gateway")["gateway1"]["build"]["context"]
    assert (FOLDER / build / "Dockerfile").resolve() == PROJECT / "Dockerfile"


def test_the_files_name_the_same_addresses():
    settings = yaml.safe_load(CONFIG)
    peers = [service["environment"]["DRAWBRIDGE_LISTENERS_PEERS"] for service in services("gateway").values()]
    assert peers == [f"{address}:9091" for address in addresses("gateway", "inside")]
    store = settings["store"]
    assert store["sentinels"] == [f"{address}:26379" for address in addresses("sentinel", "inside")]
    primary = addresses("redis1", "inside")[0]
    monitor = f"sentinel monitor {store['sentinel_name']} {primary} 6379 2\n"
    assert monitor in SENTINEL
    for name in ("redis2", "redis3"):
        assert SERVICES[name]["environment"] == {"FIRST_ROLE": f"replicaof {primary} 6379"}
    gateways = addresses("gateway", "clients")
    for start in ("server gateway", "server running"):
        assert list(dict.fromkeys(re.findall(rf"{start}\d (\S+):8080", HAPROXY))) == gateways
    assert settings["http"]["trusted_proxies"] == addresses("haproxy", "clients")


async def test_compose_waits_for_the_whole_shutdown_and_haproxy_notices_it(tmp_path):
    settings = await effective_settings(tmp_path)
    steps = ("shutdown.pause", "shutdown.drain", "shutdown.flush", "upstream.timeouts.closing")
    for service in services("gateway").values():
        assert sum(seconds(settings[step]) for step in steps) + 3 <= seconds(service["stop_grace_period"])
    # The time in which HAProxy notices a failed check: the product of `inter` and `fall`.
    assert seconds(settings["shutdown.pause"]) > 2


async def test_a_failover_of_redis_is_shorter_than_the_lease(tmp_path):
    settings = await effective_settings(tmp_path)
    assert settings["store.wait_replicas"] == "auto"
    down = int(re.search(r"down-after-milliseconds main (\d+)", SENTINEL)[1]) / 1000
    assert down + 1 + 3 <= seconds(settings["store.lease"])


async def test_the_settings_fit_in_the_limits_of_the_containers(tmp_path):
    (limit,) = {service["mem_limit"] for service in services("gateway").values()}
    (files,) = {service["ulimits"]["nofile"]["hard"] for service in services("gateway").values()}
    with memory_group(int(limit.removesuffix("m")) << 20) as group:
        prefix = (*group.prefix, "prlimit", f"--nofile={files}")
        config = CONFIG.replace("/etc/drawbridge/tokens", str(TokenFile(tmp_path).path))
        env = {"DRAWBRIDGE_LISTENERS_PEERS": "127.0.0.1:0", "DRAWBRIDGE_SHUTDOWN_PAUSE": "0s"}
        gateway = Gateway(config=config, env=env, folder=tmp_path, prefix=prefix)
        try:
            await gateway.start()
            warnings = [record["message"] for record in gateway.records if record["level"] == "warning"]
            # No Redis listens at the configured address here.
            assert set(warnings) <= {"no connection to Redis"}
        finally:
            await gateway.stop()


def seconds(text):
    (number,) = re.fullmatch(r"(\d+)s", text).groups()
    return int(number)


async def effective_settings(tmp_path):
    tokens = TokenFile(tmp_path)
    path = tmp_path / "drawbridge.yaml"
    path.write_text(CONFIG.replace("/etc/drawbridge/tokens", str(tokens.path)))
    _, text, err = await run(
        "check-config", "--all", "--config", path, env={"DRAWBRIDGE_LISTENERS_PEERS": "127.0.0.1:9091"}
    )
    assert not err
    return dict(re.findall(r"^(\S+): (\S+)", text, re.MULTILINE))


# -- The running programs
# -----------------------------------------------------------------------------------------------


class Server(Program):
    """A program at an address of the file, on the loopback interface."""

    def __init__(self, folder, program, address, *arguments):
        super().__init__(folder)
        self.program, self.at, self._arguments = program, address, arguments

    @property
    def address(self):
        return self.at

    def arguments(self):
        return self._arguments


@pytest_asyncio.fixture
async def deployed(start, tmp_path, gateway_for, upstream):
    """Starts everything in compose.yaml. Returns the gateways, a client behind HAProxy, and a client of a Sentinel."""
    # No other test uses these addresses. 127.N.* replaces 172.31.* of the file.
    network = f"127.{random.randrange(32, 250)}."

    def here(text):
        return text.replace("172.31.", network)

    async def redis(name, service):
        folder = tmp_path / name
        folder.mkdir()
        address = here(service["networks"]["inside"]["ipv4_address"])
        is_sentinel = name.startswith("sentinel")
        source = "sentinel.conf" if is_sentinel else "redis.conf"
        text = here((FOLDER / "redis" / source).read_text())
        text = re.sub(r"^bind .*$", f"bind {address}", text, flags=re.MULTILINE).replace("dir /data", f"dir {folder}")
        # Other servers would otherwise know this server as 127.0.0.1, because it connects from a loopback address.
        text += f"sentinel announce-ip {address}\n" if is_sentinel else f"replica-announce-ip {address}\n"
        text += here(service.get("environment", {}).get("FIRST_ROLE", ""))
        (folder / source).write_text(text)
        options = ["--sentinel"] if is_sentinel else []
        port = 26379 if is_sentinel else 6379
        await start(Server(folder, "redis-server", (address, port), folder / source, *options))

    for name, service in (services("redis") | services("sentinel")).items():
        await redis(name, service)
    tokens = TokenFile(tmp_path)
    token = tokens.add("client", scopes="send,receive")
    config = here(CONFIG).replace("/etc/drawbridge/tokens", str(tokens.path))
    config = config.replace("wss://example.org/socket", upstream.url)
    gateways = []
    for service in services("gateway").values():
        clients, inside = (here(service["networks"][network]["ipv4_address"]) for network in ("clients", "inside"))
        env = {"DRAWBRIDGE_LISTENERS_PEERS": f"{inside}:9091", "DRAWBRIDGE_SHUTDOWN_PAUSE": "0s"}
        arguments = ("--listen", f"{clients}:8080", "--management", f"{clients}:9090")
        gateways.append(await gateway_for(None, *arguments, config=config, env=env, ready=False))
    address = here(addresses("haproxy", "clients")[0])
    path = tmp_path / "haproxy.cfg"
    path.write_text(here(HAPROXY).replace("bind :8080", f"bind {address}:8080"))
    await start(Server(tmp_path, "haproxy", (address, 8080), "-db", "-f", path))
    async with contextlib.AsyncExitStack() as stack:
        client = Client(f"http://{address}:8080", headers=bearer(token))
        stack.push_async_callback(client.close)
        sentinel = Redis(host=here(addresses("sentinel", "inside")[0]), port=26379)
        stack.push_async_callback(sentinel.aclose)
        yield gateways, client, sentinel


async def test_the_whole_deployment_runs(deployed, upstream):
    gateways, client, sentinel = deployed

    async def are_ready():
        return all([(await gateway.manage("/readyz")).status == 200 for gateway in gateways])

    await eventually(are_ready, within=20, what="all gateways are ready")
    sent = []

    async def are_used():
        sent.append(f"message {len(sent)}")
        await client.accepted(sent[-1])
        return len(sent) >= 9 and all(await requests_of(gateways))

    # HAProxy distributes the messages over all gateways that are ready, whichever gateway is the holder.
    await eventually(are_used, what="the load balancer uses each gateway")
    assert await upstream.has_received(len(sent)) == sent

    async def are_counted():
        return sum(await requests_of(gateways)) == len(sent)

    # A response may arrive before the gateway has counted it.
    await eventually(are_counted, what="each message is counted once")
    assert len(upstream.requests) == 1
    # The test kills the holder.
    (holder,) = [gateway for gateway in gateways if (await gateway.metrics())["drawbridge_store_held_sessions"]]
    await holder.kill()
    await client.accepted("after the kill")
    assert (await upstream.has_received(len(sent) + 1))[len(sent) :] == ["after the kill"]
    assert len(upstream.requests) == 2
    # Then a Sentinel promotes another primary at once.
    primary = await sentinel.sentinel_get_master_addr_by_name("main")

    async def begins():
        # The command fails until the Sentinel knows the replicas.
        with contextlib.suppress(RedisError):
            return await sentinel.execute_command("SENTINEL", "FAILOVER", "main")

    await eventually(begins, what="a failover begins")
    keyed = {"Idempotency-Key": "k"}

    async def is_accepted():
        response = await client.send("during the failover", headers=keyed)
        assert response.status in (200, 202) or response.problem(503)["type"] == "/errors/store-failed"
        return response.status != 503

    await eventually(is_accepted, what="a message is accepted in the failover")

    async def is_replaced():
        return await sentinel.sentinel_get_master_addr_by_name("main") != primary

    await eventually(is_replaced, what="there is another primary")
    await client.accepted("after the failover")
    last = ["during the failover", "after the failover"]
    assert (await upstream.has_received(len(sent) + 3))[len(sent) + 1 :] == last
    # The holder has kept its upstream connection.
    assert len(upstream.requests) == 2


async def requests_of(gateways):
    """For each gateway, the number of messages that the load balancer sent to it."""
    metrics = [await gateway.metrics() for gateway in gateways]
    # `sent` of the holder also counts messages that others forwarded to it, and messages that it forwarded itself
    # before it became the holder.
    forwarded = [int(each["drawbridge_forwarded_requests_total"]) for each in metrics]
    sent = [int(each.samples["drawbridge_http_request_seconds_count", 'request="send"']) for each in metrics]
    holds = [each["drawbridge_store_held_sessions"] for each in metrics]
    return [sent[n] - sum(forwarded) + forwarded[n] if holds[n] else forwarded[n] for n in range(len(gateways))]
