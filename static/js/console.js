// Small conveniences on top of pages that work without them: ticking times, keys, what was read, one submit per click.
(() => {
  "use strict";
  const root = document.documentElement;
  const afterSwap = [];
  document.body.addEventListener("htmx:afterSwap", () => { for (const act of afterSwap) act(); });

  // --- times -----------------------------------------------------------------------------------------------------------

  const two = (n) => String(n).padStart(2, "0");
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const zones = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });
  const zone = (at) => zones.formatToParts(at).find((part) => part.type === "timeZoneName").value;
  function lapse(seconds) {
    const s = Math.max(0, seconds);
    if (s < 60) return `${Math.round(s)} s`;
    const m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
    if (m < 60) return `${m} m ${two(Math.floor(s % 60))} s`;
    return h < 24 ? `${h} h ${two(m % 60)} m` : `${d} d ${h % 24} h`;
  }
  function local(at, form) {
    const day = `${at.getDate()} ${MONTHS[at.getMonth()]}`, minute = `${two(at.getHours())}:${two(at.getMinutes())}`, second = two(at.getSeconds());
    if (form === "seconds") return `${minute}:${second}`;
    if (form === "brief") return at.getFullYear() === new Date().getFullYear() ? `${day} ${minute}` : `${day} ${at.getFullYear()} ${minute}`;
    return `${day} ${at.getFullYear()} ${minute}:${second} ${zone(at)}`;
  }
  const put = (el, text) => { if (el.textContent !== text) el.textContent = text; };
  function tick() {
    const now = Date.now();
    for (const el of document.querySelectorAll("time[data-since]")) put(el, lapse((now - Date.parse(el.dateTime)) / 1000));
    for (const el of document.querySelectorAll("time[data-until], time[data-due]")) {
      const left = (Date.parse(el.dateTime) - now) / 1000, isDue = "due" in el.dataset;
      put(el, left > 0 ? `${isDue ? "due " : ""}in ${lapse(left)}` : isDue ? `overdue by ${lapse(-left)}` : `${lapse(-left)} ago`);
      if (isDue) el.classList.toggle("late", left <= 0);
    }
    for (const el of document.querySelectorAll("time[data-clock]")) put(el, local(new Date(el.dateTime), el.dataset.clock));
  }
  tick();
  setInterval(() => { if (!root.hasAttribute("data-paused")) tick(); }, 1000);
  afterSwap.push(tick);

  // --- one submit per click ----------------------------------------------------------------------------------------------

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    if ("left" in root.dataset && form.closest("#live")) { event.preventDefault(); sayLeft(form); return; }
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "1";
    // After this tick, or the button's own name and value would be missing from what is sent.
    setTimeout(() => { for (const b of form.querySelectorAll("button")) b.setAttribute("aria-disabled", "true"); });
  });
  function sayLeft(form) {
    const note = form.querySelector("[data-left-note]") || document.createElement("p");
    note.className = "note bad full";
    note.dataset.leftNote = "";
    note.tabIndex = -1;
    note.setAttribute("role", "alert");
    note.textContent = root.dataset.left === "signed-out"
      ? "You are signed out, so this was not sent. Your text is kept in this tab. "
      : "You no longer have access to this page, so this was not sent. Copy your text, then reload the page.";
    if (root.dataset.left === "signed-out") {
      const again = document.createElement("a");
      again.href = `/login?next=${encodeURIComponent(form.dataset.here || location.pathname + location.search)}`;
      again.textContent = "Sign in again";
      note.append(again);
    }
    form.prepend(note);
    note.focus();
  }
  addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) {
      delete form.dataset.sent;
      for (const b of form.querySelectorAll("button")) b.removeAttribute("aria-disabled");
    }
  });

  // --- where the reader is -----------------------------------------------------------------------------------------------

  // What was refused, or done, is the first thing to be read, not whatever a new page begins with.
  const spoken = document.querySelector("[data-alert]") || document.querySelector(".messages");
  if (spoken) spoken.focus();

  function showTab() {
    for (const tab of document.querySelectorAll(".tabs [aria-current], #live > .strip [aria-current]")) {
      const strip = tab.parentElement, left = tab.offsetLeft - strip.offsetLeft, right = left + tab.offsetWidth;
      if (left < strip.scrollLeft || right > strip.scrollLeft + strip.clientWidth) strip.scrollLeft = left - (strip.clientWidth - tab.offsetWidth) / 2;
    }
  }
  showTab();
  afterSwap.push(showTab);

  // The open case is in view in the list next to it, or the one that follows a decided case: the list scrolls, not the page.
  let inView = "";
  function showOpenCase() {
    const list = document.querySelector(".split > .list"), open = list?.querySelector("a.item[aria-current]") || list?.querySelector("a[data-after]");
    if (!open || open.id === inView) return;
    inView = open.id;
    const top = open.getBoundingClientRect().top - list.getBoundingClientRect().top;
    if (top < 0 || top + open.offsetHeight > list.clientHeight) list.scrollTop += top - (list.clientHeight - open.offsetHeight) / 2;
  }
  showOpenCase();
  afterSwap.push(showOpenCase);

  document.addEventListener("click", (event) => {
    const row = event.target.closest("tr.link");
    if (!row || event.target.closest("a, button, summary, input, label") || String(getSelection())) return;
    row.querySelector("a[data-item], a")?.click();
  });

  document.addEventListener("click", (event) => { if (event.target.closest("[data-print]")) print(); });

  // On paper nothing can be opened: everything is, while it is printed.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("main details:not([open]):not([data-close])")];
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => { for (const details of opened) details.open = false; });

  // --- reading before approving ------------------------------------------------------------------------------------------

  // Approve can be pressed once every argument was in view, to its end, and each page of what is shown with them. Without script the form stands below all of them instead.
  // What was seen of a case stays seen in this tab: after a refusal the page is new, and its arguments are not.
  const read = new Map();
  const readAt = (form) => `read ${form.dataset.case} ${form.elements.plan_hash.value}`;
  function known(form) {
    if (!read.has(form.dataset.case)) read.set(form.dataset.case, new Map(JSON.parse(sessionStorage.getItem(readAt(form)) || "[]")));
    return read.get(form.dataset.case);
  }
  const slack = 4;
  const toRead = () => [...document.querySelectorAll("#arguments [data-argument], #documents [data-argument]")];
  function looked(form) {
    const seen = known(form), were = [...seen.values()].filter((each) => each.done).length;
    const top = document.querySelector("header.top")?.getBoundingClientRect().bottom || 0;
    const bottom = Math.min(innerHeight, document.getElementById("decide-bar").getBoundingClientRect().top);
    const values = toRead();
    for (const [n, value] of values.entries()) {
      const state = seen.get(n) || seen.set(n, { begun: false, done: false }).get(n);
      if (state.done) continue;
      const box = value.getBoundingClientRect();
      if (!box.height) continue;
      const picture = value.querySelector("img");
      if (picture && !(picture.complete && picture.naturalWidth)) continue; // it has its place, and nothing is seen there yet
      if (box.top >= top - slack && box.top < bottom) state.begun = true;
      const isAtEnd = value.scrollTop + value.clientHeight >= value.scrollHeight - slack;
      state.done = state.begun && isAtEnd && box.bottom > top && box.bottom <= bottom + slack;
    }
    if ([...seen.values()].filter((each) => each.done).length > were) sessionStorage.setItem(readAt(form), JSON.stringify([...seen]));
    return values.filter((_, n) => !seen.get(n).done);
  }
  // What is scrolled into view ends above the bar, not beneath it; what is in the bar is in view where it is.
  function keepAbove(is) {
    const bar = document.getElementById("decide-bar"), covers = is && getComputedStyle(bar).position === "sticky";
    root.style.scrollPaddingBottom = covers ? `${Math.ceil(bar.offsetHeight) + slack}px` : "";
  }
  for (const moved of ["pointerdown", "focusin", "keydown"]) document.addEventListener(moved, (event) => {
    if (document.querySelector("#decide[data-watched]")) keepAbove(event.key === "Tab" || !event.target.closest("#decide-bar"));
  });
  let isLooking = false;
  function watch() {
    isLooking = false;
    const form = document.getElementById("decide"), approve = form?.querySelector("[data-verdict=approve]"), note = document.getElementById("seen");
    if (!form || !note || form.hasAttribute("data-over") || form.querySelector("[data-verdict=reject]").disabled) return;
    form.setAttribute("data-watched", "");
    keepAbove(!document.getElementById("decide-bar").contains(document.activeElement));
    const left = looked(form), all = toRead().length;
    // Not `disabled`: that would take it out of the order, and who tabs to Approve and presses Enter would reject.
    if (left.length > 0) approve.setAttribute("aria-disabled", "true");
    else if (!form.dataset.sent) approve.removeAttribute("aria-disabled");
    put(note.querySelector("[data-count]"), `${all - left.length} of ${all} ${document.getElementById("documents") ? "arguments and pages" : all === 1 ? "argument" : "arguments"} seen`);
    note.hidden = left.length === 0;
  }
  const look = () => { if (!isLooking) { isLooking = true; requestAnimationFrame(watch); } };
  function showUnread() {
    const form = document.getElementById("decide"), value = looked(form)[0];
    if (!value) return;
    keepAbove(true);
    const n = toRead().indexOf(value), isBegun = known(form).get(n).begun;
    // First to where it begins, then through it if it scrolls in itself, then to its end: a value may be taller than what is in view.
    if (!isBegun) value.scrollIntoView({ block: "start" });
    else if (value.scrollTop + value.clientHeight < value.scrollHeight - slack) value.scrollTop += Math.max(value.clientHeight - 24, 24);
    else value.scrollIntoView({ block: "end" });
    value.tabIndex = value.tabIndex === 0 ? 0 : -1;
    value.focus({ preventScroll: true });
    look();
  }
  document.addEventListener("click", (event) => {
    if (event.target.closest("#seen [data-next]")) { showUnread(); return; }
    const form = document.getElementById("decide");
    if (!event.target.closest("#decide[data-watched] [data-verdict=approve]") || form.dataset.sent || !looked(form).length) return;
    event.preventDefault();
    showUnread();
  });
  document.addEventListener("scroll", look, { capture: true, passive: true });
  // A page that could not be had just now, as the server had too many to draw, is asked for again: by itself for a while, and whenever someone says so.
  const pauses = [3, 6, 12, 24, 48], missing = (picture) => picture.closest("figure")?.querySelector("[data-missing]");
  const reload = (picture) => { if (picture.isConnected) picture.src = picture.getAttribute("src"); };
  function isMissing(picture) {
    const tries = Number(picture.dataset.tries || 0), note = missing(picture);
    if (note) note.hidden = false;
    picture.dataset.tries = tries + 1;
    if (tries < pauses.length) setTimeout(reload, pauses[tries] * 1000, picture);
  }
  document.addEventListener("load", (event) => {
    if (!event.target.matches?.("#documents img")) return;
    if (missing(event.target)) missing(event.target).hidden = true;
    look();
  }, { capture: true });
  document.addEventListener("error", (event) => { if (event.target.matches?.("#documents img")) isMissing(event.target); }, { capture: true });
  document.addEventListener("click", (event) => { if (event.target.closest("[data-missing] button")) reload(event.target.closest("figure").querySelector("img")); });
  // What failed before anybody listened. One that nobody has asked for yet is not complete.
  for (const picture of document.querySelectorAll("#documents img")) if (picture.complete && !picture.naturalWidth) isMissing(picture);
  addEventListener("resize", look);
  afterSwap.push(watch);
  watch();

  // --- menus -------------------------------------------------------------------------------------------------------------

  const openMenus = () => document.querySelectorAll("details[data-close][open]");
  document.addEventListener("click", (event) => {
    for (const menu of openMenus()) if (!menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("toggle", (event) => {
    // A page that answers a refused form comes with its menu open, and is told of it late: its alert keeps the reader.
    if (!event.target.open || document.activeElement?.matches("[data-alert]")) return;
    event.target.querySelector("[data-first]")?.focus();
  }, true);

  // --- keys --------------------------------------------------------------------------------------------------------------

  // Single keys can be switched off (WCAG 2.1.4): who speaks to a computer, or strays, would press them unawares.
  const keys = document.getElementById("keys"), toggle = document.getElementById("keys-on");
  const areOn = () => localStorage.getItem("keys") !== "off";
  if (toggle) {
    toggle.checked = areOn();
    toggle.addEventListener("change", () => { localStorage.setItem("keys", toggle.checked ? "on" : "off"); sayKeys(); });
  }
  function sayKeys() { root.toggleAttribute("data-no-keys", !areOn()); }
  sayKeys();
  for (const button of document.querySelectorAll("[data-keys]")) {
    button.hidden = false;
    button.addEventListener("click", () => { for (const menu of openMenus()) menu.open = false; keys?.showModal(); });
  }

  const isTyping = (el) => el.matches("input, textarea, select, [contenteditable]");
  function step(by) {
    const items = [...document.querySelectorAll("[data-item]")].filter((el) => el.offsetParent);
    if (!items.length) return;
    const now = items.findIndex((el) => el === document.activeElement);
    const open = now >= 0 ? now : items.findIndex((el) => el.hasAttribute("aria-current"));
    const after = items.findIndex((el) => "after" in el.dataset);
    const to = open >= 0 ? open + by : after >= 0 ? after + Math.min(by, 0) : 0;
    items[Math.min(Math.max(to, 0), items.length - 1)].focus();
  }
  // From a case that was decided the next one is opened; everywhere else `j` moves in the list.
  function onward() {
    const next = document.querySelector("a[data-next-case]");
    if (next && !document.activeElement?.matches("[data-item]")) next.click();
    else step(1);
  }

  // What Ctrl+Enter would send is shown: the chosen button says so, the other fades, and the reason is asked for by its name.
  const ARMED = { approve: "Why approve?", reject: "Why reject?" };
  function arm(verdict) {
    const form = document.getElementById("decide");
    if (!form) return;
    if (verdict) form.dataset.armed = verdict; else delete form.dataset.armed;
    put(form.querySelector("[data-why]"), ARMED[verdict] || "Why?");
    for (const button of form.querySelectorAll("[data-verdict]")) {
      const key = button.querySelector("[data-key]");
      put(key, button.dataset.verdict === verdict ? "Ctrl+↵" : key.dataset.key);
    }
    delete form.dataset.choose;
    look();
  }
  function choose() {
    const form = document.getElementById("decide"), words = "Approve or Reject?";
    form.dataset.choose = "";
    put(form.querySelector("[data-why]"), words);
    put(document.getElementById("said"), "Choose Approve or Reject first: nothing was sent.");
    look();
  }
  function aim(verdict) {
    const text = document.getElementById("justification"), button = document.querySelector(`#decide [data-verdict=${verdict}]`);
    if (!text || !button) return false;
    if (button.disabled) { document.getElementById("limit-note")?.scrollIntoView({ block: "center" }); return false; }
    arm(verdict);
    (text.value.trim() ? button : text).focus({ preventScroll: true });
    return true;
  }
  // What has to be typed to approve has to be there before it is sent, and only then.
  document.addEventListener("click", (event) => {
    const button = event.target.closest("#decide button[name=verdict]");
    if (button) for (const input of button.form.querySelectorAll("[data-typed]")) input.required = button.value === "approve";
  });
  // A reason that is offered goes where one writes it: in the place of one that was offered before, otherwise after what was typed.
  document.addEventListener("click", (event) => {
    const offer = event.target.closest("a[data-reason]"), text = offer?.closest("form")?.querySelector("textarea");
    if (!text || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const typed = text.value.trim(), all = [...document.querySelectorAll("a[data-reason]")].map((each) => each.dataset.reason);
    text.value = !typed || all.includes(typed) ? offer.dataset.reason : typed.includes(offer.dataset.reason) ? typed : `${typed} ${offer.dataset.reason}`;
    text.dispatchEvent(new Event("input", { bubbles: true }));
    offer.closest("details").open = false;
    text.focus();
  });
  // Where several buttons send the form, one of them has to be chosen.
  function confirm(form) {
    const buttons = form.querySelectorAll("button:not([type=button]):not(:disabled)");
    if (buttons.length === 1) buttons[0].click();
    else buttons[0]?.focus();
  }
  const KEYS = {
    j: onward, k: () => step(-1),
    a: () => aim("approve"), d: () => aim("reject"),
    "/": () => document.querySelector("[data-search]")?.focus(),
    "?": () => keys?.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      for (const menu of openMenus()) { menu.open = false; menu.querySelector("summary").focus(); }
      if (event.target.matches("#justification")) event.target.blur();
      arm("");
      return;
    }
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      const decide = event.target.closest("#decide");
      if (decide) {
        event.preventDefault();
        const { armed } = decide.dataset;
        if (armed) decide.querySelector(`[data-verdict=${armed}]`).click();
        else choose();
        return;
      }
      if (event.target.matches("[name=justification]")) {
        event.preventDefault();
        confirm(event.target.form);
        return;
      }
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || !areOn()) return;
    const act = KEYS[event.key];
    if (act) { event.preventDefault(); act(); }
  });
})();
