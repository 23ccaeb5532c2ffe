"""Runs the Autobahn TestSuite's fuzzing server against our client, and judges its report.

Each pair of a server and a client has its part of the cases and its own port, so that four pairs work in parallel. The
server reports two results of a case: for the messages (`behavior`) and for the closing (`behaviorClose`). Both must
agree with autobahn-expectations.json, which contains `OK` except for cases that the suite only reports for information.
"""

import argparse
import asyncio
import collections
import json
import re
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
EXPECTATIONS = HERE / "autobahn-expectations.json"
PAIRS = 4
# 9: megabytes and many small messages; 12 and 13: compression in every variation, with a thousand messages each.
SLOW = {"9", "12", "13"}

# Number of missed cases that may run a second time, alone. Many cases give the client one second, which a slow machine
# can exceed. A fault of the client misses the case again, or misses more cases.
REPEATED = 3

SECTIONS = {
    "1": "framing",
    "2": "pings and pongs",
    "3": "reserved bits",
    "4": "opcodes",
    "5": "fragmentation",
    "6": "UTF-8",
    "7": "closing",
    "9": "limits and performance",
    "10": "auto-fragmentation",
    "12": "compression, by message",
    "13": "compression, by parameters",
}


async def run_pair(index, cases, options):
    """Runs one server and one client over `cases`. Returns the server's report by case."""
    folder = options.reports / f"pair-{index}"
    folder.mkdir(parents=True)
    report = folder / "report.json"
    agent = f"drawbridge-{index}"
    with (folder / "server.log").open("wb") as log:
        server = await asyncio.create_subprocess_exec(
            *(options.python, HERE / "fuzzing_server.py", "--report", report, *cases),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    client = None
    try:
        async with asyncio.timeout(options.within):
            port = (await server.stdout.readline()).decode().strip()
            if not port:
                raise SystemExit(f"the fuzzing server ended:\n{(folder / 'server.log').read_text()}")
            with (folder / "client.log").open("wb") as log:
                client = await asyncio.create_subprocess_exec(
                    *(options.client, f"ws://127.0.0.1:{port}", agent), stdout=log, stderr=log
                )
            await client.wait()
        if client.returncode != 0:
            print(f"{agent} ended with {client.returncode}; see {folder / 'client.log'}", file=sys.stderr)
    except TimeoutError:
        print(f"{agent} was not done within {options.within} s", file=sys.stderr)
    finally:
        for process in (client, server):
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()
    return json.loads(report.read_text()) if report.exists() else {}


def judge(cases, expected, reported):
    """The fault of each case, by case. Empty if all results are as expected."""
    wrong = {}
    for case in cases:
        result = reported.get(case)
        if result is None:
            wrong[case] = "no report"
        elif (result["behavior"], result["behaviorClose"]) != tuple(expected[case]):
            found = f"{result['behavior']} / closing {result['behaviorClose']}"
            wrong[case] = f"{found}; expected {' / closing '.join(expected[case])}"
    return wrong


def print_table(cases, expected, wrong):
    rows = collections.OrderedDict()
    for case in cases:
        row = rows.setdefault(case.split(".")[0], collections.Counter())
        row["cases"] += 1
        kind = "missed" if case in wrong else "ok" if expected[case][0] == "OK" else "informational"
        row[kind] += 1
    columns = ("cases", "ok", "informational", "missed")
    print(f"{'section':<32}" + "".join(f"{column:>15}" for column in columns))
    for section, row in rows.items():
        print(f"{section:>2}  {SECTIONS[section]:<28}" + "".join(f"{row[column]:>15}" for column in columns))
    for case, what in wrong.items():
        print(f"missed {case}: {what}")


def write_junit(path, cases, wrong):
    suite = ElementTree.Element("testsuite", name="autobahn", tests=str(len(cases)), failures=str(len(wrong)))
    for case in cases:
        element = ElementTree.SubElement(suite, "testcase", classname="autobahn", name=case)
        if case in wrong:
            ElementTree.SubElement(element, "failure", message=wrong[case])
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=("full", "fast"))
    parser.add_argument("--python", type=Path, required=True, help="a Python that has what requirements.txt names")
    parser.add_argument("--client", type=Path, required=True)
    parser.add_argument("--reports", type=Path, required=True)
    parser.add_argument("--junit-xml", type=Path)
    parser.add_argument("--only", help="a regular expression: these cases and no other")
    options = parser.parse_args()
    # The whole suite takes minutes; a client that hangs must not take hours.
    options.within = 1200 if options.form == "full" else 240

    expected = json.loads(EXPECTATIONS.read_text())
    cases = [case for case in expected if options.form == "full" or case.split(".")[0] not in SLOW]
    if options.only:
        cases = [case for case in cases if re.search(options.only, case)]
    shutil.rmtree(options.reports, ignore_errors=True)

    shares = [share for index in range(PAIRS) if (share := cases[index::PAIRS])]
    results = await asyncio.gather(*(run_pair(index, share, options) for index, share in enumerate(shares, 1)))
    reported = {case: result for part in results for case, result in part.items()}

    wrong = judge(cases, expected, reported)
    if 0 < len(wrong) <= REPEATED:
        print("repeated: " + "; ".join(f"{case} ({what})" for case, what in wrong.items()))
        wrong = judge(wrong, expected, await run_pair(PAIRS + 1, list(wrong), options))
    print_table(cases, expected, wrong)
    if options.junit_xml:
        write_junit(options.junit_xml, cases, wrong)
    print(f"{len(cases) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong or not cases else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
