"""The program under test. The harness starts it on free ports, watches it, and checks how it ends."""

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path

from .client import Client
from .metrics import Metrics
from .waiting import eventually

PROJECT = Path(__file__).resolve().parents[3]
BINARY = Path(os.environ.get("DRAWBRIDGE_BINARY", PROJECT / ".build/release/drawbridge"))

# Texts that no run may write, whatever its peers do.
_CRASHES = ("Fatal error", "Sanitizer", "Backtrace", "Crash:")


# The gateway reconnects within half a second. Other tests check the real waits.
_QUICK_REDIAL = {
    "DRAWBRIDGE_UPSTREAM_RECONNECT_BASE": "100ms",
    "DRAWBRIDGE_UPSTREAM_RECONNECT_MAXIMUM": "500ms",
}

# At the end of a test, many upstreams do not respond to the closing handshake.
_QUICK_CLOSE = {"DRAWBRIDGE_UPSTREAM_TIMEOUTS_CLOSING": "1s"}

# The gateway reads the configuration file only on SIGHUP, which tests send when they have written the file.
_RELOAD = {"DRAWBRIDGE_RELOAD": "signal"}

# The raw requests of these tests use the host x, which a listener on the loopback accepts only with this setting.
_HOSTS = {"DRAWBRIDGE_HTTP_HOSTS": "x"}


async def run(*arguments, env=None, stdin=None, within=30.0):
    """Runs the program to its end. Returns the exit status, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        BINARY,
        *map(str, arguments),
        env=_environment(env),
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(stdin), within)
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
        raise AssertionError(f"still running after {within} s: {arguments}\n{out.decode()}\n{err.decode()}") from None
    return process.returncode, out.decode(), err.decode()


def _environment(extra):
    """The environment of this process without gateway settings of a developer's shell."""
    base = {name: value for name, value in os.environ.items() if not name.startswith("DRAWBRIDGE_")}
    return {**base, **(extra or {})}


class StatusPage:
    """The status page of the management listener."""

    def __init__(self, text):
        self.text = text

    @property
    def refusal(self):
        """The response that refused the last connection attempt: the lines of its head, and its body."""
        block = self.text.partition("\nlast refusal ")[2].partition("\nqueue ")[0]
        head, _, body = block.partition("\n             body: ")
        return [line.strip() for line in head.splitlines()], body


