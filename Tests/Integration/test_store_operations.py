"""The store for its operator: the process that has it open, refused files, `drawbridge store`, and disks that fail."""

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import socket
import sqlite3
import sys
from pathlib import Path

import pytest

from harness import inheritance
from harness.disk_faults import OPEN, SYNC, TRUNCATE, WRITE, FaultyDisk
from harness.gateway import BINARY, run
from harness.store import storing
from harness.waiting import eventually

OK, USAGE, DATA, NO_INPUT, UNAVAILABLE, CONFIGURATION = 0, 64, 65, 66, 69, 78


async def refused(path, **options):
    """Starts a gateway that must fail. Returns its exit status and standard error."""
    arguments = ("--listen", "127.0.0.1:0", "--management", "127.0.0.1:0", "--upstream", "ws://127.0.0.1:1/")
    status, _, errors = await run("serve", *arguments, env=storing(path), **options)
    return status, errors


def plain_environment():
    """The environment without the settings of a developer's shell."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DRAWBRIDGE_")}


def contents(path):
    """The contents of the store's files by name, without the lock file and without an empty log."""
    files = {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}
    return {name: text for name, text in files.items() if not name.endswith(".lock") and (text or "-wal" not in name)}


async def metric(gateway, name):
    return (await gateway.metrics()).value(name)


# ---------------------------------------------------------------------------------------------------- Who has it open


async def test_a_second_process_is_refused_and_the_first_continues(gateway_for, upstream, store_path):
    gateway = await gateway_for(upstream, env=storing(store_path))
    status, errors = await refused(store_path)
    assert status == UNAVAILABLE
    assert f"'{store_path}' is open in another process" in errors
    assert (await gateway.manage("/livez")).status == 200
    for command in (("check", store_path), ("export", store_path)):
        status, _, errors = await run("store", *command)
        assert status == UNAVAILABLE
        assert "is open in another process: stop it first" in errors


async def test_a_successor_with_inherited_sockets_waits_for_the_store(gateway_for, upstream, store_path):
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        descriptors = {"pass_fds": [server.fileno()]}
        prefix = (sys.executable, Path(inheritance.__file__), "-", str(server.fileno()))
        arguments = ("--listen", "{}:{}".format(*server.getsockname()))
        first = await gateway_for(upstream, *arguments, env=storing(store_path), prefix=prefix, **descriptors)
        starting = asyncio.create_task(
            gateway_for(upstream, *arguments, env=storing(store_path), prefix=prefix, ready=False, **descriptors)
        )
        await asyncio.sleep(0)
        waiting = store_path.with_name(store_path.name + ".lock")
        # Both processes have the lock file open, but only one of them has the lock.
        await eventually(lambda: _openers(waiting) == 2, what="the successor waits")
        assert not starting.done()
        first.signal()
        second = await starting
        assert await first.exit_status() == 0
        await second.ready()
        assert any("waiting for its end" in line for line in second.log)


