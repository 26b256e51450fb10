import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";
import { chromium } from "playwright";
import { expect, onTestFinished, test } from "vitest";
import { client, control, ownBus, ownProxy } from "../suite/bus.js";
import { packageFolder } from "./running.js";

const TYPES: Record<string, string> = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };

/** Serves the folder of this package, as any web server would. */
async function served(): Promise<string> {
  const server = createServer(async ({ url = "/" }, response) => {
    const path = normalize(new URL(url, "http://localhost").pathname);
    try {
      response.setHeader("Content-Type", TYPES[extname(path)] ?? "application/octet-stream");
      response.end(await readFile(join(packageFolder, path)));
    } catch {
      response.writeHead(404).end();
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function opened(address: string) {
  const browser = await chromium.launch({
    executablePath: process.env.PROMBUS_CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"],
  });
  onTestFinished(() => browser.close());
  const page = await browser.newPage();
  const faults: string[] = [];
  page.on("pageerror", (error) => void faults.push(String(error)));
  await page.goto(`${address}/examples/browser/index.html`);
  return { page, faults };
}

test("the page publishes, shows what comes, and survives a lost connection", async () => {
  const address = await served();
  const own = await ownBus(`auth.allowed_origins=["${address}"]`);
  const proxy = await ownProxy(own.http);
  const { page, faults } = await opened(address);
  const state = page.locator("#state");
  const events = page.locator("#events code");

  await page.getByLabel("Bus").fill(proxy.url);
  await page.getByRole("button", { name: "Connect" }).click();
  await state.getByText("connected", { exact: true }).waitFor();
  await page.getByLabel("Payload").fill('{"from": "the page"}');
  await page.getByRole("button", { name: "Publish" }).click();
  await page.getByText("stored as event 1").waitFor();
  await events.getByText('{"from":"the page"}').waitFor();

  await control("cut", proxy.name);
  const elsewhere = await client(own.http);
  await elsewhere.publish("orders.created", { text: "<b>from elsewhere</b>" });
  await events.getByText('{"text":"<b>from elsewhere</b>"}').waitFor();
  expect(await page.locator("#events li").count()).toBe(2);

  await page.getByLabel("Payload").fill("not JSON");
  await page.getByRole("button", { name: "Publish" }).click();
  await page.getByText("not published: ").waitFor();
  expect(faults).toEqual([]);
});

test("the page says when it may not connect", async () => {
  const address = await served();
  const own = await ownBus(
    'auth.tokens=[{token="a-token",scopes=["publish:**"]}]',
    `auth.allowed_origins=["${address}"]`,
  );
  const { page } = await opened(address);
  await page.getByLabel("Bus").fill(own.http);
  await page.getByLabel("Token").fill("another-token");
  await page.getByRole("button", { name: "Connect" }).click();
  await page.getByText("closed: unknown token").waitFor();
});
