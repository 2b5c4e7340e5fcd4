"use strict";
// One page for one or more experiments: figures and a table of trials that know of one another, live where it is served.

const PAGE_ROWS = 50;
const config = { responsive: true, displaylogo: false };
if (!window.matchMedia("(hover: hover)").matches) config.displayModeBar = false;
const dark = window.matchMedia("(prefers-color-scheme: dark)");

async function unpacked(id) {
  const text = document.getElementById(id).textContent.trim();
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function shownNumber(value) {
  if (Number.isInteger(value)) return Math.abs(value) < 1e7 ? String(value) : value.toExponential(3);
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e5) return size < 1e4 ? String(Number(value.toPrecision(4))) : value.toFixed(0);
  return value.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
}

function shown(value, kind) {
  if (value === null || value === undefined) return "-";
  if (kind === "trial") return String(value).padStart(5, "0");
  return typeof value === "number" ? shownNumber(value) : String(value);
}

const clockTime = (seconds) => new Date(seconds * 1000).toTimeString().slice(0, 8);

// The headings of columns: their names, and of those that are taken what they are, as in `sweep trials`.
function labelsOf(columns) {
  const named = (...kinds) => new Set(columns.filter(([, kind]) => kinds.includes(kind)).map(([name]) => name));
  const [fixed, metrics] = [named("", "trial"), named("metric")];
  const parameter = (name) => (fixed.has(name) || metrics.has(name) ? `config/${name}` : name);
  const taken = new Set([...fixed, ...[...named("parameter")].map(parameter)]);
  return columns.map(([name, kind]) => {
    if (kind === "parameter") return parameter(name);
    return kind === "metric" && taken.has(name) ? `metric/${name}` : name;
  });
}

// --- the filter ---

const compare = {
  "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
  "=": (a, b) => a === b, "!=": (a, b) => a !== b,
};
const NAME = '"[^"]*"|[^\\s<>=!"]+';
const CONDITION = new RegExp(`(${NAME})\\s*(<=|>=|!=|==?|<|>)\\s*`, "g");
const unquoted = (text) => text.replace(/^"(.*)"$/, "$1");

// Returns what says of a row whether it is meant: conditions (`lr<0.01 act=relu`) and texts, all of which must hold.
// Throws an Error that says what is wrong with it.
function testOf(text, columns, rows) {
  const labels = labelsOf(columns);
  const columnOf = (typed) => {
    const index = labels.indexOf(typed);
    if (index >= 0) return index;
    const found = columns.findIndex(([name, kind]) => kind === "parameter" && `config/${name}` === typed);
    if (found < 0) throw new Error(`there is no column "${typed}"; there are ${labels.slice(0, 12).join(", ")}${labels.length > 12 ? " ..." : ""}`);
    return found;
  };
  const matches = [...text.matchAll(CONDITION)];
  const tests = [];
  const words = (part) => {
    for (const [word] of part.matchAll(/"[^"]*"|\S+/g)) {
      if (/^and$/i.test(word)) continue;
      if (/^(or|not)$/i.test(word)) throw new Error(`conditions are combined with "and"; "${word}" is not known`);
      if (/[<>=]/.test(word) && !word.startsWith('"')) throw new Error(`"${word}" has no column before it, as in lr<0.01`);
      const wanted = unquoted(word).toLowerCase();
      tests.push((row) => row.some((value) => value !== null && String(value).toLowerCase().includes(wanted)));
    }
  };
  words(text.slice(0, matches[0]?.index ?? text.length));
  matches.forEach((match, i) => {
    const index = columnOf(unquoted(match[1]));
    const sign = match[2] === "==" ? "=" : match[2];
    const rest = text.slice(match.index + match[0].length, matches[i + 1]?.index ?? text.length);
    const parts = rest.match(/"[^"]*"|\S+/g) ?? [];
    if (!parts.length || /^and$/i.test(parts[0])) throw new Error(`${match[0].trim()} what?`);
    let count = 1;  // the words of the value: as many as some cell has
    if (sign === "=" || sign === "!=") {
      const known = new Set(rows.map((row) => String(row[index]).toLowerCase()));
      for (let k = parts.length; k > 1 && count === 1; k -= 1) if (known.has(parts.slice(0, k).join(" ").toLowerCase())) count = k;
    }
    const value = unquoted(parts.slice(0, count).join(" "));
    const number = value === "" ? NaN : Number(value);
    if (Number.isNaN(number) && sign !== "=" && sign !== "!=") throw new Error(`${match[1]}${sign}${value}: expected a number after ${sign}`);
    tests.push((row) => {
      const cell = row[index];
      if (!Number.isNaN(number)) return typeof cell === "number" && compare[sign](cell, number);
      return compare[sign](cell === null ? "" : String(cell).toLowerCase(), value.toLowerCase());
    });
    words(parts.slice(count).join(" "));
  });
  return (row) => tests.every((test) => test(row));
}

