"""Servers of other projects as child processes."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from .ports import reserve_port
from .waiting import eventually


def find(program):
    """The path of a program, from PATH or from the Python environment of the tests. Without it, skips the test."""
    path = shutil.which(program, path=os.pathsep.join([os.environ["PATH"], str(Path(sys.executable).parent)]))
    return path or pytest.skip(f"'{program}' is missing: scripts/setup test installs it")


class Program:
    """A server as a child process, listening on loopback. Subclasses define its name and its arguments."""

    program = ""
    #: Seconds in which the server listens, also on a busy machine.
    listens_within = 30.0

    def __init__(self, folder):
        self.port = reserve_port()
        self._folder = folder
        self._process = None
        self._log = folder / f"{type(self).__name__}-{self.port}.log"

    @property
    def address(self):
        return "127.0.0.1", self.port

    def arguments(self):
        raise NotImplementedError

    def environment(self):
        """Variables that are added to the environment of this process."""
        return {}

    async def start(self):
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                find(self.program),
                *map(str, self.arguments()),
                env={**os.environ, **self.environment()},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        await eventually(self._listens, within=self.listens_within, what=f"{self.program} listens")

    async def _listens(self):
        assert self._process.returncode is None, f"{self.program} ended:\n{self._log.read_text()[-2000:]}"
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(*self.address)
            writer.close()
            return True
        return False

    def signal(self, number):
        if self._process and self._process.returncode is None:
            self._process.send_signal(number)

    async def kill(self):
        """Kills the server with SIGKILL. `start` starts it again on the same port."""
        self.signal(signal.SIGKILL)
        if self._process:
            await self._process.wait()

    async def stop(self):
        # A stopped process would not handle the signal to end.
        self.signal(signal.SIGCONT)
        if self._process and self._process.returncode is None:
            # With SIGKILL, the worker processes of nginx would remain.
            self._process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 10)
        if self._process and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
