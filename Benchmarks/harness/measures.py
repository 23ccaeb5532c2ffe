"""The measures. Each measure starts its servers, interleaves their runs (A B C, B C A, …), and returns figures."""

import base64
import contextlib
import dataclasses
import hashlib
import hmac
import json
import secrets
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from .interference import QUIET, Interference
from .processes import PROJECT, WORK, Cores, IdleConnections, Process, Tool, free_port, run_tool
from .results import Figure, Growth, Runs, Series, Target
from .subjects import (
    BATCH,
    BATCH_CONNECTIONS,
    BATCH_SETTINGS,
    Aiohttp,
    CBridge,
    CreatingGateway,
    Floor,
    Gateway,
    Go,
    Nchan,
    SecureGateway,
    Subject,
    TLSProxy,
)


@dataclass
class Plan:
    """Number and length of the runs. The full form is the default; `smoke` only checks that each measure works."""

    is_short: bool = False
    repetitions: int = 5
    seconds: float = 2.0
    #: Maximum number of runs of a measure that may be repeated because they were not quiet.
    spare_runs: int = 8
    #: Connections of the rate measures. Each has one request at a time.
    connections: int = 64
    waiters: int = 10_000
    rounds: int = 8
    latency_seconds: float = 2.0
    echo_seconds: float = 4.0
    blast_messages: int = 2_000_000

    @staticmethod
    def short() -> "Plan":
        return Plan(
            is_short=True,
            repetitions=3,
            seconds=0.6,
            spare_runs=0,
            rounds=3,
            latency_seconds=0.7,
            echo_seconds=1.0,
            blast_messages=250_000,
        )

    @staticmethod
    def smoke() -> "Plan":
        return dataclasses.replace(
            Plan.short(),
            repetitions=1,
            seconds=0.3,
            waiters=1000,
            rounds=1,
            latency_seconds=0.3,
            echo_seconds=0.3,
        )


class Bench:
    """Cores, subjects and plan, with steps that several measures use."""

    def __init__(self, cores: Cores, subjects: list[type[Subject]], plan: Plan, say):
        self.cores = cores
        self.subjects = subjects
        self.plan = plan
        self.say = say
        #: All runs of all measures so far, and the runs that were repeated because they were not quiet.
        self.runs = Runs()
        self.repeated = 0

    def start(self, stack: contextlib.ExitStack, kinds=None) -> list[Subject]:
        return [stack.enter_context(kind(self.cores)) for kind in kinds or self.subjects]

    def kinds(self, *kinds: type[Subject]) -> list[type[Subject]]:
        """The subjects that are of one of `kinds`."""
        return [kind for kind in self.subjects if issubclass(kind, kinds)]

    def turns(self, subjects, *series: Series):
        """Yields all subjects in turn, once per repetition. Each repetition starts with another subject.

        A run begins when a subject is yielded and ends when the next subject is requested. If a run was not quiet, its
        values are removed from `series`, and the same subject is yielded again. This happens at most twice per run, and
        as long as the plan has spare runs.
        """
        spare = self.plan.spare_runs
        for repetition in range(self.plan.repetitions):
            first = repetition % len(subjects)
            for subject in subjects[first:] + subjects[:first]:
                # A machine that is never quiet must not use up the spare runs of a measure for one run.
                for attempt in range(3):
                    before = [one.lengths() for one in series]
                    watch = Interference(self.cores)
                    yield subject
                    is_quiet = watch.share() < QUIET
                    if is_quiet or spare == 0 or attempt == 2:
                        break
                    spare -= 1
                    self.repeated += 1
                    for one, lengths in zip(series, before, strict=True):
                        one.forget_since(lengths)
                self._count_run(series, before, is_quiet)

    @contextlib.contextmanager
    def run(self, *series: Series):
        """A run that is never repeated. `series` record whether it was quiet."""
        before = [one.lengths() for one in series]
        watch = Interference(self.cores)
        yield
        self._count_run(series, before, watch.share() < QUIET)

    def _count_run(self, series, before, is_quiet):
        self.runs += Runs(1, int(is_quiet))
        for one, lengths in zip(series, before, strict=True):
            one.count_run_since(lengths, is_quiet=is_quiet)

    def rate(
        self, subject: Subject, method: str, path: str, body: str = "", *, connections=0, options=(), fields=()
    ) -> tuple[dict, float]:
        """One run of `rate`: its result, and the processor time of the server in seconds."""
        before = subject.server.cpu()
        port, connections = subject.port, connections or self.plan.connections
        if method == "POST":
            port = subject.post_port or port
            connections, _ = subject.post_connections or (connections, "")
        run = ("rate", *options, port, connections, self.plan.seconds, method, path, body, *fields)
        result = run_tool(*run, cores=self.cores.load)
        if result["refused"] > 0 or result["requests"] == 0:
            raise SystemExit(f"error: {subject.name} refused {result['refused']} of {result['all']} requests")
        if method == "POST":
            # Sending the queued messages to the upstream belongs to the cost of a POST.
            subject.server.settle()
        return result, subject.server.cpu() - before

    def post(
        self, subject: Subject, body: str = "", *, messages=1, path="", connections=0, options=(), fields=()
    ) -> tuple[dict, float]:
        """One run of POSTs with bodies of `messages` messages. Fails unless the upstream receives each exactly once."""
        before = subject.source.ask("stats")["messages"] if subject.forwards else 0
        path, body = path or subject.post_path, body or subject.post_body
        result, seconds = self.rate(
            subject, "POST", path, body, connections=connections, options=options, fields=fields
        )
        if subject.forwards:
            posted, deadline = result["all"] * messages, time.monotonic() + 5
            while (forwarded := subject.source.ask("stats")["messages"] - before) < posted:
                if time.monotonic() > deadline:
                    raise SystemExit(f"error: {subject.name} accepted {posted} messages and forwarded {forwarded}")
                time.sleep(0.01)
            # When `rate` ends, each of its connections has a request whose response it does not read.
            if forwarded > posted + (connections or self.plan.connections) * messages:
                raise SystemExit(f"error: {subject.name} accepted {posted} messages and forwarded {forwarded}")
        return result, seconds

    def hold(self, stack, subject: Subject, count: int) -> Tool:
        path, cursor = subject.hold
        holder = stack.enter_context(Tool("hold", subject.port, count, path, cursor, cores=self.cores.load))
        holder.receive()
        subject.server.settle()
        return holder

    def open_streams(self, stack, subject: Subject, count: int) -> Tool:
        holder = stack.enter_context(Tool("streams", subject.port, count, subject.stream, cores=self.cores.load))
        holder.receive()
        subject.server.settle()
        return holder

    def rounds(self, holders, memory: Figure, after: Figure, cost: Figure, last: Figure):
        """Opens the waiters of several subjects, sends single pushes to all, and records the memory of the subjects.

        `holders` are tuples: subject, name of its values, number of waiters, and the function that opens them.
        """
        with contextlib.ExitStack() as stack:
            before, tools = {}, {}
            for subject, name, count, open_all in holders:
                subject.server.settle()
                before[name] = subject.server.memory()
                tools[name] = open_all(stack, subject, count)
                memory.add(name, (subject.server.memory() - before[name]) / count / 1024)
            for _ in range(self.plan.rounds):
                for subject, name, count, _ in holders:
                    subject.server.settle()
                    with self.run(cost, last):
                        microseconds, milliseconds = self.fan_out(subject, tools[name], count)
                        cost.add(name, microseconds)
                        last.add(name, milliseconds)
            for subject, name, count, _ in holders:
                after.add(name, (subject.server.memory() - before[name]) / count / 1024)

    def fan_out(self, subject: Subject, holder: Tool, count: int) -> tuple[float, float]:
        """One push to `count` clients of `holder`: µs of processor time per delivery, ms until the last delivery."""
        start = subject.server.cpu()
        holder.ask(f"expect {count} 20000")
        subject.push(1)
        result = holder.receive()
        if not result["complete"]:
            raise SystemExit(f"error: {subject.name} delivered {result['deliveries']} of {count}")
        # Clients that poll have sent their next poll by now. These polls belong to the cost of a delivery.
        subject.server.settle()
        return (subject.server.cpu() - start) / count * 1e6, result["max"] / 1000


