// Keys that work wherever nobody types: g and a letter for pages, j and k for lists, / for search, ?.
const SEQUENCE_MS = 1200;
let began = -Infinity; // when g was pressed, in ms since the page was opened

function typing(target) {
  return target.closest?.("input, textarea, select, [contenteditable]") && target.type !== "checkbox";
}

function move(step) {
  const link = document.querySelector(step > 0 ? "a[rel=next]" : "a[rel=prev]");
  const stops = [...document.querySelectorAll("[data-stop]")];
  if (!stops.length) {
    link?.click();
    return;
  }
  const at = stops.indexOf(document.activeElement.closest?.("[data-stop]"));
  const next = stops[Math.max(0, Math.min(stops.length - 1, at + step))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

const ACTIONS = {
  "?": () => document.getElementById("shortcuts")?.showModal(),
  "/": () => document.querySelector("[data-search]")?.focus(),
  j: () => move(1),
  k: () => move(-1),
};

export function listenForKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.timeStamp - began < SEQUENCE_MS) {
      began = -Infinity;
      const link = document.querySelector(`nav [data-shortcut="${CSS.escape(event.key)}"]`);
      if (link) {
        event.preventDefault();
        link.click();
        return;
      }
    }
    if (event.key === "g") {
      began = event.timeStamp;
      return;
    }
    const pressed = document.querySelector(`main [data-key="${CSS.escape(event.key)}"]`);
    const action = pressed ? () => pressed.click() : ACTIONS[event.key];
    if (action) {
      event.preventDefault();
      action();
    }
  });
}
