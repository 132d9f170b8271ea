// Where the nodes of a graph stand: layers from left to right, few crossings, straight lines. Pure.

export const NODE = { width: 144, height: 58, across: 30, down: 14 };

/**
 * Fold subtrees: what lies below a folded node (by `parent`: id -> parent's id) disappears into it, and its edges become
 * those of the folded node. Returns {nodes, edges, hidden: Map(folded id -> how many it hides)}.
 */
export function fold(nodes, edges, parent, folded) {
  const present = new Set(nodes.map((node) => node.id));
  const into = new Map();
  const home = (id) => {
    if (into.has(id)) return into.get(id);
    into.set(id, id); // ends a walk around a circle
    const above = parent.get(id);
    let found = id;
    if (above !== undefined && present.has(above)) {
      const top = home(above);
      if (top !== above || folded.has(above)) found = top;
    }
    into.set(id, found);
    return found;
  };
  const hidden = new Map();
  const kept = nodes.filter((node) => {
    const top = home(node.id);
    if (top !== node.id) hidden.set(top, (hidden.get(top) ?? 0) + 1);
    return top === node.id;
  });
  const seen = new Set();
  const left = [];
  for (const edge of edges) {
    if (!present.has(edge.from) || !present.has(edge.to)) continue;
    const from = home(edge.from), to = home(edge.to), key = `${from} ${to}`;
    if (from === to || seen.has(key)) continue;
    seen.add(key);
    left.push({ ...edge, from, to });
  }
  return { nodes: kept, edges: left, hidden };
}

/** The layer of each node: the longest chain before it. An edge that closes a circle does not count. */
export function layers(nodes, edges) {
  const before = new Map(nodes.map((node) => [node.id, []]));
  for (const edge of edges) before.get(edge.to)?.push(edge.from);
  const layer = new Map();
  const open = new Set();
  for (const node of nodes) {
    const stack = [[node.id, 0]];
    while (stack.length) {
      const top = stack.at(-1), [id] = top;
      if (layer.has(id)) { stack.pop(); continue; }
      open.add(id);
      const sources = before.get(id);
      const next = sources[top[1]];
      if (top[1] < sources.length) {
        top[1] += 1;
        if (before.has(next) && !layer.has(next) && !open.has(next)) stack.push([next, 0]);
      } else {
        layer.set(id, sources.reduce((most, each) => Math.max(most, layer.has(each) ? layer.get(each) + 1 : 0), 0));
        open.delete(id);
        stack.pop();
      }
    }
  }
  return layer;
}

/** A tree, as layout() gives it: a node stands level with the first of those below it, which stand in a column. */
export function treeLayout(nodes, edges, size = NODE) {
  const below = new Map(nodes.map((node) => [node.id, []])), tops = new Set(below.keys()), at = new Map();
  const across = size.width + size.across, down = size.height + size.down;
  for (const { from, to } of edges) { below.get(from).push(to); tops.delete(to); }
  let row = 0, layers = 0;
  const walk = (id, layer) => {
    at.set(id, { id, layer, x: layer * across, y: row * down });
    layers = Math.max(layers, layer + 1);
    for (const each of below.get(id)) walk(each, layer + 1);
    if (!below.get(id).length) row += 1;
  };
  for (const id of tops) walk(id, 0);
  const y = new Map([...at.values()].map((place) => [place.id, place.y]));
  const lines = edges.map((edge) => ({ ...edge, path: path([edge.from, edge.to], at.get(edge.from).layer, y, size) }));
  return { nodes: nodes.map((node) => at.get(node.id)), edges: lines, width: Math.max(0, layers * across - size.across), height: Math.max(0, row * down - size.down), layers };
}

