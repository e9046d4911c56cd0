// Small conveniences on top of pages that work without them: ticking times, keys, tabs in place, one submit per click.
(() => {
  "use strict";

  // --- times -----------------------------------------------------------------------------------------------------------

  const two = (n) => String(n).padStart(2, "0");
  function lapse(seconds) {
    const s = Math.max(0, seconds);
    if (s < 60) return `${Math.round(s)} s`;
    const m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
    if (m < 60) return `${m} m ${two(Math.floor(s % 60))} s`;
    return h < 24 ? `${h} h ${two(m % 60)} m` : `${d} d ${h % 24} h`;
  }
  function local(at, form) {
    const time = `${two(at.getHours())}:${two(at.getMinutes())}` + (form === "seconds" ? `:${two(at.getSeconds())}` : "");
    if (form === "seconds" || at.toDateString() === new Date().toDateString()) return time;
    return `${at.toLocaleDateString(undefined, { day: "2-digit", month: "short" })} ${time}`;
  }
  const put = (el, text) => { if (el.textContent !== text) el.textContent = text; };
  function tick() {
    const now = Date.now();
    for (const el of document.querySelectorAll("time[data-since]")) put(el, lapse((now - Date.parse(el.dateTime)) / 1000));
    for (const el of document.querySelectorAll("time[data-until]")) {
      const left = (Date.parse(el.dateTime) - now) / 1000;
      put(el, left > 0 ? `in ${lapse(left)}` : `${lapse(-left)} ago`);
    }
    for (const el of document.querySelectorAll("time[data-clock]")) put(el, local(new Date(el.dateTime), el.dataset.clock));
  }
  tick();
  setInterval(tick, 1000);
  document.body.addEventListener("htmx:afterSwap", tick);

  // --- one submit per click ----------------------------------------------------------------------------------------------

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "1";
    // After this tick, or the button's own name and value would be missing from what is sent.
    setTimeout(() => { for (const b of form.querySelectorAll("button")) b.setAttribute("aria-disabled", "true"); });
  });
  addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) {
      delete form.dataset.sent;
      for (const b of form.querySelectorAll("button")) b.removeAttribute("aria-disabled");
    }
  });

  // --- menus -------------------------------------------------------------------------------------------------------------

  const openMenus = () => document.querySelectorAll("details[data-close][open]");
  document.addEventListener("click", (event) => {
    for (const menu of openMenus()) if (!menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("toggle", (event) => {
    if (!event.target.open) return;
    event.target.querySelector("[data-first]")?.focus();
  }, true);

  // --- keys --------------------------------------------------------------------------------------------------------------

  const isTyping = (el) => el.matches("input, textarea, select, [contenteditable]");
  function step(by) {
    const items = [...document.querySelectorAll("[data-item]")].filter((el) => el.offsetParent);
    if (!items.length) return;
    const now = items.findIndex((el) => el === document.activeElement);
    const current = now >= 0 ? now : items.findIndex((el) => el.hasAttribute("aria-current"));
    items[Math.min(Math.max(current + by, 0), items.length - 1)].focus();
  }
  function aim(verdict) {
    const text = document.querySelector("#decide textarea"), button = document.querySelector(`#decide [data-verdict=${verdict}]`);
    if (!text || !button) return false;
    (text.value.trim() ? button : text).focus();
    return true;
  }
  const KEYS = {
    j: () => step(1), k: () => step(-1),
    a: () => aim("approve"), d: () => aim("reject"),
    "/": () => document.querySelector("[data-search]")?.focus(),
    "?": () => document.getElementById("keys")?.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { for (const menu of openMenus()) { menu.open = false; menu.querySelector("summary").focus(); } return; }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    const act = KEYS[event.key];
    if (act) { event.preventDefault(); act(); }
  });
})();
