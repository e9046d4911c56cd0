// Keeps a page up to date: a socket says that something moved, the page's live part is read again and morphed in place.
// What a person is typing, has focused or has opened stays as it is. Without the socket the page asks every five seconds.
(() => {
  "use strict";
  const POLL_MS = 5000, FIRST_RETRY_MS = 400, LAST_RETRY_MS = 8000;
  const GAP_MS = { run: 120, list: 500 };
  // A page that nobody looks at still says in its title how much waits: read now and then, if there is anything new.
  const HIDDEN_MS = 30000;
  const SIGNED_OUT = 4401, NOT_ALLOWED = 4403;

  const live = () => document.getElementById("live");
  const indicator = document.getElementById("live-state");
  const path = live()?.dataset.socket;

  // --- what must not be overwritten ----------------------------------------------------------------------------------

  const isField = (el) => el.matches("textarea, select, input:not([type=hidden])");
  const isChanged = (el) =>
    el.type === "radio" || el.type === "checkbox" ? el.checked !== el.defaultChecked
      : el.tagName === "SELECT" ? el.selectedIndex !== Math.max(0, [...el.options].findIndex((o) => o.defaultSelected))
        : el.value !== el.defaultValue;
  // What was refused comes back filled in by the server, so nothing in it differs from its default: the form says so itself.
  const isKept = (form) => form.hasAttribute("data-refused") || form.hasAttribute("data-over") || form.hasAttribute("data-armed")
    || [...form.elements].some((el) => isField(el) && (el === document.activeElement || isChanged(el)));
  const holdsKept = (node) =>
    node instanceof Element && [node, ...node.querySelectorAll("form[data-keep]")].some((el) => el.matches("form[data-keep]") && isKept(el));
  window.consoleHasText = () => holdsKept(document.body);

  const callbacks = {
    beforeNodeMorphed: (old) => !(old instanceof Element && old.matches("form[data-keep]") && isKept(old)),
    beforeNodeRemoved: (node) => !holdsKept(node) && !(node instanceof Element && node.matches("[data-stay]")),
    // Without its tabindex what has the focus would lose it.
    beforeAttributeUpdated: (name, el) => name !== "data-here" && !(name === "tabindex" && el === document.activeElement) && !(name === "open" && (el.tagName === "DETAILS" || el.tagName === "DIALOG")),
  };

  // --- a case that someone else has closed ----------------------------------------------------------------------------

  const cases = (root) => new Set([...root.querySelectorAll("form[data-case]")].map((form) => form.dataset.case));
  const endings = (root) => new Map([...root.querySelectorAll("[data-closed]")].map((el) => [el.dataset.closed, el.textContent.replace(/\s+/g, " ").trim()]));

  // A form that was kept because someone writes in it, though the page asks no more: it must not look as if it could be sent.
  function disarm(target, open, ended) {
    for (const form of target.querySelectorAll("form[data-case]")) {
      const buttons = [...form.querySelectorAll("button:not([type=button])")];
      if (open.has(form.dataset.case) || form.hasAttribute("data-over") || buttons.every((button) => button.disabled)) continue;
      form.setAttribute("data-over", "");
      for (const button of buttons) button.disabled = true;
      for (const link of form.querySelectorAll("a.btn")) { // without its address a link can't be followed, nor focused
        link.removeAttribute("href");
        link.setAttribute("role", "link");
        link.setAttribute("aria-disabled", "true");
      }
      for (const said of form.querySelectorAll("[data-follows]")) said.hidden = true;
      const why = form.querySelector("[data-why]");
      if (why) why.textContent = "Already closed: nothing can be sent.";
      const note = document.createElement("div");
      note.className = "note bad";
      note.setAttribute("role", "alert");
      note.textContent = `${ended.get(form.dataset.case) || "This case is closed."} Your text is kept.`;
      form.prepend(note);
    }
  }

  // A form says who else is on the case, also while someone writes in it.
  const follows = (root) => [...root.querySelectorAll("[data-follows]")].map((el) => el.cloneNode(true));
  function follow(all) {
    for (const el of all) {
      const shown = document.getElementById(el.id);
      if (!shown) continue;
      shown.hidden = el.hidden;
      shown.replaceChildren(...el.childNodes);
    }
  }

  htmx.defineExtension("live", {
    isInlineSwap: (style) => style === "live",
    handleSwap: (style, target, fragment) => {
      if (style !== "live") return false;
      const fresh = [...fragment.children].find((el) => el.id === target.id);
      if (!fresh) return [];
      const open = cases(fresh), ended = endings(fresh), said = follows(fresh);
      const morphed = Idiomorph.morph(target, fresh, { morphStyle: "outerHTML", ignoreActiveValue: true, callbacks });
      disarm(live(), open, ended);
      follow(said);
      tell();
      mindLapses();
      return morphed;
    },
  });
  document.body.setAttribute("hx-ext", "live");

  // --- reading again -------------------------------------------------------------------------------------------------

  const say = (state, words) => {
    if (!indicator) return;
    indicator.dataset.state = state;
    indicator.firstElementChild.textContent = words;
    indicator.title = words;
  };
  // A page that answers a refused form stands at the form's address, which can't be read again: it names its own.
  // And a page whose first case someone writes about stays with that case, whatever comes first in the list meanwhile.
  const held = () => [...live().querySelectorAll("form[data-keep][data-here]")].find(isKept);
  const here = () => live().dataset.here || held()?.dataset.here || location.pathname + location.search;
  const seq = () => Number(live()?.dataset.seq || 0);
  const sayLive = () => isLeft || (isPaused() ? say("paused", isWanted ? "paused · updates available" : "paused") : say("live", seq() ? `live · seq ${seq()}` : "live"));

  // One polite sentence for people who can't see the page change, and only when it is new.
  const region = document.getElementById("said");
  let lastTold = live()?.dataset.say;
  function tell() {
    const now = live()?.dataset.say;
    if (region && now && now !== lastTold) region.textContent = now;
    lastTold = now;
  }

  // People can stop updates to read in peace (WCAG 2.2.2); the page says when there is more.
  const root = document.documentElement, pause = document.getElementById("live-pause");
  const isPaused = () => root.hasAttribute("data-paused");
  function setPaused(is) {
    root.toggleAttribute("data-paused", is);
    pause?.setAttribute("aria-pressed", String(is));
    sessionStorage.setItem("paused", is ? "1" : "");
    if (is && timer) { clearTimeout(timer); timer = 0; isWanted = true; }
    if (path) sayLive();
    if (!is && isWanted) refresh();
  }

  // What ends by itself is read again when it does: nothing rings then.
  let lapse = 0;
  function mindLapses() {
    clearTimeout(lapse);
    const left = [...live().querySelectorAll("[data-lapses]")].map((el) => Number(el.dataset.lapses));
    if (left.length) lapse = setTimeout(refresh, Math.max(1, Math.min(...left)) * 1000 + 500);
  }

  const TROUBLE_RETRY_MS = 2000;
  // What is read has to be as new as what is shown and as what the socket told of: by the database's clock, in microseconds.
  let toldAt = 0;
  let isLeft = false, isStale = false, isReading = false, isWanted = false, timer = 0, unseen = 0, lastAt = 0;
  const gap = path?.includes("/runs/") ? GAP_MS.run : GAP_MS.list;

  function refresh() {
    if (isLeft) return;
    if (document.hidden && Date.now() - lastAt < HIDDEN_MS) {
      isWanted = true;
      unseen ||= setTimeout(() => { unseen = 0; if (isWanted) refresh(); }, lastAt + HIDDEN_MS - Date.now());
      return;
    }
    if (isPaused()) { isWanted = true; sayLive(); return; }
    if (isReading) { isWanted = true; return; }
    if (timer) return;
    timer = setTimeout(read, Math.max(0, lastAt + gap - Date.now()));
  }

  const trouble = () => (navigator.onLine ? "server busy · retrying" : "no connection · retrying");

  async function read() {
    timer = 0; isReading = true; isWanted = false; isStale = false; lastAt = Date.now();
    const address = new URL(here(), location.href);
    address.searchParams.set("fragment", "live");
    address.searchParams.set("since", String(Math.max(Number(live().dataset.asOf || 0), toldAt)));
    try {
      await htmx.ajax("GET", address.pathname + address.search, { target: "#live", swap: "live", source: "#live" });
    } catch {
      isStale = true; // nothing was answered: no network, or a server that is away
    } finally {
      isReading = false;
      if (isLeft) { isWanted = false; } else if (isStale) { say("reconnecting", trouble()); setTimeout(refresh, TROUBLE_RETRY_MS); }
      else if (isOpen()) sayLive();
      if (isWanted && !isStale) refresh();
    }
  }

  // Going to another tab gives the page an address of its own again.
  document.body.addEventListener("htmx:pushedIntoHistory", () => { delete live().dataset.here; });

  // An answer that is no live part (signed out, role gone, server away) must never be morphed into the page.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr, target } = event.detail;
    if (target?.id !== "live") return;
    const isFragment = xhr.getResponseHeader("X-Live") === "1";
    isStale = !isFragment;
    if (isFragment && isPaused()) isWanted = true; // asked for before the page was paused: read again when it goes on
    event.detail.shouldSwap = isFragment && !isPaused();
    if (isFragment) return;
    if (xhr.status < 500) leave(xhr.status === 401);
  });

  // After signing out, or when the page is gone or may no longer be seen, its forms are no longer sent, for
  // what was typed would be gone.
  function leave(isSignedOut) {
    isLeft = true;
    document.documentElement.dataset.left = isSignedOut ? "signed-out" : "closed";
    if (window.consoleHasText()) say("closed", `${isSignedOut ? "signed out · your text is kept" : "no access · copy your text"}`);
    else location.assign(here());
  }

  // --- the socket ----------------------------------------------------------------------------------------------------

  // What models are saying is shown as it stands, next to the page's live part, until it is on record there.
  function saying(all) {
    const panel = document.getElementById("saying");
    if (!panel || isPaused()) return;
    const shown = all.filter((one) => one.text).map((one) => {
      const text = document.createElement("pre");
      text.textContent = (one.characters > [...one.text].length ? "… " : "") + one.text;
      return text;
    });
    panel.querySelector(".body").replaceChildren(...shown);
    panel.hidden = !shown.length;
    for (const text of shown) text.scrollTop = text.scrollHeight;
  }

  let socket = null, failures = 0;
  const isOpen = () => socket?.readyState === WebSocket.OPEN;

  function connect() {
    socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`);
    socket.onopen = () => { failures = 0; sayLive(); };
    socket.onmessage = (event) => {
      const told = JSON.parse(event.data);
      if (told.saying) { saying(told.saying); return; }
      toldAt = Math.max(toldAt, told.at || 0);
      // No seq: rings may have been missed. Otherwise only what is newer than the page is worth a read.
      if (!told.seq || !seq() || told.seq > seq()) refresh();
    };
    socket.onclose = (event) => {
      if (event.code === SIGNED_OUT || event.code === NOT_ALLOWED) { leave(event.code === SIGNED_OUT); return; }
      say("reconnecting", "reconnecting");
      saying([]);
      const wait = Math.min(FIRST_RETRY_MS * 2 ** failures++, LAST_RETRY_MS);
      setTimeout(connect, wait * (0.5 + Math.random() / 2));
    };
  }

  if (path && pause) {
    pause.hidden = false;
    pause.addEventListener("click", () => setPaused(!isPaused()));
    if (sessionStorage.getItem("paused")) setPaused(true);
  }
  if (path) {
    connect();
    mindLapses();
    setInterval(() => { if (!isOpen()) refresh(); }, POLL_MS);
    document.addEventListener("visibilitychange", () => { if (!document.hidden && (isWanted || !isOpen())) refresh(); });
  }
  const every = Number(live()?.dataset.every || 0);
  if (every) setInterval(refresh, every);
  window.addEventListener("pagehide", () => { if (socket) { socket.onclose = null; socket.close(); } });
})();
