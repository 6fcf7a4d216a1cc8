// The editor of statements: Ctrl+Enter runs, Tab indents; Escape then Tab leaves it.
export function listenInEditors() {
  for (const form of document.querySelectorAll("form[data-editor]")) {
    const text = form.querySelector("textarea");
    let leaves = false;
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        form.requestSubmit();
      } else if (event.key === "Tab" && !event.shiftKey && !leaves) {
        event.preventDefault();
        text.setRangeText("  ", text.selectionStart, text.selectionEnd, "end");
      }
      leaves = event.key === "Escape";
    });
  }
}