def post(bench: Bench) -> list[Figure]:
    """POST of 100 bytes: bridges forward it to an upstream, nchan and Pushpin publish it, the floor only responds."""
    rate = Figure("post_rate", "POST of 100 bytes, keep-alive, 64 connections", "requests/s", True)
    rate.targets = [Target("≥", 1.5, "nchan"), Target("≥", 3, "go"), Target("≥", 0.75, "floor")]
    cost = Figure("post_cpu", "the same: processor time of the server per request", "µs", False)
    cost.targets = [Target("≤", 1 / 0.75, "floor"), Target("≤", 1 / 0.75, "c")]
    with contextlib.ExitStack() as stack:
        for subject in bench.turns(bench.start(stack), rate, cost):
            result, seconds = bench.post(subject)
            rate.add(subject.name, result["rate"])
            cost.add(subject.name, seconds / result["all"] * 1e6)
            if subject.post_connections:
                rate.remarks[subject.name] = subject.post_connections[1]
    return [rate, cost]


def connections(bench: Bench) -> list[Figure]:
    """POST of 100 bytes, each on a new connection: connect, send, read the response, close, as curl does."""
    rate = Figure("connections_rate", "POST of 100 bytes, each on a new connection, 64 at a time", "requests/s", True)
    cost = Figure("connections_cpu", "the same: processor time of the server per request", "µs", False)
    cost.targets = [Target("≤", 1.15, "nchan")]
    with contextlib.ExitStack() as stack:
        kinds = bench.kinds(Gateway, Floor, CBridge, Nchan, Go)
        for subject in bench.turns(bench.start(stack, kinds), rate, cost):
            result, seconds = bench.post(subject, options=["-n"])
            rate.add(subject.name, result["rate"])
            cost.add(subject.name, seconds / result["all"] * 1e6)
    return [rate, cost]


def chunked(bench: Bench) -> list[Figure]:
    """POST of 100 bytes in chunked transfer coding, and the same POST with Content-Length."""
    title = "POST of 100 bytes in chunked transfer coding, keep-alive, 64 connections"
    rate = Figure("chunked_rate", title, "requests/s", True)
    cost = Figure("chunked_cpu", "the same: processor time of the server per request", "µs", False)
    cost.targets = [Target("≤", 1.1, "length")]
    for figure in (rate, cost):
        figure.titles["length"] = "Drawbridge, with Content-Length"
    with contextlib.ExitStack() as stack:
        subjects = bench.start(stack, bench.kinds(Gateway, Go))
        runs = [(subject, subject.name, ["-c"]) for subject in subjects] + [(subjects[0], "length", [])]
        for subject, name, options in bench.turns(runs, rate, cost):
            result, seconds = bench.post(subject, options=options)
            rate.add(name, result["rate"])
            cost.add(name, seconds / result["all"] * 1e6)
    return [rate, cost]


