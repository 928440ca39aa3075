/* Signalbox in the browser. Plain script, no eval, nothing inline: what it adds to pages that work without it.
 *
 *   live updates   <body data-live-url>, elements with data-live="topic" hx-get hx-trigger="live" hx-swap="morph:outerHTML"
 *   dialogs        <a data-dialog href> fetches the page's form over the page; <… data-close> closes
 *   rows           <table data-rows> with a.row-link in each row: j, k, Enter, x, and a click anywhere in the row
 *   copying        <button data-copy="text">
 *   times          <time datetime data-time="relative|age|exact|clock">
 *   keys           / find, ? keys, g then a letter (data-go), Escape. Ctrl-K and Cmd-K are reserved.
 *   themes         <button data-theme-set="|light|dark">
 *   forms          a POST is sent once; after an error or a way back it can be sent again
 */
(function () {
  "use strict";

  var root = document.documentElement;
  var ready = document.readyState !== "loading";
  root.classList.add("js");

  function all(selector, within) { return Array.prototype.slice.call((within || document).querySelectorAll(selector)); }
  function near(target, selector) { return target instanceof Element ? target.closest(selector) : null; }
  function inDialog() { return document.querySelector("dialog[open]"); }

  /* ---- saying things ------------------------------------------------------------------------------------- */

  function say(text) {
    var region = document.getElementById("live-region");
    if (!region) { return; }
    region.textContent = "";
    setTimeout(function () { region.textContent = text; }, 50);
  }

  function toast(text) {
    var box = document.getElementById("toasts");
    say(text);
    if (!box) { return; }
    var item = document.createElement("div");
    item.className = "toast";
    item.textContent = text;
    while (box.children.length > 2) { box.firstChild.remove(); }
    box.appendChild(item);
    setTimeout(function () { item.remove(); }, 4500);
  }

  /* ---- morphing: what a person has typed, opened or focused stays ------------------------------------------ */

  function isTouched(el) {
    if (el instanceof HTMLInputElement) {
      if (el.type === "hidden") { return false; }
      if (el.type === "checkbox" || el.type === "radio") { return el.checked !== el.defaultChecked; }
      return el.value !== el.defaultValue;
    }
    if (el instanceof HTMLTextAreaElement) { return el.value !== el.defaultValue; }
    if (el instanceof HTMLSelectElement) { return el.dataset.touched === "yes"; }
    return false;
  }

  if (window.Idiomorph) {
    Idiomorph.defaults.ignoreActiveValue = true;
    Idiomorph.defaults.restoreFocus = true;
    Idiomorph.defaults.callbacks.beforeNodeMorphed = function (node, next) {
      if (!(node instanceof Element)) { return true; }
      // Only the control itself is left alone: everything round it follows the server.
      if (isTouched(node)) { return false; }
      // What was asked of a receiver stays while it is about the same: the page that comes does not have it.
      if (node.hasAttribute("data-answered") && next instanceof Element && !next.hasAttribute("data-answered") &&
          next.id === node.id) { return false; }
      return !(node.isEqualNode && next instanceof Element && node.isEqualNode(next));
    };
    Idiomorph.defaults.callbacks.beforeAttributeUpdated = function (name, node) {
      // What a person opened or shut stays so, until the element itself goes.
      return !(name === "open" && (node instanceof HTMLDetailsElement || node instanceof HTMLDialogElement));
    };
  }
  document.addEventListener("change", function (event) {
    if (event.target instanceof HTMLSelectElement) { event.target.dataset.touched = "yes"; }
  });

  var focusedBefore = null;
  document.addEventListener("htmx:beforeSwap", function () {
    var active = document.activeElement;
    focusedBefore = active && active !== document.body ? { el: active, id: active.id, href: active.getAttribute("href") } : null;
  });
  document.addEventListener("htmx:afterSwap", function (event) {
    tick();
    if (focusedBefore && !focusedBefore.el.isConnected && document.activeElement === document.body) {
      var again = focusedBefore.id ? document.getElementById(focusedBefore.id)
        : focusedBefore.href ? all("a[href]", event.target).find(function (a) { return a.getAttribute("href") === focusedBefore.href; }) : null;
      if (again) { again.focus({ preventScroll: true }); }
    }
    if (document.querySelector("[data-final]")) { stream.close(); } else { stream.sync(); }
  });

  /* ---- live updates --------------------------------------------------------------------------------------- */

  var stream = (function () {
    var source = null, due = new Map(), lost = false, ever = false, wait = 1000, asked = "", timer = null, showTimer = null, sleepTimer = null, closed = false;

    function topics() {
      var seen = new Set();
      all("[data-live]").forEach(function (el) { el.dataset.live.split(/\s+/).forEach(function (t) { if (t) { seen.add(t); } }); });
      return Array.from(seen).sort();
    }
    function refetch(filter) {
      all("[data-live]").forEach(function (el) {
        if (!filter || el.dataset.live.split(/\s+/).some(filter)) {
          el.dispatchEvent(new CustomEvent("live", { bubbles: false }));
        }
      });
    }
    function fire(topic) {
      if (due.has(topic)) { return; } // one refetch answers every event of these 150 ms
      due.set(topic, setTimeout(function () {
        due.delete(topic);
        refetch(function (t) { return t === topic; });
      }, 150));
    }
    function onMessage(event) {
      var names; // JSON with topic or topics, or plain words
      try { var said = JSON.parse(event.data); names = said.topics || [said.topic]; } catch (e) { names = event.data.split(/\s+/); }
      names.forEach(function (topic) { if (topic) { fire(topic); } });
    }
    function showLost() {
      var box = document.getElementById("connection");
      if (!box || !box.hidden) { return; }
      box.hidden = false;
      say("Connection lost, trying again.");
    }
    function back() {
      clearTimeout(showTimer); showTimer = null;
      var box = document.getElementById("connection");
      if (box && !box.hidden) { box.hidden = true; say("Connected again."); }
      wait = 1000;
      if (lost && ever) { refetch(null); } // whatever was missed meanwhile
      lost = false; ever = true;
    }
    function open() {
      var url = document.body.dataset.liveUrl, names = topics();
      if (closed || source || !url || !names.length || document.querySelector("[data-final]")) { return; }
      asked = names.join();
      var query = names.map(function (t) { return "topic=" + encodeURIComponent(t); }).join("&");
      source = new EventSource(url + (url.indexOf("?") < 0 ? "?" : "&") + query);
      source.addEventListener("open", back);
      // Said once the server listens: what changed between the page and that moment was told to nobody.
      source.addEventListener("listening", function () { refetch(null); });
      source.addEventListener("message", onMessage);
      source.addEventListener("change", onMessage);
      source.addEventListener("error", function () {
        lost = true;
        if (!showTimer) { showTimer = setTimeout(showLost, 2000); }
        if (source && source.readyState === EventSource.CLOSED) { // refused: the browser will not try again, we do
          drop();
          clearTimeout(timer);
          timer = setTimeout(open, wait + Math.random() * 500);
          wait = Math.min(wait * 2, 15000);
        }
      });
    }
    function sync() { // a swap may have brought other topics: ask for those, and catch up with what they missed
      if (!source || topics().join() === asked) { return; }
      lost = true;
      drop();
      open();
    }
    function drop() { if (source) { source.close(); source = null; } }
    function close() { closed = true; drop(); clearTimeout(timer); clearTimeout(showTimer); }

    // A page in the background for a minute gives its connection back, and catches up when it is looked at.
    document.addEventListener("visibilitychange", function () {
      clearTimeout(sleepTimer);
      if (document.hidden) { sleepTimer = setTimeout(function () { if (source) { lost = true; drop(); } }, 60000); } else { open(); }
    });
    window.addEventListener("pagehide", function () { drop(); });
    window.addEventListener("pageshow", function (event) { if (event.persisted) { lost = true; open(); } });
    return { open: open, close: close, sync: sync };
  })();

  document.addEventListener("htmx:sendError", function () { toast("Could not reach Signalbox. Nothing was changed here."); });
  document.addEventListener("htmx:responseError", function (event) {
    var status = event.detail.xhr ? event.detail.xhr.status : 0;
    if (event.detail.elt && event.detail.elt.hasAttribute && event.detail.elt.hasAttribute("data-live")) {
      if (status === 404) { toast("This is not there any more."); }
      return;
    }
    toast(status === 403 ? "You may not do this." : status === 404 ? "This is not there any more." : "That did not work (" + status + ").");
  });

  /* ---- dialogs -------------------------------------------------------------------------------------------- */

  function openDialog(link) {
    var dialog = document.getElementById("dialog"), body = document.getElementById("dialog-body");
    if (!dialog || !body || !window.htmx || !dialog.showModal) { return false; }
    body.replaceChildren();
    // From the body, so that the link inherits no hx-select or hx-swap of the live part it stands in.
    htmx.ajax("GET", link.href, { target: "#dialog-body", swap: "innerHTML", source: document.body }).then(function () {
      if (!body.firstElementChild) { window.location.href = link.href; return; } // an error: its page says what it is
      if (!dialog.open) { dialog.showModal(); }
      var safe = body.querySelector("[autofocus]");
      if (safe) { safe.focus(); }
    });
    return true;
  }

  function closeDialog(dialog) { if (dialog && dialog.open) { dialog.close(); } }

  /* ---- copying -------------------------------------------------------------------------------------------- */

  function copy(button) {
    var text = button.dataset.copy;
    function done() {
      button.classList.add("is-copied");
      say("Copied");
      setTimeout(function () { button.classList.remove("is-copied"); }, 1200);
    }
    function failed() { toast("The browser did not allow copying."); }
    if (navigator.clipboard) { navigator.clipboard.writeText(text).then(done, failed); return; }
    // Plain http on another host than localhost has no clipboard API.
    var area = document.createElement("textarea");
    area.value = text;
    area.setAttribute("readonly", "");
    area.className = "visually-hidden";
    document.body.appendChild(area);
    area.select();
    var ok = document.execCommand("copy");
    area.remove();
    button.focus();
    if (ok) { done(); } else { failed(); }
  }

  /* ---- times ---------------------------------------------------------------------------------------------- */

  function relative(seconds, bare) {
    var size = Math.abs(seconds), text;
    if (size < 5) { return bare ? "0 s" : "now"; }
    if (size < 60) { text = Math.floor(size) + " s"; }
    else if (size < 3600) { text = Math.floor(size / 60) + " min"; }
    else if (size < 86400) { text = Math.floor(size / 3600) + " h"; }
    else { text = Math.floor(size / 86400) + " d"; }
    return bare ? text : seconds > 0 ? text + " ago" : "in " + text;
  }
  function two(n) { return (n < 10 ? "0" : "") + n; }
  function local(at) { return at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate()) + " " + clock(at); }
  function clock(at) { return two(at.getHours()) + ":" + two(at.getMinutes()) + ":" + two(at.getSeconds()); }

  function tick() {
    var now = Date.now();
    all("time[data-time]").forEach(function (el) {
      var at = new Date(el.dateTime), look = el.dataset.time, text;
      if (isNaN(at)) { return; }
      if (look === "exact") { text = local(at); }
      else if (look === "clock") { text = clock(at); }
      else if (Math.abs(now - at) >= 30 * 86400000) { return; } // a date, as the server wrote it
      else { text = relative((now - at) / 1000, look === "age"); }
      if (el.textContent !== text) { el.textContent = text; }
    });
  }
  setInterval(function () { if (!document.hidden) { tick(); } }, 5000);
  document.addEventListener("visibilitychange", function () { if (!document.hidden) { tick(); } });

  /* ---- theme ---------------------------------------------------------------------------------------------- */

  function setTheme(theme) {
    var secure = location.protocol === "https:" ? "; secure" : "";
    if (theme) { root.dataset.theme = theme; } else { delete root.dataset.theme; }
    document.cookie = "theme=" + theme + "; path=/; samesite=lax; max-age=" + (theme ? 31536000 : 0) + secure;
    markTheme();
  }
  function markTheme() {
    var now = root.dataset.theme || "";
    all("[data-theme-set]").forEach(function (b) { b.setAttribute("aria-pressed", String(b.dataset.themeSet === now)); });
  }

  /* ---- rows ----------------------------------------------------------------------------------------------- */

  function moveRow(step) {
    var links = all("[data-rows] .row-link").filter(function (a) { return a.offsetParent !== null; });
    if (!links.length) { return false; }
    var row = near(document.activeElement, "[data-rows] tr");
    var at = row ? links.findIndex(function (a) { return row.contains(a); }) : -1;
    var next = links[at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.max(0, Math.min(links.length - 1, at + step))];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
    return true;
  }

  /* ---- one click for all of it ---------------------------------------------------------------------------- */

  document.addEventListener("click", function (event) {
    all("details.menu[open]").forEach(function (menu) { if (!menu.contains(event.target)) { menu.open = false; } });

    var button = near(event.target, "[data-copy]");
    if (button) { event.preventDefault(); copy(button); return; }
    button = near(event.target, "[data-theme-set]");
    if (button) { setTheme(button.dataset.themeSet); return; }
    button = near(event.target, "[data-keys]");
    if (button) { document.getElementById("keys").showModal(); return; }
    button = near(event.target, "[data-close]");
    if (button && near(button, "dialog")) { event.preventDefault(); closeDialog(near(button, "dialog")); return; }
    if (event.target instanceof HTMLDialogElement) { closeDialog(event.target); return; } // the scrim
    if (near(event.target, '[aria-disabled="true"]')) { event.preventDefault(); return; }

    var plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    var link = near(event.target, "a[data-dialog]");
    if (link && plain && openDialog(link)) { event.preventDefault(); return; }

    var row = near(event.target, "[data-rows] tbody tr");
    if (row && plain && !near(event.target, "a, button, input, label, summary, select, textarea") && !String(window.getSelection())) {
      var to = row.querySelector(".row-link");
      if (to) { to.click(); }
    }
  });

  /* ---- keys ----------------------------------------------------------------------------------------------- */

  var goUntil = 0;
  function isTyping(el) { return !!near(el, "input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]"); }

  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape") {
      all("details.menu[open]").forEach(function (menu) { menu.open = false; menu.querySelector("summary").focus(); });
      if (isTyping(event.target) && event.target.id === "find") { event.target.blur(); }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isTyping(event.target) || inDialog()) { return; }
    var handled = true;
    if (goUntil > Date.now()) {
      goUntil = 0;
      var to = document.querySelector('[data-go="' + CSS.escape(event.key) + '"]');
      if (to) { to.click(); } else { handled = false; }
    } else if (event.key === "g") { goUntil = Date.now() + 1200; }
    else if (event.key === "/") { var find = document.getElementById("find"); if (find) { find.focus(); find.select(); } else { handled = false; } }
    else if (event.key === "?") { document.getElementById("keys").showModal(); }
    else if (event.key === "j") { handled = moveRow(1); }
    else if (event.key === "k") { handled = moveRow(-1); }
    else if (event.key === "x") {
      var box = near(event.target, "[data-rows] tr");
      box = box && box.querySelector(".row-check");
      if (box) { box.click(); } else { handled = false; }
    } else { handled = false; }
    if (handled) { event.preventDefault(); }
  });

  /* ---- forms: once, and again after an error ---------------------------------------------------------------- */

  function release(form) {
    delete form.dataset.sent;
    all('[data-guarded]', form).forEach(function (b) { b.removeAttribute("aria-disabled"); b.removeAttribute("data-guarded"); });
  }
  document.addEventListener("submit", function (event) {
    var form = event.target;
    if (event.defaultPrevented && !form.hasAttribute("hx-post")) { return; }
    if ((form.getAttribute("method") || "get").toLowerCase() !== "post" && !form.hasAttribute("hx-post")) { return; }
    if (form.dataset.sent) { event.preventDefault(); event.stopImmediatePropagation(); return; }
    form.dataset.sent = "yes";
    // aria-disabled, not disabled: the pressed button's value is still sent, and the focus stays where it is.
    all("button:not([type=button]):not([aria-disabled]), input[type=submit]", form).forEach(function (b) {
      b.setAttribute("aria-disabled", "true");
      b.dataset.guarded = "yes";
    });
    setTimeout(function () { release(form); }, 8000); // a download, a stopped load, a lost answer
  }, true);
  window.addEventListener("pageshow", function () { all("form[data-sent]").forEach(release); });
  document.addEventListener("htmx:afterRequest", function (event) { var form = near(event.target, "form"); if (form) { release(form); } });

  function start() { markTheme(); tick(); stream.open(); }
  if (ready) { start(); } else { document.addEventListener("DOMContentLoaded", start); }
})();
