// How many things wait for the reader, in the page's title; and what they are told of by the browser, if they asked for it.
(() => {
  "use strict";
  const ASK_MS = 15000, WISH = "notices-here";
  const root = document.documentElement;

  // --- the count in the title: the navigation's own, which the page's live part brings along ---------------------------

  const plain = () => document.title.replace(/^\(\d+\+?\) /, "");
  function count() {
    const shown = document.querySelector("#count-inbox-wide .count");
    const number = shown?.firstChild?.textContent.trim() || "";
    // That something was not done is the first thing to be said.
    const title = `${number && !plain().startsWith("Error: ") ? `(${number}) ` : ""}${plain()}`;
    if (document.title !== title) document.title = title;
  }
  count();
  for (const event of ["htmx:afterSwap", "htmx:oobAfterSwap"]) document.body.addEventListener(event, count);

  // --- the browser's own notifications ----------------------------------------------------------------------------------

  const isPossible = "Notification" in window;
  const isWished = () => isPossible && Notification.permission === "granted" && localStorage.getItem(WISH) === "on";
  const token = () => document.querySelector("input[name=csrfmiddlewaretoken]")?.value;

  async function ask() {
    if (!isWished() || !token() || root.hasAttribute("data-paused")) return;
    const body = new URLSearchParams({ csrfmiddlewaretoken: token() });
    let told;
    try {
      const answer = await fetch("/notifications/browser", { method: "POST", body, redirect: "error" });
      if (!answer.ok) return;
      told = (await answer.json()).shown;
    } catch {
      return; // the server is away, or the session has ended: asked again, or the page leaves by itself
    }
    for (const one of told) {
      const note = new Notification(one.title, { body: one.body, tag: one.tag });
      note.onclick = () => { window.focus(); location.assign(one.url); };
    }
  }
  setInterval(ask, ASK_MS);
  ask();

  // --- asking for it, on the page of notifications ----------------------------------------------------------------------

  const state = document.getElementById("browser-state"), on = document.getElementById("browser-on"), off = document.getElementById("browser-off");
  function show() {
    if (!state) return;
    const isDenied = isPossible && Notification.permission === "denied";
    state.textContent = !isPossible ? "This browser doesn’t support notifications."
      : isDenied ? "Notifications from this site are blocked. Allow them in the browser’s settings."
        : isWished() ? "Notifications are on in this browser." : "Notifications are off in this browser.";
    on.hidden = !isPossible || isDenied || isWished();
    off.hidden = !isWished();
  }
  on?.addEventListener("click", async () => {
    if (await Notification.requestPermission() === "granted") localStorage.setItem(WISH, "on");
    show();
    ask();
  });
  off?.addEventListener("click", () => { localStorage.removeItem(WISH); show(); });
  show();
})();
