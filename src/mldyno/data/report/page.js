"use strict";
// What the page can do: sort and search tables, unfold what is long, save the records. Charts are drawn already.
// What is unfolded is markup that was escaped when the page was written.
(() => {
  const byId = (id) => document.getElementById(id);
  const all = (query) => [...document.querySelectorAll(query)];
  const say = (text) => { byId("status").textContent = text; };

  // What is long stands behind the script, so that the page is ready before it has come.
  const complete = new Promise((done) => addEventListener("DOMContentLoaded", done));
  async function unpack(id) {
    if (!byId(id)) await complete;
    const packed = Uint8Array.from(atob(byId(id).textContent.trim()), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  let folded;
  async function unfold(id) {
    const button = document.querySelector(`[data-more="${id}"]`);
    if (!button) return;
    const place = byId(id);
    const markup = (await (folded ??= unpack("more-data").then(JSON.parse)))[id];
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

  byId("save-records").addEventListener("click", async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([await unpack("records")], { type: "application/jsonl" }));
    link.download = "records.jsonl";
    link.click();
    URL.revokeObjectURL(link.href);
  });
  document.documentElement.dataset.ready = "yes"; // without which nothing shows that only a script can do
})();