// --- the table ---

class TrialTable {
  constructor(experiment, place) {
    this.experiment = experiment;
    this.place = place;
    this.sort = null;  // running ones first, then the best
    this.page = 0;
    this.hidden = null;
    this.build();
  }

  build() {
    const label = `e${this.experiment.index}`;
    this.input = element("input", {
      type: "search", "aria-label": "Filter trials and figures: texts and conditions, such as lr<0.01 and act=relu",
      placeholder: "filter: a text, or lr<0.01 and act=relu", "aria-describedby": `${label}-wrong`,
      oninput: () => { this.page = 0; this.experiment.filter(); },
    });
    this.wrong = element("p", { id: `${label}-wrong`, class: "wrong", role: "alert" });
    this.unbrush = element("button", { type: "button", onclick: () => this.experiment.brush(null) }, "clear the brushed ranges");
    this.chooser = element("div", { class: "columns" });
    this.head = element("tr");
    this.body = element("tbody", { onkeydown: (event) => this.onKey(event) });
    this.caption = element("caption", { id: `${label}-caption`, "aria-live": "polite" });
    this.table = element("table", { class: "trials", "aria-labelledby": `${label}-caption` },
      this.caption, element("thead", {}, this.head), this.body);
    this.pager = element("div", { class: "tools" });
    this.place.replaceChildren(
      element("div", { class: "tools" }, this.input, this.unbrush), this.wrong,
      element("details", {}, element("summary", {}, "columns"), this.chooser),
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Trials" }, this.table),
      this.pager);
  }

  columnsChanged() {
    const { columns, rows } = this.experiment;
    if (this.hidden === null) {
      // What is the same everywhere says nothing; the rest as far as a page is wide.
      this.hidden = new Set();
      let kept = 0;
      columns.forEach(([name, kind], i) => {
        const isTelling = kind === "trial" || (kind === "" && ["name", "state", "step", "reason"].includes(name)) ||
          (rows.length > 1 ? rows.some((row) => row[i] !== rows[0][i]) : kind !== "");
        if (!isTelling || (kind && kept >= 14)) this.hidden.add(name + kind);
        else kept += 1;
      });
    }
    const labels = labelsOf(columns);
    this.chooser.replaceChildren(...columns.map(([name, kind], i) => {
      const box = element("input", { type: "checkbox", onchange: () => {
        if (box.checked) this.hidden.delete(name + kind); else this.hidden.add(name + kind);
        this.render();
      } });
      box.checked = !this.hidden.has(name + kind);
      return element("label", {}, box, ` ${kind === "parameter" ? `config/${name}` : labels[i]}`);
    }));
    this.render();
  }

  ordered() {
    const { columns, rows, best } = this.experiment;
    const chosen = rows.filter((row) => this.experiment.isShown(row[0]));
    const at = (wanted) => columns.findIndex(([name, kind]) => name + kind === wanted);
    const index = at(this.sort ? this.sort.key : `${best.metric}metric`);
    const sign = (this.sort ? this.sort.isUp : best.mode !== "max") ? 1 : -1;
    const rank = (value) => (typeof value === "number" ? 0 : value === null ? 2 : 1);
    const state = at("state");
    const isFirst = (row) => (this.sort ? 0 : (row[state] === "running" ? -2 : best.winners.includes(row[0]) ? -1 : 0));
    return chosen.sort((one, other) => {
      if (isFirst(one) !== isFirst(other)) return isFirst(one) - isFirst(other);
      const [a, b] = [one[index] ?? null, other[index] ?? null];
      if (rank(a) !== rank(b)) return rank(a) - rank(b);
      return a === b ? one[0] - other[0] : (a < b ? -sign : sign);
    });
  }

