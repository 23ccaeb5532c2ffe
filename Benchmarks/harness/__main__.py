"""python3 -m harness [--short|--smoke] [MEASURE…]: runs the benchmark. `scripts/bench` builds first and calls this."""

import argparse
import os
import sys
import time
from pathlib import Path

from . import build, plot, report
from .measures import MEASURES as MOST_MEASURES
from .measures import Bench, Plan
from .processes import BENCHMARKS, WORK, Cores
from .replicas import replicas
from .results import Figure, Growth
from .store import store
from .subjects import SUBJECTS, Earlier, Gateway, Go

MEASURES = MOST_MEASURES | {"store": store, "replicas": replicas}
#: The measures that `--beside` runs unless others are named.
BESIDE = [
    *("post", "connections", "chunked", "poll", "held", "streams", "latency", "echo", "call", "workers", "store"),
    "replicas",
]


def main():
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Measure Drawbridge and other servers on the same cores."
    )
    lengths = parser.add_mutually_exclusive_group()
    lengths.add_argument(
        "--short", action="store_true", help="run fewer and shorter measurements: 4 minutes instead of 18"
    )
    lengths.add_argument(
        "--smoke", action="store_true", help="run each measurement once and for a fraction of a second, to check it"
    )
    parser.add_argument(
        "--beside",
        metavar="PROGRAM",
        type=Path,
        help="compare with another build of the gateway in the same runs, and with no other server",
    )
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=f"only these: {', '.join(MEASURES)}")
    options = parser.parse_args()
    unknown = [name for name in options.measures if name not in MEASURES]
    if unknown:
        parser.error(f"unknown measure '{unknown[0]}': use {', '.join(MEASURES)}")

    begin = time.monotonic()

    def say(text):
        print(f"[{time.monotonic() - begin:5.0f} s] {text}", file=sys.stderr, flush=True)

    build.build_programs()
    subjects, absent = [], {}
    if options.beside:
        if not os.access(options.beside, os.X_OK):
            parser.error(f"'{options.beside}' is not a program")
        Earlier.program = options.beside.resolve()
        options.measures = options.measures or BESIDE
        unable = [name for name in options.measures if name not in BESIDE]
        if unable:
            parser.error(f"'{unable[0]}' has no comparison with another build: use {', '.join(BESIDE)}")
    for kind in [Gateway, Earlier] if options.beside else SUBJECTS:
        reason = kind.missing()
        if reason:
            absent[kind.title] = reason
            say(f"{kind.title} is not measured: it needs {reason}")
        else:
            subjects.append(kind)
    if Go in subjects:
        build.build_go()
    cores = Cores.divide()
    # The harness moves to the cores of the load, so that it does not disturb the server. Its processor time counts as
    # load.
    os.sched_setaffinity(0, cores.load)
    is_short = options.short or options.smoke
    bench = Bench(cores, subjects, Plan.smoke() if options.smoke else Plan.short() if options.short else Plan(), say)
    results, failures = [], []
    measures = options.measures or MEASURES
    for name in measures:
        say(name)
        try:
            results += MEASURES[name](bench)
        except SystemExit as failure:
            # Keep the results of the other measures.
            say(f"{name}: {failure}")
            failures.append(name)
    figures = [result for result in results if isinstance(result, Figure)]
    growths = [result for result in results if isinstance(result, Growth)]

    is_whole = not options.measures and not is_short
    folder = BENCHMARKS if is_whole else WORK
    titles = {kind.name: kind.title for kind in subjects}
    seconds = time.monotonic() - begin
    quiet = report.quiet(bench.runs, bench.repeated)
    text = report.render(figures, growths, cores, titles, absent, quiet, is_short=is_short, seconds=seconds)
    (folder / "RESULTS.md").write_text(text)
    (folder / "results.svg").write_text(plot.draw(figures, titles, report.number))
    print(text)
    met, missed = report.judge(figures, growths)
    say(f"written to {folder.relative_to(BENCHMARKS.parent)}/RESULTS.md")
    print(quiet)
    print(f"{met} targets met, {missed} missed")
    if failures:
        say(f"these measures failed: {', '.join(failures)}")
    # The exit status depends on failed measures, not on missed targets, since speed depends on the machine.
    print(f"{len(measures) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
