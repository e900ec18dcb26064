// Runs before the page is drawn, so that a chosen theme does not flash in from the other one.
(() => {
  try {
    const { theme } = JSON.parse(localStorage.getItem("gristmill:settings")) ?? {};
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // nothing stored
  }
})();
