"""Services of other projects behind the gateway, each on one journey (harness/services.py)."""

import asyncio
import base64
import contextlib
import hashlib
import importlib.metadata
import json
import os
import re
import sys
from pathlib import Path

import aiohttp
import ocpp.messages
import ocpp.routing
import ocpp.v16
import ocpp.v16.call_result
import pytest
import websockets
import yaml

from harness.conventions import ConventionUpstream
from harness.gateway import PROJECT
from harness.ports import reserve_port
from harness.program import Program, find
from harness.services import Journey, Service
from harness.waiting import eventually

PEERS = PROJECT / "Tests/Integration/peers"
SOCKETIO = PROJECT / "Tests/Integration/socketio"


async def output(*command):
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    return (await process.communicate())[0].decode()


async def version_of(program, *arguments):
    """The first version number in the output of a program."""
    text = await output(find(program), *(arguments or ("--version",)))
    return re.search(r"\d+\.\d+(\.\d+)?", text)[0]


class Aria2(Service):
    title = "aria2"
    profile = "json-rpc"
    program = "aria2c"
    topic = "aria2.onDownloadStart"
    call = '{"jsonrpc": "2.0", "id": "x", "method": "aria2.getVersion"}'

    def arguments(self):
        return ("--enable-rpc", f"--rpc-listen-port={self.port}", "--no-conf", f"--dir={self._folder}")

    @property
    def configuration(self):
        # aria2 responds to a ping with an error, too.
        return {"upstream": {"heartbeat": {"ping": False}}}

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/jsonrpc"

    async def version(self):
        return await version_of("aria2c")

    def replied(self, response):
        return response["id"] == "x" and "version" in response["result"]

    async def push(self, number):
        # The download begins, which aria2 reports to all clients, and fails.
        options = {"gid": f"{number:016x}"}
        call = {"jsonrpc": "2.0", "id": 1, "method": "aria2.addUri", "params": [["http://127.0.0.1:1/"], options]}
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"http://127.0.0.1:{self.port}/jsonrpc", json=call) as response,
        ):
            assert response.status == 200, await response.text()

    def number(self, payload):
        return int(payload["params"][0]["gid"], 16) if payload.get("method") == self.topic else None


class Strawberry(Service):
    title = "Strawberry (GraphQL)"
    profile = "graphql-transport-ws"
    program = sys.executable
    topic = "n"
    call = '{"id": "x", "type": "subscribe", "payload": {"query": "{ double(number: 4) }"}}'
    subscribe = (json.dumps({"id": "n", "type": "subscribe", "payload": {"query": "subscription { numbers }"}}),)

    def arguments(self):
        return PEERS / "graphql_numbers.py", self.port

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/graphql"

    async def version(self):
        return importlib.metadata.version("strawberry-graphql")

    def replied(self, response):
        return response["payload"]["data"] == {"double": 8}

    async def push(self, number):
        await eventually(lambda: self._pushes(number), what="a client has subscribed")

    async def _pushes(self, number):
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"http://127.0.0.1:{self.port}/push/{number}") as response,
        ):
            return response.status == 204

    def number(self, payload):
        return payload["payload"]["data"]["numbers"] if payload["type"] == "next" and payload["id"] == "n" else None


class Chromium(Service):
    """The first page of a browser without a window. Its URL changes at each restart."""

    title = "Chromium (DevTools)"
    profile = "cdp"
    program = "chromium"
    listens_within = 60.0
    url = None
    topic = "Page.navigatedWithinDocument"
    call = '{"id": 7, "method": "Runtime.evaluate", "params": {"expression": "6 * 7"}}'
    subscribing_call = '{"id": 1, "method": "Page.enable"}'

    def arguments(self):
        return (
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio"),
            *(f"--remote-debugging-port={self.port}", f"--user-data-dir={self._folder / 'chromium'}", "about:blank"),
        )

    async def start(self):
        await super().start()
        await eventually(self._page, what="the browser has a page")

    async def _page(self):
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{self.port}/json/list") as response:
            pages = await response.json(content_type=None)
        return pages[0]["webSocketDebuggerUrl"] if pages and pages[0]["type"] == "page" else None

    @property
    def configuration(self):
        return {"upstream": {"url": {"command": ["curl", "-sSf", f"http://127.0.0.1:{self.port}/json/list"]}}}

    async def version(self):
        return await version_of("chromium")

    def replied(self, response):
        return response["id"] == 7 and response["result"]["result"]["value"] == 42

    async def push(self, number):
        call = {"id": 1, "method": "Runtime.evaluate", "params": {"expression": f"location.hash = {number}"}}
        async with aiohttp.ClientSession() as http, http.ws_connect(await self._page()) as client:
            await client.send_json(call)
            assert (await client.receive_json())["result"]["result"]["value"] == number

    def number(self, payload):
        return int(payload["params"]["url"].rpartition("#")[2]) if payload.get("method") == self.topic else None


