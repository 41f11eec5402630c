// Takes the README's screenshots of the overview and of a message: `node tests/browser/pictures.mjs`, with the same
// environment as the tests. They are committed, so run this only after a page has changed.

import { fileURLToPath } from "node:url";

import { signIn, startChromium, visitor } from "./support/browser.mjs";
import { startInstance } from "./support/instance.mjs";

const FOLDER = fileURLToPath(new URL("../../docs/", import.meta.url));

const instance = await startInstance();
const chromium = await startChromium();
await instance.ask("PATCH", "/v1/settings", { name: "Harbour Books", time_zone: "Europe/Vienna" });
await week();
const message = await instance.send({
  to: "deferred+ann@simulator.test",
  from_name: "Harbour Books",
  subject: "Your order 10482 is on its way",
  metadata: { order: "10482" },
});
for (const seconds of [0, 90, 180]) await instance.advance(seconds);
await pictures();
await chromium.close();
await instance.close();

/** Sends a week of a shop's mail: a few hundred messages, of which some bounce. */
async function week() {
  const subjects = ["Your order is on its way", "Your invoice", "Confirm your address", "Your sign-in code"];
  let number = 0;
  for (let hours = 0; hours < 7 * 24; hours += 6) {
    const count = 12 + ((hours / 6) * 7) % 11;
    for (let one = 0; one < count; one += 1) {
      number += 1;
      const name = number % 61 === 0 ? "bounced" : number % 37 === 0 ? "deferred" : "delivered";
      await instance.send({ to: `${name}+${number}@simulator.test`, subject: subjects[number % subjects.length] });
    }
    await instance.advance(6 * 3600);
  }
}

async function pictures() {
  for (const theme of ["light", "dark"]) {
    const { context, page } = await visitor(chromium, instance, { theme, width: 1200, height: 960 });
    await signIn(page, instance);
    await page.getByText("Live", { exact: true }).waitFor();
    await page.screenshot({ path: `${FOLDER}overview-${theme}.png` });
    await page.goto(`/messages/${message}`);
    await page.getByText("Live", { exact: true }).waitFor();
    await page.evaluate(() => {
      document.querySelector(".crumb").scrollIntoView();
      window.scrollBy(0, -16);
    });
    await page.screenshot({ path: `${FOLDER}timeline-${theme}.png` });
    await context.close();
  }
}
