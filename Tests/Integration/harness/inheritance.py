"""Starts a program with inherited sockets, like systemd (sd_listen_fds(3)).

    python inheritance.py NAMES DESCRIPTOR,… PROGRAM ARGUMENT…

NAMES are separated by colons; `-` sets no names. The descriptors become 3 and the following numbers.
"""

import os
import sys

FIRST = 3


def pass_on(names, descriptors):
    # The copies are above all targets, so that each descriptor is copied before another descriptor takes its number.
    copies = []
    for descriptor in descriptors:
        copy = descriptor
        while copy < FIRST + len(descriptors):
            copy = os.dup(copy)
        copies.append(copy)
    for offset, copy in enumerate(copies):
        os.dup2(copy, FIRST + offset, inheritable=True)
    for copy in {*copies, *descriptors} - set(range(FIRST, FIRST + len(descriptors))):
        os.close(copy)
    # exec keeps the process id.
    os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(descriptors))}
    if names != "-":
        os.environ["LISTEN_FDNAMES"] = names


if __name__ == "__main__":
    pass_on(sys.argv[1], [int(number) for number in sys.argv[2].split(",")])
    os.execv(sys.argv[3], sys.argv[3:])
