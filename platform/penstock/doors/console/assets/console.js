// What all pages have: the scheme, keys, lists that go on, parts that stay fresh. Pages work without.
import { followMore } from "./more.js";
import { keepFresh } from "./fresh.js";
import { listenForKeys } from "./keys.js";
import { listenInEditors } from "./editor.js";

const root = document.documentElement;

function chooseScheme() {
  const dark = root.dataset.scheme
    ? root.dataset.scheme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.scheme = dark ? "light" : "dark";
  localStorage.setItem("penstock-scheme", root.dataset.scheme);
}

for (const button of document.querySelectorAll("[data-theme-toggle]")) {
  button.hidden = false;
  button.addEventListener("click", chooseScheme);
}

for (const button of document.querySelectorAll("[data-open]")) {
  button.hidden = false;
  button.addEventListener("click", () => document.getElementById(button.dataset.open).showModal());
}

// On a phone the navigation is wider than the screen.
document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// The link that `penstock serve` shows holds a token behind its #, which no server is sent.
const signIn = document.querySelector("form[data-sign-in]");
if (signIn && location.hash.length > 1) {
  signIn.elements.link.value = location.hash.slice(1);
  signIn.elements.key.required = false;
  history.replaceState(null, "", location.pathname + location.search);
  signIn.submit();
}

// Fields that filter send their form as they change.
for (const field of document.querySelectorAll("form[data-filter] select, form[data-filter] input[type=date]")) {
  field.addEventListener("change", () => field.form.requestSubmit());
}

// An address without the fields that are empty.
for (const form of document.querySelectorAll("form[data-filter]")) {
  form.addEventListener("formdata", (event) => {
    for (const [name, value] of [...event.formData]) if (value === "") event.formData.delete(name);
  });
}

followMore(document);
keepFresh();
listenForKeys();
listenInEditors();
