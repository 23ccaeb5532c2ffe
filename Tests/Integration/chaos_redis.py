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


async def _main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="length of each run (300)")
    parser.add_argument("--seed", type=int, help="to have the same faults once more; timing varies nevertheless")
    parser.add_argument("--only", choices=["wait", "single"], help="with Sentinels and WAIT, or with one server")
    parser.add_argument("--replicas", type=int, default=1, help="replicas of Redis, all of which must confirm (1)")
    options = parser.parse_args()
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    # Not a warning for each connection that was reset.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    failed = 0
    kinds = [options.only] if options.only else ["wait", "single"]
    for kind in kinds:
        print(f"{BINARY.name}, {kind}, {options.seconds:g} seconds, seed {seed}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            run = ChaosRun(options.seconds, seed, Path(folder), sentinels=kind == "wait", replicas=options.replicas)
            try:
                verdict = await run.run(lambda text: print(f"  {text}", flush=True))
            except (AssertionError, TimeoutError, OSError) as error:
                print(f"FAILED {kind} with seed {seed}: {error}")
                traceback.print_exc()
                failed += 1
                continue
        print(f"{'FAILED' if verdict.faults else 'passed'} {kind}: {verdict}")
        for fault in verdict.faults[:100]:
            print(f"  {fault}")
        failed += bool(verdict.faults)
    print(f"{len(kinds) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