  render() {
    const { columns, selected, rows, best, brushed } = this.experiment;
    const labels = labelsOf(columns);
    const visible = columns.map((column, i) => [...column, i]).filter(([name, kind]) => !this.hidden.has(name + kind));
    this.head.replaceChildren(...visible.map(([name, kind, i]) => {
      const isSorted = this.sort?.key === name + kind;
      return element("th", { scope: "col", "aria-sort": isSorted ? (this.sort.isUp ? "ascending" : "descending") : "none" },
        element("button", { type: "button", onclick: () => {
          this.sort = isSorted && !this.sort.isUp ? null : { key: name + kind, isUp: !isSorted };
          this.render();
        } }, `${labels[i]}${isSorted ? (this.sort.isUp ? " ▲" : " ▼") : ""}`));
    }));
    const found = this.ordered();
    const pages = Math.max(1, Math.ceil(found.length / PAGE_ROWS));
    this.page = Math.min(this.page, pages - 1);
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.trial : null;
    const part = found.slice(this.page * PAGE_ROWS, (this.page + 1) * PAGE_ROWS);
    this.body.replaceChildren(...part.map((row, i) => element("tr", {
      tabindex: i === 0 ? "0" : "-1", "data-trial": row[0], "aria-selected": selected.has(row[0]),
      onclick: (event) => this.experiment.select([row[0]], event.ctrlKey || event.metaKey || event.shiftKey),
    }, ...visible.map(([, kind, index]) => {
      const value = row[index];
      const text = shown(value, kind);
      const isShort = kind !== "trial" && typeof value === "number" && String(value) !== text;
      const title = isShort ? value : text.length > 40 ? text : null;
      const isBest = kind === "trial" && best.winners.includes(value);
      return element("td", { class: isBest ? "number best" : typeof value === "number" ? "number" : null, title }, text);
    }))));
    if (focused !== null) this.body.querySelector(`tr[data-trial="${Number(focused)}"]`)?.focus();
    const chosen = selected.size ? `, ${selected.size} selected` : "";
    const order = this.sort || !best.metric ? "" : `; ${rows.some((row) => row.includes("running")) ? "running ones first, then " : ""}the best first`;
    this.caption.textContent = `${found.length === rows.length ? rows.length : `${found.length} of ${rows.length}`} trials${chosen}${order}`;
    this.unbrush.hidden = !brushed;
    this.pager.hidden = pages === 1;
    const step = (label, to) => {
      const button = element("button", { type: "button", onclick: () => { this.page = to; this.render(); } }, label);
      button.disabled = to < 0 || to >= pages;
      return button;
    };
    this.pager.replaceChildren(step("previous", this.page - 1), `page ${this.page + 1} of ${pages}`, step("next", this.page + 1));
  }

  onKey(event) {
    const row = event.target.closest("tr");
    if (!row) return;
    const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
    if (next) { next.tabIndex = 0; row.tabIndex = -1; next.focus(); event.preventDefault(); }
    if (event.key === "Enter" || event.key === " ") {
      this.experiment.select([Number(row.dataset.trial)], event.ctrlKey || event.shiftKey);
      event.preventDefault();
    }
  }

  reveal(number) {
    const at = this.ordered().findIndex((row) => row[0] === number);
    if (at >= 0) this.page = Math.floor(at / PAGE_ROWS);
  }
}

// --- the figures ---

const WIDE = new Set(["parallel", "timeline", "slice", "population", "rungs"]);
const POINTS = new Set(["scatter", "scattergl", "scatter3d"]);

const PER_TRIAL = new Set(["x", "y", "z", "text", "hovertext", "customdata", "base", "width", "values", "color", "size", "symbol",
  "opacity", "array", "arrayminus"]);
const numberOf = (row) => (Array.isArray(row) ? row[0] : row);

// Returns a trace without the marks of other trials than those that are kept.
function thinned(trace, isKept) {
  const kept = trace.customdata.map((row) => isKept(numberOf(row)));
  const part = (value) => Object.fromEntries(Object.entries(value).map(([key, one]) => {
    if (Array.isArray(one)) {
      if (key === "dimensions") return [key, one.map(part)];
      return [key, PER_TRIAL.has(key) && one.length === kept.length ? one.filter((_, j) => kept[j]) : one];
    }
    return [key, one && typeof one === "object" ? part(one) : one];
  }));
  return part(trace);
}

function decoded(text) {
  return new DOMParser().parseFromString((text ?? "").replaceAll("<br>", " "), "text/html").body.textContent;
}

