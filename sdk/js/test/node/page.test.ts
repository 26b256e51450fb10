import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";
import { chromium } from "playwright";
import { expect, onTestFinished, test } from "vitest";
import { client, control, ownBus, ownProxy } from "../suite/bus.js";
import { packageFolder } from "./run-node.js";

const TYPES: Record<string, string> = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };

/** Serves the folder of the package. */
async function servePackage(): Promise<string> {
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

async function openPage(address: string) {
  const browser = await chromium.launch({
    executablePath: process.env.PROMBUS_CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"],
  });
  onTestFinished(() => browser.close());
  const page = await browser.newPage();
  const errors: string[] = [];
  page.on("pageerror", (error) => void errors.push(String(error)));
  await page.goto(`${address}/examples/browser/index.html`);
  return { page, errors };
}

test("the page publishes, shows events, and survives a lost connection", async () => {
  const address = await servePackage();
  const own = await ownBus(`auth.allowed_origins=["${address}"]`);
  const proxy = await ownProxy(own.http);
  const { page, errors } = await openPage(address);
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
  const publisher = await client(own.http);
  await publisher.publish("orders.created", { text: "<b>from Node</b>" });
  await events.getByText('{"text":"<b>from Node</b>"}').waitFor();
  expect(await page.locator("#events li").count()).toBe(2);

  await page.getByLabel("Payload").fill("not JSON");
  await page.getByRole("button", { name: "Publish" }).click();
  await page.getByText("cannot publish: ").waitFor();
  expect(errors).toEqual([]);
});

test("the page shows why it cannot connect", async () => {
  const address = await servePackage();
  const own = await ownBus(
    'auth.tokens=[{token="a-token",scopes=["publish:**"]}]',
    `auth.allowed_origins=["${address}"]`,
  );
  const { page } = await openPage(address);
  await page.getByLabel("Bus").fill(own.http);
  await page.getByLabel("Token").fill("another-token");
  await page.getByRole("button", { name: "Connect" }).click();
  await page.getByText(/^closed: .*token/).waitFor();
});
