"""The profile `discord` and a simulation of the Discord Gateway, written from its documentation."""

import contextlib
import itertools
import json

import pytest
from websockets.exceptions import ConnectionClosed

from harness.conventions import ConventionUpstream
from harness.gateway import Gateway
from harness.waiting import eventually

TOKEN = 'a "token"'


class Session:
    """A session of the bot: its events, and the connection that gets them."""

    def __init__(self, name):
        self.name = name
        self.events = []
        self.connection = None

    def add(self, name, **data):
        self.events.append({"op": 0, "t": name, "s": len(self.events) + 1, "d": data})
        return json.dumps(self.events[-1])


class Discord:
    """Simulates the Gateway: discord.com/developers/docs/events/gateway.

    One server for logins and one for resumed sessions. A client that closes its connection with 1000 or 1001 ends its
    session. A client that is gone otherwise can resume it, and gets the events after the number that it names.
    """

    def __init__(self):
        self.logins = ConventionUpstream(self._converse)
        self.resumes = ConventionUpstream(self._converse)
        self.sessions = {}
        #: What the clients did, in order: login, resume, refused, and close codes.
        self.log = []
        #: How the next attempt to resume ends: None, a close code, or the value of `d` in Invalid Session.
        self.refusal = None
        self._names = itertools.count(1)
        self.open = 0
        self.most_open = 0

    async def start(self):
        await self.logins.start()
        await self.resumes.start()
        return self

    async def stop(self):
        await self.logins.stop()
        await self.resumes.stop()

    @property
    def session(self):
        """The newest session."""
        return list(self.sessions.values())[-1]

    async def publish(self, content):
        session = self.session
        text = session.add("MESSAGE_CREATE", content=content)
        if session.connection:
            with contextlib.suppress(ConnectionClosed):
                await session.connection.say(text)

    async def say(self, **message):
        await self.session.connection.say(json.dumps({"t": None, "s": None, "d": None, **message}))

    async def _converse(self, conversation):
        assert conversation.request.path == "/?v=10&encoding=json"
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        session = None
        try:
            await conversation.say('{"op":10,"t":null,"s":null,"d":{"heartbeat_interval":300}}')
            while True:
                message = json.loads(await conversation.hear())
                match message["op"]:
                    case 1:
                        # The number of the last event that the client can have got, or an earlier one.
                        assert message["d"] is None or (session and message["d"] <= len(session.events)), message
                        await conversation.say('{"op":11}')
                    case 2:
                        session = await self._login(conversation, message["d"])
                    case 6:
                        session = await self._resume(conversation, message["d"])
                    case other:
                        raise AssertionError(f"opcode {other}")
        except ConnectionClosed as end:
            # Only if the client has closed the connection. Otherwise, it repeats our code.
            if end.rcvd_then_sent:
                self.log.append(end.rcvd.code)
                if end.rcvd.code in (1000, 1001) and session:
                    self.sessions.pop(session.name, None)
            raise
        finally:
            self.open -= 1
            if session and session.connection is conversation:
                session.connection = None

    async def _login(self, conversation, data):
        assert data["intents"] == 513
        if data["token"] != TOKEN:
            await conversation.close(4004, "Authentication failed.")
            return None
        self.log.append("login")
        session = Session(f"session-{next(self._names)}")
        self.sessions[session.name] = session
        session.connection = conversation
        await conversation.say(
            session.add("READY", session_id=session.name, resume_gateway_url=self.resumes.url.rstrip("/"))
        )
        return session

    async def _resume(self, conversation, data):
        assert data["token"] == TOKEN
        refusal, self.refusal = self.refusal, None
        session = self.sessions.get(data["session_id"])
        if session is None:
            refusal = False
        elif not isinstance(data["seq"], int) or not 1 <= data["seq"] <= len(session.events):
            refusal = 4007
        if refusal is not None:
            self.log.append("refused")
            if refusal is not True:
                self.sessions.pop(data["session_id"], None)
            if isinstance(refusal, bool):
                await conversation.say(json.dumps({"op": 9, "t": None, "s": None, "d": refusal}))
            else:
                await conversation.close(refusal, "")
            return None
        self.log.append("resume")
        assert session.connection is None, "two connections have the session"
        missed = session.events[data["seq"] :]
        session.add("RESUMED")
        await conversation.say(*map(json.dumps, missed), json.dumps(session.events[-1]))
        session.connection = conversation
        return session


class Bot:
    """A gateway with the profile and a store, and a client that has received everything in order."""

    def __init__(self, start, folder, discord):
        self._start = start
        self._folder = folder
        self.discord = discord
        self.sent = 0
        self.received = []
        self.gaps = 0
        self._cursor = "earliest"

    async def begin(self, *, ready=True, token=TOKEN):
        settings = {
            "upstream": {"captured_hosts": ["127.0.0.1"], "url": self.discord.logins.url + "?v=10&encoding=json"},
            "store": {"engine": "sqlite", "path": str(self._folder / "drawbridge.db")},
        }
        self.gateway = Gateway(
            *("--profile", "discord"),
            config=json.dumps(settings),
            env={"DISCORD_TOKEN": token, "DISCORD_INTENTS": "513"},
            folder=self._folder,
        )
        await self._start(self.gateway)
        if ready:
            await self.gateway.ready()
        self.client = self.gateway.client()

    async def publish(self, count=2):
        for _ in range(count):
            self.sent += 1
            await self.discord.publish(self.sent)

    async def receives_all(self):
        """Every event that was published has arrived, once and in order."""
        await eventually(self._has_all, what="all events have arrived")
        assert self.received == list(range(1, self.sent + 1))

    async def _has_all(self):
        batch = await self.client.poll(cursor=self._cursor, wait=0, limit=1000)
        self._cursor = batch.cursor
        self.gaps += batch.gap is not None
        self.received += [each["d"]["content"] for each in batch.payloads if each["t"] == "MESSAGE_CREATE"]
        return len(self.received) >= self.sent

    async def connected(self, *log):
        """Discord's log is this, and the session is ready."""
        await eventually(lambda: self.discord.log == [*log], what=f"{log}, but {self.discord.log}")
        await self.gateway.ready()


