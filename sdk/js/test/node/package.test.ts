import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { build } from "vite";
import { expect, test } from "vitest";
import { shared } from "../suite/bus.js";
import { packageFolder, run } from "./run-node.js";

const file = (path: string) => readFile(join(packageFolder, path), "utf8");

test("the first program of the README has at most ten lines and runs", async () => {
  const program = /```js\n(.*?)```/s.exec(await file("README.md"))?.[1] ?? "";
  expect(program.trim().split("\n").length).toBeLessThanOrEqual(10);
  expect(program).toContain('"http://127.0.0.1:8083"');
  const local = program.replace("http://127.0.0.1:8083", shared().http);
  const running = run(["--input-type=module", "--eval", local]);
  await running.prints("order { order: 1 }");
});

test("the package contains the build and nothing else", async () => {
  const { stdout } = await promisify(execFile)("npm", ["pack", "--dry-run", "--json"], { cwd: packageFolder });
  const [{ files }] = JSON.parse(stdout) as [{ files: { path: string }[] }];
  const paths = files.map(({ path }) => path);
  const others = paths.filter((path) => !path.startsWith("dist/"));
  expect(others.sort()).toEqual(["LICENSE", "README.md", "package.json"]);
  expect(paths).toContain("dist/index.js");
  expect(paths).toContain("dist/index.d.ts");
  expect(paths.filter((path) => !/\.(js|d\.ts)$/.test(path) && path.startsWith("dist/"))).toEqual([]);
  expect(paths.filter((path) => path.includes(".test."))).toEqual([]);
});

test("the package depends on ws alone, and has the version and licence of the workspace", async () => {
  const { dependencies, version, license } = JSON.parse(await file("package.json")) as Record<string, unknown>;
  const workspace = await file("../../Cargo.toml");
  expect(Object.keys(dependencies as object)).toEqual(["ws"]);
  expect(version).toBe(/^version = "(.*)"$/m.exec(workspace)?.[1]);
  expect(license).toBe("Apache-2.0");
  expect(await file("LICENSE")).toBe(await file("../../LICENSE"));
});

test("a bundle for browsers contains nothing of ws or Node", async () => {
  const result = await build({
    root: packageFolder,
    configFile: false,
    logLevel: "error",
    build: { write: false, lib: { entry: "dist/index.js", formats: ["es"] } },
  });
  const chunks = [result].flat().flatMap((bundle) => ("output" in bundle ? bundle.output : []));
  const code = chunks.map((chunk) => (chunk.type === "chunk" ? chunk.code : "")).join("\n");
  expect(code).toContain("PUBLISH");
  expect(code).not.toMatch(/Sec-WebSocket|permessage-deflate|node:|require\(/i);
  expect(code.length).toBeLessThan(60_000);
});

test("the lock file names no registry", async () => {
  expect(await file("package-lock.json")).not.toMatch(/"resolved"|https?:\/\/[^"]*registry/);
});

test("every export is documented", async () => {
  const index = await file("dist/index.d.ts");
  const missing: string[] = [];
  let items = 0;
  for (const [, list = "", path] of index.matchAll(/^export (?:type )?\{(.*?)\} from "\.\/(.*?)\.js"/gms)) {
    const lines = (await file(`dist/${path}.d.ts`)).split("\n");
    for (const name of list.split(",").map((word) => word.replace("type ", "").trim())) {
      items += 1;
      missing.push(...undocumented(lines, name).map((line) => `${name}: ${line}`));
    }
  }
  expect(missing).toEqual([]);
  expect(items).toBeGreaterThan(40);
});

/** Returns the undocumented lines of the declaration of `name`: itself and its members, without overrides. */
function undocumented(lines: string[], name: string): string[] {
  const start = lines.findIndex((line) =>
    new RegExp(`^export .*\\b(class|interface|type|function|const) ${name}\\b`).test(line),
  );
  if (start < 0) return ["not found"];
  const end = lines[start]?.endsWith("{") ? lines.indexOf("}", start) : start;
  const members = lines.slice(start + 1, end).map((line, n) => ({ line, n: start + 1 + n }));
  const overriding = /^ {4}(readonly |get )*(name|code|isRetryable|retryAfterMs)\b/;
  return [{ line: lines[start] as string, n: start }, ...members]
    .filter(({ line, n }) => n === start || (/^ {4}[a-zA-Z[]/.test(line) && !overriding.test(line)))
    .filter(({ n }) => !lines[n - 1]?.trim().endsWith("*/"))
    .map(({ line }) => line);
}
