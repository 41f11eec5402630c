// Every page that a visitor can reach: the links of the navigation, and from each of those the first record of each
// kind. A page added to the navigation is visited automatically.

/** Pages without a link in the navigation. */
const UNLINKED = [
  "/login", "/setup", "/login/confirm?next=/users", "/settings/totp", "/messages/nonsense", "/nowhere", "/explain",
  "/open", "/open?q=nothing", "/suppressions/import", "/messages?q=to:nobody@example.com", "/queue?done=paused&site=x",
  "/messages?q=status:open", "/messages?q=your&status=problems", "/shortcuts",
];
/** Views of one record that are separate pages. */
const VIEWS = {
  "/messages/": ["?tab=text", "?tab=headers", "?tab=attachments", "?tab=source", "?tab=json"],
  "/domains/": ["/dmarc", "/checklist", "/delete"],
  "/webhooks/": ["?tab=settings", "/delete"],
  "/keys/": ["/delete"],
};
const OF_RECORD = /\/[a-z]+\/[a-z]{3}_[0-9A-Z]{26}$/;
const RECORD = /^\/([a-z]+)\/([a-z]{3}_[0-9A-Z]{26})$/;

/** Returns the addresses of all pages for a signed-in user. */
export async function addresses(page) {
  await page.goto("/");
  const rail = await page.$$eval("nav[aria-label=Panel] a", (links) => links.map((link) => link.getAttribute("href")));
  const found = new Set([...rail, ...UNLINKED]);
  const kinds = new Map();
  for (const address of rail) {
    await page.goto(address);
    for (const link of await ownLinks(page)) {
      const [, kind] = RECORD.exec(link) ?? [];
      if (kind && !kinds.has(kind)) kinds.set(kind, link);
    }
  }
  for (const [kind, link] of kinds) {
    found.add(link);
    for (const view of VIEWS[`/${kind}/`] ?? []) found.add(link + view);
    // Parts of a record, such as a webhook's delivery, have pages below it.
    await page.goto(link);
    const below = (await ownLinks(page)).find((other) => other.startsWith(`${link}/`) && OF_RECORD.test(other));
    if (below) found.add(below);
  }
  return [...found];
}

/** Returns the links of a page that stay within the panel. */
export function ownLinks(page) {
  return page.$$eval("main a[href^='/']", (links) => links.map((link) => link.getAttribute("href")));
}
