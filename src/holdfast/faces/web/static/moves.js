// Which column a card can go to, what that does, and how it is asked for. Pure but for the calls that a move makes.

import { explain, seg } from './api.js';
import { ask } from './dialog.js';
import { duration, hourOf, now } from './format.js';

const TTL = 1800; // seconds of a claim from the board
const ENDS = 'It is done or not wanted; what waits for it can go on.';
const as = (context) => `${context.session.name}, ${context.session.role}`;
const reason = (label, required = true) => ({ label, required });

// from -> to: the operation, what the drop says, and the dialog before it (none: at once). `body(value)` is sent.
const MOVES = {
  open: {
    in_progress: { op: 'claim', says: (context) => `Drop to claim as ${context.session.name}, until ${hourOf(now() + TTL * 1000)}`, verb: 'Claim',
      text: (card) => `${card.title} will be yours until ${hourOf(now() + TTL * 1000)}, unless you finish or release it before.`, body: () => ({ ttl: TTL }) },
    closed: { op: 'close', says: () => 'Drop to close, asks for a reason', verb: 'Close', text: () => ENDS, field: reason('Reason'), body: (given) => ({ reason: given }) },
  },
  in_progress: {
    open: { op: 'release', says: () => 'Drop to release', verb: null, body: () => ({}) },
    review: { op: 'complete', says: () => 'Drop to complete, for review', verb: null, body: () => ({ review: true }) },
    blocked: { op: 'block', says: () => 'Drop to block, asks for a reason', verb: 'Block', text: () => 'It waits until a person moves it.', field: reason('Why nobody can go on'), body: (given) => ({ reason: given }) },
    closed: { op: 'complete', says: () => 'Drop to complete', verb: null, body: () => ({ review: false }) },
  },
  review: {
    closed: { op: 'approve', says: () => 'Drop to approve', verb: null, body: () => ({}) },
    blocked: { op: 'reject', says: () => 'Drop to reject, asks for a reason', verb: 'Reject', text: (card) => `${card.by ?? 'Its agent'} reads why.`, field: reason('What is missing'), body: (given) => ({ reason: given }) },
  },
  blocked: {
    open: { op: 'unblock', says: () => 'Drop to open it again', verb: 'Unblock', text: () => 'Your answer is kept as a note.', field: reason('Answer', false), body: (given) => ({ note: given || null }) },
    closed: { op: 'close', says: () => 'Drop to close, asks for a reason', verb: 'Close', text: () => ENDS, field: reason('Reason'), body: (given) => ({ reason: given }) },
  },
  closed: {
    open: { op: 'reopen', says: () => 'Drop to reopen, asks for a reason', verb: 'Reopen', text: () => 'It becomes open again.', field: reason('Reason', false), body: (given) => ({ reason: given || null }) },
  },
};

/** What a drop on a column does, or null if it is no target. */
export const moveOf = (from, to) => MOVES[from]?.[to] ?? null;
/** The columns that a card can go to. */
export const targetsOf = (from) => Object.keys(MOVES[from] ?? {});

/** Whether a card is held by somebody else, who alone moves it. */
export const foreign = (context, card, from) => from === 'in_progress' && card.holder !== context.session.name;

/** Move a card: ask if the move asks, then call. Raises what the server refuses; undefined if it was cancelled. */
export async function move(context, card, from, to) {
  const found = moveOf(from, to);
  let value = '';
  if (found.verb && !foreign(context, card, from)) { // else it is refused at once, so nothing is asked
    value = await ask({ title: `${found.verb} ${card.id}?`, text: found.text(card), verb: found.verb, as: as(context), field: found.field ?? null, act: (given) => given ?? {} });
    if (value === undefined) return undefined;
  }
  return context.api.post(`/tasks/${seg(card.id)}/${found.op}`, found.body(typeof value === 'string' ? value : ''));
}

/** Who holds a card, and for how long. */
const held = ({ holder, until }) => `${holder} holds it${until ? ` for ${duration((Date.parse(until) - now()) / 1000)} more` : ''}.`;

/** Why a card was not moved to a column of this name. */
export const whyNot = (error, card, name) => (error.status === 403 && card.holder ? `${held(card)} Only the holder moves it to ${name}.` : explain(error));

/** Where a card can go, in words. `names` are those of the columns. */
export function wayOf(context, card, from, names) {
  if (foreign(context, card, from)) return `${held(card)} Only the holder moves it.`;
  return `From ${names[from]} it can go to ${targetsOf(from).map((name) => names[name]).join(' or ')}.`;
}

/** Take a task from its holder, with a reason. */
export const force = (context, card) => ask({
  title: `Release ${card.id} by force?`, text: `${card.holder} loses it; its late writes will be fenced.`, verb: 'Release by force', force: true, as: as(context),
  field: { label: 'Reason, kept in the log', required: true }, act: (given) => context.api.post(`/tasks/${seg(card.id)}/release`, { force: true, reason: given }),
});