class Figure {
  constructor(experiment, name) {
    this.experiment = experiment;
    this.name = name;
    this.title = element("h3", {});
    this.note = element("p", {});
    this.tools = element("div", { class: "tools" });
    this.plot = element("div", { class: "plot", role: "img" });
    this.age = element("p", { class: "age" });
    this.frame = element("figure", { "data-figure": name, class: WIDE.has(name) ? "wide" : null },
      element("figcaption", {}, this.title, this.note, this.tools), this.age, element("div", { class: "scroll" }, this.plot));
    this.isNear = false;
    this.key = name;
    this.choice = [];
    this.brushes = new Map();  // label of an axis of parallel coordinates -> ranges
    this.observer = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) { this.isNear = true; this.draw(); }
    }, { rootMargin: "600px" });
    this.observer.observe(this.frame);
  }

  // Shows what it can be drawn with instead: another metric, another x axis.
  offer(choices) {
    if (!choices || JSON.stringify(choices) === this.offered) return;
    this.offered = JSON.stringify(choices);
    const { metrics, axes } = choices;
    const select = (label, options, i) => {
      const made = element("select", { "aria-label": `${label} of this figure`, onchange: () => { this.choice[i] = made.value; this.choose(); } },
        ...options.map(([value, text]) => element("option", { value }, text)));
      this.choice[i] = made.value = options.some(([value]) => value === this.choice[i]) ? this.choice[i] : options[0][0];
      return options.length > 1 ? [element("label", {}, `${label} `, made)] : [];
    };
    this.first = [metrics[0], axes[0][0]].join("\n");
    this.tools.replaceChildren(...select("metric", metrics.map((name) => [name, name]), 0), ...select("x axis", axes, 1));
  }

  choose() {
    const key = this.choice.join("\n");
    this.key = key === this.first ? this.name : `${this.name}\n${key}`;
    const spec = this.key === this.name ? this.base : this.experiment.variants.get(this.key);
    if (spec) this.set(spec);
    else this.age.textContent = window.sweepPage.want ? "is being drawn" : "not in this file: sweep watch has it";
    window.sweepPage.want?.();
  }

  set(spec) {
    this.spec = spec;
    this.age.textContent = "";
    const { title, meta = {}, height = 440, margin } = spec.layout;
    this.title.textContent = decoded(title?.text);
    this.note.textContent = decoded(meta.note);
    this.plot.setAttribute("aria-label", [meta.summary ?? meta.figure ?? "figure", meta.note].filter(Boolean).map(decoded).join(" "));
    const lines = (title?.subtitle?.text ?? "").split("<br>").filter(Boolean).length;
    this.saved = Math.min(28 + 15 * lines, margin?.t ?? 0);  // the title stands above the plot, where it has the room it needs
    this.height = (spec.layout.scene ? Math.min(height, (this.frame.clientWidth || height) + 60) : height) - this.saved;
    this.plot.style.minHeight = `${this.height}px`;
    this.isDrawn = false;
    if (this.isNear) this.draw();
  }

  layout() {
    const style = getComputedStyle(document.documentElement);
    const [ink, line, faint, panel] = ["--ink", "--line", "--faint", "--panel"].map((name) => style.getPropertyValue(name).trim());
    const layout = structuredClone(this.spec.layout);
    delete layout.title;
    delete layout.width;
    layout.height = this.height;
    layout.margin = { ...layout.margin, t: (layout.margin?.t ?? 0) - this.saved };
    layout.uirevision = this.spec.layout.meta?.figure ?? true;  // what was zoomed stays so
    layout.paper_bgcolor = "rgba(0,0,0,0)";
    layout.plot_bgcolor = "rgba(0,0,0,0)";
    layout.font = { ...layout.font, color: ink };
    layout.hoverlabel = { ...layout.hoverlabel, bgcolor: panel, bordercolor: line, font: { color: ink } };
    layout.autosize = true;
    const eye = layout.scene?.camera?.eye;
    const ratio = layout.height / (this.plot.clientWidth || Infinity);
    if (eye && ratio > 1) layout.scene.camera.eye = { x: eye.x * ratio, y: eye.y * ratio, z: eye.z * ratio };  // else cut
    for (const key of ["xaxis", "yaxis", ...Object.keys(layout).filter((one) => /^[xy]axis\d+$/.test(one))]) {
      layout[key] = { ...layout[key], gridcolor: line, zerolinecolor: line, linecolor: faint, tickcolor: faint };
    }
    return layout;
  }

  // Returns the figure's own traces, those of the selected trials marked, and lines drawn once more above the others.
  traces() {
    const { selected, kept, brushed } = this.experiment;
    const paper = getComputedStyle(document.documentElement).getPropertyValue("--paper").trim();
    const own = this.spec.data.map((trace) => {
      if (!trace.customdata || trace.line?.shape === "hv") return { ...trace };  // the best so far is that of all
      if (trace.type !== "parcoords") return kept || brushed ? thinned(trace, (number) => this.experiment.isShown(number)) : { ...trace };
      const lines = kept ? thinned(trace, (number) => kept.has(number)) : { ...trace };
      lines.tickfont = { ...lines.tickfont, shadow: Array(4).fill(`0 0 3px ${paper}`).join() };  // else lost among the lines
      lines.dimensions = lines.dimensions.map((one) => ({ ...one, constraintrange: this.brushes.get(one.label) }));
      return lines;
    });
    if (!selected.size) return own;
    const above = [];
    const style = getComputedStyle(document.documentElement);
    const [faint, ink] = ["--line", "--ink"].map((name) => style.getPropertyValue(name).trim());
    for (const trace of own) {
      const rows = trace.customdata;
      if (!rows || trace.line?.shape === "hv") continue;
      const isChosen = (j) => selected.has(numberOf(rows[j]));
      const type = trace.type ?? "scatter";
      if (POINTS.has(type)) {
        const axes = type === "scatter3d" ? ["x", "y", "z"] : ["x", "y"];
        const points = { x: [], y: [], z: [] };
        const size = Math.min(...axes.map((axis) => trace[axis]?.length ?? 0));
        let isInside = false;
        for (let j = 0; j < size; j += 1) {
          if (isChosen(j)) axes.forEach((axis) => points[axis].push(trace[axis][j]));
          else if (isInside) axes.forEach((axis) => points[axis].push(null));
          isInside = isChosen(j);
        }
        if (!points.x.length) continue;
        const hasLines = (trace.mode ?? "").includes("lines");
        above.push({
          type, ...Object.fromEntries(axes.map((axis) => [axis, points[axis]])), xaxis: trace.xaxis, yaxis: trace.yaxis,
          scene: trace.scene, mode: hasLines ? "lines+markers" : "markers", connectgaps: false, showlegend: false,
          hoverinfo: "skip", line: { color: ink, width: 3, ...(trace.line?.shape ? { shape: trace.line.shape } : {}) },
          marker: { color: ink, size: hasLines ? 5 : 13, symbol: hasLines ? "circle" : "circle-open", line: { width: 2, color: ink } },
        });
      } else if (type === "bar") {
        trace.selectedpoints = [...rows.keys()].filter(isChosen);
        trace.unselected = { marker: { opacity: 0.2 } };
      } else if (type === "parcoords" && trace.dimensions?.length) {
        trace.line = { color: [...rows.keys()].map((j) => Number(isChosen(j))), cmin: 0, cmax: 1,
          colorscale: [[0, faint], [1, ink]], showscale: false };
      }
    }
    return [...own, ...above];
  }

  draw() {
    if (!this.spec || this.isDrawn || !window.Plotly) return;
    this.isDrawn = true;
    Plotly.react(this.plot, this.traces(), this.layout(), config).then(() => {
      this.full = this.plot._fullData;
      if (!this.isListening) {
        this.isListening = true;
        this.plot.on("plotly_click", (event) => this.onPoints(event.points.slice(0, 1), event.event));
        this.plot.on("plotly_selected", (event) => { if (event) this.onPoints(event.points, event.event); });
        this.plot.on("plotly_restyle", () => { if (this.plot.data[0]?.type === "parcoords") this.onBrush(); });
      }
    });
  }

  onBrush() {
    const { dimensions, customdata } = this.plot.data[0];
    this.brushes = new Map(dimensions.filter((one) => one.constraintrange?.length).map((one) => [one.label, one.constraintrange]));
    const isInside = (j) => dimensions.every(({ label, values }) => {
      const ranges = this.brushes.get(label);
      return !ranges || (Array.isArray(ranges[0]) ? ranges : [ranges]).some(([a, b]) => values[j] >= a && values[j] <= b);
    });
    this.experiment.brush(this.brushes.size ? new Set(customdata.map(numberOf).filter((_, j) => isInside(j))) : null, this);
  }

  onPoints(points, event) {
    const numbers = points.map((point) => numberOf(point.customdata)).filter((number) => typeof number === "number");
    if (numbers.length) this.experiment.select(numbers, event?.ctrlKey || event?.metaKey || event?.shiftKey);
  }

  highlight() {
    this.isDrawn = false;
    if (this.isNear) this.draw();
  }
}

