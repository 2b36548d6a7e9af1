"use strict";
const ID = 0, OPERATOR = 1, STATUS = 2, REASON = 3, DTYPE = 4, USED = 5, SPENT = 6, TEXT = 7;
const ROWS_AT_ONCE = 200;
let data;
const redraws = [];

/** Create an element; children that are strings become text, never markup. */
function make(tag, attributes = {}, ...children) {
  const isSvg = ["svg", "g", "rect", "line", "text", "circle", "path", "title"].includes(tag);
  const element = isSvg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter(Boolean));
  return element;
}

/** Paint now, and again when the colour scheme changes. */
const keepPainted = (paint) => { paint(); redraws.push(paint); };
const label = (x, y, text, anchor = "middle", kind = "") => make("text", { x, y, "text-anchor": anchor, class: kind }, text);
const word = (number) => data.words[number];
const isBad = (row) => data.statuses[row[STATUS]][1];
const kindOf = (status) => data.statuses[status][1] ? "bad" : data.statuses[status][0];
const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
const timeText = (s) => s >= 60 ? `${(s / 60).toFixed(1)} min` : s >= 1 ? `${s.toFixed(2)} s` : `${(s * 1000).toFixed(s < 0.0995 ? 1 : 0)} ms`;
const numberText = (value) => !value ? "0" : Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential(1).replace("e+", "e") : String(Number(value.toPrecision(3)));

/** Right elements are blue, darker as they use more of their allowance; wrong ones run from orange to red (on a dark page from red to yellow); purple where no multiple can be told. Lightness changes evenly: the colours are OKLCH. */
function colorOf(level) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const mix = (from, to, t) => `oklch(${from.map((each, place) => each + (to[place] - each) * t).join(" ")})`;
  const { limit, noMultiple } = data.scale;
  if (!level) return "transparent";
  if (level === noMultiple) return dark ? "oklch(.70 .23 325)" : "oklch(.45 .22 325)";
  if (level > limit) {
    const t = Math.min(1, (level - limit - 1) / 28);
    return dark ? mix([.66, .21, 30], [.90, .17, 95], t) : mix([.72, .17, 55], [.44, .17, 25], t);
  }
  const t = Math.max(0, (level - limit + 16) / 16);
  return dark ? mix([.26, .02, 250], [.50, .09, 250], t) : mix([.965, .01, 250], [.76, .08, 250], t);
}

function mapOf(picture) {
  const grid = picture.grid, height = grid.length, width = grid[0].length;
  const most = 330, unit = most / Math.max(picture.rows, picture.columns);
  const [high, wide] = [height, width].map((count, axis) => {  // as the tensor is, but for very long ones
    const limit = Math.max(1, Math.min(24, Math.floor(most / count))), least = Math.max(4, Math.floor(80 / count));
    return Math.min(limit, Math.max(least, Math.round(unit * picture.cell[axis])));
  });
  const scale = Math.ceil(devicePixelRatio || 1);
  const canvas = make("canvas", { width: width * wide * scale, height: height * high * scale, role: "img", "aria-label": `map of the error of ${picture.output}` });
  canvas.style.width = `${width * wide}px`;
  canvas.style.height = `${height * high}px`;
  const draw = () => {
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width * wide, height * high);
    grid.forEach((row, y) => row.forEach((level, x) => {
      pen.fillStyle = colorOf(level);
      pen.fillRect(x * wide, y * high, wide, high);
    }));
    pen.fillStyle = getComputedStyle(document.body).color;
    pen.globalAlpha = 0.55;
    const [tileRows, tileColumns] = picture.tile.map((tile, axis) => tile / picture.cell[axis]);
    for (let x = tileColumns; tileColumns >= 1 && x < width; x += tileColumns) pen.fillRect(x * wide - 0.5, 0, 1, height * high);
    for (let y = tileRows; tileRows >= 1 && y < height; y += tileRows) pen.fillRect(0, y * high - 0.5, width * wide, 1);
    pen.globalAlpha = 1;
  };
  keepPainted(draw);
  const span = (place, axis, size) => {
    const first = place * picture.cell[axis], last = Math.min(size, first + picture.cell[axis]) - 1;
    return first === last ? `${first}` : `${first}–${last}`;
  };
  const said = make("p", {}, mapWords(picture));
  canvas.addEventListener("mousemove", (event) => {
    const x = Math.floor(event.offsetX / wide), y = Math.floor(event.offsetY / high), level = grid[y]?.[x];
    said.textContent = level ? `row ${span(y, 0, picture.rows)}, column ${span(x, 1, picture.columns)}: ${shareText(level)}` : mapWords(picture);
  });
  canvas.addEventListener("mouseleave", () => { said.textContent = mapWords(picture); });
  const { limit, noMultiple } = data.scale, levels = new Set(picture.histogram.map(([level]) => level));
  const ramp = (from, to) => {
    const bar = make("i");
    const colors = () => Array.from({ length: 9 }, (_, n) => colorOf(Math.round(from + (to - from) * n / 8)));
    keepPainted(() => { bar.style.background = `linear-gradient(90deg, ${colors().join(",")})`; });
    if (from === to) bar.className = "one";
    return bar;
  };
  const legend = make("div", { class: "ramp" },
    make("span", {}, ramp(limit - 16, limit), "within the rule"),
    Math.max(...[...levels].filter((level) => level < noMultiple)) > limit ? make("span", {}, ramp(limit + 1, limit + 29), "wrong: 1 × to 16,000 × allowed") : "",
    levels.has(noMultiple) ? make("span", {}, ramp(noMultiple, noMultiple), "wrong, no multiple (NaN, ∞, exact)") : "");
  return make("div", {}, make("h4", {}, "error / allowance, by place"), canvas, legend, said);
}

