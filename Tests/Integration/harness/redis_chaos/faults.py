"""What happens to gateways and servers, chosen by a seed."""

import asyncio
import collections
import contextlib
import time

from redis.exceptions import RedisError

from ..waiting import eventually

#: Seconds between the loss of a holder and the next connection, besides the lease or the release: a busy machine
#: schedules a dozen processes.
SLACK = 2.0


class Faults:
    """Each fault begins, lasts and is over. Two of them overlap now and then."""

    def __init__(self, replicas, chance, clock, *, lease, stepped):
        self._replicas = replicas
        self._databases = replicas.databases
        self._upstream = replicas.upstream
        self._chance = chance
        self._clock = clock
        self._lease = lease
        #: Called after each step of the clock.
        self._stepped = stepped
        self.done = collections.Counter()
        self.faults = []
        #: Seconds from the loss of a holder to the next connection.
        self.crashes = []
        self.drains = []
        #: When gateways were stopped, and continued.
        self.freezes = []
        self._is_single = True
        self._busy = set()
        gateways = [self.kill, self.kill_holder, self.drain_holder, self.drain, self.freeze_holder, self.freeze]
        gateways += [self.stall, self.cut, self.stall_holder, self.isolate]
        if self._databases.sentinels:
            databases = [self.kill_primary, self.freeze_primary, self.failover, self.failover, self.lose_replica]
        else:
            databases = [self.freeze_primary, self.save, self.restart]
        self._kinds = [*gateways, *databases, *databases]
        if clock:
            self._kinds += [self.step]

    async def run(self, seconds, progress):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(self._chance.uniform(0.2, 2.5))
            count = 1 if self._chance.random() < 0.6 else 2
            kinds = self._chance.sample(self._kinds, count)
            self._is_single = count == 1
            self.done["pairs"] += count == 2
            progress(" and ".join(kind.__name__ for kind in kinds))
            await asyncio.gather(*(self._carry_out(kind) for kind in kinds))
            if self._chance.random() < 0.5:
                await self._calm()

    async def _carry_out(self, kind):
        await asyncio.sleep(self._chance.uniform(0, 0.5))
        if await kind() is not False:
            self.done[kind.__name__] += 1

    async def _calm(self):
        """Waits for a session that works, since a fault alone has a certain effect."""
        with contextlib.suppress(AssertionError):
            await eventually(lambda: len(self._upstream.open_connections) == 1, within=10)

    # -- Choosing ---------------------------------------------------------------------------------------------------

    def _free(self):
        return [member for member in self._replicas.running if member not in self._busy]

    @contextlib.asynccontextmanager
    async def _one(self, *, holder=False):
        """A gateway that runs, which no other fault has; None if there is none, or no holder."""
        chosen = None
        free = self._free()
        if holder:
            holders = []
            for member in self._replicas.running:
                with contextlib.suppress(Exception):
                    if await asyncio.wait_for(member.held(), 2):
                        holders.append(member)
            # One that was cut off may not know yet that another one has the session.
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
        """Only where nothing else fails, and another gateway runs."""
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
            self.freezes.append((since, time.monotonic()))
        return True

    async def freeze_holder(self):
        return await self.freeze(holder=True)

    # -- Networks ---------------------------------------------------------------------------------------------------

    async def stall(self, *, holder=False):
        async with self._one(holder=holder) as member:
            if member is None:
                return False
            member.network.stall()
            # The holder for so long that another one takes the session, while this one runs and knows nothing of it.
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
        """From the other gateways, and from Redis if chance says so."""
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
        # Not `start`, which waits for a link that the Sentinels may have moved.
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
        """What a restart finds."""
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
        self._busy.discard(server)
        return True

    # -- Clocks -----------------------------------------------------------------------------------------------------

    async def step(self):
        """The time of day of all servers and gateways with this clock."""
        self._clock.shift(self._chance.choice((-86_400, -60, -1, 0, 1, 60, 86_400)))
        self._stepped()

    def heal(self):
        for member in self._replicas:
            member.network.heal()
            member.entrance.heal()
            if member.is_frozen:
                member.thaw()
        for server in self._databases.servers:
            server.thaw()
