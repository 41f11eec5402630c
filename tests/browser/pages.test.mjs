// Every page, in both themes and six widths, has no axe-core findings, no horizontal scrolling, no table whose columns
// or times are cut off, no violations of the content security policy, the account menu in view, and stays below the
// size limit. With SCREENSHOTS=DIR it saves screenshots there.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { axeSource, missing, signIn, startChromium, visitor } from "./support/browser.mjs";
import { startHookServer } from "./support/hook_server.mjs";
import { startInstance } from "./support/instance.mjs";
import { createSampleMail } from "./support/sample_mail.mjs";
import { addresses } from "./support/walk.mjs";

const WIDTHS = [320, 768, 800, 1024, 1280, 1440];
const BYTES_MAX = 40_000;
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const screenshots = process.env.SCREENSHOTS;
const skip = missing();
let instance, chromium, empty, hooks;

before(async () => {
  if (skip) return;
  hooks = await startHookServer((event) => ({ status: event.type === "queued" ? 200 : 503, body: "<b>later</b>" }));
  const config = `[webhooks]\nextra_roots = "${hooks.roots}"\n[network]\nallow = ["127.0.0.0/8"]\n`;
  [instance, empty, chromium] = await Promise.all([startInstance(config), startInstance(), startChromium()]);
  await createSampleMail(instance, hooks.url);
  await instance.makeOperator("dev@example.test");
});
after(async () => {
  await chromium?.close();
  await Promise.all([instance?.close(), empty?.close()]);
  hooks?.close();
});

for (const theme of ["light", "dark"]) {
  test(`every page is accessible, fits and stays small, ${theme}`, { skip, timeout: 600_000 }, async () => {
    await checkEveryPage(instance, theme, "full");
  });
  test(`every empty page is accessible, fits and stays small, ${theme}`, { skip, timeout: 600_000 }, async () => {
    await checkEveryPage(empty, theme, "empty");
  });
}

test("a low window shows the whole navigation, and a phone its search", { skip, timeout: 60_000 }, async () => {
  const { context, page } = await visitor(chromium, instance, { width: 1024, height: 768 });
  await signIn(page, instance);
  const [last, foot] = await Promise.all(
    [".rail-foot a", ".me-foot"].map((part) => page.locator(part).boundingBox()),
  );
  assert.ok(last.y + last.height <= foot.y, "the end of the navigation is below the window");
  await page.setViewportSize({ width: 390, height: 844 });
  await page.goto("/messages");
  assert.ok(await page.locator("#q").isVisible(), "the list of messages has its search field");
  await page.locator(".bar-open").click();
  await page.getByRole("heading", { name: "Search", level: 1 }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), "open-q");
  await context.close();
});

async function checkEveryPage(of, theme, what) {
  const { context, page, faults } = await visitor(chromium, of, { theme });
  const found = [];
  await page.goto("/login");
  found.push(...(await problemsOf(page, "/login", theme, what)));
  await signIn(page, of);
  const all = await addresses(page);
  assert.ok(all.length > 8, `too few pages: ${all}`);
  for (const address of all) {
    const bytes = await transferredBytes(page, address);
    if (bytes > BYTES_MAX) found.push(`${address} transfers ${bytes} bytes`);
    found.push(...(await problemsOf(page, address, theme, what)));
  }
  if (what === "full") {
    await beginView(page, all.find((address) => address.startsWith("/accounts/")));
    found.push(...(await problemsOf(page, "/view", theme, what)));
    await page.getByRole("button", { name: "End view" }).click();
  }
  assert.deepEqual([...found, ...faults], []);
  await context.close();
}

/** Opens an account as an operator, at its overview. */
async function beginView(page, account) {
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.goto(account);
  await page.getByLabel("Reason").first().fill("ticket 4711: delayed mail");
  await page.getByRole("button", { name: "View as" }).click();
  await page.getByText("as operator").waitFor();
}

/** Opens a page with an empty cache and returns the transferred bytes. */
async function transferredBytes(page, address) {
  const wire = await page.context().newCDPSession(page);
  await wire.send("Network.enable");
  await wire.send("Network.setCacheDisabled", { cacheDisabled: true });
  let bytes = 0;
  wire.on("Network.loadingFinished", (event) => (bytes += event.encodedDataLength));
  await page.goto(address, { waitUntil: "load" });
  await wire.detach();
  return bytes;
}

/** Returns the problems of the open page at every width. */
async function problemsOf(page, address, theme, what) {
  const found = [];
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 900 });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (wide > 0) found.push(`${address} is ${wide} px too wide at ${width}`);
    const cut = [...(await cutTables(page, width)), ...(await cutCells(page)), ...(await hiddenMenu(page))];
    found.push(...cut.map((what) => `${address} at ${width}: ${what}`));
    if (screenshots) await saveScreenshot(page, [what, address, theme, width]);
    if (width !== WIDTHS.at(-1) && !(width === WIDTHS[0] && what === "full" && theme === "light")) continue;
    for (const { id, nodes } of await violations(page)) {
      found.push(`${address} at ${width}: ${id}: ${nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`);
    }
  }
  return found;
}

/** Returns tables that are wider than their container and can't be scrolled. On a desktop all tables must fit. */
function cutTables(page, width) {
  return page.$$eval(".table-wrap", (wraps, mayScroll) => {
    const scrolls = (wrap) => mayScroll && getComputedStyle(wrap).overflowX === "auto";
    const cut = wraps.filter((wrap) => wrap.scrollWidth > wrap.clientWidth + 1 && !scrolls(wrap));
    const start = (wrap) => wrap.textContent.trim().slice(0, 60);
    return cut.map((wrap) => `a table is cut off by ${wrap.scrollWidth - wrap.clientWidth} px: ${start(wrap)}`);
  }, width < 1280);
}

/** Returns cells with a time, a badge, a choice, an address, a name or a browser that are not shown completely. */
function cutCells(page) {
  const cells = "td.when, td:has(> .badge), select, .fixed td.subject, .messages td.to, td.agent";
  return page.$$eval(cells, (cells) => {
    const isCut = (cell) => cell.scrollWidth > cell.clientWidth + 1 && getComputedStyle(cell).overflow !== "visible";
    return cells.filter(isCut).map((cell) => `cut off: ${cell.textContent.trim().slice(0, 40)}`);
  });
}

/** Returns the account menu if it is below the window. Narrow windows have it in another menu. */
function hiddenMenu(page) {
  return page.$$eval(".me > summary", (menus) => {
    const isBelow = (menu) => menu.checkVisibility() && menu.getBoundingClientRect().bottom > window.innerHeight;
    return menus.filter(isBelow).map(() => "the account menu is below the window");
  });
}

async function violations(page) {
  await page.evaluate(axeSource());
  const result = await page.evaluate((values) => window.axe.run({ runOnly: { type: "tag", values } }), RULES);
  return result.violations;
}

async function saveScreenshot(page, parts) {
  mkdirSync(screenshots, { recursive: true });
  const name = parts.join("-").replace(/[a-z]{3}_[0-9A-Z]{26}/g, "one").replace(/[^\w=-]+/g, "_");
  await page.screenshot({ path: join(screenshots, `${name}.png`), fullPage: true });
}
