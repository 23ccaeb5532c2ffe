"""The measures. Each starts what it needs, interleaves the runs of all subjects (A B C, B C A, …), returns figures."""

import contextlib
import socket
import time
from dataclasses import dataclass

from .processes import Cores, Process, Tool, free_port, run_tool
from .results import Figure, Target
from .subjects import Gateway, Subject


@dataclass
class Plan:
    """How long everything takes: the full form, or the short one."""

    repetitions: int = 5
    seconds: float = 2.0
    #: Connections of the rate measures, each with one request at a time.
    connections: int = 64
    waiters: int = 10_000
    rounds: int = 8
    latency_seconds: float = 2.0
    blast_messages: int = 2_000_000

    @staticmethod
    def short() -> "Plan":
        return Plan(repetitions=3, seconds=0.6, rounds=3, latency_seconds=0.7, blast_messages=500_000)


class Bench:
    """Cores, subjects and lengths, and what several measures do alike."""

    def __init__(self, cores: Cores, subjects: list[type[Subject]], plan: Plan, say):
        self.cores = cores
        self.subjects = subjects
        self.plan = plan
        self.say = say

    def start(self, stack: contextlib.ExitStack, kinds=None) -> list[Subject]:
        return [stack.enter_context(kind(self.cores)) for kind in kinds or self.subjects]

    def turns(self, subjects):
        """Every subject in turn, as often as the plan says; each turn begins with another one."""
        for repetition in range(self.plan.repetitions):
            first = repetition % len(subjects)
            yield from subjects[first:] + subjects[:first]

    def rate(self, subject: Subject, method: str, path: str, body: str = "") -> tuple[dict, float]:
        """One run of `rate`: what it says, and the server's processor seconds."""
        before = subject.server.cpu()
        port, connections = subject.port, self.plan.connections
        if method == "POST":
            port = subject.post_port or port
            connections, _ = subject.post_connections or (connections, "")
        run = ("rate", port, connections, self.plan.seconds, method, path, body)
        result = run_tool(*run, cores=self.cores.load)
        if result["refused"] > 0:
            raise SystemExit(f"error: {subject.name} refused {result['refused']} of {result['requests']} requests")
        return result, subject.server.cpu() - before

    def hold(self, stack, subject: Subject, count: int) -> Tool:
        path, cursor = subject.hold
        holder = stack.enter_context(Tool("hold", subject.port, count, path, cursor, cores=self.cores.load))
        holder.hear()
        subject.server.settle()
        return holder


def post(bench: Bench) -> list[Figure]:
    """POST of 100 bytes: bridges forward it to a real upstream, nchan and Pushpin publish it, the floor answers."""
    rate = Figure("post_rate", "POST of 100 bytes, keep-alive, 64 connections", "requests/s", True)
    rate.targets = [Target("≥", 1.5, "nchan"), Target("≥", 3, "go"), Target("≥", 0.75, "floor")]
    cost = Figure("post_cpu", "the same: processor time of the server a request", "µs", False)
    cost.targets = [Target("≤", 1 / 0.75, "floor")]
    with contextlib.ExitStack() as stack:
        for subject in bench.turns(bench.start(stack)):
            before = subject.source.ask("stats")["messages"] if subject.forwards else 0
            result, seconds = bench.rate(subject, "POST", subject.post_path, subject.post_body)
            if subject.forwards:
                subject.server.settle()
                forwarded = subject.source.ask("stats")["messages"] - before
                if forwarded < result["all"]:
                    raise SystemExit(f"error: {subject.name} answered {result['all']} posts and forwarded {forwarded}")
            rate.add(subject.name, result["rate"])
            cost.add(subject.name, seconds / result["all"] * 1e6)
            if subject.post_connections:
                rate.remarks[subject.name] = subject.post_connections[1]
    return [rate, cost]


def poll(bench: Bench) -> list[Figure]:
    """GET that answers at once with one message of 100 bytes."""
    rate = Figure("poll_rate", "short poll that returns one message of 100 bytes", "requests/s", True)
    rate.targets = [Target("≥", 0.8, "floor")]
    cost = Figure("poll_cpu", "the same: processor time of the server a request", "µs", False)
    cost.targets = [Target("≤", 1 / 0.8, "floor")]
    with contextlib.ExitStack() as stack:
        subjects = [subject for subject in bench.start(stack) if subject.short]
        for subject in subjects:
            subject.prepare_short()
        for subject in bench.turns(subjects):
            result, seconds = bench.rate(subject, "GET", subject.short)
            rate.add(subject.name, result["rate"])
            cost.add(subject.name, seconds / result["all"] * 1e6)
    return [rate, cost]


