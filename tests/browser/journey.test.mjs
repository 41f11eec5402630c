// Tasks of users in the panel, in a real browser against a running instance with its simulator.

import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { follow, missing, signIn, startChromium, visitor } from "./support/browser.mjs";
import { startHookServer } from "./support/hook_server.mjs";
import { startInstance } from "./support/instance.mjs";

const DAY = 24 * 3600;
const skip = missing();
let chromium, instance, page, context, faults;

before(async () => {
  if (!skip) chromium = await startChromium();
});
after(() => chromium?.close());
beforeEach(async () => {
  if (skip) return;
  instance = await startInstance();
  ({ page, context, faults } = await visitor(chromium, instance));
  await signIn(page, instance);
});
afterEach(async () => {
  if (skip) return;
  await context.close();
  await instance.close();
  assert.deepEqual(faults, []);
});

const scenario = (name, run) => test(name, { skip, timeout: 120_000 }, run);
const shown = (text) => page.getByText(text, { exact: false }).first().waitFor();
const steps = () => page.locator(".timeline > li .badge").allInnerTexts();

scenario("signing in continues to the requested page", async (t) => {
  const other = await visitor(chromium, instance);
  t.after(() => other.context.close());
  await other.page.goto("/settings");
  assert.equal(new URL(other.page.url()).pathname, "/login");
  await other.page.getByLabel("Address").fill(instance.info.panel_user);
  await other.page.getByLabel("Password").fill("not the password");
  await other.page.getByRole("button", { name: "Sign in" }).click();
  await other.page.getByRole("alert").waitFor();
  await other.page.getByLabel("Password").fill(instance.info.panel_password);
  await other.page.getByRole("button", { name: "Sign in" }).click();
  await other.page.waitForURL("**/settings");
});

scenario("an open message page updates its timeline", async () => {
  const id = await instance.send({ to: "deferred@simulator.test" });
  await instance.advance(0);
  await page.goto(`/messages/${id}`);
  assert.deepEqual(await steps(), ["Queued", "Deferred"]);
  await shown("451 4.7.1");
  await page.getByText("Live", { exact: true }).waitFor();
  await instance.advance(90);
  await instance.advance(180);
  await page.locator(".timeline .badge.good").waitFor();
  assert.deepEqual(await steps(), ["Queued", "Deferred", "Deferred", "Delivered"]);
  await page.locator("#state .badge.good").waitFor();
  await shown("localhost [127.0.0.1]");
});

scenario("a bounce shows the received answer and suppresses the address", async () => {
  const id = await instance.send({ to: "bounced+1@simulator.test" });
  await instance.advance(0);
  await page.goto("/messages?status=bounced");
  await page.locator(`a[href='/messages/${id}']`).click();
  await shown("550 5.1.1");
  await shown("User unknown in virtual mailbox table");
  await shown("the address gets no more mail");
  await assert.rejects(instance.send({ to: "bounced+1@simulator.test" }), /recipient_suppressed/);
});

scenario("a failed attempt shows its SMTP dialogue, and captured mail its rendered form", async () => {
  const failed = await instance.send({ to: "blocked@simulator.test" });
  const taken = await instance.send({ to: "ann@example.org", subject: "Captured", html: "<p>Hello <b>Ann</b></p>" });
  await instance.advance(0);
  await page.goto(`/messages/${failed}`);
  await page.getByText("SMTP conversation").click();
  const said = await page.locator(".transcript").innerText();
  assert.match(said, /> RCPT TO:<blocked@simulator\.test>/);
  assert.match(said, /< 550 5\.7\.1 See/);
  await page.getByRole("link", { name: "Captured mail" }).click();
  await page.getByRole("link", { name: "Captured", exact: true }).click();
  const seen = page.frameLocator("iframe.preview");
  await seen.getByText("Hello Ann").waitFor();
  await page.getByRole("link", { name: "Message and timeline" }).click();
  await page.waitForURL(`**/messages/${taken}`);
});

scenario("events appear live until they are paused", async () => {
  await page.goto("/events");
  await shown("No events yet");
  await page.getByText("Live", { exact: true }).waitFor();
  await instance.send({ to: "delivered+1@simulator.test", subject: "The first" });
  await instance.advance(0);
  await page.locator("td .badge.good").waitFor();
  await page.getByRole("button", { name: "Stop refreshing" }).click();
  await shown("Not refreshing");
  await instance.send({ to: "bounced+2@simulator.test", subject: "The second" });
  await instance.advance(0);
  await page.getByRole("button", { name: "Stop refreshing" }).click();
  await page.locator("td .badge.bad").waitFor();
  await page.getByRole("link", { name: "The second" }).first().click();
  await page.getByRole("heading", { name: "The second" }).waitFor();
});

