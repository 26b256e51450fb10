"""A server process of the built binary."""

import asyncio
import os
import shutil
import tempfile

from bus import TIMEOUT


class Server:
    def __init__(self, *settings):
        self.settings = [word for setting in ("log.level=warn", "log.format=text", *settings) for word in ("--set", setting)]
        self.folder = tempfile.mkdtemp(prefix="prombus-python-")

    async def __aenter__(self):
        await self.run()
        return self

    async def __aexit__(self, *_):
        await self.kill()
        shutil.rmtree(self.folder)

    async def run(self):
        addresses = ["--data", self.folder, "--ws", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        self.process = await asyncio.create_subprocess_exec(
            os.environ["PROMBUS_BINARY"], "serve", *addresses, *self.settings,
            stderr=asyncio.subprocess.PIPE,
        )
        await asyncio.wait_for(self._ready(), TIMEOUT)

    async def _ready(self):
        while line := (await self.process.stderr.readline()).decode():
            if line.startswith("WebSocket gateway: "):
                self.url = line.split(": ", 1)[1].strip()
            if line.startswith("ready"):
                # Read on, so that the server never waits for a reader.
                self.draining = asyncio.create_task(self.process.stderr.read())
                return
        raise AssertionError("the server exited before it was ready")

    async def kill(self):
        """Ends the server with SIGKILL, so that it cannot clean up."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
