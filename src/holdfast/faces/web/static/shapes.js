// A state is a colour, a shape and a word. Shapes are drawn on a grid of 14, the icons of the frame on one of 16.

import { h, svg } from './dom.js';

const P = (d, props) => ['path', { d, ...props }];
const LINE = { fill: 'none', stroke: 'currentColor' };
const RING = ['circle', { cx: 7, cy: 7, r: 5.4, ...LINE }];


const SHAPES = {
  ready: [['circle', { cx: 7, cy: 7, r: 4.9, ...LINE, 'stroke-width': 2.2 }]],
  waiting: [['circle', { ...RING[1], 'stroke-width': 1.6, 'stroke-dasharray': '2.3 2' }]],
  in_progress: [['circle', { ...RING[1], 'stroke-width': 1.6 }], P('M7 2.200a4.8 4.8 0 0 1 0 9.600z', { fill: 'currentColor' })],
  parked: [P('M3 2h2.800v10H3zM8.2 2H11v10H8.200z', { fill: 'currentColor' })],
  review: [P('M7 .8 13.2 7 7 13.2 .8 7z', { fill: 'currentColor' })],
  blocked: [P('M3.5 1.500h7a2 2 0 0 1 2 2v7a2 2 0 0 1-2 2h-7a2 2 0 0 1-2-2v-7a2 2 0 0 1 2-2zM4 6v2h6V6z', { fill: 'currentColor', 'fill-rule': 'evenodd' })],
  trouble: [P('M7 1 13.6 12.700H.4zM6.2 5v3.700h1.600V5zM6.2 9.700v1.600h1.600V9.700z', { fill: 'currentColor', 'fill-rule': 'evenodd', 'stroke-linejoin': 'round' })],
  expired: [['circle', { ...RING[1], 'stroke-width': 1.8 }], P('M3.4 10.6 10.6 3.4', { ...LINE, 'stroke-width': 1.8 })],
  closed: [P('M1.8 7.6 5.4 11 12.2 3.4', { ...LINE, 'stroke-width': 2, 'stroke-linecap': 'round', 'stroke-linejoin': 'round' })],
  released: [P('M12.5 7H2M6 3 2 7l4 4', { ...LINE, 'stroke-width': 1.6, 'stroke-linecap': 'round', 'stroke-linejoin': 'round' })],
  mail: [P('M1 3h12v8.500H1zM1 3.500l6 4.5 6-4.5', { ...LINE, 'stroke-width': 1.5, 'stroke-linejoin': 'round' })],
  lock: [P('M2 6h10v7H2z', { fill: 'currentColor' }), P('M4 6V4a3 3 0 0 1 6 0v2', { ...LINE, 'stroke-width': 1.6 })],
  live: [['circle', { cx: 7, cy: 7, r: 3.6, fill: 'currentColor' }]],
  note: [P('M3 1.500h5.500L11 4v8.500H3zM8.3 1.700V4.300H11', { ...LINE, 'stroke-width': 1.3, 'stroke-linejoin': 'round' })],
  plus: [P('M7 2v10M2 7h10', { ...LINE, 'stroke-width': 1.6, 'stroke-linecap': 'round' })],
  folder: [P('M1 3h4.500l1.5 1.500H13v7.500H1z', { ...LINE, 'stroke-width': 1.3, 'stroke-linejoin': 'round' })],
  search: [['circle', { cx: 6, cy: 6, r: 4.2, ...LINE, 'stroke-width': 1.6 }], P('M9.2 9.2 13 13', { ...LINE, 'stroke-width': 1.6, 'stroke-linecap': 'round' })],
  down: [P('M3.5 5.5 7 9l3.5-3.5', { ...LINE, 'stroke-width': 1.5 })],
  right: [P('M5.5 3.5 9 7l-3.5 3.5', { ...LINE, 'stroke-width': 1.5 })],
};
SHAPES.in_line = SHAPES.waiting;
SHAPES.held = SHAPES.in_progress;
SHAPES.fenced = SHAPES.failed = SHAPES.ends = SHAPES.trouble;
SHAPES.not_seen = SHAPES.offline = SHAPES.expired;
SHAPES.idle = SHAPES.waiting;


