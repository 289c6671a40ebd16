'use strict';
// Asks the server every two seconds and draws what it says. Words of runs only ever become text, never markup.
const COLOURS = ['#1f77b4', '#d9721a', '#2c9e4b', '#c9302c', '#8257b5', '#8c5a4b', '#d05a9e', '#6f7a80', '#a89a1c', '#1aa3b5'];
const EVERY = 2000;
const $ = (id) => document.getElementById(id);
const whole = new Map();
let chosen = null, lines = [], mistakesOf = null;

/** A run as it is called everywhere: several may have one name, none has another's folder. */
function named(run) {
  return run.name === null ? run.folder : run.name + '  ·  ' + run.folder;
}

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
function drawn(tag, attributes, text) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
const percent = (share) => share === null || share === undefined ? '–' : (100 * share).toFixed(2) + ' %';
const number = (value, digits) => value === null || value === undefined ? '–' : Number(value).toPrecision(digits);
const colour = (run) => COLOURS[run % COLOURS.length];
async function ask(path) {
  const answer = await fetch(path, { cache: 'no-store' });
  if (!answer.ok) throw new Error(answer.status);
  return answer.json();
}

function showRuns() {
  const body = $('runs').tBodies[0];
  body.replaceChildren(...lines.map((run) => {
    const row = element('tr', null, { tabindex: 0, 'aria-selected': run.number === chosen, title: run.folder });
    const swatch = element('td');
    const mark = element('span', null, { class: 'swatch' });
    mark.style.background = colour(run.number);
    swatch.append(mark);
    row.append(swatch, element('td', named(run)));
    if (run.error) {
      row.append(element('td', run.error, { colspan: 7, class: 'wrong' }));
    } else {
      const last = run.last;
      row.append(element('td', run.done + ' of ' + run.epochs + (run.finished ? ', finished' : '')));
      for (const part of ['train', 'validation', 'test']) row.append(element('td', last && last[part] ? percent(last[part].top1) : '–'));
      const judged = last && (last.validation || last.test);
      row.append(element('td', judged ? number(judged.loss, 4) : '–'));
      row.append(element('td', last ? number(last.learning_rate, 3) : '–'));
      row.append(element('td', last ? Math.round(last.images_per_s).toLocaleString('en') : '–'));
    }
    const choose = () => { chosen = run.number; mistakesOf = null; showRuns(); showChosen(); };
    row.addEventListener('click', choose);
    row.addEventListener('keydown', (event) => { if (event.key === 'Enter') choose(); });
    return row;
  }));
}

// Marks that are round numbers.
function ticks(from, to, most) {
  const raw = (to - from) / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const all = [];
  for (let at = Math.ceil(from / step) * step; at <= to + 1e-9 * step; at += step) all.push(at);
  return all;
}

