"""The upstream of a run. It determines which gateway opened each connection."""

import os
from pathlib import Path

from ..recorder import RecordingUpstream, _Peer


class OwnedUpstream(RecordingUpstream):
    """Finds the gateway of a connection by the process that has the socket, since all have the same configuration."""

    def __init__(self):
        super().__init__()
        self._peer = _OwnedPeer
        #: The gateways.
        self.members = []
        #: The gateway of each connection by number; None if it had already closed the connection.
        self.owners = {}


class _OwnedPeer(_Peer):
    def opened(self):
        super().opened()
        port = self.transport.get_extra_info("peername")[1]
        self.server.owners[self.record.number] = _owner(port, self.server.port, self.server.members)


def _owner(port, upstream_port, members):
    """The gateway whose connection comes from this port."""
    name = f"socket:[{_inode(port, upstream_port)}]"
    for member in members:
        process = member.gateways[-1].process if member.gateways else None
        if process is None:
            continue
        try:
            files = list(os.scandir(f"/proc/{process.pid}/fd"))
        except OSError:
            continue
        for file in files:
            try:
                if os.readlink(file.path) == name:
                    return member
            except OSError:
                continue
    return None


def _inode(port, upstream_port):
    ends = f":{port:04X}", f":{upstream_port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]):
            return fields[9]
    return None
