import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import { until } from "../suite/bus.js";

/** The folder of this package. */
export const packageFolder = fileURLToPath(new URL("../..", import.meta.url));

/** Runs a program with Node in the folder of this package, until the test is finished. */
export function run(args: string[], environment: Record<string, string> = {}) {
  const child = spawn(process.execPath, args, { cwd: packageFolder, env: { ...process.env, ...environment } });
  const said = { out: "", err: "" };
  child.stdout.setEncoding("utf8").on("data", (piece: string) => {
    said.out += piece;
  });
  child.stderr.setEncoding("utf8").on("data", (piece: string) => {
    said.err += piece;
  });
  const ended = once(child, "exit") as Promise<[number | null, NodeJS.Signals | null]>;
  const end = async (signal: NodeJS.Signals) => {
    child.kill(signal);
    return (await ended)[0];
  };
  onTestFinished(async () => {
    if (child.exitCode === null && child.signalCode === null) await end("SIGKILL");
  });
  const says = (text: string) =>
    until(() => {
      if (child.exitCode !== null) throw new Error(`it ended with ${child.exitCode}: ${said.out}${said.err}`);
      return said.out.includes(text);
    });
  return { said, says, end, ended: ended.then(([code]) => code) };
}
