// Tabs as the ARIA practices have them: arrow keys, Home and End move; the chosen one is in the address.

// onChange(name of the view) is called at once and with every change.
export function startTabs(tablist, onChange) {
  const tabs = [...tablist.querySelectorAll('[role="tab"]')];
  const nameOf = (tab) => tab.id.replace("tab-", "");

  function choose(tab) {
    for (const each of tabs) {
      const isChosen = each === tab;
      each.setAttribute("aria-selected", String(isChosen));
      each.tabIndex = isChosen ? 0 : -1;
      document.getElementById(each.getAttribute("aria-controls")).hidden = !isChosen;
    }
    onChange(nameOf(tab));
  }

  const byAddress = () => tabs.find((tab) => `#${nameOf(tab)}` === location.hash);

  tablist.addEventListener("click", (event) => {
    const tab = event.target.closest('[role="tab"]');
    if (!tab) return;
    history.replaceState(null, "", `#${nameOf(tab)}`);
    choose(tab);
  });
  tablist.addEventListener("keydown", (event) => {
    const at = tabs.indexOf(document.activeElement);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const tab = tabs[(next + tabs.length) % tabs.length];
    tab.focus();
    tab.click();
  });
  window.addEventListener("hashchange", () => {
    const tab = byAddress(); // other addresses are places within a view
    if (tab) choose(tab);
  });
  choose(byAddress() ?? tabs[0]);
}
