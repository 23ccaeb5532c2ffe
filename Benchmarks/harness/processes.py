"""Processes pinned to cores, their processor time and memory, and the load generators."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

PROJECT = Path(__file__).resolve().parents[2]
BENCHMARKS = PROJECT / "Benchmarks"
WORK = PROJECT / ".build" / "bench"


@dataclass
class Cores:
    """The cores of the server and of the load: two each with four cores, one each with two."""

    server: list[int]
    load: list[int]

    @staticmethod
    def divide() -> "Cores":
        available = sorted(os.sched_getaffinity(0))
        if len(available) < 2:
            raise SystemExit("error: the benchmark needs at least two cores: one for the server and one for the load")
        half = min(2, len(available) // 2)
        return Cores(available[:half], available[half:])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A program pinned to cores, with its child processes. Leaving the `with` block stops it at the latest."""

    #: Running programs, and the processor time of stopped programs by their cores.
    running: ClassVar[set["Process"]] = set()
    stopped: ClassVar[dict[tuple[int, ...], float]] = {}

    def __init__(self, arguments, cores, *, pipes=False, log=None, env=None, cwd=None):
        self.arguments = [str(argument) for argument in arguments]
        output = subprocess.PIPE if pipes else (log or subprocess.DEVNULL)
        self.process = subprocess.Popen(
            self.arguments,
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=output,
            stderr=None if pipes else subprocess.STDOUT,
            text=True,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        self.cores = tuple(cores)
        Process.running.add(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @classmethod
    def cpu_on(cls, cores) -> float:
        """Seconds of processor time so far of all programs that were pinned to these cores."""
        own = sum(process.cpu() for process in cls.running if process.cores == tuple(cores))
        return own + cls.stopped.get(tuple(cores), 0)

    def stop(self):
        if self in Process.running:
            Process.running.remove(self)
            Process.stopped[self.cores] = Process.stopped.get(self.cores, 0) + self.cpu()
        family = self.family()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid in family[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def family(self) -> list[int]:
        """This process and its descendants."""
        result, rest = [], [self.process.pid]
        while rest:
            pid = rest.pop()
            result.append(pid)
            for path in Path(f"/proc/{pid}/task").glob("*/children"):
                try:
                    rest += map(int, path.read_text().split())
                except OSError:
                    continue
        return result

    def cpu(self) -> float:
        """Seconds of processor time so far, of all threads, in the kernel and outside."""
        total = 0
        for pid in self.family():
            for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                try:
                    total += int(path.read_text().split()[0])
                except OSError:
                    continue
        return total / 1e9

    def memory(self) -> int:
        """Anonymous and shared memory in bytes, without program text. Each process counts its part of shared memory."""
        total = 0
        for pid in self.family():
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                    total += int(line.split()[1]) * 1024
        return total

    def settle(self, *, within=10.0):
        """Waits until the process is idle: below a fiftieth of a core in three successive samples."""
        deadline, quiet, before = time.monotonic() + within, 0, self.cpu()
        while quiet < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
            after = self.cpu()
            quiet = quiet + 1 if after - before < 0.0004 else 0
            before = after

    def wait_until_listening(self, port, *, within=20.0):
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.01)
        raise SystemExit(f"error: nothing listens on port {port}: {' '.join(self.arguments)}")


class Tool(Process):
    """A C program of `Benchmarks/programs`, or the program at a path. It reads one command per line, and prints a JSON
    object for each command."""

    #: Seconds. Each measurement takes less: the sessions of a herd must be ready within two minutes.
    PATIENCE = 180

    def __init__(self, name, *arguments, cores):
        super().__init__([WORK / name, *arguments], cores, pipes=True)

    def send(self, command: str):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def receive_line(self) -> str:
        # Each line answers a command, so nothing is buffered here before a line arrives.
        if not select.select([self.process.stdout], [], [], self.PATIENCE)[0]:
            raise SystemExit(f"error: {' '.join(self.arguments)} has printed nothing for {self.PATIENCE} s")
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"error: {' '.join(self.arguments)} ended with status {self.process.wait()}")
        return line

    def receive(self) -> dict:
        return json.loads(self.receive_line())

    def ask(self, command: str) -> dict:
        self.send(command)
        return self.receive()


class IdleConnections:
    """Connections with keep-alive. Each has received one response and sends no further request."""

    _REQUEST = b"GET /v1/messages?wait=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

    def __init__(self, port: int, count: int):
        self.sockets = [self._open(port) for _ in range(count)]

    def _open(self, port: int) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", port), 5)
        client.sendall(self._REQUEST)
        if not client.recv(4096).startswith(b"HTTP/1.1 200"):
            raise SystemExit("error: a connection that should become idle got no response")
        return client

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in self.sockets:
            client.close()


def run_tool(name, *arguments, cores) -> dict:
    with Tool(name, *arguments, cores=cores) as tool:
        return tool.receive()
