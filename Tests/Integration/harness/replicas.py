"""Gateways that share their sessions on Redis. Each gateway is behind its own network."""

import contextlib
import json
import signal
import time

from redis.exceptions import RedisError

from .gateway import BINARY, Gateway
from .network import Network
from .ports import reserve_port
from .redis import RedisServer, Sentinel
from .waiting import eventually

#: Duration of a tenure in seconds. Tests wait for its end, so it is short. A holder may write for one second less.
LEASE = 3
#: The prefix of all keys.
PREFIX = "drawbridge"
#: For tests in which no tenure may end.
CALM_LEASE = 15


class Replica:
    """One of the gateways. It may be killed and started again, always with the same addresses."""

    def __init__(self, number, folder, upstream, databases, *, lease=LEASE, settings=None, env=None, program=BINARY):
        self.number = number
        self._folder = folder / f"replica-{number}"
        self._folder.mkdir()
        self._upstream = upstream
        self._databases = databases
        self.lease = lease
        self._settings = settings or {}
        self._env = env or {}
        #: The program that `run` starts.
        self.program = program
        self.network = Network(
            [server.port for server in databases.servers], [sentinel.port for sentinel in databases.sentinels]
        )
        # The address at which other gateways reach this gateway. A test can close it to them.
        self._peers_port = reserve_port()
        self.entrance = Network([self._peers_port])
        self.api = f"127.0.0.1:{reserve_port()}"
        self._management = f"127.0.0.1:{reserve_port()}"
        self.gateway = None
        self.is_frozen = False
        self._client = None
        #: All gateways that have run. The last is the current gateway.
        self.gateways = []

    @property
    def address(self):
        host, _, port = self.api.rpartition(":")
        return host, int(port)

    @property
    def management_port(self):
        return int(self._management.rpartition(":")[2])

    def configuration(self):
        store = {
            "engine": "redis",
            "prefix": PREFIX,
            "lease": f"{self.lease}s",
            **self._databases.settings(self.network),
        }
        settings = {
            "upstream": {"url": self._upstream.url},
            "store": store,
            "listeners": {
                "peers": f"127.0.0.1:{self._peers_port}",
                "peer_address": f"127.0.0.1:{self.entrance.port(self._peers_port)}",
            },
        }
        for section, values in self._settings.items():
            settings[section] = {**settings.get(section, {}), **values}
        return json.dumps(settings)

    async def start(self):
        await self.network.start()
        await self.entrance.start()
        await self.run()
        return self

    async def run(self, env=None):
        """Starts a gateway with these additional variables."""
        arguments = ("--listen", self.api, "--management", self._management)
        gateway = Gateway(
            *arguments,
            config=self.configuration(),
            env=self._env | (env or {}),
            folder=self._folder,
            program=self.program,
        )
        self.gateways.append(gateway)
        self._client = None
        await gateway.start()
        self.gateway = gateway

    @property
    def is_running(self):
        return self.gateway is not None

    def client(self):
        """A client. It stays the same while the gateway runs."""
        if self._client is None:
            self._client = self.gateway.client()
        return self._client

    async def ready(self):
        await self.gateway.ready()
        return self

    async def held(self):
        """The number of sessions whose holder is the gateway."""
        return (await self.gateway.metrics())["drawbridge_store_held_sessions"]

    async def kill(self):
        """Kills the gateway with SIGKILL."""
        gateway, self.gateway = self.gateway, None
        clients = list(gateway._clients)
        await gateway.kill()
        for client in clients:
            await client.close()
        self.is_frozen = False

    def freeze(self):
        self.is_frozen = True
        self.gateway.signal(signal.SIGSTOP)

    def thaw(self):
        self.is_frozen = False
        self.gateway.signal(signal.SIGCONT)

    async def drain(self):
        """Sends SIGTERM, and waits for the end."""
        gateway, self.gateway = self.gateway, None
        await gateway.stop()

    async def abandon(self):
        """Ends the gateway at once in any state."""
        process = self.gateways[-1].process if self.gateways else None
        if process and process.returncode is None:
            self.gateway = self.gateways[-1]
            await self.kill()
        await self.network.stop()
        await self.entrance.stop()

    async def stop(self):
        self.network.heal()
        self.entrance.heal()
        if self.gateway:
            self.thaw()
            await self.drain()
        await self.network.stop()
        await self.entrance.stop()


