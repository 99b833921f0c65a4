// Acceptance over time: for each drafter its tokens a round by minute, and a mark where it went on with other weights.

import { make } from "./dom.js";
import { svg } from "./plot.js";

const [WIDTH, HEIGHT] = [720, 110];
const [LEFT, TOP, BOTTOM] = [30, 14, 16];

export function acceptanceFigures(drafters) {
  return drafters.filter(({ points }) => points.length > 1).map(({ proposer, points }) => figure(proposer, points));
}

function figure(proposer, points) {
  const [first, last] = [points[0].at, points.at(-1).at];
  const most = Math.max(2, ...points.map((point) => point.acceptance_length));
  const x = (at) => LEFT + ((WIDTH - LEFT) * (at - first)) / Math.max(1, last - first);
  const y = (length) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * (length - 1)) / (most - 1);
  const words = describe(points);
  const image = svg("svg", { class: "acceptance", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words });
  const line = points.map((point) => `${x(point.at).toFixed(1)},${y(point.acceptance_length).toFixed(1)}`);
  image.append(
    svg("line", { x1: LEFT, x2: WIDTH, y1: y(1), y2: y(1) }),
    svg("polyline", { points: line.join(" ") }),
    text(0, y(most) + 4, most.toFixed(1)),
    text(0, y(1), "1.0"),
    text(LEFT, HEIGHT - 2, timeOf(first)),
    text(WIDTH, HEIGHT - 2, timeOf(last), "end"),
    ...swaps(points).flatMap(({ at, drafter_version }) => [
      svg("line", { class: "swap", x1: x(at), x2: x(at), y1: TOP, y2: y(1) }),
      text(x(at), TOP - 3, `v${drafter_version}`, "middle"),
    ]),
  );
  return make("figure", {}, make("figcaption", {}, `${proposer}: tokens per round with drafts`), image, make("small", {}, words));
}

// The points with which a drafter went on with other weights.
export function swaps(points) {
  return points.filter((point, index) => index && point.drafter_version !== points[index - 1].drafter_version);
}

export function describe(points) {
  const sums = new Map();
  for (const { drafter_version, num_rounds, acceptance_length } of points) {
    const [rounds, tokens] = sums.get(drafter_version) ?? [0, 0];
    sums.set(drafter_version, [rounds + num_rounds, tokens + num_rounds * acceptance_length]);
  }
  const parts = [...sums].map(([version, [rounds, tokens]]) => `${(tokens / rounds).toFixed(2)} with version ${version}`);
  return `On average ${parts.join(", ")}.`;
}

function text(x, y, content, anchor = "start") {
  const element = svg("text", { x, y, "text-anchor": anchor });
  element.textContent = content;
  return element;
}

function timeOf(at) {
  return new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}
