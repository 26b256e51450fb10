"""Parses /metrics with the parser of the Prometheus client."""

import re
import subprocess
import unittest
import urllib.request

from prometheus_client.parser import text_string_to_metric_families
from server import BINARY, Server


class Metrics(unittest.TestCase):
    def test_prometheus_can_parse_the_text(self):
        with Server() as server:
            produce_metrics(server)
            with urllib.request.urlopen(f"{server.http}/metrics") as response:
                self.assertEqual(response.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
                text = response.read().decode()
        families = list(text_string_to_metric_families(text))
        self.assertGreater(len(families), 10)
        for family in families:
            with self.subTest(family.name):
                self.check(family, text)
        samples = [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]
        self.assertIn(("prombus_events_published_total", {"topic": "orders.created"}, 2.0), samples)
        self.assertIn(("prombus_events_acked_total", {"topic": "orders.created", "group": "billing"}, 2.0), samples)
        series = [(name, tuple(sorted(labels.items()))) for name, labels, _ in samples]
        self.assertEqual(len(series), len(set(series)), "a series occurs twice")

    def check(self, family, text):
        # The parser strips the suffix of counters.
        full_name = family.name + ("_total" if family.type == "counter" else "")
        self.assertRegex(full_name, r"^(prombus|process)_[a-z_]+$")
        for word in ("HELP", "TYPE"):
            lines = re.findall(rf"^# {word} {full_name} \S.*$", text, re.MULTILINE)
            self.assertEqual(len(lines), 1, word)
        self.assertIn(family.type, ("counter", "gauge", "histogram"))
        self.assertTrue(family.documentation)
        self.assertTrue(family.samples, "a family without samples")
        for sample in family.samples:
            self.assertGreaterEqual(sample.value, 0)
        if family.type == "counter":
            self.assertEqual({sample.name for sample in family.samples}, {full_name})
        if family.type == "histogram":
            self.check_histogram(family)

    def check_histogram(self, family):
        parts = {"bucket": [], "sum": [], "count": []}
        for sample in family.samples:
            parts[sample.name.removeprefix(f"{family.name}_")].append(sample)
        [count], [_] = parts["count"], parts["sum"]
        buckets = [(float(sample.labels["le"]), sample.value) for sample in parts["bucket"]]
        self.assertEqual(buckets, sorted(buckets), "buckets and their counts ascend")
        self.assertEqual(buckets[-1], (float("inf"), count.value))


def produce_metrics(server):
    """Publishes and consumes two events."""
    for payload in (b"1", b"2"):
        urllib.request.urlopen(f"{server.http}/publish/orders.created", payload).close()
    subprocess.run(
        [BINARY, "subscribe", "orders.created", "--group", "billing", "--from", "earliest", "--count", "2",
         "--url", server.ws],
        stdout=subprocess.DEVNULL, check=True,
    )
