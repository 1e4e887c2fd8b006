"use strict";
// What tables can do: be sorted, searched and unfolded. Of a long one the page has some rows; all of them are in a
// script beside it, which is loaded when it is first needed. Its markup was escaped when the site was written.
(() => {
  const all = (query) => [...document.querySelectorAll(query)];
  const say = (text) => { document.getElementById("status").textContent = text; };

  const keyOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.sort === undefined ? cell.textContent : Number(cell.dataset.sort);
  };
  function compare(a, b) {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
    return typeof a === "number" ? -1 : 1;
  }

  function prepare(table) {
    const body = table.tBodies[0];
    const step = Number(table.dataset.step) || Infinity;
    const search = document.querySelector(`[data-search="${table.id}"]`);
    const kinds = document.querySelector(`[data-kinds="${table.id}"]`);
    const more = document.querySelector(`[data-more="${table.id}"]`);
    let rows = [...body.rows];
    let fitting = rows;
    let shown = step;
    let loading = null;

    const load = () => (loading ??= new Promise((done) => {
      if (!table.dataset.rest) return done();
      window.mldynoRows = (markup) => {
        const parsed = document.createElement("template");
        parsed.innerHTML = markup;
        rows = [...parsed.content.querySelectorAll("tr")];
        done();
      };
      const script = document.createElement("script");
      script.src = table.dataset.rest;
      script.addEventListener("error", () => { say("the other rows can't be read; use the pages below"); done(); });
      document.head.append(script);
    }));

    function draw() {
      body.replaceChildren(...fitting.slice(0, shown));
      all(".pager").forEach((pager) => { pager.hidden = true; });
      if (!more) return;
      const left = fitting.length - Math.min(shown, fitting.length);
      more.parentElement.hidden = left <= 0;
      more.textContent = `Show ${Math.min(step, left)} more of ${fitting.length.toLocaleString("en")}`;
    }
    function filter() {
      const words = search ? search.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
      const kind = kinds ? kinds.value : "";
      fitting = rows.filter((row) => {
        if (kind && row.dataset.kind !== kind) return false;
        const text = row.textContent.toLowerCase();
        return words.every((word) => text.includes(word));
      });
    }
    async function filtered() {
      await load();
      filter();
      shown = step;
      draw();
      say(`${fitting.length.toLocaleString("en")} ${table.dataset.noun}`);
    }
    async function sort(column) {
      await load();
      const heads = [...table.tHead.rows[0].cells];
      const head = heads[column];
      const first = head.classList.contains("down") ? "descending" : "ascending";
      const now = head.getAttribute("aria-sort");
      const order = now === "none" ? first : now === "ascending" ? "descending" : "ascending";
      const keyed = rows.map((row) => [keyOf(row, column), row]);
      keyed.sort(([a], [b]) => {
        const place = compare(a, b);
        return order === "descending" && typeof a === typeof b ? -place : place;
      });
      rows = keyed.map(([, row]) => row);
      heads.forEach((each) => each.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", order);
      filter();
      draw();
      say(`sorted by ${head.textContent}, ${order}`);
    }

    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => sort(column));
    });
    search?.addEventListener("input", filtered);
    kinds?.addEventListener("change", filtered);
    more?.addEventListener("click", () => { shown += step; draw(); });
    if (search?.value || kinds?.value) filtered();  // what a browser has kept
    if (table.dataset.rest) {  // the first rows are all there is until more are asked for
      search?.addEventListener("focus", load, { once: true });
    }
  }
  all("table.sortable").forEach(prepare);
  document.documentElement.dataset.ready = "yes";
})();
