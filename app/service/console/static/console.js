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
    for (const [size, unit, most] of [[1, "s", 60], [60, "min", 60], [3600, "h", 24], [86400, "d", 91]]) {
      const count = Math.round(Math.abs(seconds) / size);
      if (count < most) return !count ? "now" : seconds > 0 ? `${count} ${unit} ago` : `in ${count} ${unit}`;
    }
  };
  // Times in stored sentences, which are in UTC, some of them without seconds.
  const stored = /\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC/g;
  const localized = (text) => text.replace(stored, (utc, seconds) =>
    shown(Date.parse(utc.replace(" ", "T").replace(" UTC", "Z"))).slice(0, seconds ? undefined : -3));
  const localizeTexts = (within) => {
    const texts = document.createTreeWalker(within, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      const own = localized(text.data);
      if (own === text.data || text.parentElement.closest("pre, textarea")) continue;
      text.parentElement.title ||= text.data.trim();
      text.data = own;
    }
  };
  const tell = (within) => {
    if (!zone) localizeTexts(within);
    for (const time of within.querySelectorAll("time")) {
      const moment = Date.parse(time.dateTime);
      if (Number.isNaN(moment)) continue;
      if ("ago" in time.dataset) time.textContent = passed(moment);
      else if (!zone) time.textContent = shown(moment);
    }
  };
  tell(document.body);
  if (!zone) document.title = localized(document.title);

  // The zone of times that the reader enters, unless the page contains some in another one.
  const own = format.resolvedOptions().timeZone;
  document.querySelector(".asof [data-zone]")?.replaceChildren(own);
  for (const field of document.querySelectorAll("input[name=zone]")) {
    if (field.value) continue;
    field.value = own;
    for (const name of field.form.querySelectorAll("[data-zone]")) name.textContent = own;
  }

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

  // A menu closes when the reader clicks elsewhere or presses Escape.
  for (const menu of document.querySelectorAll("details.drop")) {
    document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !menu.open) return;
      menu.open = false;
      menu.querySelector("summary").focus();
    });
  }

  // Suggestions while typing: the pattern of a combobox. A textarea has one id per line.
  const suggest = (input) => {
    const isLines = input.matches("textarea");
    const fields = input.form.elements;
    const list = document.createElement("ul");
    const status = document.createElement("span");
    Object.assign(list, { id: `${input.id}-list`, className: "suggestions", role: "listbox", hidden: true });
    list.setAttribute("aria-label", "Suggestions");
    Object.assign(status, { className: "hidden", role: "status" });
    input.after(list, status);
    const set = (name, value) => input.setAttribute(`aria-${name}`, value);
    if (!isLines) input.setAttribute("role", "combobox");
    set("autocomplete", "list");
    set("controls", list.id);
    let at = -1;
    let asked = 0;
    let timer;
    const open = (is) => {
      list.hidden = !is;
      if (!isLines) set("expanded", String(is));
      if (!is) mark(-1);
    };
    const mark = (next) => {
      at = next;
      [...list.children].forEach((option, number) => option.setAttribute("aria-selected", String(number === at)));
      if (at < 0) return input.removeAttribute("aria-activedescendant");
      list.children[at].scrollIntoView({ block: "nearest" });
      return set("activedescendant", list.children[at].id);
    };
    const take = (one) => {
      open(false);
      if ("opens" in input.dataset) return window.location.assign(one.url);
      input.value = isLines ? `${input.value.replace(/[^\n]*$/, "")}${one.id}\n` : one.id;
      const within = fields[input.dataset.within];
      if (within && one.organizationId) within.value = one.organizationId;
      return input.focus();
    };
    const part = (option, className, text) => {
      const span = document.createElement("span");
      span.className = className;
      span.textContent = text;
      option.append(span, " ");
    };
    const show = (found) => {
      list.replaceChildren(...found.map((one, number) => {
        const option = document.createElement("li");
        Object.assign(option, { id: `${list.id}-${number}`, role: "option" });
        part(option, "", one.name);
        if (one.name !== one.id) part(option, "mono", one.id);
        part(option, "muted", input.dataset.kind ? one.detail : [one.kind, one.detail].filter(Boolean).join(" · "));
        option.addEventListener("pointerdown", (event) => { event.preventDefault(); take(one); });
        option.take = () => take(one);
        return option;
      }));
      mark(-1);
      open(found.length > 0);
      // A list that would leave the screen begins at the other edge of its field.
      list.classList.remove("turned");
      list.classList.toggle("turned", list.getBoundingClientRect().right > root.clientWidth);
      status.textContent = found.length ? `${found.length} suggestions` : "No suggestions";
    };
    const ask = async () => {
      const text = (isLines ? input.value.split("\n").pop() : input.value).trim();
      const number = asked += 1;
      if (text.length < 2) return open(false);
      const { suggest: path, kind = "", kindFrom, within } = input.dataset;
      const query = new URLSearchParams({ q: text, kind: fields[kindFrom]?.value ?? kind, organization: fields[within]?.value ?? "" });
      try {
        const answer = await fetch(`${path}?${query}`, { redirect: "manual", signal: AbortSignal.timeout(5000) });
        if (answer.ok && number === asked && input === document.activeElement) show((await answer.json()).suggestions);
      } catch { /* Without suggestions, the field is as it was. */ }
      return undefined;
    };
    open(false);
    input.addEventListener("input", () => { window.clearTimeout(timer); timer = window.setTimeout(ask, 120); });
    input.addEventListener("blur", () => { asked += 1; window.clearTimeout(timer); open(false); });
    input.addEventListener("keydown", (event) => {
      if (list.hidden) return;
      const number = list.children.length;
      if (event.key === "ArrowDown") mark((at + 1) % number);
      else if (event.key === "ArrowUp") mark((at < 1 ? number : at) - 1);
      else if (event.key === "Enter" && at >= 0) list.children[at].take();
      else if (event.key === "Escape") open(false);
      else return;
      event.preventDefault();
    });
  };
  document.querySelectorAll("[data-suggest]").forEach(suggest);

  // The token of a sign-in link is in the fragment, which browsers send to no server. It leaves the history here.
  const link = window.location.hash.slice(1);
  if (link.startsWith("once-")) {
    window.history.replaceState(null, "", window.location.pathname + window.location.search);
    const token = document.querySelector("[data-link] input");
    if (token) {
      token.value = link;
      token.form.querySelector("button").focus();
    }
  }

  // The first wrong field
  document.querySelector("[aria-invalid='true']")?.focus();
})();
