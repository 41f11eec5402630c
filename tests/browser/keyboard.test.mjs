// Keyboard use: on every page and in both themes each control shows its focus with a contrasting outline, nothing
// changes the order of the page, and a message is found, opened and canceled without a pointer.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { missing, signIn, startChromium, visitor } from "./support/browser.mjs";
import { startInstance } from "./support/instance.mjs";
import { createSampleMail } from "./support/sample_mail.mjs";
import { addresses } from "./support/walk.mjs";

const skip = missing();
let chromium, instance;

before(async () => {
  if (skip) return;
  [chromium, instance] = await Promise.all([startChromium(), startInstance()]);
  await createSampleMail(instance);
  await instance.makeOperator("dev@example.test");
});
after(async () => {
  await chromium?.close();
  await instance?.close();
});

for (const theme of ["light", "dark"]) {
  test(`the focus is visible on every page, ${theme}`, { skip, timeout: 300_000 }, async () => {
    const { context, page } = await visitor(chromium, instance, { theme, width: 1280 });
    const found = [];
    await page.goto("/login");
    for (const fault of await hiddenFocus(page)) found.push(`/login: ${fault}`);
    await signIn(page, instance);
    for (const address of await addresses(page)) {
      await page.goto(address);
      for (const fault of await hiddenFocus(page)) found.push(`${address}: ${fault}`);
    }
    assert.deepEqual(found, []);
    await context.close();
  });
}

/** Returns the controls of a page whose focus can't be seen, or which change the order. */
async function hiddenFocus(page) {
  // A key makes the browser show the focus that the script then moves. The first stop skips the navigation, except on a
  // page that begins in its only field.
  await page.keyboard.press("Tab");
  return page.evaluate(() => {
    const parse = (colour) => colour.match(/[\d.]+/g).map(Number);
    const light = (colour) => {
      const [r, g, b] = parse(colour).map((part) => {
        const share = part / 255;
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const background = (element) => {
      for (let at = element.parentElement; at; at = at.parentElement) {
        const colour = getComputedStyle(at).backgroundColor;
        const alpha = parse(colour)[3];
        if (alpha === undefined || alpha > 0.9) return colour;
      }
      return getComputedStyle(document.documentElement).backgroundColor;
    };
    const contrast = (one, other) => {
      const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
      return (bright + 0.05) / (dark + 0.05);
    };
    const faults = [];
    const skip = document.activeElement;
    const begins = document.querySelector("a.skip") && !document.querySelector("[autofocus]");
    if (begins && !skip.matches("a.skip")) faults.push("the first stop is no skip link");
    document.querySelectorAll("details").forEach((details) => { details.open = true; });
    const controls = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]";
    for (const control of document.querySelectorAll(controls)) {
      if (control.tabIndex < 0 || control.disabled || !control.checkVisibility({ visibilityProperty: true })) continue;
      const name = control.outerHTML.slice(0, 100);
      if (control.tabIndex > 0) faults.push(`changes the order: ${name}`);
      control.focus();
      if (document.activeElement !== control) {
        faults.push(`can't have the focus: ${name}`);
        continue;
      }
      const style = getComputedStyle(control);
      if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2) {
        faults.push(`shows no focus: ${name}`);
      } else if (contrast(style.outlineColor, background(control)) < 3) {
        faults.push(`shows the focus faintly, ${style.outlineColor} on ${background(control)}: ${name}`);
      }
    }
    return faults;
  });
}

test("a message is found, opened and canceled with the keyboard alone", { skip, timeout: 60_000 }, async () => {
  const { context, page, faults } = await visitor(chromium, instance, {});
  await signIn(page, instance);
  await instance.send({ to: "deferred+keys@simulator.test", subject: "Keys alone" });
  await instance.advance(0);
  await page.keyboard.press("/");
  await page.keyboard.type("deferred+keys@simulator.test");
  await Promise.all([page.waitForURL("**/messages?q=*"), page.keyboard.press("Enter")]);
  await page.keyboard.press("j");
  await Promise.all([page.waitForURL("**/messages/msg_*"), page.keyboard.press("Enter")]);
  await page.getByRole("link", { name: "Cancel message" }).focus();
  await Promise.all([page.waitForURL("**/cancel"), page.keyboard.press("Enter")]);
  await page.getByRole("button", { name: "Cancel message" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("status").filter({ hasText: "Message canceled." }).waitFor();
  await Promise.all([page.waitForURL("**/messages"), page.keyboard.press("u")]);
  await Promise.all([page.waitForURL("**/shortcuts"), page.keyboard.press("?")]);
  await page.keyboard.press("g");
  await Promise.all([page.waitForURL("**/queue"), page.keyboard.press("q")]);
  assert.deepEqual(faults, []);
  await context.close();
});