def access(bench: Bench) -> list[Figure]:
    """POST of 100 bytes without authentication, with a static token, and with a JWT that was verified before."""
    rate = Figure("access_rate", "POST of 100 bytes, without authentication", "requests/s", True)
    cost = Figure("access_cpu", "the same: processor time of the server per request", "µs", False)
    folder = WORK / "run"
    folder.mkdir(parents=True, exist_ok=True)
    token, secret = secrets.token_urlsafe(32), secrets.token_bytes(32)
    tokens, keys = folder / "tokens", folder / "keys.json"
    tokens.write_text(f"bench sha256:{hashlib.sha256(token.encode()).hexdigest()} scopes=send,receive\n")
    keys.write_text(json.dumps({"keys": [{"kty": "oct", "kid": "k", "alg": "HS256", "k": _base64url(secret)}]}))
    claims = {"iss": "bench", "sub": "me", "aud": "bench", "exp": int(time.time()) + 86_400, "scope": "send receive"}
    text = ".".join(_base64url(json.dumps(part).encode()) for part in ({"alg": "HS256", "kid": "k"}, claims))
    web_token = f"{text}.{_base64url(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"
    jwt = {"AUTHENTICATION_JWT_KEYS": keys, "AUTHENTICATION_JWT_AUDIENCE": "bench"}
    kinds = [
        ("drawbridge", "without authentication", {}, ()),
        ("token", "with a static token", {"AUTHENTICATION_TOKENS": tokens}, [f"Authorization: Bearer {token}"]),
        ("jwt", "with a JWT", jwt, [f"Authorization: Bearer {web_token}"]),
    ]
    # The maximum cost of authentication: a tenth more with a static token, and a fifth more with a JWT.
    cost.targets = [Target("≥", 1 / 1.1, "token"), Target("≥", 1 / 1.2, "jwt")]
    for figure in (rate, cost):
        figure.titles |= {name: f"Drawbridge, {title}" for name, title, _, _ in kinds}
    with contextlib.ExitStack() as stack:
        subjects = []
        for name, _, settings, fields in kinds:
            gateway = stack.enter_context(Gateway(bench.cores, settings=settings))
            subjects.append((gateway, name, fields))
        for subject, name, fields in bench.turns(subjects, rate, cost):
            result, seconds = bench.post(subject, fields=fields)
            rate.add(name, result["rate"])
            cost.add(name, seconds / result["all"] * 1e6)
    return [rate, cost]


def https(bench: Bench) -> list[Figure]:
    """Requests and new connections over HTTPS, beside nginx that terminates TLS in front of the plain listener."""
    figures = {}
    for kind, title in (
        ("requests", "POST of 100 bytes over HTTPS, keep-alive, 64 connections"),
        ("resumed", "poll on a new HTTPS connection each, with a resumed session, 64 at a time"),
        ("full", "poll on a new HTTPS connection each, with a full handshake (ECDSA P-256), 64 at a time"),
    ):
        rate = Figure(f"https_{kind}_rate", title, "requests/s", True)
        cost = Figure(f"https_{kind}_cpu", "the same: processor time of the servers per request", "µs", False)
        rate.targets = [Target("≥", 1, TLSProxy.name)]
        cost.targets = [Target("≤", 1, TLSProxy.name)]
        for figure in (rate, cost):
            figure.titles[TLSProxy.name] = TLSProxy.title
        figures[kind] = rate, cost
    if reason := TLSProxy.missing():
        raise SystemExit(f"error: this needs {reason}")
    with contextlib.ExitStack() as stack:
        files = _certificate()
        subjects = [stack.enter_context(kind(bench.cores, *files)) for kind in (SecureGateway, TLSProxy)]
        for kind, options in (("requests", ["-e"]), ("resumed", ["-e", "-n", "-r"]), ("full", ["-e", "-n"])):
            rate, cost = figures[kind]
            for subject in bench.turns(subjects, rate, cost):
                if kind == "requests":
                    result, seconds = bench.post(subject, options=options)
                else:
                    result, seconds = bench.rate(subject, "GET", "/v1/messages?wait=0", options=options)
                    # The first connections have no session to resume.
                    resumable = result["handshakes"] - bench.plan.connections if kind == "resumed" else 0
                    if result["resumed"] < resumable or (kind == "full" and result["resumed"] > 0):
                        raise SystemExit(
                            f"error: {subject.name} resumed {result['resumed']} of {result['handshakes']} sessions"
                        )
                rate.add(subject.name, result["rate"])
                cost.add(subject.name, seconds / result["all"] * 1e6)
    return [figure for pair in figures.values() for figure in pair]


