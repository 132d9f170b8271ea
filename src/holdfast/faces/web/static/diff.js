// Differences between two texts, by lines. Pure.

const MOST = 2_000_000; // cells of the table: beyond that all old lines are removed and all new ones added

/** [[sign, line]]: sign is ' ', '-' or '+'. */
export function diff(before, after) {
  const a = before.split('\n'), b = after.split('\n');
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const middle = middleOf(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  return [...a.slice(0, head).map((line) => [' ', line]), ...middle, ...a.slice(a.length - tail).map((line) => [' ', line])];
}

function middleOf(a, b) {
  if (!a.length || !b.length || a.length * b.length > MOST) return [...a.map((line) => ['-', line]), ...b.map((line) => ['+', line])];
  const wide = b.length + 1, best = new Uint32Array((a.length + 1) * wide);
  for (let i = a.length - 1; i >= 0; i -= 1) for (let j = b.length - 1; j >= 0; j -= 1) best[i * wide + j] = a[i] === b[j] ? best[(i + 1) * wide + j + 1] + 1 : Math.max(best[(i + 1) * wide + j], best[i * wide + j + 1]);
  const found = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { found.push([' ', a[i]]); i += 1; j += 1; }
    else if (i < a.length && (j >= b.length || best[(i + 1) * wide + j] >= best[i * wide + j + 1])) { found.push(['-', a[i]]); i += 1; }
    else { found.push(['+', b[j]]); j += 1; }
  }
  return found;
}

/** Only what changed, with `around` lines before and after; left out ones are one ['…', count]. */
export function hunks(before, after, around = 2) {
  const all = diff(before, after), near = all.map(() => false);
  all.forEach(([sign], at) => { if (sign !== ' ') for (let n = Math.max(0, at - around); n <= Math.min(all.length - 1, at + around); n += 1) near[n] = true; });
  const found = [];
  all.forEach((line, at) => {
    if (near[at]) found.push(line);
    else if (found.at(-1)?.[0] === '…') found.at(-1)[1] += 1;
    else found.push(['…', 1]);
  });
  return found;
}