class Databases:
    """A primary, and with `replicas` also replicas and Sentinels.

    The Sentinels begin a failover after `down_after` milliseconds. `program` is the path of another server than
    Debian's. With `protection`, gateways use TLS and bypass their networks.
    """

    def __init__(
        self,
        folder,
        *,
        replicas=0,
        sentinels=0,
        options=(),
        wait_replicas=None,
        environment=None,
        down_after=500,
        program=None,
        protection=None,
    ):
        self._wait_replicas = wait_replicas
        self.protection = protection
        common = {"options": options, "environment": environment, "protection": protection}
        primary = RedisServer(folder, program=program, **common)
        self.servers = [primary, *(RedisServer(folder, primary, **common) for _ in range(replicas))]
        self.sentinels = [
            Sentinel(folder, primary, down_after=down_after, protection=protection) for _ in range(sentinels)
        ]

    @property
    def primary(self):
        """The first server. With Sentinels, use `present_primary`."""
        return self.servers[0]

    async def present_primary(self):
        """The server that most Sentinels report."""
        ports = [self.primary.port]
        for sentinel in self.sentinels:
            with contextlib.suppress(Exception):
                ports.append(await sentinel.primary_port())
        port = max(ports[1:] or ports, key=ports[1:].count)
        return next(server for server in self.servers if server.port == port)

    async def start(self):
        for server in self.servers:
            await server.start()
        for sentinel in self.sentinels:
            await sentinel.start()
        for sentinel in self.sentinels:
            await eventually(
                lambda sentinel=sentinel: sentinel.knows(len(self.servers) - 1, len(self.sentinels) - 1),
                within=60,
                what="the Sentinels know each other",
            )
        return self

    async def are_whole(self):
        """Whether all servers except the primary are replicas of the primary that the Sentinels report."""
        with contextlib.suppress(RedisError):
            primary = await self.present_primary()
            state = await primary.client.info("replication")
            # A server that is connecting is counted, but has no state yet.
            slaves = [state.get(f"slave{number}", {}) for number in range(state["connected_slaves"])]
            links = [slave.get("state") for slave in slaves]
            return state["role"] == "master" and links == ["online"] * (len(self.servers) - 1)
        return False

    async def stop(self):
        for each in [*self.sentinels, *reversed(self.servers)]:
            await each.stop()

    def settings(self, network):
        """The section `store` for a gateway in this network."""
        if self.protection:
            # A Sentinel's response is encrypted, so the network cannot change it.
            user = f"drawbridge:{self.protection.password}"
            settings = {
                "url": "rediss://drawbridge@main",
                "password": self.protection.password,
                "sentinels": [f"rediss://{user}@127.0.0.1:{sentinel.port}" for sentinel in self.sentinels],
                "sentinel_name": "main",
                "tls": self.protection.settings,
            }
        elif self.sentinels:
            addresses = [f"127.0.0.1:{network.port(sentinel.port)}" for sentinel in self.sentinels]
            settings = {"url": "redis://main", "sentinels": addresses, "sentinel_name": "main"}
        else:
            settings = {"url": f"redis://127.0.0.1:{network.port(self.primary.port)}"}
        if self._wait_replicas is not None:
            settings["wait_replicas"] = self._wait_replicas
        return settings


class Replicas:
    """All gateways of one test."""

    def __init__(self, members, databases, upstream):
        self.members = members
        self.databases = databases
        self.upstream = upstream

    def __getitem__(self, number):
        return self.members[number]

    def __iter__(self):
        return iter(self.members)

    @property
    def running(self):
        return [member for member in self.members if member.is_running and not member.is_frozen]

    async def holder(self, *, of=None):
        """The running gateway that is the holder of the session. Waits until there is one."""

        async def find():
            for member in of or self.running:
                if await member.held():
                    return member
            return None

        return await eventually(find, what="a gateway holds the session")

    async def followers(self):
        holder = await self.holder()
        return [member for member in self.running if member is not holder]

    async def ready(self):
        for member in self.running:
            await member.ready()
        return self

    async def taken_over(self, since, after):
        """Waits until a connection later than number `after` is open. Returns the seconds since `since`."""
        connection = await self.upstream.opens(after)
        return max(0.0, connection.opened - since)


def now():
    return time.monotonic()
