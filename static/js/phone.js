// The installed page: its service worker, and letting this device be told of things while no page is open.
(() => {
  "use strict";
  if (!("serviceWorker" in navigator) || !window.isSecureContext) return;
  const ready = navigator.serviceWorker.register("/sw.js", { scope: "/" });
  ready.catch(() => { /* without it the page works as it does in a browser */ });

  const form = document.getElementById("device-form");
  if (!form) return;
  const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
  const state = document.getElementById("device-state"), on = document.getElementById("device-on");
  const isPossible = "PushManager" in window && "Notification" in window;
  const say = (words) => { state.textContent = words; };

  function show() {
    const isDenied = isPossible && Notification.permission === "denied";
    on.hidden = !isPossible || isDenied;
    say(!isPossible ? "This browser doesn’t support push notifications. On an iPhone, add this page to the home screen first."
      : isDenied ? "Notifications from this site are blocked. Allow them in the browser’s settings."
        : "here" in on.dataset ? "This device receives notifications." : "This device doesn’t receive notifications yet.");
  }

  on.addEventListener("click", async () => {
    on.disabled = true;
    try {
      if (await Notification.requestPermission() !== "granted") { show(); return; }
      const registration = await navigator.serviceWorker.ready;
      const key = bytes(on.dataset.key), old = await registration.pushManager.getSubscription();
      // One that was made under another key, or by an earlier user of this browser, is useless.
      if (old) await old.unsubscribe();
      const made = (await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key })).toJSON();
      form.elements.endpoint.value = made.endpoint;
      form.elements.p256dh.value = made.keys.p256dh;
      form.elements.auth.value = made.keys.auth;
      form.requestSubmit();
    } catch (error) {
      say(`Setup failed: ${error.message || error}`);
    } finally {
      on.disabled = false;
    }
  });
  show();
})();
