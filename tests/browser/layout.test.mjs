// Layout that only a browser shows: where links within a page lead, the menu of narrow windows, and live counts.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { missing, signIn, startChromium, visitor } from "./support/browser.mjs";
import { startInstance } from "./support/instance.mjs";

const skip = missing();
let chromium, instance;

before(async () => {
  if (skip) return;
  [chromium, instance] = await Promise.all([startChromium(), startInstance()]);
  await instance.makeOperator("dev@example.test");
});
after(async () => {
  await chromium?.close();
  await instance?.close();
});

/** Runs a test as a signed-in visitor. */
function scenario(name, options, run) {
  test(name, { skip, timeout: 60_000 }, async () => {
    const { context, page, faults } = await visitor(chromium, instance, options);
    await signIn(page, instance);
    await run(page);
    await context.close();
    assert.deepEqual(faults, []);
  });
}

for (const scripts of [true, false]) {
  const mode = scripts ? "with scripts" : "without scripts";
  scenario(`a link to a form has its focus in the first field, below the heading, ${mode}`, { scripts }, async (page) => {
    await page.goto("/accounts");
    await page.locator("td.subject a").first().click();
    const account = page.url();
    for (const [link, heading] of [["Suspend", "Suspend account"], ["View as", /^View as/]]) {
      await page.goto(account);
      await page.getByRole("link", { name: link, exact: true }).click();
      const form = page.locator("section", { has: page.getByRole("heading", { name: heading, level: 2 }) });
      await form.locator("input[name=reason]:focus").waitFor();
      const { y } = await form.getByRole("heading", { level: 2 }).boundingBox();
      assert.ok(y >= 0 && y < 900, `${link}: the heading is at ${y}`);
    }
  });
}

scenario("the menu of a narrow window closes by its button and shows all pages at once", { width: 390, height: 844 }, async (page) => {
  const menu = page.locator(".menu summary");
  assert.equal(await menu.innerText(), "Menu");
  await menu.click();
  assert.equal(await menu.innerText(), "Close");
  const links = await page.locator("nav[aria-label=Panel] a").all();
  assert.ok(links.length > 15);
  for (const link of links) {
    const { y, height } = await link.boundingBox();
    assert.ok(height >= 44 && y + height <= 844, `${await link.innerText()} ends at ${y + height}`);
  }
});

scenario("the count of the queue follows its list", {}, async (page) => {
  await page.goto("/queue");
  await page.getByText("Live", { exact: true }).waitFor();
  await instance.send({ to: "full+count@simulator.test" });
  await instance.advance(0);
  await page.locator("nav[aria-label=Panel] a[href='/queue'] .count").getByText("1").waitFor();
});

scenario("a check box that is not checked looks like a field in the dark", { theme: "dark" }, async (page) => {
  await page.goto("/keys");
  const boxes = page.locator("input[type=checkbox]:not(:checked)");
  const fill = (locator) => locator.evaluate((field) => getComputedStyle(field).backgroundColor);
  assert.equal(await fill(boxes.first()), await fill(page.getByLabel("Name", { exact: true })));
});

scenario("names of recipients, subjects and destinations are whole at 1024 pixels", { width: 1024, height: 768 }, async (page) => {
  const subject = "Your booking confirmation for the harbour tour";
  await instance.send({ to: "full+a.rather.long.name@simulator.test", subject });
  await instance.send({ to: "complained+a.rather.long.name@simulator.test", subject });
  await instance.advance(90);
  await page.goto("/messages");
  const cut = await page.$$eval(".messages td:not(.subject), .messages td.subject > a", (cells) =>
    cells
      .filter((cell) => cell.scrollHeight > cell.clientHeight + 1 || cell.scrollWidth > cell.clientWidth + 1)
      .map((cell) => cell.textContent),
  );
  assert.deepEqual(cut, []);
  await page.goto("/queue");
  const { height } = await page.locator(".queue tbody th .hint").first().boundingBox();
  assert.ok(height < 24, `the domains take one line: ${height}`);
  for (const time of await page.locator(".queue td.when time").all()) {
    const box = await time.boundingBox();
    assert.ok(box.height < 48, `a time takes two lines at most: ${box.height}`);
  }
});

scenario("a time in a search is shown in its field and stays when the filters are applied", {}, async (page) => {
  await page.goto("/messages?q=after%3A2026-01-02T15%3A00%3A00.000Z");
  const field = page.locator("#after");
  assert.equal(await field.getAttribute("type"), "datetime-local");
  assert.equal(await field.inputValue(), "2026-01-02T15:00");
  await page.getByRole("link", { name: "Remove the filter Accepted from 2 Jan 2026, 15:00 UTC" }).waitFor();
  await page.getByRole("button", { name: "Apply" }).click();
  await page.waitForURL((url) => url.searchParams.get("after") === "2026-01-02T15:00");
  assert.equal(await page.locator("#after").inputValue(), "2026-01-02T15:00");
});
