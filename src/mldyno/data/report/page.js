"use strict";
// What the page can do: draw charts when they come into view, sort and search tables, unfold what is long.
// Text from records is only ever set as text, or is markup that was escaped when the page was written.
(() => {
  const byId = (id) => document.getElementById(id);
  const all = (query, root = document) => [...root.querySelectorAll(query)];
  const say = (text) => { byId("status").textContent = text; };

  // What is long stands behind the scripts, so that the page is ready before it has come.
  const complete = new Promise((done) => addEventListener("DOMContentLoaded", done));
  async function unpack(id) {
    if (!byId(id)) await complete;
    const packed = Uint8Array.from(atob(byId(id).textContent.trim()), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }
  const unpacked = {};
  const parsed = (id) => (unpacked[id] ??= unpack(id).then(JSON.parse));

  // -- charts --------------------------------------------------------------------------------------
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);

  function showTip(_, event, __, value) {
    tip.hidden = !value;
    if (!value) return;
    tip.replaceChildren(...Object.entries(value).map(([name, text]) => {
      const line = document.createElement("p");
      const label = document.createElement("b");
      label.textContent = name + " ";
      line.append(label, String(text));
      return line;
    }));
    const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8);
    tip.style.left = Math.max(8, left) + "px";
    tip.style.top = (event.clientY + tip.offsetHeight + 24 < innerHeight ? event.clientY + 16 : event.clientY - tip.offsetHeight - 12) + "px";
  }

  const drawn = new Map();
  async function draw(place, spec) {
    const settings = (await parsed("charts-data")).config;
    const labelLimit = Math.min(settings.axis.labelLimit, 0.38 * place.clientWidth);
    const config = { ...settings, axis: { ...settings.axis, labelLimit } };
    const shown = await embed(place, spec, {
      mode: "vega-lite", renderer: "svg", actions: false, defaultStyle: false, tooltip: showTip, config, logLevel: 1 });
    all("svg", place).forEach((svg) => svg.setAttribute("aria-hidden", "true"));
    place.dataset.drawn = "yes";
    drawn.set(place, shown);
  }
  const pending = new Map();
  const eye = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) drawNow(entry.target);
  }, { rootMargin: "250px" });
  function drawNow(place) {
    const spec = pending.get(place);
    eye.unobserve(place);
    pending.delete(place);
    if (spec) draw(place, spec);
  }
  function drawLater(place, spec) {
    pending.set(place, spec);
    eye.observe(place);
  }
  parsed("charts-data").then(({ specs }) => {
    all("[data-chart]").forEach((place) => drawLater(place, specs[place.dataset.chart]));
    document.documentElement.dataset.charts = "ready";
  });
  addEventListener("beforeprint", () => [...pending.keys()].forEach(drawNow));

  // -- samples of each case ------------------------------------------------------------------------
  function traceFigure(trace, spec, machines) {
    const figure = document.createElement("figure");
    const head = document.createElement("figcaption");
    const title = document.createElement("h3");
    title.textContent = machines ? trace.machine + ": " + trace.title : trace.title;
    head.append(title);
    const place = document.createElement("div");
    place.className = "chart short";
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", "Dots: time of a step over steps done, " + trace.title + ". " + trace.caption);
    const caption = document.createElement("p");
    caption.className = "caption";
    caption.textContent = trace.caption;
    figure.append(head, place, caption);
    const values = trace.rows.map(([process, steady, step, value]) => (
      { process, stage: steady ? "steady" : "warm-up", step, value }));
    const own = structuredClone(spec);
    own.data = { values };
    own.encoding.y.scale.domain = trace.ends;
    return [figure, place, own];
  }
  const whenIdle = window.requestIdleCallback ?? setTimeout;
  all(".traces").forEach((list) => whenIdle(async () => {
    const [[traces], { specs }] = await Promise.all([parsed("traces-data"), parsed("charts-data")]);
    const button = document.querySelector(`[data-more-traces="${list.id}"]`);
    const search = document.querySelector(`[data-traces-search="${list.id}"]`);
    const step = Number(list.dataset.shown);
    const machines = new Set(traces.map((trace) => trace.machine)).size > 1;
    let fitting = traces;
    function show(from) {
      for (const trace of fitting.slice(from, from + step)) {
        const [figure, place, spec] = traceFigure(trace, specs[trace.unit], machines);
        list.append(figure);
        drawLater(place, spec);
      }
      const left = fitting.length - list.children.length;
      button.hidden = left <= 0;
      button.textContent = `Show ${Math.min(step, left)} more of ${fitting.length.toLocaleString("en")} cases`;
    }
    button.addEventListener("click", () => show(list.children.length));
    search.addEventListener("input", () => {
      const words = search.value.toLowerCase().split(/\s+/);
      fitting = traces.filter((trace) => words.every((word) => (trace.machine + " " + trace.title + " " + trace.caption).toLowerCase().includes(word)));
      all(".chart", list).forEach((place) => { eye.unobserve(place); pending.delete(place); drawn.get(place)?.finalize(); drawn.delete(place); });
      list.replaceChildren();
      show(0);
      say(`${fitting.length} cases`);
    });
    show(0);
    list.dataset.ready = "yes";
  }));

  // -- tables and lists ----------------------------------------------------------------------------
  async function unfold(id) {
    const button = document.querySelector(`[data-more="${id}"]`);
    if (!button) return;
    const place = byId(id);
    const markup = (await parsed("more-data"))[id];
    (place.tBodies ? place.tBodies[0] : place).insertAdjacentHTML("beforeend", markup);
    button.parentElement.remove();
  }
  all("[data-more]").forEach((button) => button.addEventListener("click", () => unfold(button.dataset.more)));

  const keyOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.sort === undefined ? cell.textContent : Number(cell.dataset.sort);
  };
  function compare(a, b) {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
    return typeof a === "number" ? -1 : 1;
  }
  async function sort(table, column) {
    await unfold(table.id);
    const head = table.tHead.rows[0].cells[column];
    const down = head.getAttribute("aria-sort") === "ascending";
    const rows = [...table.tBodies[0].rows].map((row) => [keyOf(row, column), row]);
    rows.sort(([a], [b]) => {
      const order = compare(a, b);
      return down && typeof a === typeof b ? -order : order;
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
    for (const head of table.tHead.rows[0].cells) head.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    say(`sorted by ${head.textContent}, ${down ? "descending" : "ascending"}`);
  }
  all("table.sortable").forEach((table) => {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => sort(table, column));
    });
  });
  all("[data-search]").forEach((input) => input.addEventListener("input", async () => {
    await unfold(input.dataset.search);
    const words = input.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const row of byId(input.dataset.search).tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    say(`${shown} rows`);
  }));

  // -- the records ---------------------------------------------------------------------------------
  byId("save-records").addEventListener("click", async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([await unpack("records")], { type: "application/jsonl" }));
    link.download = "records.jsonl";
    link.click();
    URL.revokeObjectURL(link.href);
  });
  document.documentElement.dataset.ready = "yes";
})();