// --- an experiment ---

class Experiment {
  constructor(data, index) {
    this.index = index;
    this.root = document.getElementById(`e${index}`);
    this.selected = new Set();
    this.kept = null;  // numbers of the trials that the filter means; null: all
    this.brushed = null;  // and of those that the ranges of parallel coordinates hold
    this.best = { metric: "", mode: "", winners: [] };
    this.figures = new Map();
    this.variants = new Map();
    this.columns = [];
    this.rows = [];
    const place = this.root.querySelector("[data-trials]");  // a comparison has none
    this.table = place ? new TrialTable(this, place) : null;
    this.apply(data);
    this.root.addEventListener("click", (event) => {
      const button = event.target.closest("button.trial");
      if (button) {
        this.select([Number(button.dataset.trial)]);
        this.root.querySelector("[data-trials]").scrollIntoView({ block: "start" });
      }
    });
  }

  apply(data) {
    for (const [name, text] of Object.entries(data.parts ?? {})) {
      const place = this.root.querySelector(`[data-part="${name}"]`);
      place.innerHTML = text;  // made of escaped text by the writer of this page
      place.closest("section")?.toggleAttribute("hidden", text === "");
      addCopyButtons(place);
    }
    if (data.columns) {
      this.columns = data.columns;
      if (this.table && !this.rows.length) this.table.hidden = null;
    }
    for (const [at, row] of data.rows ?? []) this.rows[at] = row;
    if (data.best) this.best = data.best;
    if (data.columns) this.table?.columnsChanged();
    if (this.table && (data.columns || data.best || data.rows?.length)) this.filter();
    const place = this.root.querySelector("[data-figures]");
    for (const [key, text] of Object.entries(data.figures ?? {})) {
      const spec = JSON.parse(text);
      const [name, ...other] = key.split("\n");
      if (other.length) {  // with another metric or axis
        if (spec) this.variants.set(key, spec);
        const figure = this.figures.get(name);
        if (spec && figure?.key === key) figure.set(spec);
        continue;
      }
      if (spec === null) { this.figures.get(name)?.frame.remove(); this.figures.delete(name); continue; }
      if (!this.figures.has(name)) {
        const made = new Figure(this, name);
        this.figures.set(name, made);
        const order = data.order ?? [...this.figures.keys()];
        const next = order.slice(order.indexOf(name) + 1).map((one) => this.figures.get(one)).find(Boolean);
        place.insertBefore(made.frame, next ? next.frame : null);
      }
      const figure = this.figures.get(name);
      figure.base = spec;
      if (figure.key === name) figure.set(spec);
    }
    for (const [name, figure] of this.figures) figure.offer(data.choices?.[name]);
    place.closest("section").toggleAttribute("hidden", !this.figures.size);
    for (const figure of data.old ? this.figures.values() : []) {
      const [seconds, trials] = data.old[figure.key] ?? [];
      figure.age.textContent = seconds ? `as of ${clockTime(seconds)}, ${trials} trials` : "";
    }
  }

