"""Profiles the gateway: runs a limited load of each kind, and shows the functions that took most of the time.

    python3 -m harness.profile [post] [connections] [batches] [poll] [fan-out] [receive]

Uses perf, which includes the kernel. Its clock is cpu-clock, the only clock of virtual machines. Without perf, the
profiler is valgrind's callgrind, which counts instructions outside the kernel and is fifty times slower.
"""

import subprocess
import sys
import time

from .build import build_programs
from .processes import WORK, Cores, Tool, run_tool
from .subjects import BATCH, BATCH_CONNECTIONS, BATCH_SETTINGS, Gateway

_SECONDS = 5
_WAITERS = 2_000
_SHOWN = 25
_FOLDER = WORK / "profile"


def post(gateway: Gateway, seconds: float):
    """Messages of 100 bytes on 64 connections, forwarded to a WebSocket sink."""
    body = gateway.post_body
    run_tool("rate", gateway.port, 64, seconds, "POST", gateway.post_path, body, cores=gateway.cores.load)


def connections(gateway: Gateway, seconds: float):
    """The same, each message on a new connection."""
    body = gateway.post_body
    run_tool("rate", "-n", gateway.port, 64, seconds, "POST", gateway.post_path, body, cores=gateway.cores.load)


def batches(gateway: Gateway, seconds: float):
    """NDJSON batches of 100 such messages, on 16 connections."""
    run = (gateway.port, BATCH_CONNECTIONS, seconds, "POST", gateway.post_path, BATCH)
    run_tool("rate", "-t", "application/x-ndjson", *run, cores=gateway.cores.load)


def poll(gateway: Gateway, seconds: float):
    """Polls on 64 connections that each return one message of 100 bytes."""
    gateway.prepare_short()
    run_tool("rate", gateway.port, 64, seconds, "GET", gateway.short, cores=gateway.cores.load)


def fan_out(gateway: Gateway, seconds: float):
    """Successive pushes, each to 2,000 held polls, whose clients poll again."""
    path, cursor = gateway.hold
    with Tool("hold", gateway.port, _WAITERS, path, cursor, cores=gateway.cores.load) as holder:
        holder.receive()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            holder.send(f"expect {_WAITERS} 10000")
            gateway.push(1)
            holder.receive()


def receive(gateway: Gateway, seconds: float):
    """Messages of 100 bytes from the upstream, as fast as they are received."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        gateway.source.ask("blast 200000 100")


_LOADS = {
    "post": post,
    "connections": connections,
    "batches": batches,
    "poll": poll,
    "fan-out": fan_out,
    "receive": receive,
}


class Perf:
    """Samples a running gateway. The profile does not include its start."""

    name = "perf"

    @staticmethod
    def works() -> bool:
        return _succeeds(["perf", "record", "-q", "-e", "cpu-clock", "-o", "/dev/null", "true"])

    @staticmethod
    def start(cores) -> Gateway:
        return Gateway(cores, loops=1, settings=BATCH_SETTINGS)

    @staticmethod
    def profile(gateway, load, seconds):
        file = _FOLDER / "perf.data"
        pid = str(gateway.server.process.pid)
        record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "2999", "-g", "-o", str(file), "-p", pid]
        recorder = subprocess.Popen(record, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            load(gateway, seconds)
        finally:
            recorder.send_signal(2)
            recorder.wait()
        for title, key in (("part", "dso"), ("function", "symbol")):
            report = ["perf", "report", "-i", str(file), "--no-children", "-g", "none", "--sort", key, "--stdio", "-q"]
            lines = subprocess.run(report, capture_output=True, text=True, check=True).stdout.splitlines()
            _show(title, [line.strip() for line in lines if line.strip()])


class TracedGateway(Gateway):
    """The gateway under valgrind."""

    def launch(self, arguments, **options):
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={_FOLDER}/callgrind.out"]
        super().launch([*valgrind, *arguments], **options)


class Callgrind:
    """Runs the gateway on a simulated processor. The profile includes its start."""

    name = "callgrind"

    @staticmethod
    def works() -> bool:
        return _succeeds(["valgrind", "--version"])

    @staticmethod
    def start(cores) -> Gateway:
        return TracedGateway(cores, loops=1, settings=BATCH_SETTINGS)

    @staticmethod
    def profile(gateway, load, seconds):
        load(gateway, seconds)
        gateway.server.stop()
        annotate = ["callgrind_annotate", "--threshold=90", str(_FOLDER / "callgrind.out")]
        lines = subprocess.run(annotate, capture_output=True, text=True, check=True).stdout.splitlines()
        _show("function", [line.strip() for line in lines if "%)" in line])


def _succeeds(command) -> bool:
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False


def _show(title, lines):
    text = "\n".join(lines[:_SHOWN])
    demangled = subprocess.run(["swift", "demangle", "--simplified"], input=text, capture_output=True, text=True)
    print(f"  by {title}")
    for line in demangled.stdout.splitlines():
        print("   ", line[:150].rstrip())


def main(names):
    unknown = [name for name in names if name not in _LOADS]
    if unknown:
        raise SystemExit(f"error: unknown load {', '.join(unknown)}: use {', '.join(_LOADS)}")
    profiler = next((each for each in (Perf, Callgrind) if each.works()), None)
    if profiler is None:
        raise SystemExit("error: neither perf nor valgrind works: install the Debian package linux-perf or valgrind")
    build_programs()
    _FOLDER.mkdir(parents=True, exist_ok=True)
    cores = Cores.divide()
    for name in names or _LOADS:
        load = _LOADS[name]
        print(f"{name}, by {profiler.name}: {load.__doc__}", flush=True)
        with profiler.start(cores) as gateway:
            profiler.profile(gateway, load, _SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
