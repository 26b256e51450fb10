import unittest

from bus import Bus, Refused, fresh


class Publishing(unittest.IsolatedAsyncioTestCase):
    async def test_publishes_an_event_and_a_batch_and_stores_an_id_once(self):
        topic = fresh("publish")
        async with await Bus.connect() as bus:
            self.assertEqual((await bus.publish(topic, {"n": 1}, id="a"))["seq"], 1)
            batch = [{"payload": n, "opts": {"id": f"b-{n}"}} for n in range(1000)]
            answer = await bus.ask("PUBLISH", topic=topic, events=batch)
            self.assertEqual([r["seq"] for r in answer["results"]], list(range(2, 1002)))
            self.assertEqual([r["id"] for r in answer["results"]], [f"b-{n}" for n in range(1000)])
            again = await bus.publish(topic, {"n": 2}, id="a")
            self.assertEqual(again, {"op": "OK", "id": "a", "seq": 1, "duplicate": True})

    async def test_a_batch_with_an_invalid_event_stores_nothing(self):
        topic = fresh("whole")
        async with await Bus.connect() as bus:
            events = [{"payload": 1}, {"payload": 2, "opts": {"ts": -1}}]
            with self.assertRaises(Refused) as refused:
                await bus.ask("PUBLISH", topic=topic, events=events, corr="c")
            answer = refused.exception.answer
            self.assertEqual((answer["code"], answer["corr"]), ("bad_frame", "c"))
            self.assertIn("events[1]", answer["msg"])
            self.assertEqual((await bus.publish(topic, 1))["seq"], 1)

    async def test_text_and_numbers_are_delivered_unchanged(self):
        topic = fresh("unicode")
        payload = {"Grüße": "世界 🚀 \x7f \u2028", "n": 2**53 + 1, "list": [True, None, 1.5, ""]}
        async with await Bus.connect() as bus:
            await bus.subscribe(topic, "g")
            await bus.publish(topic, payload, key="ключ", headers={"k": "v", "é": "ü"})
            event = (await bus.event())["event"]
            self.assertEqual(event["payload"], payload)
            self.assertEqual((event["key"], event["headers"]), ("ключ", {"k": "v", "é": "ü"}))

    async def test_500_frames_sent_at_once_are_answered_in_order(self):
        topic = fresh("pipeline")
        async with await Bus.connect() as bus:
            for n in range(500):
                op = "NONSENSE" if n % 7 == 3 else "PUBLISH"
                await bus.send({"op": op, "topic": topic, "payload": n, "corr": f"c{n}"})
            answers = [await bus.answer() for _ in range(500)]
            self.assertEqual([a["corr"] for a in answers], [f"c{n}" for n in range(500)])
            seqs = [a["seq"] for a in answers if a["op"] == "OK"]
            self.assertEqual(seqs, list(range(1, len(seqs) + 1)))
            codes = {a["code"] for a in answers if a["op"] == "ERR"}
            self.assertEqual(codes, {"unknown_op"})
