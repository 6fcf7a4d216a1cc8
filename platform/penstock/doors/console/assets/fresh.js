// <div data-fresh="10"> is fetched anew every so many seconds while somebody looks: the block `list`
// of the page itself, or of the address in data-from.
import { fetchPart, followMore } from "./more.js";

async function renew(place) {
  const inside = place.contains(document.activeElement) && document.activeElement !== place;
  if (document.hidden || inside || place.dataset.paused) return;
  try {
    place.replaceChildren(await fetchPart(place.dataset.from || location.href, "timer"));
    followMore(place);
  } catch {
    // The next round may come through; what is shown stays.
  }
}

export function keepFresh() {
  for (const place of document.querySelectorAll("[data-fresh]")) {
    setInterval(() => renew(place), 1000 * Number(place.dataset.fresh));
  }
  // Figures are on their way. Nobody who types is disturbed.
  if (document.querySelector("[data-anew]")) {
    setInterval(() => document.activeElement.matches("input, select, textarea") || location.reload(), 1500);
  }
}
