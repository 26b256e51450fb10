"""A connection to the server by Python's websockets, with as little of our own as the tests can do with."""

import asyncio
import json
import os
import uuid

import websockets

# How long anything may take before a test fails rather than hangs.
PATIENCE = 20

# The server that all tests share; its rate limits are off.
URL = os.environ.get("PROMBUS_URL")


def fresh(word):
    """A name that no other test uses."""
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
                assert isinstance(text, str), "only text frames come"
                frame = json.loads(text)
                queue = self.events if frame["op"] == "EVENT" else self.answers
                queue.put_nowait(frame)
        except websockets.ConnectionClosed:
            pass

    async def send(self, frame):
        await self.socket.send(frame if isinstance(frame, str) else json.dumps(frame))

    async def answer(self):
        return await asyncio.wait_for(self.answers.get(), PATIENCE)

    async def ask(self, op, **members):
        """The OK to a frame; an ERR is raised. Answers come in the order of the frames."""
        await self.send({"op": op, **members})
        answer = await self.answer()
        if answer["op"] != "OK":
            raise Refused(answer)
        return answer

    async def event(self):
        return await asyncio.wait_for(self.events.get(), PATIENCE)

    async def publish(self, topic, payload, **opts):
        return await self.ask("PUBLISH", topic=topic, payload=payload, opts=opts)

    async def subscribe(self, topic, group, **opts):
        return await self.ask("SUBSCRIBE", topic=topic, group=group, opts=opts)
