// Starts the page.

import { getJson } from "./api.js";
import { startCompare } from "./compare.js";
import { byId, make } from "./dom.js";
import { FleetView } from "./fleet.js";
import { startTabs } from "./tabs.js";
import { startTheme } from "./theme.js";

const getApiKey = () => byId("api-key").value;

// What the server is, and what it offers.
async function greet() {
  try {
    const fleet = await getJson("fleet", getApiKey());
    byId("server").textContent = `${fleet.model || "no target replica is connected"} · version ${fleet.version}`;
    byId("emulated").hidden = !fleet.emulated;
    const { defaults } = fleet;
    const [first] = byId("proposer").options;
    first.textContent = `${defaults.proposer} (default)`;
    const others = fleet.proposers.filter((name) => name !== defaults.proposer);
    byId("proposer").replaceChildren(first, ...others.map((name) => make("option", { value: name }, name)));
    if (fleet.max_draft_tokens) byId("k").max = fleet.max_draft_tokens;
    byId("k").placeholder = defaults.num_speculative_tokens;
  } catch (problem) {
    byId("server").textContent = problem.message;
    byId("api-key").required = Boolean(problem.needsKey);
  }
}

startTheme(byId("theme"));
const fleetView = new FleetView(getApiKey);
startTabs(document.querySelector('[role="tablist"]'), (view) => {
  fleetView.isShown = view === "fleet";
});
startCompare();
byId("api-key").addEventListener("change", greet);
greet();
