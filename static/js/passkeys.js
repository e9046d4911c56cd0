// Buttons that ask the device for a passkey: to sign in, to show once more who one is, to say yes, and to make one.
(() => {
  "use strict";
  const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
  const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  const known = (list) => list?.map((one) => ({ ...one, id: bytes(one.id) }));

  // What the device answers, as the server reads it: each buffer as base64url.
  function plain(credential) {
    const response = {};
    for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
      if (credential.response[name]) response[name] = text(credential.response[name]);
    }
    return JSON.stringify({ id: credential.id, rawId: credential.id, type: credential.type, response, clientExtensionResults: {} });
  }

  const REFUSED = {
    NotAllowedError: "No passkey was used: you cancelled, it timed out, or this device has none of yours.",
    InvalidStateError: "This device already has a passkey for this account.",
    SecurityError: "This browser can’t use passkeys at this address.",
  };

  async function asked(button) {
    const given = { ...button.dataset };
    if (given.from) Object.assign(given, await (await fetch(given.from, { headers: { Accept: "application/json" }, cache: "no-store" })).json());
    if (given.problem) throw new Error(given.problem);
    if (given.origin && given.origin !== location.origin) throw new Error(`Passkeys only work at ${given.origin}. Open that address.`);
    const options = JSON.parse(given.options);
    options.challenge = bytes(options.challenge);
    options.allowCredentials = known(options.allowCredentials);
    options.excludeCredentials = known(options.excludeCredentials);
    if (options.user) options.user.id = bytes(options.user.id);
    const how = button.dataset.passkey === "make" ? "create" : "get";
    return [given.token, await navigator.credentials[how]({ publicKey: options })];
  }

  // Ready at once, or the first click on a page that was just shown would do nothing.
  for (const button of document.querySelectorAll("[data-passkey]")) {
    const form = button.form, told = form.querySelector("[data-passkey-told]");
    const say = (words) => { told.textContent = words; told.hidden = !words; };
    button.hidden = false;
    for (const note of form.querySelectorAll("[data-no-script]")) note.hidden = true;
    button.addEventListener("click", async () => {
      say("");
      if (!window.PublicKeyCredential) { say("Passkeys need https and a browser that supports them."); return; }
      button.disabled = true;
      try {
        const [token, credential] = await asked(button);
        form.querySelector("[data-passkey-token]").value = token;
        form.querySelector("[data-passkey-answer]").value = plain(credential);
        form.noValidate = button.dataset.passkey !== "make"; // a code is typed in the same form, or none
        form.requestSubmit();
      } catch (error) {
        say(REFUSED[error.name] || error.message || String(error));
      } finally {
        button.disabled = false;
      }
    });
  }
})();
