// One answer on the page: its tokens by origin, its numbers, and what the pointer or the arrow keys ask of a token.

import { byId, make } from "./dom.js";

const DASH = "–";

export class Pane {
  // onRetry: called when the user wants to try again after a problem.
  constructor(name, title, onRetry) {
    const fragment = byId("pane-template").content.cloneNode(true);
    this.element = fragment.querySelector("section");
    this.element.id = `pane-${name}`;
    const heading = this.element.querySelector("h3");
    heading.textContent = title;
    heading.id = `title-${name}`;
    this.element.setAttribute("aria-labelledby", heading.id);
    for (const part of this.element.querySelectorAll("[data-only]")) part.hidden = part.dataset.only !== name;
    this._answerBox = this.element.querySelector(".answer");
    this._answerBox.setAttribute("aria-label", `${title}: the answer`);
    this._problemBox = this.element.querySelector('[role="alert"]');
    this._detail = this.element.querySelector(".detail");
    this._reason = this.element.querySelector(".reason");
    this._onRetry = onRetry;
    this._isSpeculative = name === "speculative";
    this._answerBox.addEventListener("keydown", (event) => this._move(event));
    this._answerBox.addEventListener("pointerover", (event) => this._point(event));
    this._answerBox.addEventListener("pointerleave", () => this._hideTooltip());
    this._answerBox.addEventListener("blur", () => this._select(null));
    this.begin(null);
  }

  begin(answer) {
    this.answer = answer;
    this._spans = [];
    this._current = null;
    this._answerBox.replaceChildren();
    this._answerBox.setAttribute("aria-busy", String(answer !== null));
    this._detail.textContent = this._reason.textContent = "";
    this._problemBox.hidden = true;
    this._hideTooltip();
    this.refresh();
  }

  add(tokens) {
    const isAtEnd = this._answerBox.scrollHeight - this._answerBox.scrollTop - this._answerBox.clientHeight < 40;
    const spans = tokens.map((token) => make("span", { className: `t ${token.origin}` }, token.piece ?? token.text));
    spans.forEach((span, index) => {
      if (tokens[index].piece === null) span.classList.add("unseen");
      span.dataset.index = this._spans.length + index;
    });
    this._spans.push(...spans);
    this._answerBox.append(...spans);
    if (isAtEnd) this._answerBox.scrollTop = this._answerBox.scrollHeight;
  }

  // Show the numbers as they are now.
  refresh() {
    const answer = this.answer;
    this._number("rate", answer?.rate?.toFixed(1));
    this._number("first", answer?.firstTokenMs === null ? null : answer && `${Math.round(answer.firstTokenMs)} ms`);
    this._number("tokens", answer?.tokens.length);
    if (!this._isSpeculative) return;
    this._number("acceptance", answer?.acceptance === null ? null : answer && percent(answer.acceptance));
    this._number("length", answer?.tokensPerRound?.toFixed(2));
    this._number("k", answer?.rounds.at(-1)?.drafted);
  }

  end() {
    this._answerBox.setAttribute("aria-busy", "false");
    this.refresh();
    const report = this.answer?.report;
    if (!this._isSpeculative || !report) return;
    const positions = report.acceptance_per_position.map(percent).join(", ");
    this._reason.textContent = [
      positions && `Accepted by position: ${positions}.`,
      report.reason && `Speculation was off or limited: ${report.reason} (${report.reason_id}).`,
    ]
      .filter(Boolean)
      .join(" ");
  }

  // The tokens from here on are others than those of the other answer; -1: none are.
  markDifference(index) {
    this._spans[index]?.classList.add("differs");
  }

  // Trying again has to wait until the other answer has ended too: see allowRetry.
  fail(problem) {
    this._answerBox.setAttribute("aria-busy", "false");
    const retry = make("button", { type: "button", disabled: true, onclick: this._onRetry }, "Try again");
    this._problemBox.replaceChildren(make("strong", {}, `${problem.title}: `), problem.detail, retry);
    this._problemBox.hidden = false;
  }

  allowRetry() {
    const retry = this._problemBox.querySelector("button");
    if (retry) retry.disabled = false;
  }

  _number(name, value) {
    this.element.querySelector(`[data-number="${name}"]`).textContent = value ?? DASH;
  }

  _move(event) {
    const at = this._current ?? -1;
    const last = this._spans.length - 1;
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last }[event.key];
    if (next === undefined || last < 0) return;
    event.preventDefault();
    this._select(Math.min(Math.max(next, 0), last));
    this._spans[this._current].scrollIntoView({ block: "nearest" });
  }

  _select(index) {
    this._spans[this._current]?.classList.remove("current");
    this._current = index;
    this._spans[index]?.classList.add("current");
    this._detail.textContent = index === null ? "" : describeToken(this.answer.tokens[index], index).join("; ");
  }

  _point(event) {
    const span = event.target.closest(".t");
    if (!span) {
      this._hideTooltip();
      return;
    }
    const index = Number(span.dataset.index);
    const tooltip = byId("tooltip");
    tooltip.textContent = describeToken(this.answer.tokens[index], index).join("\n");
    tooltip.hidden = false;
    const place = span.getBoundingClientRect();
    const left = Math.min(place.left, window.innerWidth - tooltip.offsetWidth - 8);
    const isRoomBelow = place.bottom + tooltip.offsetHeight + 8 < window.innerHeight;
    tooltip.style.left = `${Math.max(8, left)}px`;
    tooltip.style.top = `${isRoomBelow ? place.bottom + 4 : place.top - tooltip.offsetHeight - 4}px`;
  
  }

  _hideTooltip() {
    byId("tooltip").hidden = true;
  }
}

// Everything about a token, in lines.
export function describeToken(token, index) {
  const { round } = token;
  const lines = [`${JSON.stringify(token.text)}: position ${index + 1}, ${token.origin}`];
  if (token.logprob !== null) {
    lines.push(`log-probability ${token.logprob.toFixed(3)} (${percent(Math.exp(token.logprob))})`);
  }
  const drafts = round.drafted ? `${round.accepted} of ${round.drafted} draft tokens accepted` : "no draft";
  lines.push(`round ${round.number}: ${drafts}`);
  return lines;
}

export function percent(share) {
  return `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}