function chart(place, value, options) {
  const width = 560, height = 300, left = 52, right = 10, top = 8, bottom = 30;
  const series = [];
  for (const run of lines) {
    const found = whole.get(run.number);
    if (!found) continue;
    for (const part of ['judged', 'train']) {
      const points = found.metrics.map((m) => [m.epoch, value(part === 'train' ? m.train : m.validation || m.test)])
        .filter(([, y]) => y !== null && Number.isFinite(y) && (!options.log || y > 0));
      if (points.length) series.push({ run, part, points });
    }
  }
  const svg = drawn('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': options.label });
  if (!series.length) {
    svg.append(drawn('text', { x: width / 2, y: height / 2, 'text-anchor': 'middle', fill: 'currentColor' }, 'no epoch is done yet'));
    return $(place).replaceChildren(svg);
  }
  const scale = options.log ? Math.log10 : (v) => v;
  const all = series.flatMap((s) => s.points);
  const last = Math.max(...all.map(([x]) => x), 2);
  let low = Math.min(...all.map(([, y]) => scale(y))), high = Math.max(...all.map(([, y]) => scale(y)));
  if (high - low < 1e-6) [low, high] = [low - 0.5, high + 0.5];
  const x = (epoch) => left + (epoch - 1) / (last - 1) * (width - left - right);
  const y = (v) => top + (high - scale(v)) / (high - low) * (height - top - bottom);
  const text = (attributes, words) => drawn('text', { 'font-size': 12, fill: 'currentColor', ...attributes }, words);
  for (const mark of ticks(low, high, 5)) {
    const v = options.log ? 10 ** mark : mark;
    svg.append(drawn('line', { x1: left, x2: width - right, y1: y(v), y2: y(v), stroke: 'currentColor', 'stroke-opacity': 0.15 }));
    svg.append(text({ x: left - 6, y: y(v) + 4, 'text-anchor': 'end' }, options.show(v)));
  }
  for (const mark of ticks(1, last, 7).filter(Number.isInteger)) svg.append(text({ x: x(mark), y: height - 15, 'text-anchor': 'middle' }, mark));
  svg.append(text({ x: width - right, y: height - 4, 'text-anchor': 'end', 'font-size': 10 }, 'epoch'));
  for (const { run, part, points } of series) {
    const thick = run.number === chosen || lines.length === 1 ? 2 : 1.2;
    const style = { fill: 'none', stroke: colour(run.number), 'stroke-width': thick, 'stroke-dasharray': part === 'train' ? '4 3' : 'none' };
    const line = drawn('polyline', { points: points.map(([e, v]) => x(e).toFixed(1) + ',' + y(v).toFixed(1)).join(' '), ...style });
    line.append(drawn('title', {}, `${run.name}, ${part === 'train' ? 'train' : 'held out'}`));
    svg.append(line);
    if (points.length === 1) svg.append(drawn('circle', { cx: x(points[0][0]), cy: y(points[0][1]), r: 3, fill: colour(run.number) }));
  }
  $(place).replaceChildren(svg);
}

const FIGURES = [['beyond', 'beyond reach'], ['untargeted', 'without target'], ['disagree', 'not at target'], ['came_true', 'came true'],
  ['lost', 'lost'], ['slope', 'slope']];
function spark(values) {
  const svg = drawn('svg', { viewBox: '0 0 90 18', width: 90, height: 18, 'aria-hidden': true });
  const known = values.filter((v) => v !== null && Number.isFinite(v));
  if (known.length < 2) return svg;
  const low = Math.min(...known), span = Math.max(...known) - low || 1;
  const points = values.map((v, i) => [i, v]).filter(([, v]) => v !== null && Number.isFinite(v));
  svg.append(drawn('polyline', { fill: 'none', stroke: colour(chosen), 'stroke-width': 1.4,
    points: points.map(([i, v]) => `${(2 + 86 * i / (values.length - 1)).toFixed(1)},${(16 - 14 * (v - low) / span).toFixed(1)}`).join(' ') }));
  return svg;
}
function showLayers(found) {
  const records = found.diagnostics, table = $('layers');
  table.replaceChildren();
  if (!records.length) {
    $('diagnosis-note').textContent = 'This run does not look into its hard layers; train with --diagnostics to see them here.';
    return;
  }
  const last = records[records.length - 1];
  $('diagnosis-note').textContent = `After epoch ${last.epoch}: shares of the units' steps in the step about to be taken, and how they went over the epochs.`;
  const head = element('tr');
  head.append(element('th', 'layer'), ...FIGURES.map(([, words]) => element('th', words, { colspan: 2 })));
  table.append(head);
  last.layers.forEach((layer, place) => {
    const row = element('tr');
    row.append(element('td', layer.layer));
    for (const [key] of FIGURES) {
      const cell = element('td');
      cell.append(spark(records.map((record) => record.layers[place] ? record.layers[place][key] : null)));
      row.append(element('td', key === 'slope' ? number(layer[key], 3) : percent(layer[key])), cell);
    }
    table.append(row);
  });
}

