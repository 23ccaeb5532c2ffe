"""A file whose reader waits until the test says what is in it."""

import errno
import os

from .waiting import eventually


class Fifo:
    """A FIFO. Whoever reads it waits for `feed`, and then gets exactly what was fed."""

    def __init__(self, path):
        self.path = path
        os.mkfifo(path)

    async def feed(self, data, *, reader="the gateway"):
        """Waits until somebody has opened the FIFO to read it, and gives `data` and the end of the file."""
        descriptor = await eventually(self._open, what=f"{reader} reads {self.path}")
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)

    async def is_read(self):
        """Waits until somebody has opened the FIFO, and keeps that reader waiting: the descriptor to end it with."""
        return await eventually(self._open, what=f"somebody reads {self.path}")

    def _open(self):
        try:
            return os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise
