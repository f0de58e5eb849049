// The page of a comparison: every chart that can be overlaid, one layer per run, time from each one's first data.
const facts = JSON.parse(document.getElementById("facts").textContent);

class Comparison {
  constructor() {
    this.host = document.getElementById("charts");
    this.ready = this.fill();
  }

  async fill() {
    const layers = await Promise.all(
      facts.layers.map(async (layer, place) => ({
        label: layer.label,
        data: await FlowData.open(
          facts.tables,
          facts.event_kinds,
          `r${place}`,
          layer.flow,
          layer.shift,
          layer.series,
        ),
      })),
    );
    const ends = layers.map(({ data }) =>
      data.samples
        ? data.samples.t_s[data.samples.rows - 1] + data.samples.span_s[data.samples.rows - 1]
        : 0,
    );
    const view = new View(0, Math.max(...ends, 0.001));
    this.view = view;
    this.layers = layers;
    const drawable = facts.charts.filter(
      (chart) =>
        ["limit", "share"].includes(chart.unit) ||
        chart.marks.some((mark) => mark.overlay || mark.mark === "many"),
    );
    const claimed = new Map(
      facts.charts.flatMap((chart) => chart.rules.map((rule) => [rule, chart.name])),
    );
    const findings = facts.layers.flatMap((layer) => {
      const names = Object.keys(layer.findings);
      return (layer.findings.rule || []).map((_, i) => {
        const finding = Object.fromEntries(names.map((name) => [name, layer.findings[name][i]]));
        return {
          ...finding,
          from_s: finding.from_s - layer.shift,
          to_s: finding.to_s - layer.shift,
          shift: layer.shift,
          text: `${layer.label}: ${finding.text}`,
        };
      });
    });
    const [range, reset] = rangeTools(view);
    this.host.append(
      make("div", { class: "toolbar" }, range, make("div", { class: "tools" }, reset)),
    );
    const about = layers.map((layer) => layer.label).join(" · ");
    const panels = drawable.map(
      (spec) =>
        new Panel(
          new Chart(spec, layers, view, facts.limits),
          view,
          about,
          `compare-${layers.map((layer) => layer.label.replace(/[^A-Za-z0-9]+/g, "-")).join("-")}`,
          findings.filter((finding) => claimed.get(finding.rule) === spec.name),
        ),
    );
    this.board = new Board(this.host, view, panels);
    this.board.draw();
    timings.first_chart_ms = Math.round(performance.now());
    document.documentElement.dataset.shown = "compare";
  }
}

Theme.start();
window.unbloat = { page: new Comparison(), timings };
