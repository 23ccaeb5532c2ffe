"""Images that are built here and containers that run them, with Debian's buildah and podman.

The base images are made from Debian's packages and stay in podman's storage, so that only the first run of the tests
takes a minute for them. No registry is needed.
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

# The health checks are run by the tests; podman would run them by systemd, which a machine may not have.
_ENVIRONMENT = {**os.environ, "DISABLE_HC_SYSTEMD": "true"}
# Below those of podman, which this process may not set if the machine is a container itself.
_LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")


def command(*words, check=True, within=300):
    """Runs a program: what it has written to standard output, without the last line feed."""
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
    """For podman-compose, after `--podman-`: how containers run on this machine."""
    return (f"args=--runtime={_runtime()}", f"run-args={' '.join(_LIMITS[2:])}")


@functools.cache
def _runtime():
    """The name of an OCI runtime that works on this machine; the one that podman prefers may not."""
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
    """The name of an image with a minimal Debian, of the release of this machine."""
    for tool in ("buildah", "mmdebstrap", "podman"):
        if not shutil.which(tool):
            pytest.skip(f"'{tool}' is missing: scripts/setup test installs it")
    try:
        return command(PROJECT / "scripts/debian-image")
    except OSError as error:
        return pytest.skip(f"no image of Debian: {str(error).splitlines()[-1]}")


@functools.cache
def is_static():
    """Whether the program runs where no Swift toolchain is. One that is built for debugging does not."""
    return not re.search("libswift|libasan|libtsan", command("ldd", BINARY))


def build(folder, name, *arguments):
    """Builds the image of a folder, with these arguments of its Dockerfile: its id.

    The image stays, so that the next run repeats only the steps that have changed. It replaces the one of the last run.
    """
    tag = f"localhost/drawbridge-test-{name}"
    last = command("podman", "image", "ls", "--quiet", "--no-trunc", tag)
    tool = ("buildah", "build", "--quiet", "--layers", "--isolation", "chroot", "--format", "docker")
    options = (word for argument in arguments for word in ("--build-arg", argument))
    image = command(*tool, *options, "--tag", tag, folder)
    if last and image not in last:
        # Another run may use it. Then it stays.
        with contextlib.suppress(OSError):
            command("podman", "image", "rm", last)
    return image


class Container:
    """A running container. `options` are those of `podman run`."""

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
        """Where this machine reaches a port that is published."""
        return f"http://{command('podman', 'port', self.id, port)}"

    def logs(self):
        """What the program has written to standard error."""
        done = subprocess.run(["podman", "logs", self.id], env=_ENVIRONMENT, capture_output=True, text=True, check=True)
        return done.stderr

    def remove(self):
        """Once more is harmless."""
        with contextlib.suppress(OSError):
            command("podman", "--runtime", _runtime(), "rm", "--force", "--time", "1", "--volumes", self.id)