class Prosody(Service):
    title = "Prosody (XMPP)"
    profile = "xmpp"
    program = "prosody"
    topic = "message"

    CONFIGURATION = """
        run_as_root = true
        pidfile = "{folder}/prosody.pid"
        data_path = "{folder}/data"
        log = {{ info = "*console" }}
        modules_enabled = {{ "saslauth", "roster", "disco", "ping", "websocket", "presence", "message", "iq" }}
        modules_disabled = {{ "s2s", "offline" }}
        c2s_ports, s2s_ports, legacy_ssl_ports, https_ports = {{}}, {{}}, {{}}, {{}}
        http_ports, http_interfaces = {{ {port} }}, {{ "127.0.0.1" }}
        http_default_host = "localhost"
        consider_websocket_secure = true
        authentication = "internal_plain"
        allow_unencrypted_plain_auth = true
        VirtualHost "localhost"
    """

    @property
    def _configuration(self):
        return self._folder / "prosody.cfg.lua"

    def arguments(self):
        return "--config", self._configuration, "-F"

    async def start(self):
        (self._folder / "data").mkdir(exist_ok=True)
        self._configuration.write_text(self.CONFIGURATION.format(folder=self._folder, port=self.port))
        for user in ("robot", "friend"):
            accounts = self._folder / "data/localhost/accounts"
            accounts.mkdir(parents=True, exist_ok=True)
            (accounts / f"{user}.dat").write_text(f'return {{ password = "secret of {user}" }};')
        await super().start()

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/xmpp-websocket"

    @property
    def configuration(self):
        return {"upstream": {"credential": {"env": "PASSWORD"}}}

    @property
    def environment_of_gateway(self):
        return {"XMPP_DOMAIN": "localhost", "XMPP_USER": "robot", "PASSWORD": "secret of robot"}

    async def version(self):
        return await version_of("prosodyctl", "about")

    async def push(self, number):
        login = base64.b64encode(b"\0friend\0secret of friend").decode()
        opening = '<open xmlns="urn:ietf:params:xml:ns:xmpp-framing" to="localhost" version="1.0"/>'
        auth = f'<auth xmlns="urn:ietf:params:xml:ns:xmpp-sasl" mechanism="PLAIN">{login}</auth>'
        bind = '<iq xmlns="jabber:client" type="set" id="b"><bind xmlns="urn:ietf:params:xml:ns:xmpp-bind"/></iq>'
        message = '<message xmlns="jabber:client" to="robot@localhost" type="chat"><body>{}</body></message>'
        async with aiohttp.ClientSession() as http, http.ws_connect(self.url, protocols=["xmpp"]) as friend:
            for stanza, count in ((opening, 2), (auth, 1), (opening, 2), (bind, 1)):
                await friend.send_str(stanza)
                for _ in range(count):
                    await friend.receive_str()
            await friend.send_str(message.format(number))
            await friend.send_str('<close xmlns="urn:ietf:params:xml:ns:xmpp-framing"/>')
            await friend.receive()

    def number(self, payload):
        body = re.search("<body>([0-9]+)</body>", payload)
        return int(body[1]) if body else None


