"""Counts the instructions that the gateway executes per request outside the kernel, by valgrind's callgrind.

    python3 -m harness.instructions [PROGRAM…]

The count differs by less than 0.1 % between runs, also on a busy machine. It thus shows changes that are too small for
a measurement of time: run it with the programs before and after a change. One client sends its requests one after
another. Comparing two runs of different length removes the cost of the start.
"""

import http.client
import re
import subprocess
import sys
from pathlib import Path

from .build import build_programs
from .processes import Cores
from .subjects import Gateway

_FEW, _MANY = 1_000, 4_000

_POST = ("POST", Gateway.post_path, Gateway.post_body)
_JSON = {"Content-Type": "application/json"}

#: Name, method, path, body, fields, and whether each request has a connection of its own.
_REQUESTS = [
    ("POST of 100 bytes", *_POST, _JSON, False),
    ("POST of 100 bytes in chunked transfer coding", *_POST, _JSON | {"Transfer-Encoding": "chunked"}, False),
    ("POST of 100 bytes on a new connection, which the client closes", *_POST, _JSON, True),
    ("POST of 100 bytes on a new connection, which the gateway closes", *_POST, _JSON | {"Connection": "close"}, True),
    ("short poll without a message", "GET", "/v1/messages?wait=0", None, {}, False),
    ("short poll for one message of 100 bytes", "GET", Gateway.short, None, {}, False),
]


class CountedGateway(Gateway):
    """The gateway on valgrind's simulated processor."""

    def launch(self, arguments, **options):
        # valgrind cannot read the debug information of the compiler.
        stripped = self.folder / "drawbridge"
        subprocess.run(["strip", "-o", stripped, self.program], check=True)
        output = self.folder / "callgrind.out"
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={output}", stripped]
        super().launch([*valgrind, *arguments[1:]], **options)

    def instructions(self) -> int:
        """The number of executed instructions. Call it only after the end of the program."""
        return int(re.search(r"^(?:summary|totals): (\d+)", (self.folder / "callgrind.out").read_text(), re.M)[1])


def _run(program, cores, method, path, body, fields, is_alone, count) -> int:
    kind = type("Counted", (CountedGateway,), {"program": program})
    with kind(cores, loops=1) as gateway:
        gateway.prepare_short()
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
        for _ in range(count):
            is_chunked = "Transfer-Encoding" in fields
            connection.request(method, path, [body.encode()] if is_chunked else body, fields, encode_chunked=is_chunked)
            response = connection.getresponse()
            response.read()
            if is_alone:
                connection.close()
            if response.status >= 300:
                raise SystemExit(f"error: {method} {path}: {response.status}")
        connection.close()
        gateway.server.stop()
        return gateway.instructions()


def main(programs):
    programs = [Path(program).resolve() for program in programs or [Gateway.program]]
    if missing := [program for program in programs if not program.is_file()]:
        raise SystemExit(f"error: there is no program {missing[0]}")
    if subprocess.run(["valgrind", "--version"], capture_output=True).returncode != 0:
        raise SystemExit("error: this needs the Debian package valgrind")
    build_programs()
    cores = Cores.divide()
    for name, *request in _REQUESTS:
        first = None
        for program in programs:
            few, many = (_run(program, cores, *request, count) for count in (_FEW, _MANY))
            per_request = (many - few) / (_MANY - _FEW)
            first = first or per_request
            change = f"  {per_request / first:.4f} ×" if len(programs) > 1 else ""
            print(f"{name}: {per_request:,.0f} instructions{change}  {program}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
