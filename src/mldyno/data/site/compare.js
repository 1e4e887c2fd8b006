"use strict";
// Two machines side by side: which is faster in which case, by how much, and how sure that is. The arithmetic is that
// of mldyno's comparison of separate runs. Names and times of machines are only ever set as text.
(() => {
  const byId = (id) => document.getElementById(id);
  const result = byId("result");
  const settings = result.dataset;
  const DELTA = Number(settings.delta);
  const LARGEST_LOG = Number(settings.largestLog);
  const NARROW_FACTOR = 0.1;  // as in units.py
  const MOST_DECIMALS = 5;
  const WIDEST_BAR = Math.log(2);  // the least that half of a drawing stands for
  const STEM = /^[a-z0-9-]{1,80}$/;

  // -- arithmetic ------------------------------------------------------------------------------------
  // How many times as fast the other is as the base, with a 95 % interval where both have one; beside a published
  // figure it is that of the side which was measured.
  function ratioOf(base, other) {
    const ratio = base.step / other.step;
    const measured = [base, other].filter((side) => !side.published);
    const judged = measured.length ? measured : [base, other];
    if (judged.some((side) => side.half === null)) return { ratio, low: null, high: null };
    const width = Math.hypot(...judged.map((side) => side.half / side.step));
    const log = Math.log(ratio);
    return { ratio: Math.exp(log), low: Math.exp(Math.max(log - width, -LARGEST_LOG)),
      high: Math.exp(Math.min(log + width, LARGEST_LOG)) };
  }
  function verdictOf({ low, high }) {
    if (low === null || high === null) return "inconclusive";
    if (low > 1 - DELTA && high < 1 + DELTA) return "equivalent";
    if (low > 1) return "faster";
    return high < 1 ? "slower" : "inconclusive";
  }
  // The geometric mean, with an interval where each has one, as if all erred the same way.
  function meanOf(ratios) {
    const centre = (values) => Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);
    const known = ratios.every(({ low, high }) => low !== null && high !== null);
    return { ratio: centre(ratios.map(({ ratio }) => ratio)), low: known ? centre(ratios.map(({ low }) => low)) : null,
      high: known ? centre(ratios.map(({ high }) => high)) : null };
  }

  // -- words -----------------------------------------------------------------------------------------
  function decimalsOf(value, error, most = 3) {
    const count = error ? Math.max(2, Math.min(most, Math.ceil(-Math.log10(Math.abs(error / value))) + 1)) : most;
    return count - 1 - Math.floor(Math.log10(Math.abs(value)));
  }
  function fixed(value, decimals) {
    const unit = 10 ** Math.max(0, -decimals);
    const places = Math.min(Math.max(0, decimals), 20);
    const rounded = decimals < 0 ? Math.round(value / unit) * unit : value;
    return rounded.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
  }
  // The ratio turned so that it reads as 'so many times'.
  function factor({ ratio, low, high }) {
    if (ratio < 1) [ratio, low, high] = [1 / ratio, high && 1 / high, low && 1 / low];
    if (low === null || high === null) return `${fixed(ratio, decimalsOf(ratio))}x`;
    let decimals = decimalsOf(ratio, (high - low) / 2);
    let places = Math.max(0, decimals);
    if ((low > 1 || high < 1) && high - low < NARROW_FACTOR) {
      places = Math.max(...[ratio, low, high].map((value) => placesOffOne(value, places)));
      if (places) decimals = places;
    }
    return `${fixed(ratio, decimals)}x (${[low, high].map((end) => fixed(end, placesOffOne(end, places))).join("-")})`;
  }
  // So many decimals, or as many more as tell a value from 1.
  function placesOffOne(value, places) {
    for (let more = places; more <= MOST_DECIMALS; more += 1) if (Number(value.toFixed(more)) !== 1) return more;
    return places;
  }
  // An interval in words.
  function span({ low, high }) {
    return [low, high].map((ratio) => {
      const times = Math.max(ratio, 1 / ratio);
      const percent = 100 * (times - 1);
      const by = times >= 2 ? `${fixed(times, decimalsOf(times, null, 2))}x`
        : percent === 0 ? "0 %" : percent < 0.01 ? "under 0.01 %" : `${fixed(percent, decimalsOf(percent, null, 2))} %`;
      return `${by} ${ratio > 1 ? "faster" : "slower"}`;
    }).join(" to ");
  }
  function claim(compared, base, other) {
    const verdict = verdictOf(compared);
    if (verdict === "equivalent") return `${other} and ${base} are ${settings.equivalent}`;
    if (verdict !== "inconclusive") return `${other} is ${factor(compared)} ${verdict} than ${base}`;
    if (compared.low !== null) return `${settings.unclear} between ${other} and ${base} (the first is ${span(compared)})`;
    const way = compared.ratio > 1 ? "faster" : "slower";
    return `${other} looks ${factor(compared)} ${way} than ${base}; no interval`;
  }

  // -- the page --------------------------------------------------------------------------------------
  function element(name, text, attributes = {}, children = []) {
    const made = document.createElement(name);
    if (text) made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }
  // From the middle to the right where the second machine is faster, to the left where the first is.
  function bar(compared, widest) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const place = (ratio) => Math.max(0, Math.min(100, 50 + (50 * Math.log(ratio)) / widest)).toFixed(1);
    const drawn = (name, attributes) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      svg.append(made);
    };
    for (const [key, value] of Object.entries({ viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true",
      class: `bar two${verdictOf(compared) === "inconclusive" ? " unsure" : ""}` })) svg.setAttribute(key, value);
    const [start, end] = [50, Number(place(compared.ratio))].sort((a, b) => a - b);
    drawn("rect", { x: start, y: 1, width: (end - start).toFixed(1), height: 8, class: compared.ratio > 1 ? "second" : "first" });
    drawn("path", { d: "M50 0V10", class: "middle" });
    if (compared.low !== null) drawn("path", { d: `M${place(compared.low)} 5H${place(compared.high)}` });
    return svg;
  }
  function row(base, other) {
    const compared = ratioOf(base, other);
    return { base, other, compared };
  }
  function devicesOf(machine) {
    return [...new Set(machine.cases.map(({ device }) => device))];
  }
  // Places where both did the same work: the same device first, then accelerators, then the rest.
  function sections(first, second) {
    const made = [];
    for (const device of devicesOf(first)) {
      for (const facing of devicesOf(second)) {
        const theirs = new Map(second.cases.filter((each) => each.device === facing).map((each) => [each.work, each]));
        const ours = first.cases.filter((each) => each.device === device && theirs.has(each.work));
        const kind = device === facing ? 0 : (device === "cpu") === (facing === "cpu") ? 1 : 2;
        if (ours.length) made.push({ device, facing, kind, rows: ours.map((each) => row(each, theirs.get(each.work))) });
      }
    }
    return made.sort((a, b) => a.kind - b.kind);
  }
  function table(section, names, widest) {
    const head = element("tr", "", {}, ["case", ...names.map((name, place) => `${name}, ${[section.device, section.facing][place]}`), "the second is", "\u2190 first faster \u00b7 second faster \u2192"]
      .map((text, place) => element("th", text, { scope: "col", class: ["", "number", "number", "number", "middle"][place] })));
    const body = section.rows.map(({ base, other, compared }) => element("tr", "", {
      "data-work": base.work, "data-ratio": compared.ratio, "data-low": compared.low ?? "", "data-high": compared.high ?? "",
      "data-verdict": verdictOf(compared) }, [
      element("th", base.title, { scope: "row" }),
      element("td", base.time, { class: "number" }),
      element("td", other.time, { class: "number" }),
      element("td", said(compared), { class: "number" }),
      element("td", "", { class: "wide" }, [bar(compared, widest)]),
    ]));
    return element("div", "", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Cases on ${section.device} and ${section.facing}` }, [
      element("table", "", {}, [element("caption", "All cases that both have run"), element("thead", "", {}, [head]), element("tbody", "", {}, body)]),
    ]);
  }
  function said(compared) {
    const verdict = verdictOf(compared);
    if (verdict === "equivalent") return settings.equivalent;
    const way = compared.ratio > 1 ? "faster" : "slower";
    if (verdict !== "inconclusive") return `${factor(compared)} ${way}`;
    return compared.low === null ? `${factor(compared)} ${way}; no interval` : `${settings.unclear} (${span(compared)})`;
  }
  function scoreTable(first, second) {
    const keys = new Map();
    [first, second].forEach((machine, place) => machine.scores.forEach(([work, where, text]) => {
      const key = `${work}, ${where}`;
      if (!keys.has(key)) keys.set(key, ["-", "-"]);
      keys.get(key)[place] = text;
    }));
    if (!keys.size) return [];
    const head = element("tr", "", {}, ["score", first.name, second.name].map((text, place) => element("th", text, { scope: "col", ...(place ? { class: "number" } : {}) })));
    const rows = [...keys].map(([key, texts]) => element("tr", "", {}, [element("th", key, { scope: "row" }),
      ...texts.map((text) => element("td", text, { class: "number" }))]));
    return [element("section", "", { "aria-label": "Scores" }, [element("div", "", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Scores" }, [
      element("table", "", {}, [element("caption", "Scores"), element("thead", "", {}, [head]), element("tbody", "", {}, rows)])])])];
  }
  function show(stems, first, second) {
    const names = [first.name, second.name];
    const parts = sections(first, second);
    const blocks = parts.map((section) => {
      const ratios = section.rows.map(({ compared }) => compared);
      const mean = meanOf(ratios);
      const widest = Math.max(WIDEST_BAR, ...ratios.map(({ ratio }) => Math.abs(Math.log(ratio)) * 1.15));
      const where = section.device === section.facing ? section.device : `${section.device} against ${section.facing}`;
      const cases = section.rows.length === 1 ? "1 case" : `geometric mean of ${section.rows.length} cases`;
      return element("section", "", { "data-devices": `${section.device} ${section.facing}`, "data-ratio": mean.ratio,
        "data-low": mean.low ?? "", "data-high": mean.high ?? "" }, [
        element("h2", `On ${where}`),
        element("p", "", { class: "verdict" }, [element("strong", claim(mean, ...names)), ` (${cases})`]),
        table(section, names, widest),
      ]);
    });
    const links = element("p", "", { class: "lead" }, names.flatMap((name, place) => [
      ...(place ? [" and "] : []), element("a", name, { href: `machines/${stems[place]}.html` })]));
    const main = parts.filter(({ kind }) => kind < 2).length || parts.length;
    const others = blocks.splice(main);
    if (others.length) blocks.push(element("details", "", {}, [element("summary", "Other pairs of devices"), ...others]));
    if (!blocks.length) blocks.push(element("p", "They have no case in common, so there is nothing to compare."));
    result.replaceChildren(links, ...scoreTable(first, second), ...blocks);
    document.title = `${names[0]} and ${names[1]}, compared by mldyno`;
    byId("status").textContent = `${parts.length} pairs of devices compared`;
  }

  // -- loading ---------------------------------------------------------------------------------------
  const machines = new Map();
  const names = new Map();
  const waiting = new Map();
  window.mldynoMachine = (stem, machine) => { machines.set(stem, machine); };
  window.mldynoNames = (entries) => {
    entries.forEach(([stem, name]) => names.set(stem, name));
    fill();
    document.documentElement.dataset.ready = "yes";
  };
  const load = (stem) => {
    if (!waiting.has(stem)) waiting.set(stem, new Promise((done, failed) => {
      const script = element("script", "", { src: `machines/${stem}.js` });
      script.addEventListener("load", () => (machines.has(stem) ? done(machines.get(stem)) : failed()));
      script.addEventListener("error", failed);
      document.head.append(script);
    }));
    return waiting.get(stem);
  };
  const inputs = [byId("first"), byId("second")];
  const asked = () => {
    const words = new URLSearchParams(location.hash.slice(1));
    return ["a", "b"].map((key) => words.get(key) ?? "").map((stem) => (STEM.test(stem) ? stem : ""));
  };
  function fill() {
    asked().forEach((stem, place) => { if (names.has(stem)) inputs[place].value = names.get(stem); });
  }
  async function update() {
    const stems = asked();
    fill();
    if (!stems[0] || !stems[1]) {
      result.replaceChildren(element("p", "Choose two machines."));
      return;
    }
    try {
      show(stems, ...(await Promise.all(stems.map(load))));
    } catch {
      result.replaceChildren(element("p", "This site has no such machine; choose two from the lists."));
    }
  }
  function choose(stems) {
    location.hash = `a=${stems[0]}&b=${stems[1]}`;
  }
  inputs.forEach((input, place) => {
    input.addEventListener("focus", () => {  // thousands of options are made when they are wanted
      if (!byId("names").children.length) {
        byId("names").append(...[...names.values()].map((name) => element("option", "", { value: name })));
      }
    });
    input.addEventListener("change", () => {
      const stems = asked();
      stems[place] = [...names].find(([, name]) => name === input.value)?.[0] ?? "";
      choose(stems);
    });
  });
  byId("swap").addEventListener("click", () => choose(asked().reverse()));
  addEventListener("hashchange", update);
  update();
})();
