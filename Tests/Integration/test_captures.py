"""Values of the upstream's messages that later messages repeat (`upstream.capture`)."""

import asyncio
import json
import signal
from http import HTTPStatus

import pytest

from harness.conventions import ConventionUpstream, listen
from harness.ports import reserve_port
from harness.store_kills import settings
from harness.waiting import eventually


@pytest.fixture
def convention(start):
    """`await convention(converse)`: an upstream that runs the coroutine `converse` on each connection."""

    async def convention(converse, **options):
        return await start(ConventionUpstream(converse, **options))

    return convention


JANUS = """
upstream:
  capture:
    session: {match: {json: {/janus: success}}, pointer: /data/id, show: true}
    url: {pointer: /url, show: true}
    token: {pointer: /token}
  on_open:
    - {send: '{"janus":"create"}', expect: {json: {/janus: success}}, refuse: {json: {/janus: error}}}
    - {send: '{"janus":"attach","session":${capture:session},"token":"${capture:token}"}'}
  on_close: '{"janus":"destroy","session":${capture:session}}'
  heartbeat:
    client: {message: '{"janus":"keepalive","session":${capture:session}}', interval: 50ms}
"""


async def test_later_messages_repeat_a_value_of_their_connection(convention, gateway_for):
    gate = asyncio.Event()

    async def converse(conversation):
        # A number that a double cannot represent, and a token with a quotation mark.
        number = 7003611442034110 * 10 + len(upstream.conversations)
        assert await conversation.hear() == '{"janus":"create"}'
        await conversation.say(f'{{"janus":"success","data":{{"id":{number}}},"token":"t0k\\"en"}}')
        conversation.number = number
        while len(conversation.heard) < 4:
            await conversation.hear()
        if len(upstream.conversations) == 1:
            await conversation.say('{"url":"wss://user:secret@example.org/resume?token=t0k"}')
            await gate.wait()
            await conversation.close(3000, 'the token t0k"en has expired')
        await listen(conversation)

    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config=JANUS)
    _first, second, *beats = await upstream.has_heard(4)
    number = upstream.last.number
    assert json.loads(second) == {"janus": "attach", "session": number, "token": 't0k"en'}
    assert set(beats) == {f'{{"janus":"keepalive","session":{number}}}'}

    async def shown():
        return (await gateway.client().session())["captures"]

    async def has_url():
        return (await shown())["url"] is not None

    await eventually(has_url, what="the URL is captured")
    assert await shown() == {"session": number, "url": "wss://***@example.org/resume?***"}
    gate.set()
    # Each connection has its own value.
    await upstream.has_conversations(2)
    heard = await upstream.has_heard(3)
    assert json.loads(heard[1])["session"] == upstream.last.number == number + 1
    await gateway.ready()
    await gateway.stop()
    assert upstream.last.heard[-1] == f'{{"janus":"destroy","session":{number + 1}}}'
    assert "the token ***" in gateway.output
    assert "t0k" not in gateway.output
    assert "secret" not in gateway.output


async def test_a_step_without_its_value_fails_and_is_named(convention, gateway_for):
    async def converse(conversation):
        await conversation.hear()
        await conversation.say(json.dumps({"janus": "success", "token": {"a": "x" * 2_000}}))
        await listen(conversation)

    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config=JANUS, ready=False)

    async def failure():
        return (await gateway.client().session())["last_failure"]

    await eventually(failure, what="the attempt fails")
    assert await failure() == (
        "cannot create opening message 2 ('upstream.on_open[1]'): no message has had a value for "
        "'${capture:session}' ('upstream.capture.session')"
    )
    assert upstream.conversations[0].heard == ['{"janus":"create"}']
    refused = [record for record in gateway.records if record["message"] == "a value of the upstream is not captured"]
    assert refused[0]["capture"] == "token"
    assert refused[0]["reason"] == "it is not a text, number or boolean"


BEATS = """
upstream:
  capture: {beat: {match: {json: {/op: 10}}, pointer: /d/interval}}
  on_open: [{expect: {json: {/op: 10}}}, {send: identify, expect: {json: {/op: 0}}}]
  heartbeat: {client: {message: beat, interval: 10m, interval_from: beat}}
"""