def _certificate() -> list[Path]:
    """A certificate and its key, with ECDSA like most servers today."""
    folder = WORK / "run"
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "certificate.pem", folder / "certificate.key"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", "/CN=localhost", "-days", "30", "-out", files[0], "-keyout", files[1]]
    subprocess.run(command, check=True, capture_output=True)
    return files


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def batches(bench: Bench) -> list[Figure]:
    """NDJSON batches of 100 messages of 100 bytes, and the same messages with a POST for each."""
    title = f"NDJSON batches of 100 messages of 100 bytes, {BATCH_CONNECTIONS} connections"
    rate = Figure("batches_rate", title, "messages/s", True)
    cost = Figure("batches_cpu", "the same: processor time of the server per message", "µs", False)
    cost.targets = [Target("≤", 0.5)]
    for figure in (rate, cost):
        figure.titles["single"] = f"Drawbridge, one POST per message, {bench.plan.connections} connections"
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(Gateway(bench.cores, settings=BATCH_SETTINGS))
        (bridge,) = bench.start(stack, [CBridge])
        for subject, name in bench.turns(
            [(gateway, gateway.name), (bridge, bridge.name), (gateway, "single")], rate, cost
        ):
            if name == "single":
                count, (result, seconds) = 1, bench.post(subject)
            else:
                run = {"connections": BATCH_CONNECTIONS, "options": ["-t", "application/x-ndjson"]}
                count, (result, seconds) = 100, bench.post(subject, BATCH, messages=100, **run)
            rate.add(name, result["rate"] * count)
            cost.add(name, seconds / result["all"] / count * 1e6)
    return [rate, cost]


def poll(bench: Bench) -> list[Figure]:
    """GET that returns one message of 100 bytes at once."""
    rate = Figure("poll_rate", "short poll that returns one message of 100 bytes", "requests/s", True)
    rate.targets = [Target("≥", 0.8, "floor")]
    cost = Figure("poll_cpu", "the same: processor time of the server per request", "µs", False)
    cost.targets = [Target("≤", 1 / 0.8, "floor"), Target("≤", 1 / 0.8, "c")]
    with contextlib.ExitStack() as stack:
        subjects = [subject for subject in bench.start(stack) if subject.short]
        for subject in subjects:
            subject.prepare_short()
        for subject in bench.turns(subjects, rate, cost):
            result, seconds = bench.rate(subject, "GET", subject.short)
            rate.add(subject.name, result["rate"])
            cost.add(subject.name, seconds / result["all"] * 1e6)
    return [rate, cost]


def held(bench: Bench) -> list[Figure]:
    """Ten thousand held polls per subject, and single pushes that all of them receive."""
    count = bench.plan.waiters
    memory = Figure("held_memory", f"memory of the server per held poll, at {count:,}", "KiB", False)
    memory.targets = [Target("≤", 2.5)]
    after = Figure("held_memory_after", "the same, after pushes to all of them", "KiB", False)
    cost = Figure("fanout_cpu", f"one push to {count:,} held polls: processor time per delivery", "µs", False)
    cost.targets = [Target("≤", 1.15, "floor"), Target("≤", 0.8, "nchan")]
    last = Figure("fanout_last", "the same: time until the last poll has received it", "ms", False)
    last.targets = [Target("≤", 1.15, "floor"), Target("≤", 0.8, "nchan")]
    figures = [memory, after, cost, last]
    with contextlib.ExitStack() as stack:
        holders = []
        for subject in bench.start(stack):
            most, remark = subject.most_waiters or (count, "")
            for figure in figures:
                if remark:
                    figure.remarks[subject.name] = remark
            bench.say(f"{most:,} polls at {subject.title}")
            holders.append((subject, subject.name, most, bench.hold))
        bench.rounds(holders, *figures)
    return figures


def streams(bench: Bench) -> list[Figure]:
    """Ten thousand event streams per subject, beside as many held polls, and single pushes to all of them."""
    count = bench.plan.waiters
    memory = Figure("streams_memory", f"memory of the server per idle event stream, at {count:,}", "KiB", False)
    memory.targets = [Target("≤", 2.5)]
    after = Figure("streams_memory_after", "the same, after pushes to all of them", "KiB", False)
    cost = Figure("streams_cpu", f"one push to {count:,} event streams: processor time per delivery", "µs", False)
    cost.targets = [Target("≤", 1, "polls"), Target("≤", 1, "nchan")]
    last = Figure("streams_last", "the same: time until the last stream has received it", "ms", False)
    last.targets = [Target("≤", 1, "nchan")]
    figures = [memory, after, cost, last]
    for figure in figures:
        figure.titles["polls"] = "Drawbridge, held polls"
    with contextlib.ExitStack() as stack:
        kinds = [kind for kind in bench.subjects if kind.stream]
        holders = [(subject, subject.name, count, bench.open_streams) for subject in bench.start(stack, kinds)]
        holders += [(subject, "polls", count, bench.hold) for subject in bench.start(stack, [Gateway])]
        bench.say(f"{count:,} streams and polls each at {', '.join(subject.title for subject, *_ in holders)}")
        bench.rounds(holders, *figures)
    return figures


def latency(bench: Bench) -> list[Figure]:
    """Time from the write at the source to the response at one client, which then polls again at once."""
    figures = []
    for rate in (100, 10_000):
        count = int(rate * bench.plan.latency_seconds)
        title = f"push to the response of a poll, one client, {rate:,} pushes/s"
        p50 = Figure(f"latency_p50_{rate}", f"{title}: median", "µs", False, targets=[Target("≤", 1.3, "floor")])
        p99 = Figure(f"latency_p99_{rate}", f"{title}: 99th percentile", "µs", False, targets=[Target("≤", 1, "nchan")])
        with contextlib.ExitStack() as stack:
            # A server that keeps no messages between two polls loses most pushes, so its latency is not comparable.
            subjects = bench.start(stack, [kind for kind in bench.subjects if kind.keeps_messages])
            holders = {subject: bench.hold(stack, subject, 1) for subject in subjects}
            shares: dict[str, float] = {}
            for subject in bench.turns(subjects, p50, p99):
                limit = int(bench.plan.latency_seconds * 2000 + 1000)
                holders[subject].ask(f"expect {count} {limit}")
                subject.push(count, rate)
                result = holders[subject].receive()
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


