// Elements, keyed lists and text. Text becomes text nodes and nothing else: no markup is ever parsed.

const SVG = 'http://www.w3.org/2000/svg';
// Control characters, those that turn the direction of what follows, and those that are not seen would disguise text.
// Joiners have a meaning between letters that are not ASCII, and in emoji.
// eslint-disable-next-line no-control-regex
const HIDDEN = /[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]|(?<=^|[\0-\x7f])[\u200c\u200d]|[\u200c\u200d](?=$|[\0-\x7f])/gu;

/** Text with its control characters made visible. */
export function visible(text) {
  return String(text).replace(HIDDEN, (char) => {
    const code = char.codePointAt(0);
    return code < 0x20 ? String.fromCodePoint(0x2400 + code) : `\u27e8U+${code.toString(16).toUpperCase().padStart(4, '0')}\u27e9`;
  });
}

/** A long text cut for a place that shows one line of it. */
export function clip(text, most = 300) {
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

/**
 * An element: h('button.act', {on: {click}, title: 'why'}, 'approve').
 * Properties: on (listeners), data (data-*), style (an object of CSS properties), class, and attributes; null and false
 * leave an attribute out. Children: nodes, texts, numbers, arrays of them; null and false are left out.
 */
export function h(tag, props, ...children) {
  const [name, ...classes] = tag.split('.');
  return fill(document.createElement(name || 'div'), classes, props, children);
}

/** An element of SVG, like h. */
export function svg(tag, props, ...children) {
  const [name, ...classes] = tag.split('.');
  return fill(document.createElementNS(SVG, name), classes, props, children);
}

function fill(element, classes, props, children) {
  if (classes.length) element.classList.add(...classes);
  set(element, props ?? {});
  element.append(...nodes(children));
  return element;
}

/** Set properties of an element, as h does. */
export function set(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (name === 'on') for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === 'data') for (const [key, each] of Object.entries(value)) data(element, key, each);
    else if (name === 'style') for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (name === 'class') element.classList.add(...value.split(' ').filter(Boolean));
    else if (name === 'value') element.value = value;
    else if (name.startsWith('on')) throw new Error(`${name} is not an attribute: use on`);
    else if (value === null || value === undefined || value === false) element.removeAttribute(name);
    else element.setAttribute(name, value === true ? '' : visible(value));
  }
  return element;
}

function data(element, key, value) {
  if (value === null || value === undefined) delete element.dataset[key];
  else element.dataset[key] = value;
}

function nodes(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(visible(child))));
}

/** Replace what an element contains. */
export function put(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

/** Set the text of an element, if it differs: a screen that does not change is not painted. */
export function text(element, value) {
  const wanted = visible(value);
  if (element.textContent !== wanted) element.textContent = wanted;
  return element;
}

const known = new WeakMap();

/**
 * Show a list as children of an element: one for each item, found again by its key, moved only if the order changed.
 * make(item) returns an element; patch(element, item), if given, brings an existing one up to date; otherwise one whose
 * item differs (by JSON) is made anew. Focus and scroll of those that stay are kept.
 */
export function keyed(parent, items, key, make, patch) {
  const before = known.get(parent) ?? new Map();
  const after = new Map();
  for (const item of items) {
    const id = key(item);
    const old = before.get(id);
    const print = patch ? null : JSON.stringify(item);
    if (old && patch) patch(old.element, item);
    const same = old && (patch || old.print === print);
    const element = same ? old.element : make(item);
    if (old && !same && old.element.contains(document.activeElement)) queueMicrotask(() => refocus(element));
    after.set(id, { element, print });
  }
  const kept = new Set([...after.values()].map((each) => each.element));
  for (const { element } of before.values()) if (!kept.has(element)) element.remove();
  let at = parent.firstElementChild;
  for (const element of kept) {
    if (element === at) at = at.nextElementSibling;
    else parent.insertBefore(element, at);
  }
  known.set(parent, after);
}

function refocus(element) {
  (element.matches('[tabindex], a, button') ? element : element.querySelector('a, button, [tabindex]'))?.focus();
}