async def test_the_upstream_announces_the_interval_of_heartbeats(convention, gateway_for):
    async def converse(conversation):
        # Heartbeats begin before the setup is complete. An interval of zero is not obeyed.
        await conversation.say('{"op":10,"d":{"interval":0}}')
        while conversation.heard.count("beat") < 3:
            await conversation.hear()
        assert conversation.heard[0] == "identify"
        await conversation.say('{"op":0}')
        await listen(conversation)

    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config=BEATS)
    await gateway.ready()
    heard = await upstream.has_heard(6)
    assert set(heard[1:]) == {"beat"}


KEPT = """
upstream:
  capture:
    session: {pointer: /session, keep: true}
    seq: {pointer: /seq, keep: true, show: true}
    nonce: {pointer: /nonce, show: true}
  on_open:
    - {send: hello, expect: {json_has: /nonce}}
    - {send: 'resume ${capture:session} ${capture:seq} ${capture:nonce}'}
"""


@pytest.mark.parametrize("killed", [False, True])
async def test_a_kept_value_survives_with_the_push_that_brought_it(convention, gateway_for, tmp_path, killed):
    async def converse(conversation):
        await conversation.hear()
        count = len(upstream.conversations)
        start = ',"session":"s1","seq":0' if count == 1 else ""
        await conversation.say(f'{{"nonce":{count}{start}}}')
        await conversation.hear()
        if count == 1:
            await conversation.say('{"seq":41}', '{"seq":42}', '{"other":1}')
        await listen(conversation)

    upstream = await convention(converse)
    env = settings(tmp_path / "store.db")
    gateway = await gateway_for(upstream, config=KEPT, env=env)
    assert (await upstream.has_heard(2))[1] == "resume s1 0 1"
    client = gateway.client()
    # The setup messages are not pushes. A client that has a push of a stored session has a push that is stored.
    _pushes, _ = await client.collect(3, "earliest")
    upstream.reset_connections()
    await upstream.has_conversations(2)
    assert (await upstream.has_heard(2))[1] == "resume s1 42 2"
    await gateway.ready()
    if killed:
        await gateway.kill()
    else:
        await gateway.stop()
    gateway = await gateway_for(upstream, config=KEPT, env=env)
    await upstream.has_conversations(3)
    assert (await upstream.has_heard(2))[1] == "resume s1 42 3"
    await gateway.ready()
    assert (await gateway.client().session())["captures"] == {"seq": 42, "nonce": 3}
    await gateway.stop()

    # A value is not sent to another server, which may not be trusted with it.
    async def other(conversation):
        await conversation.hear()
        await conversation.say('{"nonce":9}')
        await listen(conversation)

    stranger = await convention(other)
    gateway = await gateway_for(stranger, config=KEPT, env=env, ready=False)

    async def failure():
        return (await gateway.client().session())["last_failure"]

    await eventually(failure, what="the attempt fails")
    assert "no message has had a value for '${capture:session}'" in await failure()
    assert stranger.conversations[0].heard == ["hello"]


OF_A_CLIENT = """
upstream:
  headers: {X-Client: alice}
  capture: {seq: {pointer: /seq, keep: true, show: true}}
  on_open: [{expect: ok}]
"""


def is_of_bob(conversation):
    return conversation.request.headers["X-Client"] == "bob"


async def test_a_client_gets_no_kept_values_of_another_client_after_a_reload(convention, gateway_for):
    gate = asyncio.Event()

    async def converse(conversation):
        if is_of_bob(conversation):
            await gate.wait()
        await conversation.say("ok")
        await listen(conversation)

    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config=OF_A_CLIENT)
    client = gateway.client()
    first = upstream.last
    await first.say('{"seq":1}')
    await client.collect(1, "earliest")
    gateway.rewrite(OF_A_CLIENT.replace("alice", "bob"))
    gateway.signal(signal.SIGHUP)
    await upstream.has_conversations(2)
    # The new connection is being set up, and the old connection still sends.
    await first.say('{"seq":2}')
    await client.collect(2, "earliest")
    gate.set()

    async def has_no_value():
        return (await client.session())["captures"] == {"seq": None}

    await eventually(has_no_value, what="the new connection sends, and has no value")


async def test_a_client_gets_no_kept_values_of_another_client_after_a_restart(convention, gateway_for, tmp_path):
    async def converse(conversation):
        await conversation.say("ok")
        await listen(conversation)

    upstream = await convention(converse)
    env = settings(tmp_path / "store.db")
    for name, value in [("alice", None), ("alice", 1), ("bob", None), ("alice", None)]:
        gateway = await gateway_for(upstream, config=OF_A_CLIENT.replace("alice", name), env=env)
        client = gateway.client()
        assert (await client.session())["captures"] == {"seq": value}
        if len(upstream.conversations) == 1:
            await upstream.last.say('{"seq":1}')
            await client.collect(1, "earliest")
        await gateway.stop()


