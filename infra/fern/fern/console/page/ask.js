// Every button ends here: what it did, or why it could not, is said in words.
import { byId, clock, el } from "./dom.js";

const MOST_SAID = 30;
function say(answers) {
  const list = byId("said");
  list.querySelector(".empty")?.remove();
  for (const { ok, words } of answers) {
    const sign = el("span", { class: ok ? "sign ok" : "sign bad", "aria-label": ok ? "done" : "not done", role: "img" }, ok ? "✓" : "✕");
    list.prepend(el("li", {}, sign, el("span", {}, words), el("time", {}, clock(Date.now()))));
  }
  while (list.children.length > MOST_SAID) list.lastElementChild.remove();
  list.parentElement.scrollTop = 0;
}

export async function ask(button, method, path, body = {}) {
  if (button.getAttribute("aria-busy") === "true") return;
  button.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    const told = await answer.json();
    say(answer.ok ? told : [{ ok: false, words: told.detail ?? `The console answered ${answer.status}.` }]);
  } catch {
    say([{ ok: false, words: "No answer from the console; it may be starting again." }]);
  } finally {
    button.removeAttribute("aria-busy");
  }
}
