"""A Socket.IO server on python-socketio, in either version. It runs in its own environment (.tools/socketio-*).

    server.py PORT '{"ping_interval": 1}'

It writes its reports to standard output, one JSON array per line. Its events: `echo` returns its arguments as `echoed`,
`sum` acknowledges with the sum, `slow` never acknowledges, `later` acknowledges after 300 ms, `ask` makes the server
request an acknowledgement, `bye` disconnects the sender from its namespace, `count` sends that many events, and
`publish` sends its arguments to all clients as the event `published`.
"""

import asyncio
import base64
import json
import sys

import socketio
from aiohttp import web

# python-socketio 4 passes coroutines to asyncio.wait, which Python 3.11 refuses.
_wait = asyncio.wait
asyncio.wait = lambda waited, **options: _wait([asyncio.ensure_future(one) for one in waited], **options)

NAMESPACES = ("/", "/admin", "/saas")


def shown(value):
    """JSON of any arguments. Bytes are written as base64."""
    return json.loads(json.dumps(value, default=lambda data: {"bytes": base64.b64encode(data).decode()}))


def say(*items):
    sys.stdout.write(json.dumps(shown(items)) + "\n")
    sys.stdout.flush()


def main():
    port, options = int(sys.argv[1]), json.loads(sys.argv[2])
    refused = options.pop("refused", [])
    token = options.pop("token", None)
    early = options.pop("early", False)
    if not socketio.__version__.startswith("4.") if hasattr(socketio, "__version__") else True:
        options.setdefault("namespaces", list(NAMESPACES))
    try:
        server = socketio.AsyncServer(async_mode="aiohttp", **options)
    except TypeError:
        options.pop("namespaces")
        server = socketio.AsyncServer(async_mode="aiohttp", **options)

    def handlers(namespace):
        async def connect(sid, environ, auth=None):
            query = environ.get("QUERY_STRING", "")
            say("connect", namespace, sid, auth, query)
            if early:
                await server.emit("early", "bird", to=sid, namespace=namespace)
            if namespace in refused:
                raise socketio.exceptions.ConnectionRefusedError("not here")
            if token is not None and (auth or {}).get("token") != token:
                raise socketio.exceptions.ConnectionRefusedError(f"bad token {(auth or {}).get('token')}")

        async def disconnect(sid, *reason):
            say("disconnect", namespace, sid)

        async def echo(sid, *args):
            say("echo", namespace, args)
            await server.emit("echoed", args, to=sid, namespace=namespace)

        async def total(sid, *args):
            say("sum", namespace, args)
            return sum(args), {"of": len(args)}

        async def slow(sid, *args):
            say("slow", namespace, args)
            await asyncio.sleep(3600)

        async def later(sid, *args):
            say("later", namespace, args)
            await asyncio.sleep(0.3)
            return args

        async def mirror(sid, *args):
            return args

        async def ask(sid, *args):
            def acknowledged(*reply):
                say("acknowledged", namespace, args, reply)

            await server.emit("question", args, to=sid, namespace=namespace, callback=acknowledged)

        async def bye(sid, *args):
            await server.disconnect(sid, namespace=namespace)

        async def count(sid, number):
            for index in range(number):
                data = bytes([index % 256] * 3) if index % 2 else {"deep": [{"bytes": bytes([index % 256])}]}
                await server.emit("counted", (index, data), to=sid, namespace=namespace)

        async def note(sid, *args):
            say("note", namespace, args)

        async def publish(sid, *args):
            await server.emit("published", args, namespace=namespace)

        for name, handler in {
            "connect": connect,
            "disconnect": disconnect,
            "echo": echo,
            "sum": total,
            "slow": slow,
            "later": later,
            "mirror": mirror,
            "ask": ask,
            "bye": bye,
            "count": count,
            "note": note,
            "publish": publish,
        }.items():
            server.on(name, handler, namespace=namespace)

    for namespace in NAMESPACES:
        handlers(namespace)
    application = web.Application()
    server.attach(application)
    web.run_app(application, host="127.0.0.1", port=port, print=lambda *_: say("listening", port))


main()
