import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import { until } from "../suite/bus.js";

/** The folder of the package. */
export const packageFolder = fileURLToPath(new URL("../..", import.meta.url));

/** Runs a program with Node in the folder of the package, until the test finishes. */
export function run(args: string[], environment: Record<string, string> = {}) {
  const child = spawn(process.execPath, args, { cwd: packageFolder, env: { ...process.env, ...environment } });
  const output = { out: "", err: "" };
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
    output.out += chunk;
  });
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
    output.err += chunk;
  });
  const exited = once(child, "exit") as Promise<[number | null, NodeJS.Signals | null]>;
  const end = async (signal: NodeJS.Signals) => {
    child.kill(signal);
    return (await exited)[0];
  };
  onTestFinished(async () => {
    if (child.exitCode === null && child.signalCode === null) await end("SIGKILL");
  });
  const prints = (text: string) =>
    until(() => {
      if (child.exitCode !== null) throw new Error(`exited with ${child.exitCode}: ${output.out}${output.err}`);
      return output.out.includes(text);
    });
  return { output, prints, end, exited: exited.then(([code]) => code) };
}
