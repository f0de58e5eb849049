// A chart on the page: title, legend that toggles, drawing, crosshair, read-out, figures, findings, export.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const reduced = matchMedia("(prefers-reduced-motion: reduce)");
const Theme = {
  get name() {
    return (
      document.documentElement.dataset.theme ||
      (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")
    );
  },
  get colors() {
    return THEMES[this.name];
  },
  listeners: [],
  flip() {
    document.documentElement.dataset.theme = this.name === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("unbloat-theme", document.documentElement.dataset.theme);
    } catch {
      /* a page opened from a file may have no storage */
    }
    for (const act of this.listeners) act();
  },
  start() {
    try {
      const kept = localStorage.getItem("unbloat-theme");
      if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
    } catch {
      /* as above */
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      for (const act of this.listeners) act();
    });
    document.getElementById("theme").addEventListener("click", () => this.flip());
  },
};

const wide = matchMedia("(min-width: 1080px)");
const timings = { first_chart_ms: null, redraw_ms: [], inflate_ms: null };

const SEVERITY = { serious: ["▲", "serious"], warning: ["●", "warning"], info: ["i", "note"] };

// A finding in words, with its figures and its cure; choosing it shows the time in which it held.
function findingCard(finding, view, scrollTo) {
  const [sign, word] = SEVERITY[finding.severity] || SEVERITY.info;
  let values = {};
  try {
    values = JSON.parse(finding.values) || {};
  } catch {
    /* not JSON: shown without figures */
  }
  const chips = Object.entries(values).map(([name, value]) =>
    make("li", {}, make("span", {}, inWords(name)), " ", make("b", {}, asFigure(name, value))),
  );
  const timed = view && finding.to_s > finding.from_s;
  const zoom = timed
    ? make(
        "button",
        {
          type: "button",
          class: "when",
          title: "Show this time in all charts",
          onclick: () => {
            view.frame(finding.from_s, finding.to_s);
            if (scrollTo) scrollTo();
          },
        },
        // On the clock of the text, which is that of the capture.
        `${asSeconds(finding.from_s + (finding.shift ?? 0))} – ${asSeconds(finding.to_s + (finding.shift ?? 0))}`,
      )
    : null;
  return make(
    "article",
    { class: `finding ${finding.severity}` },
    make(
      "header",
      {},
      make("span", { class: "sign", "aria-hidden": "true" }, sign),
      make("h4", {}, finding.rule.replaceAll("-", " ")),
      make("span", { class: "severity" }, word),
      zoom,
    ),
    make("p", {}, finding.text),
    chips.length
      ? make(
          "details",
          {},
          make("summary", {}, "Evidence"),
          make("ul", { class: "chips" }, ...chips),
        )
      : null,
    finding.cure ? make("p", { class: "cure" }, make("b", {}, "Cure: "), finding.cure) : null,
  );
}

class Panel {
  constructor(chart, view, about, fileName, findings) {
    this.chart = chart;
    this.view = view;
    this.about = about;
    this.fileName = fileName;
    const spec = chart.spec;
    const id = `chart-${spec.name}`;
    const missing = chart.missing();
    this.element = make("section", { class: "card panel", id, "aria-labelledby": `${id}-title` });
    const tools = missing.length
      ? null
      : make(
          "div",
          { class: "tools" },
          make(
            "button",
            {
              type: "button",
              class: "quiet",
              title: "Save as vector picture",
              "aria-label": `Save ${spec.title} as SVG`,
              "data-export": "svg",
              onclick: () => this.saveSvg(),
            },
            "SVG",
          ),
          make(
            "button",
            {
              type: "button",
              class: "quiet",
              title: "Save as picture",
              "aria-label": `Save ${spec.title} as PNG`,
              "data-export": "png",
              onclick: () => this.savePng(),
            },
            "PNG",
          ),
        );
    this.element.append(
      make("div", { class: "cardhead" }, make("h3", { id: `${id}-title` }, spec.title), tools),
      make("p", { class: "about" }, spec.about),
    );
    const body = make("div", { class: "body" });
    this.element.append(body);
    // What the chart shows in words and figures stands beside it, so that all drawings are equally wide and their
    // time axes lie one under the other.
    const side = make(
      "div",
      { class: "side" },
      ...findings.map((finding) => findingCard(finding, view)),
    );
    if (missing.length) {
      this.element.classList.add("empty");
      body.append(
        make(
          "div",
          { class: "drawing" },
          make(
            "p",
            { class: "note" },
            `Nothing to draw: not measured in this direction (${missing.map((need) => need.replace(".", " · ")).join(", ")}).`,
          ),
        ),
      );
      body.append(side);
      return;
    }
    this.legend = make("div", { class: "legend" });
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.line = make("div", { class: "cross", hidden: true });
    this.selection = make("div", { class: "selection", hidden: true });
    this.plot = make(
      "div",
      {
        class: "plot",
        tabindex: spec.unit === "share" ? null : "0",
        role: spec.unit === "share" ? "img" : "application",
        "aria-roledescription": "chart",
        "aria-label": `${spec.title}. ${spec.about}`,
        "aria-describedby": `${id}-read`,
      },
      this.canvas,
      this.line,
      this.selection,
    );
    this.plot.style.height = `${chart.height()}px`;
    this.readout = make("output", { class: "read", id: `${id}-read`, "aria-live": "off" });
    this.factor = make("p", { class: "note" });
    this.figures = make("details", { class: "figures" }, make("summary", {}, "Figures"));
    const drawing = make(
      "div",
      { class: "drawing" },
      this.legend,
      this.plot,
      this.readout,
      this.factor,
    );
    side.append(this.figures);
    // Open where the table is no taller than the drawing.
    this.figures.open =
      !findings.length && wide.matches && chart.height() >= 200 && !chart.overlaid;
    if (this.figures.open) this.fillFigures();
    body.append(drawing);
    body.append(side);
    this.fillLegend();
    this.figures.addEventListener("toggle", () => this.fillFigures());
    if (spec.unit !== "share") steer(this.plot, chart, view, this.selection);
    this.sayFactor();
  }

