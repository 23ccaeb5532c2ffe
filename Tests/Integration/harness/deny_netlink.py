"""Runs a program for which the kernel denies netlink sockets, like systemd's RestrictAddressFamilies=.

    python deny_netlink.py [--inotify] PROGRAM ARGUMENT…

With a seccomp filter, socket(AF_NETLINK, …) fails with EAFNOSUPPORT, and all other calls are allowed. With `--inotify`,
inotify_init1(2) fails with EMFILE instead, as on a machine where too many programs watch files. The program needs no
privilege.
"""

import ctypes
import errno
import os
import platform
import struct
import sys

_SOCKET = {"x86_64": 41, "aarch64": 198}
_INOTIFY_INIT1 = {"x86_64": 294, "aarch64": 26}
_AF_NETLINK = 16
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
# Offsets in struct seccomp_data: the number of the call, and the lower half of its first argument.
_NUMBER, _FIRST = 0, 16

_program = (
    (_LOAD, 0, 0, _NUMBER),
    (_JUMP_EQUAL, 0, 3, _SOCKET[platform.machine()]),
    (_LOAD, 0, 0, _FIRST),
    (_JUMP_EQUAL, 0, 1, _AF_NETLINK),
    (_RETURN, 0, 0, _ERROR | errno.EAFNOSUPPORT),
    (_RETURN, 0, 0, _ALLOW),
)

_without_inotify = (
    (_LOAD, 0, 0, _NUMBER),
    (_JUMP_EQUAL, 0, 1, _INOTIFY_INIT1[platform.machine()]),
    (_RETURN, 0, 0, _ERROR | errno.EMFILE),
    (_RETURN, 0, 0, _ALLOW),
)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def deny(program):
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    rules = _Filter(len(program), code)
    libc = ctypes.CDLL(None, use_errno=True)
    for option, *rest in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(rules), 0, 0),
    ):
        if libc.prctl(option, *rest) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    denies_inotify = arguments[0] == "--inotify"
    deny(_without_inotify if denies_inotify else _program)
    arguments = arguments[denies_inotify:]
    os.execv(arguments[0], arguments)
