'use strict';
const $ = id => document.getElementById(id);
const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const count = n => n.toLocaleString('en');
const plural = (n, thing) => count(n) + ' ' + thing + (n === 1 ? '' : 's');
const scaled = (n, units) => { let i = 0; while (n >= 1000 && i < units.length - 1) { n /= 1000; i++; } return n.toFixed(n < 10 && i ? 1 : 0) + ' ' + units[i]; };
const bytes = n => scaled(n, ['B', 'KB', 'MB', 'GB', 'TB']);
const seconds = s => s < 1e-3 ? (1e6 * s).toPrecision(3) + ' µs' : s < 1 ? (1e3 * s).toPrecision(3) + ' ms' : (s < 100 ? s.toPrecision(3) : count(Math.round(s))) + ' s';
const sum = (list, f) => list.reduce((n, x) => n + f(x), 0);
const points = 300; // of a plot: half a minute
const history = [];

function state(text, kind = 'soft') { $('state').textContent = text; $('state').className = kind; }

function element(tag, text, to) { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (to) to.append(e); return e; }

function number(id, label, value) {
  let e = $(id);
  if (!e) { const box = element('div', undefined, $('numbers')); e = element('b', '', box); e.id = id; element('span', label, box).className = 'soft'; }
  e.textContent = value;
}

// sized gives a canvas the resolution of the screen, and returns what to draw with.
function sized(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.style.height = height + 'px'; canvas.width = width * ratio; canvas.height = height * ratio;
  const g = canvas.getContext('2d'); g.scale(ratio, ratio); g.font = '11px system-ui'; return [g, width];
}

