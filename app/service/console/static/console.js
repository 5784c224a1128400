// Live regions, times in the reader's own zone, keys, copying. Every page works without it.
"use strict";
(() => {
  const root = document.documentElement;
  const zone = root.dataset.times === "utc" ? "UTC" : undefined;

  // Times
  const format = new Intl.DateTimeFormat("en-US", {
    year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
    timeZone: zone, hourCycle: "h23",
  });
  const parts = (moment) => Object.fromEntries(format.formatToParts(moment).map(({ type, value }) => [type, value]));
  const shown = (moment) => {
    const { day, month, year, hour, minute, second } = parts(moment);
    return `${day} ${month} ${year === parts(Date.now()).year ? "" : `${year} `}${hour}:${minute}:${second}`;
  };
  const date = (moment) => { const { day, month, year } = parts(moment); return `${day} ${month} ${year}`; };
  const passed = (moment) => {
    const seconds = (Date.now() - moment) / 1000;
    if (Math.abs(seconds) >= 90 * 86400) return date(moment);
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
      const count = Math.floor(Math.abs(seconds) / size);
      if (count) return seconds > 0 ? `${count} ${unit} ago` : `in ${count} ${unit}`;
    }
    return "now";
  };
  const tell = (within) => {
    for (const time of within.querySelectorAll("time")) {
      const moment = Date.parse(time.dateTime);
      if (Number.isNaN(moment)) continue;
      if ("ago" in time.dataset) time.textContent = passed(moment);
      else if (!zone) time.textContent = shown(moment);
    }
  };
  tell(document);

  // Live regions: the part is asked for again, each second at first, less often while it fails, and not in a hidden tab.
  const follow = (region) => {
    let wait = 1000;
    let paused = false;
    const button = region.querySelector("[data-pause]");
    const follows = region.querySelector("[data-follows]");
    if (follows) follows.textContent = "This page follows it.";
    // Shown while updates fail.
    const lost = document.createElement("div");
    lost.className = "notice warn";
    lost.hidden = true;
    lost.innerHTML = '<div class="message"><span role="status"></span><span></span></div>';
    region.prepend(lost);
    const [lostSays, lostSince] = lost.querySelectorAll("span");
    let updated = Date.now();
    window.setInterval(() => { if (!lost.hidden && lostSince.textContent) lostSince.textContent = since(); }, 1000);
    const since = () => `; last update ${passed(updated)}. Trying again.`;
    const next = () => window.setTimeout(ask, wait);
    const ask = async () => {
      if (paused || document.hidden) return next();
      try {
        const answer = await fetch(region.dataset.live, {
          headers: { "x-fragment": "1" }, redirect: "manual", signal: AbortSignal.timeout(10000),
        });
        if (answer.type === "opaqueredirect") {
          lost.hidden = false;
          lostSays.textContent = "Your session has ended. Reload this page to sign in again.";
          lostSince.textContent = "";
          throw new Error("signed out");
        }
        if (!answer.ok) throw new Error(String(answer.status));
        const part = document.createElement("div");
        part.innerHTML = await answer.text();
        const focused = region.contains(document.activeElement);
        for (const fresh of part.querySelectorAll("[data-part]")) {
          const old = region.querySelector(`[data-part="${CSS.escape(fresh.dataset.part)}"]`);
          tell(fresh);
          // What has the focus is never replaced; what has not changed keeps where it was scrolled to.
          if (old && !(focused && old.contains(document.activeElement)) && !old.isEqualNode(fresh)) old.replaceWith(fresh);
        }
        wait = 1000;
        updated = Date.now();
        lost.hidden = true;
        lostSays.textContent = "";
        if (part.querySelector("[data-ended]")) return end();
      } catch (error) {
        if (error.message !== "signed out") {
          lost.hidden = false;
          if (lostSays.textContent !== "Lost contact") lostSays.textContent = "Lost contact";
          lostSince.textContent = since();
        }
        wait = Math.min(wait * 2, 30000);
      }
      return next();
    };
    // The page as a whole is made anew, unless somebody is about to do something on it.
    const end = () => {
      const busy = document.activeElement;
      if (!busy || busy === document.body || busy === button || busy.id === "content") return window.location.reload();
      if (button) button.parentElement.innerHTML = '<span role="status">It has ended. <a href="">Show all of it</a></span>';
      return undefined;
    };
    if (button) {
      button.hidden = false;
      button.addEventListener("click", () => {
        paused = !paused;
        button.setAttribute("aria-pressed", String(paused));
        button.textContent = paused ? "Go on" : "Pause";
      });
    }
    next();
  };
  document.querySelectorAll("[data-live]").forEach(follow);

  // Copying
  for (const button of document.querySelectorAll("[data-copies]")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
      button.textContent = "Copied";
    });
  }

  // Keys
  const pages = {};
  for (const link of document.querySelectorAll("[data-key]")) pages[link.dataset.key] = link.href;
  let first = "";
  document.addEventListener("keydown", (event) => {
    if (root.dataset.keys === "off" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea, [contenteditable]")) return;
    const go = first === "g" ? pages[event.key] : undefined;
    first = event.key === "g" ? "g" : "";
    if (go) { event.preventDefault(); window.location.assign(go); }
    if (event.key === "?" && pages["?"]) { event.preventDefault(); window.location.assign(pages["?"]); }
    const search = document.querySelector("[data-search]");
    if (event.key === "/" && search) { event.preventDefault(); search.focus(); }
  });

  // The menu closes when one goes elsewhere.
  const menu = document.querySelector("details.user");
  document.addEventListener("click", (event) => { if (menu && !menu.contains(event.target)) menu.open = false; });
  menu?.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });

  // The first wrong field
  document.querySelector("[aria-invalid='true']")?.focus();
})();