  isShown(number) {
    return (!this.kept || this.kept.has(number)) && (!this.brushed || this.brushed.has(number));
  }

  filter() {
    const { input, wrong } = this.table;
    const before = this.kept && [...this.kept].join();
    wrong.textContent = "";
    try {
      const isMeant = testOf(input.value, this.columns, this.rows);
      this.kept = input.value.trim() ? new Set(this.rows.filter(isMeant).map((row) => row[0])) : null;
    } catch (error) {
      wrong.textContent = error.message;  // what was shown stays
    }
    input.setAttribute("aria-invalid", wrong.textContent !== "");
    this.table.render();
    if (before !== (this.kept && [...this.kept].join())) this.redraw();
  }

  brush(numbers, figure = null) {
    this.brushed = numbers;
    const own = this.figures.get("parallel");
    if (!numbers) own?.brushes.clear();
    this.table.render();
    for (const one of this.figures.values()) if (one !== figure) one.highlight();
  }

  redraw() {  // once nobody types any more
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { for (const figure of this.figures.values()) figure.highlight(); }, 200);
  }

  select(numbers, isAdded = false) {
    if (!isAdded) {
      const isSame = numbers.length === this.selected.size && numbers.every((number) => this.selected.has(number));
      this.selected = new Set(isSame ? [] : numbers);
    } else {
      for (const number of numbers) if (!this.selected.delete(number)) this.selected.add(number);
    }
    if (this.selected.size && numbers.length) this.table.reveal(numbers[0]);
    this.table?.render();
    for (const figure of this.figures.values()) figure.highlight();
    showChosen(this);
  }

  drawAll() {
    for (const figure of this.figures.values()) { figure.isNear = true; figure.draw(); }
  }
}

