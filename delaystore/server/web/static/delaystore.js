// Makes the pages livelier; all of them work without it, but for the refresh of the first one.
"use strict";

/** Replace what is in `target` by `html`, from our own server; what is open stays open, what has the focus keeps it. */
function replace(target, html) {
  const open = new Set([...target.querySelectorAll("details[open][id]")].map((each) => each.id));
  const focused = target.contains(document.activeElement) ? document.activeElement : null;
  const address = focused && focused.getAttribute("href");
  const summary = focused && focused.tagName === "SUMMARY" && focused.parentElement.id;
  target.innerHTML = html;
  for (const id of open) {
    const details = document.getElementById(id);
    if (details) details.open = true;
  }
  if (address) {
    const link = [...target.querySelectorAll("a")].find((each) => each.getAttribute("href") === address);
    if (link) link.focus({ preventScroll: true });
  } else if (summary) {
    const details = document.getElementById(summary);
    if (details) details.querySelector("summary").focus({ preventScroll: true });
  }
  localTimes(target);
}

/** The first screen, as the server tells it; not while the tab is hidden. Once the server no longer answers, it says so. */
function follow(target) {
  const away = document.getElementById("away");
  let source = null;
  let timer = null;
  const listen = () => {
    if (document.hidden || source) return;
    source = new EventSource(target.dataset.events);
    source.addEventListener("open", () => {
      clearTimeout(timer);
      timer = null;
      away.hidden = true;
    });
    source.addEventListener("overview", (event) => replace(target, event.data));
    source.addEventListener("error", () => {
      timer ??= setTimeout(() => (away.hidden = false), 6000); // each stream ends after a while
      if (source.readyState !== EventSource.CLOSED) return; // the browser asks again, but not after a refusal
      source = null;
      setTimeout(listen, 5000);
    });
  };
  const rest = () => {
    clearTimeout(timer);
    timer = null;
    if (source) source.close();
    source = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : listen()));
  window.addEventListener("pagehide", rest);
  window.addEventListener("pageshow", listen);
  listen();
}

/** The progress of something: ask for the same page again, until it asks for that no more. */
async function refresh(main) {
  const pause = Number(main.dataset.refresh);
  if (!pause) return;
  await new Promise((done) => setTimeout(done, pause));
  try {
    const answer = await fetch(location.href, { credentials: "same-origin", headers: { Accept: "text/html" } });
    if (answer.ok) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("main");
      if (fresh.dataset.refresh) main.dataset.refresh = fresh.dataset.refresh;
      else delete main.dataset.refresh;
      replace(main, fresh.innerHTML);
    }
  } catch {
    // the server is away for a moment
  }
  refresh(main);
}

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const isUtc = ["UTC", "Etc/UTC", "Etc/GMT", "GMT"].includes(zone);

/** A time of the server in the reader's time zone: 2026-11-24 06:30:12. */
function local(time) {
  const date = new Date(time);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${String(date.getFullYear()).padStart(4, "0")}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** Show times in the reader's zone. The server writes them in UTC, which stays in their titles. */
function localTimes(target) {
  if (isUtc) return;
  for (const time of target.querySelectorAll("time")) time.textContent = local(time.dateTime);
  for (const title of target.querySelectorAll("title[data-begin]")) {
    const { what, begin, end } = title.dataset;
    title.textContent = `${what}${local(begin).slice(0, -3)} to ${local(end).slice(11, -3)}`;
  }
}

/** The next runs of a schedule as its form is typed, or why there are none. */
function preview(form) {
  const target = form.querySelector("#runs");
  let timer = null;
  let last = 0;
  const ask = async () => {
    const number = ++last;
    const fields = new URLSearchParams();
    for (const each of form.querySelectorAll("[data-rule] input")) {
      if (each.type !== "checkbox" || each.checked) fields.set(each.name, each.value);
    }
    try {
      const answer = await fetch(`${form.dataset.preview}?${fields}`, { credentials: "same-origin" });
      if (answer.ok && number === last) replace(target, await answer.text());
    } catch {
      // the server is away for a moment
    }
  };
  form.querySelector("[data-rule]").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, 200);
  });
}

/** A form is sent once, however often its button is pressed. */
document.addEventListener("submit", (event) => {
  if (event.target.dataset.sent) event.preventDefault();
  if (event.target.method === "post") event.target.dataset.sent = "yes";
});

/** One menu is open at a time, and Escape closes it. */
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.act[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll("details.act[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});
window.addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});

if (!isUtc) {
  document.getElementById("zone").textContent = `times are in ${zone}; point at a time to see UTC; fields take UTC`;
}
localTimes(document);
const live = document.querySelector("[data-events]");
if (live) follow(live);
for (const form of document.querySelectorAll("[data-preview]")) preview(form);
refresh(document.querySelector("main"));
