import asyncio
import json
import unittest

import websockets

from bus import TIMEOUT, URL, Bus, fresh
from server import Server


class WebSocket(unittest.IsolatedAsyncioTestCase):
    async def test_a_fragmented_message_is_one_frame(self):
        topic = fresh("fragments")
        text = json.dumps({"op": "PUBLISH", "topic": topic, "payload": "🧩" * 50}, ensure_ascii=False)
        async with await Bus.connect() as bus:
            await bus.socket.send(text[at : at + 5] for at in range(0, len(text), 5))
            self.assertEqual((await bus.answer())["seq"], 1)

    async def test_a_ping_is_answered(self):
        async with await Bus.connect() as bus:
            await asyncio.wait_for(await bus.socket.ping("here?"), TIMEOUT)

    async def test_a_client_that_answers_pings_stays_connected(self):
        settings = ("gateway.ping_interval_ms=100", "gateway.pong_timeout_ms=1000")
        async with Server(*settings) as server, await Bus.connect(server.url) as bus:
            # The library answers pings on its own, so the connection outlives many of them.
            await asyncio.sleep(1.5)
            self.assertEqual((await bus.publish("alive", 1))["seq"], 1)

    async def test_compression_is_offered_and_declined(self):
        async with await Bus.connect(compression="deflate") as bus:
            self.assertIn("permessage-deflate", bus.socket.request.headers["Sec-WebSocket-Extensions"])
            self.assertNotIn("Sec-WebSocket-Extensions", bus.socket.response.headers)
            await bus.publish(fresh("plain"), "x" * 5000)

    async def test_a_binary_frame_is_refused_and_leaves_the_connection_open(self):
        async with await Bus.connect() as bus:
            await bus.socket.send(b"{}")
            answer = await bus.answer()
            self.assertEqual((answer["op"], answer["code"]), ("ERR", "bad_frame"))
            await bus.publish(fresh("after"), 1)

    async def test_a_frame_above_the_limit_closes_with_1009(self):
        async with Server("gateway.max_frame_bytes=2000") as server:
            async with await Bus.connect(server.url) as bus:
                await bus.publish("large", "x" * 1800)
                await bus.send({"op": "PUBLISH", "topic": "large", "payload": "x" * 2000})
                await asyncio.wait_for(bus.reading, TIMEOUT)
                self.assertEqual(bus.socket.close_code, 1009)
                self.assertEqual(bus.socket.close_reason, "frame exceeds the size limit")
            # The limit also applies to a message of many small fragments.
            async with await Bus.connect(server.url) as bus:
                await bus.socket.send("x" * 100 for _ in range(30))
                await asyncio.wait_for(bus.reading, TIMEOUT)
                self.assertEqual(bus.socket.close_code, 1009)

    async def test_a_connection_without_a_token_is_closed_with_4401(self):
        settings = ('auth.tokens=[{token = "t", scopes = ["admin"]}]', "gateway.auth_timeout_ms=300")
        async with Server(*settings) as server, await Bus.connect(server.url) as bus:
            await asyncio.wait_for(bus.reading, TIMEOUT)
            self.assertEqual(bus.socket.close_code, 4401)

    async def test_other_paths_are_not_the_gateway(self):
        with self.assertRaises(websockets.InvalidStatus) as refused:
            await Bus.connect(f"{URL}nowhere")
        self.assertEqual(refused.exception.response.status_code, 404)