# -- Resuming ---------------------------------------------------------------------------------------------------------

RESUMING = """
upstream:
  cursor: {pointer: /seq, initial: "0"}
  reconnect: {base: 2ms, maximum: 20ms}
  on_open:
    - send: 'start ${cursor}'
      expect: [welcome, resumed]
      resumed: resumed
"""


class ResumingService:
    """Numbers its pushes. On a new connection, it either repeats the missing pushes or starts from the present."""

    def __init__(self):
        self.last = 0
        self.resumes = True
        self.breaks_during_setup = 0

    async def converse(self, conversation):
        _, after = (await conversation.hear()).split()
        if self.resumes and int(after) > 0:
            for number in range(int(after) + 1, self.last + 1):
                await conversation.say(json.dumps({"seq": number}))
            if self.breaks_during_setup:
                self.breaks_during_setup -= 1
                conversation.connection.transport.abort()
                return
            await conversation.say("resumed")
        else:
            await conversation.say("welcome")
        await listen(conversation)

    async def push(self, conversation=None):
        self.last += 1
        if conversation:
            await conversation.say(json.dumps({"seq": self.last}))


async def gaps_and_numbers(client, last):
    """Polls until the push `last` has arrived."""
    cursor, numbers, gaps = "earliest", [], []
    while last not in numbers:
        batch = await client.poll(cursor=cursor, wait=10)
        gaps += [batch.gap["reason"]] if batch.gap else []
        numbers += [payload["seq"] for payload in batch.payloads]
        cursor = batch.cursor
    return gaps, numbers


async def test_a_service_that_resumes_causes_no_gap(convention, gateway_for):
    service = ResumingService()
    upstream = await convention(service.converse)
    gateway = await gateway_for(upstream, config=RESUMING)
    client = gateway.client()
    await service.push(upstream.last)
    assert await gaps_and_numbers(client, 1) == ([], [1])
    # A push that was missed.
    await service.push()
    upstream.reset_connections()
    await upstream.has_conversations(2)
    await gateway.ready()
    await service.push(upstream.last)
    assert await gaps_and_numbers(client, 3) == ([], [1, 2, 3])
    # The service has forgotten the session.
    service.resumes = False
    await service.push()
    upstream.reset_connections()
    await upstream.has_conversations(3)
    await gateway.ready()
    await service.push(upstream.last)
    assert await gaps_and_numbers(client, 5) == (["upstream"], [1, 2, 3, 5])


@pytest.mark.parametrize("resumes", [True, False])
async def test_a_service_that_resumes_after_a_restart_causes_no_gap(convention, gateway_for, tmp_path, resumes):
    service = ResumingService()
    upstream = await convention(service.converse)
    env = settings(tmp_path / "store.db")
    gateway = await gateway_for(upstream, config=RESUMING, env=env)
    await service.push(upstream.last)
    assert await gaps_and_numbers(gateway.client(), 1) == ([], [1])
    await gateway.stop()
    await service.push()
    service.resumes = resumes
    gateway = await gateway_for(upstream, config=RESUMING, env=env)
    await service.push(upstream.last)
    expected = ([], [1, 2, 3]) if resumes else (["upstream"], [1, 3])
    assert await gaps_and_numbers(gateway.client(), 3) == expected
    await gateway.stop()
    # Without the setting, pushes may be missing after every restart.
    gateway = await gateway_for(upstream, config="upstream: {}\n", env=env, ready=False)
    await gateway.ready()
    await upstream.last.say('{"seq":9}')
    assert (await gaps_and_numbers(gateway.client(), 9))[0][-1:] == ["upstream"]


RESUMING_CLIENT = "log: {level: debug}\n" + RESUMING.replace("upstream:", "upstream:\n  headers: {X-Client: alice}")


