"""The subjects: the gateway, other servers, and the floor. Each runs on the server cores."""

import http.client
import json
import re
import shutil
import time
import urllib.request
from pathlib import Path

from .processes import BENCHMARKS, PROJECT, WORK, Cores, Process, Tool, free_port

#: A message of 100 bytes, in the format of the C programs.
MESSAGE = '{"at":"@0000000000000000001","pad":"%s"}' % ("x" * 62)

#: A hundred such messages as application/x-ndjson.
BATCH = (MESSAGE + "\n") * 100
#: Connections that post batches, and settings with room for one batch of each. The number of remembered deliveries is
#: the default.
BATCH_CONNECTIONS = 16
BATCH_SETTINGS = {"UPSTREAM_QUEUE_MESSAGES": 32_768, "UPSTREAM_QUEUE_BYTES": "64MiB"}


class Subject:
    """A server under test, with the processes that it needs. A subclass defines its paths and how it starts."""

    name = ""
    title = ""
    #: Whether it forwards posted messages to its own upstream.
    forwards = True
    #: Path and body of a POST of one message, and its port if polls use a different port.
    post_path = "/v1/messages"
    post_body = MESSAGE
    post_port: int | None = None
    #: Maximum number of connections for posts, with the reason if there are fewer than usual.
    post_connections: tuple[int, str] | None = None
    #: Path that returns one message of 100 bytes at once, after `prepare_short`. None if the server keeps no messages.
    short: str | None = "/v1/messages?cursor=earliest&limit=1&wait=0"
    #: Whether a push without a waiting poll is kept for the next poll.
    keeps_messages = True
    #: Maximum number of polls that may poll again at the same time, and the effect of more.
    most_waiters: tuple[int, str] | None = None
    #: Path of a long poll, and how its client sends its position (hold.c).
    hold = ("/v1/messages?wait=55", "gateway")
    #: Path of an event stream. None if the server has no streams.
    stream: str | None = None
    #: The factor by which its work is reduced, so that its run takes as long as the runs of the others.
    slowness = 1

    def __init__(self, cores: Cores, *, sink_options=()):
        self.cores = cores
        self.sink_options = sink_options
        self.port = free_port()
        self.folder = WORK / "run" / self.name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.server: Process | None = None
        self.source: Tool | None = None

    @staticmethod
    def missing() -> str | None:
        """The missing packages that it needs, or None."""
        return None

    def start(self):
        raise NotImplementedError

    def launch(self, arguments, **options):
        log = (self.folder / "log").open("w")
        self.server = Process(arguments, self.cores.server, log=log, cwd=self.folder, **options)
        self.server.wait_until_listening(self.port)

    def start_sink(self) -> int:
        port = free_port()
        self.source = Tool("sink", port, *self.sink_options, cores=self.cores.load)
        self.source.wait_until_listening(port)
        return port

    def wait_for_session(self, count=1):
        deadline = time.monotonic() + 10
        while (connections := self.source.ask("stats")["connections"]) < count:
            if time.monotonic() > deadline:
                raise SystemExit(f"error: {self.name} has {connections} of {count} connections to its upstream")
            time.sleep(0.01)

    def configure(self, template: str, **values):
        """Fills in the placeholders (@LIKE_THIS@) of a configuration file."""
        source = BENCHMARKS / "peers" / template
        text = re.sub(r"@([A-Z_]+)@", lambda place: str(values[place[1]]), source.read_text())
        (self.folder / source.name).write_text(text)

    def push(self, count: int, rate: float = 0, size: int = 100) -> dict:
        return self.source.ask(f"push {count} {rate} {size}")

    def prepare_short(self):
        self.push(1)

    def request(self, method: str, path: str, body: str):
        """A request that must succeed."""
        url = f"http://127.0.0.1:{self.port}{path}"
        urllib.request.urlopen(urllib.request.Request(url, body.encode(), method=method)).close()

    def stop(self):
        for process in (self.server, self.source):
            if process is not None:
                process.stop()

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            # If the start fails, no process remains.
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()


