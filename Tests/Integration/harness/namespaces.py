"""Two network namespaces with a cable between them: one for the gateway, one for its upstream.

What happens in them is real (addresses, routes, a firewall) and touches nothing else on the machine. The gateway is
reached through a Unix-domain socket, which no namespace keeps apart. Making them takes root; without it the tests say
so and are skipped.
"""

import concurrent.futures
import ctypes
import functools
import itertools
import os
import shutil
import socket
import subprocess

import pytest

_numbers = itertools.count(1)
_CLONE_NEWNET = 0x40000000
# Of each family: the near end, the far end, the length of their prefix, the upstream's address and network.
_ADDRESSES = {
    4: ("10.77.0.2", "10.77.0.1", 24, "10.88.0.1", "10.88.0.0/16"),
    6: ("fd77::2", "fd77::1", 64, "fd88::1", "fd88::/32"),
}


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)


@functools.cache
def reason_to_skip():
    """Why this machine cannot make namespaces, or None."""
    if os.geteuid() != 0:
        return "making network namespaces takes root"
    for tool, package in (("ip", "iproute2"), ("iptables", "iptables")):
        if not shutil.which(tool):
            return f"'{tool}' is missing: Debian's {package}, installed by scripts/setup test"
    name = f"drawbridge-probe-{os.getpid()}"
    probe = subprocess.run(("ip", "netns", "add", name), capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        return f"this system lets nobody make network namespaces: {probe.stderr.strip()}"
    run("ip", "netns", "delete", name)
    return None


class Cable:
    """`near` is the gateway's namespace, `far` the upstream's.

    The upstream's addresses lie behind the cable, not on it, so that there is a route that can be taken away.
    """

    def __init__(self, family=4):
        number = f"{os.getpid()}-{next(_numbers)}"
        self.near, self.far = f"drawbridge-near-{number}", f"drawbridge-far-{number}"
        self.family = family
        self.near_address, self.far_address, self._length, self.host, self._network = _ADDRESSES[family]

    def start(self):
        for name in (self.near, self.far):
            run("ip", "netns", "add", name)
        run("ip", "-n", self.near, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", self.far)
        for name in (self.near, self.far):
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", "cable", "up")
        self._add_address(self.far, self.far_address, "cable", self._length)
        self._add_address(self.far, self.host, "lo", 32 if self.family == 4 else 128)
        self.add_address()
        self.add_route()

    def stop(self):
        for name in (self.near, self.far):
            run("ip", "netns", "delete", name)

    def _ip(self, *words):
        run("ip", f"-{self.family}", "-n", self.near, *words)

    def _add_address(self, name, address, link, length):
        # Without duplicate address detection an IPv6 address is of use at once.
        nodad = ("nodad",) if self.family == 6 else ()
        run("ip", f"-{self.family}", "-n", name, "address", "add", f"{address}/{length}", "dev", link, *nodad)

    # -- What may happen to the gateway's network -------------------------------------------------------------------

    def add_address(self):
        self._add_address(self.near, self.near_address, "cable", self._length)

    def remove_address(self):
        self._ip("address", "delete", f"{self.near_address}/{self._length}", "dev", "cable")

    def add_route(self, network=None):
        # The kernel takes some routes away with an address or a link, and leaves others.
        self._ip("route", "replace", network or self._network, "via", self.far_address)

    def remove_route(self):
        self._ip("route", "delete", self._network)

    def set_link(self, state):
        self._ip("link", "set", "cable", state)

    def cut(self, port):
        """A firewall on the upstream's side that drops what goes either way, and tells nobody."""
        self._iptables("-A", port)

    def mend(self, port):
        self._iptables("-D", port)

    def _iptables(self, change, port):
        for chain, direction in (("INPUT", "--dport"), ("OUTPUT", "--sport")):
            rule = (change, chain, "-p", "tcp", direction, str(port), "-j", "DROP")
            run("ip", "netns", "exec", self.far, "iptables", "-w", *rule)

    # -- What lives in it -------------------------------------------------------------------------------------------

    def prefix(self):
        """What to put before a command line so that it runs in the gateway's namespace. `ip` becomes that program."""
        return ("ip", "netns", "exec", self.near)

    def listener(self, port):
        """A listening socket of the upstream's namespace, for this process."""

        def make():
            libc = ctypes.CDLL(None, use_errno=True)
            with open(f"/run/netns/{self.far}", "rb") as namespace:
                if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            family = socket.AF_INET if self.family == 4 else socket.AF_INET6
            return socket.create_server((self.host, port), family=family, backlog=64)

        # A thread's namespace is its own, and a socket stays in the one it was made in.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(make).result()


needs_namespaces = pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip() or "")