@pytest.fixture
async def bot(start, tmp_path):
    bot = Bot(start, tmp_path, await start(Discord()))
    await bot.begin()
    yield bot
    assert TOKEN not in bot.gateway.output
    # A resumed session has one connection only.
    assert bot.discord.most_open <= 1


async def test_a_lost_connection_is_resumed_at_the_address_of_the_session(bot):
    await bot.publish()
    await bot.receives_all()
    for connections in (1, 2):
        bot.discord.logins.reset_connections()
        bot.discord.resumes.reset_connections()
        await eventually(lambda: bot.discord.session.connection is None, what="the connection is lost")
        await bot.publish()
        await bot.connected("login", *["resume"] * connections)
        assert len(bot.discord.logins.conversations) == 1
        assert len(bot.discord.resumes.conversations) == connections
        await bot.publish()
        await bot.receives_all()
    assert bot.gaps == 0


async def test_a_session_without_an_event_is_resumed(bot):
    bot.discord.logins.reset_connections()
    await bot.connected("login", "resume")
    await bot.publish()
    await bot.receives_all()
    assert bot.gaps == 0


async def test_the_request_to_reconnect_keeps_the_session(bot):
    await bot.publish()
    await bot.discord.say(op=7)
    await bot.connected("login", 4000, "resume")
    await bot.publish()
    await bot.receives_all()
    assert bot.gaps == 0
    assert (await bot.client.session())["last_failure"].endswith(": Discord requests a new connection")


async def test_an_invalid_session_is_followed_by_a_login_and_then_by_a_new_count(bot):
    await bot.publish(5)
    await bot.receives_all()
    bot.discord.sessions.clear()
    conversation = bot.discord.logins.last
    await conversation.say('{"op":9,"t":null,"s":null,"d":false}')
    await bot.connected("login", 4000, "login")
    assert len(bot.discord.logins.conversations) == 2
    await bot.publish()
    await bot.receives_all()
    assert bot.gaps == 1
    # The number of the last event belongs to the new session.
    bot.discord.logins.reset_connections()
    await bot.connected("login", 4000, "login", "resume")
    await bot.publish()
    await bot.receives_all()
    assert bot.gaps == 1


async def test_an_invalid_session_that_can_be_resumed_is_resumed(bot):
    await bot.publish()
    await bot.discord.say(op=9, d=True)
    await bot.connected("login", 4000, "resume")
    await bot.publish()
    await bot.receives_all()
    assert bot.gaps == 0


@pytest.mark.parametrize("refusal", [False, 4007, 4009, 4003])
async def test_a_session_that_cannot_be_resumed_is_followed_by_a_login(bot, refusal):
    await bot.publish(5)
    await bot.receives_all()
    bot.discord.refusal = refusal
    bot.discord.logins.reset_connections()
    expected = ["login", "refused", "login"] if refusal else ["login", "refused", 4000, "login"]
    await bot.connected(*expected)
    assert len(bot.discord.resumes.conversations) == 1
    await bot.publish()
    await bot.receives_all()
    assert bot.gaps == 1
    bot.discord.logins.reset_connections()
    await bot.connected(*expected, "resume")
    await bot.publish()
    await bot.receives_all()
    assert bot.gaps == 1


async def test_a_restart_of_discord_is_survived(bot):
    await bot.publish()
    await bot.receives_all()
    await bot.discord.logins.stop()
    await bot.publish()
    await bot.connected("login", "resume")
    await bot.discord.resumes.stop()
    await bot.publish()
    await bot.discord.resumes.start()
    await bot.connected("login", "resume", "resume")
    await bot.publish()
    await bot.receives_all()
    assert bot.gaps == 0


async def test_a_reload_closes_the_connection_and_resumes(bot):
    await bot.publish()
    bot.gateway.signal(1)
    await bot.connected("login", 4000, "resume")
    await bot.publish()
    await bot.receives_all()
    assert bot.gaps == 0


@pytest.mark.parametrize("ending", ["stop", "kill"])
async def test_a_restart_of_the_gateway_resumes_with_a_store(bot, ending):
    await bot.publish()
    await bot.receives_all()
    await (bot.gateway.stop() if ending == "stop" else bot.gateway.kill())
    await eventually(lambda: bot.discord.session.connection is None, what="the connection is lost")
    await bot.publish()
    await bot.begin()
    await bot.connected("login", *([4000] if ending == "stop" else []), "resume")
    await bot.publish()
    await bot.receives_all()
    assert bot.gaps == 0


async def test_a_closed_session_ends(bot):
    assert (await bot.client.request("PATCH", "/v1/session", json={"desired": "down"})).status in (200, 202)
    await eventually(lambda: bot.discord.log == ["login", 1000], what="the session is closed")
    assert not bot.discord.sessions


async def test_a_wrong_token_parks_the_session(start, tmp_path):
    discord = await start(Discord())
    bot = Bot(start, tmp_path, discord)
    await bot.begin(ready=False, token="another token")

    async def parked():
        return (await bot.client.session())["state"] == "parked"

    await eventually(parked, what="the session is parked")
    assert len(discord.logins.conversations) == 2
    assert discord.log == []
    assert "another token" not in bot.gateway.output
