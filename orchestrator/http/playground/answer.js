// One streamed answer: its tokens, its rounds and its speed, from the events as they come. Knows nothing of the page.

import { cutText } from "./token_text.js";

export class Answer {
  // startMs: when it was asked for, on performance.now()'s clock.
  constructor(startMs) {
    this.tokens = []; // {id, piece, text, origin, logprob, round}
    this.rounds = []; // {number, drafted, accepted, startS, endS}; one of plain decoding has drafted 0
    this.text = "";
    this.report = null; // what the server tells at the end
    this.finishReason = null;
    this.numDrafted = 0;
    this.numAccepted = 0;
    this.startMs = startMs;
    this.firstMs = null;
    this.lastMs = null;
    this._numFirst = 0;
    this._open = null; // the round whose tokens are coming
  }

  // Take an event in; returns the new tokens.
  add(event, nowMs) {
    const choice = event.choices[0];
    if (!choice) return [];
    this.finishReason = choice.finish_reason ?? this.finishReason;
    this.report = choice.speculation?.report ?? this.report;
    const details = choice.speculation?.tokens;
    if (!details?.token_ids.length) return [];
    const content = choice.delta.content ?? "";
    this.text += content;
    const pieces = cutText(content, details.texts);
    const firstRound = this.rounds.length;
    const tokens = details.token_ids.map((id, index) => ({
      id,
      piece: pieces[index],
      text: details.texts[index],
      origin: details.origins[index],
      logprob: choice.logprobs?.content[index]?.logprob ?? null,
      round: this._round(details.origins[index], details.round_draft_tokens[index]),
    }));
    this._takeTime(nowMs, firstRound, tokens.length);
    this.tokens.push(...tokens);
    return tokens;
  }

  get firstTokenMs() {
    return this.firstMs === null ? null : this.firstMs - this.startMs;
  }

  // Tokens per second after the first; null until there are some.
  get rate() {
    const elapsedMs = this.lastMs - this.firstMs;
    return elapsedMs > 0 ? (1000 * (this.tokens.length - this._numFirst)) / elapsedMs : null;
  }

  get acceptance() {
    return this.numDrafted ? this.numAccepted / this.numDrafted : null;
  }

  // Tokens that a round with drafts committed on average.
  get tokensPerRound() {
    const drafted = this.rounds.filter((round) => round.drafted);
    return drafted.length ? 1 + this.numAccepted / drafted.length : null;
  }

  // The round of the next token: it ends with the first one that is no accepted draft, whoever drafted it.
  _round(origin, drafted) {
    if (!this._open) {
      this._open = { number: this.rounds.length + 1, drafted, accepted: 0, startS: 0, endS: 0 };
      this.rounds.push(this._open);
      this.numDrafted += drafted;
    }
    const round = this._open;
    if (origin === "accepted" || origin === "grammar") {
      round.accepted += 1;
      this.numAccepted += 1;
    } else {
      this._open = null;
    }
    return round;
  }

  // Rounds that came together share the time since those before.
  _takeTime(nowMs, firstRound, numTokens) {
    if (this.firstMs === null) {
      this.firstMs = nowMs;
      this._numFirst = numTokens;
    }
    const fromS = ((this.lastMs ?? this.startMs) - this.startMs) / 1000;
    this.lastMs = nowMs;
    const rounds = this.rounds.slice(firstRound);
    const stepS = ((nowMs - this.startMs) / 1000 - fromS) / Math.max(1, rounds.length);
    rounds.forEach((round, index) => {
      round.startS = fromS + index * stepS;
      round.endS = round.startS + stepS;
    });
  }
}

// The first position at which two answers have different tokens; -1: none as far as both have come.
export function firstDifference(one, other) {
  const length = Math.min(one.tokens.length, other.tokens.length);
  for (let index = 0; index < length; index++) {
    if (one.tokens[index].id !== other.tokens[index].id) return index;
  }
  return -1;
}