/** Colour of a state, as a class of app.css. */
export const COLOURS = {
  ready: 'accent', waiting: 'grey', in_line: 'grey', idle: 'grey', in_progress: 'blue', held: 'blue', parked: 'blue',
  review: 'violet', blocked: 'amber', trouble: 'red', fenced: 'red', failed: 'red', ends: 'red', expired: 'red',
  not_seen: 'red', closed: 'grey', released: 'ink-3', mail: 'ink-2', lock: 'ink-2', live: 'accent', offline: 'red',
};
const WORDS = { in_progress: 'in progress', in_line: 'in line', not_seen: 'not seen' };

/** The word of a state. */
export const wordOf = (state) => WORDS[state] ?? state;

/** The shape of a state, for the eye only: the word stands beside it, or `label` names it. */
export function shape(state, size = 14, label = null) {
  const named = label ? { role: 'img', 'aria-label': label } : { 'aria-hidden': 'true' };
  const colour = COLOURS[state] ? `c-${COLOURS[state]}` : '';
  const drawn = SHAPES[state] ?? SHAPES.waiting;
  return svg('svg.shape', { viewBox: '0 0 14 14', width: size, height: size, class: colour, ...named },
    drawn.map(([tag, props]) => svg(tag, props)));
}

/** The shape as part of a picture, which is drawn faster than one of its own. */
export function glyph(state, x, y, size = 14) {
  return svg('g', { transform: `translate(${x} ${y}) scale(${size / 14})`, class: `c-${COLOURS[state] ?? 'ink-2'}` }, (SHAPES[state] ?? SHAPES.waiting).map(([tag, props]) => svg(tag, props)));
}

/** Shape and word of a state. `word` replaces the usual one. */
export function stateOf(state, word = wordOf(state), size = 14) {
  return h('span.state', { class: `c-${COLOURS[state] ?? 'ink-2'}` }, shape(state, size), h('span', null, word));
}

const ICONS = {
  brand: 'M8 2a1.7 1.7 0 1 0 0 3.400A1.7 1.7 0 0 0 8 2zM8 5.400V14M5 7.400h6M2 9.400c.3 2.8 2.8 4.6 6 4.600s5.7-1.8 6-4.6',
  fleet: 'M5.5 7.500a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM2 13c0-2.2 1.5-3.7 3.5-3.700S9 10.8 9 13M10.8 7a1.7 1.7 0 1 0 0-3.400M11 9.200c1.8.1 3 1.6 3 3.8',
  board: 'M2.5 2.500h11v2.800h-11zM2.5 2.500v10h3v-10M6.5 2.500v7h3v-7M10.5 2.500v5h3v-5',
  graph: 'M4 10a1.8 1.8 0 1 0 0-3.600A1.8 1.8 0 0 0 4 10zM12 5.600A1.8 1.8 0 1 0 12 2a1.8 1.8 0 0 0 0 3.600zM12 14a1.8 1.8 0 1 0 0-3.6 1.8 1.8 0 0 0 0 3.600zM5.6 7.400l4.8-2.700M5.6 9l4.8 2.6',
  timeline: 'M2 3.500h6M5 8h8M4 12.500h6',
  mail: 'M2 3.500h12v9H2zM2 4l6 4.800L14 4',
  locks: 'M3.5 7h9v6.500h-9zM5.5 7V5a2.5 2.5 0 0 1 5 0v2',
  state: 'M3 4c0-1 2.2-1.8 5-1.800S13 3 13 4v8c0 1-2.2 1.8-5 1.800S3 13 3 12zM3 4c0 1 2.2 1.8 5 1.800S13 5 13 4M3 8c0 1 2.2 1.8 5 1.800S13 9 13 8',
  log: 'M6 4h8M6 8h8M6 12h8M2.5 4h1M2.5 8h1M2.5 12h1',
  server: 'M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.1M5 11h.1',
  more: 'M6 4h8M6 8h8M6 12h8M2.5 4h1M2.5 8h1M2.5 12h1',
};

/** An icon of the frame. */
export function icon(name, size = 16) {
  return svg('svg.icon', { viewBox: '0 0 16 16', width: size, height: size, 'aria-hidden': 'true' },
    svg('path', { d: ICONS[name] ?? ICONS.log, fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5, 'stroke-linecap': 'round', 'stroke-linejoin': 'round' }));
}
