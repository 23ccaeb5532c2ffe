"""A control group with a memory limit, for one process."""

import contextlib
import os
from pathlib import Path

import pytest

_ROOT = Path("/sys/fs/cgroup")


class MemoryGroup:
    """A group below the root. In versions 1 and 2 of control groups, its files have different names."""

    def __init__(self, name, limit):
        # Uses version 1 if its controller is mounted. Otherwise uses version 2, whose root must delegate the
        # controller.
        self._legacy = (_ROOT / "memory/memory.limit_in_bytes").exists()
        self._folder = (_ROOT / "memory" if self._legacy else _ROOT) / name
        try:
            self._folder.mkdir()
            (self._folder / ("memory.limit_in_bytes" if self._legacy else "memory.max")).write_text(str(limit))
        except OSError as error:
            with contextlib.suppress(OSError):
                self._folder.rmdir()
            pytest.skip(f"no control group with a memory limit can be made here: {error}")

    @property
    def prefix(self):
        """A command that enters the group and then becomes the program."""
        return ("/bin/sh", "-c", f'echo $$ >{self._folder}/cgroup.procs && exec "$@"', "sh")

    def peak(self):
        """Maximum number of bytes that the group has used. With version 2 before Linux 5.19, the bytes in use now."""
        names = ["memory.max_usage_in_bytes"] if self._legacy else ["memory.peak", "memory.current"]
        return int(next(file for name in names if (file := self._folder / name).exists()).read_text())

    def remove(self):
        self._folder.rmdir()


@contextlib.contextmanager
def memory_group(limit):
    if os.geteuid() != 0:
        pytest.skip("a control group needs root")
    group = MemoryGroup(f"drawbridge-test-{os.getpid()}", limit)
    try:
        yield group
    finally:
        group.remove()