def held(bench: Bench) -> list[Figure]:
    """Ten thousand long polls at each subject, and single pushes to all of them."""
    count = bench.plan.waiters
    memory = Figure("held_memory", f"memory of the server a held poll, at {count:,}", "KiB", False)
    memory.targets = [Target("≤", 2.5)]
    after = Figure("held_memory_after", "the same, after pushes to all of them", "KiB", False)
    cost = Figure("fanout_cpu", f"one push to {count:,} held polls: processor time a delivery", "µs", False)
    cost.targets = [Target("≤", 1.15, "floor"), Target("≤", 0.8, "nchan")]
    last = Figure("fanout_last", "the same: time until the last has it", "ms", False)
    last.targets = [Target("≤", 1.15, "floor"), Target("≤", 0.8, "nchan")]
    with contextlib.ExitStack() as stack:
        holders = {}
        before = {}
        subjects = bench.start(stack)
        counts = {}
        for subject in subjects:
            counts[subject], remark = subject.most_waiters or (count, "")
            for figure in (memory, after, cost, last):
                if remark:
                    figure.remarks[subject.name] = remark
            bench.say(f"{counts[subject]:,} polls at {subject.title}")
            subject.server.settle()
            before[subject] = subject.server.memory()
            holders[subject] = bench.hold(stack, subject, counts[subject])
            memory.add(subject.name, (subject.server.memory() - before[subject]) / counts[subject] / 1024)
        for _ in range(bench.plan.rounds):
            for subject in subjects:
                subject.server.settle()
                start = subject.server.cpu()
                waiting = counts[subject]
                holders[subject].ask(f"expect {waiting} 20000")
                subject.push(1)
                result = holders[subject].hear()
                if not result["complete"]:
                    raise SystemExit(f"error: {subject.name} delivered {result['deliveries']} of {waiting}")
                # Each has asked again by now; that belongs to the cost of a delivery.
                subject.server.settle()
                cost.add(subject.name, (subject.server.cpu() - start) / waiting * 1e6)
                last.add(subject.name, result["max"] / 1000)
        for subject in subjects:
            after.add(subject.name, (subject.server.memory() - before[subject]) / counts[subject] / 1024)
    return [memory, after, cost, last]


def latency(bench: Bench) -> list[Figure]:
    """From the write at the source to the poll's answer at its client, one client that polls again at once."""
    figures = []
    for rate in (100, 10_000):
        count = int(rate * bench.plan.latency_seconds)
        title = f"push to a poll's answer, one client, {rate:,} pushes/s"
        p50 = Figure(f"latency_p50_{rate}", f"{title}: median", "µs", False, targets=[Target("≤", 1.3, "floor")])
        p99 = Figure(f"latency_p99_{rate}", f"{title}: 99th percentile", "µs", False, targets=[Target("≤", 1, "nchan")])
        with contextlib.ExitStack() as stack:
            # One who keeps nothing between two polls loses most of what is pushed, and fast is then no merit.
            subjects = bench.start(stack, [kind for kind in bench.subjects if kind.keeps_messages])
            holders = {subject: bench.hold(stack, subject, 1) for subject in subjects}
            shares: dict[str, float] = {}
            for subject in bench.turns(subjects):
                limit = int(bench.plan.latency_seconds * 2000 + 1000)
                holders[subject].ask(f"expect {count} {limit}")
                subject.push(count, rate)
                result = holders[subject].hear()
                subject.server.settle()
                if result["deliveries"] == 0:
                    raise SystemExit(f"error: {subject.name} delivered nothing")
                share = result["deliveries"] / count
                shares[subject.name] = min(share, shares.get(subject.name, 1))
                p50.add(subject.name, result["p50"])
                p99.add(subject.name, result["p99"])
        for name, share in shares.items():
            if share < 1:
                p50.remarks[name] = p99.remarks[name] = f"only {share:.1%} delivered within twice the time"
        figures += [p50, p99]
    return figures


def receive(bench: Bench) -> list[Figure]:
    """How fast messages are taken from an upstream that never pauses, one session, nobody polling."""
    figures = []
    for size, options in ((100, ()), (4096, ()), (100, ("deflate",)), (4096, ("deflate",))):
        compressed = ", permessage-deflate" if options else ""
        key = f"receive_{size}{'_deflate' if options else ''}"
        rate = Figure(key, f"messages of {size:,} bytes taken from the upstream{compressed}", "messages/s", True)
        if size == 100 and not options:
            rate.targets = [Target("≥", 500_000)]
        with Gateway(bench.cores, loops=1, sink_options=options) as gateway:
            count = bench.plan.blast_messages // (4 if size > 1000 or options else 1)
            for _ in range(bench.plan.repetitions):
                result = gateway.source.ask(f"blast {count} {size}")
                rate.add(gateway.name, result["messages"] / result["seconds"])
        figures.append(rate)
    return figures


def start(bench: Bench) -> list[Figure]:
    """From the start of the process to the first answered request."""
    figure = Figure("start", "start of the process to its first answer", "ms", False, targets=[Target("≤", 50)])
    sink_port = free_port()
    with Tool("sink", sink_port, cores=bench.cores.load) as sink:
        sink.wait_until_listening(sink_port)
        for _ in range(bench.plan.repetitions * 2):
            gateway = Gateway(bench.cores)
            begin = time.monotonic()
            with Process(gateway.arguments(sink_port), bench.cores.server):
                _first_answer(gateway.port)
                figure.add(gateway.name, (time.monotonic() - begin) * 1000)
    return [figure]


def _first_answer(port):
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as client:
            client.sendall(b"GET /v1/messages?wait=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            if client.recv(4096).startswith(b"HTTP/1.1 200"):
                return
        time.sleep(0.0005)


MEASURES = {"post": post, "poll": poll, "held": held, "latency": latency, "receive": receive, "start": start}