function shareText(level) {
  if (level === data.scale.noMultiple) return "wrong; the error is no multiple of the allowance";
  if (level === 1) return "no error";
  return `up to ${numberText(2 ** ((level - data.scale.limit) / data.scale.perDoubling))} × allowed`;
}

function mapWords(picture) {
  const [high, wide] = picture.cell, [tileRows, tileColumns] = picture.tile;
  const size = picture.folded ? `rows of ${picture.columns} elements, one after the other` : `${picture.rows} rows, ${picture.columns} columns`;
  const cell = high * wide > 1 ? `; a cell is the worst of ${high} × ${wide}` : "";
  const tiles = [tileRows && `${tileRows} rows`, tileColumns && `${tileColumns} columns`].filter(Boolean).join(" and ");
  return size + cell + (tiles ? `; wrong places begin and end at multiples of ${tiles} (grid)` : "");
}

function histogramOf(picture) {
  const { limit, noMultiple, perDoubling } = data.scale, left = 12, right = 358, floor = 208, top = 16;
  const counts = new Map(picture.histogram), finite = [...counts.keys()].filter((level) => level > 1 && level < noMultiple);
  const first = Math.min(limit - 8, ...finite), last = Math.max(limit + 7, ...finite);
  const [none, lost] = [counts.has(1), counts.has(noMultiple)];
  const [from, to] = [left + (none ? 34 : 0), right - (lost ? 34 : 0)];
  const step = (to - from) / (last - first + 1), at = (level) => from + (level - first) * step;
  const most = Math.log2(1 + Math.max(...counts.values()));
  const svg = make("svg", { viewBox: "0 0 366 240", role: "img", "aria-label": "histogram of error / allowance" });
  const bar = (x, width, level, name) => {
    const count = counts.get(level), high = Math.max(2, (floor - top) * Math.log2(1 + count) / most);
    const rect = make("rect", { x, width: Math.max(1, width), y: floor - high, height: high }, make("title", {}, `${name}: ${counted(count, "element")}`));
    keepPainted(() => rect.setAttribute("fill", colorOf(Math.max(level, limit - 12))));
    svg.append(rect);
  };
  for (const level of finite) bar(at(level) + 0.5, step - 1, level, shareText(level));
  if (none) bar(left, 20, 1, "no error");
  if (lost) bar(right - 20, 20, noMultiple, "no multiple of the allowance");
  svg.append(...[none && label(left + 10, floor + 14, "0"), lost && label(right - 10, floor + 14, "none")].filter(Boolean), make("line", { class: "axis", x1: left, x2: right, y1: floor, y2: floor }));
  const decade = perDoubling * Math.log2(10), every = Math.ceil((last - first) / decade / 6);
  for (let power = Math.ceil((first - limit) / decade); limit + power * decade <= last; power++) {
    if (power % every === 0) svg.append(label(at(limit + 1 + power * decade), floor + 14, Math.abs(power) > 3 ? `1e${power}` : String(Number((10 ** power).toPrecision(1)))));
  }
  const bound = at(limit + 1);
  svg.append(make("line", { class: "bound", x1: bound, x2: bound, y1: 4, y2: floor }), label(bound - 5, 12, "within the rule", "end", "strong"),
    label(bound + 5, 12, "wrong", "start", "strong"), label((left + right) / 2, floor + 29, "error / allowance"));
  const wrong = [...counts].reduce((sum, [level, count]) => sum + (level > limit ? count : 0), 0);
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
  const together = picture.isOff ? "" : "; all errors together are too large";
  return make("div", {}, make("h4", {}, "elements, by error / allowance"), svg, make("p", {}, `${wrong.toLocaleString("en")} of ${counted(total, "element")} beyond the rule${together}. Heights are logarithms of counts.`));
}

