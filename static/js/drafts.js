// What is typed into a form outlasts a session that ends: it is kept in this tab, for this account alone, until it was sent.
(() => {
  "use strict";
  const account = document.body.dataset.account, prefix = "draft ", mine = `${prefix}${account} `;
  const drafts = () => Object.keys(sessionStorage).filter((key) => key.startsWith(prefix));
  const read = (key) => JSON.parse(sessionStorage.getItem(key));
  const write = (key, draft) => sessionStorage.setItem(key, JSON.stringify(draft));

  // A page without an account is where one signs in, or says that a form was too old: nothing was sent.
  if (!account) {
    for (const key of drafts()) write(key, { ...read(key), isSent: false });
    return;
  }
  for (const key of drafts()) if (!key.startsWith(mine)) sessionStorage.removeItem(key);

  // No passwords, no codes, nothing that the page itself put there.
  const SECRET = /password|one-time-code/;
  const isKept = (el) => el.name && el.matches("input, select, textarea")
    && !["hidden", "password", "file", "submit", "button"].includes(el.type) && !SECRET.test(el.autocomplete) && !SECRET.test(el.name);
  const isChoice = (el) => el.type === "radio" || el.type === "checkbox";
  const valueOf = (el) => isChoice(el) ? [el.value, el.checked] : el.multiple ? [...el.selectedOptions].map((each) => each.value) : el.value;
  const isChanged = (el) => isChoice(el) ? el.checked !== el.defaultChecked
    : el.options ? [...el.options].some((each) => each.selected !== each.defaultSelected) && el.selectedIndex > 0 : el.value !== el.defaultValue;
  const fieldsOf = (form) => [...form.elements].filter(isKept);
  const isDrafted = (form) => form.method === "post" && !form.closest("[data-asks-again]") && fieldsOf(form).length > 0;
  function keyOf(form) {
    const at = new URL(form.getAttribute("action") || location.href, location.href);
    return `${mine}${form.dataset.draft || form.dataset.case || at.pathname + at.search} ${form.id}`;
  }
  function keep(form, isSent) {
    const fields = fieldsOf(form);
    if (!fields.some(isChanged) && !form.hasAttribute("data-refused")) { sessionStorage.removeItem(keyOf(form)); return; }
    try {
      write(keyOf(form), { isSent, fields: fields.map((el) => [el.name, valueOf(el)]) });
    } catch { /* the tab's room is used up: the form works without */ }
  }
  document.addEventListener("input", (event) => { if (event.target.form && isDrafted(event.target.form)) keep(event.target.form, false); });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    // Signing out leaves nothing behind.
    if (form.matches("form[data-signs-out]")) { for (const key of drafts()) sessionStorage.removeItem(key); return; }
    if (!event.defaultPrevented && isDrafted(form)) keep(form, true);
  });

  // The page that asks once more who someone is holds the form meanwhile: nothing is decided about it yet.
  if (document.querySelector("[data-asks-again]")) return;
  const isBack = performance.getEntriesByType("navigation")[0]?.type === "back_forward";
  for (const key of drafts()) {
    if (!read(key).isSent) continue;
    if (isBack) write(key, { ...read(key), isSent: false }); else sessionStorage.removeItem(key);
  }

  function put(el, value) {
    if (isChoice(el)) { if (Array.isArray(value) && el.value === value[0]) el.checked = value[1]; }
    else if (el.multiple && el.options) { for (const each of el.options) each.selected = value.includes(each.value); }
    else el.value = value;
  }
  function restore(form) {
    const kept = sessionStorage.getItem(keyOf(form));
    if (!kept || form.hasAttribute("data-refused")) return;
    const left = JSON.parse(kept).fields;
    for (const el of fieldsOf(form)) {
      const n = left.findIndex(([name, value]) => name === el.name && (!isChoice(el) || value[0] === el.value));
      if (n >= 0) put(el, left.splice(n, 1)[0][1]);
    }
    if (!fieldsOf(form).some(isChanged)) { sessionStorage.removeItem(keyOf(form)); return; }
    for (let at = form.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
    for (const el of fieldsOf(form)) if (isChanged(el)) for (let at = el.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
    const note = document.createElement("p"), discard = document.createElement("button");
    note.className = "note row wrap full";
    note.dataset.draftNote = "";
    note.setAttribute("role", "status");
    note.textContent = "Your unsent text was restored. ";
    discard.type = "button";
    discard.className = "btn compact";
    discard.textContent = "Discard";
    discard.addEventListener("click", () => { sessionStorage.removeItem(keyOf(form)); form.reset(); note.remove(); });
    note.append(discard);
    form.prepend(note);
  }
  for (const form of document.querySelectorAll("form")) if (isDrafted(form)) restore(form);
})();
