import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const START_MS = 30_000;
const STOP_MS = 15_000;
const OUTPUT_CHARACTERS_MAX = 64 * 1024;

export interface ServerOptions {
  bin: string;
  arguments: readonly string[];
}

/** A process of `prom`. */
export class ServerProcess {
  readonly port: number;
  readonly #child: ChildProcess;
  readonly #exited: Promise<unknown>;
  readonly #kill: () => void;

  private constructor(child: ChildProcess, port: number, kill: () => void) {
    this.#child = child;
    this.port = port;
    this.#kill = kill;
    this.#exited = child.exitCode === null ? once(child, "exit") : Promise.resolve();
  }

  /** Starts it, and waits until it listens. */
  static async start(options: ServerOptions): Promise<ServerProcess> {
    const child = spawn(options.bin, [...options.arguments], {
      stdio: ["pipe", "pipe", "pipe"],
      // Neither settings of other servers nor a manifest that happens to lie here.
      env: ownEnvironment(),
      cwd: tmpdir(),
    });
    const kill = () => void child.kill("SIGKILL");
    process.once("exit", kill);
    try {
      const port = await listening(child, options);
      return new ServerProcess(child, port, kill);
    } catch (error) {
      kill();
      process.removeListener("exit", kill);
      throw error;
    }
  }

  /** Lets time go by for it; needs `--test-clock`. */
  async advance(ms: number): Promise<void> {
    const { stdin, stdout } = this.#child;
    if (stdin === null || stdout === null) {
      throw new Error("the server cannot be talked to");
    }
    const answered = new Promise<void>((resolve, reject) => {
      let said = "";
      const hear = (chunk: Buffer) => {
        said += chunk.toString();
        if (said.includes(`advanced ${ms}\n`)) {
          stdout.removeListener("data", hear);
          resolve();
        }
      };
      stdout.on("data", hear);
      this.#exited.then(() => reject(new Error("the server has ended")));
    });
    stdin.write(`advance ${ms}\n`);
    await answered;
  }

  /** Asks it to stop, and waits for it. */
  async stop(): Promise<number | null> {
    return this.#end("SIGTERM");
  }

  /** As a crash would end it. */
  async kill(): Promise<number | null> {
    return this.#end("SIGKILL");
  }

  async #end(signal: "SIGTERM" | "SIGKILL"): Promise<number | null> {
    process.removeListener("exit", this.#kill);
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      this.#child.kill(signal);
      const late = setTimeout(this.#kill, STOP_MS);
      await this.#exited;
      clearTimeout(late);
    }
    return this.#child.exitCode;
  }
}

/** What is set for other servers does not hold for this one. */
function ownEnvironment(): NodeJS.ProcessEnv {
  const entries = Object.entries(process.env).filter(([name]) => !name.startsWith("PROM_"));
  return Object.fromEntries(entries);
}

/** The port it says it listens on. */
function listening(child: ChildProcess, options: ServerOptions): Promise<number> {
  return new Promise((fulfil, reject) => {
    let said = "";
    const command = `${options.bin} ${options.arguments.join(" ")}`;
    const timer = setTimeout(() => {
      reject(new Error(`${command} does not say where it listens:\n${said}`));
    }, START_MS);
    const hear = (chunk: Buffer) => {
      said = (said + chunk.toString()).slice(-OUTPUT_CHARACTERS_MAX);
      const port = /127\.0\.0\.1:(\d+)/.exec(said)?.[1];
      if (port !== undefined) {
        clearTimeout(timer);
        fulfil(Number(port));
      }
    };
    child.stdout?.on("data", hear);
    child.stderr?.on("data", hear);
    child.once("error", (error) => {
      clearTimeout(timer);
      reject(new Error(`cannot run ${options.bin}: ${error.message}`));
    });
    child.once("exit", (code) => {
      clearTimeout(timer);
      reject(new Error(`${command} ended with code ${code}:\n${said}`));
    });
  });
}

/** The binary: as it was said, as `PROM_BIN` says, in a build next to the sources, or on `PATH`. */
export function findBinary(bin: string | undefined): string {
  const told = bin ?? process.env.PROM_BIN;
  if (told !== undefined && told !== "") {
    return told.includes("/") ? resolve(told) : told;
  }
  const places: string[] = [];
  let folder = dirname(fileURLToPath(import.meta.url));
  while (folder !== dirname(folder)) {
    places.push(join(folder, "target/debug/prom"), join(folder, "target/release/prom"));
    folder = dirname(folder);
  }
  const path = process.env.PATH ?? "";
  places.push(...path.split(delimiter).map((directory) => join(directory, "prom")));
  const found = places.find(isExecutable);
  if (found === undefined) {
    throw new Error("no prom binary: run `cargo build -p prom`, or say where it is in PROM_BIN");
  }
  return found;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
