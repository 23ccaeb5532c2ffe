"""An application for uvicorn: accepts every WebSocket and returns each text."""


async def application(scope, receive, send):
    if scope["type"] != "websocket":
        return
    while (event := await receive())["type"] != "websocket.disconnect":
        if event["type"] == "websocket.connect":
            await send({"type": "websocket.accept"})
        else:
            await send({"type": "websocket.send", "text": event["text"]})
