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

// --- the table ---

class TrialTable {
  constructor(experiment, place) {
    this.experiment = experiment;
    this.place = place;
    this.sort = { key: "trialtrial", isUp: true };
    this.page = 0;
    this.filter = "";
    this.hidden = null;
    this.build();
  }

  build() {
    const label = `e${this.experiment.index}`;
    this.input = element("input", {
      type: "search", "aria-label": "Filter the trials: a text, or a condition such as lr<0.01",
      placeholder: "filter: a text, or lr<0.01",
      oninput: () => { this.filter = this.input.value; this.page = 0; this.render(); },
    });
    this.chooser = element("div", { class: "columns" });
    this.head = element("tr");
    this.body = element("tbody", { onkeydown: (event) => this.onKey(event) });
    this.caption = element("caption", { id: `${label}-caption`, "aria-live": "polite" });
    this.table = element("table", { class: "trials", "aria-labelledby": `${label}-caption` },
      this.caption, element("thead", {}, this.head), this.body);
    this.pager = element("div", { class: "tools" });
    this.place.replaceChildren(
      element("div", { class: "tools" }, this.input),
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

  columnOf(typed) {
    const { columns } = this.experiment;
    const index = labelsOf(columns).indexOf(typed);
    return index >= 0 ? index : columns.findIndex(([name, kind]) => kind === "parameter" && `config/${name}` === typed);
  }

  test() {
    const condition = /^\s*(.+?)\s*(<=|>=|!=|=|<|>)\s*(.*?)\s*$/.exec(this.filter);
    const index = condition === null ? -1 : this.columnOf(condition[1]);
    if (index >= 0) {
      const wanted = condition[3] !== "" && !Number.isNaN(Number(condition[3])) ? Number(condition[3]) : condition[3];
      const compare = {
        "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
        "=": (a, b) => a === b, "!=": (a, b) => a !== b,
      }[condition[2]];
      return (row) => {
        const value = row[index];
        if (typeof wanted === "number") return typeof value === "number" && compare(value, wanted);
        return compare(value === null ? "" : String(value), wanted);
      };
    }
    const text = this.filter.trim().toLowerCase();
    return (row) => text === "" || row.some((value) => value !== null && String(value).toLowerCase().includes(text));
  }

  ordered() {
    const index = this.experiment.columns.findIndex(([name, kind]) => name + kind === this.sort.key);
    const chosen = this.experiment.rows.filter(this.test());
    if (index < 0) return chosen;
    const sign = this.sort.isUp ? 1 : -1;
    const rank = (value) => (typeof value === "number" ? 0 : value === null ? 2 : 1);
    return chosen.sort((one, other) => {
      const [a, b] = [one[index], other[index]];
      if (rank(a) !== rank(b)) return rank(a) - rank(b);
      return a === b ? 0 : (a < b ? -sign : sign);
    });
  }

  render() {
    const { columns, selected, rows } = this.experiment;
    const labels = labelsOf(columns);
    const visible = columns.map((column, i) => [...column, i]).filter(([name, kind]) => !this.hidden.has(name + kind));
    this.head.replaceChildren(...visible.map(([name, kind, i]) => {
      const isSorted = this.sort.key === name + kind;
      return element("th", { scope: "col", "aria-sort": isSorted ? (this.sort.isUp ? "ascending" : "descending") : "none" },
        element("button", { type: "button", onclick: () => {
          this.sort = { key: name + kind, isUp: isSorted ? !this.sort.isUp : true };
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
      return element("td", { class: typeof value === "number" ? "number" : null, title }, text);
    }))));
    if (focused !== null) this.body.querySelector(`tr[data-trial="${Number(focused)}"]`)?.focus();
    const chosen = selected.size ? `, ${selected.size} selected` : "";
    this.caption.textContent = `${found.length === rows.length ? rows.length : `${found.length} of ${rows.length}`} trials${chosen}`;
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

class Figure {
  constructor(experiment, name) {
    this.experiment = experiment;
    this.plot = element("div", { class: "plot", role: "img" });
    this.age = element("p", { class: "age" });
    this.frame = element("figure", { "data-figure": name, class: WIDE.has(name) ? "wide" : null }, this.age, this.plot);
    this.isNear = false;
    this.observer = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) { this.isNear = true; this.draw(); }
    }, { rootMargin: "600px" });
    this.observer.observe(this.frame);
  }

  set(spec) {
    this.spec = spec;
    this.age.textContent = "";
    const meta = spec.layout.meta ?? {};
    this.plot.setAttribute("aria-label", [meta.summary ?? meta.figure ?? "figure", meta.note].filter(Boolean).join(" "));
    this.isDrawn = false;
    if (this.isNear) this.draw();
  }

  layout() {
    const style = getComputedStyle(document.documentElement);
    const [ink, line, panel] = ["--ink", "--line", "--panel"].map((name) => style.getPropertyValue(name).trim());
    const layout = structuredClone(this.spec.layout);
    layout.paper_bgcolor = "rgba(0,0,0,0)";
    layout.plot_bgcolor = "rgba(0,0,0,0)";
    layout.font = { ...layout.font, color: ink };
    layout.hoverlabel = { ...layout.hoverlabel, bgcolor: panel, bordercolor: line, font: { color: ink } };
    layout.autosize = true;
    delete layout.width;
    const eye = layout.scene?.camera?.eye;
    const ratio = (layout.height ?? 0) / (this.plot.clientWidth || Infinity);
    if (eye && ratio > 1) layout.scene.camera.eye = { x: eye.x * ratio, y: eye.y * ratio, z: eye.z * ratio };  // else cut
    for (const key of ["xaxis", "yaxis", ...Object.keys(layout).filter((one) => /^[xy]axis\d+$/.test(one))]) {
      layout[key] = { ...layout[key], gridcolor: line, zerolinecolor: line, linecolor: line };
    }
    return layout;
  }

  // Returns the figure's own traces, those of the selected trials marked, and lines drawn once more above the others.
  traces() {
    const { selected } = this.experiment;
    const own = this.spec.data.map((trace) => ({ ...trace }));
    if (!selected.size || !this.full) return own;
    const above = [];
    this.full.forEach((trace, i) => {
      const rows = trace.customdata;
      if (!rows || !own[i]) return;
      const number = (j) => (Array.isArray(rows[j]) || ArrayBuffer.isView(rows[j]) ? rows[j][0] : rows[j]);
      const type = trace.type ?? "scatter";
      if (POINTS.has(type)) {
        const axes = type === "scatter3d" ? ["x", "y", "z"] : ["x", "y"];
        const points = { x: [], y: [], z: [] };
        const size = Math.min(...axes.map((axis) => trace[axis]?.length ?? 0));
        let isInside = false;
        for (let j = 0; j < size; j += 1) {
          const isChosen = selected.has(number(j));
          if (isChosen) axes.forEach((axis) => points[axis].push(trace[axis][j]));
          else if (isInside) axes.forEach((axis) => points[axis].push(null));
          isInside = isChosen;
        }
        if (!points.x.length) return;
        const hasLines = (trace.mode ?? "").includes("lines");
        const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
        above.push({
          type, ...Object.fromEntries(axes.map((axis) => [axis, points[axis]])), xaxis: own[i].xaxis, yaxis: own[i].yaxis,
          scene: own[i].scene, mode: hasLines ? "lines+markers" : "markers", connectgaps: false, showlegend: false,
          hoverinfo: "skip", line: { color: ink, width: 3, ...(own[i].line?.shape ? { shape: own[i].line.shape } : {}) },
          marker: { color: ink, size: hasLines ? 5 : 13, symbol: hasLines ? "circle" : "circle-open", line: { width: 2, color: ink } },
        });
      } else if (type === "bar") {
        own[i].selectedpoints = [...rows.keys()].filter((j) => selected.has(number(j)));
        own[i].unselected = { marker: { opacity: 0.2 } };
      } else if (type === "parcoords" && trace.dimensions?.length) {
        const style = getComputedStyle(document.documentElement);
        const [faint, ink] = ["--line", "--ink"].map((name) => style.getPropertyValue(name).trim());
        own[i].line = { color: [...rows.keys()].map((j) => Number(selected.has(number(j)))), cmin: 0, cmax: 1,
          colorscale: [[0, faint], [1, ink]], showscale: false };
      }
    });
    return [...own, ...above];
  }

  draw() {
    if (!this.spec || this.isDrawn || !window.Plotly) return;
    this.isDrawn = true;
    Plotly.react(this.plot, this.spec.data, this.layout(), config).then(() => {
      this.full = this.plot._fullData.map((trace) => trace);
      if (!this.isListening) {
        this.isListening = true;
        this.plot.on("plotly_click", (event) => this.onPoints(event.points.slice(0, 1), event.event));
        this.plot.on("plotly_selected", (event) => { if (event) this.onPoints(event.points, event.event); });
      }
      if (this.experiment.selected.size) this.highlight();
    });
  }

  onPoints(points, event) {
    const numbers = points.map((point) => {
      const row = point.customdata;
      return Array.isArray(row) || ArrayBuffer.isView(row) ? row[0] : row;
    }).filter((number) => typeof number === "number");
    if (numbers.length) this.experiment.select(numbers, event?.ctrlKey || event?.metaKey || event?.shiftKey);
  }

  highlight() {
    if (this.isDrawn && this.full) Plotly.react(this.plot, this.traces(), this.layout(), config);
  }
}

// --- an experiment ---

class Experiment {
  constructor(data, index) {
    this.index = index;
    this.root = document.getElementById(`e${index}`);
    this.selected = new Set();
    this.figures = new Map();
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
    if (data.columns) this.table?.columnsChanged(); else if (data.rows?.length) this.table?.render();
    const place = this.root.querySelector("[data-figures]");
    for (const [name, spec] of Object.entries(data.figures ?? {})) {
      if (spec === null) { this.figures.get(name)?.frame.remove(); this.figures.delete(name); continue; }
      if (!this.figures.has(name)) {
        const made = new Figure(this, name);
        this.figures.set(name, made);
        const order = data.order ?? [...this.figures.keys()];
        const next = order.slice(order.indexOf(name) + 1).map((one) => this.figures.get(one)).find(Boolean);
        place.insertBefore(made.frame, next ? next.frame : null);
      }
      this.figures.get(name).set(spec);
    }
    place.closest("section").toggleAttribute("hidden", !this.figures.size);
    for (const [name, figure] of data.old ? this.figures : []) {
      const [seconds, trials] = data.old[name] ?? [];
      figure.age.textContent = seconds ? `as of ${clockTime(seconds)}, ${trials} trials` : "";
    }
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
  const button = (label, action) => element("button", { type: "button", onclick: action }, label);
  bar.replaceChildren(element("div", {}, ...list), element("div", { class: "tools" },
    button("to the table", () => experiment.table.place.scrollIntoView({ block: "start" })),
    button("clear selection", () => experiment.select([]))));
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
  window.sweepPage = { experiments };
  document.documentElement.dataset.ready = "true";
  if (data.events) follow(data, experiments);
}

function follow(data, experiments) {
  const sign = document.querySelector(".live");
  let version = data.version;
  const connect = () => {
    const source = new EventSource(`${data.events}&version=${version.join(",")}`);
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
      setTimeout(connect, 2000);
    };
  };
  connect();
}

start().catch((error) => {
  const place = document.getElementById("problem");
  place.hidden = false;
  place.textContent = `The figures and the table could not be shown: ${error.message}. This page needs a browser of 2023 or later.`;
  throw error;
});
