"""Builds images and runs containers of them, with Debian's buildah and podman.

The base images are made from Debian's packages and stay in podman's storage, so only the first run of the tests takes a
minute longer. No registry is needed.
"""

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess

import pytest

from .gateway import BINARY, PROJECT

# The tests run the health checks themselves. podman would use systemd for them, which a machine may not have.
_ENVIRONMENT = {**os.environ, "DISABLE_HC_SYSTEMD": "true"}
# These are lower than podman's own limits, which this process may not set if the machine is a container itself.
_LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")


def command(*words, check=True, within=300):
    """Runs a program. Returns its standard output without the last line feed."""
    done = subprocess.run(
        [str(word) for word in words],
        env=_ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=within,
    )
    if check and done.returncode != 0:
        raise OSError(
            f"{' '.join(map(str, words[:4]))}: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}"
        )
    return done.stdout.rstrip("\n")


def arguments():
    """The options for podman-compose, after the prefix `--podman-`, with which containers run on this machine."""
    return (f"args=--runtime={_runtime()}", f"run-args={' '.join(_LIMITS[2:])}")


@functools.cache
def _runtime():
    """The name of an OCI runtime that works on this machine. The runtime that podman prefers may not work."""
    image = debian()
    failure = "podman finds neither crun nor runc"
    for runtime in filter(shutil.which, ("crun", "runc")):
        try:
            command("podman", "--runtime", runtime, "run", "--rm", "--network", "none", *_LIMITS, image, "true")
        except OSError as error:
            failure = str(error)
        else:
            return runtime
    return pytest.skip(f"this machine cannot run containers: {failure.splitlines()[-1]}")


@functools.cache
def debian():
    """The name of an image with a minimal Debian, in the release of this machine."""
    for tool in ("buildah", "mmdebstrap", "podman"):
        if not shutil.which(tool):
            pytest.skip(f"'{tool}' is missing: scripts/setup test installs it")
    try:
        return command(PROJECT / "scripts/debian-image")
    except OSError as error:
        return pytest.skip(f"no image of Debian: {str(error).splitlines()[-1]}")


@functools.cache
def is_static():
    """Whether the program runs without the Swift toolchain. A debug build does not."""
    return not re.search("libswift|libasan|libtsan", command("ldd", BINARY))


def build(folder, name, *arguments):
    """Builds the image of a folder with these arguments for its Dockerfile. Returns its id.

    The image remains, so that the next run repeats only steps that have changed. It replaces the image of the last run.
    """
    tag = f"localhost/drawbridge-test-{name}"
    last = command("podman", "image", "ls", "--quiet", "--no-trunc", tag)
    tool = ("buildah", "build", "--quiet", "--layers", "--isolation", "chroot", "--format", "docker")
    options = (word for argument in arguments for word in ("--build-arg", argument))
    image = command(*tool, *options, "--tag", tag, folder)
    if last and image not in last:
        # If another run still uses the image, it remains.
        with contextlib.suppress(OSError):
            command("podman", "image", "rm", last)
    return image


class Container:
    """A running container. `options` are options of `podman run`."""

    def __init__(self, image, *arguments, options=()):
        self.run = ("run", "--detach", *_LIMITS, *options, image, *arguments)
        self.id = None

    def start(self):
        self.id = command("podman", "--runtime", _runtime(), *self.run)

    def podman(self, word, *options, **how):
        """`podman WORD OPTIONS… CONTAINER`"""
        return command("podman", "--runtime", _runtime(), *word.split(), *options, self.id, **how)

    def execute(self, *words, user=None, **how):
        options = ("--user", user) if user else ()
        return command("podman", "--runtime", _runtime(), "exec", *options, self.id, *words, **how)

    def inspect(self):
        return json.loads(self.podman("inspect"))[0]

    def address(self, port):
        """The address of a published port on this machine."""
        return f"http://{command('podman', 'port', self.id, port)}"

    def logs(self):
        """The program's standard error."""
        done = subprocess.run(["podman", "logs", self.id], env=_ENVIRONMENT, capture_output=True, text=True, check=True)
        return done.stderr

    def remove(self):
        """Removes the container. It may be removed already."""
        with contextlib.suppress(OSError):
            command("podman", "--runtime", _runtime(), "rm", "--force", "--time", "1", "--volumes", self.id)
