"""Sessions that clients create from profiles."""

from .waiting import eventually


def profile(url, *, name="market", allow="127.0.0.1", variables="{symbol: {pattern: '[A-Za-z0-9]{1,12}'}}", extra=""):
    addresses = f"addresses: {{allow: [{allow}]}}, " if allow else ""
    return f"profiles: {{{name}: {{variables: {variables}, {addresses}upstream: {{url: '{url}'{extra}}}}}}}\n"


class Sessions:
    """Creates, shows and closes the sessions of one gateway."""

    def __init__(self, gateway):
        self._client = gateway.client()
        self.gateway = gateway

    async def put(self, name, *, profile="market", **variables):
        body = {"profile": profile, "variables": variables}
        return await self._client.request("PUT", f"/v1/sessions/{name}", json=body)

    async def created(self, name, **variables):
        response = await self.put(name, **variables)
        assert response.status == 201, response.body
        return response

    async def get(self, name):
        return await self._client.request("GET", f"/v1/sessions/{name}")

    async def delete(self, name, query=""):
        return await self._client.request("DELETE", f"/v1/sessions/{name}{query}")

    async def list(self, query=""):
        return (await self._client.request("GET", f"/v1/sessions{query}")).json

    async def ready(self, name):
        async def is_ready():
            # Another gateway may not know the session yet.
            return (await self.get(name)).json.get("state") == "ready"

        await eventually(is_ready, what=f"session {name} is ready")

    async def failure(self, name, text):
        """Waits until the last failure of the session has this text."""

        last = None

        async def has_failed():
            nonlocal last
            last = (await self.get(name)).json["last_failure"] or ""
            return text in last

        try:
            await eventually(has_failed)
        except AssertionError:
            raise AssertionError(f"session {name} fails with {last!r}, not with {text!r}") from None
