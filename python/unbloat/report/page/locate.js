// The page of a located path, of a run of the agent, or of a measurement: one layer, curves by name; distributions have a
// layer for each phase.
const facts = JSON.parse(document.getElementById("facts").textContent);

class PathPage {
  constructor() {
    this.host = document.getElementById("charts");
    this.ready = this.fill();
  }

  async fill() {
    const data = await FlowData.open(facts.tables, facts.event_kinds, "path", {}, 0, facts.series);
    const view = new View(0, Math.max(facts.duration_s, 0.001));
    this.view = view;
    const layers = [{ label: facts.stem, data }];
    const phases = await Promise.all(
      (facts.phases || []).map(async ({ label, key }) => ({
        label,
        data: await FlowData.open(facts.tables, facts.event_kinds, key, {}, 0, []),
      })),
    );
    const [range, reset] = rangeTools(view);
    this.host.append(
      make("div", { class: "toolbar" }, range, make("div", { class: "tools" }, reset)),
    );
    const panels = facts.charts.map(
      (spec) =>
        new Panel(
          new Chart(spec, spec.unit === "share" ? phases : layers, view, {}),
          view,
          facts.stem,
          facts.stem.replace(/[^A-Za-z0-9]+/g, "-"),
          [],
        ),
    );
    this.board = new Board(this.host, view, panels);
    this.board.draw();
    timings.first_chart_ms = Math.round(performance.now());
    document.documentElement.dataset.shown = "locate";
  }
}

Theme.start();
window.unbloat = { page: new PathPage(), timings };
