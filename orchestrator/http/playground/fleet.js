// The fleet: replicas, load, what the controller does and why, and how often the caches help. Asked for every second
// while somebody looks.

import { acceptanceFigures } from "./acceptance_plot.js";
import { getJson } from "./api.js";
import { byId, make } from "./dom.js";
import { percent } from "./pane.js";

const PERIOD_MS = 1000;

const TILES = {
  served: ["requests served", (fleet) => fleet.requests.num_running, (fleet) => `${fleet.requests.num_waiting} waiting`],
  speed: ["output tokens/s", (fleet, rates) => rates.tokens, (fleet) => `${fleet.requests.num_output_tokens} since the start`],
  accepted: [
    "draft tokens accepted",
    ({ requests }) => share(requests.num_accepted_tokens, requests.num_draft_tokens),
    ({ requests }) => `${requests.num_accepted_tokens} of ${requests.num_draft_tokens}`,
  ],
  prefix: ["prefix cache hits", ({ caches }) => rateOf(caches.prefix_tokens), ({ caches }) => ofTotal(caches.prefix_tokens, "prompt tokens")],
  routing: ["sent to their prefix", ({ caches }) => rateOf(caches.prefix_routing), ({ caches }) => ofTotal(caches.prefix_routing, "requests")],
  ahead: ["drafted ahead in time", ({ caches }) => rateOf(caches.drafts_ahead), ({ caches }) => ofTotal(caches.drafts_ahead, "rounds")],
};

const TABLES = {
  replicas: ["Replicas", ["replica", "pool", "state", "sequences", "waiting", "KV cache", "step", "tokens in it", "drafter", "problem"]],
  controller: ["Controller: does speculation pay?", ["target", "proposer", "speculation", "switched", "plain token", "K", "speed-up expected", "measured", "acceptance expected, by position"]],
  kinds: ["Acceptance by kind of request", ["kind", "draft tokens", "accepted", "acceptance"]],
  decisions: ["Why rounds drafted, or did not", ["reason", "in words", "rounds", "since the last look"]],
};

export class FleetView {
  constructor(getApiKey) {
    this._getApiKey = getApiKey;
    this._timer = null;
    this._last = null; // {fleet, atMs}
    this._tiles = {};
    this._bodies = {};
    this._build();
    document.addEventListener("visibilitychange", () => this._schedule(0));
  }

  set isShown(isShown) {
    this._isShown = isShown;
    this._schedule(0);
  }

  _schedule(delayMs) {
    clearTimeout(this._timer);
    if (this._isShown && !document.hidden) this._timer = setTimeout(() => this._poll(), delayMs);
  }

  async _poll() {
    const problemBox = byId("fleet-problem");
    try {
      this._show(await getJson("fleet", this._getApiKey(), AbortSignal.timeout(5 * PERIOD_MS)));
      problemBox.hidden = true;
    } catch (problem) {
      const text = `${problem.title ?? "No answer"}: ${problem.detail ?? "what is shown may be old"}. Trying again.`;
      // Said once, not every second.
      if (problemBox.hidden || problemBox.textContent !== text) problemBox.textContent = text;
      problemBox.hidden = false;
    }
    this._schedule(PERIOD_MS);
  }

  _show(fleet) {
    const nowMs = performance.now();
    const rates = { tokens: "–", decisions: new Map() };
    if (this._last) {
      const elapsedS = (nowMs - this._last.atMs) / 1000;
      const numTokens = fleet.requests.num_output_tokens - this._last.fleet.requests.num_output_tokens;
      rates.tokens = (numTokens / elapsedS).toFixed(0);
      rates.decisions = new Map(this._last.fleet.controller.decisions.map(({ reason, count }) => [reason, count]));
    }
    this._last = { fleet, atMs: nowMs };
    for (const [name, [, value, note]] of Object.entries(TILES)) {
      this._tiles[name].value.textContent = value(fleet, rates);
      this._tiles[name].note.textContent = note(fleet);
    }
    this._latest.textContent = fleet.controller.latest_reason
      ? `Latest decision: ${fleet.controller.latest_text} (${fleet.controller.latest_reason}).`
      : "Nothing has been decided yet.";
    const pools = [...fleet.targets.map((each) => ["target", each]), ...fleet.drafts.map((each) => ["draft", each])];
    this._fill("replicas", pools.map(([pool, replica]) => replicaRow(pool, replica)));
    this._fill("controller", fleet.controller.states.map(controllerRow));
    this._fill("kinds", fleet.kinds.map(kindRow));
    const figures = acceptanceFigures(fleet.drafters);
    this._acceptance.hidden = !figures.length;
    this._acceptance.replaceChildren(make("h3", {}, "Acceptance over time"), ...figures);
    this._fill("decisions", fleet.controller.decisions.map((each) => decisionRow(each, rates.decisions)));
  }

