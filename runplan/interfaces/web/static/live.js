// Keeps an open page up to date, sends its forms, and handles its keys. Pages work without it.
// data-events  of the body: the address of its events. After an event the page is loaded again.
// data-live    a region with an id that changes to what was loaded. What a person has typed, focused, opened, selected
//              or scrolled stays. Elements are matched by their id or data-key, others by their order.
// data-log     a region that scrolls; at its end it stays at its end.
// data-action  a form of POST /act; the page shows the plan after it, unless it is `stay`. data-confirm asks before.
// data-copy    a button that copies the text before it.
// data-path    the lines of a file; a click on one of them (data-n) begins a comment in #words.
// data-load    of a <details>: the address of a page whose #lines become its content when it is opened.
// data-age     a <time> whose text is the time since then.
"use strict";
(() => {
  const LOST_MS = 3000, RETRY_MS = 3000, REST_MS = 500, REPLACED_MS = 1500, SEQUENCE_MS = 1500;
  const CONTROLS = "textarea, select, input";
  const [status, connection] = ["status", "connection"].map((id) => document.getElementById(id));
  const address = document.body.dataset.events;
  const say = (text, kind) => { status.textContent = text; status.dataset.kind = kind; };
  const parse = async (response) => new DOMParser().parseFromString(await response.text(), "text/html");

  // --- what a person does with the page ---------------------------------------------------------------------
  const isText = (node) => node.matches("textarea, select, input:not([type=hidden], [type=submit], [type=button])");

  function isEdited(control) {
    if (control.type === "checkbox" || control.type === "radio") return control.checked !== control.defaultChecked;
    if (control.tagName !== "SELECT") return control.value !== control.defaultValue;
    return control.selectedIndex !== Math.max([...control.options].findIndex((option) => option.defaultSelected), 0);
  }

  // A form in use is left alone: its answer is about what the person has seen.
  function isInUse(element) {
    const focused = document.activeElement;
    if (focused && element.contains(focused) && isText(focused)) return true;
    const parts = [element, ...element.querySelectorAll(`form, ${CONTROLS}`)];
    return parts.some((part) => part.matches(CONTROLS) ? isEdited(part) : part.matches("form[aria-busy=true]"));
  }

  // --- changing the page in place ---------------------------------------------------------------------------
  const isElement = (node) => node.nodeType === Node.ELEMENT_NODE;
  const keyOf = (node) => isElement(node) ? node.getAttribute("id") || node.dataset.key || "" : "";  // form.id may be a field

  function morph(node, next) {
    if (!isElement(node)) {
      if (node.data === next.data) return;
      // A text that grows keeps its selection.
      if (next.data.startsWith(node.data)) node.appendData(next.data.slice(node.data.length));
      else node.data = next.data;
      return;
    }
    if (node.loaded && node.loaded === next.dataset.load) return morph(node.firstElementChild, next.firstElementChild);
    if (node.matches(`form, ${CONTROLS}`) && isInUse(node) && !(node.isRefused && !node.matches("[aria-busy]"))) return;
    const isAtEnd = node.hasAttribute("data-log") && node.scrollHeight - node.scrollTop - node.clientHeight < 8;
    morphAttributes(node, next);
    if (node.tagName === "TEXTAREA") node.value = node.defaultValue = next.defaultValue;
    else morphChildren(node, next);
    if (isAtEnd) node.scrollTop = node.scrollHeight;
    if (node.loaded && node.open) loadInto(node);
  }

  function morphAttributes(node, next) {
    const isKept = (name) => (name === "open" && node.matches("details, dialog")) || name === "tabindex";
    for (const { name } of [...node.attributes]) {
      if (!next.hasAttribute(name) && !isKept(name)) node.removeAttribute(name);
    }
    for (const { name, value } of next.attributes) {
      if (node.getAttribute(name) === value || isKept(name)) continue;
      node.setAttribute(name, value);
      if (name === "value" && node.name === "tree" && node.form) node.form.replacedAt = Date.now();
      if (name === "value" && isText(node)) node.value = value;
    }
  }

  function morphChildren(parent, next) {
    const keys = new Set([...next.childNodes].map(keyOf));
    const byKey = new Map();
    for (const child of [...parent.childNodes].filter(keyOf)) {
      if (keys.has(keyOf(child))) byKey.set(keyOf(child), child);
      else if (!isInUse(child)) child.remove();
    }
    let current = parent.firstChild;
    for (const item of [...next.childNodes]) {
      while (current && keyOf(current) && !byKey.has(keyOf(current))) current = current.nextSibling;  // it is in use
      const match = keyOf(item) ? byKey.get(keyOf(item)) : current && !keyOf(current) ? current : null;
      if (!match || match.nodeName !== item.nodeName) {
        parent.insertBefore(document.importNode(item, true), current);
        continue;
      }
      if (match === current) current = current.nextSibling;
      else parent.insertBefore(match, current);
      morph(match, item);
    }
    for (let following; current; current = following) {
      following = current.nextSibling;
      if (!isElement(current) || !isInUse(current)) current.remove();
    }
  }

  function updateFrom(page) {
    const focused = document.activeElement;
    for (const region of document.querySelectorAll("[data-live][id]")) {
      const next = page.getElementById(region.id);
      if (next && !region.parentElement.closest("[data-live]")) morph(region, next);
    }
    document.title = page.title;
    document.body.dataset.now = page.body.dataset.now;
    skew = measureSkew();
    showAges();
    if (focused && focused.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
  }

  async function loadInto(target) {
    if (!target.open || !target.dataset.load || target.loaded === target.dataset.load) return;
    const page = await fetch(target.dataset.load).then(parse).catch(() => null);
    const lines = page?.getElementById("lines");
    if (!lines) return page && showResult(page);
    target.loaded = target.dataset.load;
    target.replaceChildren(target.querySelector("summary"), ...lines.childNodes);
  }
  document.addEventListener("toggle", ({ target }) => loadInto(target), true);

  // --- loading it again -------------------------------------------------------------------------------------
  let isLoading = false, isStale = false, isSignedOut = false;
  async function refresh() {
    isStale = true;
    if (isLoading) return;
    isLoading = true;
    while (isStale && !isSignedOut) {
      isStale = false;
      await load();
      await new Promise((resolve) => setTimeout(resolve, REST_MS));
    }
    isLoading = false;
  }

  async function load() {
    try {
      const response = await fetch(location.href, { cache: "no-store" });
      const page = await parse(response);
      isSignedOut = response.status === 401;
      if (response.ok) updateFrom(page);
      else showResult(page);
    } catch {}  // The connection is lost; the stream of events shows it.
  }

  function showResult(page) {
    const result = page.querySelector(".result");
    const isDone = result !== null && result.dataset.result === "done";
    say(result ? result.textContent.trim() : "The server gave no answer.", isDone ? "done" : "error");
    return isDone;
  }

  let events = null, lostTimer = 0, retryTimer = 0;
  const disconnect = () => { if (events) events.close(); events = null; };

  function connect() {
    clearTimeout(retryTimer);
    if (!address || events || document.hidden || isSignedOut) return;
    events = new EventSource(address);
    events.addEventListener("changed", refresh);
    events.addEventListener("open", () => {
      if (lostTimer) refresh();
      clearTimeout(lostTimer);
      lostTimer = 0;
      connection.textContent = "";
    });
    events.addEventListener("error", () => {
      lostTimer = lostTimer || setTimeout(() => { connection.textContent = "Connection lost, retrying."; }, LOST_MS);
      if (events.readyState !== EventSource.CLOSED) return;
      disconnect();
      refresh();  // shows the reason, if the server answers
      retryTimer = setTimeout(connect, RETRY_MS);
    });
  }

  // A browser opens few connections to a server: hidden pages hold none.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return disconnect();
    if (address) refresh();
    connect();
  });
  addEventListener("pagehide", disconnect);

  // --- forms ------------------------------------------------------------------------------------------------
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("[data-action]")) return;
    event.preventDefault();
    const isReplaced = Date.now() - (form.replacedAt || 0) < REPLACED_MS;
    if (form.matches("[aria-busy=true]")) return;
    if (isReplaced) say("The change was replaced just now; look at it again.", "error");
    else if (!form.dataset.confirm || confirm(form.dataset.confirm)) send(form, new FormData(form, event.submitter));
  });

  async function send(form, fields) {
    const buttons = form.querySelectorAll("button");
    form.setAttribute("aria-busy", "true");
    buttons.forEach((button) => { button.disabled = true; });
    say("Sending …", "busy");
    try {
      const response = await fetch(form.getAttribute("action"), { method: "POST", body: new URLSearchParams(fields) });
      form.isRefused = !showResult(await parse(response));  // then it gets the new tree, and keeps the words
      if (!form.isRefused) form.reset();
      if (response.redirected && form.dataset.action !== "stay") return location.assign(response.url);
      if (form.contains(document.activeElement) && isText(document.activeElement)) document.activeElement.blur();
    } catch {
      say("The server did not answer. Look at the page before you send it again.", "error");
    }
    form.removeAttribute("aria-busy");
    buttons.forEach((button) => { button.disabled = false; });
    if (address) await refresh();
    if (document.activeElement === document.body) document.getElementById("main").focus({ preventScroll: true });
  }

  // --- copying ----------------------------------------------------------------------------------------------
  if (navigator.clipboard) document.documentElement.dataset.copies = "";
  document.addEventListener("click", ({ target }) => {
    if (!target.matches("[data-copy]")) return;
    navigator.clipboard.writeText(target.previousElementSibling.textContent)
      .then(() => say("Copied.", "done"), () => say("The browser does not let pages copy.", "error"));
  });

  // --- comments on lines ------------------------------------------------------------------------------------
  document.addEventListener("click", ({ target }) => {
    const words = document.getElementById("words");
    const line = target.closest("[data-path] [data-n]");
    if (!words || !line || !getSelection().isCollapsed) return;
    const begun = words.value.trimEnd();
    words.value = `${begun}${begun && "\n"}${line.closest("[data-path]").dataset.path}:${line.dataset.n}: `;
    words.focus();
  });

  // --- keys -------------------------------------------------------------------------------------------------
  let sequenceUntil = 0;
  document.addEventListener("keydown", (event) => {
    const target = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey || isText(target) || target.closest("dialog")) return;
    const links = [...document.querySelectorAll("a[data-go]")];
    const link = Date.now() < sequenceUntil && links.find((item) => item.dataset.go === event.key);
    sequenceUntil = event.key === "g" ? Date.now() + SEQUENCE_MS : 0;
    if (link) link.click();
    else if (event.key === "j" || event.key === "k") moveToCard(event.key === "j" ? 1 : -1);
    else if (event.key === "?" && document.getElementById("help")) document.getElementById("help").showModal();
    else if (event.key === "Enter" && target.matches(".card")) target.querySelector("a")?.click();
  });

  function moveToCard(step) {
    const cards = [...document.querySelectorAll(".card")];
    const here = cards.findIndex((card) => card.contains(document.activeElement));
    const card = cards[here < 0 ? 0 : here + step];
    if (card) { card.tabIndex = -1; card.focus(); }
  }

  // --- times ------------------------------------------------------------------------------------------------
  const measureSkew = () => Date.now() - Date.parse(document.body.dataset.now);
  let skew = measureSkew();

  function inWords(seconds) {  // as the server writes them
    const minutes = Math.floor((seconds + 30) / 60);
    if (minutes < 60) return seconds < 60 ? `${seconds}s` : `${minutes}m`;
    const [count, size, units] = minutes < 1440 ? [minutes, 60, "hm"] : [Math.floor((minutes + 30) / 60), 24, "dh"];
    return `${Math.floor(count / size)}${units[0]}${count % size ? ` ${count % size}${units[1]}` : ""}`;
  }

  function showAges() {
    for (const time of document.querySelectorAll("time[data-age]")) {
      const words = inWords(Math.max(Math.round((Date.now() - skew - Date.parse(time.dateTime)) / 1000), 0));
      if (time.textContent !== words) time.textContent = words;
    }
  }

  const url = new URL(location.href);
  if (url.searchParams.has("done")) {  // what was done is not shown again
    url.searchParams.delete("done");
    history.replaceState(null, "", url);
  }
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  document.querySelectorAll("[data-log]").forEach((log) => { log.scrollTop = log.scrollHeight; });
  setInterval(() => { if (!document.hidden) showAges(); }, 1000);
  connect();
})();
