"""Ports for servers of tests. No other process gets these ports, even while their server is stopped."""

import contextlib
import itertools
import random
import socket

# These ports are below the ports that Linux gives to clients and to servers with port 0.
_PORTS = range(12_000, 32_000)

_reservations = []


def reserve_port(among=_PORTS):
    """A port on which no process listens, and which stays reserved until `release_ports`.

    A socket is bound to it until then, but never listens. Connections are refused, as on any port without a server. A
    server that sets SO_REUSEADDR, as nearly all do, can listen, stop and listen again. Other reservations, servers with
    port 0 and the local ports of outgoing connections avoid the port.
    """
    for port in itertools.islice(random.sample(among, len(among)), 1000):
        reservation = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
        try:
            if reservation.family == socket.AF_INET6:
                reservation.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            # The socket has no SO_REUSEADDR, so that this fails if another reservation or a server has the port.
            reservation.bind(("", port))
            reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            reservation.close()
            continue
        _reservations.append(reservation)
        return port
    raise RuntimeError(f"no port from {among.start} to {among.stop - 1} is free")


def release_ports():
    """Call it after each test, when its servers have ended."""
    while _reservations:
        with contextlib.suppress(OSError):
            _reservations.pop().close()
