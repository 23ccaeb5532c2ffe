"""Builds the C programs and the Go bridge."""

import os
import subprocess

from .processes import BENCHMARKS, WORK

_PROGRAMS = ("rate", "hold", "streams", "publish", "roundtrip", "workers", "floor", "sink")


def build_programs():
    WORK.mkdir(parents=True, exist_ok=True)
    header = BENCHMARKS / "programs/common.h"
    programs = {WORK / name: BENCHMARKS / f"programs/{name}.c" for name in _PROGRAMS}
    for target, source in {**programs, WORK / "c-bridge": BENCHMARKS / "peers/c/bridge.c"}.items():
        newest = max(source.stat().st_mtime, header.stat().st_mtime)
        if target.exists() and target.stat().st_mtime > newest:
            continue
        flags = ["-O2", "-std=gnu17", "-Wall", "-Wextra", "-Werror"]
        _run(["cc", *flags, "-o", target, source, "-lssl", "-lcrypto", "-lz"])


def build_go():
    """Builds with Debian's packages in /usr/share/gocode, without downloads."""
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": str(WORK / "go-cache")}
    _run(["go", "build", "-o", WORK / "go-bridge", BENCHMARKS / "peers/go/bridge.go"], env=environment)


def _run(command, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if result.returncode != 0:
        raise SystemExit(f"error: {' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
