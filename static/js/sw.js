// The service worker of the installed page, served at /sw.js for all of the site. It keeps the page that is shown without a
// connection, and its styles. Nothing else is ever kept: no case, no list, no answer of the API is on the device.
"use strict";
const CACHE = "shell-1", OFFLINE = "/static/offline.html";
const SHELL = [OFFLINE, "/static/css/tokens.css", "/static/css/base.css", "/static/css/forms.css", "/static/img/mark.svg"];

self.addEventListener("install", (event) => {
  event.waitUntil((async () => {
    const cache = await caches.open(CACHE);
    // Without cookies: what is kept is what anybody is given.
    await cache.addAll(SHELL.map((path) => new Request(path, { cache: "reload", credentials: "omit" })));
    await self.skipWaiting();
  })());
});

self.addEventListener("activate", (event) => {
  event.waitUntil((async () => {
    for (const name of await caches.keys()) if (name !== CACHE) await caches.delete(name);
    await self.clients.claim();
  })());
});

const kept = async (path) => (await (await caches.open(CACHE)).match(path)) || Response.error();

// The network first, always: what is kept only stands in where there is none.
self.addEventListener("fetch", (event) => {
  const { request } = event, url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== self.location.origin) return;
  if (request.mode === "navigate") event.respondWith(fetch(request).catch(() => kept(OFFLINE)));
  else if (SHELL.includes(url.pathname)) event.respondWith(fetch(request).catch(() => kept(url.pathname)));
});

// --- what the installation tells this device of --------------------------------------------------------------------------

self.addEventListener("push", (event) => {
  let told = {};
  try { told = event.data?.json() || {}; } catch { /* a push that can't be read still has to be shown, as something */ }
  const path = typeof told.url === "string" && /^\/(?![/\\])/.test(told.url) ? told.url : "/inbox";
  event.waitUntil(self.registration.showNotification(String(told.title || "A case is waiting for you"), {
    body: String(told.body || ""), tag: String(told.tag || ""), icon: "/static/img/icon-192.png", data: { path },
  }));
});

// It opens the page, which asks for a sign-in. Nothing is decided from here.
self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil((async () => {
    const path = event.notification.data?.path || "/inbox", open = await self.clients.matchAll({ type: "window" });
    const here = open.find((one) => new URL(one.url).pathname === path);
    await (here ? here.focus() : self.clients.openWindow(path));
  })());
});
