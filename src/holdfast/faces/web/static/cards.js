// A card of the board: what it shows, and why a move of it was refused.

import { clip, h } from './dom.js';
import { age, middle, timeLeft } from './format.js';
import { NAME } from './lists.js';
import { shape, wordOf } from './shapes.js';

/**
 * The element of a card. `board` answers what is done to it: go(card, from, to), menu, open, take and letGo of a drag, touch(id) and
 * force(card); touch is true if a refusal went by it.
 */
export function cardOf(context, board, card, group, from) {
  const state = group === 'in_progress' && card.parked ? 'parked' : group, to = context.href('task', card.id);
  const act = (words, column, kind) => h('button', { type: 'button', class: kind, data: { act: '' }, 'aria-label': `${words} ${card.id}`, on: { click: () => board.go(card, from, column) } }, words);
  let touched = false;
  return h('article.card', { tabindex: -1, draggable: context.may('agent') ? 'true' : null, 'aria-label': `${card.id} ${clip(card.title, 80)}`, data: { id: card.id, column: from }, on: {
    dragstart: (event) => board.take(event, card, from), dragend: () => board.letGo(),
    pointerdown: (event) => { touched = !event.target.closest('.refusal button') && board.touch(card.id); },
    click: (event) => { if (!touched && !event.target.closest('a, button') && !getSelection().toString()) board.open(card.id); },
  } },
  h('div.card-top', null, shape(state, 14, wordOf(state)), h('a.mono.ink-2', { href: to, draggable: 'false' }, card.id), h('span.priority', { class: `p${card.priority}` }, `P${card.priority}`)),
  h('a.card-title', { href: to, title: clip(card.title, 1000), draggable: 'false', tabindex: -1 }, clip(card.title, 200)),
  h('div.card-facts', null, card.tags.slice(0, 3).map((tag) => h('span.chip', null, h('span.one', null, clip(tag, 24)))), card.tags.length > 3 && h('span', { title: card.tags.slice(3).join(', ') }, `+${card.tags.length - 3}`),
    card.children > 0 && h('span', null, `children ${card.children_closed}/${card.children}`), card.waits_for > 0 && h('span', null, `waits for ${card.waits_for}`),
    !card.holder && h('span.push', null, age(card.since ?? (group === 'closed' ? card.updated_at : card.created_at)))),
  card.holder && h('div.card-holder', null, h('span.initial', { 'aria-hidden': 'true' }, card.holder.charAt(0).toUpperCase()), h('span.one', { title: card.holder }, middle(card.holder, NAME)), h('span.push', null, timeLeft(card.since, card.until, { wide: 40 }))),
  card.line && h('div.card-by.one', { title: card.line }, card.line),
  group === 'blocked' && card.reason && h('p.note-amber', { title: clip(card.reason, 1000) }, clip(card.reason, 400)),
  ['blocked', 'review'].includes(group) && card.by && h('div.card-by', null, 'by ', h('b', null, card.by), card.holds_up > 0 && [', holds up ', h('b', null, card.holds_up)]),
  group === 'review' && context.may('agent') && h('div.card-acts', null, act('approve', 'closed', 'act'), act('reject', 'blocked', '')),
  context.may('agent') && h('div.card-move', null, h('button', { type: 'button', data: { act: '' }, 'aria-label': `move ${card.id}`, on: { click: () => board.menu(card, from) } }, 'move…')),
  card.refusal && h('div.note-red.refusal', { role: 'alert' }, shape('trouble', 12), h('div', null, `Refused: ${card.refusal}`,
    card.forcible && h('button.force', { type: 'button', data: { act: '' }, on: { click: () => board.force(card) } }, 'force release…'))));
}
