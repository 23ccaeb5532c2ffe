"""What is measured: the gateway, its peers, and the floor, each started on the cores that serve."""

import json
import shutil
import time
import urllib.request
from pathlib import Path

from .processes import BENCHMARKS, PROJECT, WORK, Cores, Process, Tool, free_port


class Subject:
    """A server under test, with whatever it needs beside it. A subclass says how it is started and spoken to."""

    name = ""
    title = ""
    #: (path, fields) of a POST of one message.
    post = ("/v1/messages", ())
    #: Path that answers at once with one message of 100 bytes, after `prepare_short`.
    short = "/v1/messages?cursor=earliest&limit=1&wait=0"
    #: Path of a long poll, and how its client tells what it has seen (hold.c).
    hold = ("/v1/messages?wait=55", "gateway")

    def __init__(self, cores: Cores):
        self.cores = cores
        self.port = free_port()
        self.folder = WORK / "run" / self.name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.server: Process | None = None
        self.source: Tool | None = None

    @staticmethod
    def missing() -> str | None:
        """What this machine lacks to run it, or None."""
        return None

    def start(self):
        raise NotImplementedError

    def launch(self, arguments, **options):
        log = (self.folder / "log").open("w")
        self.server = Process(arguments, self.cores.server, log=log, cwd=self.folder, **options)
        self.server.wait_until_listening(self.port)

    def start_sink(self, *options) -> int:
        port = free_port()
        self.source = Tool("sink", port, *options, cores=self.cores.load)
        self.source.wait_until_listening(port)
        return port

    def wait_for_session(self):
        deadline = time.monotonic() + 10
        while self.source.ask("stats")["connections"] == 0:
            if time.monotonic() > deadline:
                raise SystemExit(f"error: {self.name} does not connect to its upstream")
            time.sleep(0.01)

    def push(self, count: int, rate: float = 0, size: int = 100) -> dict:
        return self.source.ask(f"push {count} {rate} {size}")

    def prepare_short(self):
        self.push(1)

    def stop(self):
        for process in (self.server, self.source):
            if process is not None:
                process.stop()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()


class Gateway(Subject):
    name = "drawbridge"
    title = "Drawbridge"

    def __init__(self, cores, *, loops=None, sink_options=()):
        super().__init__(cores)
        self.loops = loops or len(cores.server)
        self.sink_options = sink_options
        self.management = free_port()

    def arguments(self, upstream):
        return [
            PROJECT / ".build/release/drawbridge",
            "serve",
            *("--listen", f"127.0.0.1:{self.port}", "--management", f"127.0.0.1:{self.management}"),
            *("--upstream", f"ws://127.0.0.1:{upstream}/", "--loops", self.loops),
        ]

    def start(self):
        self.launch(self.arguments(self.start_sink(*self.sink_options)))
        self.wait_for_session()


class Floor(Subject):
    name = "floor"
    title = "C floor"
    post = ("/", ())
    short = "/short"
    hold = ("/hold", "none")

    def start(self):
        # On one core, like all: it has one thread, and where others have two the comparison takes that into account.
        self.launch([WORK / "floor", self.port, self.start_sink()])
        self.wait_for_session()

    def prepare_short(self):
        pass


class Nchan(Subject):
    name = "nchan"
    title = "nchan (nginx)"
    post = ("/send", ())
    short = "/short"
    hold = ("/poll", "nchan")

    @staticmethod
    def missing():
        module = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")
        return None if shutil.which("nginx") and module.exists() else "the Debian packages nginx and libnginx-mod-nchan"

    def start(self):
        text = (BENCHMARKS / "peers/nchan/nginx.conf").read_text()
        text = text.replace("@PORT@", str(self.port)).replace("@WORKERS@", str(len(self.cores.server)))
        (self.folder / "nginx.conf").write_text(text)
        self.launch([shutil.which("nginx"), "-p", self.folder, "-c", "nginx.conf", "-e", "stderr"])
        self.source = Tool("publish", self.port, "/publish", 16, "raw", cores=self.cores.load)

    def prepare_short(self):
        body = json.dumps({"at": "@0000000000000000001", "pad": "x" * 62}, separators=(",", ":")).encode()
        urllib.request.urlopen(f"http://127.0.0.1:{self.port}/publish-short", body).close()


SUBJECTS = [Gateway, Floor, Nchan]
