// Only improves: every action of the panel works without this file.
(() => {
  "use strict";
  const each = (selector, act) => document.querySelectorAll(selector).forEach(act);

  // Copy buttons appear where the clipboard can be reached.
  if (navigator.clipboard) {
    each("button[data-copy]", (button) => {
      const source = document.querySelector(button.dataset.copy);
      if (!source) return;
      button.hidden = false;
      button.type = "button";
      button.addEventListener("click", async () => {
        const label = button.textContent;
        try {
          await navigator.clipboard.writeText(source.textContent);
          button.textContent = "Copied";
        } catch {
          button.textContent = "Not copied";
        }
        setTimeout(() => { button.textContent = label; }, 1500);
      });
    });
  }

  // How long ago, in the tooltip's place; the time itself stays.
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const words = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  const ago = (date) => {
    const seconds = Math.round((date - Date.now()) / 1000);
    const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) || units[3];
    return words.format(Math.round(seconds / size), unit);
  };
  each("time[datetime]", (time) => {
    const date = new Date(time.dateTime);
    if (!isNaN(date)) time.title = `${ago(date)} · ${time.title}`;
  });

  // Menus close when somebody goes on elsewhere.
  document.addEventListener("click", (event) => {
    each("details.me[open], details.actions[open]", (menu) => {
      if (!menu.contains(event.target)) menu.open = false;
    });
  });

  // Shortcuts: / search, j and k through rows, Enter opens, [ newer, ] older, c copies, g then m, o, s goes.
  const rows = [...document.querySelectorAll("table.messages tbody tr, table.rows tbody tr")];
  let at = -1;
  let goes = false;
  const step = (by) => {
    if (!rows.length) return;
    at = Math.max(0, Math.min(rows.length - 1, at + by));
    const link = rows[at].querySelector("a");
    if (link) link.focus();
  };
  const follow = (selector) => { const link = document.querySelector(selector); if (link) link.click(); };
  const places = { m: "/messages", o: "/", s: "/settings", e: "/events", d: "/domains", w: "/webhooks", p: "/suppressions", k: "/keys", q: "/queue" };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key === "Escape" && typing) typing.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (goes) {
      goes = false;
      const link = places[event.key] && document.querySelector(`nav a[href="${places[event.key]}"]`);
      if (link) link.click();
      return;
    }
    const acts = {
      "/": () => document.getElementById("q")?.focus(),
      j: () => step(1),
      k: () => step(-1),
      "[": () => follow("a[rel=prev]"),
      "]": () => follow("a[rel=next]"),
      u: () => follow(".crumb a"),
      c: () => follow("button[data-copy='#copy-id']"),
      g: () => { goes = true; setTimeout(() => { goes = false; }, 1500); },
    };
    const act = acts[event.key];
    if (act) { event.preventDefault(); act(); }
  });
})();
