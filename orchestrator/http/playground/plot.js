// K over time: for every round a bar as wide as it took, as high as it drafted, filled as far as that was accepted.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 22;
const BOTTOM = 16;
const TOP = 6;

export class Plot {
  constructor(svg) {
    this._svg = svg;
    this._shapes = Object.fromEntries(["drafted", "taken"].map((name) => [name, this._add("path", { class: name })]));
    this._axis = this._add("line", {});
    this._top = this._add("text", { x: 0, y: TOP + 8 });
    this._zero = this._add("text", { x: 0 });
    this._end = this._add("text", { "text-anchor": "end" });
    new ResizeObserver(() => this.draw(this._answer)).observe(svg);
    this._answer = null;
  }

  draw(answer) {
    this._answer = answer;
    const width = this._svg.clientWidth;
    const height = this._svg.clientHeight;
    const rounds = answer?.rounds ?? [];
    const endS = rounds.at(-1)?.endS || 1;
    const most = Math.max(1, ...rounds.map((round) => round.drafted));
    const base = height - BOTTOM;
    const x = (seconds) => LEFT + ((width - LEFT) * seconds) / endS;
    const y = (tokens) => base - ((base - TOP) * tokens) / most;
    const bar = (round, tokens) => {
      const [left, right] = [x(round.startS), x(round.endS)];
      const gap = Math.min(1, (right - left) / 5);
      return tokens ? `M${left.toFixed(1)} ${base}V${y(tokens).toFixed(1)}H${(right - gap).toFixed(1)}V${base}Z` : "";
    };
    this._svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this._shapes.drafted.setAttribute("d", rounds.map((round) => bar(round, round.drafted)).join(""));
    this._shapes.taken.setAttribute("d", rounds.map((round) => bar(round, round.accepted)).join(""));
    set(this._axis, { x1: LEFT, x2: width, y1: base, y2: base });
    set(this._zero, { y: base });
    set(this._end, { x: width, y: height - 3 });
    this._top.textContent = rounds.length ? most : "";
    this._zero.textContent = "0";
    this._end.textContent = rounds.length ? `${endS.toFixed(1)} s` : "";
  }

  // In words, when it is over.
  describe(answer) {
    this._svg.setAttribute("aria-label", describeRounds(answer));
  }

  _add(tag, attributes) {
    return this._svg.appendChild(svg(tag, attributes));
  }
}

export function describeRounds(answer) {
  const drafted = answer.rounds.filter((round) => round.drafted);
  if (!drafted.length) return `${answer.rounds.length} tokens without a draft`;
  const most = Math.max(...drafted.map((round) => round.drafted));
  const mean = (total) => (total / drafted.length).toFixed(1);
  const plain = answer.rounds.length - drafted.length;
  return (
    `${drafted.length} rounds with drafts in ${drafted.at(-1).endS.toFixed(1)} seconds: on average ` +
    `${mean(answer.numDrafted)} tokens drafted, ${most} at most, and ${mean(answer.numAccepted)} accepted; ` +
    `${plain} tokens without a draft`
  );
}

export function svg(tag, attributes) {
  return set(document.createElementNS(SVG, tag), attributes);
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
