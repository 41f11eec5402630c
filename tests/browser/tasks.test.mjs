// Tasks of a user who sees the panel for the first time. They only use controls by their visible names, so a task
// fails when a name is removed or a step is added.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";

import { follow, missing, signIn, startChromium, visitor } from "./support/browser.mjs";
import { startHookServer } from "./support/hook_server.mjs";
import { startInstance } from "./support/instance.mjs";
import { createSampleMail } from "./support/sample_mail.mjs";

const skip = missing();
let chromium, hooks, instance, page, context, faults;

before(async () => {
  if (skip) return;
  hooks = await startHookServer(() => ({ status: 200, body: "" }));
  const config = `[webhooks]\nextra_roots = "${hooks.roots}"\n[network]\nallow = ["127.0.0.0/8"]\n`;
  [instance, chromium] = await Promise.all([startInstance(config), startChromium()]);
  await createSampleMail(instance, hooks.url);
  await instance.ask("POST", "/v1/domains", { name: "books.example.org", stream: "transactional" });
  await instance.makeOperator("dev@example.test");
  ({ page, context, faults } = await visitor(chromium, instance));
  await signIn(page, instance);
});
after(async () => {
  await context?.close();
  await chromium?.close();
  await instance?.close();
  hooks?.close();
  assert.deepEqual(faults ?? [], []);
});

/** Runs a task, starting at the overview. */
const task = (name, steps) =>
  test(name, { skip, timeout: 60_000 }, async () => {
    await page.goto("/");
    await steps();
  });
const rail = (name) => follow(page, page.locator("nav[aria-label=Panel]").getByRole("link", { name, exact: false }).first());
const open = (name) => follow(page, page.locator("main").getByRole("link", { name }).first());
const press = (name) => follow(page, page.locator("main").getByRole("button", { name }).first());
const shown = (text) => page.locator("main").getByText(text).first().waitFor();

/** Searches with the search field of every page. */
async function search(text) {
  await page.getByRole("searchbox").fill(text);
  await follow(page, page.getByRole("button", { name: "Search" }));
}

task("find out why a message bounced", async () => {
  await search("bounced+sample@simulator.test");
  await open("Confirm your address");
  await shown("550 5.1.1");
  await shown("Correct or remove the address");
});

task("rotate a webhook's secret", async () => {
  await rail("Webhooks");
  await open("Order status");
  await open("Settings");
  await press("Rotate secret");
  await shown("New signing secret");
  await shown(/^whsec_/);
});

task("see whether a provider is slow", async () => {
  await rail("Providers");
  for (const name of ["Median", "95th pct."]) await page.getByRole("columnheader", { name }).first().waitFor();
});

task("add a domain, and check its records", async () => {
  await rail("Domains");
  await page.getByLabel("Domain", { exact: true }).fill("new.example.org");
  await press("Add");
  await shown("Not checked");
  await press("Check now");
  await shown("Not verified");
});

task("invite a read-only colleague", async () => {
  await rail("Users");
  await page.getByLabel("Email address").fill("colleague@example.org");
  await page.getByLabel("Role").selectOption({ label: "Viewer (read-only)" });
  await press("Invite");
  await shown("No mail was sent: give this link to colleague@example.org.");
});

task("export all messages to one address as CSV", async () => {
  await search("delivered+sample@simulator.test");
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "CSV" }).click()]);
  const lines = readFileSync(await file.path(), "utf8").trim().split("\n");
  assert.equal(lines.length, 2);
  assert.match(lines[1], /delivered\+sample@simulator\.test/);
});

task("find the messages of an order by its metadata", async () => {
  await search("order=10482");
  await open("metadata.order:10482");
  await open("Your order 10482 is on its way");
  await open("10482");
  await page.getByRole("link", { name: "Remove the filter metadata.order:10482" }).waitFor();
});

task("learn why a month is not exported, and export a part of it", async () => {
  await rail("Messages");
  await page.getByLabel("Accepted from", { exact: true }).fill("2020-01-01");
  await press("Apply");
  await shown("An export covers at most 30 days.");
  await page.getByLabel("Accepted from", { exact: true }).fill(new Date(Date.now() - 86_400_000).toISOString().slice(0, 10));
  await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "CSV" }).click()]);
});

task("export the bounced messages, without applying the filters first", async () => {
  await rail("Messages");
  await page.getByLabel("Status", { exact: true }).selectOption({ label: "Bounced" });
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "CSV" }).click()]);
  const statuses = [...readFileSync(await file.path(), "utf8").matchAll(/^msg_.*?,.*?,(\w+),/gm)].map(([, one]) => one);
  assert.ok(statuses.length > 1 && statuses.every((status) => status === "bounced"), statuses.join());
});

task("see which messages wait, and why", async () => {
  await rail("Messages");
  await open("Waiting");
  await open("Your sign-in code");
  await shown("The last attempt failed");
  await shown("Next attempt");
});

task("pause and restart a webhook", async () => {
  await rail("Webhooks");
  await open("Order status");
  await press("Pause");
  await shown("Paused; events are held");
  await press(/Resume|Reactivate/);
  await shown("Enabled");
});

task("suspend and resume an account", async () => {
  await rail("Accounts");
  await page.getByLabel("Name").first().fill("Loud shop");
  await press("Create");
  await page.locator("form[action$='/suspend']").getByLabel("Reason").fill("sends to lists that it bought");
  await press("Suspend account");
  await shown("sends to lists that it bought");
  await press("Resume account");
  await page.getByRole("button", { name: "Suspend account" }).waitFor();
});

task("retry a deferred message now", async () => {
  await search("full+sample@simulator.test");
  await open("A reply to your question");
  await press("Retry now");
  await shown("Retrying");
});

task("rotate DKIM keys", async () => {
  await rail("Domains");
  await open("books.example.org");
  await page.locator("summary").getByText("Rotate DKIM keys").click();
  await press("Rotate DKIM keys");
  await shown("New keys created. They sign once published.");
});

task("check whether the DMARC policy can be tightened", async () => {
  await rail("Domains");
  await open("books.example.org");
  await open("DMARC reports");
  const steps = await page.locator("main h2").allInnerTexts();
  assert.deepEqual(steps.slice(0, 2), ["No report can arrive: this service receives no mail", "Check the DNS first"]);
  await open("incoming mail");
  await page.locator("h2:target").getByText("Incoming mail").waitFor();
});

task("find the mail of a domain, and learn that a name before the @ can't be searched", async () => {
  await search("@simulator.test");
  await open("Confirm your address");
  await search("bounced+sample@");
  await shown("bounced+sample@ is only a part of an address.");
});

task("continue with a form after the session has ended", async () => {
  await rail("Suppressions");
  await page.getByLabel("Address", { exact: true }).last().fill("late@example.org");
  await context.clearCookies({ name: /^(__Host-)?postrider$/ });
  await press("Suppress");
  await shown("Sign in to continue with your entries.");
  await page.getByLabel("Email address").fill(instance.info.panel_user);
  await page.getByLabel("Password").fill(instance.info.panel_password);
  await press("Sign in");
  await press("Continue");
  await shown("late@example.org");
});
