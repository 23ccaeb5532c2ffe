"""A GraphQL server with Strawberry: a query, and a subscription to the numbers that POST /push/NUMBER brings."""

import asyncio
import sys
from collections.abc import AsyncGenerator

import strawberry
from aiohttp import web
from strawberry.aiohttp.views import GraphQLView

queues = set()


@strawberry.type
class Query:
    @strawberry.field
    def double(self, number: int) -> int:
        return 2 * number


@strawberry.type
class Subscription:
    @strawberry.subscription
    async def numbers(self) -> AsyncGenerator[int, None]:
        queue = asyncio.Queue()
        queues.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            queues.discard(queue)


async def push(request):
    for queue in queues:
        queue.put_nowait(int(request.match_info["number"]))
    return web.Response(status=204 if queues else 503)


application = web.Application()
application.router.add_route("*", "/graphql", GraphQLView(strawberry.Schema(Query, subscription=Subscription)))
application.router.add_post("/push/{number}", push)
web.run_app(application, host="127.0.0.1", port=int(sys.argv[1]))
