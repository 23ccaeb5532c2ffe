"""`make soak-redis`: three gateways on Redis while everything fails. Prints progress, and a summary at the end."""

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import traceback
from pathlib import Path

from harness.gateway import BINARY
from harness.redis_chaos.run import ChaosRun

#: Names of runs, and the arrangement of Redis in each.
KINDS = {
    # The arrangement that docs/scaling.md recommends.
    "wait": {"replicas": 2, "waits": 1},
    "wait-all": {"replicas": 1, "waits": 1},
    "wait-both": {"replicas": 2, "waits": 2},
    "no-wait": {"replicas": 1, "waits": 0},
    "single": {"sentinels": False},
}
_USUAL = ("wait", "wait-all", "no-wait", "single")


async def _main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="length of each run (300)")
    parser.add_argument("--seed", type=int, help="to have the same faults once more; timing varies nevertheless")
    parser.add_argument(
        "--only",
        action="append",
        choices=list(KINDS),
        help="Sentinels with 2 replicas and WAIT 1 (wait), 1 and 1 (wait-all), 2 and 2 (wait-both), 1 and 0 (no-wait), "
        f"or one server (single); may be repeated. Without it: {', '.join(_USUAL)}",
    )
    parser.add_argument("--keep", type=Path, help="a folder that gets the logs of all programs")
    options = parser.parse_args()
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    # asyncio would log a warning for each connection that is reset.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    failed = 0
    kinds = options.only or _USUAL
    for kind in kinds:
        print(f"{BINARY.name}, {kind}, {options.seconds:g} seconds, seed {seed}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            run = ChaosRun(options.seconds, seed, Path(folder), **KINDS[kind])
            try:
                verdict = await run.run(lambda text: print(f"  {text}", flush=True))
            except (AssertionError, TimeoutError, OSError) as error:
                print(f"FAILED {kind} with seed {seed}: {error}")
                traceback.print_exc()
                failed += 1
                continue
            finally:
                if options.keep:
                    run.keep_logs(options.keep / f"{kind}-{seed}")
        print(f"{'FAILED' if verdict.faults else 'passed'} {kind}: {verdict}")
        for (operation, status, problem), count in sorted(verdict.results.items(), key=str):
            print(f"  {count} {operation}: {status} {problem}")
        for fault in verdict.faults[:100]:
            print(f"  {fault}")
        failed += bool(verdict.faults)
    print(f"{len(kinds) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
