// Before the first paint: the scheme that was chosen here, if one was.
{
  const chosen = localStorage.getItem("penstock-scheme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.scheme = chosen;
}