class CentralSystem(Service):
    """The central system for charge points of the package `ocpp`, in this process."""

    title = "ocpp (central system)"
    profile = "ocpp"
    topic = "DataTransfer"
    call = '[2, "x", "Authorize", {"idTag": "045A"}]'

    class Point(ocpp.v16.ChargePoint):
        @ocpp.routing.on("BootNotification")
        def booted(self, **_):
            return ocpp.v16.call_result.BootNotification("2026-01-01T00:00:00Z", 300, "Accepted")

        @ocpp.routing.on("Heartbeat")
        def beat(self):
            return ocpp.v16.call_result.Heartbeat("2026-01-01T00:00:00Z")

        @ocpp.routing.on("Authorize")
        def authorize(self, id_tag):
            return ocpp.v16.call_result.Authorize({"status": "Accepted" if id_tag == "045A" else "Invalid"})

    async def start(self):
        self._server = await websockets.serve(self._converse, *self.address, subprotocols=["ocpp1.6"])

    async def _converse(self, connection):
        self._point = self.Point(connection.request.path, connection)
        with contextlib.suppress(websockets.ConnectionClosed):
            await self._point.start()

    async def stop(self):
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/CP001"

    async def version(self):
        return importlib.metadata.version("ocpp")

    def replied(self, response):
        return response == [3, "x", {"idTagInfo": {"status": "Accepted"}}]

    async def push(self, number):
        request = ocpp.messages.Call(f"n{number}", "DataTransfer", {"vendorId": "test", "data": str(number)})
        await self._point._send(request.to_json())

    def number(self, payload):
        return int(payload[3]["data"]) if payload[0] == 2 else None


class RabbitMQ(Service):
    title = "RabbitMQ (STOMP)"
    profile = "stomp"
    program = "/usr/lib/rabbitmq/bin/rabbitmq-server"
    listens_within = 150.0
    topic = destination = "/topic/numbers"

    def __init__(self, folder):
        super().__init__(folder)
        self._names = NameServer(folder)
        self._others = [reserve_port(), reserve_port()]

    async def start(self):
        await self._names.start()
        (self._folder / "plugins").write_text("[rabbitmq_web_stomp].")
        (self._folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self._others[0]}\nweb_stomp.tcp.ip = 127.0.0.1\n"
            f"web_stomp.tcp.port = {self.port}\nstomp.listeners.tcp = none\n"
        )
        await super().start()

    async def stop(self):
        await super().stop()
        await self._names.stop()

    def arguments(self):
        return ()

    def environment(self):
        return {
            "HOME": str(self._folder),
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._others[1]),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "mnesia"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            **self._names.environment(),
        }

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/ws"

    @property
    def configuration(self):
        return {"upstream": {"credential": {"env": "PASSCODE"}}}

    @property
    def environment_of_gateway(self):
        return {"STOMP_LOGIN": "guest", "PASSCODE": "guest", "STOMP_DESTINATION": self.destination}

    async def version(self):
        return re.search(r"RabbitMQ ([0-9.]+)", self._log.read_text())[1]

    async def push(self, number):
        async with aiohttp.ClientSession() as http, http.ws_connect(self.url, protocols=["v12.stomp"]) as producer:
            await producer.send_str("CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0")
            assert (await producer.receive_str()).startswith("CONNECTED\n")
            await producer.send_str(f"SEND\ndestination:{self.destination}\nreceipt:r\n\nnumber {number}\0")
            assert (await producer.receive_str()).startswith("RECEIPT\n")

    def number(self, payload):
        found = re.search(r"\n\nnumber ([0-9]+)\0", payload)
        return int(found[1]) if found else None


class NameServer(Program):
    """Erlang's name server, without which a node of RabbitMQ does not start."""

    program = "epmd"

    def arguments(self):
        return "-port", self.port, "-address", "127.0.0.1"

    def environment(self):
        return {"ERL_EPMD_PORT": str(self.port), "ERL_EPMD_ADDRESS": "127.0.0.1"}


