"""A time of day that a test sets for one program."""

import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("shifted_clock.c")


class ShiftedClock:
    """A clock that is built in `folder`. `environment` makes a program use it, and `shift(seconds)` sets it.

    A shift applies to all programs with the same clock, at any time. `beside` makes another clock without building it
    again.
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
        """Another clock, in a new folder."""
        Path(folder).mkdir(parents=True)
        return ShiftedClock(folder, library=self._library)

    @property
    def environment(self):
        return {"LD_PRELOAD": str(self._library), "CLOCK_SHIFT": str(self._shift)}

    def shift(self, seconds):
        """Sets the time of day to the machine's time plus this number of seconds."""
        with self._shift.open("r+b" if self._shift.exists() else "w+b") as file:
            file.write(struct.pack("=q", seconds))