function scatterOf(picture) {
  const number = (text) => ({ nan: NaN, inf: Infinity, "-inf": -Infinity })[text] ?? Number(text);
  const pairs = (text) => [...text.matchAll(/(\S+) (\S+)/g)].map((pair) => [number(pair[1]), number(pair[2])]);
  const [wrong, right] = [pairs(picture.wrong), pairs(picture.right)];
  const all = [...wrong, ...right].flat().filter(Number.isFinite);
  const size = all.map(Math.abs).sort((a, b) => a - b), middle = size[size.length >> 1] || size.find((each) => each > 0) || 1;
  const greatest = size[size.length - 1] || 0, bent = greatest > 50 * middle || greatest > 1e150;
  const form = bent ? (value) => Math.asinh(value / middle) : (value) => value;
  let [low, high] = [Math.min(...all.map(form)), Math.max(...all.map(form))];
  if (!all.length) [low, high] = [-1, 1];
  if (low === high) [low, high] = [low - Math.abs(low) / 2 - 1, high + Math.abs(high) / 2 + 1];
  const from = 46, to = 226, at = (value) => from + (to - from) * (Math.max(low, Math.min(high, form(value))) - low) / (high - low);
  const nan = wrong.some(([actual]) => Number.isNaN(actual));
  const svg = make("svg", { viewBox: `0 ${nan ? 30 : 50} 340 ${nan ? 232 : 212}`, role: "img", "aria-label": "actual against expected" });
  const y = (value) => 240 - (at(value) - from);
  svg.append(make("rect", { x: from - 6, y: 54, width: to - from + 12, height: 192, fill: "none", class: "axis" }));
  svg.append(make("line", { class: "bound", x1: from, y1: 240, x2: to, y2: 60 }));
  const dot = ([actual, expected], level) => {
    const lost = Number.isNaN(actual), place = [Number.isNaN(expected) ? from - 6 : at(expected), lost ? 40 : y(actual)];
    const circle = make("circle", { cx: place[0], cy: place[1], r: 2.6, "fill-opacity": 0.75 }, make("title", {}, `got ${actual}, should be ${expected}`));
    keepPainted(() => circle.setAttribute("fill", colorOf(level)));
    svg.append(circle);
  };
  right.forEach((pair) => dot(pair, data.scale.limit));
  wrong.forEach((pair) => dot(pair, pair.every(Number.isFinite) ? data.scale.limit + 18 : data.scale.noMultiple));
  const [least, most] = [low, high].map((value) => numberText(bent ? Math.sinh(value) * middle : value));
  svg.append(label(from, 259, least), label(to, 259, most), label((from + to) / 2, 259, "expected"), label(from - 10, 243, least, "end"),
    label(from - 10, 64, most, "end"), label(from - 10, 150, "actual", "end"), ...(nan ? [label(from - 10, 44, "NaN", "end")] : []));
  const samples = [right.length && `${right.length} right (blue)`, wrong.length && `${wrong.length} wrong`].filter(Boolean).join(", ");
  return make("div", {}, make("h4", {}, "actual against expected"), svg, make("p", {}, `A sample: ${samples}; right values lie on the line.${bent ? " The scale is bent (asinh)." : ""}`));
}

function figureOf(picture) {
  return make("figure", {}, make("figcaption", {}, `${picture.output} (${picture.shape})${picture.where && `: ${picture.where}`}`), mapOf(picture), histogramOf(picture), scatterOf(picture));
}

/** Return the pictures, the text and the reproduction command of a case. */
function caseBody(index) {
  const row = data.cases[index], repro = data.repro[index], body = document.createDocumentFragment();
  (data.pictures[index] || []).forEach((picture) => body.append(figureOf(picture)));
  const copy = make("button", { type: "button", onclick: () => navigator.clipboard?.writeText(repro).then(() => { copy.textContent = "copied"; }) }, "copy the command");
  if (word(row[TEXT])) body.append(make("div", { class: "block" }, make("pre", {}, word(row[TEXT])), repro ? copy : ""));
  return body;
}