class Crossbar(Service):
    title = "Crossbar.io (WAMP)"
    profile = "wamp"
    program = "crossbar"
    listens_within = 150.0
    topic = "test.number"
    call = '[48, 7, {}, "wamp.session.count"]'
    subscribe = ('[32,1,{"match":"prefix"},"test."]',)

    def arguments(self):
        everything = {
            "uri": "",
            "match": "prefix",
            "allow": dict.fromkeys(("call", "register", "publish", "subscribe"), True),
        }
        realm = {"name": "realm1", "roles": [{"name": "anonymous", "permissions": [everything]}]}
        paths = {
            "ws": {"type": "websocket"},
            "publish": {"type": "publisher", "realm": "realm1", "role": "anonymous"},
        }
        endpoint = {"type": "tcp", "interface": "127.0.0.1", "port": self.port}
        worker = {
            "type": "router",
            "realms": [realm],
            "transports": [{"type": "web", "endpoint": endpoint, "paths": paths}],
        }
        folder = self._folder / "crossbar"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({"version": 2, "workers": [worker]}))
        return "start", "--cbdir", folder

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/ws"

    @property
    def environment_of_gateway(self):
        return {"WAMP_REALM": "realm1"}

    async def version(self):
        return re.search(r"Crossbar.io +: +([0-9.]+)", await output(find("crossbar"), "version"))[1]

    def replied(self, response):
        return response[:2] == [50, 7] and response[3][0] >= 1

    async def push(self, number):
        event = {"topic": self.topic, "args": [number]}
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"http://127.0.0.1:{self.port}/publish", json=event) as response,
        ):
            assert response.status == 200, await response.text()

    def number(self, payload):
        return payload[4][0] if payload[0] == 36 else None


class NostrRelay(Service):
    title = "nostr-relay"
    profile = "nostr"
    program = "nostr-relay"
    repeats = True
    topic = "numbers"
    subscribe = ('["REQ","numbers",{"kinds":[1],"limit":0}]',)

    def arguments(self):
        path = self._folder / "relay.yaml"
        path.write_text(
            f"""
            storage: {{sqlalchemy.url: "sqlite+aiosqlite:///{self._folder}/nostr.sqlite3"}}
            gunicorn: {{bind: "127.0.0.1:{self.port}", workers: 1, loglevel: info, reload: false}}
            """
        )
        return "-c", path, "serve"

    async def version(self):
        return re.search(
            r"Version: ([0-9.]+)", await output(Path(find("nostr-relay")).parent / "pip", "show", "nostr-relay")
        )[1]

    async def push(self, number):
        await output(Path(find("nostr-relay")).parent / "python", PEERS / "nostr_publish.py", self.url, number)

    def number(self, payload):
        return int(payload[2]["content"]) if payload[0] == "EVENT" else None


class Mopidy(Service):
    title = "Mopidy"
    profile = "json-rpc"
    program = "mopidy"
    listens_within = 150.0
    topic = "volume_changed"
    call = '{"jsonrpc": "2.0", "id": "x", "method": "core.get_version"}'

    def arguments(self):
        path = self._folder / "mopidy.conf"
        path.write_text(
            f"""
[core]
cache_dir = {self._folder}/cache
config_dir = {self._folder}/config
data_dir = {self._folder}/data
[audio]
output = fakesink
[http]
hostname = 127.0.0.1
port = {self.port}
zeroconf =
"""
        )
        return "--config", path

    @property
    def configuration(self):
        return {"upstream": {"topic": {"pointer": "/event"}}}

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/mopidy/ws"

    async def version(self):
        return await version_of("mopidy")

    def replied(self, response):
        return response["id"] == "x" and isinstance(response["result"], str)

    async def push(self, number):
        call = {"jsonrpc": "2.0", "id": 1, "method": "core.mixer.set_volume", "params": [number]}
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"http://127.0.0.1:{self.port}/mopidy/rpc", json=call) as response,
        ):
            assert (await response.json())["result"] is True

    def number(self, payload):
        return payload["volume"] if payload.get("event") == self.topic else None


