// Which part of an answer's text each token is. The text is the truth: the pieces of all tokens always add up to it.

const UNFINISHED = /^\ufffd*$/; // by itself a part of a character cannot be shown

// content: the text that came with these tokens; texts: of each token by itself, where a leading space may be missing.
// Returns the piece of each token; null for one that is not part of the text, such as the one that ends an answer.
export function cutText(content, texts) {
  const pieces = [];
  let cursor = 0;
  let pending = -1; // the last token whose character is not complete
  texts.forEach((text, index) => {
    const found = UNFINISHED.test(text) ? -1 : find(content, text, cursor, pending >= 0);
    if (found < 0) {
      pieces.push(UNFINISHED.test(text) ? "" : null);
      if (UNFINISHED.test(text)) pending = index;
      return;
    }
    const start = pending >= 0 ? found : cursor;
    if (pending >= 0) pieces[pending] += content.slice(cursor, found);
    cursor = found + (content.startsWith(text, found) ? text : text.trim()).length;
    pieces.push(content.slice(start, cursor));
    pending = -1;
  });
  return withRest(pieces, content.slice(cursor));
}

function find(content, text, cursor, mayFollowCharacter) {
  if (content.startsWith(text, cursor)) return cursor;
  const word = text.trim();
  const found = word ? content.indexOf(word, cursor) : -1;
  const isNear = found >= 0 && (mayFollowCharacter || !content.slice(cursor, found).trim());
  return isNear ? found : -1;
}

// What no token claims belongs to the last one that is part of the text.
function withRest(pieces, rest) {
  if (!rest) return pieces;
  const last = pieces.findLastIndex((piece) => piece !== null);
  if (last < 0) return pieces.length ? [...pieces.slice(0, -1), rest] : pieces;
  pieces[last] += rest;
  return pieces;
}
