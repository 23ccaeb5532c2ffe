"""A name server whose responses a test chooses, and a way to make a program use only this server."""

import asyncio
import contextlib
import errno
import shutil
import socket
import struct
import subprocess

import pytest

# All name servers use port 53, since a resolv.conf cannot name another port. No machine uses these addresses. Each test
# has its own, since tests run in parallel.
_ADDRESSES = [f"127.0.77.{number}" for number in range(53, 153)]

_A, _CNAME, _AAAA = 1, 5, 28


def _reason():
    if shutil.which("unshare") is None:
        return "unshare is missing"
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.bind((_ADDRESSES[-1], 53))
        except OSError as error:
            return f"port 53 of {_ADDRESSES[-1]} cannot be used: {error.strerror}"
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True)
    return f"unshare --mount: {done.stderr.strip()}" if done.returncode else None


_missing = _reason()
needs_nameserver = pytest.mark.skipif(_missing is not None, reason=_missing or "")


class Nameserver(asyncio.DatagramProtocol):
    """A name server whose `names` have a list of responses each, for successive lookups. The last is repeated.

    A response is a list of addresses. A name in place of the addresses is an alias (CNAME). `options` are options of
    resolv.conf.
    """

    def __init__(self, folder, names=None, options="timeout:1 attempts:2"):
        self._resolv = folder / "resolv.conf"
        self._options = options
        self.names = dict(names or {})
        # The lookups so far, each with its name and family. glibc looks up both families at once.
        self.asked = []
        self._turns = {}

    async def start(self):
        loop = asyncio.get_running_loop()
        for address in _ADDRESSES:
            try:
                self._transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=(address, 53))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            self._resolv.write_text(f"nameserver {address}\noptions {self._options}\n")
            return
        raise AssertionError("all addresses for name servers are in use")

    async def stop(self):
        self._transport.close()

    @property
    def prefix(self):
        """A command that runs the program in its own mount namespace, whose resolv.conf names this server."""
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
        records = self._records(name, kind)
        code = 3 if records is None else 0
        header = data[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, len(records or ()), 0, 0)
        self._transport.sendto(header + data[12 : at + 5] + b"".join(records or ()), peer)

    def _records(self, name, kind):
        """The records of a response, or None if the name does not exist."""
        answer = self._answer(name, kind)
        if answer is None:
            return None
        records = []
        for value in answer:
            if not value[-1].isdigit() and ":" not in value:
                records.append(_record(name, _CNAME, _labels(value)))
                records += self._records(value, kind) or []
                continue
            family = socket.AF_INET6 if ":" in value else socket.AF_INET
            if kind == (_AAAA if family == socket.AF_INET6 else _A):
                records.append(_record(name, kind, socket.inet_pton(family, value)))
        return records

    def _answer(self, name, kind):
        self.asked.append((name, kind))
        answers = self.names.get(name)
        if answers is None:
            return None
        turn = self._turns.get((name, kind), 0)
        self._turns[name, kind] = turn + 1
        return answers[min(turn, len(answers) - 1)]


def _labels(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def _record(name, kind, content):
    return _labels(name) + struct.pack("!HHIH", kind, 1, 0, len(content)) + content
