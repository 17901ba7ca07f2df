// Sets the colours before the page is drawn, so that they do not flash. Without a choice, they follow the system.
"use strict";
{
  const names = ["auto", "light", "dark"], signs = { auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark" };
  const kept = () => { try { return localStorage.getItem("theme") ?? "auto"; } catch { return "auto"; } };
  const wear = (theme) => {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) { button.textContent = signs[theme]; button.setAttribute("aria-label", `Colours: ${theme}`); }
  };
  wear(kept());
  document.addEventListener("DOMContentLoaded", () => {
    wear(kept());
    document.getElementById("theme").addEventListener("click", () => {
      const next = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
      try { localStorage.setItem("theme", next); } catch { /* kept until the page is closed */ }
      wear(next);
    });
  });
}