  sayFactor() {
    const data = this.chart.layers[0].data,
      words = [];
    const sequence = this.chart.spec.unit === "sequence";
    const merged = sequence
      ? ["data", "again", "ack", "sack"].filter((kind) => data[kind] && data[kind].factor > 1)
      : [];
    if (merged.length)
      words.push(
        `This flow has more segments than the page's cap: ${merged.map((kind) => `${{ data: "data segments", again: "retransmitted segments", ack: "ACKs", sack: "SACK blocks" }[kind]} are merged by ${data[kind].factor}`).join(", ")}.`,
      );
    // The analysis thins out on its own beyond its cap: then there are fewer rows than packets.
    const stored =
      (data.data ? data.data.rows : 0) +
      (data.again ? data.again.rows : 0) +
      (data.late ? data.late.rows : 0);
    if (sequence && !merged.length && stored && data.figures.data_packets > 1.5 * stored)
      words.push(
        `This flow has more segments than the page's cap: of ${asCount(data.figures.data_packets)} data packets ${asCount(stored)} are drawn.`,
      );
    if (sequence)
      words.push(
        "Zoomed out, each pixel column shows the lowest and highest byte of its segments.",
      );
    if (!sequence && data.samples && data.samples.factor > 1)
      words.push(`${data.samples.factor} bins are merged into one.`);
    if (data.events && data.events.factor > 1 && sequence)
      words.push(`Of the events every ${data.events.factor}th is marked.`);
    this.factor.textContent = words.join(" ");
    this.factor.hidden = !words.length;
  }

  fillLegend() {
    const chart = this.chart;
    if (chart.spec.unit === "share" && !chart.overlaid) {
      this.legend.hidden = true;
      return;
    }
    const keyOf = (entry) => {
      const canvas = make("canvas", { width: 36, height: 32, "aria-hidden": "true" });
      const context = canvas.getContext("2d");
      context.scale(2, 2);
      drawKey(new CanvasPen(context, Theme.colors), 1, 8, entry);
      return canvas;
    };
    const toggles = !chart.overlaid && chart.spec.unit !== "limit";
    const entries = toggles
      ? chart.marks.map((mark) => ({ key: mark.mark, mark, label: mark.label }))
      : chart.legend();
    // One switch for all marks of the same name (ticks and diamonds that mean the same).
    const seen = new Set();
    this.legend.replaceChildren(
      ...entries
        .filter((entry) => !seen.has(entry.label) && seen.add(entry.label))
        .map((entry) => {
          if (!toggles)
            return make(
              "span",
              { class: "key", title: entry.name ? chart.words[entry.name].meaning : null },
              keyOf(entry),
              entry.label,
            );
          return make(
            "button",
            {
              type: "button",
              class: "key",
              "aria-pressed": String(!chart.hidden.has(entry.label)),
              onclick: (event) => {
                if (chart.hidden.has(entry.label)) chart.hidden.delete(entry.label);
                else chart.hidden.add(entry.label);
                event.currentTarget.setAttribute(
                  "aria-pressed",
                  String(!chart.hidden.has(entry.label)),
                );
                this.draw();
              },
            },
            keyOf(entry),
            entry.label,
          );
        }),
    );
  }

  draw() {
    if (!this.canvas) return;
    const width = this.plot.clientWidth,
      height = this.chart.height();
    if (!width) return;
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    if (
      this.canvas.width !== Math.round(width * ratio) ||
      this.canvas.height !== Math.round(height * ratio)
    ) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    this.chart.draw(new CanvasPen(context, Theme.colors), width, height);
    this.cross();
    if (this.figures.open) this.fillFigures();
  }