// --- what is asked of a sweep, where the page is served with buttons ---

const VERBS = ["stop", "cancel", "pause", "resume", "retry"];
const FIELDS = {
  enqueue: { config: "parameters, such as lr=0.01 bs=32; what is left out is drawn" },
  edit: { trials: "trials in all, such as 200, or +50", time: "time in all, such as 2h, or +2h", concurrency: "trials at a time" },
};
const button = (label, onclick) => element("button", { type: "button", onclick }, label);
const said = element("p", { id: "said", role: "status", onclick: () => { said.hidden = true; } });

function say(text, isDone = true) {
  if (!said.isConnected) document.body.append(said);
  said.hidden = false;
  said.className = isDone ? "" : "wrong";
  said.textContent = text;
}

// Returns what came of it, and whether it was carried out.
async function post(experiment, verb, more) {
  try {
    const body = JSON.stringify({ index: experiment.index, verb, ...more });
    const reply = await fetch("ask", { method: "POST", headers: { "X-Sweep-Token": window.sweepPage.token }, body });
    return [(await reply.text()).trim(), reply.ok];
  } catch (error) {
    return [`sweep watch has ended or cannot be reached: ${error.message}`, false];
  }
}

// Asks by a form of a line per field, which stays with the reason where that is refused.
async function fillIn(experiment, verb, more) {
  const wrong = element("p", { class: "wrong", role: "alert" });
  const inputs = Object.keys(FIELDS[verb]).map((name) => element("input", { name, autocomplete: "off" }));
  if (more.trials) [inputs[0].value] = await post(experiment, "config", more);
  const submit = async (event) => {
    event.preventDefault();
    const [text, isDone] = await post(experiment, verb, { typed: Object.fromEntries(inputs.map((one) => [one.name, one.value.trim()])) });
    if (isDone) { dialog.close(); say(`${verb}: ${text}`); } else wrong.textContent = text;
  };
  const dialog = element("dialog", { "aria-label": verb, onclose: () => dialog.remove() }, element("form", { onsubmit: submit },
    ...Object.values(FIELDS[verb]).map((label, i) => element("label", {}, label, inputs[i])), wrong,
    element("div", { class: "tools" }, element("button", {}, verb), button("close", () => dialog.close()))));
  document.body.append(dialog);
  dialog.showModal();
}

// Returns buttons about the selected trials, or about the whole sweep.
function askButtons(experiment, isOfTrials) {
  if (!window.sweepPage.token) return [];
  const more = () => (isOfTrials ? { trials: [...experiment.selected] } : {});
  const ask = async (verb) => {
    const given = more();
    const what = `${verb} ${isOfTrials ? `trial ${given.trials.map((number) => shown(number, "trial")).join(", ")}` : "the sweep"}`;
    if (["stop", "cancel"].includes(verb) && !window.confirm(`${what}?`)) return;
    say(`${what} ...`);
    const [text, isDone] = await post(experiment, verb, given);
    say(`${what}: ${text}`, isDone);
  };
  return [...VERBS.map((verb) => button(verb === "retry" && !isOfTrials ? "retry failed" : verb, () => ask(verb))),
    ...(isOfTrials ? ["enqueue"] : ["enqueue", "edit"]).map((verb) => button(`${verb} …`, () => fillIn(experiment, verb, more())))];
}

