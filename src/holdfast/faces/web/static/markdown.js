// Markdown as nodes: a stated subset. Nothing is parsed as markup; what is not in the subset stays text.
//
// Blocks: paragraphs, # heads, - and 1. lists (one level), > quotes, ``` code, --- lines. Inline: `code`, **bold**,
// *italic*, ~~struck~~, [links](https://...) and bare addresses; images become links. Addresses are http, https and
// mailto alone, and open apart without telling where from.

import { h } from './dom.js';

const INLINE = /(`+)([^`](?:.*?[^`])?)\1(?!`)|\*\*(?=\S)(.+?)(?<=\S)\*\*|(?<![\w*])\*(?=\S)([^*]+?)(?<=\S)\*(?![\w*])|~~(.+?)~~|!?\[([^\]\n]*)\]\(([^()\s]+)\)|(https?:\/\/[^\s<>"'`]+[^\s<>"'`.,;:!?)\]])/;
const MOST = 20_000; // characters of a line that are looked at for marks

/** The nodes of one line of text. */
export function inline(text) {
  const nodes = [];
  let rest = text.length > MOST ? '' : text;
  if (!rest) return [text];
  for (let found; (found = INLINE.exec(rest)); rest = rest.slice(found.index + found[0].length)) {
    if (found.index) nodes.push(rest.slice(0, found.index));
    const [all, , code, bold, italic, struck, label, address, bare] = found;
    if (code !== undefined) nodes.push(h('code', null, code));
    else if (bold !== undefined) nodes.push(h('strong', null, inline(bold)));
    else if (italic !== undefined) nodes.push(h('em', null, inline(italic)));
    else if (struck !== undefined) nodes.push(h('s', null, inline(struck)));
    else nodes.push(link(bare ?? address, bare ?? label) ?? all);
  }
  if (rest) nodes.push(rest);
  return nodes;
}

function link(address, label) {
  let url;
  try { url = new URL(address); } catch { return null; }
  if (!['http:', 'https:', 'mailto:'].includes(url.protocol)) return null;
  return h('a', { href: url.href, target: '_blank', rel: 'noopener noreferrer nofollow', title: url.href }, label || address);
}

/** A text without its marks, for a place that shows the beginning of it in one line. */
export const plain = (text) => text.slice(0, 1000).replace(/^(?:#{1,6} |> ?|\s*(?:[-*+]|\d+[.)]) |\x60{3}.*)/gm, '').replace(/!?\[([^\]\n]*)\]\([^()\s]+\)/g, '$1').replace(/(\*\*|~~|\x60+)(?=\S)(.+?)\1/g, '$2').replace(/(?<![\w*])\*(?=\S)([^*]+?)\*(?![\w*])/g, '$1');

/** The nodes of a text. */
export function markdown(text) {
  const lines = text.replaceAll('\r\n', '\n').split('\n');
  const blocks = [];
  let at = 0;
  const take = (test) => { const found = []; while (at < lines.length && test(lines[at])) found.push(lines[at++]); return found; };
  while (at < lines.length) {
    const line = lines[at];
    const fence = /^(\x60{3,}|~~~+)/.exec(line);
    if (!line.trim()) at += 1;
    else if (fence) {
      at += 1;
      const code = take((each) => !each.startsWith(fence[1]));
      at += 1;
      blocks.push(h('pre', { tabindex: 0 }, code.join('\n')));
    } else if (/^#{1,6} /.test(line)) { blocks.push(h('h4', null, inline(line.replace(/^#+ /, '')))); at += 1; }
    else if (/^(-{3,}|\*{3,})$/.test(line.trim())) { blocks.push(h('hr')); at += 1; }
    else if (/^\s*[-*+] /.test(line)) blocks.push(h('ul', null, take((each) => /^\s*[-*+] /.test(each)).map((each) => h('li', null, inline(each.replace(/^\s*[-*+] /, ''))))));
    else if (/^\s*\d+[.)] /.test(line)) blocks.push(h('ol', null, take((each) => /^\s*\d+[.)] /.test(each)).map((each) => h('li', null, inline(each.replace(/^\s*\d+[.)] /, ''))))));
    else if (/^> ?/.test(line)) blocks.push(h('blockquote', null, markdown(take((each) => /^> ?/.test(each)).map((each) => each.replace(/^> ?/, '')).join('\n'))));
    else {
      const words = take((each) => each.trim() && !/^(\x60{3}|~~~|#{1,6} |\s*[-*+] |\s*\d+[.)] |> ?)/.test(each));
      blocks.push(h('p', null, words.map((each, n) => [n > 0 && h('br'), inline(each)])));
    }
  }
  return blocks;
}