async def test_another_client_does_not_resume_after_a_reload_without_a_connection(convention, gateway_for):
    service, refuses = ResumingService(), False

    def judge(connection, _request):
        return connection.respond(HTTPStatus.INTERNAL_SERVER_ERROR, "") if refuses else None

    upstream = await convention(service.converse, process_request=judge)
    gateway = await gateway_for(upstream, config=RESUMING_CLIENT)
    await service.push(upstream.last)
    assert await gaps_and_numbers(gateway.client(), 1) == ([], [1])
    refuses = True
    upstream.reset_connections()

    async def is_disconnected():
        return (await gateway.client().session())["state"] != "ready"

    await eventually(is_disconnected, what="the connection is lost")
    gateway.rewrite(RESUMING_CLIENT.replace("alice", "bob"))
    gateway.signal(signal.SIGHUP)
    await gateway.logs(lambda record: "reload" in record["message"], what="a reload")
    refuses = False
    await upstream.has_conversations(2)
    assert is_of_bob(upstream.last)
    await gateway.ready()
    await service.push(upstream.last)
    assert await gaps_and_numbers(gateway.client(), 2) == (["upstream"], [1, 2])


async def test_another_client_does_not_resume_after_a_restart(convention, gateway_for, tmp_path):
    service = ResumingService()
    upstream = await convention(service.converse)
    env = settings(tmp_path / "store.db")
    gateway = await gateway_for(upstream, config=RESUMING_CLIENT, env=env)
    await service.push(upstream.last)
    assert await gaps_and_numbers(gateway.client(), 1) == ([], [1])
    await gateway.stop()
    gateway = await gateway_for(upstream, config=RESUMING_CLIENT.replace("alice", "bob"), env=env)
    await service.push(upstream.last)
    assert await gaps_and_numbers(gateway.client(), 2) == (["upstream"], [1, 2])


@pytest.mark.parametrize("end", ["the attempt fails", "the gateway is killed"])
async def test_an_attempt_that_brings_pushes_before_it_resumes_may_cause_a_gap(convention, gateway_for, tmp_path, end):
    async def converse(conversation):
        count = len(upstream.conversations)
        heard = await conversation.hear()
        if count == 2:
            # A push of the present. The service has not said yet whether it has sent the pushes before.
            await conversation.say('{"seq":9}')
            await gate.wait()
            conversation.connection.transport.abort()
            return
        # The third connection resumes behind the missing pushes.
        assert heard == ("start 0" if count == 1 else "start 9")
        await conversation.say("welcome" if count == 1 else "resumed", json.dumps({"seq": 1 if count == 1 else 10}))
        await listen(conversation)

    gate = asyncio.Event()
    upstream = await convention(converse)
    env = settings(tmp_path / "store.db", sync="always")
    gateway = await gateway_for(upstream, config=RESUMING, env=env)
    assert await gaps_and_numbers(gateway.client(), 1) == ([], [1])
    upstream.reset_connections()
    assert await gaps_and_numbers(gateway.client(), 9) == ([], [1, 9])
    if end == "the gateway is killed":
        await gateway.kill()
        gateway = await gateway_for(upstream, config=RESUMING, env=env)
    gate.set()
    gaps, numbers = await gaps_and_numbers(gateway.client(), 10)
    assert numbers == [1, 9, 10]
    assert gaps == ["upstream"]


# -- Acknowledgements -------------------------------------------------------------------------------------------------

ACKNOWLEDGING = """
upstream:
  acknowledge: {match: {json_has: /id}, send: '{"ack":${raw:/id}}', when: stored}
  reconnect: {base: 2ms, maximum: 20ms}
"""


class AcknowledgedService:
    """Sends each message until it is acknowledged, with at most `window` messages on the way."""

    def __init__(self, count, window=50):
        self.waiting = list(range(count))
        self.acknowledged = set()
        self.window = window

    async def converse(self, conversation):
        sent = set()
        while True:
            for number in self.waiting[: self.window]:
                if number not in sent:
                    sent.add(number)
                    await conversation.say(json.dumps({"id": number}))
            number = json.loads(await conversation.hear())["ack"]
            self.acknowledged.add(number)
            if number in self.waiting:
                self.waiting.remove(number)


