// Light, dark, or as the system has it; remembered where the browser remembers anything.

const KEY = "pilotfish-theme";

export function startTheme(select) {
  const apply = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  select.value = recall();
  apply(select.value);
  select.addEventListener("change", () => {
    apply(select.value);
    remember(select.value);
  });
}

function recall() {
  try {
    return localStorage.getItem(KEY) ?? "";
  } catch {
    return ""; // storage is off
  }
}

function remember(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // Storage is off: the choice holds until the page is left.
  }
}
