// Control of waiting mail, with and without scripts, and the event download.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";

import { missing, signIn, startChromium, visitor } from "./support/browser.mjs";
import { startInstance } from "./support/instance.mjs";

const skip = missing();
let chromium, instance;

before(async () => {
  if (!skip) [chromium, instance] = await Promise.all([startChromium(), startInstance()]);
});
after(async () => {
  await chromium?.close();
  await instance?.close();
});

/** Runs a test as a signed-in visitor. */
function scenario(name, options, run) {
  test(name, { skip, timeout: 120_000 }, async () => {
    const { context, page, faults } = await visitor(chromium, instance, options);
    await signIn(page, instance);
    await run(page);
    await context.close();
    assert.deepEqual(faults, []);
  });
}

const press = async (page, name, then) => {
  await page.getByRole("button", { name }).first().click();
  await page.getByRole("status").filter({ hasText: then }).waitFor();
};

for (const scripts of [true, false]) {
  const mode = scripts ? "with scripts" : "without scripts";
  scenario(`a paused site keeps its mail until it is resumed, ${mode}`, { scripts }, async (page) => {
    await instance.send({ to: `full+${scripts}@simulator.test` });
    await instance.advance(0);
    await page.goto("/queue");
    await press(page, "Pause mail for", "Paused;");
    await page.goto("/");
    await page.getByRole("link", { name: "Open queue" }).waitFor();
    const id = await instance.send({ to: `delivered+paused-${scripts}@simulator.test` });
    await instance.advance(3600);
    await page.goto(`/messages/${id}`);
    await page.getByText("is paused: see the").waitFor();
    assert.deepEqual(await page.locator(".timeline > li .badge").allInnerTexts(), ["Queued"]);
    await page.goto("/queue");
    await press(page, "Resume mail for", "Resumed.");
    await instance.advance(0);
    await page.goto(`/messages/${id}`);
    await page.locator(".timeline .badge.good").waitFor();
    await page.goto("/audit");
    await page.getByText("resumed mail for").first().waitFor();
  });

  scenario(`a deferred message is retried at once, ${mode}`, { scripts }, async (page) => {
    const id = await instance.send({ to: `deferred+${scripts}@simulator.test` });
    await instance.advance(0);
    for (const attempts of [2, 3]) {
      await page.goto(`/messages/${id}`);
      await press(page, "Retry now", "Retrying now.");
      await instance.advance(0);
      await page.goto(`/messages/${id}`);
      assert.equal(await page.locator(".timeline > li").count(), attempts + 1);
    }
    await page.locator("#state .badge.good").waitFor();
  });
}

scenario("a paused domain of recipients is named beside its mail", {}, async (page) => {
  await page.goto("/queue");
  const status = await page.evaluate(async () => {
    const body = new URLSearchParams({ site: "simulator.test" });
    return (await fetch("/queue/pause", { method: "POST", body })).status;
  });
  assert.equal(status, 200);
  await instance.send({ to: "delivered+domain@simulator.test" });
  await instance.advance(0);
  await page.goto("/");
  await page.getByText("Sending to simulator.test is paused.").waitFor();
  await page.goto("/queue");
  await page.getByText(/Mail for simulator.test is paused since .*: \d+ messages? waits?\./).waitFor();
  await page.locator(".badge").getByText("Paused").waitFor();
  await press(page, "Resume mail for simulator.test", "Resumed.");
  await page.goto("/queue");
  assert.equal(await page.getByText("is paused since").count(), 0);
});

scenario("the page about providers says that mail waits", {}, async (page) => {
  await instance.send({ to: "full+provider@simulator.test" });
  await instance.advance(0);
  await page.goto("/providers");
  const row = page.getByRole("region", { name: "By provider" }).getByRole("row", { name: "Other" });
  await row.locator(".badge").getByText("Deferring").waitFor();
  await row.getByRole("link", { name: /^\d+ waiting$/ }).click();
  await page.waitForURL("**/queue");
});

scenario("the shown events can be downloaded as JSON lines", {}, async (page) => {
  const id = await instance.send({ to: "bounced+file@simulator.test" });
  await instance.advance(0);
  await page.goto(`/events?message_id=${id}`);
  const [file] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "NDJSON" }).click(),
  ]);
  assert.match(file.suggestedFilename(), /^events-\d{4}-\d\d-\d\d-\d{4}-\d\d-\d\d\.ndjson$/);
  const events = readFileSync(await file.path(), "utf8").trimEnd().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(events.map((event) => [event.type, event.message_id]), [["queued", id], ["bounced", id]]);
});
