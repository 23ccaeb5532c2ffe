"""The long runs of test_kills.py and test_store.py.

In test_kills.py the upstream dies (`scripts/soak --deaths`), and in test_store.py the gateway is killed
(`scripts/soak --kills`). The program prints progress, a line for each run, and a summary.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from harness import store_kills
from harness.gateway import BINARY, Gateway
from harness.kills import KillRun, push_settings, settings
from harness.push_loss import PushRun
from harness.store_kills import StoreKillRun


def _runs(deaths, seed):
    """For each run: its name, the run itself and the gateway's settings."""
    return [
        ("redeliver: never", KillRun(deaths, seed, "never"), settings("never")),
        ("redeliver: unconfirmed", KillRun(deaths, seed, "unconfirmed"), settings("unconfirmed")),
        ("pushes", PushRun(deaths, seed), push_settings()),
    ]


def _store_runs(kills, seed, folder):
    runs = []
    for sync, redeliver in (("interval", "never"), ("always", "unconfirmed")):
        environment = store_kills.settings(folder / f"{sync}.db", sync, redeliver)
        runs.append(
            (f"sync: {sync}, redeliver: {redeliver}", StoreKillRun(kills, seed, folder, environment), environment)
        )
    return runs


async def _carry_out(run, environment, progress):
    await run.upstream.start()
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway("--upstream", run.upstream.url, env=environment, folder=Path(folder))
        await gateway.start()
        try:
            return await run.run(gateway, progress=progress)
        finally:
            # stop() checks that the gateway exits with status 0 and has logged no crash.
            await gateway.stop()
            await run.upstream.stop()


async def _kill_gateways(run, environment, progress):
    await run.upstream.start()
    try:
        return await run.run(progress=progress)
    finally:
        await run.upstream.stop()


async def _main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--deaths", type=int, nargs="?", default=1000, const=1000, help="of the upstream, in each run (1000)"
    )
    parser.add_argument(
        "--kills", type=int, nargs="?", const=1000, help="instead: kills of a gateway with a store, in each run (1000)"
    )
    parser.add_argument("--seed", type=int, help="to have the same choices once more; timing varies nevertheless")
    parser.add_argument("--only", help="runs whose name contains this")
    options = parser.parse_args()
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    print(
        f"{BINARY.name}, {options.kills or options.deaths} {'kills' if options.kills else 'deaths'}, seed {seed}",
        flush=True,
    )
    passed = failed = 0
    folder = tempfile.TemporaryDirectory()
    if options.kills:
        runs, carry_out = _store_runs(options.kills, seed, Path(folder.name)), _kill_gateways
    else:
        runs, carry_out = _runs(options.deaths, seed), _carry_out
    for name, run, environment in runs:
        if options.only and options.only not in name:
            continue
        started = time.monotonic()

        def progress(text, name=name):
            print(f"  {name}: {text}", flush=True)

        try:
            verdict = await carry_out(run, environment, progress)
        except (AssertionError, OSError) as error:
            failed += 1
            print(f"FAILED {name}: {error}", flush=True)
            continue
        verb = "FAILED" if verdict.faults else "passed"
        print(f"{verb} {name}, {time.monotonic() - started:.0f} s: {verdict}", flush=True)
        for fault in verdict.faults[:20]:
            print(f"  {fault}", flush=True)
        passed += not verdict.faults
        failed += bool(verdict.faults)
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
