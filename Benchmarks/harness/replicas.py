"""The measures of several gateways that share their sessions in Redis: the cost for the gateways, and for Redis."""

import contextlib
import re
import shutil
import time
import urllib.request

from .measures import Bench
from .processes import Process, Tool, free_port
from .results import Figure
from .store import StoringGateway
from .subjects import Earlier, Gateway, Together

COUNTS = {"one": 1, "two": 2, "three": 3}


class SharedGateways(Gateway):
    """Several gateways and the Redis in which they share their sessions, all on the server cores."""

    def __init__(self, cores, count, **options):
        super().__init__(cores, loops=1, **options)
        self.redis: Process | None = None
        #: For each gateway, its ports for clients, for management and for other gateways.
        self.places = [(free_port(), free_port(), free_port()) for _ in range(count)]
        self.folder = self.folder.with_name(f"replicas-{self.name}-{count}")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()

    @staticmethod
    def missing():
        return None if shutil.which("redis-server") else "the Debian package redis-server"

    def start(self):
        upstream, port = self.start_sink(), free_port()
        # Redis stores no file, as in the sizing of docs/scaling.md. With a file, the kernel would do the additional
        # work.
        arguments = [shutil.which("redis-server"), "--port", port, "--bind", "127.0.0.1", "--save", ""]
        arguments += ["--maxmemory-policy", "noeviction"]
        self.redis = Process(arguments, self.cores.server, log=(self.folder / "redis-log").open("w"), cwd=self.folder)
        self.redis.wait_until_listening(port)
        self.server = Together()
        for number, place in enumerate(self.places):
            self.port, self.management, peers = place
            settings = {
                "DRAWBRIDGE_STORE_ENGINE": "redis",
                "DRAWBRIDGE_STORE_PREFIX": "bench",
                "DRAWBRIDGE_STORE_URL": f"redis://127.0.0.1:{port}",
                "DRAWBRIDGE_LISTENERS_PEERS": f"127.0.0.1:{peers}",
            }
            log = (self.folder / f"log-{number}").open("w")
            gateway = Process(self.arguments(upstream), self.cores.server, log=log, cwd=self.folder, env=settings)
            self.server.add(gateway)
            gateway.wait_until_listening(self.port)
        self.wait_for_session()
        # The holder, which may be any of the gateways, becomes the first in the list.
        self.places.sort(key=lambda place: self.metric(place[1], "drawbridge_store_held_sessions"), reverse=True)
        self.port = self.places[0][0]

    @staticmethod
    def metric(port, name) -> float:
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        return float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE)[1])

    @property
    def ports(self) -> list[int]:
        return [place[0] for place in self.places]

    def stop(self):
        super().stop()
        if self.redis is not None:
            self.redis.stop()


class EarlierSharedGateways(SharedGateways, Earlier):
    """Gateways with the program beside it."""


def replicas(bench: Bench) -> list[Figure]:
    """POSTs to all gateways in equal parts, and pushes to polls that are held at all gateways."""
    if reason := SharedGateways.missing():
        raise SystemExit(f"error: this needs {reason}")
    polls = bench.plan.waiters // 10
    rate = Figure("replicas_rate", "POST of 100 bytes to all gateways, 64 connections in all", "requests/s", True)
    cost = Figure("replicas_cpu", "the same: processor time of the gateways per request", "µs", False)
    redis = Figure("replicas_redis", "the same: processor time of Redis per request", "µs", False)
    push = Figure(
        "replicas_push",
        "1,000 pushes/s, one poll at each gateway: processor time of the gateways per push",
        "µs",
        False,
    )
    store = Figure("replicas_push_redis", "the same: processor time of Redis per push", "µs", False)
    p50 = Figure("replicas_p50", "100 pushes/s, to the response of a poll at the last gateway: median", "µs", False)
    p99 = Figure("replicas_p99", "the same: 99th percentile", "µs", False)
    fan = Figure(
        "replicas_fanout",
        f"one push to {polls:,} polls at all gateways: their processor time per delivery",
        "µs",
        False,
    )
    figures = [rate, cost, redis, push, store, p50, p99, fan]
    for figure in figures:
        figure.titles |= {
            "drawbridge": "two gateways on Redis" if Earlier in bench.subjects else "Drawbridge, store.engine: memory",
            "sqlite": "Drawbridge, store.engine: sqlite",
            "one": "one gateway on Redis",
            "two": "two gateways on Redis",
            "three": "three gateways on Redis",
            "earlier": f"{Earlier.title}: two gateways on Redis",
        }
    with contextlib.ExitStack() as stack:
        if Earlier in bench.subjects:
            names = {stack.enter_context(SharedGateways(bench.cores, 2)): "drawbridge"}
            names[stack.enter_context(EarlierSharedGateways(bench.cores, 2))] = "earlier"
        else:
            names = {stack.enter_context(Gateway(bench.cores)): "drawbridge"}
            names[stack.enter_context(StoringGateway(bench.cores, "interval"))] = "sqlite"
            for name, count in COUNTS.items():
                names[stack.enter_context(SharedGateways(bench.cores, count))] = name
        subjects = list(names)
        for subject in bench.turns(subjects, rate, cost, redis):
            before = _times(subject)
            posts, per_second = _post(bench, subject)
            after = _times(subject)
            rate.add(names[subject], per_second)
            cost.add(names[subject], (after[0] - before[0]) / posts * 1e6)
            if isinstance(subject, SharedGateways):
                redis.add(names[subject], (after[1] - before[1]) / posts * 1e6)
        with contextlib.ExitStack() as polling:
            holders = {subject: _hold(bench, polling, subject, 1) for subject in subjects}
            _pushes(bench, names, holders, push, store, 1_000)
            _latency(bench, names, holders, p50, p99)
        with contextlib.ExitStack() as polling:
            holders = {subject: _hold(bench, polling, subject, polls) for subject in subjects}
            for _ in range(bench.plan.rounds):
                for subject, name in names.items():
                    subject.server.settle()
                    with bench.run(fan):
                        fan.add(name, _fan_out(subject, holders[subject], polls))
    return figures


