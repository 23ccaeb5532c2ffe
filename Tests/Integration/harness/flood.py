"""An upstream that sends as fast as the kernel takes the data.

It runs in a thread, so that the loop of the tests cannot slow it down.
"""

import contextlib
import socket
import threading

from .raw import accept_key, frame


class Flood:
    """Sends text messages of 1,000 bytes without end on one connection, and reads nothing."""

    #: Messages in one system call.
    _BATCH = 1000

    def __init__(self):
        #: The number of messages that the kernel has taken.
        self.sent = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connection = None
        self._thread = threading.Thread(target=self._run)

    @property
    def url(self):
        return f"ws://127.0.0.1:{self._listener.getsockname()[1]}/"

    async def start(self):
        self._thread.start()

    async def stop(self):
        for each in (self._listener, self._connection):
            if each:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _run(self):
        with contextlib.suppress(OSError):
            self._connection, _ = self._listener.accept()
            with self._connection:
                self._upgrade()
                data = frame(1, b"x" * 1000) * self._BATCH
                while True:
                    self._connection.sendall(data)
                    self.sent += self._BATCH

    def _upgrade(self):
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            if not (data := self._connection.recv(4096)):
                raise OSError("the gateway has hung up")
            request += data
        fields = dict(line.partition(": ")[::2] for line in request.decode("latin-1").split("\r\n")[1:])
        key = next(value for name, value in fields.items() if name.lower() == "sec-websocket-key")
        self._connection.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept_key(key).encode() + b"\r\n\r\n"
        )
