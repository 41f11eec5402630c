// Untrusted text is displayed and never executed: over two hundred pieces of markup, each as subject, display name,
// header, metadata, body, SMTP answer and webhook answer, on every page that shows them.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { missing, signIn, startChromium, visitor, watchPage } from "./support/browser.mjs";
import { startHookServer } from "./support/hook_server.mjs";
import { startInstance } from "./support/instance.mjs";
import { startMailServer } from "./support/mail_server.mjs";
import { MARK, PAYLOADS } from "./support/payloads.mjs";
import { addresses } from "./support/walk.mjs";

/** Every nth message is also opened in each additional view, where its texts appear in other places. */
const VIEWS = 12;
const skip = missing();
const sent = [];
let hooks, mail, instance, chromium;

before(async () => {
  if (skip) return;
  const numbered = (text) => PAYLOADS[Number(/\d+/.exec(text)[0])];
  [hooks, mail, chromium] = await Promise.all([
    startHookServer((event) => ({ status: 200, body: numbered(event.to) })),
    // A third of the answers is temporary, so that the pages show both kinds.
    startMailServer((to) => (Number(/\d+/.exec(to)[0]) % 3 ? `550 5.7.1 ${numbered(to)}` : `451 4.7.1 ${numbered(to)}`)),
    startChromium(),
  ]);
  instance = await startInstance(`
    [[relay]]
    name = "hostile"
    kind = "smarthost"
    host = "127.0.0.1"
    port = ${mail.port}
    tls = "off"
    [webhooks]
    extra_roots = "${hooks.roots}"
    [network]
    allow = ["127.0.0.0/8"]
  `);
  const described = { url: hooks.url, description: PAYLOADS[0] };
  await instance.ask("POST", "/v1/webhooks", described);
  for (const [number, payload] of PAYLOADS.entries()) sent.push(await send(number, payload));
  await instance.advance(5);
});
after(async () => {
  await chromium?.close();
  await instance?.close();
  hooks?.close();
  mail?.close();
});

function send(number, payload) {
  return instance.send({
    to: `p${number}@hostile.test`,
    subject: payload,
    from_name: payload,
    headers: { "X-Note": payload },
    metadata: { [payload.slice(0, 40)]: payload },
    text: payload,
    html: `<p>${payload}</p>`,
    attachments: [{ filename: payload.replace(/[/\\]/g, ""), content: "eA==", content_type: "text/plain" }],
  });
}

test("two hundred pieces of markup are never executed on any page", { skip, timeout: 300_000 }, async () => {
  assert.ok(PAYLOADS.length >= 200);
  const { context, page, faults } = await visitor(chromium, instance);
  await signIn(page, instance);
  const bounced = await instance.ask("GET", "/v1/events?type=bounced&limit=1");
  assert.ok(bounced.data[0].smtp_response.includes(MARK), "no answer contains the mark");
  const [hook] = (await instance.ask("GET", "/v1/webhooks")).data;
  const [delivery] = (await instance.ask("GET", `/v1/webhooks/${hook.id}/deliveries`)).data;
  const { attempts } = await instance.ask("GET", `/v1/webhook-deliveries/${delivery.id}`);
  assert.ok(attempts[0].response_body.includes(MARK), "no webhook answer contains the mark");
  const left = await addresses(page);
  for (const [number, id] of sent.entries()) {
    left.push(`/messages/${id}`);
    if (number % VIEWS === 0) left.push(`/messages/${id}?tab=source`);
    if (number % VIEWS === 1) left.push(`/messages/${id}?tab=json`);
    if (number % VIEWS === 3) left.push(`/messages/${id}?tab=text`);
    if (number % VIEWS === 4) left.push(`/messages/${id}?tab=headers`);
    if (number % VIEWS === 5) left.push(`/messages/${id}?tab=attachments`);
    if (number % VIEWS === 2) left.push(`/messages?q=${encodeURIComponent(PAYLOADS[number])}`);
  }
  const found = [];
  const others = await Promise.all([context.newPage(), context.newPage()]);
  for (const other of others) watchPage(other, instance, faults);
  await Promise.all([page, ...others].map((one) => checkPages(one, left, found)));
  assert.deepEqual([...found, ...faults], []);
  await context.close();
});

/** Opens the remaining pages one after the other, and the pages behind their "Older" links. */
async function checkPages(page, left, found) {
  for (let address = left.pop(); address; address = left.pop()) {
    await page.goto(address, { waitUntil: "load" });
    for (const fault of await injected(page)) found.push(`${address}: ${fault}`);
    const older = page.locator("main a[rel=next]");
    if (await older.count()) left.push(await older.first().getAttribute("href"));
  }
}

/** Returns the page's elements and attributes that our templates did not create. */
function injected(page) {
  return page.evaluate((mark) => {
    const faults = [];
    for (const element of document.querySelectorAll("*")) {
      const name = element.localName;
      if (element.hasAttribute(mark)) faults.push(`<${name}> has the mark`);
      for (const { name: attribute } of element.attributes) {
        if (/^on|^style$|^srcdoc$/i.test(attribute)) faults.push(`<${name}> has ${attribute}`);
      }
      if (/^(base|object|embed|template|style)$/.test(name)) faults.push(`unexpected <${name}>`);
      if (name === "script" && !element.src.startsWith(`${location.origin}/assets/`)) faults.push("a foreign script");
      if (name === "iframe" && element.getAttribute("sandbox") !== "") faults.push("a frame without a sandbox");
      if (name === "a" && !/^(https?|mailto|otpauth):$/.test(element.protocol)) faults.push(`a link to ${element.href}`);
    }
    return faults;
  }, MARK);
}
