"""A name server whose answers a test chooses, and a program that asks it and no other."""

import asyncio
import contextlib
import shutil
import socket
import struct
import subprocess

import pytest

# Port 53 of an address that no machine uses: a resolv.conf cannot name another port.
ADDRESS = "127.0.77.53"

_A, _AAAA = 1, 28


def _reason():
    if shutil.which("unshare") is None:
        return "unshare is missing"
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.bind((ADDRESS, 53))
        except OSError as error:
            return f"port 53 of {ADDRESS} cannot be used: {error.strerror}"
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True)
    return f"unshare --mount: {done.stderr.strip()}" if done.returncode else None


_missing = _reason()
needs_nameserver = pytest.mark.skipif(_missing is not None, reason=_missing or "")


class Nameserver(asyncio.DatagramProtocol):
    """Answers for `names`: a list of answers to successive look-ups, each a list of addresses. The last stays."""

    def __init__(self, folder, names=None):
        self._resolv = folder / "resolv.conf"
        self.names = dict(names or {})
        # Look-ups by name and family; glibc asks for both families at once.
        self.asked = []
        self._turns = {}

    async def start(self):
        self._resolv.write_text(f"nameserver {ADDRESS}\noptions timeout:1 attempts:2\n")
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=(ADDRESS, 53))

    async def stop(self):
        self._transport.close()

    @property
    def prefix(self):
        """Before the program: in a mount namespace of its own, its resolv.conf names this server."""
        in_place = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        return ("unshare", "--mount", "sh", "-c", in_place, str(self._resolv))

    def connection_made(self, transport):
        pass

    def datagram_received(self, data, peer):
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode())
            at += 1 + data[at]
        name = ".".join(labels).lower()
        kind = struct.unpack("!H", data[at + 1 : at + 3])[0]
        addresses = self._answer(name, kind)
        code = 3 if addresses is None else 0
        records = b""
        for address in addresses or ():
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            if kind == (_AAAA if family == socket.AF_INET6 else _A):
                packed = socket.inet_pton(family, address)
                records += struct.pack("!HHHIH", 0xC00C, kind, 1, 0, len(packed)) + packed
        count = len(records) // (28 if kind == _AAAA else 16) if records else 0
        header = data[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, count, 0, 0)
        self._transport.sendto(header + data[12 : at + 5] + records, peer)

    def _answer(self, name, kind):
        self.asked.append((name, kind))
        answers = self.names.get(name)
        if answers is None:
            return None
        turn = self._turns.get((name, kind), 0)
        self._turns[name, kind] = turn + 1
        return answers[min(turn, len(answers) - 1)]
