import asyncio
import unittest

from bus import Bus, Refused, fresh
from server import Server


class Refusals(unittest.IsolatedAsyncioTestCase):
    async def refused(self, bus, code, op, **members):
        with self.assertRaises(Refused) as refused:
            await bus.ask(op, **members)
        self.assertEqual(refused.exception.answer["code"], code)
        return refused.exception.answer

    async def test_each_refusal_has_its_code_and_leaves_the_connection_open(self):
        topic = fresh("refusals")
        membership = {"topic": topic, "group": "g"}
        async with await Bus.connect() as bus:
            for text in ("{", "nonsense", '{"op":"AUTH"} {}', "{'op':'AUTH'}"):
                await bus.send(text)
                answer = await bus.answer()
                self.assertEqual((answer["op"], answer["code"]), ("ERR", "bad_json"), text)
            for code, op, members in (
                ("bad_frame", "PUBLISH", {"topic": topic}),
                ("bad_frame", "PUBLISH", {"topic": topic, "payload": 1, "opts": []}),
                ("bad_frame", "ACK", membership),
                ("unknown_op", "DELETE", {}),
                ("bad_topic", "PUBLISH", {"topic": "", "payload": 1}),
                ("bad_topic", "SUBSCRIBE", {"topic": "a/b", "group": "g"}),
                ("bad_group", "SUBSCRIBE", {"topic": topic, "group": "a b"}),
                ("not_subscribed", "UNSUBSCRIBE", membership),
                ("not_subscribed", "ACK", {**membership, "id": "x", "publish": []}),
                ("unknown_id", "SUBSCRIBE",
                 {**membership, "opts": {"from": "afterId", "afterId": "nobody"}}),
            ):
                answer = await self.refused(bus, code, op, **members, corr="ü")
                self.assertEqual(answer["corr"], "ü")
            await bus.subscribe(topic, "g")
            await self.refused(bus, "already_subscribed", "SUBSCRIBE", **membership)
            self.assertEqual((await bus.publish(topic, 1))["seq"], 1)

    async def test_retrying_after_the_given_time_succeeds(self):
        limits = ("limits.connection.capacity=50", "limits.connection.refill_per_sec=50")
        async with Server(*limits) as server, await Bus.connect(server.url) as bus:
            waiting, refusals = list(range(80)), 0
            while waiting:
                for n in waiting:
                    await bus.send({"op": "PUBLISH", "topic": "slow", "payload": n, "corr": str(n)})
                answers = [await bus.answer() for _ in waiting]
                self.assertEqual([a["corr"] for a in answers], [str(n) for n in waiting])
                refused = [a for a in answers if a["op"] == "ERR"]
                for answer in refused:
                    self.assertEqual(answer["code"], "rate_limited")
                    self.assertEqual(answer["msg"], "conn publish rate exceeded")
                self.assertLess(len(refused), len(waiting), "some retries succeed")
                waiting = [int(a["corr"]) for a in refused]
                refusals += len(refused)
                await asyncio.sleep(max((a["retry_after_ms"] for a in refused), default=0) / 1000)
            self.assertGreater(refusals, 0)

    async def test_a_token_determines_what_a_connection_may_do(self):
        tokens = 'auth.tokens=[{token = "tökén", scopes = ["publish:a.**", "subscribe:b"]}]'
        async with Server(tokens) as server, await Bus.connect(server.url) as bus:
            await self.refused(bus, "unauthorized", "PUBLISH", topic="a", payload=1)
            await self.refused(bus, "unauthorized", "ACK", topic="b", group="g", id="x")
            await self.refused(bus, "bad_token", "AUTH", token="token")
            await self.refused(bus, "bad_frame", "AUTH")
            await bus.ask("AUTH", token="tökén")
            self.assertEqual((await bus.publish("a.b.c", 1))["seq"], 1)
            await self.refused(bus, "forbidden", "PUBLISH", topic="b", payload=1)
            await self.refused(bus, "forbidden", "SUBSCRIBE", topic="a", group="g")
            await bus.subscribe("b", "g")
            # A refused token leaves the scopes unchanged.
            await self.refused(bus, "bad_token", "AUTH", token="")
            self.assertEqual((await bus.publish("a.b.c", 1))["seq"], 2)
