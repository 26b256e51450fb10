"""Starts the built binary for one test."""

import os
import shutil
import subprocess
import tempfile

BINARY = os.environ["PROMBUS_BINARY"]


class Server:
    """A context manager that runs a server. `http` and `ws` are its URLs."""

    def __init__(self, *settings):
        self.settings = [word for setting in ("log.level=warn", *settings) for word in ("--set", setting)]

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="prombus-http-api-")
        addresses = ["--data", os.path.join(self.folder, "data"), "--ws", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [BINARY, "serve", *addresses, *self.settings], stdout=subprocess.PIPE, text=True
        )
        for line in self.process.stdout:
            if line.startswith("WebSocket gateway: "):
                self.ws = line.split(": ", 1)[1].strip()
            if line.startswith("HTTP: "):
                self.http = line.split(": ", 1)[1].strip()
            if line.startswith("ready"):
                return self
        raise AssertionError("the server exited before it was ready")

    def __exit__(self, *_):
        self.process.terminate()
        status = self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.folder)
        assert status == 0, f"the server exited with {status}"