class HomeAssistant(Service):
    title = "Home Assistant"
    profile = "home-assistant"
    program = "hass"
    listens_within = 150.0
    topic = "number"
    call = '{"id": 7, "type": "get_config"}'
    subscribe = ('{"id":1,"type":"subscribe_events","event_type":"number"}',)
    _token = None

    def arguments(self):
        folder = self._folder / "homeassistant"
        folder.mkdir(exist_ok=True)
        (folder / "configuration.yaml").write_text(
            f"http:\n  server_host: 127.0.0.1\n  server_port: {self.port}\napi:\nonboarding:\nwebsocket_api:\nauth:\n"
        )
        return "--config", folder

    async def start(self):
        await super().start()
        if self._token:
            return
        async with aiohttp.ClientSession(f"http://127.0.0.1:{self.port}") as http:
            user = {"client_id": "http://test/", "name": "t", "username": "t", "password": "t", "language": "en"}
            async with http.post("/api/onboarding/users", json=user) as response:
                code = (await response.json())["auth_code"]
            form = {"client_id": "http://test/", "grant_type": "authorization_code", "code": code}
            async with http.post("/auth/token", data=form) as response:
                self._token = (await response.json())["access_token"]

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/api/websocket"

    @property
    def environment_of_gateway(self):
        return {"HASS_TOKEN": self._token}

    async def version(self):
        return await version_of("hass")

    def replied(self, response):
        return response["id"] == 7 and response["success"]

    async def push(self, number):
        headers = {"Authorization": f"Bearer {self._token}"}
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{self.port}", headers=headers) as http,
            http.post("/api/events/number", json={"number": number}) as response,
        ):
            assert response.status == 200, await response.text()

    def number(self, payload):
        return payload["event"]["data"]["number"] if payload["type"] == "event" else None


class Jupyter(Service):
    title = "Jupyter (a kernel)"
    profile = "jupyter"
    program = "jupyter"
    listens_within = 150.0
    topic = "stream"
    # `configuration` has a command that asks the server for the URL.
    url = None
    _token = "secret"

    @staticmethod
    def _request(number, code):
        header = {"msg_id": number, "msg_type": "execute_request", "session": "s", "username": "", "version": "5.3"}
        content = {"code": code, "silent": False}
        return {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content}

    @property
    def call(self):
        return json.dumps(self._request("x", "6 * 7"))

    def arguments(self):
        return (
            *("server", "--no-browser", "--allow-root", f"--IdentityProvider.token={self._token}"),
            *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={self.port}", f"--ServerApp.root_dir={self._folder}"),
        )

    def environment(self):
        return {f"JUPYTER_{name}_DIR": str(self._folder / name) for name in ("DATA", "CONFIG", "RUNTIME")}

    @property
    def configuration(self):
        """The example in the comment of the profile."""
        lines = (PROJECT / "config/profiles/jupyter.yaml").read_text().splitlines()
        first = lines.index("#   upstream:")
        text = "\n".join(line.removeprefix("#") for line in lines[first : lines.index("#", first)])
        return yaml.safe_load(text.replace("8888", str(self.port)))

    @property
    def environment_of_gateway(self):
        return {"TOKEN": self._token}

    async def version(self):
        return await version_of("jupyter", "server", "--version")

    def replied(self, response):
        return response["parent_header"]["msg_id"] == "x" and response["content"]["status"] == "ok"

    async def push(self, number):
        headers = {"Authorization": f"token {self._token}"}
        kernels = f"http://127.0.0.1:{self.port}/api/kernels"
        async with aiohttp.ClientSession(headers=headers) as http:
            async with http.get(kernels) as response:
                kernel = (await response.json())[0]["id"]
            async with http.ws_connect(f"{kernels}/{kernel}/channels") as client:
                await self._execute(client, number)

    async def _execute(self, client, number):
        await client.send_json(self._request(f"n{number}", f"print({number})"))
        while (await client.receive_json())["msg_type"] != "execute_reply":
            pass

    def number(self, payload):
        return int(payload["content"]["text"]) if payload["msg_type"] == "stream" else None


