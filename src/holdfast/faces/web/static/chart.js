// Scales, bars and lanes: numbers in, geometry out. Pure.

/** Bars of a sparkline: [{x, y, width, height, value}], at least 1 high. */
export function bars(values, width, height, gap = 2) {
  const most = Math.max(1, ...values), pitch = width / Math.max(1, values.length);
  return values.map((value, at) => {
    const tall = Math.max(1, (value / most) * height);
    return { x: at * pitch, y: height - tall, width: Math.max(1, pitch - gap), height: tall, value };
  });
}

const STEPS = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800].map((seconds) => seconds * 1000);

/** Round moments between two times (ms), at most `most`; they fall on the hours of the viewer. */
export function ticks(from, until, most = 8) {
  const step = STEPS.find((each) => (until - from) / each <= most) ?? STEPS.at(-1);
  const shift = new Date(from).getTimezoneOffset() * 60_000;
  const found = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= until; at += step) found.push(at);
  return found;
}

/** x of a time, cut at the edges. */
export const scale = (from, until, width) => (time) => Math.min(width, Math.max(0, ((time - from) / (until - from)) * width));

/**
 * Stretches of time as bars: [{x, width, items, count, how, open, before}]. Those that would be narrower than `least` px are
 * drawn with their neighbours as one, so that a day of 50,000 events has no more bars than pixels. Times are ms.
 */
export function spans(stretches, from, until, width, least = 3) {
  const x = scale(from, until, width), found = [];
  const within = stretches.filter((each) => each.start < until && (each.end === null || each.end > from)).sort((a, b) => a.start - b.start);
  for (const each of within) {
    const left = x(each.start), right = x(each.end ?? until), last = found.at(-1);
    const narrow = right - left < least;
    if (narrow && last?.merged && left - (last.x + last.width) < least) {
      last.width = Math.max(last.width, right - last.x, least);
      last.items.push(each);
      last.count += each.count ?? 1;
      if (last.how !== each.how) last.how = worse(last.how, each.how);
    } else found.push({ x: left, width: Math.max(right - left, least), items: [each], count: each.count ?? 1, how: each.how, open: each.end === null, before: each.start < from || Boolean(each.before), merged: narrow || each.count > 1 });
  }
  return found;
}

const ORDER = ['expired', 'blocked', 'review', 'released', 'closed'];
/** Of two ends, the one that a person should see. */
export const worse = (a, b) => ORDER[Math.min(...[a, b].map((how) => (ORDER.indexOf(how) < 0 ? ORDER.length - 1 : ORDER.indexOf(how))))];

/** Moments as ticks, at most one for each pixel: [x]. */
export function marks(times, from, until, width) {
  const x = scale(from, until, width);
  return [...new Set(times.filter((time) => time >= from && time <= until).map((time) => Math.round(x(time))))];
}
