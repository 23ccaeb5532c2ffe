"""The Debian package: its content, and its installation on a machine with systemd and without a toolchain."""

import concurrent.futures
import contextlib
import hashlib
import os
import re
import subprocess
import sys
import threading

import pytest

from harness import containers
from harness.containers import Container, command
from harness.gateway import BINARY, PROJECT
from harness.program import find

pytestmark = [pytest.mark.xdist_group("containers"), pytest.mark.timeout(600)]

CONFIGURATION = "/etc/drawbridge/drawbridge.yaml"
# A Debian system with systemd, which can reach no mirror later. The image contains the downloaded dependencies of the
# package, but they are not installed.
MACHINE = """
ARG RUNTIME_IMAGE
FROM $RUNTIME_IMAGE
RUN apt-get update -qq \\
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends systemd \\
 && apt-get install -y -qq --download-only --no-install-recommends libsqlite3-0 libssl3 libstdc++6 libyaml-0-2 zlib1g
CMD ["/lib/systemd/systemd"]
"""


def build(folder):
    return command(PROJECT / "scripts/package", folder, BINARY)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    for tool in ("dpkg-deb", "dpkg-shlibdeps"):
        find(tool)
    if not containers.is_static():
        pytest.skip("the program needs the Swift toolchain: 'make build' makes one that runs without")
    return build(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def content(package, tmp_path_factory):
    """The files of the package."""
    folder = tmp_path_factory.mktemp("content")
    command("dpkg-deb", "--extract", package, folder)
    return folder


def test_the_configuration_of_the_package_needs_only_the_upstream(content):
    path = content / CONFIGURATION[1:]
    assert len(path.read_text().splitlines()) < 30
    done = subprocess.run([BINARY, "check-config", "--config", path], capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert done.stderr.count("\n") == 1
    assert "upstream.url" in done.stderr
    assert command(BINARY, "check-config", "--config", path, "--upstream", "ws://h/").startswith(f"{path}: valid\n")


def test_the_package_has_the_documentation_and_the_reference(content):
    documents = content / "usr/share/doc/drawbridge"
    for name in (
        "docs/getting-started.md",
        "docs/store.md",
        "config/profiles/plain.yaml",
        "deploy/nginx/drawbridge.conf",
    ):
        assert (documents / name).is_file(), name
    reference = (documents / "config/drawbridge.yaml").read_text()
    assert reference == (PROJECT / "config/drawbridge.yaml").read_text()
    assert (content / "usr/share/drawbridge/drawbridge.schema.json").is_file()
    assert (content / "lib/systemd/system/drawbridge.service").is_file()
    # The files that the configuration and the manual page name exist.
    configuration = (content / CONFIGURATION[1:]).read_text()
    for path in re.findall(r"/usr/share/\S+?\.(?:yaml|json)", configuration):
        assert (content / path[1:]).is_file(), path


@pytest.fixture(scope="module")
def page(package, tmp_path_factory):
    """The text of the manual page."""
    folder = tmp_path_factory.mktemp("page")
    command("dpkg-deb", "--extract", package, folder)
    environment = {**os.environ, "MANWIDTH": "200", "MAN_KEEP_FORMATTING": "", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [find("man"), "--warnings", "--local-file", folder / "usr/share/man/man1/drawbridge.1.gz"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def test_lintian_finds_no_error_in_the_package(package):
    done = subprocess.run(
        [find("lintian"), "--allow-root", "--fail-on", "error", package], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_package_has_its_version_and_needs_no_toolchain(package):
    name, version, architecture = re.fullmatch(r"(.+)_(.+)_(.+)\.deb", os.path.basename(package)).groups()
    assert (name, version) == ("drawbridge", command(BINARY, "version").split()[-1])
    fields = command("dpkg-deb", "--field", package)
    assert f"Version: {version}\n" in fields
    assert f"Architecture: {architecture}\n" in fields
    assert "swift" not in fields.lower()


def test_the_same_program_makes_the_same_package(package, tmp_path):
    assert digest(build(tmp_path)) == digest(package)


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_the_manual_page_has_the_text_of_help(page):
    """The page contains every flag and every other word of every help text, and no other flag."""
    overview = command(BINARY, "--help")
    commands = re.findall(r"^  drawbridge ([a-z-]+)", overview, re.MULTILINE)
    assert commands
    flags = set()
    for name in commands:
        text = command(BINARY, name, "--help")
        heading, _, body = " ".join(text.split()).partition(": ")
        section = page.partition(f"\n   {heading}\n")[2]
        section = re.split(r"\n   drawbridge |\n[A-Z]", section)[0]
        assert words(body) == words(section), name
        flags |= set(re.findall(r"--[a-z-]+", text))
    assert set(re.findall(r"--[a-z-]+", page)) == flags | {"--flag", "--help"}


def words(text):
    """The words of a text, without line breaks, repeated spaces and capital letters."""
    return re.sub("\N{HYPHEN}\n +", "", text).lower().split()


# -- A machine --------------------------------------------------------------------------------------------------------


class Machine(Container):
    def __init__(self, image):
        super().__init__(image, options=("--systemd", "always", "--network", "none"))

    def start(self):
        super().start()
        # The system bus is not ready at once.
        self.shell("until systemctl is-system-running --wait 2>/dev/null; do sleep 0.1; done", within=60)

    def shell(self, text, **how):
        return self.execute("sh", "-c", text, **how)

    def install(self, package):
        """Installs without questions and keeps a changed configuration, as administrators may choose."""
        command("podman", "cp", package, f"{self.id}:/root/")
        self.shell(
            "DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "
            f"-o Dpkg::Options::=--force-confold /root/{os.path.basename(package)}"
        )

    def states(self):
        """The states of the socket and the service: first whether they are enabled, then whether they are active."""
        units = "drawbridge.socket drawbridge.service"
        return self.shell(f"systemctl is-enabled {units}; systemctl is-active {units}", check=False).split()

    def property(self, name, unit):
        return self.execute("systemctl", "show", "--property", name, "--value", unit)

    def curl(self, *words):
        """Runs curl inside the machine, whose network no other program can reach."""
        inside = ("nsenter", "--net", "--target", str(self.inspect()["State"]["Pid"]))
        return command(*inside, find("curl"), "--silent", "--show-error", "--fail", *words)

    def exists(self, path):
        return self.shell(f"test -e {path} && echo yes || echo no") == "yes"


@pytest.fixture
def machine(tmp_path):
    (tmp_path / "Dockerfile").write_text(MACHINE)
    machine = Machine(containers.build(tmp_path, "machine", f"RUNTIME_IMAGE={containers.debian()}"))
    try:
        machine.start()
        yield machine
        # pytest shows this only if the test failed.
        sys.stdout.write(machine.shell("journalctl --unit drawbridge --no-pager", check=False))
    finally:
        machine.remove()


@pytest.fixture
def older(package, tmp_path):
    """The package of an older release, with a different program and a different configuration file."""
    root = tmp_path / "older"
    command("dpkg-deb", "--raw-extract", package, root)
    control = root / "DEBIAN/control"
    control.write_text(re.sub("^Version: .*", "Version: 0.0.1", control.read_text(), flags=re.MULTILINE))
    with (root / "usr/bin/drawbridge").open("ab") as program:
        program.write(b"older")
    configuration = root / CONFIGURATION[1:]
    configuration.write_text("# Of an older release.\n" + configuration.read_text())
    path = tmp_path / "drawbridge_0.0.1.deb"
    command("dpkg-deb", "-Zgzip", "-z1", "--build", root, path)
    return path


def test_the_package_can_be_installed_run_upgraded_removed_and_purged(machine, package, older):
    with pytest.raises(OSError, match="exit"):
        machine.shell("command -v swift")
    machine.install(older)
    # Nothing runs before an administrator has configured the upstream.
    assert machine.states() == ["disabled", "disabled", "inactive", "inactive"]
    assert machine.shell("stat -c '%U:%G %a' /etc/drawbridge") == "root:drawbridge 750"
    with pytest.raises(OSError, match="failed"):
        machine.shell("systemctl enable --now drawbridge.socket drawbridge.service")
    assert "upstream.url" in machine.shell("systemctl status drawbridge.service", check=False)

    # A connection starts the service again, until systemd gives up.
    with pytest.raises(OSError, match="curl"):
        machine.curl("http://127.0.0.1:8080/v1/session")

    # Once configured, the service runs as its user and stores a message. The first `url` in the file belongs to the
    # upstream.
    url = "sed -i '0,/^  url: /s#^  url: .*#  url: ws://127.0.0.1:1/#'"
    # Without an upstream, a stop could not send the queue. In a container, the second process of a reload may be unable
    # to join the namespaces of the first process.
    drop_in = "/run/systemd/system/drawbridge.service.d"
    machine.shell(f"mkdir -p {drop_in} && printf '[Service]\nPrivateIPC=no\n' >{drop_in}/test.conf")
    machine.shell("systemctl daemon-reload")
    settings = "DRAWBRIDGE_STORE_ENGINE=sqlite\nDRAWBRIDGE_SHUTDOWN_FLUSH=100ms"
    machine.shell(f"{url} {CONFIGURATION} && printf '{settings}\n' >/etc/default/drawbridge")
    machine.shell(
        "systemctl reset-failed drawbridge.socket drawbridge && systemctl restart drawbridge.socket drawbridge"
    )
    process = machine.property("MainPID", "drawbridge.service")
    assert machine.shell(f"stat -c %U /proc/{process}") == "drawbridge"
    machine.shell("systemctl reload drawbridge.service")
    machine.shell("until journalctl --unit drawbridge | grep 'configuration reloaded'; do sleep 0.1; done", within=60)
    machine.curl("--header", "TTL: 600", "--data", "kept", "http://127.0.0.1:8080/v1/messages")
    listening = machine.property("ActiveEnterTimestampMonotonic", "drawbridge.socket")

    # The upgrade replaces the program and restarts the service, but keeps the configuration and the socket.
    with requests(machine):
        machine.install(package)
    assert machine.shell("sha256sum /usr/bin/drawbridge").split()[0] == packaged_program(package)
    assert machine.property("MainPID", "drawbridge.service") not in ("0", process)
    assert machine.states() == ["enabled", "enabled", "active", "active"]
    assert machine.property("ActiveEnterTimestampMonotonic", "drawbridge.socket") == listening
    assert '"queue":{"messages":1' in machine.curl("http://127.0.0.1:8080/v1/session")
    configuration = machine.shell(f"cat {CONFIGURATION}")
    assert "ws://127.0.0.1:1/" in configuration
    assert "Of an older release" in configuration
    assert "Of an older release" not in machine.shell(f"cat {CONFIGURATION}.dpkg-dist")

    # After a removal, the configuration and the store are still there.
    machine.shell("apt-get remove -y -qq drawbridge")
    assert not machine.exists("/usr/bin/drawbridge")
    assert machine.states() == ["inactive", "inactive"], "and they are not known any more"
    assert machine.shell("find /etc/systemd -name 'drawbridge*'") == ""
    assert machine.exists(CONFIGURATION)
    assert machine.exists("/var/lib/drawbridge/drawbridge.db")
    # After a purge, files that administrators have added are still there.
    machine.shell("apt-get purge -y -qq drawbridge")
    assert not machine.exists("/etc/drawbridge")
    assert not machine.exists("/var/lib/drawbridge")
    assert machine.exists("/etc/default/drawbridge")


@contextlib.contextmanager
def requests(machine):
    """Makes one request after another during the block. No request may fail."""
    stop = threading.Event()

    def run():
        count = 0
        while not stop.is_set():
            machine.curl("http://127.0.0.1:8080/v1/session")
            count += 1
        return count

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        served = thread.submit(run)
        try:
            yield
        finally:
            stop.set()
    assert served.result() > 1


def packaged_program(package):
    archive = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], capture_output=True, check=True).stdout
    extract = ["tar", "--extract", "--to-stdout", "./usr/bin/drawbridge"]
    program = subprocess.run(extract, input=archive, capture_output=True, check=True).stdout
    return hashlib.sha256(program).hexdigest()
