// The one pattern of all dialogs: a question with the thing's name, what will happen, a field, cancel and the act.

import { explain } from './api.js';
import { h, put } from './dom.js';
import { shape } from './shapes.js';

/**
 * Ask, then act. act(value) may raise: the dialog stays open and shows the reason. Resolves to what act returned, or
 * undefined if it was cancelled.
 * options: {title, text, verb, force, as, field: {label, value, area, required, options, type, name}, fields: [...], act}
 * `lasting`: somebody else's change of the thing does not overtake it. An error of act may have `shown`, nodes in place of its words.
 * With several fields act gets an object by name; with one, its value.
 */
export function ask({ title, text, verb, force = false, as = '', field = null, fields = field ? [field] : [], lasting = false, act }) {
  const opener = document.activeElement;
  const inputs = fields.map((each) => [each, input(each)]);
  const failure = h('div.note-red', { role: 'alert', hidden: true });
  const go = h(`button.${force ? 'danger' : 'primary'}`, { type: 'submit' }, verb);
  const form = h('form', { method: 'dialog' },
    h('div.dialog-head', null, h('h2', { id: 'dialog-title' }, force && shape('trouble'), title), text && h('p.dialog-text', null, text)),
    h('div.dialog-body', null,
      inputs.map(([each, control]) => h('label.field', null, h('span', null, each.label), control)),
      failure,
      h('div.dialog-foot', null, h('span.ink-3', null, as && `as ${as}`),
        h('button', { type: 'button', on: { click: () => dialog.close() } }, 'Cancel'), go)));
  const dialog = h('dialog', { 'aria-labelledby': 'dialog-title', class: lasting ? '' : 'step' }, form);
  document.body.append(dialog);
  return new Promise((resolve) => {
    let result;
    dialog.addEventListener('close', () => { dialog.remove(); (opener?.offsetParent ? opener : document.querySelector('main'))?.focus(); resolve(result); });
    form.addEventListener('submit', async (event) => {
      event.preventDefault();
      const values = Object.fromEntries(inputs.map(([each, control]) => [each.name ?? 'value', control.value.trim()]));
      go.disabled = true;
      try {
        result = await act(fields.length === 1 && !fields[0].name ? values.value : values);
        dialog.close();
      } catch (error) {
        put(failure, shape('trouble', 12), h('div', null, error.shown ?? explain(error))).hidden = false;
        go.disabled = false;
      }
    });
    dialog.showModal();
    (inputs[0]?.[1] ?? go).focus();
  });
}

function input({ value = '', area = false, required = false, options = null, type = 'text', placeholder = '' }) {
  if (options) {
    const pairs = options.map((each) => (Array.isArray(each) ? each : [each, each]));
    return h('select', { required }, pairs.map(([one, words]) => h('option', { value: one, selected: one === value }, words)));
  }
  return h(area ? 'textarea' : 'input', { value, required, placeholder, ...(area ? { rows: 6 } : { type, autocomplete: 'off' }) });
}

/** Say in the dialog that is open why there is nothing to do any more: somebody else was faster. */
export function overtaken(words) {
  const dialog = document.querySelector('dialog.step[open]');
  if (!dialog) return;
  put(dialog.querySelector('.dialog-text'), words);
  dialog.querySelector('[type=submit]').disabled = true;
}

/** A short message at the foot of the page, which goes by itself. */
export function notice(words, bad = false) {
  const place = document.querySelector('.notices') ?? document.body.appendChild(h('div.notices', { role: 'status', 'aria-live': 'polite' }));
  const element = h('p.notice', { class: bad ? 'bad' : '' }, bad && shape('trouble'), h('span', null, words));
  place.append(element);
  setTimeout(() => element.remove(), bad ? 8000 : 4000);
}
