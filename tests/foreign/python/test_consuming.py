import asyncio
import time
import unittest

from bus import Bus, Refused, fresh


class Consuming(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.topic = fresh("consume")
        self.membership = {"topic": self.topic, "group": "g"}
        self.bus = await self.enterAsyncContext(await Bus.connect())

    async def refused(self, code, op, **members):
        with self.assertRaises(Refused) as refused:
            await self.bus.ask(op, **members)
        self.assertEqual(refused.exception.answer["code"], code)

    async def test_new_groups_start_at_earliest_or_latest(self):
        await self.bus.publish(self.topic, "old")
        await self.bus.subscribe(self.topic, "late")
        await self.bus.subscribe(self.topic, "early", **{"from": "earliest"})
        await self.bus.publish(self.topic, "new")
        deliveries = [await self.bus.event() for _ in range(3)]
        seen = sorted((e["group"], e["event"]["payload"]) for e in deliveries)
        self.assertEqual(seen, [("early", "new"), ("early", "old"), ("late", "new")])

    async def test_ack_nack_and_stale_leases(self):
        await self.bus.subscribe(self.topic, "g")
        id = (await self.bus.publish(self.topic, 1))["id"]
        for attempt in (1, 2, 3):
            delivery = await self.bus.event()
            self.assertEqual((delivery["event"]["id"], delivery["ctx"]["attempt"]), (id, attempt))
            if attempt < 3:
                await self.bus.ask("NACK", **self.membership, id=id, delay_ms=0)
        self.assertEqual(await self.bus.ask("ACK", **self.membership, ids=[id]), {"op": "OK"})
        self.assertEqual(await self.bus.ask("ACK", **self.membership, id=id), {"op": "OK", "stale": True})
        self.assertEqual(await self.bus.ask("NACK", **self.membership, id=id), {"op": "OK", "stale": True})

    async def test_delivers_at_most_max_in_flight_events(self):
        await self.bus.subscribe(self.topic, "g", maxInFlight=3)
        await self.bus.ask("PUBLISH", topic=self.topic, events=[{"payload": n} for n in range(10)])
        deliveries = [await self.bus.event() for _ in range(3)]
        await asyncio.sleep(0.3)
        self.assertEqual(self.bus.events.qsize(), 0)
        await self.bus.ask("ACK", **self.membership, ids=[e["event"]["id"] for e in deliveries])
        self.assertEqual([(await self.bus.event())["event"]["payload"] for _ in range(3)], [3, 4, 5])

    async def test_modack_extends_a_lease(self):
        await self.bus.subscribe(self.topic, "g", ackTimeoutMs=600)
        id = (await self.bus.publish(self.topic, 1))["id"]
        started = time.monotonic()
        await self.bus.event()
        await self.bus.ask("MODACK", **self.membership, id=id, extend_ms=2000)
        delivery = await self.bus.event()
        self.assertEqual(delivery["ctx"]["attempt"], 2)
        self.assertGreater(time.monotonic() - started, 1.9)
        await self.bus.ask("ACK", **self.membership, id=id)
        await self.refused("lease_lost", "MODACK", **self.membership, id=id, extend_ms=2000)

    async def test_pause_resume_and_unsubscribe(self):
        await self.bus.subscribe(self.topic, "g")
        await self.bus.ask("PAUSE", **self.membership)
        await self.bus.publish(self.topic, 1)
        await asyncio.sleep(0.3)
        self.assertEqual(self.bus.events.qsize(), 0)
        await self.bus.ask("RESUME", **self.membership)
        self.assertEqual((await self.bus.event())["event"]["payload"], 1)
        await self.bus.ask("UNSUBSCRIBE", **self.membership)
        await self.refused("not_subscribed", "PAUSE", **self.membership)
        await self.bus.subscribe(self.topic, "g")
        self.assertEqual((await self.bus.event())["ctx"]["attempt"], 2)

    async def test_ack_and_publish_are_one_commit(self):
        results = fresh("results")
        await self.bus.subscribe(self.topic, "g")
        id = (await self.bus.publish(self.topic, 1))["id"]
        await self.bus.event()
        publish = [{"topic": results, "payload": n, "opts": {"caused_by": [id]}} for n in (1, 2)]
        answer = await self.bus.ask("ACK", **self.membership, id=id, publish=publish)
        self.assertEqual([r["seq"] for r in answer["results"]], [1, 2])
        await self.refused("lease_lost", "ACK", **self.membership, id=id, publish=publish)
        self.assertEqual((await self.bus.publish(results, 3))["seq"], 3)

    async def test_expired_leases_count_as_attempts_until_the_event_is_a_dead_letter(self):
        dead = f"dlq.{self.topic}"
        await self.bus.subscribe(dead, "g", **{"from": "earliest"})
        await self.bus.subscribe(self.topic, "g", ackTimeoutMs=200, maxAttempts=2)
        id = (await self.bus.publish(self.topic, {"n": 1}))["id"]
        deliveries = [await self.bus.event() for _ in range(2)]
        self.assertEqual([e["ctx"]["attempt"] for e in deliveries], [1, 2])
        letter = await self.bus.event()
        self.assertEqual(letter["topic"], dead)
        payload = letter["event"]["payload"]
        self.assertEqual(set(payload), {"topic", "group", "original", "err", "ts", "attempts"})
        self.assertEqual((payload["topic"], payload["group"], payload["attempts"]), (self.topic, "g", 2))
        self.assertEqual((payload["original"]["id"], payload["original"]["payload"]), (id, {"n": 1}))

    async def test_two_consumers_share_1000_events_without_loss_or_duplicates(self):
        seen = []
        done = asyncio.Event()

        async def consume(bus):
            while True:
                event = (await bus.events.get())["event"]
                seen.append(event["payload"])
                await bus.ask("ACK", **self.membership, id=event["id"])
                if len(seen) >= 1000:
                    done.set()

        consumers = [await self.enterAsyncContext(await Bus.connect()) for _ in range(2)]
        for consumer in consumers:
            await consumer.subscribe(self.topic, "g", maxInFlight=10)
        tasks = [asyncio.create_task(consume(consumer)) for consumer in consumers]
        for start in range(0, 1000, 100):
            events = [{"payload": n} for n in range(start, start + 100)]
            await self.bus.ask("PUBLISH", topic=self.topic, events=events)
        await asyncio.wait_for(done.wait(), 60)
        await asyncio.sleep(0.3)
        for task in tasks:
            task.cancel()
        self.assertEqual(sorted(seen), list(range(1000)))

    async def test_events_of_a_lost_member_are_redelivered_to_another(self):
        leaving = await Bus.connect()
        await leaving.subscribe(self.topic, "g")
        await self.bus.ask("PUBLISH", topic=self.topic, events=[{"payload": n} for n in range(5)])
        for _ in range(5):
            await leaving.event()
        await self.bus.subscribe(self.topic, "g")
        # Without a close frame, as if its machine had failed.
        leaving.socket.transport.abort()
        deliveries = [await self.bus.event() for _ in range(5)]
        self.assertEqual([(e["event"]["payload"], e["ctx"]["attempt"]) for e in deliveries],
                         [(n, 2) for n in range(5)])
        await leaving.reading