  cross() {
    if (!this.canvas) return;
    const frame = this.chart.frame,
      t = this.view.at;
    const inside = frame && t !== null && t >= this.view.t0 && t <= this.view.t1;
    this.line.hidden = !inside;
    if (this.chart.spec.unit === "share") {
      this.readout.hidden = true;
      return;
    }
    if (!inside) {
      this.readout.replaceChildren();
      return;
    }
    this.line.style.transform = `translateX(${frame.x(t)}px)`;
    this.line.style.top = `${frame.top}px`;
    this.line.style.height = `${frame.h}px`;
    this.readout.replaceChildren(
      make("b", {}, timeText(t, this.view.t1 - this.view.t0)),
      ...this.chart.read(t).map((one) =>
        make(
          "span",
          {
            "data-column": typeof one.column === "string" ? one.column : one.label,
            "data-value": Array.isArray(one.value) ? one.value.join(" ") : String(one.value),
          },
          make("i", { style: `background:${Theme.colors[one.color] || one.color}` }),
          `${one.label} `,
          make("b", {}, one.words),
        ),
      ),
    );
  }

  fillFigures() {
    const spec = this.chart.spec,
      rows = [];
    const layers = this.chart.layers;
    for (const [words, name] of spec.figures) {
      const values = layers.map((layer) => asFigure(name, layer.data.figures[name]));
      if (values.some((value) => value !== NOTHING))
        rows.push(
          make(
            "tr",
            {},
            make("th", { scope: "row" }, words),
            ...values.map((value) => make("td", {}, value)),
          ),
        );
    }
    const parts = [make("summary", {}, "Figures")];
    const heads =
      layers.length > 1
        ? make(
            "thead",
            {},
            make(
              "tr",
              {},
              make("th", { scope: "col" }, "Whole flow"),
              ...layers.map((layer) => make("th", { scope: "col" }, layer.label)),
            ),
          )
        : null;
    if (rows.length)
      parts.push(
        make(
          "div",
          { class: "tablebox" },
          make(
            "table",
            {},
            make("caption", {}, "The whole flow"),
            heads,
            make("tbody", {}, ...rows),
          ),
        ),
      );
    const summary = this.chart.summary();
    if (summary.length) {
      parts.push(
        make(
          "div",
          { class: "tablebox" },
          make(
            "table",
            { class: "insight" },
            make(
              "caption",
              {},
              `In sight: ${timeText(this.view.t0, 1e3)} – ${timeText(this.view.t1, 1e3)}`,
            ),
            make(
              "thead",
              {},
              make(
                "tr",
                {},
                ...["", "smallest", "mean", "largest"].map((head) =>
                  make("th", { scope: "col" }, head),
                ),
              ),
            ),
            make(
              "tbody",
              {},
              ...summary.map((row) =>
                make(
                  "tr",
                  {},
                  make("th", { scope: "row" }, row[0]),
                  ...row.slice(1).map((cell) => make("td", {}, cell)),
                ),
              ),
            ),
          ),
        ),
      );
    }
    this.figures.replaceChildren(...parts);
  }

  saveSvg() {
    save(
      new Blob([asSvg(this.chart, this.about)], { type: "image/svg+xml" }),
      `${this.fileName}-${this.chart.spec.name}.svg`,
    );
  }
  async savePng() {
    save(await asPng(this.chart, this.about), `${this.fileName}-${this.chart.spec.name}.png`);
  }
}

// All panels that share one view.
class Board {
  constructor(host, view, panels) {
    this.panels = panels;
    this.view = view;
    host.append(...panels.map((panel) => panel.element));
    view.onRange.push(() => this.draw());
    view.onCross.push(() => {
      for (const panel of panels) panel.cross();
    });
    this.resize = new ResizeObserver(() => this.draw());
    this.resize.observe(host);
    this.restyle = () => {
      for (const panel of panels) {
        if (panel.legend) panel.fillLegend();
      }
      this.draw();
    };
    Theme.listeners.push(this.restyle);
  }

  draw() {
    const begun = performance.now();
    for (const panel of this.panels) panel.draw();
    timings.redraw_ms.push(Math.round((performance.now() - begun) * 100) / 100);
    if (timings.redraw_ms.length > 500) timings.redraw_ms.shift();
  }

  close() {
    this.resize.disconnect();
    Theme.listeners = Theme.listeners.filter((act) => act !== this.restyle);
  }
}

/** The time that is shown, and the button that shows everything again. */
function rangeTools(view) {
  const range = make("output", { class: "range", "aria-live": "polite" });
  const reset = make(
    "button",
    { type: "button", class: "quiet", id: "reset", onclick: () => view.reset() },
    "Show all",
  );
  const say = () => {
    range.textContent = `${timeText(view.t0, view.t1 - view.t0)} – ${timeText(view.t1, view.t1 - view.t0)}`;
    reset.disabled = !view.zoomed;
  };
  view.onRange.push(say);
  say();
  return [range, reset];
}