class Gateway:
    """`drawbridge serve`, or another command that serves, as a child process.

    Listeners use port 0. Only the log contains their real ports, and only `listening` reads it.
    """

    def __init__(
        self, *arguments, config=None, env=None, command="serve", folder=None, prefix=(), pass_fds=(), program=BINARY
    ):
        self._arguments = list(map(str, arguments))
        self._config = config
        self._env = env
        self._command = command
        self._folder = folder
        # A command that becomes the program with exec, for example `nsenter`.
        self._prefix = prefix
        self._pass_fds = pass_fds
        self._program = program
        self._listeners = {}
        self._readers = []
        self._clients = []
        self._management = None
        self.log = []
        self.process = None

    # -- Starting ---------------------------------------------------------------------------------------------------

    async def start(self):
        arguments = [self._command]
        if self._config is not None:
            path = Path(self._folder) / "drawbridge.yaml"
            path.write_text(self._config)
            arguments += ["--config", path]
        for option in ("--listen", "--management"):
            if option not in self._arguments:
                arguments += [option, "127.0.0.1:0"]
        self.process = await asyncio.create_subprocess_exec(
            *self._prefix,
            self._program,
            *map(str, arguments + self._arguments),
            env=_environment({**_QUICK_REDIAL, **_QUICK_CLOSE, **_HOSTS, **_RELOAD, **(self._env or {})}),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=1 << 20,
            pass_fds=self._pass_fds,
        )
        self._readers = [
            asyncio.create_task(self._read(stream)) for stream in (self.process.stdout, self.process.stderr)
        ]
        await eventually(
            lambda: self.process.returncode is not None or {"api", "management"} <= self._listeners.keys(),
            what="the gateway tells its addresses",
        )
        if self.process.returncode is not None:
            await asyncio.gather(*self._readers)
            raise AssertionError(f"the gateway ended at once (exit {self.process.returncode}):\n{self.output}")
        return self

    async def _read(self, stream):
        async for line in stream:
            text = line.decode(errors="replace").rstrip("\n")
            self.log.append(text)
            with contextlib.suppress(ValueError):
                self.listening(json.loads(text))

    def listening(self, record):
        """Records the address of a listener: `{"message":"listening","listener":"api","address":"127.0.0.1:41234"}`."""
        if isinstance(record, dict) and record.get("message") == "listening":
            self._listeners.setdefault(record["listener"], []).append(record["address"])

    def addresses(self, listener):
        return self._listeners[listener]

    @property
    def output(self):
        return "\n".join(self.log)

    @property
    def records(self):
        """The lines of the log. Each must be a JSON object."""
        return [json.loads(line) for line in self.log]

    async def logs(self, matches, *, what):
        """Waits for a record for which `matches` is true. Returns the first."""
        return await eventually(
            lambda: next((record for record in self.records if matches(record)), None), what=f"the log reports {what}"
        )

    @property
    def config(self):
        """The content of the configuration file at the start."""
        return self._config

    def rewrite(self, config):
        """Replaces the content of the configuration file. SIGHUP makes the gateway read it."""
        (Path(self._folder) / "drawbridge.yaml").write_text(config)

    # -- Communicating -----------------------------------------------------------------------------------------------

    def address(self, listener="api"):
        """Host and port of the first TCP listener of this kind."""
        tcp = next(a for a in self._listeners[listener] if not a.startswith("unix:"))
        host, _, port = tcp.rpartition(":")
        return host.strip("[]"), int(port)

    def url(self, listener="api"):
        host, port = self.address(listener)
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def client(self, listener="api", **options):
        """A client of the first listener of this kind, over TCP if there is such a listener."""
        addresses = self._listeners[listener]
        if all(address.startswith("unix:") for address in addresses):
            client = Client("http://localhost", unix=addresses[0].removeprefix("unix:"), **options)
        else:
            client = Client(self.url(listener), **options)
        self._clients.append(client)
        return client

    async def ready(self, *, within=30.0):
        """Waits until /readyz reports the session as ready."""

        async def is_ready():
            return (await self.manage("/readyz")).status == 200

        await eventually(is_ready, within=within, what="/readyz responds with 200")
        return self

    async def manage(self, path, headers=None):
        """GET on the management listener, always over the same connection: it accepts few."""
        if self._management is None:
            self._management = self.client("management")
        return await self._management.request("GET", path, headers=headers)

    async def clock(self):
        """Seconds on the monotonic clock of the gateway."""
        return (await self.manage("/", headers={"Accept": "application/json"})).json["seconds"]

    async def status_page(self):
        response = await self.manage("/")
        assert response.status == 200
        return StatusPage(response.body.decode())

    async def metrics(self):
        response = await self.manage("/metrics")
        assert response.status == 200
        return Metrics(response.body.decode())

    # -- Measuring --------------------------------------------------------------------------------------------------

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def sockets(self):
        """For each socket of the program, the kernel's name of its protocol: `tcp`, `netlink`, …"""
        folder = Path(f"/proc/{self.process.pid}/fd")
        names = []
        for entry in folder.iterdir():
            with contextlib.suppress(OSError):
                names.append(os.getxattr(entry, "system.sockprotoname").decode().rstrip("\0").lower())
        return names

    def memory(self):
        """Bytes of anonymous memory: the memory of the process without shared libraries."""
        return self._status("RssAnon")

    def peak_memory(self):
        """The largest resident memory so far in bytes, with shared libraries."""
        return self._status("VmHWM")

    def _status(self, name):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"no {name} in /proc/PID/status")

    # -- Ending -----------------------------------------------------------------------------------------------------

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    async def exit_status(self, *, within=30.0):
        try:
            await asyncio.wait_for(self.process.wait(), within)
        except TimeoutError:
            raise AssertionError(f"still running {within} s after the signal to end:\n{self.output[-4000:]}") from None
        await asyncio.gather(*self._readers)
        return self.process.returncode

    async def stop(self):
        """Ends the program in order, unless it has already ended. Fails the test after a crash."""
        for client in self._clients:
            await client.close()
        if self.process is None:
            return
        if self.process.returncode is None:
            self.signal()
        try:
            status = await self.exit_status()
        finally:
            if self.process.returncode is None:
                self.process.kill()
                await self.process.wait()
        assert status == 0, f"exit status {status}:\n{self.output[-4000:]}"
        assert not any(word in self.output for word in _CRASHES), self.output[-8000:]

    async def kill(self):
        """Kills the program with SIGKILL, so that it can do nothing before its end."""
        self.process.kill()
        await self.process.wait()
        await asyncio.gather(*self._readers)
        self.process = None