scenario("the queue shows waiting mail, the last answer and the actions", async () => {
  await instance.send({ to: "full@simulator.test" });
  await instance.advance(0);
  await page.goto("/queue");
  await shown("452 4.2.2");
  await shown("their mailbox is full");
  await page.getByRole("link", { name: "Last attempted message" }).click();
  await page.getByRole("link", { name: "Cancel message" }).click();
  await follow(page, page.getByRole("button", { name: "Cancel message" }));
  await page.goto("/queue");
  await shown("Queue is empty");
});

scenario("a failing webhook is disabled, enabled again, and gets a new secret", async (t) => {
  let status = 500;
  const hooks = await startHookServer(() => ({ status, body: "<b>broken</b>" }));
  t.after(() => hooks.close());
  const own = await startInstance(`[webhooks]\nextra_roots = "${hooks.roots}"\n[network]\nallow = ["127.0.0.0/8"]\n`);
  t.after(() => own.close());
  const other = await visitor(chromium, own);
  t.after(() => other.context.close());
  await signIn(other.page, own);
  const { id } = await own.ask("POST", "/v1/webhooks", { url: hooks.url });
  for (let number = 0; number < 6; number += 1) await own.send({ to: `delivered+${number}@simulator.test` });
  await own.advance(0);
  await other.page.goto("/webhooks");
  await other.page.getByText("Disabled after repeated failures").first().waitFor();
  await other.page.goto(`/webhooks/${id}`);
  status = 200;
  await follow(other.page, other.page.getByRole("button", { name: "Reactivate" }).first());
  await own.advance(0);
  await other.page.reload();
  assert.equal((await own.ask("GET", `/v1/webhooks/${id}`)).enabled, true);
  assert.equal(await other.page.getByText("Disabled after repeated failures").count(), 0);
  await follow(other.page, other.page.getByRole("link", { name: "Settings" }).last());
  await other.page.getByRole("button", { name: "Rotate secret" }).click();
  assert.match(await other.page.locator("#copy-secret").innerText(), /^whsec_/);
  assert.deepEqual(other.faults, []);
});

scenario("a retention change applies to new messages", async () => {
  const before = await instance.send({ to: "delivered@simulator.test", subject: "Before" });
  await page.goto("/settings");
  await page.getByLabel("Content retention (days), new messages only").fill("7");
  await page.getByRole("button", { name: "Save" }).click();
  await shown("Settings saved.");
  const behind = await instance.send({ to: "delivered@simulator.test", subject: "Behind" });
  await instance.advance(8 * DAY);
  await signIn(page, instance);
  await page.goto(`/messages/${behind}`);
  await shown("timeline kept");
  await page.goto(`/messages/${before}`);
  await page.locator(".mail-text").waitFor();
  await page.goto("/settings");
  await page.getByLabel("Content retention (days), new messages only").fill("0");
  await page.getByRole("button", { name: "Save" }).evaluate((button) => (button.form.noValidate = true));
  await page.getByRole("button", { name: "Save" }).click();
  await page.locator("#days-fault").waitFor();
});

scenario("messages are found by address, subject, Message-ID and identifier, from any page", async () => {
  const id = await instance.send({ to: "delivered+ann@simulator.test", subject: "Your parcel" });
  await instance.send({ to: "delivered+bob@simulator.test", subject: "Another" });
  await instance.advance(0);
  const { message_id_header: header } = await instance.ask("GET", `/v1/messages/${id}`);
  const search = async (text) => {
    await page.goto("/settings");
    await page.keyboard.press("/");
    await page.keyboard.type(text);
    await page.keyboard.press("Enter");
    await page.waitForURL("**/messages**");
  };
  const typed = ["parcel", "delivered+ann@simulator.test", "to:delivered+ann@simulator.test status:delivered", header];
  for (const text of typed) {
    await search(text);
    assert.deepEqual(await page.locator("td.subject a").allInnerTexts(), ["Your parcel"], text);
  }
  await search(id);
  assert.equal(new URL(page.url()).pathname, `/messages/${id}`);
  await search("nothing has these words");
  await shown("No messages match");
  await page.getByRole("link", { name: "Remove the filter nothing", exact: true }).waitFor();
});

scenario("every action works without scripts", async (t) => {
  const id = await instance.send({ to: "deferred@simulator.test" });
  await instance.advance(0);
  const plain = await visitor(chromium, instance, { scripts: false });
  t.after(() => plain.context.close());
  await signIn(plain.page, instance);
  await plain.page.goto(`/messages/${id}`);
  await plain.page.getByRole("link", { name: "Cancel message" }).click();
  await plain.page.getByRole("button", { name: "Cancel message" }).click();
  await plain.page.getByText("Message canceled.").waitFor();
  await plain.page.locator(".me summary").click();
  await follow(plain.page, plain.page.getByRole("button", { name: "dark" }));
  assert.equal(await plain.page.locator("html").getAttribute("data-theme"), "dark");
  await plain.page.getByRole("button", { name: "Sign out" }).click();
  await plain.page.waitForURL("**/login");
});