class Gateway(Subject):
    name = "drawbridge"
    title = "Drawbridge"
    stream = "/v1/messages"
    program = PROJECT / ".build/release/drawbridge"

    def __init__(self, cores, *, loops=None, settings=None, sessions=0, **options):
        super().__init__(cores, **options)
        self.loops = loops or len(cores.server)
        #: Number of named sessions, s0, s1 and so on, with the same upstream. 0 means the default session only.
        self.sessions = sessions
        #: Settings other than the defaults, as environment variables.
        self.settings = {f"DRAWBRIDGE_{key}": str(value) for key, value in (settings or {}).items()}
        self.management = free_port()

    def arguments(self, upstream):
        url = f"ws://127.0.0.1:{upstream}/"
        return [
            self.program,
            "serve",
            *("--listen", f"127.0.0.1:{self.port}", "--management", f"127.0.0.1:{self.management}"),
            *self.configuration(url),
            *("--loops", self.loops),
        ]

    def configuration(self, url):
        return ("--config", self.name_sessions(self.sessions, url)) if self.sessions else ("--upstream", url)

    def start(self):
        self.launch(self.arguments(self.start_sink()), env=self.settings)
        self.wait_for_session(self.sessions or 1)

    @classmethod
    def name_sessions(cls, count, url) -> Path:
        """Writes a configuration with `count` named sessions and returns its path."""
        lines = ["sessions:", *(f"  s{index}: {{upstream: {{url: '{url}'}}}}" for index in range(count))]
        file = WORK / "run" / f"{count}-sessions.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n")
        return file


class Earlier(Gateway):
    """Another build of the gateway, for example of an earlier revision. `--beside` sets its program."""

    name = "earlier"
    title = "Drawbridge, the program beside it"


