// The search of the front page, the filters of the table, the charts and the buttons that copy.
// Text from the data reaches the page through textContent alone.
(function () {
  "use strict";

  const element = (id) => document.getElementById(id);

  // ---------------------------------------------------------------- what is chosen, also by the address

  // "#have=two%20tables&want=distance" sets controls of those names; other fragments are places on the page.
  function readAddress(form) {
    const fragment = location.hash.slice(1);
    if (!fragment.includes("=")) return;
    for (const [name, value] of new URLSearchParams(fragment.replaceAll("+", "%2B"))) {
      const control = form.elements.namedItem(name);
      if (control instanceof HTMLSelectElement || control instanceof HTMLInputElement) control.value = value;
    }
  }

  function follow(form, update) {
    const read = () => {
      readAddress(form);
      update();
    };
    form.addEventListener("input", update);
    form.addEventListener("submit", (event) => event.preventDefault());
    // The controls are emptied after the event.
    form.addEventListener("reset", () => setTimeout(update));
    window.addEventListener("hashchange", read);
    read();
  }

  const counted = (n) => `${n} method${n === 1 ? "" : "s"}`;

  // ---------------------------------------------------------------- search: as `theses find` ranks

  function stem(word) {
    word = word.replace(/'s$/, "");
    if (word.length > 6) word = word.replace(/is(e[sd]?|ing|ations?)$/, "iz$1");
    if (word.length > 4 && word.endsWith("ies")) word = word.slice(0, -3) + "y";
    else if (word.length > 3 && /s$/.test(word) && !/(ss|us|is)$/.test(word)) word = word.slice(0, -1);
    for (const ending of ["ing", "ed"]) {
      if (word.length > ending.length + 2 && word.endsWith(ending)) {
        word = word.slice(0, -ending.length);
        const last = word[word.length - 1];
        if (word.length > 2 && last === word[word.length - 2] && !"aeos".includes(last)) word = word.slice(0, -1);
        break;
      }
    }
    return word.length > 3 && word.endsWith("e") ? word.slice(0, -1) : word;
  }

  function stemsOf(text, stop) {
    text = text.toLowerCase().replaceAll("’", "'").replace(/\bdata[ -]sets?\b/g, "dataset");
    const found = new Map();
    for (const word of text.match(/[\p{L}\p{N}]+(?:'[\p{L}\p{N}]+)?/gu) || []) {
      if (!stop.has(word) && !found.has(stem(word))) found.set(stem(word), word);
    }
    return found;
  }

  // Insertions, deletions and substitutions between two words; more than the limit is as good as infinity.
  function within(a, b, limit) {
    if (Math.abs(a.length - b.length) > limit) return false;
    let row = Array.from({ length: b.length + 1 }, (_, j) => j);
    for (let i = 1; i <= a.length; i++) {
      const next = [i];
      for (let j = 1; j <= b.length; j++) {
        next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1));
      }
      row = next;
    }
    return row[b.length] <= limit;
  }

  class Finder {
    constructor(index) {
      this.index = index;
      this.stop = new Set(index.stop);
      this.short = new Map(Object.entries(index.short));
      this.counts = new Map();
      this.cards = index.cards.map((card) => {
        const strengths = new Map();
        for (const [strength, stems] of card.stems) {
          for (const word of stems.split(" ")) if (word) strengths.set(word, strength);
        }
        for (const word of strengths.keys()) this.counts.set(word, (this.counts.get(word) || 0) + 1);
        return { ...card, strengths };
      });
    }

    stems(words) {
      const long = words.toLowerCase().split(/\s+/).map((word) => this.short.get(word) || word);
      return stemsOf(long.join(" "), this.stop);
    }

    // The known stem that is meant, and how sure that is: itself, the longer word of which the last one is the
    // beginning while it is being typed, or the one that it misspells.
    meaning(word, typing) {
      if (this.counts.has(word)) return [word, 1];
      const known = [...this.counts.keys()];
      if (typing && word.length > 1) {
        const longer = known.filter((other) => other.startsWith(word));
        if (longer.length) {
          longer.sort((a, b) => this.counts.get(b) - this.counts.get(a) || a.length - b.length);
          return [longer[0], this.index.typo];
        }
      }
      if (word.length < 5) return [word, 1];
      const limit = word.length < 11 ? 1 : 2;
      const near = known.find((other) => other[0] === word[0] && within(word, other, limit));
      return near ? [near, this.index.typo] : [word, 1];
    }

    rank(words, have, want) {
      const wanted = [...this.stems(words)];
      const typing = !/\s$/.test(words);
      const scale = Math.log(this.cards.length + 1) || 1;
      const asked = wanted.map(([word, said], i) => {
        const [meant, sure] = this.meaning(word, typing && i === wanted.length - 1);
        const weight = 2 - Math.log((this.counts.get(meant) || 0) + 1) / scale;
        return { meant, sure, said, weight };
      });
      const all = asked.reduce((sum, word) => sum + word.weight, 0);
      return this.cards
        .filter((card) => (!have || card.have.includes(have)) && (!want || card.want.includes(want)))
        .map((card) => {
          const hits = asked.filter((word) => card.strengths.has(word.meant));
          const sum = hits.reduce((s, word) => s + word.weight * word.sure * card.strengths.get(word.meant), 0);
          return { slug: card.slug, score: all ? sum / all : 1, said: hits.map((word) => word.said) };
        })
        .filter((match) => match.score >= this.index.threshold)
        .sort((a, b) => b.score - a.score);
    }

    // A library of others: a wanted kind decides before one that is there, and both before the words.
    outside(words, have, want) {
      const { outside } = this.index;
      const exact = (side, kind) => outside.find((entry) => entry.side === side && entry.kind === kind);
      const chosen = (want && exact("want", want)) || (have && exact("have", have));
      if (chosen) return chosen;
      const said = [...this.stems(words).keys()];
      let best = null;
      let most = 0.5;
      for (const entry of outside) {
        const worth = (word) =>
          entry.wordStems.includes(word) ? 1 : entry.kindStems.includes(word) ? 0.9 : entry.meansStems.includes(word) ? 0.4 : 0;
        const score = said.reduce((sum, word) => sum + worth(word), 0);
        if (score > most) [best, most] = [entry, score];
      }
      return best;
    }
  }

  function startFinder(form) {
    const finder = new Finder(JSON.parse(element("index").textContent));
    const list = element("results");
    const items = new Map([...list.children].map((item) => [item.id.slice("method-".length), item]));
    const order = [...items.keys()];
    follow(form, () => {
      const [words, have, want] = ["words", "have", "want"].map((name) => form.elements.namedItem(name).value);
      const matches = finder.rank(words, have, want);
      const bySlug = new Map(matches.map((match) => [match.slug, match]));
      const rest = order.filter((slug) => !bySlug.has(slug));
      list.append(...[...matches.map((match) => match.slug), ...rest].map((slug) => items.get(slug)));
      for (const [slug, item] of items) {
        const match = bySlug.get(slug);
        item.hidden = !match;
        const because = item.querySelector(".because");
        because.hidden = !match || !match.said.length;
        because.textContent = match ? `because you said ${match.said.join(", ")}` : "";
      }
      const asked = words.trim() || have || want;
      element("found").textContent = matches.length ? counted(matches.length) : `None of ${counted(order.length)} fits.`;
      const outside = asked ? finder.outside(words, have, want) : null;
      const note = element("outside");
      note.hidden = !outside;
      if (outside) {
        const lead = matches.length ? "If none of these fits" : "Use instead";
        note.textContent = `${lead}: ${outside.library} (${outside.install}). ${outside.sentence}`;
      }
    });
  }

  // ---------------------------------------------------------------- filters of the table

  function startFilters(form) {
    const rows = [...element("methods").tBodies[0].rows];
    follow(form, () => {
      const chosen = [...form.elements].filter((control) => control instanceof HTMLSelectElement && control.value);
      let shown = 0;
      for (const row of rows) {
        row.hidden = !chosen.every((control) => row.dataset[control.name].split("|").includes(control.value));
        if (!row.hidden) shown += 1;
      }
      element("shown").textContent = `${shown} of ${counted(rows.length)}`;
    });
  }

  // ---------------------------------------------------------------- charts

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Axes and words in the page's colours and type; those of data are left to the chart.
  function look(narrow) {
    const text = { labelColor: colour("--ink"), titleColor: colour("--ink") };
    const font = getComputedStyle(document.body).fontFamily;
    return {
      background: "transparent",
      font,
      aria: false,
      view: { stroke: colour("--line") },
      title: { color: colour("--ink"), subtitleColor: colour("--soft"), anchor: "start", fontSize: 14 },
      axis: { ...text, domainColor: colour("--line"), tickColor: colour("--line"), gridColor: colour("--faint"), labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelOverlap: true },
      header: text,
      legend: {
        ...text,
        labelFontSize: 12,
        titleFontSize: 12,
        titleFontWeight: "normal",
        // Beside a narrow chart it would leave no room for the chart.
        ...(narrow ? { orient: "bottom", columns: 1 } : {}),
      },
      rule: { color: colour("--soft") },
      text: { color: colour("--ink") },
      range: { category: colour("--category").split(/\s+/) },
    };
  }

  const drawn = new Map();
  // A specification that names an address gets an error, never an answer.
  const refuse = () => Promise.reject(new Error("a chart of this page may not load anything"));
  const loader = { load: refuse, sanitize: refuse, http: refuse, file: refuse };

  function isLarge(spec) {
    const rows = Object.values(spec.datasets || {}).reduce((sum, rows) => sum + rows.length, 0);
    return rows > 3000;
  }

  async function draw(plot) {
    const spec = JSON.parse(plot.parentElement.querySelector(".spec").textContent);
    for (const parameter of spec.params || []) {
      const value = colour(`--chart-${parameter.name}`);
      if (value) parameter.value = value;
    }
    const wide = spec.width === "container";
    if (wide) spec.autosize = { type: "fit-x", contains: "padding" };
    plot.classList.toggle("wide", wide);
    const before = drawn.get(plot);
    if (before) before.finalize();
    try {
      const result = await window.vegaEmbed(plot, spec, {
        mode: "vega-lite",
        renderer: isLarge(spec) ? "canvas" : "svg",
        actions: false,
        // What Vega-Lite remarks about a chart of a study is not for its readers: errors alone are level 1.
        logLevel: 1,
        // Expressions are interpreted: the page forbids the browser to compile any.
        ast: true,
        config: look(plot.clientWidth < 560),
        loader,
        tooltip: { theme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light" },
      });
      drawn.set(plot, result);
    } catch (error) {
      plot.textContent = "This chart could not be drawn.";
      console.error(error);
    }
  }

  function startCharts(plots) {
    // A page may hold dozens of charts: each is drawn when it comes near.
    const near = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) {
          if (!entry.isIntersecting) continue;
          near.unobserve(entry.target);
          draw(entry.target);
        }
      },
      { rootMargin: "600px" },
    );
    plots.forEach((plot) => near.observe(plot));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => [...drawn.keys()].forEach(draw));
    window.addEventListener("beforeprint", () => plots.filter((plot) => !drawn.has(plot)).forEach(draw));
  }

  // ---------------------------------------------------------------- copying

  function addCopyButton(box) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const text = box.querySelector("code").textContent;
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        // Not allowed here: select the text, so that the keyboard can copy it.
        getSelection().selectAllChildren(box.querySelector("code"));
        button.textContent = "Selected";
      }
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    box.append(button);
  }

  const finder = element("finder");
  if (finder) startFinder(finder);
  const filters = element("filters");
  if (filters) startFilters(filters);
  const plots = [...document.querySelectorAll(".plot")];
  if (plots.length && window.vegaEmbed) startCharts(plots);
  if (navigator.clipboard) document.querySelectorAll(".copy").forEach(addCopyButton);
})();
