import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { shared } from "../suite/bus.js";
import { packageFolder, run } from "./running.js";

const file = (path: string) => readFile(join(packageFolder, path), "utf8");

test("the first program of the README has at most ten lines, and runs", async () => {
  const program = /```js\n(.*?)```/s.exec(await file("README.md"))?.[1] ?? "";
  expect(program.trim().split("\n").length).toBeLessThanOrEqual(10);
  expect(program).toContain('"http://127.0.0.1:8083"');
  const here = program.replace("http://127.0.0.1:8083", shared().http);
  const running = run(["--input-type=module", "--eval", here]);
  await running.says("order { order: 1 }");
});

test("the package holds what is built, and nothing else", async () => {
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

test("the package has no dependencies, the version of the workspace, and its licence", async () => {
  const { dependencies, version, license } = JSON.parse(await file("package.json")) as Record<string, unknown>;
  const workspace = await file("../../Cargo.toml");
  expect(dependencies).toBeUndefined();
  expect(version).toBe(/^version = "(.*)"$/m.exec(workspace)?.[1]);
  expect(license).toBe("Apache-2.0");
  expect(await file("LICENSE")).toBe(await file("../../LICENSE"));
});

test("the lock file names no registry", async () => {
  expect(await file("package-lock.json")).not.toMatch(/"resolved"|https?:\/\/[^"]*registry/);
});

test("everything that is exported is documented", async () => {
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

/** What has no comment before it: the declaration of `name`, and its members but for what overrides a documented one. */
function undocumented(lines: string[], name: string): string[] {
  const begin = lines.findIndex((line) =>
    new RegExp(`^export .*\\b(class|interface|type|function|const) ${name}\\b`).test(line),
  );
  if (begin < 0) return ["not found"];
  const end = lines[begin]?.endsWith("{") ? lines.indexOf("}", begin) : begin;
  const members = lines.slice(begin + 1, end).map((line, n) => ({ line, n: begin + 1 + n }));
  const overriding = /^ {4}(readonly |get )*(name|code|isRetryable|retryAfterMs)\b/;
  return [{ line: lines[begin] as string, n: begin }, ...members]
    .filter(({ line, n }) => n === begin || (/^ {4}[a-zA-Z[]/.test(line) && !overriding.test(line)))
    .filter(({ n }) => !lines[n - 1]?.trim().endsWith("*/"))
    .map(({ line }) => line);
}
