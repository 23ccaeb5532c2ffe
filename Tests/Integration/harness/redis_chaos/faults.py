"""Faults of gateways and servers, which a seed determines."""

import asyncio
import collections
import contextlib
import time

from redis.exceptions import RedisError

from ..waiting import eventually

#: Seconds between the loss of a holder and the next connection, in addition to the tenure or the release. A busy
#: machine schedules a dozen processes.
SLACK = 2.0
#: Seconds by which a clock may be stepped.
_STEPS = (-86_400, -60, -1, 1, 60, 86_400)


class Faults:
    """Each fault begins, lasts and ends. Sometimes two overlap. Every kind comes once before any kind comes again.

    `shifted` contains the clocks of gateways and servers. Each program has its own clock.
    """

    def __init__(self, replicas, chance, shifted, *, lease, stepped):
        self._replicas = replicas
        self._databases = replicas.databases
        self._upstream = replicas.upstream
        self._chance = chance
        self._clocks = shifted
        #: The shift of all clocks that no fault has stepped, relative to the machine's clock.
        self._shift = 0
        self._lease = lease
        #: Called when a gateway's clock is stepped, with whether the clocks differ now, and their common shift. Also
        #: called when the only server was restarted, since it may have old content then.
        self._stepped = stepped
        self.done = collections.Counter()
        self.faults = []
        #: Seconds from the loss of a holder to the next connection.
        self.crashes = []
        self.drains = []
        #: For each gateway that was stopped, the time at which it stopped and the time at which it continued.
        self.freezes = []
        self._is_single = True
        #: Whether one clock differs from the others, and whether it is a gateway's clock.
        self._is_stepping = False
        self._clocks_differ = False
        #: If true, faults end at once.
        self._is_brief = False
        self._busy = set()
        gateways = [self.kill, self.kill_holder, self.drain_holder, self.drain, self.freeze_holder, self.freeze]
        gateways += [self.stall, self.cut, self.stall_holder, self.isolate]
        if self._databases.sentinels:
            databases = [self.kill_primary, self.freeze_primary, self.failover, self.failover, self.lose_replica]
        else:
            databases = [self.freeze_primary, self.save, self.restart]
        clocks = [self.step_all, self.step_gateway, self.step_server]
        self._kinds = [*gateways, *databases, *databases, *clocks]
        # The next kind is at the end of the list. In the first round, each kind comes once.
        self._deck = self._shuffled(dict.fromkeys(self._kinds))

    async def run(self, seconds, progress):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(self._chance.uniform(0.2, 2.5))
            count = 1 if self._chance.random() < 0.6 else 2
            kinds = [self._next() for _ in range(count)]
            self._is_single = count == 1
            self.done["pairs"] += count == 2
            progress(" and ".join(kind.__name__ for kind in kinds))
            await asyncio.gather(*(self._carry_out(kind) for kind in kinds))
            if self._chance.random() < 0.5:
                await self._calm()

    def _shuffled(self, kinds):
        kinds = list(kinds)
        self._chance.shuffle(kinds)
        return kinds

    def _next(self):
        self._deck = self._deck or self._shuffled(self._kinds)
        return self._deck.pop()

    async def _carry_out(self, kind):
        await asyncio.sleep(self._chance.uniform(0, 0.5))
        if await kind() is not False:
            self.done[kind.__name__] += 1
        elif not self.done[kind.__name__]:
            # A kind that is not possible now is tried again later in this round.
            self._deck.insert(0, kind)

    @property
    def never_done(self):
        return {kind.__name__ for kind in self._kinds if not self.done[kind.__name__]}

    async def begin(self, progress):
        """Begins with a take-over, a release and, with Sentinels, a failover, each while everything else works."""
        self._is_brief = True
        for kind, times in ((self.kill_holder, self.crashes), (self.drain_holder, self.drains)):
            await eventually(self._is_calm, within=60, what="the session works before the first faults")
            await self._replicas.holder()
            progress(f"first {kind.__name__}")
            await self._carry_out(kind)
            if not times:
                self.faults.append(f"the first {kind.__name__} was not measured")
        if self._databases.sentinels:
            await eventually(self._is_calm, within=60, what="the session works before the first failover")
            progress("first failover")
            before = await self._databases.present_primary()

            async def is_replaced():
                return await self._databases.present_primary() is not before

            await eventually(self.failover, within=15, what="a Sentinel begins a failover")
            await eventually(is_replaced, within=15, what="another server is the primary")
            self.done["failover"] += 1
        self._is_brief = False

    async def _calm(self):
        """Waits until the session works, since only a single fault has a predictable effect."""
        with contextlib.suppress(AssertionError):
            await eventually(lambda: len(self._upstream.open_connections) == 1, within=10)

    # -- Choosing ---------------------------------------------------------------------------------------------------

    def _free(self):
        return [member for member in self._replicas.running if member not in self._busy]

    @contextlib.asynccontextmanager
    async def _one(self, *, holder=False):
        """A running gateway without another fault, or the holder if `holder` is set; None if there is none."""
        chosen = None
        free = self._free()
        if holder:
            holders = []
            for member in self._replicas.running:
                with contextlib.suppress(Exception):
                    if await asyncio.wait_for(member.held(), 2):
                        holders.append(member)
            # A gateway that was cut off may not know yet that it is no longer the holder.
            chosen = holders[0] if len(holders) == 1 else None
        elif free:
            chosen = self._chance.choice(free)
        if chosen not in self._free():
            chosen = None
        if chosen:
            self._busy.add(chosen)
        try:
            yield chosen
        finally:
            self._busy.discard(chosen)

    async def _last(self, longest, shortest=0.2):
        if self._is_brief:
            return
        await asyncio.sleep(self._chance.uniform(shortest, longest))

    # -- Gateways ---------------------------------------------------------------------------------------------------

    async def kill(self, *, holder=False):
        async with self._one(holder=holder) as member:
            if member is None:
                return False
            was_connected = await self._is_calm()
            connections, since = len(self._upstream.connections), time.monotonic()
            await member.kill()
            if holder and was_connected:
                await self._measure(connections, since, self._lease + 0.3, self.crashes, "a crash")
            await self._last(2)
            await member.run()
        return True

    async def kill_holder(self):
        return await self.kill(holder=True)

    async def drain(self, *, holder=False):
        async with self._one(holder=holder) as member:
            if member is None:
                return False
            was_connected = await self._is_calm()
            connections, since = len(self._upstream.connections), time.monotonic()
            ending = asyncio.create_task(member.drain())
            if holder and was_connected:
                await self._measure(connections, since, 0.5, self.drains, "a release")
            await ending
            await self._last(1)
            await member.run()
        return True

    async def drain_holder(self):
        return await self.drain(holder=True)

    async def _is_calm(self):
        return len(self._upstream.open_connections) == 1 and await self._databases.are_whole()

    async def _measure(self, connections, since, limit, times, what):
        """Measures only if nothing else has failed and another gateway runs."""
        if not self._is_single or not self._free():
            return
        with contextlib.suppress(AssertionError):
            await eventually(lambda: len(self._upstream.connections) > connections, within=limit + 15)
        taken = time.monotonic() - since
        if len(self._upstream.connections) > connections:
            taken = self._upstream.connections[connections].opened - since
        times.append(taken)
        if taken > limit + SLACK:
            self.faults.append(f"{taken:.2f} s without a connection after {what}; {limit:.1f} s are allowed")

    async def freeze(self, *, holder=False):
        async with self._one(holder=holder) as member:
            if member is None:
                return False
            since = time.monotonic()
            member.freeze()
            await self._last(2 * self._lease)
            member.thaw()
            self.freezes.append((member, since, time.monotonic()))
        return True

    async def freeze_holder(self):
        return await self.freeze(holder=True)

    # -- Networks ---------------------------------------------------------------------------------------------------

    async def stall(self, *, holder=False):
        async with self._one(holder=holder) as member:
            if member is None:
                return False
            member.network.stall()
            # For a holder this takes so long that another gateway takes over the session, while the holder still runs
            # and does not know it.
            await self._last(2 * self._lease, self._lease + 1 if holder else 0.2)
            member.network.heal()
        return True

    async def stall_holder(self):
        return await self.stall(holder=True)

    async def cut(self):
        async with self._one() as member:
            if member is None:
                return False
            member.network.cut()
            await self._last(2 * self._lease)
            member.network.heal()
        return True

    async def isolate(self):
        """Separates a gateway from the other gateways, and perhaps from Redis."""
        async with self._one() as member:
            if member is None:
                return False
            member.entrance.stall()
            if self._chance.random() < 0.5:
                member.network.stall()
            await self._last(2 * self._lease)
            member.network.heal()
            member.entrance.heal()
        return True

    # -- Redis ------------------------------------------------------------------------------------------------------

    async def kill_primary(self):
        server = await self._databases.present_primary()
        if server in self._busy:
            return False
        self._busy.add(server)
        await server.kill()
        await asyncio.sleep(self._chance.uniform(1.5, 4))
        # `start` would wait for a link, but the Sentinels may have moved the primary.
        await server.launch()
        self._busy.discard(server)
        return True

    async def freeze_primary(self):
        server = await self._databases.present_primary()
        if server in self._busy:
            return False
        self._busy.add(server)
        server.freeze()
        await self._last(2 * self._lease)
        server.thaw()
        self._busy.discard(server)
        return True

    async def failover(self):
        sentinel = self._chance.choice(self._databases.sentinels)
        try:
            await sentinel.client.execute_command("SENTINEL", "FAILOVER", "main")
        except RedisError:
            return False
        await self._last(2)
        return True

    async def lose_replica(self):
        primary = await self._databases.present_primary()
        servers = [server for server in self._databases.servers if server is not primary and server not in self._busy]
        if not servers:
            return False
        server = self._chance.choice(servers)
        self._busy.add(server)
        server.freeze()
        await self._last(4)
        server.thaw()
        self._busy.discard(server)
        return True

    async def save(self):
        """Saves a file, which a restart will load."""
        with contextlib.suppress(RedisError):
            await self._databases.primary.client.save()

    async def restart(self):
        server = self._databases.primary
        if server in self._busy:
            return False
        self._busy.add(server)
        await server.kill()
        await self._last(1)
        await server.launch()
        # If the restart lost a lease and the holder was then lost as well, the push is leased again.
        self._stepped(self._clocks_differ, self._shift)
        self._busy.discard(server)
        return True

    # -- Clocks -----------------------------------------------------------------------------------------------------

    async def step_all(self):
        """Steps the clocks of all servers and gateways, without undoing it."""
        if self._is_stepping:
            return False
        self._shift = self._chance.choice([shift for shift in (0, *_STEPS) if shift != self._shift])
        for clock in self._clocks.values():
            clock.shift(self._shift)
        self._stepped(False, self._shift)
        return True

    async def step_gateway(self):
        return await self._step_one(list(self._replicas), is_gateway=True)

    async def step_server(self):
        return await self._step_one(self._databases.servers, is_gateway=False)

    async def _step_one(self, choices, *, is_gateway):
        """Steps the clock of one gateway or server, and corrects it later."""
        if self._is_stepping:
            return False
        clock = self._clocks[self._chance.choice(choices)]
        self._is_stepping, self._clocks_differ = True, is_gateway
        clock.shift(self._shift + self._chance.choice(_STEPS))
        self._stepped(self._clocks_differ, self._shift)
        await self._last(2 * self._lease)
        clock.shift(self._shift)
        self._is_stepping = self._clocks_differ = False
        self._stepped(False, self._shift)
        return True

    def heal(self):
        for member in self._replicas:
            member.network.heal()
            member.entrance.heal()
            if member.is_frozen:
                member.thaw()
        for server in self._databases.servers:
            server.thaw()
