// Takes the README's pictures of a message's page again: `node tests/browser/pictures.mjs`, with the same environment
// as the tests. They are committed, so this runs only when the page has changed.

import { fileURLToPath } from "node:url";

import { signIn, startChromium, visitor } from "./support/browser.mjs";
import { startInstance } from "./support/instance.mjs";

const FOLDER = fileURLToPath(new URL("../../docs/", import.meta.url));

const instance = await startInstance();
const chromium = await startChromium();
await instance.ask("PATCH", "/v1/settings", { name: "Harbour Books", time_zone: "Europe/Vienna" });
const message = await instance.send({
  to: "deferred+ann@simulator.test",
  from_name: "Harbour Books",
  subject: "Your order 10482 is on its way",
  metadata: { order: "10482" },
});
for (const seconds of [0, 90, 180]) await instance.advance(seconds);
for (const theme of ["light", "dark"]) {
  const { context, page } = await visitor(chromium, instance, { theme, width: 1200, height: 960 });
  await signIn(page, instance);
  await page.goto(`/messages/${message}`);
  await page.getByText("Live", { exact: true }).waitFor();
  await page.evaluate(() => {
    document.querySelector("#timeline").scrollIntoView();
    window.scrollBy(0, -24);
  });
  await page.screenshot({ path: `${FOLDER}timeline-${theme}.png` });
  await context.close();
}
await chromium.close();
await instance.close();
