import { expect, test } from "vitest";
import { busAddresses } from "./addresses.js";

test.each([
  ["http://127.0.0.1:8083", undefined, "ws://127.0.0.1:8083/ws", "http://127.0.0.1:8083/"],
  ["https://bus.example/", undefined, "wss://bus.example/ws", "https://bus.example/"],
  ["ws://127.0.0.1:8090/", undefined, "ws://127.0.0.1:8090/", undefined],
  ["ws://127.0.0.1:8090/", "http://127.0.0.1:8083", "ws://127.0.0.1:8090/", "http://127.0.0.1:8083/"],
  ["wss://bus.example/ws", undefined, "wss://bus.example/ws", "https://bus.example/"],
])("derives the addresses from %s and %s", (url, httpUrl, webSocket, http) => {
  const addresses = busAddresses(url, httpUrl);
  expect(addresses.webSocket.href).toBe(webSocket);
  expect(addresses.http?.href).toBe(http);
});

test("rejects other addresses", () => {
  expect(() => busAddresses("ftp://bus.example", undefined)).toThrow("unsupported protocol ftp:");
  expect(() => busAddresses("somewhere", undefined)).toThrow("Invalid URL");
});
