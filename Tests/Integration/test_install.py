"""`make install`, `make uninstall` and the files that they install, which the Debian package has too; `make image`."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from harness.gateway import BINARY, PROJECT
from harness.program import find


def make(target, prefix, *variables, check=True):
    return subprocess.run(
        [find("make"), "--silent", target, f"PREFIX={prefix}", *variables],
        cwd=PROJECT,
        env={**os.environ, "PROGRAM": str(BINARY)},
        capture_output=True,
        text=True,
        check=check,
    )


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("prefix")
    done = make("install", prefix)
    assert f"{prefix}/bin/drawbridge" in done.stderr
    return prefix


def test_the_program_the_manual_and_completions_are_installed(prefix):
    program = prefix / "bin/drawbridge"
    version = subprocess.run([program, "version"], capture_output=True, text=True, check=True).stdout
    assert re.fullmatch(r"drawbridge \d+\.\d+\.\d+\n", version)
    assert {
        "share/man/man1/drawbridge.1.gz",
        "share/man/man1/drawbridge-send.1.gz",
        "share/bash-completion/completions/drawbridge",
        "share/zsh/site-functions/_drawbridge",
        "share/fish/vendor_completions.d/drawbridge.fish",
        "share/drawbridge/drawbridge.schema.json",
        "lib/systemd/system/drawbridge.socket",
        "lib/sysusers.d/drawbridge.conf",
    } <= files(prefix)
    unit = (prefix / "lib/systemd/system/drawbridge.service").read_text()
    assert f"\nExecStart={prefix}/bin/drawbridge serve " in unit
    assert "/usr/bin" not in unit


def test_every_link_of_the_documentation_leads_to_a_file(prefix):
    folder = prefix / "share/doc/drawbridge"
    pages = sorted(folder.rglob("*.md"))
    assert len(pages) > 20
    for page in pages:
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if not re.match("[a-z]+:", link):
                assert (page.parent / link).exists(), f"{page.relative_to(folder)}: {link}"
    assert (folder / "config/drawbridge.schema.json").read_text() == (
        PROJECT / "config/drawbridge.schema.json"
    ).read_text()


def test_init_names_the_installed_schema(prefix):
    program = prefix / "bin/drawbridge"
    text = subprocess.run([program, "init", "-", "--upstream", "ws://h/"], capture_output=True, text=True, check=True)
    schema = re.match(r"# yaml-language-server: \$schema=(.+)\n", text.stdout)[1]
    assert Path(schema) == prefix / "share/drawbridge/drawbridge.schema.json"


def test_only_the_installation_is_removed(tmp_path):
    other = tmp_path / "root/opt/bridge/share/other/file"
    other.parent.mkdir(parents=True)
    other.write_text("kept")
    variables = f"DESTDIR={tmp_path / 'root'}"
    make("install", "/opt/bridge", variables)
    unit = (tmp_path / "root/opt/bridge/lib/systemd/system/drawbridge.service").read_text()
    assert "ExecStart=/opt/bridge/bin/drawbridge " in unit
    first = files(tmp_path)
    # A file of an earlier version, which the next installation removes.
    listed = tmp_path / "root/opt/bridge/share/drawbridge/installed-files"
    old = tmp_path / "root/opt/bridge/share/doc/drawbridge/docs/old.md"
    old.write_text("old")
    listed.write_text(listed.read_text() + "share/doc/drawbridge/docs/old.md\n")
    make("install", "/opt/bridge", variables)
    assert files(tmp_path) == first
    done = make("uninstall", "/opt/bridge", variables)
    assert "removed" in done.stderr
    assert files(tmp_path) == {str(other.relative_to(tmp_path))}
    # Only folders that other programs use below the prefix are left.
    folders = {str(path.relative_to(tmp_path / "root/opt/bridge")) for path in tmp_path.glob("root/opt/bridge/**/")}
    assert folders == {".", "bin", "lib", "share", "share/other"}
    again = make("uninstall", "/opt/bridge", variables, check=False)
    assert again.returncode != 0
    assert "nothing is installed" in again.stderr


def test_an_unwritable_folder_is_an_error_with_a_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    done = make("install", tmp_path / "file", check=False)
    assert done.returncode != 0
    assert "sudo make install" in done.stderr
    done = make("install", "relative", check=False)
    assert "absolute path" in done.stderr


@pytest.mark.parametrize(("engine", "runner"), [("docker", "docker"), ("podman", "podman"), ("buildah", "podman")])
def test_the_image_is_printed_with_a_command_that_runs_it(engine, runner, tmp_path):
    program = tmp_path / engine
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    done = subprocess.run(
        [PROJECT / "scripts/image"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "ENGINE": engine, "BUILD_FLAGS": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    (command,) = re.findall(r"(\S+) run --rm -p ", done.stderr)
    assert command == runner