// A character of cells is alphabet[state + 4·priority + 20·age].
const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-./:;=?@[';
const priorities = ['up to 19', '20 to 34', '35, the default', '36 to 79', '80 and above'];
const hues = [150, 185, 210, 265, 320]; // by class of priority
const ages = [1, .75, .52, .34]; // opacity by class of age: the newest is the strongest
const shade = (priority, age) => `hsl(${hues[priority]} 70% 50% / ${ages[age]})`;

// grid draws sampled pages, one cell each.
function grid(canvas, cells) {
  const size = canvas.clientWidth < 400 ? 9 : 11, columns = Math.max(1, Math.floor(canvas.clientWidth / size));
  const [g] = sized(canvas, Math.max(1, Math.ceil(cells.length / columns)) * size);
  const free = color('--free'), used = color('--used');
  for (let i = 0; i < cells.length; i++) {
    const kind = alphabet.indexOf(cells[i]), state = kind % 4, x = i % columns * size, y = Math.floor(i / columns) * size;
    g.fillStyle = state === 0 ? free : state === 1 ? used : shade(Math.floor(kind / 4) % 5, Math.floor(kind / 20));
    g.fillRect(x, y, size - 2, size - 2);
    if (state === 3) { g.fillStyle = color('--card'); g.fillRect(x + 3, y + 3, size - 8, size - 8); } // a copy is hollow
  }
}

function legend(box, text, background) { const e = element('span', undefined, box); element('i', undefined, e).style.background = background; return element('span', text, e); }

function newPool(p) {
  const s = $('pool-template').content.cloneNode(true).firstElementChild, head = s.querySelector('h3'); s.id = 'pool-' + p.name;
  head.textContent = p.name + ' ';
  element('span', (p.window ? 'window of ' + count(p.window) + ' tokens' : 'no window') + ', pages of ' + bytes(p.page_bytes), head).className = 'soft';
  const box = $('states');
  if (!box.children.length) {
    legend(box, 'used', 'var(--used)'); legend(box, 'free', 'var(--free)');
    priorities.forEach((name, i) => legend(box, (i ? '' : 'cached, by priority: ') + name, shade(i, 0)));
    element('span', 'paler: used longer ago, in quarters of the oldest age of the tier; hollow: also on the device', box).className = 'soft';
  }
  $('pools').append(s); return s;
}

function pool(p) {
  const s = $('pool-' + p.name), [device, host] = s.querySelectorAll('canvas');
  grid(device, p.primary.cells || ''); grid(host, p.secondary.cells || '');
  for (const [tier, name] of [['primary', 'Device'], ['secondary', 'Host']]) {
    const n = p[tier];
    s.querySelector(`[data-tier=${tier}]`).textContent = `${name}: used ${count(n.used)}, cached ${count(n.cached)}, free ${count(n.free)}`;
  }
  const t = s.querySelector('table'); t.replaceChildren();
  for (const [label, n] of [['evicted', p.evicted], ['offloaded', p.offloaded], ['onboarded', p.onboarded], ['dropped', p.dropped]]) {
    const r = element('tr', undefined, t); element('td', label, r); element('td', count(n), r);
  }
}

// rates gives one value for each pair of answers a second apart.
function rates(f) { const out = []; for (let i = 10; i < history.length; i++) out.push(f(history[i - 10], history[i])); return out; }

// plot draws lines over time; level places a value between 0 and 1, marks are the values of the lines across.
function plot(id, lines, level, marks, label) {
  const height = 165, [g, full] = sized($(id), height), y = v => 8 + (height - 32) * (1 - Math.min(1, Math.max(0, level(v))));
  g.fillStyle = color('--soft'); g.strokeStyle = color('--line'); g.textAlign = 'right';
  const left = 8 + Math.max(...marks.map(m => g.measureText(label(m)).width)), width = full - left;
  for (const m of marks) { g.beginPath(); g.moveTo(left, y(m)); g.lineTo(full, y(m)); g.stroke(); g.fillText(label(m), left - 6, y(m) + 4); }
  g.fillText('now', full, height - 6); g.textAlign = 'left'; g.fillText(points / 10 + ' s ago', left, height - 6);
  for (const [values, c] of lines) {
    g.strokeStyle = color(c); g.lineWidth = 1.7; g.beginPath(); let open = false;
    values.forEach((v, i) => {
      if (v === undefined) { open = false; return; }
      const x = left + width * (i + points - values.length) / (points - 1); open ? g.lineTo(x, y(v)) : g.moveTo(x, y(v)); open = true;
    });
    g.stroke();
  }
}

function plots(a) {
  const share = v => v, percent = v => 100 * v + ' %';
  plot('rate', [[rates((x, y) => y.prompt_tokens > x.prompt_tokens ? (y.reused_tokens - x.reused_tokens) / (y.prompt_tokens - x.prompt_tokens) : undefined), '--good']], share, [0, .5, 1], percent);
  const part = (tier, f) => history.map(h => sum(h.pools, p => f(p[tier])) / Math.max(1, sum(h.pools, p => p[tier].used + p[tier].cached + p[tier].free)));
  plot('memory', [[part('secondary', n => n.used + n.cached), '--host'], [part('primary', n => n.used + n.cached), '--cached'], [part('primary', n => n.used), '--used']], share, [0, .5, 1], percent);
  const copied = name => rates((x, y) => (sum(y.pools, p => p[name]) - sum(x.pools, p => p[name])) / Math.max(.001, y.time - x.time));
  const out = copied('bytes_offloaded'), back = copied('bytes_onboarded'), top = Math.max(1000, ...out, ...back);
  plot('copies', [[out, '--host'], [back, '--cached']], v => v / top, [0, top / 2, top], bytes);
  if (a.calls) $('latency-box').hidden = false;
  if ($('latency-box').hidden) return;
  const took = (name, q) => history.map(h => h.calls && h.calls[name] && h.calls[name][q]);
  plot('latency', [[took('admit', 'p99'), '--warm'], [took('append', 'p99'), '--host'], [took('admit', 'p50'), '--used'], [took('append', 'p50'), '--cached']],
    v => (Math.log10(v) + 6.5) / 6.5, [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1], v => +(1e6 * v < 999 ? 1e6 * v : 1e3 * v).toFixed(0) + (1e6 * v < 999 ? ' µs' : ' ms'));
}

// The tree: each node is as wide as the share of the blocks below it, under its parent.
const stamps = []; // [time, the latest stamp of then]
const treeTip = 'Touch or point at a part to see its blocks.';
let boxes = [];
$('tree-tip').textContent = treeTip;
function tree(t) {
  const now = performance.now(), newest = Math.max(0, ...t.nodes.map(n => n[4]));
  stamps.push([now, newest]); while (stamps.length > 2 && stamps[1][0] < now - 5000) stamps.shift();
  const before = stamps[0][1], first = stamps.length === 1;
  const levels = [], place = [];
  const total = sum(t.nodes.filter(n => n[0] < 0), n => n[3]), row = 22;
  t.nodes.forEach(([parent, depth, blocks, below, stamp], i) => {
    const level = parent < 0 ? 0 : place[parent].level + 1, width = below / (total || 1);
    const x = parent < 0 ? levels.next || 0 : place[parent].next;
    if (parent < 0) levels.next = x + width; else place[parent].next += width;
    place.push({ level, x, width, next: x, depth, blocks, below, heat: first || stamp <= before ? 0 : .35 + .65 * (stamp - before) / (newest - before) });
  });
  boxes = place.filter(b => b.blocks > 0);
  const rows = Math.max(1, ...boxes.map(b => b.level));
  const [g, w] = sized($('tree'), Math.min(12, rows) * row);
  const node = color('--node'), glow = color('--glow');
  for (const b of boxes) {
    b.top = (b.level - 1) * row; b.left = b.x * w; b.size = Math.max(0, b.width * w);
    if (b.size < .3) continue;
    const inner = Math.max(.5, b.size - 1);
    g.globalAlpha = 1; g.fillStyle = node; g.fillRect(b.left, b.top, inner, row - 2);
    g.globalAlpha = b.heat; g.fillStyle = glow; g.fillRect(b.left, b.top, inner, row - 2);
    g.globalAlpha = 1; g.fillStyle = b.heat > .5 ? '#14161a' : color('--text'); // what glows is bright in the dark, too
    if (b.size > 44) g.fillText(count(b.below), b.left + 4, b.top + 14);
  }
  // Roots of namespaces have no blocks and are drawn as none.
  const nodes = t.counted - (place.length - boxes.length);
  $('tree-note').textContent = `${plural(total, 'block')}${t.complete ? '' : ' counted, and more'} in ${plural(nodes, 'node')}; widths by blocks; what was just reused or stored glows`;
}

$('tree').addEventListener('pointermove', e => {
  const b = boxes.find(b => e.offsetX >= b.left && e.offsetX < b.left + b.size && e.offsetY >= b.top && e.offsetY < b.top + 20);
  $('tree-tip').textContent = b ? `${count(b.blocks)} blocks from block ${count(b.depth)} of their prompts on, ${count(b.below)} with all that follow` : treeTip;
});

// Transfers, a row for each stream, the latest ones.
const kept = [];
function transfers(list) {
  kept.push(...list);
  kept.splice(0, Math.max(0, kept.length - 200));
  if (!kept.length) return;
  const streams = [...new Set(kept.map(t => t.stream))].sort();
  $('transfers-box').hidden = false;
  const from = Math.min(...kept.map(t => t.start)), to = Math.max(...kept.map(t => t.end)), span = Math.max(1e-9, to - from), row = 30;
  const [g, w] = sized($('transfers'), streams.length * row + 16);
  const colors = { offload: '--host', onboard: '--cached', 'onboard bulk': '--good', copy: '--warm' };
  g.fillStyle = color('--soft');
  streams.forEach((name, i) => g.fillText(`${name}: ${bytes(sum(kept.filter(t => t.stream === name), t => t.bytes))}`, 2, i * row + 11));
  g.fillText(seconds(from), 2, streams.length * row + 12);
  const end = '+' + seconds(span); g.fillText(end, w - g.measureText(end).width - 2, streams.length * row + 12);
  for (const t of kept) {
    g.fillStyle = color(colors[t.stream] || '--used');
    g.fillRect((t.start - from) / span * w, streams.indexOf(t.stream) * row + 14, Math.max(1, (t.end - t.start) / span * w), 12);
  }
}

const reasons = {
  hit: 'Nothing more of this prompt has been stored.', cold: 'No prompt that begins like this has been stored.', disabled: 'Reuse is off.',
  evicted: 'More was stored, but a pool of full attention has evicted a block of it.',
  window_hole: 'More was stored, but a pool with a window has evicted a block that this position needs.',
  no_state: 'More was stored, but the recurrent layers have no checkpoint there.',
};
$('lookup').addEventListener('submit', async e => {
  e.preventDefault();
  const found = $('found'), bar = $('found-bar');
  try {
    const r = await fetch('lookup', { method: 'POST', body: JSON.stringify({ prompt: $('prompt').value }) });
    if (!r.ok) { found.textContent = await r.text(); bar.hidden = true; return; }
    const a = await r.json();
    found.textContent = `${count(a.matched)} of ${count(a.tokens)} tokens are cached${a.chat ? ', as the first message of a chat' : ''}: ${count(a.device)} on the device, ${count(a.host)} in host memory. ${reasons[a.reason] || a.reason}`;
    bar.hidden = false; bar.children[0].style.width = 100 * a.device / a.tokens + '%'; bar.children[1].style.width = 100 * a.host / a.tokens + '%';
  } catch { found.textContent = 'the engine does not answer'; bar.hidden = true; }
});

function show(a) {
  history.push(a); if (history.length > points + 10) history.shift();
  if (a.title) { $('title').textContent = 'kvactor: ' + a.title; document.title = 'kvactor: ' + a.title; }
  state('live'); $('lookup-box').hidden = !a.lookup;
  const first = history.length > 1 ? history[0] : { prompt_tokens: 0, thrash_tokens: 0 };
  const again = (a.thrash_tokens - first.thrash_tokens) / Math.max(1, a.prompt_tokens - first.prompt_tokens);
  $('thrash').hidden = again < .1;
  $('thrash').textContent = `${(100 * again).toFixed(0)} % of the prompt tokens had been evicted a short while before: eviction_policy forecast or more memory may help.`;
  number('hit-rate', 'hit rate since the start', a.prompt_tokens ? (100 * a.reused_tokens / a.prompt_tokens).toFixed(1) + ' %' : '–');
  number('requests', 'requests', count(a.requests)); number('sequences', 'running', count(a.sequences));
  number('prompt-tokens', 'prompt tokens', count(a.prompt_tokens)); number('reused-tokens', 'reused tokens', count(a.reused_tokens));
  number('restarts', 'actors restarted', count(a.restarts));
  if (a.tree) tree(a.tree);
  transfers(a.transfers || []);
  // All boxes before any is drawn: their widths depend on how many there are.
  a.pools.forEach(p => $('pool-' + p.name) || newPool(p)); a.pools.forEach(pool); plots(a);
}

// The page is drawn at most ten times a second, and not at all while nobody sees it.
function connect() {
  const live = new EventSource('live');
  live.onmessage = e => { const a = JSON.parse(e.data); if (!document.hidden) show(a); };
  live.onerror = () => { state('the engine does not answer', 'failed'); };
}
fetch('stats').then(r => r.json()).then(show).then(() => { if (!location.search.includes('still')) connect(); })
  .catch(() => { state('the engine does not answer', 'failed'); connect(); });