def echo(bench: Bench) -> list[Figure]:
    """Time from a POST to the response of the poll that returns the upstream's echo."""
    rate, size = 100, 100
    count = int(rate * bench.plan.echo_seconds)
    title = f"POST of {size} bytes to the poll that returns its echo, {rate} per second"
    p50 = Figure("echo_p50", f"{title}: median", "µs", False, targets=[Target("≤", 0.95, "go")])
    p99 = Figure("echo_p99", f"{title}: 99th percentile", "µs", False, targets=[Target("≤", 1, "go")])
    with contextlib.ExitStack() as stack:
        kinds = bench.kinds(Gateway, CBridge, Go)
        subjects = [stack.enter_context(kind(bench.cores, sink_options=["echo"])) for kind in kinds]
        for subject in bench.turns(subjects, p50, p99):
            # `roundtrip` fails unless each message is returned once, unchanged and in order.
            result = run_tool("roundtrip", subject.port, count, rate, size, cores=bench.cores.load)
            if result["returned"] != count:
                raise SystemExit(f"error: {subject.name} returned {result['returned']} of {count} messages")
            p50.add(subject.name, result["p50"])
            p99.add(subject.name, result["p99"])
    return [p50, p99]


def _gateway_only(kind: type[Subject], settings: dict) -> dict:
    """The argument with `settings`, if the subject is a gateway."""
    return {"settings": settings} if issubclass(kind, Gateway) else {}


def call(bench: Bench) -> list[Figure]:
    """Calls that all have the same id, to an upstream that returns each message as its reply."""
    body = '{"id":1,"method":"echo","params":["%s"]}' % ("x" * 62)
    title = f"POST /v1/call of {len(body)} bytes to the reply of the upstream, 64 connections"
    rate = Figure("call_rate", title, "calls/s", True)
    cost = Figure("call_cpu", "the same: processor time of the server per call", "µs", False)
    settings = {"UPSTREAM_CORRELATION": "{request: /id, reply: /id}"}
    with contextlib.ExitStack() as stack:
        subjects = [
            stack.enter_context(kind(bench.cores, sink_options=["echo"], **_gateway_only(kind, settings)))
            for kind in bench.kinds(Gateway, Aiohttp)
        ]
        for subject in bench.turns(subjects, rate, cost):
            result, seconds = bench.rate(subject, "POST", "/v1/call", body)
            rate.add(subject.name, result["rate"])
            cost.add(subject.name, seconds / result["all"] * 1e6)
    return [rate, cost]


def workers(bench: Bench) -> list[Figure]:
    """Workers receive each message with a lease and acknowledge it, one by one and in hundreds."""
    figures = []
    path = "/v1/consumers/workers"
    settings = {"DELIVERY_MESSAGES": 500_000, "DELIVERY_BYTES": "512MiB"}
    # A consumer has at most 1,000 leases.
    for limit, connections, count in ((1, bench.plan.connections, 20_000), (100, 8, 100_000)):
        of = "one message" if limit == 1 else f"{limit} messages"
        title = f"receive and acknowledge {of} of 100 bytes per request, {connections} workers"
        rate = Figure(f"workers_{limit}_rate", title, "messages/s", True)
        cost = Figure(f"workers_{limit}_cpu", "the same: processor time of the server per message", "µs", False)
        with contextlib.ExitStack() as stack:
            subjects = [
                stack.enter_context(kind(bench.cores, **_gateway_only(kind, settings)))
                for kind in bench.kinds(Gateway, Aiohttp)
            ]
            for subject in subjects:
                subject.request("PUT", path, '{"share":true,"start":"earliest"}')
            for subject in bench.turns(subjects, rate, cost):
                messages = int(count * bench.plan.seconds / subject.slowness)
                # The number of messages is exact: a remaining lease would delay the next run until it expires.
                subject.push(messages)
                subject.server.settle()
                before = subject.server.cpu()
                arguments = (subject.port, connections, messages, path, limit)
                result = run_tool("workers", *arguments, cores=bench.cores.load)
                rate.add(subject.name, result["messages"] / result["seconds"])
                cost.add(subject.name, (subject.server.cpu() - before) / result["messages"] * 1e6)
        figures += [rate, cost]
    return figures


def receive(bench: Bench) -> list[Figure]:
    """Rate at which one session receives messages from an upstream that never pauses, without polls."""
    figures = []
    for size, options in ((100, ()), (4096, ()), (100, ("deflate",)), (4096, ("deflate",))):
        compressed = ", permessage-deflate" if options else ""
        key = f"receive_{size}{'_deflate' if options else ''}"
        title = f"messages of {size:,} bytes received from the upstream{compressed}"
        rate = Figure(key, title, "messages/s", True)
        cost = Figure(f"{key}_cpu", f"{title}: processor time per message", "µs", False)
        if size == 100 and not options:
            rate.targets = [Target("≥", 500_000)]
            cost.targets = [Target("≤", 2)]
        with Gateway(bench.cores, loops=1, sink_options=options) as gateway:
            count = bench.plan.blast_messages // (4 if size > 1000 or options else 1)
            for _ in bench.turns([gateway], rate, cost):
                before = gateway.server.cpu()
                result = gateway.source.ask(f"blast {count} {size}")
                rate.add(gateway.name, result["messages"] / result["seconds"])
                cost.add(gateway.name, (gateway.server.cpu() - before) / result["messages"] * 1e6)
        figures += [rate, cost]
    return figures