async def test_a_successor_that_waits_can_be_stopped(gateway_for, upstream, store_path):
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        arguments = ("--listen", "{}:{}".format(*server.getsockname()))
        prefix = (sys.executable, Path(inheritance.__file__), "-", str(server.fileno()))
        lock = store_path.with_name(store_path.name + ".lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = await asyncio.create_subprocess_exec(
            *prefix, BINARY, "serve", *arguments,
            "--management", "127.0.0.1:0", "--upstream", upstream.url,
            env={**plain_environment(), **storing(store_path)}, pass_fds=[server.fileno()],
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        while b"waiting for its end" not in await asyncio.wait_for(process.stderr.readline(), 30):
            assert not process.stderr.at_eof()
        process.terminate()
        _, errors = await asyncio.wait_for(process.communicate(), 30)
        # The process ends like a process that does not block the signal.
        assert process.returncode == -signal.SIGTERM, errors
        lock.close()


def _openers(path):
    count = 0
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            count += any(os.readlink(entry) == str(path) for entry in folder.iterdir())
    return count


# --------------------------------------------------------------------------------------------- Files that are refused


async def test_files_that_are_not_valid_stores_are_refused_and_not_changed(gateway_for, upstream, store_path):
    gateway = await gateway_for(upstream, env=storing(store_path))
    await gateway.stop()
    sound = store_path.read_bytes()

    def newer():
        with contextlib.closing(sqlite3.connect(store_path)) as database:
            database.execute("PRAGMA user_version=1000")

    def foreign():
        store_path.unlink()
        with contextlib.closing(sqlite3.connect(store_path)) as database:
            database.execute("CREATE TABLE t (a)")

    def damaged():
        # Marks the store as left by a kill, because only such a store is checked.
        with contextlib.closing(sqlite3.connect(store_path)) as database:
            database.execute("UPDATE meta SET value = '0' WHERE name = 'clean'")
            database.commit()
            page = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'sessions'").fetchone()[0]
        content = bytearray(store_path.read_bytes())
        content[(page - 1) * 4096 : page * 4096] = b"\xa5" * 4096
        store_path.write_bytes(content)

    for change, text in (
        (newer, "has schema 1000"),
        (foreign, "is a database of another program"),
        (damaged, f"drawbridge store export {store_path}"),
        (lambda: store_path.write_bytes(sound[:300]), "has only 300 bytes"),
        (lambda: store_path.write_text("# not a database\n" * 1000), "is damaged"),
    ):
        for rest in store_path.parent.glob("drawbridge.db-*"):
            rest.unlink()
        store_path.write_bytes(sound)
        change()
        before = contents(store_path)
        status, errors = await refused(store_path)
        assert status == CONFIGURATION
        assert text in errors, errors
        status, _, errors = await run("store", "check", store_path)
        assert status == CONFIGURATION, errors
        assert contents(store_path) == before


async def test_an_unusable_folder_for_the_store_is_named(store_path, mounted):
    for place, text in (
        (store_path.parent / "none" / "a.db", "does not exist"),
        (store_path.parent, "it is a folder"),
        (Path("/dev/null"), "not a regular file"),
    ):
        status, errors = await refused(place)
        assert status == UNAVAILABLE
        assert text in errors, errors
    folder = mounted("size=1m")
    remount = await asyncio.create_subprocess_exec("mount", "-o", "remount,ro", folder)
    assert await remount.wait() == 0
    status, errors = await refused(folder / "a.db")
    assert status == UNAVAILABLE
    assert f"cannot create files in folder '{folder}' (Read-only file system)" in errors


# -------------------------------------------------------------------------------------------------------- The commands


async def test_a_wrong_command_line_is_explained(store_path):
    for arguments, text in (
        ((), "needs a command"),
        (("chek", store_path), "unknown command 'store chek'"),
        (("check",), "takes PATH"),
        (("backup", store_path), "takes PATH and COPY"),
        (("check", store_path, store_path), "takes PATH"),
        (("check", store_path, "--fast", "1"), "unknown flag"),
    ):
        status, out, errors = await run("store", *arguments)
        assert status == USAGE
        assert text in errors, errors
        assert not out
    status, _, errors = await run("store", "check", store_path)
    assert status == NO_INPUT
    assert "No such file" in errors
    assert not list(store_path.parent.iterdir())
    for arguments in (("store", "--help"), ("help", "store"), ("store", "backup", "--help")):
        status, out, _ = await run(*arguments)
        assert status == OK
        assert "backup PATH COPY" in out
        assert "Exit codes" in out


async def test_a_running_gateway_makes_a_backup(gateway_for, upstream, store_path):
    gateway = await gateway_for(upstream, env=storing(store_path))
    copy = store_path.with_name("copy.db")
    status, out, errors = await run("store", "backup", store_path, copy)
    assert (status, errors) == (OK, ""), errors
    assert str(copy) in out
    assert copy.stat().st_mode & 0o777 == 0o600
    status, _, errors = await run("store", "backup", store_path, copy)
    assert status == UNAVAILABLE
    assert "exists" in errors
    status, _, errors = await run("store", "backup", store_path, "/none/copy.db")
    assert status == UNAVAILABLE
    assert "'/none' does not exist" in errors
    status, out, errors = await run("store", "check", copy)
    assert status == OK
    assert "is a backup" in out, errors
    assert store_path.with_name("drawbridge.db.sock").stat().st_mode & 0o777 == 0o600
    await gateway.stop()
    assert not store_path.with_name("drawbridge.db.sock").exists()
    # Without a gateway, the command makes the copy itself.
    status, _, errors = await run("store", "backup", store_path, store_path.with_name("other.db"))
    assert status == OK, errors
    # The gateway notices only once that the copy was restored.
    for restored in (True, False):
        gateway = await gateway_for(upstream, env=storing(copy))
        opened = next(record for record in gateway.records if record["message"].startswith("store opened"))
        assert opened["may_have_lost_entries"] == restored
        await gateway.stop()


async def test_a_user_without_access_to_the_files_cannot_make_a_backup(gateway_for, upstream, store_path):
    await gateway_for(upstream, env=storing(store_path))
    os.chmod(store_path.parent, 0o755)
    program = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])"
    nobody = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else None
    if nobody is None:
        pytest.skip("another user is needed, so this needs root")
    for folder in [store_path.parent, *store_path.parent.parents]:
        if not folder.stat().st_mode & 0o001:
            os.chmod(folder, folder.stat().st_mode | 0o001)
    process = await asyncio.create_subprocess_exec(
        "/usr/bin/python3", "-c", program, f"{store_path}.sock", stderr=asyncio.subprocess.PIPE, cwd="/", **nobody
    )
    _, errors = await process.communicate()
    assert b"PermissionError" in errors, errors


