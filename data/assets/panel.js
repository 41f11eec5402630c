// Progressive enhancement only: every action of the panel works without this file.
(() => {
  "use strict";
  const each = (selector, act) => document.querySelectorAll(selector).forEach(act);

  // Copy buttons are shown if the clipboard is available.
  const offerCopies = () => {
    each("button[data-copy][hidden]", (button) => {
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
  };

  // Shows relative times as tooltips; the absolute time stays.
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const words = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  const ago = (date) => {
    const seconds = Math.round((date - Date.now()) / 1000);
    const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) || units[3];
    return words.format(Math.round(seconds / size), unit);
  };
  const tellAges = () => {
    each("time[datetime]", (time) => {
      const date = new Date(time.dateTime);
      time.dataset.utc ||= time.title;
      if (!isNaN(date)) time.title = `${ago(date)} · ${time.dataset.utc}`;
    });
  };
  const improve = () => {
    if (navigator.clipboard) offerCopies();
    tellAges();
  };
  improve();

  // Live updates: the server announces changes, and the parts of the page that may change are requested again.
  const swap = () => {
    const ask = new XMLHttpRequest();
    ask.responseType = "document";
    ask.onload = () => {
      each("[data-swap]", (part) => {
        const fresh = ask.response?.getElementById(part.id);
        // Parts that the user is working with are not replaced.
        if (fresh && !part.contains(document.activeElement)) part.replaceWith(document.importNode(fresh, true));
      });
      improve();
    };
    ask.open("GET", location.href);
    ask.send();
  };
  each("[data-live]", (live) => {
    const [state, button] = [live.querySelector("[role=status]"), live.querySelector("button")];
    let source;
    let timer = 0;
    const say = (text) => { if (state.textContent !== text) state.textContent = text; };
    const news = (event) => {
      live.dataset.last = event.lastEventId;
      timer ||= setTimeout(() => { timer = 0; swap(); }, 500);
    };
    const follow = () => {
      const url = new URL(live.dataset.live, location.href);
      if (live.dataset.last) url.searchParams.set("last_event_id", live.dataset.last);
      source = new EventSource(url);
      source.onopen = () => say("Live");
      source.onerror = () => say(source.readyState === 2 ? "Disconnected: reload" : "Reconnecting");
      for (const kind of live.dataset.kinds.split(" ")) source.addEventListener(kind, news);
    };
    const decide = () => {
      source?.close();
      const isStopped = button.getAttribute("aria-pressed") === "true";
      if (isStopped) say("Not refreshing");
      else if (!document.hidden) follow();
    };
    live.hidden = false;
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      decide();
    });
    document.addEventListener("visibilitychange", decide);
    decide();
  });

  // A form whose answer shows a secret is sent once, even if its button is clicked twice.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.elements.once) return;
    const now = Date.now();
    if (now - (form.dataset.sent || 0) < 3000) event.preventDefault();
    else form.dataset.sent = now;
  });

  // Menus close when the focus moves elsewhere.
  document.addEventListener("click", (event) => {
    each("details.me[open], details.actions[open], details.menu[open]", (menu) => {
      if (menu.matches(".menu") && event.target.closest(".rail")) return;
      if (!menu.contains(event.target)) menu.open = false;
    });
  });

  // Shortcuts: Ctrl K or / for the search field, j and k for rows, Enter to open, [ newer, ] older, u up, c to copy, r to reload, g and a letter
  // to go to a page, ? for a page with all of them. Users can turn them off.
  let at = -1;
  let goes = false;
  const step = (by) => {
    const rows = [...document.querySelectorAll("table.messages tbody tr:has(a), table.rows tbody tr:has(a)")];
    if (!rows.length) return;
    at = Math.max(0, Math.min(rows.length - 1, at + by));
    const link = rows[at].querySelector("a");
    if (link) link.focus();
  };
  const follow = (selector) => { const link = document.querySelector(selector); if (link) link.click(); };
  const places = {
    o: "/", m: "/messages", e: "/events", q: "/queue", d: "/domains", w: "/webhooks", p: "/suppressions", k: "/keys", s: "/settings",
  };
  // On a narrow page the field is hidden and has a separate page.
  const openField = () => {
    const field = document.getElementById("q");
    if (field?.offsetParent) { field.focus(); field.select(); } else location.assign("/open");
  };
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key === "k") {
      event.preventDefault();
      openField();
      return;
    }
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key === "Escape" && typing) typing.blur();
    if (document.body.dataset.shortcuts !== "on") return;
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (goes) {
      goes = false;
      const link = places[event.key] && document.querySelector(`nav a[href="${places[event.key]}"]`);
      if (link) link.click();
      return;
    }
    const acts = {
      "/": openField,
      j: () => step(1),
      k: () => step(-1),
      "[": () => follow("a[rel=prev]"),
      "]": () => follow("a[rel=next]"),
      u: () => follow(".crumb a"),
      c: () => follow("button[data-copy='#copy-id']"),
      r: () => location.reload(),
      "?": () => location.assign("/shortcuts"),
      g: () => { goes = true; setTimeout(() => { goes = false; }, 1500); },
    };
    const act = acts[event.key];
    if (act) { event.preventDefault(); act(); }
  });
})();