/** {nodes: [{id, x, y, layer}], edges: [{from, to, path, ...}], width, height, layers: count}. Edges lead from -> to. */
export function layout(nodes, edges, size = NODE) {
  const layer = layers(nodes, edges);
  const count = nodes.length ? Math.max(...layer.values()) + 1 : 0;
  const rows = Array.from({ length: count }, () => []);
  const near = new Map(); // id -> {left: ids, right: ids}, long edges led through points of their own
  const at = (id) => { if (!near.has(id)) near.set(id, { left: [], right: [] }); return near.get(id); };
  for (const node of nodes) { rows[layer.get(node.id)].push(node.id); at(node.id); }
  const routes = edges.map((edge) => {
    const steps = [edge.from];
    for (let column = layer.get(edge.from) + 1; column < layer.get(edge.to); column += 1) {
      const point = `\0${edge.from} ${edge.to} ${column}`;
      rows[column].push(point);
      at(point);
      steps.push(point);
    }
    steps.push(edge.to);
    for (let n = 1; n < steps.length; n += 1) { at(steps[n - 1]).right.push(steps[n]); at(steps[n]).left.push(steps[n - 1]); }
    return { edge, steps };
  });
  order(rows, near);
  const y = place(rows, near, size);
  const pitch = size.width + size.across;
  const placed = nodes.map((node) => ({ id: node.id, layer: layer.get(node.id), x: layer.get(node.id) * pitch, y: y.get(node.id) }));
  const lines = routes.map(({ edge, steps }) => ({ ...edge, path: path(steps, layer.get(edge.from), y, size) }));
  return { nodes: placed, edges: lines, width: Math.max(0, count * pitch - size.across), height: placed.reduce((most, node) => Math.max(most, node.y + size.height), 0), layers: count };
}

/** Sweep to and fro, each row in the order of the middle of its neighbours. */
function order(rows, near) {
  const index = new Map();
  const number = (row) => row.forEach((id, n) => index.set(id, n));
  rows.forEach(number);
  for (let sweep = 0; sweep < 8; sweep += 1) {
    const side = sweep % 2 ? 'right' : 'left';
    for (const row of sweep % 2 ? [...rows].reverse() : rows) {
      const middle = new Map(row.map((id) => {
        const others = near.get(id)[side];
        return [id, others.length ? others.reduce((sum, each) => sum + index.get(each), 0) / others.length : index.get(id)];
      }));
      row.sort((a, b) => middle.get(a) - middle.get(b) || index.get(a) - index.get(b));
      number(row);
    }
  }
}

/** Heights: as near to the neighbours as the order allows. Points of long edges need little room. */
function place(rows, near, size) {
  const y = new Map();
  const room = (id) => (id.startsWith('\0') ? size.down : size.height + size.down);
  for (const row of rows) { let at = 0; for (const id of row) { y.set(id, at); at += room(id); } }
  const centre = (id) => y.get(id) + (id.startsWith('\0') ? 0 : size.height / 2);
  for (let sweep = 0; sweep < 6; sweep += 1) {
    for (const row of sweep % 2 ? [...rows].reverse() : rows) {
      const wanted = row.map((id) => {
        const { left, right } = near.get(id), others = [...left, ...right];
        const middle = others.length ? others.reduce((sum, each) => sum + centre(each), 0) / others.length : centre(id);
        return middle - (id.startsWith('\0') ? 0 : size.height / 2);
      });
      let least = 0;
      row.forEach((id, n) => { const top = Math.max(least, wanted[n]); y.set(id, top); least = top + room(id); });
      let most = Infinity;
      for (let n = row.length - 1; n >= 0; n -= 1) { // back up where the row was pushed down
        const id = row[n], top = Math.min(y.get(id), Math.max(wanted[n], n ? y.get(row[n - 1]) + room(row[n - 1]) : 0), most - room(id));
        y.set(id, Math.max(0, top));
        most = y.get(id);
      }
    }
  }
  let foot = 0, up = 0; // what is empty from left to right is closed up
  for (const [id, top] of [...y].sort((a, b) => a[1] - b[1])) {
    up = Math.max(up, top - foot);
    foot = Math.max(foot, top + room(id));
    y.set(id, Math.round(top - up));
  }
  return y;
}

function path(steps, first, y, size) {
  const pitch = size.width + size.across, half = size.across / 2;
  let words = '';
  steps.forEach((id, n) => {
    const point = id.startsWith('\0');
    const x = (first + n) * pitch, height = y.get(id) + (point ? 0 : size.height / 2);
    if (n === 0) words = `M${x + size.width} ${height}`;
    else words += `C${x - size.across + half} ${previous(steps[n - 1], y, size)} ${x - half} ${height} ${x} ${height}${point ? `H${x + size.width}` : ''}`;
  });
  return words;
}

function previous(id, y, size) { return y.get(id) + (id.startsWith('\0') ? 0 : size.height / 2); }