async def test_stalled_and_invalid_clients_of_the_socket_delay_nobody_for_long(gateway_for, upstream, store_path):
    await gateway_for(upstream, env=storing(store_path))
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(f"{store_path}.sock")
        for request in (b"restore /etc/passwd\n", b"backup relative.db\n"):
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(f"{store_path}.sock")
                peer.sendall(request)
                # `other` has sent nothing, so it loses its turn after some seconds.
                peer.settimeout(30)
                assert peer.recv(100).startswith(b"failed the request is not valid")
    status, _, errors = await run("store", "backup", store_path, store_path.with_name("copy.db"))
    assert status == OK, errors


# ------------------------------------------------------------------------------------------------------ Disks that fail


async def test_every_fault_at_the_opening_is_harmless_or_a_clear_error(gateway_for, upstream, store_path, tmp_path):
    disk = FaultyDisk(tmp_path, store_path.parent)
    for kind in (OPEN, WRITE, SYNC, TRUNCATE):
        at = 0
        while True:
            at += 1
            disk.fail(kind, errno.EIO, at=at, count=1)
            status, _, errors = await _start_and_stop(upstream, store_path, disk)
            if disk.failed == 0:
                break
            assert status in (OK, UNAVAILABLE), (kind, at, errors)
            if status == UNAVAILABLE:
                assert f"'{store_path}'" in errors, (kind, at, errors)
            disk.heal()
            status, _, errors = await _start_and_stop(upstream, store_path, disk)
            assert status == OK, (kind, at, errors)
            for file in store_path.parent.iterdir():
                file.unlink()
            assert at < 60


async def _start_and_stop(upstream, path, disk):
    """Starts a gateway, and stops it once it listens. It may also fail before."""
    process = await asyncio.create_subprocess_exec(
        BINARY, "serve", "--listen", "127.0.0.1:0",
        "--management", "127.0.0.1:0", "--upstream", upstream.url,
        env={**plain_environment(), **storing(path, sync="always"), **disk.environment},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    text = b""
    async for line in process.stderr:
        text += line
        if b'"listener":"management"' in line:
            process.terminate()
    return await asyncio.wait_for(process.wait(), 30), b"", text.decode()
