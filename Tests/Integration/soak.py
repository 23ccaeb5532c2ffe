"""`make soak`: everything at once for an hour. Prints progress, a line for each account, and a summary at the end."""

import argparse
import asyncio
import logging
import random
import sys
import tempfile
from pathlib import Path

from harness.gateway import BINARY, PROJECT
from harness.soak.run import SoakRun


async def _main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="length of the run (60)")
    parser.add_argument("--rate", type=float, default=1, help="load, relative to the usual one (1)")
    parser.add_argument("--seed", type=int, help="to have the same choices once more; timing varies nevertheless")
    parser.add_argument("--curve", type=Path, default=PROJECT / ".build/reports/soak.csv", help="file for the curve")
    options = parser.parse_args()
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    print(f"{BINARY.name}, {options.minutes:g} minutes, seed {seed}", flush=True)
    # asyncio would log a warning for each write to a connection that was reset.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        run = SoakRun(options.minutes * 60, seed, folder, rate=options.rate)
        every = 10 if sys.stdout.isatty() else 60
        try:
            accounts = await run.run(lambda text: print(f"  {text}", flush=True), every=every)
        except (AssertionError, OSError) as error:
            print(f"FAILED: {error}\n0 passed, 1 failed")
            return 1
        finally:
            if run.curve and run.curve.samples:
                run.curve.write(options.curve)
    for line in run.curve.lines():
        print(line)
    for name, text, count, faults in accounts:
        print(f"{'FAILED' if count else 'passed'} {name}: {text}")
        if count:
            print(f"  {count} faults with seed {seed}:")
        for fault in faults:
            print(f"  {fault}")
    failed = sum(bool(count) for _, _, count, _ in accounts)
    print(f"{len(accounts) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