async def test_no_acknowledged_push_is_lost_by_kills(convention, gateway_for, tmp_path):
    service = AcknowledgedService(3_000)
    upstream = await convention(service.converse)
    env = settings(tmp_path / "store.db")
    for killed in range(1, 6):
        gateway = await gateway_for(upstream, config=ACKNOWLEDGING, env=env, ready=False)
        goal = 400 * killed
        await eventually(lambda goal=goal: len(service.acknowledged) >= goal, what=f"{goal} acknowledgements")
        await gateway.kill()
    gateway = await gateway_for(upstream, config=ACKNOWLEDGING, env=env)
    await eventually(lambda: not service.waiting, within=60, what="all messages are acknowledged")
    numbers, cursor = [], "earliest"
    while not numbers or set(numbers) != set(range(3_000)):
        batch = await gateway.client().poll(cursor=cursor, wait=10)
        numbers += [payload["id"] for payload in batch.payloads]
        cursor = batch.cursor
    assert len(service.acknowledged) == 3_000
    # A window may be repeated after each kill.
    assert len(numbers) <= 3_000 + 5 * service.window


async def test_acknowledgements_follow_their_pushes_in_order(convention, gateway_for):
    async def converse(conversation):
        for number in range(5_000):
            await conversation.say(json.dumps({"id": number} if number % 2 else {"other": number}))
        await listen(conversation)

    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config=ACKNOWLEDGING.replace("stored", "received"))
    heard = await upstream.has_heard(2_500)
    assert [json.loads(message)["ack"] for message in heard] == list(range(1, 5_000, 2))
    batch = await gateway.client().poll(cursor="earliest", wait=10)
    assert batch.messages, "acknowledged pushes are delivered"


@pytest.mark.parametrize("moment", ["stored", "received"])
async def test_large_acknowledgements_are_not_sent(convention, gateway_for, tmp_path, moment):
    async def converse(conversation):
        for number in range(10):
            await conversation.say(json.dumps({"id": "x" * 5_000}), json.dumps({"id": number}))
        await listen(conversation)

    upstream = await convention(converse)
    config = ACKNOWLEDGING.replace("stored", moment)
    gateway = await gateway_for(upstream, config=config, env=settings(tmp_path / "store.db"))
    heard = await upstream.has_heard(10)
    assert [json.loads(message)["ack"] for message in heard] == list(range(10))
    _pushes, _ = await gateway.client().collect(20, "earliest")
    refused = [record for record in gateway.records if record["message"].startswith("a push is not acknowledged")]
    assert [record["reason"] for record in refused] == ["it has 5010 bytes; the maximum is 4096"]


async def test_binary_messages_may_be_text_with_topics(convention, gateway_for):
    async def converse(conversation):
        await conversation.say(b"MSG a.b 1 5\r\nhello", b"MSG c 1", b'{"channel":"d"}', b"\xff", "MSG e 1")
        await listen(conversation)

    upstream = await convention(converse)
    config = 'upstream: {binary: text, topic: {pointer: [/channel, {prefix: "MSG ", until: " "}]}}\n'
    gateway = await gateway_for(upstream, config=config)
    client = gateway.client()
    await client.collect(5, "earliest")
    batch = await client.poll(cursor="earliest", wait=0)
    assert [message["topic"] for message in batch.messages] == ["a.b", "c", "d", None, "e"]
    assert [message["type"] for message in batch.messages] == ["text", "text", "json", "binary", "text"]


# -- Captured URLs ----------------------------------------------------------------------------------------------------

CAPTURED_URL = """
upstream:
  headers: {X-Key: k3y-of-ours}
  reconnect: {base: 2ms, maximum: 20ms}
  url_from: next
  captured_hosts: [HOSTS]
  capture: {next: {pointer: /next, keep: true}}
  on_open: [{send: secret of ours}]
"""


async def dropped_urls(gateway):
    """The log lines about captured URLs that are not used, when there is one."""

    def lines():
        return [record for record in gateway.records if "is not used" in record["message"]]

    return await eventually(lines, what="a captured URL is dropped")


