"""A time of day that a test can set, for one program."""

import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("shifted_clock.c")


class ShiftedClock:
    """Built in `folder`; `environment` puts a program on it, and `shift(seconds)` sets it while the program runs.

    Programs on the same clock are shifted together. `beside` makes another clock without building it again.
    """

    def __init__(self, folder, *, library=None):
        self._library = library or Path(folder) / "shifted_clock.so"
        self._shift = Path(folder) / "clock-shift"
        self.shift(0)
        if not library:
            subprocess.run(
                ["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", self._library, _SOURCE],
                check=True,
                text=True,
            )

    def beside(self, folder):
        """Another clock, in a folder that is created."""
        Path(folder).mkdir(parents=True)
        return ShiftedClock(folder, library=self._library)

    @property
    def environment(self):
        return {"LD_PRELOAD": str(self._library), "CLOCK_SHIFT": str(self._shift)}

    def shift(self, seconds):
        """The time of day is that of the machine and so many seconds more."""
        with self._shift.open("r+b" if self._shift.exists() else "w+b") as file:
            file.write(struct.pack("=q", seconds))
