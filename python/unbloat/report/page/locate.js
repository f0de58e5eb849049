// The page of a located path, or of a run of the agent: one layer, curves by name.
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
    const [range, reset] = rangeTools(view);
    this.host.append(
      make("div", { class: "toolbar" }, range, make("div", { class: "tools" }, reset)),
    );
    const panels = facts.charts.map(
      (spec) =>
        new Panel(
          new Chart(spec, layers, view, {}),
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
