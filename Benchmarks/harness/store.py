"""The measures of the store: the cost of durability, compared with nchan with Redis at the same level."""

import contextlib
import re
import shutil
import urllib.request

from .measures import Bench
from .processes import Process, free_port
from .results import Figure, Target
from .subjects import Earlier, Gateway, Nchan, Together

#: The values of `store.sync`, and the equivalent values for Redis's append-only file.
LEVELS = {"interval": "everysec", "always": "always"}


class StoringGateway(Gateway):
    """The gateway with a store."""

    store_folder = "store"

    def __init__(self, cores, sync, **options):
        super().__init__(cores, **options)
        # The store has its own folder, since the next gateway empties the usual folder.
        folder = self.folder.with_name(self.store_folder)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        path = folder / "drawbridge.db"
        self.settings |= {
            "DRAWBRIDGE_STORE_ENGINE": "sqlite",
            "DRAWBRIDGE_STORE_PATH": str(path),
            "DRAWBRIDGE_STORE_SYNC": sync,
        }

    def commits(self) -> int:
        """Number of commits so far. With `always`, each commit is one synchronisation."""
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.management}/metrics").read().decode()
        return int(re.search(r"^drawbridge_store_commit_seconds_count (\d+)$", text, re.MULTILINE)[1])


class EarlierStoringGateway(StoringGateway, Earlier):
    """The program beside it, with a store in its own folder."""

    store_folder = "earlier-store"


class RedisNchan(Nchan):
    """nchan that keeps its messages in Redis. Both programs run on the server cores."""

    name = "nchan-redis"

    def __init__(self, cores, fsync):
        super().__init__(cores)
        self.fsync = fsync

    @staticmethod
    def missing():
        return Nchan.missing() or (None if shutil.which("redis-server") else "the Debian package redis-server")

    def start(self):
        port = free_port()
        arguments = [shutil.which("redis-server"), "--port", port, "--bind", "127.0.0.1", "--save", ""]
        arguments += ["--appendonly", "yes", "--appendfsync", self.fsync, "--dir", self.folder]
        redis = Process(arguments, self.cores.server, log=(self.folder / "redis-log").open("w"), cwd=self.folder)
        try:
            redis.wait_until_listening(port)
            self.redis = port
            super().start()
        except BaseException:
            redis.stop()
            raise
        self.server = Together(redis, self.server)

    def configure(self, template, **values):
        super().configure(template, **values)
        file = self.folder / "nginx.conf"
        redis = f"nchan_redis_url redis://127.0.0.1:{self.redis};\n  nchan_use_redis on;\n  "
        file.write_text(file.read_text().replace("nchan_shared_memory_size", redis + "nchan_shared_memory_size"))


def store(bench: Bench) -> list[Figure]:
    """POSTs that are stored before they are acknowledged, and pushes that are stored before they are shown."""
    if Earlier not in bench.subjects and (reason := RedisNchan.missing()):
        raise SystemExit(f"error: this needs {reason}")
    figures = []
    for sync, fsync in LEVELS.items():
        figures += _level(bench, sync, fsync)
    return figures


def _level(bench: Bench, sync: str, fsync: str) -> list[Figure]:
    titles = {
        "drawbridge": f"Drawbridge, store.sync: {sync}",
        "memory": "Drawbridge, store.engine: memory",
        "nchan-redis": f"nchan with Redis, appendfsync {fsync}",
        "earlier": f"{Earlier.title}, store.sync: {sync}",
    }
    prefix, title = f"store_{sync}", f"store.sync: {sync}"
    rate = Figure(f"{prefix}_rate", f"{title}: POST of 100 bytes, keep-alive, 64 connections", "requests/s", True)
    cost = Figure(f"{prefix}_cpu", "the same: processor time of the servers per request", "µs", False)
    p50 = Figure(f"{prefix}_p50", f"{title}: push to the response of a poll, 100 pushes/s: median", "µs", False)
    p99 = Figure(f"{prefix}_p99", "the same: 99th percentile", "µs", False)
    rate.targets = [Target("≥", 1, "nchan-redis")]
    p50.targets = [Target("≤", 1, "nchan-redis")]
    figures = [rate, cost, p50, p99]
    if sync == "interval":
        rate.targets.append(Target("≥", 0.6, "memory"))
        added = Figure(f"{prefix}_added", "the same: median that the store adds", "µs", False, [Target("≤", 150)])
        figures.append(added)
    else:
        group = Figure(f"{prefix}_group", "acknowledged POSTs per synchronisation, 64 connections", "POSTs", True)
        group.targets = [Target("≥", 32)]
        figures.append(group)
    for figure in figures:
        figure.titles |= titles
    with contextlib.ExitStack() as stack:
        stored = stack.enter_context(StoringGateway(bench.cores, sync))
        memory = stack.enter_context(Gateway(bench.cores))
        names = {stored: "drawbridge", memory: "memory"}
        if Earlier in bench.subjects:
            names[stack.enter_context(EarlierStoringGateway(bench.cores, sync))] = "earlier"
        else:
            names[stack.enter_context(RedisNchan(bench.cores, fsync))] = "nchan-redis"
        for subject in bench.turns(list(names), rate, cost, *([group] if sync == "always" else [])):
            before = stored.commits()
            result, seconds = bench.post(subject)
            rate.add(names[subject], result["rate"])
            cost.add(names[subject], seconds / result["all"] * 1e6)
            if sync == "always" and subject is stored:
                group.add("drawbridge", result["all"] / max(1, stored.commits() - before))
        holders = {subject: bench.hold(stack, subject, 1) for subject in names}
        pushes = 100
        count = int(pushes * bench.plan.latency_seconds)
        for subject in bench.turns(list(names), p50, p99):
            holders[subject].ask(f"expect {count} {int(bench.plan.latency_seconds * 2000 + 1000)}")
            subject.push(count, pushes)
            result = holders[subject].receive()
            subject.server.settle()
            if result["deliveries"] < count:
                raise SystemExit(f"error: {subject.name} delivered {result['deliveries']} of {count} pushes")
            p50.add(names[subject], result["p50"])
            p99.add(names[subject], result["p99"])
    if sync == "interval":
        with bench.run(added):
            for ours, theirs in zip(p50.values["drawbridge"], p50.values["memory"], strict=False):
                added.add("drawbridge", ours - theirs)
    return figures