function showMistakes(found) {
  const [matrix, mistakes] = [$('matrix'), $('mistakes')];
  matrix.replaceChildren();
  mistakes.replaceChildren();
  const wait = found.error || found.waiting;
  $('matrix-note').textContent = wait || `The kept network: ${found.examples.toLocaleString('en')} of ${found.of.toLocaleString('en')} examples of the ${found.part} part, `
    + `${percent(found.right / found.examples)} right; rows are the true classes` + (found.confusion ? '' : '; too many classes for a table');
  $('mistakes-note').textContent = wait ? '' : found.mistakes.length ? 'The first of them.' : 'None among those that were looked at.';
  if (wait) return;
  if (found.confusion) {
    const head = element('tr');
    head.append(element('th'), ...found.classes.map((name) => element('th', name, { title: name })));
    matrix.append(head);
    found.confusion.forEach((counts, truth) => {
      const row = element('tr'), sum = counts.reduce((a, b) => a + b, 0) || 1;
      row.append(element('th', found.classes[truth], { title: found.classes[truth] }));
      counts.forEach((count, answer) => {
        const cell = element('td', count || '', { title: `${found.classes[truth]} taken for ${found.classes[answer]}: ${count}` });
        if (truth === answer) cell.className = 'right';
        if (count) cell.style.background = `rgba(var(--hot), ${(0.08 + 0.6 * count / sum).toFixed(3)})`;
        row.append(cell);
      });
      matrix.append(row);
    });
  }
  mistakes.append(...found.mistakes.map((one) => {
    const figure = element('figure');
    if (one.picture) figure.append(element('img', null, { src: 'data:image/png;base64,' + one.picture, alt: `example ${one.number}` }));
    figure.append(element('figcaption', `${found.classes[one.truth]} taken for ${found.classes[one.answer]}, ${(100 * one.confidence).toFixed(0)} % sure (no. ${one.number})`));
    return figure;
  }));
}

function showChosen() {
  chart('accuracy', (scores) => scores.top1, { label: 'Accuracy by epoch', show: (v) => (100 * v).toFixed(v * 100 % 1 ? 1 : 0) + ' %' });
  chart('loss', (scores) => scores.loss, { log: true, label: 'Loss by epoch', show: (v) => Number(v.toPrecision(2)).toString() });
  const found = whole.get(chosen), line = lines.find((run) => run.number === chosen);
  $('chosen').textContent = line ? named(line) : '';
  if (!found) return;
  $('changes').replaceChildren(...found.changes.map((c) => element('li', `from epoch ${c.epoch} on ${c.key} is ${c.now}, not ${c.before}`)));
  showLayers(found);
}

async function look() {
  const before = new Map(lines.map((run) => [run.number, run.done]));
  lines = await ask('/runs.json');
  if (chosen === null && lines.length) chosen = lines[lines.length - 1].number;
  for (const run of lines) {
    if (!whole.has(run.number) || before.get(run.number) !== run.done) whole.set(run.number, await ask(`/${run.number}/run.json`));
  }
  const training = lines.filter((run) => !run.finished && !run.error).length;
  $('state').className = '';
  $('state').textContent = `${lines.length} run${lines.length === 1 ? '' : 's'}, ${training} not finished; ${new Date().toLocaleTimeString('en-GB')}`;
  showRuns();
  showChosen();
  const line = lines.find((run) => run.number === chosen);
  const now = line && `${chosen} ${line.done}`;
  if (line && line.done && now !== mistakesOf) {
    const found = await ask(`/${chosen}/mistakes.json`);
    if (now.startsWith(chosen + ' ')) showMistakes(found);
    if (!found.waiting) mistakesOf = now;
  }
}

async function always() {
  try {
    await look();
  } catch (error) {
    $('state').className = 'lost';
    $('state').textContent = 'no answer: has ftprop watch ended?';
  }
  setTimeout(always, EVERY);
}
always();