function barOf(counts) {
  const part = (count, status) => count && make("i", { class: kindOf(status), style: `flex: ${count}`, title: `${count} ${data.statuses[status][0]}` });
  return make("div", { class: "bar" }, ...counts.map(part));
}

function showShare() {
  const counts = data.statuses.map((_, status) => data.operators.reduce((sum, each) => sum + each.counts[status], 0));
  const part = (count, status) => count && make("button", { type: "button", class: kindOf(status), onclick: () => filterBy({ status: data.statuses[status][0] }) }, `${count.toLocaleString("en")} ${data.statuses[status][0]}`);
  document.getElementById("share").append(barOf(counts), make("div", { class: "legend" }, ...counts.map(part)));
}

function groupOf(group) {
  const pictured = group.members.filter((index) => data.pictures[index]);
  const shown = pictured.find((index) => data.pictures[index][0].grid.flat().length >= 64) ?? pictured[0] ?? group.members[0];
  const more = group.members.length - 1, pattern = group.pattern ? `fails: ${group.pattern}` : "";
  const link = (index) => make("a", { href: `#${encodeURIComponent(data.cases[index][ID])}`, onclick: (event) => { event.preventDefault(); openCase(index); } }, data.cases[index][ID]);
  const told = make("p", {}, [word(data.cases[shown][REASON]), pattern].filter(Boolean).join("; "));
  const others = group.members.filter((index) => index !== shown).slice(0, 3).flatMap((index) => [" ", link(index)]);
  if (more) told.append(`; and ${more} more like it: `, ...others, more > 3 ? " …" : "");
  return make("div", { class: "group" }, make("h3", {}, data.cases[shown][ID]), told, caseBody(shown));
}

function showOperators() {
  const worst = new Map();
  for (const row of data.cases) if (row[USED] !== null) worst.set(row[OPERATOR], Math.max(worst.get(row[OPERATOR]) ?? 0, row[USED]));
  const list = document.getElementById("operators"), isWell = (each) => !each.counts.some((count, status) => count && data.statuses[status][1]);
  const well = data.operators.filter(isWell), rest = make("details", { class: "rest" }, make("summary", {}, `${counted(well.length, "operator")} without a failure`));
  data.operators.forEach((each) => {
    const total = each.counts.reduce((sum, count) => sum + count, 0);
    const bad = each.counts.reduce((sum, count, status) => sum + (data.statuses[status][1] ? count : 0), 0);
    const used = worst.get(each.name);
    const box = make("details", { class: "operator", "data-operator": word(each.name) }, make("summary", {},
      make("span", { class: "name" }, word(each.name)), barOf(each.counts),
      make("span", { class: "number" }, counted(total, "case")), make("span", { class: bad ? "number wrong" : "number soft" }, bad ? `${bad.toLocaleString("en")} failing` : "all passed"),
      make("span", { class: "soft" }, [!used ? "" : used > 1 ? `worst ${numberText(used)} × allowed` : `${Math.round(used * 100)}% of the allowance`, each.reasons].filter(Boolean).join("; ")),
      make("span", { class: "number soft" }, timeText(each.spent))));
    box.addEventListener("toggle", () => {
      if (!box.open || box.children.length > 1) return;
      if (each.groups.length) box.append(...each.groups.map(groupOf));
      box.append(make("div", { class: "group" }, make("a", { href: "#cases", onclick: () => filterBy({ operator: word(each.name) }) }, `${counted(total, "case")} of ${word(each.name)}`)));
    });
    (well.length > 8 && !bad ? rest : list).append(box);
    if (bad && list.children.length === 1) box.open = true;
  });
  if (well.length > 8) list.append(rest);
}

// The table: rows are made when they come into sight.
let chosen = [], made = 0, order = null;

function makeRows() {
  document.querySelector("#cases tbody").append(...chosen.slice(made, made + ROWS_AT_ONCE).map(rowOf));
  made = Math.min(chosen.length, made + ROWS_AT_ONCE);
}

function rowOf(index) {
  const row = data.cases[index], number = (text) => make("td", { class: "number" }, text);
  return make("tr", { class: "case", "data-case": index, tabindex: 0 },
    make("td", { class: `status ${kindOf(row[STATUS])}` }, data.statuses[row[STATUS]][0]), make("td", {}, row[ID]), make("td", {}, word(row[REASON])),
    make("td", {}, word(row[DTYPE])), number(row[USED] === null ? "" : numberText(row[USED])), number(row[SPENT] ? timeText(row[SPENT]) : ""));
}