async def test_the_next_connection_goes_to_a_captured_url(convention, gateway_for, tmp_path):
    async def converse(conversation):
        await conversation.hear()
        if len(home.conversations) == 1:
            await conversation.say(json.dumps({"next": f"{other.url[:5]}user:pw@{other.url[5:]}resume?token=t0k"}))
        await listen(conversation)

    other = await convention(listen)
    home = await convention(converse)
    env = settings(tmp_path / "store.db")
    gateway = await gateway_for(home, config=CAPTURED_URL.replace("HOSTS", "127.0.0.1"), env=env)
    await gateway.client().collect(1, "earliest")
    home.reset_connections()
    assert await other.has_heard(1) == ["secret of ours"]
    request = other.last.request
    assert request.path == "/resume?token=t0k"
    assert request.headers["X-Key"] == "k3y-of-ours"
    assert "Authorization" not in request.headers
    await gateway.ready()
    # The path may be a secret of the upstream, too.
    assert (await gateway.client().session())["upstream"] == f"{other.url}***"
    # The store has the URL.
    await gateway.kill()
    gateway = await gateway_for(home, config=CAPTURED_URL.replace("HOSTS", "127.0.0.1"), env=env)
    await other.has_conversations(2)
    await gateway.ready()
    # After two failed attempts it is dropped.
    await other.stop()
    await home.has_conversations(2)
    await gateway.ready()
    dropped = await dropped_urls(gateway)
    assert [(record["captured"], record["reason"]) for record in dropped] == [
        (f"{other.url}***", "2 attempts have failed or brought no push")
    ]
    assert "t0k" not in gateway.output
    assert "resume" not in gateway.output


@pytest.mark.parametrize("end", ["redirects", "refuses", "closes"])
async def test_a_captured_url_that_does_not_work_does_not_block_the_configured_url(convention, gateway_for, end):
    async def converse(conversation):
        await conversation.hear()
        if len(home.conversations) == 1:
            await conversation.say(json.dumps({"next": f"{other.url}resume"}))
        await listen(conversation)

    def judge(connection, _request):
        if end == "closes":
            return None
        if end == "refuses":
            return connection.respond(HTTPStatus.UNAUTHORIZED, "")
        response = connection.respond(HTTPStatus.TEMPORARY_REDIRECT, "")
        response.headers["Location"] = f"http://127.0.0.1:{reserve_port()}/"
        return response

    async def close(_conversation):
        pass

    other = await convention(close, process_request=judge)
    home = await convention(converse)
    gateway = await gateway_for(home, config=CAPTURED_URL.replace("HOSTS", "127.0.0.1"))
    await gateway.client().collect(1, "earliest")
    home.reset_connections()
    await home.has_conversations(2)
    await gateway.ready()


@pytest.mark.parametrize(
    ("url", "hosts", "reason"),
    [
        ("ws://127.0.0.1:PORT/", "a.example", "its host is not in 'upstream.captured_hosts'"),
        ("ws://localhost:PORT/", "localhost", "2 attempts have failed"),
        ("ws://a.example@127.0.0.1:PORT/", "a.example", "its host is not in 'upstream.captured_hosts'"),
        ("ws://LOCALHOST.:PORT/", "'*.localhost'", "its host is not in 'upstream.captured_hosts'"),
        ("ws://LOCALHOST.:PORT/", "localhost", "2 attempts have failed"),
        ("ws://[::1]:PORT/", "'*.example.gg'", "its host is not in 'upstream.captured_hosts'"),
        ("ws://[::ffff:127.0.0.1]:PORT/", "'10.0.0.1'", "its host is not in 'upstream.captured_hosts'"),
        ("ws://evil-example.gg:PORT/", "example.gg", "its host is not in 'upstream.captured_hosts'"),
        ("ws://x@localhost:PORT/${credential}", "127.0.0.2", "its host is not in 'upstream.captured_hosts'"),
        ("http://127.0.0.1:PORT/", "127.0.0.1", "'http' is not a WebSocket scheme"),
        ("a secret text", "127.0.0.1", "no scheme"),
    ],
)
async def test_nothing_goes_to_a_captured_url_that_is_not_allowed(convention, gateway_for, url, hosts, reason):
    async def converse(conversation):
        await conversation.hear()
        if len(home.conversations) == 1:
            await conversation.say(json.dumps({"next": url.replace("PORT", str(other.port))}))
        await listen(conversation)

    other = await convention(listen)
    home = await convention(converse)
    gateway = await gateway_for(home, config=CAPTURED_URL.replace("HOSTS", hosts))
    await gateway.client().collect(1, "earliest")
    home.reset_connections()
    await home.has_conversations(2)
    await gateway.ready()
    dropped = await dropped_urls(gateway)
    assert len(dropped) == 1
    assert dropped[0]["reason"].startswith(reason)
    assert dropped[0]["url"] == home.url
    assert not other.conversations
    assert "secret text" not in gateway.output