def start(bench: Bench) -> list[Figure]:
    """Time from the start of the process to the first response."""
    figure = Figure("start", "start of the process to its first response", "ms", False, targets=[Target("≤", 50)])
    sink_port = free_port()
    with Tool("sink", sink_port, cores=bench.cores.load) as sink:
        sink.wait_until_listening(sink_port)
        for _ in range(bench.plan.repetitions * 2):
            gateway = Gateway(bench.cores)
            with bench.run(figure):
                begin = time.monotonic()
                with Process(gateway.arguments(sink_port), bench.cores.server):
                    _wait_for_response(gateway.port)
                    figure.add(gateway.name, (time.monotonic() - begin) * 1000)
    return [figure]


def _wait_for_response(port):
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as client:
            client.sendall(b"GET /v1/messages?wait=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            if client.recv(4096).startswith(b"HTTP/1.1 200"):
                return
        time.sleep(0.0005)


_CODECS = {
    "mask": ("masking of 64 KiB", "memcpy", [Target("≥", 0.5, "reference")]),
    "utf8_ascii": ("UTF-8 validation, ASCII", "the standard library", [Target("≥", 30)]),
    "utf8_other": ("UTF-8 validation, other text", "the standard library", [Target("≥", 2.5)]),
    "utf8_latin": ("UTF-8 validation, German", "the standard library", []),
    "utf8_cyrillic": ("UTF-8 validation, Russian", "the standard library", []),
    "utf8_cjk": ("UTF-8 validation, Chinese", "the standard library", []),
    "utf8_emoji": ("UTF-8 validation, emoji", "the standard library", []),
    "utf8_ascii_100": ("UTF-8 validation, 100 bytes of ASCII", "the standard library", []),
    "utf8_other_100": ("UTF-8 validation, 100 bytes of other text", "the standard library", []),
    "utf8_ascii_20": ("UTF-8 validation, 20 bytes of ASCII", "the standard library", []),
    "frames_100": ("frame codec alone: text messages of 100 bytes", "", [Target("≥", 500_000)]),
    "frames_4096": ("frame codec alone: text messages of 4,096 bytes", "", []),
    "inflate_200": ("permessage-deflate, receiving 200 bytes", "zlib", [Target("≥", 0.9, "reference")]),
    "deflate_200": ("permessage-deflate, sending 200 bytes", "zlib", [Target("≥", 0.9, "reference")]),
    "inflate_4096": ("permessage-deflate, receiving 4,096 bytes", "zlib", [Target("≥", 0.9, "reference")]),
    "deflate_4096": ("permessage-deflate, sending 4,096 bytes", "zlib", [Target("≥", 0.9, "reference")]),
    "tls_receive_bulk": ("TLS, receiving records of 16 KiB", "OpenSSL", [Target("≥", 0.9, "reference")]),
    "tls_send_bulk": ("TLS, sending records of 16 KiB", "OpenSSL", [Target("≥", 0.9, "reference")]),
    "tls_receive_small": ("TLS, receiving records of 128 bytes", "OpenSSL", [Target("≥", 0.9, "reference")]),
    "tls_send_small": ("TLS, sending records of 128 bytes", "OpenSSL", [Target("≥", 0.9, "reference")]),
}


def codecs(bench: Bench) -> list[Figure]:
    """Each codec compared with its underlying library, in one process and without sockets."""
    certificate, key = WORK / "certificate.pem", WORK / "key.pem"
    names = ["-keyout", key, "-out", certificate, "-days", "30", "-subj", "/CN=localhost"]
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *names]
    subprocess.run(request, check=True, capture_output=True)
    options = ["--short"] if bench.plan.is_short else []
    program = [PROJECT / ".build/release/codec-benchmark", certificate, key, *options]
    figures = []
    with bench.run(), Process(program, bench.cores.server, pipes=True) as process:
        for line in process.process.stdout:
            result = json.loads(line)
            title, reference, targets = _CODECS[result["key"]]
            figure = Figure(result["key"], title, result["unit"], True, targets=targets)
            figure.values["drawbridge"] = result["ours"]
            if reference:
                figure.values["reference"] = result["reference"]
                figure.titles["reference"] = f"{reference} alone"
            figures.append(figure)
    if len(figures) != len(_CODECS):
        raise SystemExit(f"error: codec-benchmark gave {len(figures)} of {len(_CODECS)} results")
    return figures


def many(bench: Bench) -> list[Figure]:
    """Fifty thousand held polls, in processes of 10,000 each because of the limit on open files."""
    processes, count = (5, 10_000) if not bench.plan.is_short else (2, 10_000)
    title = f"memory of the server per held poll, at {processes * count:,} in {processes} processes"
    figure = Figure("many_memory", title, "KiB", False, targets=[Target("≤", 2.5)])
    with contextlib.ExitStack() as stack:
        gateways = bench.start(stack, [Gateway] * processes)
        before = sum(gateway.server.memory() for gateway in gateways)
        for gateway in gateways:
            bench.hold(stack, gateway, count)
        after = sum(gateway.server.memory() for gateway in gateways)
        figure.add("drawbridge", (after - before) / processes / count / 1024)
    return [figure]


