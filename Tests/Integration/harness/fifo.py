"""A file whose reader waits until the test provides the content."""

import errno
import os

from .waiting import eventually


class Fifo:
    """A FIFO. Its reader waits for `feed`, and then reads exactly the bytes that `feed` provides."""

    def __init__(self, path):
        self.path = path
        os.mkfifo(path)

    async def feed(self, data, *, reader="the gateway"):
        """Waits until a process has opened the FIFO to read it. Then writes `data` and ends the file."""
        descriptor = await eventually(self._open, what=f"{reader} reads {self.path}")
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)

    async def is_read(self):
        """Waits until a process has opened the FIFO. That process then waits until the descriptor is closed."""
        return await eventually(self._open, what=f"a process reads {self.path}")

    def _open(self):
        try:
            return os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise
