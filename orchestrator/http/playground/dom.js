// Finding and making elements.

export const byId = (id) => document.getElementById(id);

// make("td", {className: "number"}, "5"): an element with properties and children.
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// For screen readers: said once, without moving the focus.
export function announce(text) {
  byId("status").textContent = text;
}
