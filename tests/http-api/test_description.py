"""Compares the server with /openapi.json: schemathesis generates valid and invalid requests from the description
and checks every response against it."""

import os
import subprocess
import sys
import unittest
import urllib.request

from server import BINARY, Server

HERE = os.path.dirname(os.path.abspath(__file__))
TOKEN = "a token that may do everything"
EVERYTHING = f'auth.tokens=[{{token="{TOKEN}",scopes=["publish:**","subscribe:**","admin"]}}]'
# Extends the search, which is otherwise short and always the same.
SECONDS = os.environ.get("PROMBUS_SCHEMATHESIS_SECONDS")


class Description(unittest.TestCase):
    def test_server_without_tokens(self):
        with Server("limits.enabled=false") as server:
            self.check(server)

    def test_server_with_tokens(self):
        with Server("limits.enabled=false", EVERYTHING) as server:
            self.check(server, TOKEN)

    def check(self, server, token=None):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        fill(server, headers)
        command = [
            os.path.join(os.path.dirname(sys.executable), "schemathesis"),
            "--config-file", os.path.join(HERE, "schemathesis.toml"),
            "run", f"{server.http}/openapi.json", "--checks", "all",
            *(["--max-time", SECONDS] if SECONDS else []),
        ]
        for name, value in headers.items():
            command += ["--header", f"{name}:{value}"]
        # In another folder, because schemathesis leaves files that would influence the next run.
        run = subprocess.run(
            command, cwd=server.folder, env={**os.environ, "SCHEMATHESIS_HOOKS": os.path.join(HERE, "hooks.py")},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        self.assertEqual(run.returncode, 0, f"\n{run.stdout}")
        print(run.stdout[run.stdout.index("Test cases:"):], file=sys.stderr)


def fill(server, headers):
    """Creates the events, groups and dead letters that the examples in the description refer to."""
    topics = ["orders.created"] * 5 + ["orders.cancelled", "orders.returned", "orders.failed"]
    for order, topic in enumerate(topics, 1):
        url = f"{server.http}/publish/{topic}?key=customer-7&id=order-{order}"
        body = b'{"order":%d}' % order
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as response:
            assert response.status == 200
    token = headers.get("Authorization", "").removeprefix("Bearer ")
    for topic, group, *more in (
        ("orders.created", "billing", "--count", "2"),
        ("orders.created", "obsolete", "--count", "1"),
        ("orders.failed", "billing", "--count", "1", "--exec", "exit 65"),
    ):
        subprocess.run(
            [BINARY, "subscribe", topic, "--group", group, "--from", "earliest", *more, "--url", server.ws],
            env={**os.environ, **({"PROMBUS_TOKEN": token} if token else {})},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
        )
