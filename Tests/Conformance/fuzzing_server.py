"""The Autobahn TestSuite's fuzzing server on Python 3: its cases, with their `autobahn` library.

A client requests the number of cases with `/getCaseCount`, runs each by `/runCase?case=N&agent=NAME`, and makes the
server write the report by `/updateReports`. The first line of standard output is the port.
"""

import argparse
import asyncio
import collections
import json
import sys
from pathlib import Path

import txaio

txaio.use_asyncio()

from autobahn.asyncio.websocket import WebSocketServerFactory, WebSocketServerProtocol
from autobahn.websocket.types import ConnectionDeny

from suite import load, octets, string


class FuzzingProtocol(WebSocketServerProtocol):
    """One connection, and the case that runs over it. Members that a case uses have the names of the suite's server."""

    def __init__(self):
        super().__init__()
        self.case = None
        self.connectionWasOpen = False
        # This is for the suite's log of octets, which is not kept.
        self.createWirelog = False
        self.txFrameStats = collections.Counter()

    # -- Callbacks of the library -------------------------------------------------------------------------------------

    def onConnect(self, request):
        self.path = request.path
        if request.path == "/runCase":
            try:
                self.number = self.factory.numbers[int(request.params["case"][0]) - 1]
            except (KeyError, IndexError, ValueError):
                raise ConnectionDeny(404, "no such case") from None
            self.case = self.factory.cases[self.number](self)

    def onOpen(self):
        self.connectionWasOpen = True
        if self.case:
            self.case.onOpen()
        elif self.path == "/getCaseCount":
            self.sendMessage(json.dumps(len(self.factory.numbers)))
            self.sendClose()
        elif self.path == "/updateReports":
            self.factory.write_report()
            self.sendClose()

    def onMessage(self, payload, isBinary):
        if self.case:
            # The cases of compression read files, so their data is bytes on Python 3 as well.
            self.case.onMessage(payload if hasattr(self.case, "TESTDATA") else string(payload), isBinary)

    def onPong(self, payload):
        if self.case:
            self.case.onPong(string(payload))

    def connection_lost(self, exc):
        super().connection_lost(exc)
        if self.case:
            self.case.onConnectionLost(self.failedByMe)
            self.factory.results[self.number] = {
                "behavior": self.case.behavior,
                "behaviorClose": self.case.behaviorClose,
                "result": self.case.result,
                "resultClose": self.case.resultClose,
            }

    # -- Members that a case uses --------------------------------------------------------------------------------------

    def sendFrame(self, opcode, payload=b"", **options):
        self.txFrameStats[opcode] += 1
        super().sendFrame(opcode, octets(payload), **options)

    def sendMessage(self, payload, isBinary=False, **options):
        super().sendMessage(octets(payload), isBinary, **options)

    def sendMessageFrameData(self, payload, **options):
        return super().sendMessageFrameData(octets(payload), **options)

    def sendCloseFrame(self, code=None, reasonUtf8=None, isReply=False):
        super().sendCloseFrame(code, None if reasonUtf8 is None else octets(reasonUtf8), isReply)

    def enableWirelog(self, enable):
        pass

    def continueLater(self, delay, action, tag=None):
        self._later(delay, action)

    def killAfter(self, delay):
        self._later(delay, self._fail_connection)

    def closeAfter(self, delay):
        self._later(delay, self.sendClose)

    def _later(self, delay, action):
        """Does nothing if the connection has ended by then."""

        def act():
            if self.state != self.STATE_CLOSED:
                action()

        asyncio.get_running_loop().call_later(delay, act)


class FuzzingFactory(WebSocketServerFactory):
    protocol = FuzzingProtocol

    def __init__(self, cases, numbers, report):
        super().__init__()
        # As in the specification, a closing handshake follows a violation.
        self.setProtocolOptions(failByDrop=False)
        self.cases = cases
        self.numbers = numbers
        self.results = {}
        self._report = report

    def write_report(self):
        self._report.write_text(json.dumps(self.results, indent=1))


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, required=True, help="what became of each case, as JSON")
    parser.add_argument("cases", nargs="+", help="the cases' numbers, such as 1.1.1")
    options = parser.parse_args()
    cases = load()
    if unknown := [number for number in options.cases if number not in cases]:
        raise SystemExit(f"the suite has no case {', '.join(unknown)}")
    factory = FuzzingFactory(cases, options.cases, options.report)
    server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