def sessions(bench: Bench) -> list[Figure]:
    """Ten thousand upstream sessions in one process, each with its own connection (Tests/Capacity/SessionHerd)."""
    count = 10_000 if not bench.plan.is_short else 2_000
    title = f"{count:,} upstream sessions in one process, without compression"
    memory = Figure("session_memory", f"{title}: memory per session", "KiB", False, targets=[Target("≤", 12)])
    ready = Figure("session_ready", f"{title}: time until all are ready", "s", False, targets=[Target("≤", 10)])
    with bench.run(memory, ready):
        kibibytes, seconds = _open_sessions(bench, count)
        memory.add("drawbridge", kibibytes)
        ready.add("drawbridge", seconds)
    return [memory, ready]


def _open_sessions(bench: Bench, count: int) -> tuple[float, float]:
    """Opens `count` sessions in one process: memory per session in KiB, and seconds until all are ready."""
    sink_port = free_port()
    with Tool("sink", sink_port, cores=bench.cores.load) as sink:
        sink.wait_until_listening(sink_port)
        program = PROJECT / ".build/release/session-herd"
        with Tool(program, f"ws://127.0.0.1:{sink_port}", count, cores=bench.cores.server) as herd:
            herd.receive_line()
            before = herd.memory()
            result = herd.ask("begin")
            if result["ready"] != count:
                raise SystemExit(f"error: of {count} sessions {result['ready']} became ready")
            return (herd.memory() - before) / count / 1024, result["seconds"]


def growth(bench: Bench) -> list[Growth]:
    """Growth of Drawbridge's cost with the number of loops, connections, held polls, retained messages and sessions."""
    return [
        *_growth_with_loops(bench),
        *_growth_with_connections(bench),
        *_growth_with_polls(bench),
        _growth_with_messages(bench),
        *_growth_with_sessions(bench),
    ]


#: The sizes at which costs are compared, and the sizes that are large enough for a figure of memory per item.
_SIZES = (10, 100, 1000, 10_000)
_LARGE_SIZES = _SIZES[1:]


def _growth_with_loops(bench: Bench) -> list[Growth]:
    rate = Growth(f"POST on {len(bench.cores.server)} core(s), by event loops", "requests/s")
    cost = Growth("the same: processor time per request", "µs")
    with contextlib.ExitStack() as stack:
        # With more loops than cores, messages are queued while the loop of the session waits for a core.
        settings = {"UPSTREAM_QUEUE_MESSAGES": 100_000, "UPSTREAM_QUEUE_BYTES": "64MiB"}
        gateways = {
            stack.enter_context(Gateway(bench.cores, loops=count, settings=settings)): count for count in (1, 2, 4)
        }
        for gateway in bench.turns(list(gateways), rate, cost):
            result, seconds = bench.post(gateway)
            rate.add(f"{gateways[gateway]} loops", result["rate"])
            cost.add(f"{gateways[gateway]} loops", seconds / result["all"] * 1e6)
    return [rate.sort(), cost.sort()]


def _growth_with_connections(bench: Bench) -> list[Growth]:
    cost = Growth("processor time of a POST, by the number of idle connections", "µs")
    memory = Growth("memory per idle connection, by the number of idle connections", "KiB")
    with contextlib.ExitStack() as stack:
        counts = {}
        for count in _SIZES:
            # Without this setting, the gateway would close the idle connections during the measure.
            gateway = stack.enter_context(Gateway(bench.cores, settings={"HTTP_IDLE_TIMEOUT": "1h"}))
            gateway.server.settle()
            before = gateway.server.memory()
            stack.enter_context(IdleConnections(gateway.port, count))
            gateway.server.settle()
            if count in _LARGE_SIZES:
                memory.add(f"{count:,}", (gateway.server.memory() - before) / count / 1024)
            counts[gateway] = count
        for gateway in bench.turns(list(counts), cost):
            result, seconds = bench.post(gateway)
            cost.add(f"{counts[gateway]:,}", seconds / result["all"] * 1e6)
    return [cost.sort(), memory.sort()]


def _growth_with_polls(bench: Bench) -> list[Growth]:
    post_cost = Growth("processor time of a POST, by the number of held polls", "µs")
    poll_cost = Growth("processor time of a short poll, by the number of held polls", "µs")
    fanout = Growth("processor time per delivery of one push, by the number of held polls", "µs")
    memory = Growth("memory per held poll, by the number of held polls", "KiB")
    with contextlib.ExitStack() as stack:
        counts, holders = {}, {}
        for count in _SIZES:
            gateway = stack.enter_context(Gateway(bench.cores))
            gateway.prepare_short()
            gateway.server.settle()
            before = gateway.server.memory()
            holders[gateway] = bench.hold(stack, gateway, count)
            if count in _LARGE_SIZES:
                memory.add(f"{count:,}", (gateway.server.memory() - before) / count / 1024)
            counts[gateway] = count
        for gateway in bench.turns(list(counts), post_cost, poll_cost, fanout):
            size = f"{counts[gateway]:,}"
            result, seconds = bench.post(gateway)
            post_cost.add(size, seconds / result["all"] * 1e6)
            result, seconds = bench.rate(gateway, "GET", gateway.short)
            poll_cost.add(size, seconds / result["all"] * 1e6)
            # Each size gets the same number of deliveries, for the same precision.
            rounds = 10_000 // counts[gateway]
            gateway.server.settle()
            begin = gateway.server.cpu()
            for _ in range(rounds):
                holders[gateway].ask(f"expect {counts[gateway]} 20000")
                gateway.push(1)
                if not holders[gateway].receive()["complete"]:
                    raise SystemExit(f"error: a push did not reach each of {size} held polls")
            gateway.server.settle()
            fanout.add(size, (gateway.server.cpu() - begin) / rounds / counts[gateway] * 1e6)
    return [growth.sort() for growth in (post_cost, poll_cost, fanout, memory)]


