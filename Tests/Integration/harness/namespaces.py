"""Two network namespaces with a cable between them: one for the gateway, one for its upstream.

The addresses, routes and firewalls in them are real, and the rest of the machine stays unchanged. Clients reach the
gateway through a Unix-domain socket, which works across namespaces. Making namespaces needs root and a kernel that
permits it. Otherwise, the tests are skipped with the reason.

A namespace has no name: a process keeps it alive, and ends when the test process ends in any way. Nothing thus remains,
even after a crash.
"""

import concurrent.futures
import contextlib
import ctypes
import functools
import os
import shutil
import socket
import subprocess

import pytest

_CLONE_NEWNET = 0x40000000
# For each family: the near end, the far end, the length of their prefix, and the upstream's address and network.
_ADDRESSES = {
    4: ("10.77.0.2", "10.77.0.1", 24, "10.88.0.1", "10.88.0.0/16"),
    6: ("fd77::2", "fd77::1", 64, "fd88::1", "fd88::/32"),
}


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")


class Namespace:
    """One network namespace. `inside` is a command prefix that runs a program in it with `nsenter`."""

    def __init__(self):
        # `cat` ends when its standard input is closed. The kernel closes it when the test process ends.
        self._holder = subprocess.Popen(
            ("unshare", "--net", "cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.path = f"/proc/{self.pid}/ns/net"
        self.inside = ("nsenter", f"--net={self.path}")
        # The echo shows that `cat` runs, so the namespace exists.
        with contextlib.suppress(BrokenPipeError):
            self._holder.stdin.write(b"x")
            self._holder.stdin.flush()
        if self._holder.stdout.read(1) != b"x":
            reason = self._holder.stderr.read().decode().strip()
            self.remove()
            raise OSError(f"unshare --net: {reason}")

    @property
    def pid(self):
        return self._holder.pid

    def run(self, *words):
        run(*self.inside, *words)

    def remove(self):
        with contextlib.suppress(BrokenPipeError):
            self._holder.stdin.close()
        self._holder.wait()
        self._holder.stdout.close()
        self._holder.stderr.close()


class Cable:
    """`near` is the gateway's namespace, `far` the upstream's namespace.

    The upstream's addresses are behind the cable, not on it, so that a test can remove the route to them.
    """

    def __init__(self, family=4):
        self.family = family
        self.near_address, self.far_address, self._length, self.host, self._network = _ADDRESSES[family]
        self._stack = contextlib.ExitStack()

    def start(self):
        with contextlib.ExitStack() as stack:
            self.near = Namespace()
            stack.callback(self.near.remove)
            self.far = Namespace()
            stack.callback(self.far.remove)
            ends = ("link", "add", "cable", "type", "veth", "peer", "name", "cable")
            self.near.run("ip", *ends, "netns", str(self.far.pid))
            for namespace in (self.near, self.far):
                namespace.run("ip", "link", "set", "lo", "up")
                namespace.run("ip", "link", "set", "cable", "up")
            self._add_address(self.far, self.far_address, "cable", self._length)
            self._add_address(self.far, self.host, "lo", 32 if self.family == 4 else 128)
            self.add_address()
            self.add_route()
            self._stack = stack.pop_all()

    def stop(self):
        self._stack.close()

    def _ip(self, *words):
        self.near.run("ip", f"-{self.family}", *words)

    def _add_address(self, namespace, address, link, length):
        # Without duplicate address detection, an IPv6 address is usable at once.
        nodad = ("nodad",) if self.family == 6 else ()
        namespace.run("ip", f"-{self.family}", "address", "add", f"{address}/{length}", "dev", link, *nodad)

    # -- What may happen to the gateway's network -------------------------------------------------------------------

    def add_address(self):
        self._add_address(self.near, self.near_address, "cable", self._length)

    def remove_address(self):
        self._ip("address", "delete", f"{self.near_address}/{self._length}", "dev", "cable")

    def add_route(self, network=None):
        # The kernel removes some routes together with an address or a link, but not all.
        self._ip("route", "replace", network or self._network, "via", self.far_address)

    def remove_route(self):
        self._ip("route", "delete", self._network)

    def set_link(self, state):
        self._ip("link", "set", "cable", state)

    def slow_down(self, rate):
        """Limits the gateway's output to `rate` (for example `8mbit`), with a small queue."""
        bucket = ("tbf", "rate", rate, "burst", "32kb", "limit", "64kb")
        self.near.run("tc", "qdisc", "replace", "dev", "cable", "root", *bucket)

    def cut(self, port):
        """A firewall on the upstream's side that silently drops packets in both directions."""
        self._iptables("-A", port)

    def mend(self, port):
        self._iptables("-D", port)

    def _iptables(self, change, port):
        tool = "iptables" if self.family == 4 else "ip6tables"
        for chain, direction in (("INPUT", "--dport"), ("OUTPUT", "--sport")):
            self.far.run(tool, "-w", change, chain, "-p", "tcp", direction, str(port), "-j", "DROP")

    # -- Programs and sockets in a namespace ------------------------------------------------------------------------

    def prefix(self):
        """A command prefix that runs a program in the gateway's namespace."""
        return self.near.inside

    def listener(self, port):
        """A listening socket in the upstream's namespace, for this process."""

        def make():
            libc = ctypes.CDLL(None, use_errno=True)
            with open(self.far.path, "rb") as namespace:
                if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            family = socket.AF_INET if self.family == 4 else socket.AF_INET6
            return socket.create_server((self.host, port), family=family, backlog=64)

        # A thread has its own namespace, and a socket stays in the namespace in which it was made.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(make).result()


@functools.cache
def reason_to_skip():
    """The reason why this machine cannot run tests in namespaces, or None. Tries the operations once to find out."""
    if os.geteuid() != 0:
        return "making network namespaces takes root"
    for tool, package in (("ip", "iproute2"), ("tc", "iproute2"), ("iptables", "iptables")):
        if not shutil.which(tool):
            return f"'{tool}' is missing: Debian's {package}, installed by scripts/setup test"
    for family in _ADDRESSES:
        cable = Cable(family)
        try:
            cable.start()
            cable.cut(9)
            cable.mend(9)
            cable.slow_down("1gbit")
            cable.listener(0).close()
        except OSError as error:
            return f"this system does not permit network namespaces: {error}"
        finally:
            cable.stop()
    return None


needs_namespaces = pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip() or "")