async def test_a_redirection_from_a_captured_url_leads_only_to_hosts_that_are_allowed(convention, gateway_for):
    async def converse(conversation):
        await conversation.hear()
        if len(home.conversations) == 1:
            await conversation.say(json.dumps({"next": f"{other.url}resume"}))
        await listen(conversation)

    def judge(connection, _request):
        response = connection.respond(HTTPStatus.TEMPORARY_REDIRECT, "")
        response.headers["Location"] = f"http://localhost:{private.port}/metadata?t0k"
        return response

    private = await convention(listen)
    other = await convention(listen, process_request=judge)
    home = await convention(converse)
    gateway = await gateway_for(home, config=CAPTURED_URL.replace("HOSTS", "127.0.0.1"))
    await gateway.client().collect(1, "earliest")
    home.reset_connections()
    await home.has_conversations(2)
    await gateway.ready()
    assert not private.conversations
    dropped = await dropped_urls(gateway)
    assert [record["reason"] for record in dropped] == [
        f"it redirects to ws://localhost:{private.port}/***: its host is not in 'upstream.captured_hosts'"
    ]
    assert "t0k" not in gateway.output
    assert "metadata" not in gateway.output, "the captured URL may be a secret, and the target may repeat it"


async def test_a_captured_url_without_a_query_gets_the_configured_query(convention, gateway_for):
    async def converse(conversation):
        await conversation.hear()
        if len(home.conversations) == 1:
            await conversation.say(json.dumps({"next": f"{home.url}resume"}))
        await listen(conversation)

    home = await convention(converse)
    config = CAPTURED_URL.replace("HOSTS", "a.example")
    gateway = await gateway_for(None, "--upstream", f"{home.url}?v=10&encoding=json", config=config)
    await gateway.client().collect(1, "earliest")
    home.reset_connections()
    await home.has_conversations(2)
    assert home.last.request.path == "/resume?v=10&encoding=json"
    await gateway.ready()


# -- Secrets ----------------------------------------------------------------------------------------------------------

ENCODED = """
upstream:
  credential: {file: FOLDER/key, header: "Authorization: Basic ${base64:robot:${credential}}"}
  on_open:
    - send: '{"key":"${base64:${file:FOLDER/key}}","sign":"${hmac_sha256_hex:${file:FOLDER/key}:${now}}"}'
      expect: ok
"""


async def test_encoded_secrets_are_hidden(convention, gateway_for, tmp_path):
    async def converse(conversation):
        login = json.loads(await conversation.hear())
        basic = conversation.request.headers["Authorization"]
        sent.extend([login["key"], login["sign"], basic.split()[1]])
        await conversation.close(4000, f"not {login['key']}")

    sent = []
    (tmp_path / "key").write_text("a key of ours")
    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config=ENCODED.replace("FOLDER", str(tmp_path)), ready=False)

    async def failure():
        return (await gateway.client().session())["last_failure"]

    await eventually(failure, what="the attempt fails")
    assert "not ***" in await failure()
    await upstream.has_conversations(2)
    await gateway.stop()
    assert len(sent) >= 6
    assert all(text not in gateway.output for text in sent)


# -- Subscriptions ----------------------------------------------------------------------------------------------------

SUBSCRIBING = """
upstream:
  capture: {session: {match: {json: {/type: welcome}}, pointer: /session}}
  on_open: [{expect: {json: {/type: welcome}}}]
  subscriptions:
    add: {match: {json: {/type: subscribe}}, key: /topic}
    replace: {/session: session}
"""


async def test_subscriptions_have_the_values_of_their_connection(convention, gateway_for):
    async def converse(conversation):
        count = len(upstream.conversations)
        session = {} if count == 2 else {"session": f's"{count}'}
        await conversation.say(json.dumps({"type": "welcome", **session}))
        await listen(conversation)

    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config=SUBSCRIBING)
    await gateway.client().accepted('{"type":"subscribe","session":"s\\"1","topic":"a"}')
    await gateway.client().accepted('{"type":"subscribe","topic":"b"}')
    await upstream.has_heard(2)
    # The second connection has no value.
    upstream.reset_connections()
    await upstream.has_conversations(2)
    assert await upstream.has_heard(1) == ['{"type":"subscribe","topic":"b"}']
    await gateway.logs(lambda record: "is not sent again" in record["message"], what="a warning")
    upstream.reset_connections()
    await upstream.has_conversations(3)
    assert await upstream.has_heard(2) == [
        '{"type":"subscribe","session":"s\\"3","topic":"a"}',
        '{"type":"subscribe","topic":"b"}',
    ]