// What is selected stays in sight while one scrolls from figure to figure.
function showChosen(experiment) {
  const bar = document.getElementById("chosen");
  bar.hidden = !experiment.selected.size;
  if (bar.hidden) return;
  const { columns, rows, selected } = experiment;
  const labels = labelsOf(columns);
  const list = rows.filter((row) => selected.has(row[0])).slice(0, 3).map((row) => {
    const pairs = columns.map(([name, kind], i) => [name, kind, row[i], labels[i]])
      .filter(([name, kind, value]) => value !== null && value !== "" && kind !== "trial" && !experiment.table.hidden.has(name + kind));
    return element("p", {}, element("strong", {}, shown(row[0], "trial")), " ",
      pairs.map(([name, kind, value, label]) => {
        if (kind) return `${label}=${shown(value)}`;
        return ["name", "state", "reason"].includes(name) ? value : `${name} ${shown(value)}`;
      }).join("  "));
  });
  if (selected.size > list.length) list.push(element("p", {}, `and ${selected.size - list.length} more`));
  if (bar.experiment !== experiment) {  // else the buttons stay, also under a finger
    bar.experiment = experiment;
    bar.replaceChildren(element("div"), element("div", { class: "tools" },
      button("to the table", () => experiment.table.place.scrollIntoView({ block: "start" })),
      button("clear selection", () => experiment.select([])), ...askButtons(experiment, true)));
  }
  bar.firstElementChild.replaceChildren(...list);
}

function addCopyButtons(root) {
  for (const block of root.querySelectorAll("pre")) {
    if (!navigator.clipboard) return;
    const button = element("button", { type: "button", class: "copy", onclick: async () => {
      await navigator.clipboard.writeText(block.textContent);
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    } }, "copy");
    if (block.closest(".forms")) {
      block.before(button);  // beside the heading
    } else {
      const frame = element("div", { class: "copied" });
      block.before(frame);
      frame.append(button, block);
    }
  }
}

// --- start ---

async function start() {
  const data = JSON.parse(await unpacked("payload"));
  const script = element("script");
  script.textContent = await unpacked("plotly");
  document.head.append(script);
  const experiments = data.experiments.map((one) => new Experiment(one, one.index));
  document.querySelectorAll("article").forEach(addCopyButtons);
  const tabs = [...document.querySelectorAll("nav button")];
  const show = (id) => {
    for (const tab of tabs) {
      if (tab.dataset.article === id) tab.setAttribute("aria-current", "page"); else tab.removeAttribute("aria-current");
    }
    for (const article of document.querySelectorAll("article")) article.hidden = tabs.length > 0 && article.id !== id;
    window.dispatchEvent(new Event("resize"));
    const at = experiments.find((one) => one.root.id === id);
    if (at) showChosen(at);
  };
  for (const tab of tabs) tab.addEventListener("click", () => show(tab.dataset.article));
  if (tabs.length) show(tabs[0].dataset.article);
  dark.addEventListener("change", () => {
    for (const one of experiments) for (const figure of one.figures.values()) { figure.isDrawn = false; if (figure.isNear) figure.draw(); }
  });
  window.addEventListener("beforeprint", () => experiments.forEach((one) => one.drawAll()));
  const asked = new URLSearchParams(data.events.split("?")[1]);
  window.sweepPage = { experiments, token: asked.has("ask") && asked.get("token") };
  for (const one of experiments) if (one.table) one.root.querySelector("header").append(element("div", { class: "tools" }, ...askButtons(one, false)));
  document.documentElement.dataset.ready = "true";
  if (data.events) follow(data, experiments);
}

function follow(data, experiments) {
  const sign = document.querySelector(".live");
  let version = data.version;
  let source, timer;
  const connect = () => {
    clearTimeout(timer);
    source?.close();
    const shown = experiments.flatMap((one) => [...one.figures.values()].filter((figure) => figure.key !== figure.name)
      .map((figure) => `&show=${one.index}:${encodeURIComponent(figure.key)}`)).join("");
    source = new EventSource(`${data.events}&version=${version.join(",")}${shown}`);
    source.onopen = () => { sign.textContent = "live"; };
    source.onmessage = (event) => {
      const news = JSON.parse(event.data);
      version = news.version;
      for (const one of news.experiments) {
        experiments[one.index].apply(one);
        if (experiments[one.index].selected.size) showChosen(experiments[one.index]);
      }
      if (news.title) document.title = news.title;
    };
    source.onerror = () => {
      sign.textContent = "not connected: sweep watch has ended or cannot be reached; trying again";
      source.close();
      timer = setTimeout(connect, 2000);
    };
  };
  window.sweepPage.want = connect;
  connect();
}

start().catch((error) => {
  const place = document.getElementById("problem");
  place.hidden = false;
  place.textContent = `The figures and the table could not be shown: ${error.message}. This page needs a browser of 2023 or later.`;
  throw error;
});
