"""The runs of test_kills.py, long: `scripts/soak --deaths`. Prints progress, a line for each run, and a summary."""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from harness.gateway import BINARY, Gateway
from harness.kills import KillRun, push_settings, settings
from harness.push_loss import PushRun


def _runs(deaths, seed):
    """Name, the run itself, the gateway's settings."""
    return [
        ("redeliver: never", KillRun(deaths, seed, "never"), settings("never")),
        ("redeliver: unconfirmed", KillRun(deaths, seed, "unconfirmed"), settings("unconfirmed")),
        ("pushes", PushRun(deaths, seed), push_settings()),
    ]


async def _carry_out(run, environment, progress):
    await run.upstream.start()
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway("--upstream", run.upstream.url, env=environment, folder=Path(folder))
        await gateway.start()
        try:
            return await run.run(gateway, progress=progress)
        finally:
            # In order, and without a trace of a crash: stop() sees to it.
            await gateway.stop()
            await run.upstream.stop()


async def _main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--deaths", type=int, nargs="?", default=1000, const=1000, help="of the upstream, in each run (1000)"
    )
    parser.add_argument("--seed", type=int, help="to have the same choices once more; timing varies nevertheless")
    parser.add_argument("--only", help="runs whose name contains this")
    options = parser.parse_args()
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    print(f"{BINARY.name}, {options.deaths} deaths, seed {seed}", flush=True)
    passed = failed = 0
    for name, run, environment in _runs(options.deaths, seed):
        if options.only and options.only not in name:
            continue
        started = time.monotonic()

        def progress(text, name=name):
            print(f"  {name}: {text}", flush=True)

        try:
            verdict = await _carry_out(run, environment, progress)
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
