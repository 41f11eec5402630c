// The tabs of the list of messages, and saved searches: by keyboard and without scripts, with no axe-core findings.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { axeSource, follow, missing, signIn, startChromium, visitor } from "./support/browser.mjs";
import { startInstance } from "./support/instance.mjs";
import { createSampleMail } from "./support/sample_mail.mjs";

const skip = missing();
let chromium, instance;

before(async () => {
  if (skip) return;
  [chromium, instance] = await Promise.all([startChromium(), startInstance()]);
  await createSampleMail(instance);
});
after(async () => {
  await chromium?.close();
  await instance?.close();
});

const tab = (page, name) => page.getByRole("navigation", { name: "Messages by status" }).getByRole("link", { name });
const statuses = (page) => page.$$eval("table.messages td .badge", (all) => [...new Set(all.map((one) => one.textContent))].sort());

test("tabs narrow a search by groups of statuses, without scripts", { skip, timeout: 60_000 }, async () => {
  const { context, page, faults } = await visitor(chromium, instance, { scripts: false });
  await signIn(page, instance);
  await page.goto("/messages?q=your");
  const expected = { Problems: ["Bounced"], Waiting: ["Deferred"], Delivered: ["Delivered"] };
  for (const [name, shown] of Object.entries(expected)) {
    await follow(page, tab(page, name));
    assert.equal(await tab(page, name).getAttribute("aria-current"), "page");
    assert.deepEqual(await statuses(page), shown, name);
    assert.equal(await page.locator("#status").inputValue(), name.toLowerCase());
  }
  await follow(page, tab(page, "All"));
  assert.equal((await statuses(page)).length, 3);
  assert.deepEqual(faults, []);
  await context.close();
});

for (const scripts of [true, false]) {
  for (const theme of ["light", "dark"]) {
    test(`a search is saved, opened and removed, ${theme}, scripts: ${scripts}`, { skip, timeout: 60_000 }, async () => {
      const { context, page, faults } = await visitor(chromium, instance, { scripts, theme, width: 390, height: 844 });
      await signIn(page, instance);
      await page.goto("/messages?q=your&status=problems");
      await page.locator("summary").getByText("Save search").focus();
      await page.keyboard.press("Enter");
      await page.keyboard.press("Tab");
      await page.keyboard.type("Bounced orders of a shop with a very long name");
      const loaded = page.waitForEvent("load");
      await page.keyboard.press("Enter");
      await loaded;
      await page.getByText("Search saved.").waitFor();
      assert.deepEqual(await problems(page, scripts), []);
      await page.goto("/messages");
      await follow(page, page.getByRole("link", { name: "Bounced orders" }));
      assert.deepEqual(await statuses(page), ["Bounced"]);
      await follow(page, page.getByRole("button", { name: "Remove saved search Bounced orders" }));
      await page.getByText("Saved search removed.").waitFor();
      assert.equal(await page.getByRole("navigation", { name: "Saved searches" }).count(), 0);
      assert.deepEqual(faults, []);
      await context.close();
    });
  }
}

/** Returns horizontal scrolling and, with scripts, axe-core's findings. */
async function problems(page, scripts) {
  const [whole, seen] = await page.evaluate(() => {
    const root = document.documentElement;
    return [root.scrollWidth, root.clientWidth];
  });
  const found = whole > seen ? [`${whole - seen} px too wide`] : [];
  if (!scripts) return found;
  await page.evaluate(axeSource());
  const { violations } = await page.evaluate(() => window.axe.run());
  return [...found, ...violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(" | ")}`)];
}
