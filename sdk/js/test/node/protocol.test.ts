import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ERROR_CODES, RefusedError } from "../../src/index.js";
import { finalClose } from "../../src/session/close-codes.js";
import { packageFolder } from "./run-node.js";

const protocol = await readFile(join(packageFolder, "../../docs/protocol.md"), "utf8");

/** Returns the rows of the first table after a heading. */
function rowsAfter(heading: string): string[][] {
  const section = protocol.slice(protocol.indexOf(heading));
  const table = /\n(\|.*\n)+/.exec(section)?.[0] ?? "";
  const rows = table.trim().split("\n").slice(2);
  return rows.map((row) => row.split("|").map((cell) => cell.trim())).map((cells) => cells.slice(1, -1));
}

test("error codes, and whether they are retryable, match the protocol", () => {
  const rows = rowsAfter("### Error codes").map(([code = "", , again]) => [code.replaceAll("`", ""), again === "yes"]);
  const ours = ERROR_CODES.map((code) => [code, new RefusedError(code, "", 1).isRetryable]);
  expect(ours).toEqual(rows);
});

test("reconnects after the close codes that the protocol lists for that", () => {
  const rows = rowsAfter("### Close codes");
  expect(rows.length).toBeGreaterThan(5);
  for (const [code, reason = "", again] of rows) {
    const reconnects = finalClose(Number(code), reason, true) === undefined;
    expect({ code, reconnects }).toEqual({ code, reconnects: again?.startsWith("yes") });
  }
});
