// Chromium for the tests, with checks on every page: policy violations, script errors, and requests to other hosts.

import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const modules = createRequire(join(process.env.POSTRIDER_PEERS_DIR ?? ".", "node", "index.js"));
const CHROMIUM = ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find(existsSync);

/** Returns the reason to skip all tests, or undefined if they can run. */
export function missing() {
  const absent = [];
  if (!CHROMIUM) absent.push("chromium");
  for (const name of ["playwright-core", "axe-core"]) {
    try {
      modules.resolve(name);
    } catch {
      absent.push(name);
    }
  }
  if (absent.length === 0) return undefined;
  if (process.env.POSTRIDER_PEERS_REQUIRED) throw new Error(`missing: ${absent.join(", ")}`);
  return `missing: ${absent.join(", ")}`;
}

/** Starts Chromium. */
export function startChromium() {
  const { chromium } = modules("playwright-core");
  // Root has no sandbox, and only our own pages are opened. A container's /dev/shm is too small for a renderer.
  const args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"];
  return chromium.launch({ executablePath: CHROMIUM, args });
}

/** Returns a visitor with separate cookies. `options` sets colours, window size and scripts. */
export async function visitor(chromium, instance, options = {}) {
  const { theme = "light", width = 1440, height = 900, scripts = true } = options;
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
  const checkRequest = (request) => {
    const url = new URL(request.url());
    const refused = request.failure()?.errorText === "csp";
    if (url.origin !== instance.url && url.protocol !== "data:" && !refused) {
      faults.push(`foreign request: ${request.url()} ${request.failure()?.errorText}`);
    }
  };
  page.on("requestfinished", checkRequest);
  page.on("requestfailed", checkRequest);
}

async function watchPolicy(context, faults) {
  await context.exposeBinding("reportViolation", ({ frame, page: from }, what) => {
    // A preview frame contains foreign HTML, which the policy should block.
    if (frame === from.mainFrame()) faults.push(`policy: ${what} at ${from.url()}`);
  });
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      window.reportViolation(`${event.effectiveDirective} ${event.blockedURI} ${event.sample}`);
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

/** Returns the source of axe-core. */
export function axeSource() {
  return modules("axe-core").source;
}
