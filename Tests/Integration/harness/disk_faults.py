"""A disk that fails or stalls on demand, for the files of one folder and one program."""

import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("disk_faults.c")
_FORMAT = "=8q"

#: Kinds of operations.
WRITE, SYNC, TRUNCATE, OPEN = 1, 2, 4, 8
_FOREVER = 1 << 62


class FaultyDisk:
    """A faulty disk that is built in `folder`, for the files below `files`. A program uses it with `environment`.

    A failed synchronisation also discards the bytes that were not synchronised, as Linux may do.
    """

    def __init__(self, folder, files):
        self._library = Path(folder) / "disk_faults.so"
        self._control = Path(folder) / "disk_faults"
        self._files = files
        self._write()
        subprocess.run(
            ["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", self._library, _SOURCE], check=True, text=True
        )

    @property
    def environment(self):
        return {
            "LD_PRELOAD": str(self._library),
            "DISK_FAULTS": str(self._control),
            "DISK_FAULTS_FOLDER": f"{self._files}/",
        }

    def fail(self, kinds, code, *, at=1, count=_FOREVER):
        """From now on, operation `at` of these kinds fails with `code`, and so do the next `count` - 1 operations."""
        self._write(mask=kinds, at=at, count=count, code=code)

    def stall(self):
        """From now on, synchronisations never return."""
        self._write(stall=1)

    def heal(self):
        self._write()

    @property
    def failed(self):
        """The number of operations that have failed since the last change."""
        return self._read()[6]

    @property
    def stalls(self):
        """The number of synchronisations that have stalled since the last change."""
        return self._read()[7]

    def _read(self):
        return struct.unpack(_FORMAT, self._control.read_bytes())

    def _write(self, *, mask=0, at=1, count=0, code=0, stall=0):
        # The program has mapped the file into its memory, so the same file must be changed in place.
        content = struct.pack(_FORMAT, mask, at, count, code, stall, 0, 0, 0)
        with self._control.open("r+b" if self._control.exists() else "w+b") as file:
            file.write(content)