  _build() {
    const root = byId("fleet");
    const tiles = make("dl", { className: "tiles" });
    for (const [name, [title]] of Object.entries(TILES)) {
      const value = make("dd", {}, "–");
      const note = make("small");
      tiles.append(make("div", { className: "card" }, make("dt", {}, title), value, make("dd", { className: "note" }, note)));
      this._tiles[name] = { value, note };
    }
    root.append(tiles);
    for (const [name, [title, columns]] of Object.entries(TABLES)) {
      const head = make("tr", {}, ...columns.map((column) => make("th", { scope: "col" }, column)));
      const body = make("tbody");
      const table = make("table", {}, make("caption", {}, title), make("thead", {}, head), body);
      // What scrolls must be reachable by keys.
      const box = make("div", { className: "card scroll", tabIndex: 0, role: "region", ariaLabel: title }, table);
      this._bodies[name] = body;
      root.append(box);
    }
    this._acceptance = make("section", { className: "card", hidden: true, ariaLabel: "Acceptance over time" });
    this._bodies.controller.closest(".card").after(this._acceptance);
    this._latest = make("p", { className: "reason" });
    this._bodies.controller.closest(".card").append(this._latest);
  }

  _fill(name, rows) {
    const body = this._bodies[name];
    const columns = TABLES[name][1].length;
    const none = make("tr", {}, make("td", { colSpan: columns }, "none yet"));
    body.replaceChildren(...(rows.length ? rows.map((cells) => make("tr", {}, ...cells.map(cell))) : [none]));
  }
}

function cell(content, column) {
  return column === 0 ? make("th", { scope: "row" }, content) : make("td", {}, content);
}

function replicaRow(pool, replica) {
  const usage = make("meter", { min: 0, max: 1, value: replica.kv_cache_usage, ariaLabel: `KV cache of ${replica.replica_id}` });
  return [
    replica.replica_id === replica.address
      ? replica.address
      : make("span", {}, `${replica.replica_id} `, make("small", {}, replica.address)),
    pool,
    stateOf(replica),
    `${replica.num_sequences_running} of ${replica.max_sequences}`,
    replica.num_sequences_waiting,
    make("span", {}, usage, ` ${percent(replica.kv_cache_usage)}`),
    `${replica.step_ms.toFixed(1)} ms`,
    replica.num_step_tokens,
    replica.proposer ? replica.proposer + (replica.drafter_version ? `, version ${replica.drafter_version}` : "") : "–",
    replica.problem || "–",
  ];
}

function stateOf(replica) {
  if (!replica.is_connected) return make("span", { className: "state bad" }, "✕ not connected");
  if (replica.is_healthy) return make("span", { className: "state good" }, "✓ healthy");
  return make("span", { className: "state bad" }, replica.circuit === "closed" ? "drains" : `circuit ${replica.circuit}`);
}

const STATES = { on: "✓ on", off: "off", undecided: "not decided yet" };

function controllerRow(state) {
  const plain = state.plain_token_ms ? `${state.plain_token_ms.toFixed(1)} ms` : "–";
  const className = state.state === "on" ? "state good" : "state";
  return [
    state.replica_id,
    state.proposer,
    make("span", { className }, STATES[state.state]),
    `${state.num_switches} times`,
    plain,
    state.num_draft_tokens || "–",
    speedUp(state.expected_gain),
    speedUp(state.measured_gain),
    state.acceptance.map(percent).join(", "),
  ];
}

function speedUp(gain) {
  return gain === null ? "–" : `${gain.toFixed(2)}x`;
}

function kindRow({ kind, num_draft_tokens, num_accepted_tokens }) {
  return [kind.replaceAll("_", " "), num_draft_tokens, num_accepted_tokens, share(num_accepted_tokens, num_draft_tokens)];
}

function decisionRow({ reason, text, count }, before) {
  return [reason, text, count, `+${count - (before.get(reason) ?? (before.size ? 0 : count))}`];
}

function rateOf(cache) {
  return share(cache.num_hits, cache.num_lookups);
}

function share(part, whole) {
  return whole ? percent(part / whole) : "–";
}

function ofTotal(cache, unit) {
  return `${cache.num_hits} of ${cache.num_lookups} ${unit}`;
}