def _ports(subject) -> list[int]:
    return subject.ports if isinstance(subject, SharedGateways) else [subject.port]


def _times(subject) -> tuple[float, float]:
    """Processor time of all gateways, and of Redis."""
    return subject.server.cpu(), subject.redis.cpu() if isinstance(subject, SharedGateways) else 0


def _post(bench: Bench, subject) -> tuple[int, float]:
    """Posts to all gateways at once. Returns the number of messages, and the number per second."""
    ports, before = _ports(subject), subject.source.ask("stats")["messages"]
    connections = bench.plan.connections // len(ports)
    with contextlib.ExitStack() as stack:
        run = (connections, bench.plan.seconds, "POST", subject.post_path, subject.post_body)
        tools = [stack.enter_context(Tool("rate", port, *run, cores=bench.cores.load)) for port in ports]
        results = [tool.receive() for tool in tools]
    if refused := sum(result["refused"] for result in results):
        raise SystemExit(f"error: {refused} requests were refused")
    subject.server.settle()
    posts, deadline = sum(result["all"] for result in results), time.monotonic() + 5
    while (forwarded := subject.source.ask("stats")["messages"] - before) < posts:
        if time.monotonic() > deadline:
            raise SystemExit(f"error: {posts} messages were accepted and {forwarded} were forwarded")
        time.sleep(0.01)
    # When `rate` ends, each of its connections has a request whose response it does not read.
    if forwarded > posts + connections * len(ports):
        raise SystemExit(f"error: {posts} messages were accepted and {forwarded} were forwarded")
    return posts, sum(result["rate"] for result in results)


def _hold(bench: Bench, stack, subject, count: int) -> list[Tool]:
    """Holds `count` polls, in equal parts at all gateways, and at least one poll at each gateway."""
    ports = _ports(subject)
    path, cursor = subject.hold
    tools = []
    for port in ports:
        tool = Tool("hold", port, max(1, count // len(ports)), path, cursor, cores=bench.cores.load)
        tools.append(stack.enter_context(tool))
        tool.receive()
    subject.server.settle()
    return tools


def _expect(subject, tools: list[Tool], pushes: int, polls: int, milliseconds: int, rate: float = 0) -> list[dict]:
    """Pushes, and returns the results of the polls of each gateway. Fails if a push is missing."""
    each = max(1, polls // len(tools)) * pushes
    for tool in tools:
        tool.ask(f"expect {each} {milliseconds}")
    subject.push(pushes, rate)
    results = [tool.receive() for tool in tools]
    for result in results:
        if result["deliveries"] < each:
            raise SystemExit(f"error: {result['deliveries']} of {each} pushes were delivered by one of {len(tools)}")
    subject.server.settle()
    return results


def _pushes(bench: Bench, names, holders, push: Figure, store: Figure, rate: int):
    count = int(rate * bench.plan.latency_seconds)
    for subject in bench.turns(list(names), push, store):
        before = _times(subject)
        _expect(subject, holders[subject], count, 1, int(bench.plan.latency_seconds * 2000 + 1000), rate)
        after = _times(subject)
        push.add(names[subject], (after[0] - before[0]) / count * 1e6)
        if isinstance(subject, SharedGateways):
            store.add(names[subject], (after[1] - before[1]) / count * 1e6)


def _latency(bench: Bench, names, holders, p50: Figure, p99: Figure):
    rate = 100
    count = int(rate * bench.plan.latency_seconds)
    for subject in bench.turns(list(names), p50, p99):
        *_, last = _expect(subject, holders[subject], count, 1, int(bench.plan.latency_seconds * 2000 + 1000), rate)
        p50.add(names[subject], last["p50"])
        p99.add(names[subject], last["p99"])


def _fan_out(subject, tools: list[Tool], polls: int) -> float:
    before = subject.server.cpu()
    _expect(subject, tools, 1, polls, 20_000)
    return (subject.server.cpu() - before) / polls * 1e6