function applyFilters() {
  const form = document.getElementById("filters"), value = (name) => form.elements[name].value;
  const words = value("search").toLowerCase().split(/\s+/).filter(Boolean), numbers = ["operator", "reason", "dtype"].map((name) => value(name) === "" ? null : data.words.indexOf(value(name)));
  const status = value("status");
  chosen = [];
  data.cases.forEach((row, index) => {
    if (status && (status === "failing" ? !isBad(row) : data.statuses[row[STATUS]][0] !== status)) return;
    if (numbers.some((number, place) => number !== null && row[[OPERATOR, REASON, DTYPE][place]] !== number)) return;
    const text = words.length ? `${row[ID]} ${word(row[OPERATOR])} ${word(row[REASON])} ${word(row[DTYPE])} ${data.statuses[row[STATUS]][0]}`.toLowerCase() : "";
    if (words.every((each) => text.includes(each))) chosen.push(index);
  });
  const rank = order === null ? (index) => isBad(data.cases[index]) ? 0 : 1 : (index) => -(data.cases[index][order] ?? -1);
  chosen.sort((one, other) => rank(one) - rank(other) || one - other);
  made = 0;
  document.querySelector("#cases tbody").replaceChildren();
  form.elements.count.value = `${chosen.length.toLocaleString("en")} of ${counted(data.cases.length, "case")}`;
  makeRows();
}

function filterBy(choice) {
  const form = document.getElementById("filters");
  for (const name of ["search", "status", "operator", "reason", "dtype"]) form.elements[name].value = choice[name] ?? "";
  applyFilters();
  form.scrollIntoView();
}

function toggleRow(row) {
  if (row.classList.toggle("open")) {
    const index = Number(row.dataset.case);
    row.after(make("tr", { class: "detail" }, make("td", { colspan: 6 }, caseBody(index))));
    history.replaceState(null, "", `#${encodeURIComponent(data.cases[index][ID])}`);
  } else row.nextSibling.remove();
}

function openCase(index) {
  filterBy({ search: "" });
  while (made < chosen.length && !document.querySelector(`tr[data-case="${index}"]`)) makeRows();
  const row = document.querySelector(`tr[data-case="${index}"]`);
  if (row && !row.classList.contains("open")) toggleRow(row);
  row?.scrollIntoView();
}

function fillFilters() {
  const form = document.getElementById("filters");
  const fill = (name, texts) => form.elements[name].append(make("option", { value: "" }, "all"), ...texts.map((text) => make("option", { value: text }, text)));
  const used = (column) => [...new Set(data.cases.map((row) => row[column]))].map(word).filter(Boolean).sort();
  const present = new Set(data.cases.map((row) => row[STATUS]));
  fill("status", [...data.cases.some(isBad) ? ["failing"] : [], ...data.statuses.map(([name]) => name).filter((_, status) => present.has(status))]);
  [["operator", OPERATOR], ["reason", REASON], ["dtype", DTYPE]].forEach(([name, column]) => fill(name, used(column)));
  form.addEventListener("input", applyFilters);
  form.addEventListener("submit", (event) => event.preventDefault());
}

async function start() {
  const packed = Uint8Array.from(atob(document.getElementById("data").textContent), (each) => each.charCodeAt(0));
  data = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
  showShare();
  showOperators();
  fillFilters();
  applyFilters();
  const body = document.querySelector("#cases tbody");
  body.addEventListener("click", (event) => { const row = event.target.closest("tr.case"); if (row) toggleRow(row); });
  body.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target.matches("tr.case")) toggleRow(event.target); });
  document.querySelectorAll("th button").forEach((button) => button.addEventListener("click", () => { order = Number(button.dataset.column); applyFilters(); }));
  new IntersectionObserver((entries) => { if (entries.some((each) => each.isIntersecting) && made < chosen.length) makeRows(); }, { rootMargin: "800px" }).observe(document.getElementById("more"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraws.forEach((draw) => draw()));
  const wanted = location.hash ? data.cases.findIndex((row) => row[ID] === decodeURIComponent(location.hash.slice(1))) : -1;
  if (wanted >= 0) openCase(wanted);
  document.body.dataset.ready = "yes";
}

start();
