// The stories: each has a title, what is broken and can be seen, and why no text is sent twice.
import { ask } from "./ask.js";
import { byId, calm, el } from "./dom.js";

export async function loadStories() {
  try {
    const stories = await (await fetch("/api/stories")).json();
    byId("story-list").replaceChildren(...stories.map(makeStory));
  } catch {
    setTimeout(loadStories, 2000); // the console is starting
  }
}

// The stage is above the button, so the page is scrolled to it.
function play(button, name) {
  byId("stage").scrollIntoView({ behavior: calm.matches ? "instant" : "smooth" });
  return ask(button, "POST", `/api/stories/${name}`);
}

function makeStory({ name, title, sees, why }) {
  const id = `story-${name}`;
  const button = el("button", { type: "button", "aria-label": `Play: ${title}`, onclick: ({ currentTarget }) => play(currentTarget, name) }, "Play");
  return el("li", { class: "story", "data-story": name }, el("header", {}, el("h3", { id }, title), button),
    el("details", { open: matchMedia("(min-width: 60rem)").matches }, el("summary", {}, "What you will see"), el("p", {}, sees),
      el("p", { class: "soft" }, el("b", {}, "Why no text is sent twice: "), why)));
}
