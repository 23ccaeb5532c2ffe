"""The network between one gateway and its servers. A test can stall and cut its connections."""

import asyncio
import contextlib

from .ports import reserve_port
from .raw import reset_transport


class Network:
    """A TCP proxy with a port for each server.

    A Sentinel reports the port of the primary. The proxy replaces it with its own port for that server, so that the
    gateway stays in this network. All ports have five digits.
    """

    def __init__(self, servers, sentinels=()):
        self._targets = {reserve_port(): port for port in [*servers, *sentinels]}
        self._own = {port: own for own, port in self._targets.items()}
        self._names = [(str(port).encode(), str(self._own[port]).encode()) for port in servers]
        self._sentinels = frozenset(sentinels)
        self._listeners = []
        self._pairs = set()
        #: If true, bytes and new connections wait, as in a network that loses all packets.
        self.is_stalled = False
        #: If true, only the bytes from the servers wait.
        self.is_mute = False
        #: If true, each connection is reset at once, as by a firewall that rejects packets.
        self.is_cut = False

    def port(self, target):
        """The port at which the gateway reaches the server with this port."""
        return self._own[target]

    async def start(self):
        loop = asyncio.get_running_loop()
        for own, target in self._targets.items():
            self._listeners.append(
                await loop.create_server(lambda target=target: _Near(self, target), "127.0.0.1", own)
            )
        return self

    async def stop(self):
        for listener in self._listeners:
            listener.close()
        self._listeners = []
        self._reset()

    def stall(self):
        self.is_stalled = True
        for pair in self._pairs:
            pair.pause()

    def mute(self):
        self.is_mute = True
        for pair in self._pairs:
            pair.resume()

    def cut(self):
        self.is_cut = True
        self._reset()

    def heal(self):
        """Passes everything again, and also the bytes that have waited."""
        self.is_cut = self.is_stalled = self.is_mute = False
        for pair in list(self._pairs):
            pair.resume()

    def _reset(self):
        for pair in list(self._pairs):
            pair.reset()

    def translated(self, target, data):
        if target in self._sentinels:
            for name, own in self._names:
                data = data.replace(name, own)
        return data


class _Near(asyncio.Protocol):
    """The side toward the gateway."""

    def __init__(self, network, target):
        self._network = network
        self._target = target
        self._early = []
        self._far = None
        self._connecting = None

    def connection_made(self, transport):
        self.transport = transport
        if self._network.is_cut:
            _reset(transport)
            return
        self._network._pairs.add(self)
        self.resume()

    def pause(self):
        for transport in (self.transport, self._far):
            if transport and not transport.is_closing():
                transport.pause_reading()

    def resume(self):
        if self._network.is_stalled:
            self.pause()
            return
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._connect())
        for transport in (self.transport, self._far):
            if transport and not transport.is_closing():
                transport.resume_reading()
        self._mute()

    def _mute(self):
        if self._network.is_mute and self._far and not self._far.is_closing():
            self._far.pause_reading()

    async def _connect(self):
        loop = asyncio.get_running_loop()
        try:
            self._far, _ = await loop.create_connection(lambda: _Far(self), "127.0.0.1", self._target)
        except OSError:
            self.reset()
            return
        if self.transport.is_closing():
            self._far.abort()
            return
        for data in self._early:
            self._far.write(data)
        if self._network.is_stalled:
            self.pause()
        self._mute()

    def data_received(self, data):
        if self._far:
            self._far.write(data)
        else:
            self._early.append(data)

    def pass_back(self, data):
        self.transport.write(self._network.translated(self._target, data))

    def reset(self):
        _reset(self.transport)
        if self._far:
            self._far.abort()
        self._network._pairs.discard(self)

    def eof_received(self):
        if self._far:
            self._far.close()

    def connection_lost(self, error):
        self._network._pairs.discard(self)
        if self._far:
            self._far.close()


class _Far(asyncio.Protocol):
    """The side toward the server."""

    def __init__(self, near):
        self._near = near

    def data_received(self, data):
        self._near.pass_back(data)

    def connection_lost(self, error):
        self._near.transport.close()
        self._near._network._pairs.discard(self._near)


def _reset(transport):
    with contextlib.suppress(OSError):
        reset_transport(transport)