def _growth_with_messages(bench: Bench) -> Growth:
    cost = Growth("processor time of a short poll for the last message, by the number of messages in the buffer", "µs")
    with contextlib.ExitStack() as stack:
        counts = {}
        for count in _SIZES:
            gateway = stack.enter_context(Gateway(bench.cores))
            gateway.push(count)
            gateway.server.settle()
            counts[gateway] = count
        for gateway in bench.turns(list(counts), cost):
            result, seconds = bench.rate(gateway, "GET", "/v1/messages?last=1&wait=0")
            cost.add(f"{counts[gateway]:,}", seconds / result["all"] * 1e6)
    return cost.sort()


def _growth_with_sessions(bench: Bench) -> list[Growth]:
    memory = Growth("memory per upstream session, by the number of sessions", "KiB")
    ready = Growth("time per session until all are ready, by the number of sessions", "ms")
    for count in bench.turns(list(_LARGE_SIZES), memory, ready):
        kibibytes, seconds = _open_sessions(bench, count)
        memory.add(f"{count:,}", kibibytes)
        ready.add(f"{count:,}", seconds / count * 1000)
    return [memory.sort(), ready.sort()]


def spread(bench: Bench) -> list[Growth]:
    """POSTs to named sessions of one process in turn. Each session has its own connection to the upstream.

    Frames of different connections cannot use the same system call. The C bridge shows how much this costs in the
    kernel.
    """
    most = 1000
    rate = Growth(
        "POST spread over the sessions of one process, by their number", "requests/s", Target("≥", 0.8), "spread"
    )
    cost = Growth("the same: processor time per request", "µs")
    floor = Growth("the same with the C bridge: processor time per request", "µs")
    # The limit on connection attempts would delay the start by a minute.
    settings = {"UPSTREAM_DIALS_PER_SECOND": 1000, "UPSTREAM_DIALS_BURST": 1000}
    with contextlib.ExitStack() as stack:
        gateways = [
            stack.enter_context(Gateway(bench.cores, sessions=count, settings=settings)) for count in (1, 10, 100, most)
        ]
        bridges = [stack.enter_context(CBridge(bench.cores, sessions=count)) for count in (1, most)]
        for subject in bench.turns(gateways + bridges, rate, cost, floor):
            options, path = ["-s", subject.sessions], "/v1/sessions/s*/messages"
            result, seconds = bench.post(subject, path=path, options=options)
            silent = subject.source.ask("stats")["silent"]
            if silent > max(0, subject.sessions - result["all"]):
                raise SystemExit(f"error: {silent} of {subject.sessions} sessions forwarded nothing")
            size, own_cost = f"{subject.sessions:,}", cost if subject in gateways else floor
            own_cost.add(size, seconds / result["all"] * 1e6)
            if subject in gateways:
                rate.add(size, result["rate"])
    return [rate.sort(), cost.sort(), floor.sort()]


def created(bench: Bench) -> list[Figure | Growth]:
    """A thousand sessions that clients create from a profile, and POSTs to them in turn, relative to one session."""
    most = 1000
    title = f"{most:,} sessions that clients have created: memory per session"
    memory = Figure("session_created_memory", title, "KiB", False, targets=[Target("≤", 20)])
    rate = Growth(
        "POST spread over sessions that clients have created, by their number",
        "requests/s",
        Target("≥", 0.8),
        "spread_created",
    )
    cost = Growth("the same: processor time per request", "µs")
    settings = {"UPSTREAM_DIALS_PER_SECOND": 1000, "UPSTREAM_DIALS_BURST": 1000}
    with contextlib.ExitStack() as stack:
        gateways = []
        with bench.run(memory):
            for count in (1, most):
                gateways.append(stack.enter_context(CreatingGateway(bench.cores, sessions=count, settings=settings)))
            memory.add("drawbridge", gateways[-1].memory / 1024)
        for gateway in bench.turns(gateways, rate, cost):
            options, path = ["-s", gateway.sessions], "/v1/sessions/s*/messages"
            result, seconds = bench.post(gateway, path=path, options=options)
            silent = gateway.source.ask("stats")["silent"]
            if silent > max(0, gateway.sessions - result["all"]):
                raise SystemExit(f"error: {silent} of {gateway.sessions} sessions forwarded nothing")
            rate.add(f"{gateway.sessions:,}", result["rate"])
            cost.add(f"{gateway.sessions:,}", seconds / result["all"] * 1e6)
    return [memory, rate.sort(), cost.sort()]


MEASURES = {
    "post": post,
    "connections": connections,
    "chunked": chunked,
    "access": access,
    "https": https,
    "batches": batches,
    "poll": poll,
    "held": held,
    "streams": streams,
    "many": many,
    "sessions": sessions,
    "latency": latency,
    "echo": echo,
    "call": call,
    "workers": workers,
    "receive": receive,
    "codecs": codecs,
    "start": start,
    "spread": spread,
    "created": created,
    "growth": growth,
}
