import { playwright } from "@vitest/browser-playwright";
import { defineConfig } from "vitest/config";

/** Debian's; a browser is never downloaded. */
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

/** Anything that takes longer hangs. */
const patience = { testTimeout: 60_000, hookTimeout: 60_000 };
const control = ["test/control/start.ts"];

export default defineConfig({
  test: {
    projects: [
      { test: { name: "unit", include: ["src/**/*.test.ts"], environment: "node", ...patience } },
      {
        test: {
          name: "node",
          include: ["test/suite/**/*.test.ts", "test/node/**/*.test.ts"],
          environment: "node",
          globalSetup: control,
          ...patience,
        },
      },
      {
        // The WebSocket that Node has from 22 on, which 20 has behind a flag.
        test: {
          name: "node-built-in",
          include: ["test/suite/reconnecting.test.ts"],
          environment: "node",
          execArgv: ["--experimental-websocket"],
          globalSetup: control,
          ...patience,
        },
      },
      {
        test: {
          name: "chromium",
          include: ["test/suite/**/*.test.ts"],
          globalSetup: control,
          ...patience,
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
