"""Runs every example of docs/http.md and compares its output."""

import os
import re
import shlex
import subprocess
import tempfile
import unittest

from server import BINARY, Server

DOCUMENT = os.path.join(os.path.dirname(__file__), "../../docs/http.md")
# The placeholders for values that vary, and the values they match.
KINDS = {
    "id": r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    "ts": r"\d{13}",
    "ms": r"\d{1,5}",
    "bytes": r"\d{2,5}",
    "ticket": r"[A-Za-z0-9_-]{43}",
}
PLACEHOLDER = re.compile(r"<(?P<kind>id|ts|ms|bytes|ticket)\d*>")
CURL_TIMED_OUT = 28


class Example:
    """A block of the document: commands with their output, and the settings of the server."""

    def __init__(self, line, settings):
        self.line = line
        self.settings = settings
        self.steps = []

    @staticmethod
    def parse_all(text):
        examples, example = [], None
        for number, line in enumerate(text.splitlines(), 1):
            if example is None and line.startswith("```console"):
                example = Example(number, shlex.split(line.removeprefix("```console")))
            elif example is not None and line == "```":
                examples.append(example)
                example = None
            elif example is not None:
                example.add_line(number, line)
        return examples

    def add_line(self, number, line):
        if line.startswith("$ "):
            self.steps.append((number, [line[2:]], []))
        elif self.steps[-1][1][-1].endswith("\\"):
            self.steps[-1][1].append(line)
        else:
            self.steps[-1][2].append(line)


class Shell:
    """A bash process in its own folder, for one example."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="prombus-docs-")
        path = os.path.dirname(os.path.abspath(BINARY)) + os.pathsep + os.environ["PATH"]
        self.bash = subprocess.Popen(
            ["bash"], cwd=self.folder.name, env={**os.environ, "PATH": path},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        return self

    def __exit__(self, *_):
        self.bash.communicate()
        self.folder.cleanup()

    def run(self, command):
        """Returns the output and the exit status of a command."""
        self.bash.stdin.write(f"{command}\nprintf '\\n=== %s\\n' $?\n")
        self.bash.stdin.flush()
        printed = ""
        for line in self.bash.stdout:
            if line.startswith("=== "):
                return printed.rstrip("\n"), int(line[4:])
            printed += line
        raise AssertionError(f"bash exited during {command}")


def difference(example):
    """Runs an example. Returns how it differs from the document, or None."""
    found = {}
    with Server(*example.settings) as server, Shell() as shell:
        for line, command, expected in example.steps:
            command = with_addresses("\n".join(command), server)
            for name, value in found.items():
                command = command.replace(name, value)
            printed, status = shell.run(command)
            if status not in (0, CURL_TIMED_OUT):
                return f"line {line}: exited with {status} and printed\n{printed}"
            expected = "\n".join(expected)
            if not matches(expected, printed, found):
                return f"line {line}: expected\n{expected}\ngot\n{printed}"
    return None


def with_addresses(command, server):
    """Replaces the documented addresses with those of the running server."""
    command = command.replace("http://127.0.0.1:8083", server.http)
    return command.replace("ws://127.0.0.1:8090/", server.ws)


def matches(expected, printed, found):
    """Compares the output and records the values of placeholders. The same placeholder is the same value."""
    pattern, end, names = "", 0, []
    for placeholder in PLACEHOLDER.finditer(expected):
        pattern += re.escape(expected[end:placeholder.start()])
        end, name = placeholder.end(), placeholder[0]
        if name in found:
            pattern += re.escape(found[name])
        elif name in names:
            pattern += f"(?P=n{names.index(name)})"
        else:
            pattern += f"(?P<n{len(names)}>{KINDS[placeholder['kind']]})"
            names.append(name)
    match = re.fullmatch(pattern + re.escape(expected[end:]), printed)
    if match:
        found.update((name, match[f"n{index}"]) for index, name in enumerate(names))
    return match is not None


class Documentation(unittest.TestCase):
    def test_every_example_behaves_as_documented(self):
        with open(DOCUMENT, encoding="utf-8") as document:
            examples = Example.parse_all(document.read())
        self.assertGreaterEqual(len(examples), 12, "the document lost examples")
        for example in examples:
            with self.subTest(line=example.line):
                self.assertIsNone(difference(example))

    def test_detects_a_wrong_example(self):
        ok = "$ curl http://127.0.0.1:8083/healthz\n"
        for wrong in (
            ok,
            ok + '{"status":"fine"}',
            ok + '{"status":"ok"}\nmore',
            "$ false",
            "$ curl http://127.0.0.1:8083/publish/a -d 1\n" + '{"id":"<id1>","seq":2}',
            "$ curl http://127.0.0.1:8083/publish/a?id=x -d 1\n" + '{"id":"<id1>","seq":1}',
            "$ echo 1234567890123 1234567890124\n<ts1> <ts1>",
        ):
            with self.subTest(wrong):
                [example] = Example.parse_all(f"```console\n{wrong}\n```\n")
                self.assertIsNotNone(difference(example))
