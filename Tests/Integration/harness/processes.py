"""Processes: those that the program under test has started, and signals that do not take a process's exit status."""

import asyncio.base_subprocess
import contextlib
import os
import signal
from pathlib import Path


def descendants(pid):
    """The identifiers of the processes below this process, the nearest first."""
    found = [pid]
    for parent in found:
        # A process that ends now has no children any more.
        with contextlib.suppress(OSError):
            for children in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, children.read_text().split())
    return found[1:]


def kill_all(pids):
    """Sends SIGKILL to the processes that still run."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def send_signals_without_reaping():
    """Makes asyncio's `send_signal`, `terminate` and `kill` leave the exit status of a process to asyncio's watcher.

    Before Python 3.12.4, they call `Popen.poll`, which reaps a process that has just ended. Then the watcher finds no
    such process and reports the exit status 255. Source: https://github.com/python/cpython/issues/87744.
    """

    def send_signal(transport, number):
        transport._check_proc()
        # The watcher may have reaped the process already and not have reported it yet.
        with contextlib.suppress(ProcessLookupError):
            os.kill(transport.get_pid(), number)

    def terminate(transport):
        send_signal(transport, signal.SIGTERM)

    def kill(transport):
        send_signal(transport, signal.SIGKILL)

    for method in (send_signal, terminate, kill):
        setattr(asyncio.base_subprocess.BaseSubprocessTransport, method.__name__, method)
