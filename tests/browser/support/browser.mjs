// Chromium as a visitor uses it, and the checks of every page: policy violations, script errors, and requests to other
// hosts.

import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const modules = createRequire(join(process.env.POSTRIDER_PEERS_DIR ?? ".", "node", "index.js"));
const CHROMIUM = ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find(existsSync);

/** The reason to skip all tests; empty if they can run. */
export function missing() {
  const lacks = [];
  if (!CHROMIUM) lacks.push("chromium");
  for (const name of ["playwright-core", "axe-core"]) {
    try {
      modules.resolve(name);
    } catch {
      lacks.push(name);
    }
  }
  if (lacks.length === 0) return undefined;
  if (process.env.POSTRIDER_PEERS_REQUIRED) throw new Error(`missing: ${lacks.join(", ")}`);
  return `missing: ${lacks.join(", ")}`;
}

/** Starts Chromium. */
export function startChromium() {
  const { chromium } = modules("playwright-core");
  // Root has no sandbox, and only our own pages are opened. A container's /dev/shm is too small for a renderer.
  const args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"];
  return chromium.launch({ executablePath: CHROMIUM, args });
}

/** A visitor with separate cookies. `look` sets the browser's preferences: colours, size, scripts. */
export async function visitor(chromium, instance, look = {}) {
  const { theme = "light", width = 1440, height = 900, scripts = true } = look;
  const context = await chromium.newContext({
    baseURL: instance.url,
    colorScheme: theme,
    viewport: { width, height },
    javaScriptEnabled: scripts,
    reducedMotion: "reduce",
  });
  context.setDefaultTimeout(15_000);
  const faults = [];
  await watchPolicy(context, faults);
  const page = await context.newPage();
  watchPage(page, instance, faults);
  return { context, page, faults };
}

/** Watches `page` and adds problems to `faults`. */
export function watchPage(page, instance, faults) {
  page.on("dialog", (dialog) => {
    faults.push(`dialog: ${dialog.message()} at ${page.url()}`);
    dialog.dismiss().catch(() => {});
  });
  page.on("pageerror", (error) => faults.push(`script: ${error.message} at ${page.url()}`));
  const asked = (request) => {
    const url = new URL(request.url());
    const refused = request.failure()?.errorText === "csp";
    if (url.origin !== instance.url && url.protocol !== "data:" && !refused) {
      faults.push(`foreign request: ${request.url()} ${request.failure()?.errorText}`);
    }
  };
  page.on("requestfinished", asked);
  page.on("requestfailed", asked);
}

async function watchPolicy(context, faults) {
  await context.exposeBinding("tellViolation", ({ frame, page: from }, what) => {
    // The frame of a preview contains other people's HTML, which the policy is meant to block.
    if (frame === from.mainFrame()) faults.push(`policy: ${what} at ${from.url()}`);
  });
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      window.tellViolation(`${event.effectiveDirective} ${event.blockedURI} ${event.sample}`);
    });
  });
}

/** Follows a link or button to another page and waits until it is loaded, before the test may continue. */
export async function follow(page, button) {
  const loaded = page.waitForEvent("load");
  await button.click();
  await loaded;
}

/** Signs in with the form. */
export async function signIn(page, instance) {
  await page.goto(instance.info.panel_url);
  await page.getByLabel("Address").fill(instance.info.panel_user);
  await page.getByLabel("Password").fill(instance.info.panel_password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL((url) => url.pathname === "/");
}

/** Source of axe-core. */
export function axeSource() {
  return modules("axe-core").source;
}
