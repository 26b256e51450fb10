import { playwright } from "@vitest/browser-playwright";
import { defineConfig } from "vitest/config";

/** The Chromium of Debian; no browser is downloaded. */
const executablePath = process.env.PROMBUS_CHROMIUM ?? "/usr/bin/chromium";

const chromiumFlags = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** A test that takes longer hangs. */
const timeouts = { testTimeout: 60_000, hookTimeout: 60_000 };
const control = ["test/control/start.ts"];

export default defineConfig({
  test: {
    projects: [
      { test: { name: "unit", include: ["src/**/*.test.ts"], environment: "node", ...timeouts } },
      {
        test: {
          name: "node",
          include: ["test/suite/**/*.test.ts", "test/node/**/*.test.ts"],
          environment: "node",
          globalSetup: control,
          ...timeouts,
        },
      },
      {
        // Tests with the WebSocket that Node has since 22, and Node 20 behind a flag.
        test: {
          name: "node-built-in",
          include: ["test/suite/reconnecting.test.ts"],
          environment: "node",
          execArgv: ["--experimental-websocket"],
          globalSetup: control,
          ...timeouts,
        },
      },
      {
        test: {
          name: "chromium",
          include: ["test/suite/**/*.test.ts"],
          globalSetup: control,
          ...timeouts,
          browser: {
            enabled: true,
            headless: true,
            screenshotFailures: false,
            provider: playwright({ launchOptions: { executablePath, args: chromiumFlags } }),
            instances: [{ browser: "chromium" }],
          },
        },
      },
    ],
  },
});