class NATS(Service):
    title = "NATS"
    profile = "nats"
    program = "nats-server"
    topic = "numbers.new"

    def __init__(self, folder):
        super().__init__(folder)
        self._clients_port = reserve_port()

    def arguments(self):
        path = self._folder / "nats.conf"
        path.write_text(
            f"listen: 127.0.0.1:{self._clients_port}\n"
            f"websocket {{ host: 127.0.0.1, port: {self.port}, no_tls: true }}\n"
        )
        return "--config", path

    @property
    def environment_of_gateway(self):
        return {"NATS_SUBJECT": "numbers.>"}

    async def version(self):
        return await version_of("nats-server")

    async def push(self, number):
        reader, writer = await asyncio.open_connection("127.0.0.1", self._clients_port)
        writer.write(b'CONNECT {"verbose":false}\r\nPUB numbers.new %d\r\n%d\r\nPING\r\n' % (len(str(number)), number))
        while await reader.readline() != b"PONG\r\n":
            pass
        writer.close()

    def number(self, payload):
        found = re.search(r"^MSG numbers.new 1 [0-9]+\r\n([0-9]+)\r\n", payload)
        return int(found[1]) if found else None


class Janus(Service):
    title = "Janus"
    profile = "janus"
    program = "janus"
    topic = "janus.plugin.videoroom"
    call = '{"janus":"info","transaction":"x"}'

    def arguments(self):
        folder = self._folder / "janus"
        folder.mkdir(exist_ok=True)
        # Other plugins and transports would open ports, and some end the server without a configuration.
        libraries = Path("/usr/lib", f"{os.uname().machine}-linux-gnu", "janus")
        disabled = ""
        for kind, kept in (("plugins", "libjanus_videoroom.so"), ("transports", "libjanus_websockets.so")):
            others = ",".join(path.name for path in sorted((libraries / kind).glob("*.so")) if path.name != kept)
            disabled += f'{kind}: {{ disable = "{others}" }}\n'
        (folder / "janus.jcfg").write_text(f"media: {{ ipv6 = false }}\n{disabled}\n")
        (folder / "janus.transport.websockets.jcfg").write_text(
            f'general: {{ json = "plain", ws = true, ws_port = {self.port}, ws_ip = "127.0.0.1", wss = false }}\n'
        )
        (folder / "janus.plugin.videoroom.jcfg").write_text("room-1: { notify_joining = true, publishers = 6 }\n")
        return "--configs-folder", folder, "--interface", "127.0.0.1", "--log-stdout"

    @property
    def configuration(self):
        """The handle of a plugin on each connection, as the profile shows it, and a room in which it is."""
        session = '"session_id":${capture:session}'
        attach = f'{{"janus":"attach","plugin":"{self.topic}",{session},"transaction":"drawbridge-attach"}}'
        join = '{"request":"join","ptype":"publisher","room":1}'
        message = f'{{"janus":"message",{session},"handle_id":${{capture:handle}},"body":{join},"transaction":"join"}}'
        create = {"/janus": "success", "/transaction": "drawbridge-create"}
        attached = {"/janus": "success", "/transaction": "drawbridge-attach"}
        return {
            "upstream": {
                "on_open": [
                    {"send": '{"janus":"create","transaction":"drawbridge-create"}', "expect": {"json": create}},
                    {"send": attach, "expect": {"json": attached}},
                    {"send": message, "expect": {"json": {"/plugindata/data/videoroom": "joined"}}},
                ],
                "capture": {
                    "session": {"match": {"json": create}, "pointer": "/data/id", "show": True},
                    "handle": {"match": {"json": attached}, "pointer": "/data/id", "show": True},
                },
            }
        }

    async def version(self):
        return await version_of("janus")

    def replied(self, response):
        return response["janus"] == "server_info" and response["transaction"] == "x"

    async def push(self, number):
        async with aiohttp.ClientSession() as http, http.ws_connect(self.url, protocols=["janus-protocol"]) as client:

            async def ask(**request):
                await client.send_json({**request, "transaction": "t"})
                while (reply := await client.receive_json()).get("janus") not in ("success", "event"):
                    pass
                return reply

            session = (await ask(janus="create"))["data"]["id"]
            handle = (await ask(janus="attach", plugin=self.topic, session_id=session))["data"]["id"]
            body = {"request": "join", "ptype": "publisher", "room": 1, "display": str(number)}
            joined = await ask(janus="message", session_id=session, handle_id=handle, body=body)
            assert joined["plugindata"]["data"]["videoroom"] == "joined", joined

    def number(self, payload):
        joining = payload.get("plugindata", {}).get("data", {}).get("joining", {})
        return int(joining["display"]) if "display" in joining else None