class CreatingGateway(Gateway):
    """The gateway with `sessions` sessions, s0, s1 and so on, that a client has created from a profile."""

    #: Bytes per session, if there are enough sessions for a figure.
    memory: float | None = None

    def configuration(self, url):
        lines = [
            "created_sessions: {per_principal: 10000, idle_after: 1h}",
            "profiles:",
            f"  bench: {{addresses: {{allow: [127.0.0.1]}}, upstream: {{url: '{url}'}}}}",
        ]
        file = WORK / "run" / "profile.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n")
        return ("--config", file)

    def start(self):
        self.launch(self.arguments(self.start_sink()), env=self.settings)
        # The first session also allocates memory that all sessions use.
        self._create(range(1))
        before = self.server.memory()
        self._create(range(1, self.sessions))
        if self.sessions >= 100:
            self.memory = (self.server.memory() - before) / (self.sessions - 1)

    def _put(self, connection, number):
        body = json.dumps({"profile": "bench", "variables": {}})
        connection.request("PUT", f"/v1/sessions/s{number}", body, {"Content-Type": "application/json"})
        return connection.getresponse()

    def _create(self, numbers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        for number in numbers:
            response = self._put(connection, number)
            # The gateway listens a moment before its start is complete.
            deadline = time.monotonic() + 5
            while response.status == 503 and time.monotonic() < deadline:
                response.read()
                time.sleep(0.01)
                response = self._put(connection, number)
            body = response.read().decode()
            if response.status != 201 or not body:
                raise SystemExit(f"error: {self.name} responded with {response.status} to a PUT of a session: {body}")
        connection.close()
        self.wait_for_session(numbers.stop)
        self.server.settle()


class SecureGateway(Gateway):
    """The gateway with an HTTPS listener, whose port is used."""

    def __init__(self, cores, certificate: Path, key: Path):
        super().__init__(cores, settings={"LISTENERS_TLS_CERTIFICATE": certificate, "LISTENERS_TLS_KEY": key})

    def arguments(self, upstream):
        words = super().arguments(upstream)
        words[words.index("--listen")] = "--listen-https"
        # Replaces the default address, which another process may use.
        return [*words, "--listen", f"127.0.0.1:{free_port()}"]


class TLSProxy(Gateway):
    """nginx terminates TLS in front of the gateway's plain listener. Both run on the server cores."""

    name = "nginx-tls"
    title = "nginx with TLS in front of Drawbridge"

    def __init__(self, cores, certificate: Path, key: Path):
        super().__init__(cores)
        self.certificate, self.key = certificate, key

    @staticmethod
    def missing():
        return None if shutil.which("nginx") else "the Debian package nginx"

    def start(self):
        super().start()
        gateway, self.server = self.port, Together(self.server)
        self.port = free_port()
        values = {"WORKERS": len(self.cores.server), "GATEWAY": gateway, "PORT": self.port}
        self.configure("tls/nginx.conf", **values, CERTIFICATE=self.certificate, KEY=self.key)
        nginx = [shutil.which("nginx"), "-p", self.folder, "-c", "nginx.conf", "-e", "stderr"]
        log = (self.folder / "nginx-log").open("w")
        self.server.add(Process(nginx, self.cores.server, log=log, cwd=self.folder))
        self.server.processes[-1].wait_until_listening(self.port)


class Together:
    """Several processes that are measured together."""

    def __init__(self, *processes: Process):
        self.processes = list(processes)

    def add(self, process: Process):
        self.processes.append(process)

    def cpu(self) -> float:
        return sum(process.cpu() for process in self.processes)

    def settle(self):
        for process in self.processes:
            process.settle()

    def stop(self):
        for process in reversed(self.processes):
            process.stop()


class Floor(Subject):
    name = "floor"
    title = "C floor"
    forwards = False
    post_path = "/"
    short = "/short"
    hold = ("/hold", "none")

    def start(self):
        # The floor has one thread, and so uses one core even if other servers use two.
        self.launch([WORK / "floor", self.port, self.start_sink()])
        self.wait_for_session()

    def prepare_short(self):
        pass


class Nchan(Subject):
    name = "nchan"
    title = "nchan (nginx)"
    forwards = False
    post_path = "/send"
    short = "/short"
    hold = ("/poll", "nchan")
    stream = "/stream"

    @staticmethod
    def missing():
        module = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")
        return None if shutil.which("nginx") and module.exists() else "the Debian packages nginx and libnginx-mod-nchan"

    def start(self):
        self.configure("nchan/nginx.conf", PORT=self.port, WORKERS=len(self.cores.server))
        self.launch([shutil.which("nginx"), "-p", self.folder, "-c", "nginx.conf", "-e", "stderr"])
        self.source = Tool("publish", self.port, "/publish", 16, "raw", cores=self.cores.load)

    def prepare_short(self):
        urllib.request.urlopen(f"http://127.0.0.1:{self.port}/publish-short", MESSAGE.encode()).close()


class Pushpin(Subject):
    name = "pushpin"
    title = "Pushpin"
    forwards = False
    post_path = "/publish/"
    post_body = json.dumps({"items": [{"channel": "none", "formats": {"http-response": {"body": MESSAGE}}}]})
    post_connections = (32, "with 32 connections: it closes each after its response, and its backlog is 50")
    most_waiters = (1000, "with 1,000 polls: it refuses thousands of 10,000 that poll again at once")
    keeps_messages = False
    short = None
    hold = ("/", "none")

    def __init__(self, cores, **options):
        super().__init__(cores, **options)
        self.post_port = free_port()
        self.origin: Process | None = None

    @staticmethod
    def missing():
        found = all(shutil.which(name) for name in ("pushpin", "condure", "zurl", "nginx"))
        return None if found else "the Debian packages pushpin, condure, zurl and nginx"

    def start(self):
        origin_port = free_port()
        self.configure("pushpin/origin.conf", PORT=origin_port)
        origin = [shutil.which("nginx"), "-p", self.folder, "-c", "origin.conf", "-e", "stderr"]
        self.origin = Process(origin, self.cores.load, cwd=self.folder)
        self.origin.wait_until_listening(origin_port)
        self.configure("pushpin/pushpin.conf", PORT=self.port, CONTROL_PORT=self.post_port, FOLDER=self.folder)
        (self.folder / "routes").write_text(f"* 127.0.0.1:{origin_port}\n")
        self.launch([shutil.which("pushpin"), f"--config={self.folder}/pushpin.conf"])
        self.server.wait_until_listening(self.post_port)
        self.source = Tool("publish", self.post_port, "/publish/", 16, "pushpin", cores=self.cores.load)

    def stop(self):
        super().stop()
        if self.origin is not None:
            self.origin.stop()


class Bridge(Subject):
    """A small bridge that a developer might write, with the paths and cursors of the gateway."""

    short = "/v1/messages?cursor=0&limit=1&wait=0"

    def arguments(self):
        raise NotImplementedError

    def start(self):
        upstream = f"ws://127.0.0.1:{self.start_sink()}/"
        self.launch([*self.arguments(), self.port, upstream], env={"GOMAXPROCS": str(len(self.cores.server))})
        self.wait_for_session(self.connection_count())

    def connection_count(self):
        return 1


class CBridge(Bridge):
    """A bridge in C with the same work per message as the gateway, and nothing else: the floor of that work."""

    name = "c"
    title = "C bridge"
    short = Subject.short

    def __init__(self, cores, *, sessions=0, **options):
        super().__init__(cores, **options)
        #: Number of named sessions, s0, s1 and so on, with the same upstream. 0 means the default session only.
        self.sessions = sessions

    def arguments(self):
        return [WORK / "c-bridge", *(("-s", self.sessions) if self.sessions > 1 else ())]

    def connection_count(self):
        return self.sessions or 1


class Go(Bridge):
    name = "go"
    title = "Go + gorilla"

    @staticmethod
    def missing():
        package = Path("/usr/share/gocode/src/github.com/gorilla/websocket")
        found = shutil.which("go") and package.exists()
        return None if found else "the Debian packages golang-go and golang-github-gorilla-websocket-dev"

    def arguments(self):
        return [WORK / "go-bridge"]


class Aiohttp(Bridge):
    name = "aiohttp"
    title = "aiohttp + websockets"
    slowness = 20

    def arguments(self):
        return [PROJECT / ".venv/bin/python", BENCHMARKS / "peers/aiohttp/bridge.py"]


SUBJECTS = [Gateway, Floor, CBridge, Nchan, Go, Aiohttp, Pushpin]
