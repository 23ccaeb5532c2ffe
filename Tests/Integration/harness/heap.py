"""Counts how much heap the gateway uses, from outside while it runs."""

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_name("heap_counter.c")


@dataclass(frozen=True)
class HeapCounts:
    """Allocations since the start of the program, bytes in use as the allocator rounds them, and blocks in use."""

    allocations: int
    bytes: int
    blocks: int

    def __sub__(self, earlier):
        return HeapCounts(
            self.allocations - earlier.allocations, self.bytes - earlier.bytes, self.blocks - earlier.blocks
        )


class HeapCounter:
    """A counter that is built in `folder`. `environment` makes a program count, and `read()` returns the counts."""

    def __init__(self, folder):
        self._library = Path(folder) / "heap_counter.so"
        self._counts = Path(folder) / "heap-counts"
        subprocess.run(
            ["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", self._library, _SOURCE], check=True, text=True
        )

    @property
    def environment(self):
        return {"LD_PRELOAD": str(self._library), "HEAP_COUNTS": str(self._counts)}

    def read(self):
        return HeapCounts(*struct.unpack("=3Q", self._counts.read_bytes()))