class SocketIO(Service):
    """python-socketio 5, with version 4 of Engine.IO."""

    title = "python-socketio 5"
    profile = "socketio"
    version_of_engine = 4
    topic = "published"
    call = '{"event": "sum", "args": [1, 2]}'

    @property
    def program(self):
        return str(PROJECT / f".tools/{self.title.replace('python-', '').replace(' ', '-')}/bin/python")

    def arguments(self):
        return SOCKETIO / "server.py", self.port, "{}"

    @property
    def configuration(self):
        return {"upstream": {"socketio": {"version": self.version_of_engine}}}

    async def version(self):
        text = await output(self.program, "-m", "pip", "show", "python-socketio")
        return re.search(r"Version: ([0-9.]+)", text)[1]

    def replied(self, response):
        return response["args"] == [3, {"of": 2}]

    async def push(self, number):
        address = f"{self.url}socket.io/?EIO={self.version_of_engine}&transport=websocket"
        async with aiohttp.ClientSession() as http, http.ws_connect(address) as client:
            assert (await client.receive_str()).startswith("0{")
            if self.version_of_engine == 4:
                await client.send_str("40")
            assert (await client.receive_str()).startswith("40")
            await client.send_str(f'42["publish",{number}]')
            while await client.receive_str() != f'42["published",{number}]':
                pass

    def number(self, payload):
        return payload[0] if len(payload) == 1 and isinstance(payload[0], int) else None


class OldSocketIO(SocketIO):
    """python-socketio 4, with version 3 of Engine.IO."""

    title = "python-socketio 4"
    version_of_engine = 3


SMALL = [Aria2, NATS, Strawberry, Prosody, CentralSystem, Chromium, SocketIO, OldSocketIO]
LARGE = [RabbitMQ, Crossbar, NostrRelay, Mopidy, Janus, Jupyter, HomeAssistant]


@pytest.mark.parametrize("service", SMALL, ids=lambda service: service.title)
async def test_a_service_is_bridged_through_all_that_happens(service, start, tmp_path, measured):
    measured(await Journey(service(tmp_path), start, tmp_path).run())


@pytest.mark.skipif("DRAWBRIDGE_PEERS" not in os.environ, reason="'make peers' installs these servers")
@pytest.mark.parametrize("service", LARGE, ids=lambda service: service.title)
async def test_a_large_service_is_bridged_through_all_that_happens(service, start, tmp_path, measured):
    measured(await Journey(service(tmp_path), start, tmp_path).run())


class Proxy(Program):
    """The proxy of docs/protocols.md."""

    program = sys.executable

    def __init__(self, folder, service):
        super().__init__(folder)
        self._service = service

    def arguments(self):
        code = re.search("```python\n(.*?)```", (PROJECT / "docs/protocols.md").read_text(), re.DOTALL)[1]
        return "-c", code

    def environment(self):
        return {"SERVICE": self._service.url, "PASSWORD": "secret", "PORT": str(self.port)}

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/"


async def test_the_proxy_of_the_documentation_logs_in_and_passes_messages_and_closes_on(start, gateway_for, tmp_path):
    async def converse(conversation):
        await conversation.say(json.dumps({"salt": "00ff", "rounds": 1000}))
        proof = json.loads(await conversation.hear())["proof"]
        assert proof == hashlib.pbkdf2_hmac("sha256", b"secret", b"\x00\xff", 1000).hex()
        while True:
            message = await conversation.hear()
            if message == "end":
                await conversation.close(4001, "the end")
            await conversation.say(f"heard {message}")

    service = await start(ConventionUpstream(converse))
    gateway = await gateway_for(await start(Proxy(tmp_path, service)))
    client = gateway.client()
    here = await client.here()
    await client.accepted("one")
    assert (await client.collect(1, here))[0] == ["heard one"]
    await client.accepted("end")
    lost = await gateway.logs(lambda record: "4001" in record.get("cause", ""), what="the close code of the service")
    assert lost["level"] == "warning"
    await service.has_conversations(2)
    await gateway.ready()
    here = await client.here()
    await client.accepted("two")
    assert (await client.collect(1, here))[0] == ["heard two"]
