// The link to the next part of a list is followed as it comes near, and replaced by that part.
const TAIL_SECONDS_MAX = 60;

// `by` is "reader", or "timer": what asks by itself does not keep a session from ending.
export async function fetchPart(address, by = "reader") {
  const headers = { "Penstock-Fragment": by };
  const answer = await fetch(address, { headers, credentials: "same-origin" });
  if (answer.status === 401) location.reload();
  const part = document.createElement("template");
  part.innerHTML = await answer.text();
  if (!answer.ok) throw part.content;
  return part.content;
}

async function follow(link, by) {
  const row = link.closest("[data-more-row]");
  if (row.dataset.busy) return;
  row.dataset.busy = "1";
  link.setAttribute("aria-busy", "true");
  const focused = document.activeElement === link;
  try {
    const part = await fetchPart(link.href, by);
    const first = part.querySelector("a[href], [tabindex]");
    const tail = part.querySelector("a[data-tail]");
    // Where nothing came, it is looked at less and less often.
    if (tail && !part.querySelector(".entry")) tail.dataset.tail = Math.min(2 * link.dataset.tail, TAIL_SECONDS_MAX);
    followMore(part);
    row.replaceWith(part);
    if (focused && first) first.focus({ preventScroll: true });
    document.dispatchEvent(new CustomEvent("penstock:more"));
  } catch {
    delete row.dataset.busy;
    link.removeAttribute("aria-busy");
    link.textContent = "This did not come. Try again";
  }
}

const near = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      near.unobserve(entry.target);
      follow(entry.target, "reader");
    }
  },
  { rootMargin: "600px" },
);

// What goes on at its end is looked at every few seconds, while somebody looks.
function watch(link) {
  const seconds = Number(link.dataset.tail);
  const timer = setInterval(() => {
    if (!link.isConnected) clearInterval(timer);
    else if (!document.hidden) follow(link, "timer");
  }, 1000 * seconds);
}

export function followMore(within) {
  for (const link of within.querySelectorAll("a[data-tail]")) watch(link);
  for (const link of within.querySelectorAll("a[data-more]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      follow(link, "reader");
    });
    if (!link.hasAttribute("data-by-hand")) near.observe(link);
  }
}
