import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ERROR_CODES, RefusedError } from "../../src/index.js";
import { finalClose } from "../../src/session/close-codes.js";
import { packageFolder } from "./running.js";

const protocol = await readFile(join(packageFolder, "../../docs/protocol.md"), "utf8");

/** The rows of the table behind a heading. */
function rowsBehind(heading: string): string[][] {
  const behind = protocol.slice(protocol.indexOf(heading));
  const table = /\n(\|.*\n)+/.exec(behind)?.[0] ?? "";
  const rows = table.trim().split("\n").slice(2);
  return rows.map((row) => row.split("|").map((cell) => cell.trim())).map((cells) => cells.slice(1, -1));
}

test("the error codes are those of the protocol, and as retryable", () => {
  const rows = rowsBehind("### Error codes").map(([code = "", , again]) => [code.replaceAll("`", ""), again === "yes"]);
  const ours = ERROR_CODES.map((code) => [code, new RefusedError(code, "", 1).isRetryable]);
  expect(ours).toEqual(rows);
});

test("close codes are taken as the protocol says", () => {
  const rows = rowsBehind("### Close codes");
  expect(rows.length).toBeGreaterThan(5);
  for (const [code, reason = "", again] of rows) {
    const connectsAgain = finalClose(Number(code), reason, true) === undefined;
    expect({ code, connectsAgain }).toEqual({ code, connectsAgain: again?.startsWith("yes") });
  }
});
