import type { TestProject } from "vitest/node";
import { ControlServer } from "./control-server.js";

declare module "vitest" {
  interface ProvidedContext {
    /** Where the control server is. */
    control: string;
  }
}

export default async function start(project: TestProject): Promise<() => Promise<void>> {
  const control = new ControlServer();
  project.provide("control", await control.start());
  return () => control.stop();
}
