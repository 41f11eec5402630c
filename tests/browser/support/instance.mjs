// The program under test: `postrider dev` on a new directory, with a virtual clock.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const START_MS = 30_000;
const STOP_MS = 35_000;

/** Starts an instance. `config` overrides its defaults. Stop it with `close`. */
export async function startInstance(config = "") {
  const folder = mkdtempSync(join(tmpdir(), "postrider-browser-"));
  const file = join(folder, "postrider.toml");
  writeFileSync(file, config);
  const args = ["dev", "--json", "--virtual-clock", "--listen", "127.0.0.1:0", "--config", file];
  const more = config.includes("[[relay]]") ? ["--deliver"] : [];
  const child = spawn(process.env.POSTRIDER_BIN, [...args, "--data-dir", join(folder, "data"), ...more], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, POSTRIDER_LOG__LEVEL: "error" },
  });
  try {
    return new Instance(JSON.parse(await firstLine(child)), child, folder);
  } catch (error) {
    child.kill("SIGKILL");
    throw error;
  }
}

async function firstLine(child) {
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const late = new Promise((_, reject) => {
    setTimeout(() => reject(new Error("dev did not become ready")), START_MS).unref();
  });
  const { value, done } = await Promise.race([lines.next(), late]);
  if (done) throw new Error("dev ended before it was ready");
  return value;
}

/** A running instance with its API and clock. */
export class Instance {
  constructor(info, child, folder) {
    Object.assign(this, { info, url: info.url, child, folder });
  }

  /** Sends an API request. A status other than 2xx fails the test. */
  async ask(method, path, body, key = this.info.api_key) {
    const answer = await fetch(this.url + path, {
      method,
      headers: { Authorization: `Bearer ${key}`, ...(body && { "Content-Type": "application/json" }) },
      body: body && JSON.stringify(body),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text && JSON.parse(text);
  }

  /** Sends a message with these members in addition to the defaults; returns its identifier. */
  async send(members, key) {
    const usual = { from: "shop@example.test", subject: "Your order", text: "Thank you for your order." };
    return (await this.ask("POST", "/v1/messages", { ...usual, ...members }, key)).id;
  }

  /** Makes a user an operator with the command line. */
  async makeOperator(email) {
    const args = ["user", "set", email, "--operator", "--data-dir", join(this.folder, "data")];
    const child = spawn(process.env.POSTRIDER_BIN, args, { stdio: ["ignore", "ignore", "inherit"] });
    const code = await new Promise((resolve) => child.once("exit", resolve));
    if (code !== 0) throw new Error(`user set ended with ${code}`);
  }

  /** Advances the clock. All due work is done when this returns. */
  advance(seconds) {
    return this.ask("POST", "/dev/clock", { advance_seconds: seconds });
  }

  /** Stops the instance and removes its directory. */
  async close() {
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill("SIGTERM");
    const kill = setTimeout(() => this.child.kill("SIGKILL"), STOP_MS);
    await ended;
    clearTimeout(kill);
    rmSync(this.folder, { recursive: true, force: true });
  }
}
