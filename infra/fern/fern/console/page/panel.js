// One panel that opens beside what was clicked. It does not block the page.
import { byId, text } from "./dom.js";

const panel = byId("panel"), body = byId("panel-body");
let opener = null, closed = () => {};

byId("panel-close").addEventListener("click", closePanel);
new ResizeObserver(keepInside).observe(panel);
panel.addEventListener("keydown", (event) => { if (event.key === "Escape") { event.preventDefault(); closePanel(); } });

export function openPanel(anchor, title, nodes, onClose = () => {}, size = "") {
  closed();
  [opener, closed] = [anchor, onClose];
  text(byId("panel-title"), title);
  body.replaceChildren(...nodes);
  panel.className = size;
  panel.style.top = `${scrollY + 8}px`; // inside the window, so that nothing scrolls when it gets the focus
  if (!panel.open) panel.show();
  placeBeside(anchor);
  byId("panel-title").focus({ preventScroll: true });
}

export function closePanel() {
  if (!panel.open) return;
  panel.close();
  closed();
  closed = () => {};
  if (opener?.isConnected) opener.focus();
  else byId("stage").focus();
}

// Puts the panel to the right of the anchor or else to its left, inside the window; on a narrow screen the style sheet puts it at the bottom.
function placeBeside(anchor) {
  const box = anchor.getBoundingClientRect(), { offsetWidth: width, offsetHeight: height } = panel;
  const left = box.right + 8 + width < document.documentElement.clientWidth ? box.right + 8 : Math.max(8, box.left - width - 8);
  panel.style.left = `${left + scrollX}px`;
  panel.style.top = `${Math.max(8, Math.min(box.top, innerHeight - height - 8)) + scrollY}px`;
}

// Content that arrives later may make the panel longer: then it is moved up, so that its end stays in the window.
function keepInside() {
  const lowest = scrollY + Math.max(8, innerHeight - panel.offsetHeight - 8);
  if (panel.open && parseFloat(panel.style.top) > lowest) panel.style.top = `${lowest}px`;
}
