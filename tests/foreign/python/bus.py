"""A thin wrapper around a connection of Python's websockets."""

import asyncio
import json
import os
import uuid

import websockets

# After this many seconds a test fails instead of hanging.
TIMEOUT = 20

# The address of the server that all tests share, without rate limits.
URL = os.environ.get("PROMBUS_URL")


def fresh(word):
    """Returns a name that no other test uses."""
    return f"{word}.{uuid.uuid4().hex[:8]}"


class Refused(Exception):
    def __init__(self, answer):
        super().__init__(json.dumps(answer))
        self.answer = answer


class Bus:
    def __init__(self, socket):
        self.socket = socket
        self.answers = asyncio.Queue()
        self.events = asyncio.Queue()
        self.reading = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, url=None, **options):
        return cls(await websockets.connect(url or URL, **options))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.socket.close()
        await self.reading

    async def _read(self):
        try:
            async for text in self.socket:
                assert isinstance(text, str), "the server sends text frames only"
                frame = json.loads(text)
                queue = self.events if frame["op"] == "EVENT" else self.answers
                queue.put_nowait(frame)
        except websockets.ConnectionClosed:
            pass

    async def send(self, frame):
        await self.socket.send(frame if isinstance(frame, str) else json.dumps(frame))

    async def answer(self):
        return await asyncio.wait_for(self.answers.get(), TIMEOUT)

    async def ask(self, op, **members):
        """Sends a frame and returns its OK; raises Refused for an ERR. The server answers in order."""
        await self.send({"op": op, **members})
        answer = await self.answer()
        if answer["op"] != "OK":
            raise Refused(answer)
        return answer

    async def event(self):
        return await asyncio.wait_for(self.events.get(), TIMEOUT)

    async def publish(self, topic, payload, **opts):
        return await self.ask("PUBLISH", topic=topic, payload=payload, opts=opts)

    async def subscribe(self, topic, group, **opts):
        return await self.ask("SUBSCRIBE", topic=topic, group=group, opts=opts)
