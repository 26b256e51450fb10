import asyncio
import signal
import unittest

from bus import TIMEOUT, Bus
from server import Server


class Restart(unittest.IsolatedAsyncioTestCase):
    async def test_sigkill_while_publishing_loses_no_answered_event(self):
        async with Server("limits.enabled=false") as server:
            bus = await Bus.connect(server.url)

            async def publish():
                n = 0
                while True:
                    await bus.send({"op": "PUBLISH", "topic": "t", "payload": n, "opts": {"id": f"k-{n}"}})
                    n += 1
                    # send() need not yield to other tasks.
                    await asyncio.sleep(0)

            await bus.subscribe("t", "g", **{"from": "earliest"}, maxInFlight=50)
            publishing = asyncio.create_task(publish())
            for _ in range(20):
                await bus.event()
            answered = [await bus.answer() for _ in range(100)]
            await server.kill()
            publishing.cancel()
            await asyncio.wait_for(bus.reading, TIMEOUT)
            while not bus.answers.empty():
                answered.append(bus.answers.get_nowait())

            await server.run()
            async with await Bus.connect(server.url) as bus:
                for answer in answered[:: max(1, len(answered) // 50)]:
                    again = await bus.publish("t", None, id=answer["id"])
                    self.assertEqual(again, {**answer, "duplicate": True})
                await bus.subscribe("t", "g")
                deliveries = [await bus.event() for _ in range(50)]
                self.assertEqual([e["event"]["seq"] for e in deliveries], list(range(1, 51)))
                self.assertEqual([e["ctx"]["attempt"] for e in deliveries[:20]], [2] * 20)

    async def test_sigterm_closes_connections_and_a_restart_continues(self):
        async with Server() as server:
            bus = await Bus.connect(server.url)
            await bus.subscribe("t", "g")
            ids = [(await bus.publish("t", n))["id"] for n in range(3)]
            for _ in ids:
                await bus.event()
            await bus.ask("ACK", topic="t", group="g", ids=[ids[0], ids[2]])
            server.process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(bus.reading, TIMEOUT)
            self.assertEqual(bus.socket.close_code, 1001)
            self.assertEqual(await asyncio.wait_for(server.process.wait(), TIMEOUT), 0)
            await server.run()
            async with await Bus.connect(server.url) as bus:
                await bus.subscribe("t", "g")
                delivery = await bus.event()
                self.assertEqual((delivery["event"]["id"], delivery["ctx"]["attempt"]), (ids[1], 2))
                self.assertEqual((await bus.publish("t", "new"))["seq"], 4)
                self.assertEqual((await bus.event())["event"]["payload"], "new")
