// The same prompt twice: without speculation and with it.

import { Problem, streamChat } from "./api.js";
import { Answer, firstDifference } from "./answer.js";
import { announce, byId } from "./dom.js";
import { Pane } from "./pane.js";
import { Plot } from "./plot.js";

const TITLES = { plain: "Plain", speculative: "Speculative" };

export function startCompare() {
  const form = byId("form");
  const comparison = new Comparison(form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    comparison.run();
  });
  byId("stop").addEventListener("click", () => comparison.stop());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") comparison.stop();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && form.contains(event.target)) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
}

class Comparison {
  constructor(form) {
    this._form = form;
    this._plot = new Plot(byId("plot"));
    this._panes = Object.fromEntries(
      Object.entries(TITLES).map(([name, title]) => [name, new Pane(name, title, () => form.requestSubmit())]),
    );
    byId("panes").append(...Object.values(this._panes).map((pane) => pane.element));
    this._abort = null;
    this._isDrawn = true;
  }

  stop() {
    this._abort?.abort();
  }

  async run() {
    if (this._abort) return;
    const fields = Object.fromEntries(new FormData(this._form));
    this._abort = new AbortController();
    this._begin();
    const answer = (name) => this._answer(name, requestOf(name, fields), fields.api_key);
    const ran =
      fields.order === "together"
        ? await Promise.all([answer("plain"), answer("speculative")])
        : [await answer("plain"), await answer("speculative")];
    const wasStopped = this._abort.signal.aborted;
    this._abort = null;
    this._end(ran.every(Boolean), wasStopped);
  }

  _begin() {
    for (const pane of Object.values(this._panes)) pane.begin(null);
    this._plot.draw(null);
    showVerdict("", "");
    this._setRunning(true);
    announce("Running");
  }

  // Whether the answer came to its end.
  async _answer(name, body, apiKey) {
    const pane = this._panes[name];
    const { signal } = this._abort;
    if (signal.aborted) return false;
    const answer = new Answer(performance.now());
    pane.begin(answer);
    try {
      for await (const event of streamChat(body, apiKey, signal)) {
        pane.add(answer.add(event, performance.now()));
        this._drawSoon();
      }
      return true;
    } catch (error) {
      if (signal.aborted) return false;
      pane.fail(error instanceof Problem ? error : new Problem("The page failed", String(error)));
      return false;
    } finally {
      pane.end();
    }
  }

  _drawSoon() {
    if (!this._isDrawn) return;
    this._isDrawn = false;
    requestAnimationFrame(() => {
      this._isDrawn = true;
      for (const pane of Object.values(this._panes)) pane.refresh();
      this._plot.draw(this._panes.speculative.answer);
      const { plain, speculative } = this._panes;
      if (this._abort && plain.answer && speculative.answer) this._compare(plain.answer, speculative.answer, false);
    });
  }

  _end(isWhole, wasStopped) {
    this._setRunning(false);
    for (const pane of Object.values(this._panes)) pane.allowRetry();
    const plain = this._panes.plain.answer;
    const speculative = this._panes.speculative.answer;
    if (speculative) {
      this._plot.draw(speculative);
      this._plot.describe(speculative);
    }
    if (isWhole) announce(`${this._compare(plain, speculative, true)} ${inWords(plain, speculative)}`);
    else announce(wasStopped ? "Stopped" : "An answer failed");
    if (wasStopped) showVerdict("stopped", "");
  }

  // Show and return whether the texts are the same.
  _compare(plain, speculative, isEnd) {
    const at = firstDifference(plain, speculative);
    const isCut = isEnd && plain.tokens.length !== speculative.tokens.length;
    const length = Math.min(plain.tokens.length, speculative.tokens.length);
    if (at >= 0 || isCut) {
      const position = at >= 0 ? at : length;
      for (const pane of Object.values(this._panes)) pane.markDifference(position);
      return showVerdict(`The texts differ from token ${position + 1} on.`, "different");
    }
    if (!isEnd) return length ? showVerdict(`Identical so far: ${length} tokens`, "") : "";
    const ratio = plain.rate && speculative.rate ? ` ${(speculative.rate / plain.rate).toFixed(2)}x the speed.` : "";
    return showVerdict(`✓ The texts are identical: ${length} tokens.${ratio}`, "same");
  }

  _setRunning(isRunning) {
    byId("stop").disabled = !isRunning;
    // Not disabled: that would take the keyboard's place from who has just pressed it.
    byId("run").setAttribute("aria-disabled", String(isRunning));
  }
}

// The same body for both, but for how it speculates.
function requestOf(name, fields) {
  const speculation = { mode: "off", return_tokens: true };
  if (name === "speculative") {
    speculation.mode = fields.mode;
    if (fields.proposer) speculation.proposer = fields.proposer;
    if (fields.k !== "") speculation.num_speculative_tokens = Number(fields.k);
  }
  return {
    messages: [{ role: "user", content: fields.prompt }],
    temperature: Number(fields.temperature),
    seed: Number(fields.seed),
    max_tokens: Number(fields.max_tokens),
    logprobs: true,
    speculation,
  };
}

function showVerdict(text, kind) {
  const verdict = byId("verdict");
  verdict.textContent = text;
  verdict.className = `verdict ${kind}`;
  return text;
}

function inWords(plain, speculative) {
  const rate = (answer) => (answer.rate ? `${answer.rate.toFixed(0)} tokens a second` : "too short to measure");
  return `Plain: ${rate(plain)}. Speculative: ${rate(speculative)}.`;
}
