"""Starts the built binary for one test."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading

BINARY = os.environ["PROMBUS_BINARY"]


class Server:
    """A context manager that runs a server. `http` and `ws` are its URLs."""

    def __init__(self, *settings):
        self.settings = [word for setting in ("log.level=warn", "log.format=text", *settings) for word in ("--set", setting)]

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="prombus-http-api-")
        addresses = ["--data", os.path.join(self.folder, "data"), "--ws", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [BINARY, "serve", *addresses, *self.settings], stderr=subprocess.PIPE, text=True
        )
        for line in self.process.stderr:
            if line.startswith("WebSocket gateway: "):
                self.ws = line.split(": ", 1)[1].strip()
            if line.startswith("HTTP: "):
                self.http = line.split(": ", 1)[1].strip()
            if line.startswith("ready"):
                threading.Thread(target=self._print_log, daemon=True).start()
                return self
        raise AssertionError("the server exited before it was ready")

    def _print_log(self):
        """Prints the rest of the log, so that the server never waits for a reader."""
        for line in self.process.stderr:
            sys.stderr.write(line)

    def __exit__(self, *_):
        self.process.terminate()
        status = self.process.wait()
        shutil.rmtree(self.folder)
        assert status == 0, f"the server exited with {status}"
