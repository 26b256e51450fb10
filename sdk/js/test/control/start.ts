import type { TestProject } from "vitest/node";
import { ControlServer } from "./control-server.js";

declare module "vitest" {
  interface ProvidedContext {
    /** The address of the control server. */
    control: string;
  }
}

export default async function start(project: TestProject): Promise<() => Promise<void>> {
  const control = new ControlServer();
  project.provide("control", await control.start());
  return () => control.stop();
}
