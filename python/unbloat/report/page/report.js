// The page of a run: choose a connection, choose a direction, see its charts with what they show in words.
const facts = JSON.parse(document.getElementById("facts").textContent);
const asRows = (table) => {
  const names = Object.keys(table),
    count = names.length ? table[names[0]].length : 0;
  return Array.from({ length: count }, (_, i) =>
    Object.fromEntries(names.map((name) => [name, table[name][i]])),
  );
};

const flows = new Map(asRows(facts.flows).map((flow) => [flow.direction, flow]));
const findings = asRows(facts.findings);
const charted = new Set(facts.charted);
const end = (address, port) =>
  port ? (address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`) : address;

const connections = asRows(facts.connections).map((connection) => {
  const sides = [flows.get(`${connection.id}→`), flows.get(`${connection.id}←`)];
  const weight = (flow) => (flow ? flow.bytes || flow.payload_bytes || flow.wire_bytes || 0 : -1);
  const direction = weight(sides[1]) > weight(sides[0]) ? 1 : 0;
  // What ICMP has instead of ports is its identifier.
  const icmp = connection.proto === "icmp";
  const a = end(connection.a_addr, icmp ? 0 : connection.a_port),
    number = icmp && connection.a_port ? `, id ${connection.a_port}` : "",
    b = `${end(connection.b_addr, icmp ? 0 : connection.b_port)}${number}`;
  const row = {
    ...connection,
    sides,
    direction,
    main: sides[direction],
    a,
    b,
    towardsA: direction === 1,
    charted: charted.has(connection.id),
    words: `${a} ${direction ? "←" : "→"} ${b}`,
    share: facts.run.bytes ? connection.bytes / facts.run.bytes : 0,
  };
  const limit = row.main && row.main.limit;
  const name = (facts.run.interfaces || [])[connection.interface] || "";
  row.search = [
    connection.proto,
    a,
    b,
    limit,
    limit && facts.limits[limit] && facts.limits[limit].short,
    row.main && row.main.grade,
    name,
    `#${connection.id}`,
  ]
    .join(" ")
    .toLowerCase();
  return row;
});
const byId = new Map(connections.map((connection) => [connection.id, connection]));

// Findings of a flow that no chart claims are shown above the charts.
const claimed = new Map(
  facts.charts.flatMap((chart) => chart.rules.map((rule) => [rule, chart.name])),
);
const ranks = { serious: 0, warning: 1, info: 2 };
const findingsOf = (direction) =>
  findings
    .filter((finding) => finding.direction === direction)
    .sort((a, b) => ranks[a.severity] - ranks[b.severity]);

class Page {
  constructor() {
    this.host = document.getElementById("charts");
    this.opened = new Map();
    const general = findings.filter((finding) => finding.direction === null);
    if (general.length) {
      const box = document.getElementById("general");
      box.hidden = false;
      box.append(...general.map((finding) => findingCard(finding, null)));
    }
    this.table = new ConnectionTable(
      document.getElementById("connections"),
      document.getElementById("filter"),
      document.getElementById("table-note"),
      connections,
      {
        connections: connections.length + facts.unlisted.connections,
        unlisted: facts.unlisted.connections,
        unlisted_bytes: facts.unlisted.bytes,
      },
      facts.limits,
      (id, jump) => {
        this.go(id, null);
        if (jump) this.host.scrollIntoView({ behavior: reduced.matches ? "auto" : "smooth" });
      },
    );
    addEventListener("hashchange", () => this.fromHash());
    this.fromHash();
  }

  fromHash() {
    const found = /^#c(\d+)(?:-(ab|ba))?$/.exec(location.hash);
    const first = connections.find((connection) => connection.charted) || connections[0];
    const id = found && byId.has(Number(found[1])) ? Number(found[1]) : first && first.id;
    if (id === undefined) {
      this.host.replaceChildren(
        make("p", { class: "card note" }, "No connection in this capture."),
      );
      document.documentElement.dataset.shown = "nothing";
      return;
    }
    this.choose(id, found && found[2] ? (found[2] === "ba" ? 1 : 0) : null);
  }

  go(id, direction) {
    const way = direction === null ? "" : direction ? "-ba" : "-ab";
    history.replaceState(null, "", `#c${id}${way}`);
    this.choose(id, direction);
  }

  async open(flow) {
    if (!this.opened.has(flow.direction)) {
      const begun = performance.now();
      this.opened.set(
        flow.direction,
        await FlowData.open(
          facts.tables,
          facts.event_kinds,
          flow.direction,
          flow,
          0,
          facts.series || [],
        ),
      );
      timings.inflate_ms = Math.round(performance.now() - begun);
      // Two flows at a time stay inflated: a page of twenty would hold hundreds of megabytes.
      for (const id of [...this.opened.keys()].slice(0, -2)) this.opened.delete(id);
    }
    return this.opened.get(flow.direction);
  }

  async choose(id, direction) {
    const connection = byId.get(id);
    const way = direction === null ? connection.direction : direction;
    if (this.showing === `${id}/${way}`) return;
    this.showing = `${id}/${way}`;
    this.table.mark(id);
    const flow = connection.sides[way];
    const data = flow && connection.charted ? await this.open(flow) : null;
    if (this.showing !== `${id}/${way}`) return;
    if (this.board) this.board.close();
    this.board = null;
    this.host.replaceChildren(this.heading(connection, way, flow));
    if (!data || !(data.samples || data.data || data.ack)) {
      this.host.append(
        make(
          "p",
          { class: "card note" },
          connection.charted
            ? "This direction carried no data that could be drawn; its figures are above."
            : `The report draws the largest connections only (${charted.size} of them); the figures of this one are above. Write it with a larger “top” to draw more.`,
        ),
      );
      document.documentElement.dataset.shown = this.showing;
      return;
    }
    const view = this.viewOf(connection, data);
    this.host.append(this.toolbar(view));
    const about = `${connection.a} ${way ? "←" : "→"} ${connection.b}`;
    const own = findingsOf(flow.direction);
    const panels = facts.charts.map(
      (spec) =>
        new Panel(
          new Chart(spec, [{ data, label: about }], view, facts.limits),
          view,
          about,
          `${facts.stem}-c${id}-${way ? "ba" : "ab"}`,
          own.filter((finding) => claimed.get(finding.rule) === spec.name),
        ),
    );
    const loose = own.filter((finding) => !claimed.has(finding.rule));
    if (loose.length)
      this.host.append(
        make(
          "section",
          { class: "findings", "aria-label": "Further findings" },
          ...loose.map((finding) => findingCard(finding, view)),
        ),
      );
    this.board = new Board(this.host, view, panels);
    this.view = view;
    this.data = data;
    this.board.draw();
    if (timings.first_chart_ms === null) timings.first_chart_ms = Math.round(performance.now());
    document.documentElement.dataset.shown = this.showing;
  }

  viewOf(connection, data) {
    let last = connection.start_s + connection.duration_s,
      first = connection.start_s;
    const s = data.samples;
    if (s && s.rows) {
      first = Math.min(first, s.t_s[0]);
      // Hours of keep-alives after the transfer would squeeze it to a line: the view ends with the last bin.
      last = Math.max(last, s.t_s[s.rows - 1] + s.span_s[s.rows - 1]);
    }
    return new View(first, last);
  }

  heading(connection, way, flow) {
    const side = (direction) => {
      const one = connection.sides[direction];
      return make(
        "button",
        {
          type: "button",
          "aria-pressed": String(direction === way),
          "data-way": direction ? "ba" : "ab",
          onclick: () => {
            this.go(connection.id, direction);
            const again = this.host.querySelector(`[data-way="${direction ? "ba" : "ab"}"]`);
            if (again) again.focus();
          },
        },
        make("b", {}, direction ? "b → a" : "a → b"),
        ` ${asBytes(one ? one.bytes || one.payload_bytes || one.wire_bytes : 0)}`,
      );
    };
    const place = (facts.run.interfaces || [])[connection.interface];
    const made = ["simulated", "lab", "measured"].includes(facts.run.origin);
    const ran = flow
      ? [flow.congestion, flow.window_law ? `window ${flow.window_law}` : null]
          .filter(Boolean)
          .join(", ")
      : "";
    const words = [
      connection.proto.toUpperCase(),
      made ? `transfer ${connection.transfer}` : null,
      made && ran ? ran : null,
      place ? `interface ${place}` : null,
      connection.mptcp ? "Multipath TCP subflow" : null,
      connection.proto === "tcp" && !connection.syn_seen ? "no SYN in the capture" : null,
      flow && flow.vantage && flow.vantage !== "unknown"
        ? `captured at the ${flow.vantage === "middle" ? "middle of the path" : flow.vantage}`
        : null,
      connection.proto === "tcp" && made && connection.end !== "rst"
        ? connection.end === "fin"
          ? "closed"
          : "open at the end of the run"
        : connection.proto === "tcp"
          ? `ended by ${connection.end === "fin" ? "FIN" : connection.end === "rst" ? "reset" : "nothing in the capture"}`
          : null,
    ]
      .filter(Boolean)
      .join(" · ");
    const tiles = flow
      ? [
          ["Goodput", "goodput_bps", flow.peak_bps ? `best second ${asRate(flow.peak_bps)}` : ""],
          [
            "RTT",
            null,
            isFigure(flow.initial_rtt_ms) ? `handshake ${asMs(flow.initial_rtt_ms)}` : "",
            rttText(flow),
          ],
          [
            "Added delay p95",
            "queue_ms_p95",
            isFigure(flow.queue_ms_p50) ? `median ${asMs(flow.queue_ms_p50)}` : "",
          ],
          [
            "In flight, largest",
            "in_flight_bytes_max",
            isFigure(flow.in_flight_over_bdp)
              ? `${placed(flow.in_flight_over_bdp)} × what the path holds`
              : "",
          ],
          [
            "Receive window",
            "rwnd_bytes_max",
            isFigure(flow.window_full_s) && flow.window_full_s > 0
              ? `full for ${asSeconds(flow.window_full_s)} (${asShare(flow.window_full_share)})`
              : "never full",
          ],
          [
            "Retransmitted",
            "retransmissions",
            isFigure(flow.loss_rate) ? `loss ${asShare(flow.loss_rate)}` : "",
          ],
        ].filter(([, name, , text]) => (text ? text !== NOTHING : isFigure(flow[name])))
      : [];
    const shares = flow
      ? Object.keys(facts.limits)
          .map((name) => [name, flow[`share_${name}`]])
          .filter(([, share]) => share > 0)
      : [];
    return make(
      "section",
      { class: "card connection", "aria-label": "The chosen connection" },
      make(
        "div",
        { class: "cardhead" },
        make(
          "div",
          {},
          make(
            "h2",
            {},
            make("span", { class: "number" }, `#${connection.id} `),
            connection.a,
            make("wbr"),
            make("span", { class: "way" }, way ? " ← " : " → "),
            connection.b,
          ),
          make("p", { class: "about" }, words),
        ),
        make(
          "div",
          { class: "ways", role: "group", "aria-label": "Direction of the data" },
          side(0),
          side(1),
        ),
      ),
      tiles.length
        ? make(
            "dl",
            { class: "tiles" },
            flow.grade
              ? make(
                  "div",
                  {},
                  make("dt", {}, "Bufferbloat"),
                  make("dd", {}, make("span", { class: gradeClass(flow.grade) }, flow.grade)),
                  make("dd", { class: "sub" }, gradeSub(flow)),
                )
              : null,
            ...tiles.map(([words, name, sub, text]) =>
              make(
                "div",
                {},
                make("dt", {}, words),
                make("dd", {}, text || asFigure(name, flow[name])),
                sub ? make("dd", { class: "sub" }, sub) : null,
              ),
            ),
          )
        : null,
      shares.length
        ? make(
            "div",
            { class: "shares" },
            make("h3", {}, "Time per limit"),
            make(
              "ul",
              {},
              ...shares
                .sort((a, b) => b[1] - a[1])
                .map(([name, share]) =>
                  make("li", {}, limitChip(name, facts.limits), make("b", {}, asShare(share))),
                ),
            ),
          )
        : flow.capture_lacks || flow.too_short
          ? make(
              "p",
              { class: "about" },
              flow.capture_lacks
                ? `Time per limit: unknown, the capture lacks ${LACKING[flow.capture_lacks]}`
                : `Time per limit: ${TOO_SHORT}`,
            )
          : null,
    );
  }

  toolbar(view) {
    const [range, reset] = rangeTools(view);
    const button = (words, label, act) =>
      make(
        "button",
        { type: "button", class: "quiet", "aria-label": label, title: label, onclick: act },
        words,
      );
    return make(
      "div",
      { class: "toolbar" },
      range,
      make(
        "div",
        { class: "tools" },
        button("◂", "Earlier", () => view.pan(-0.3)),
        button("−", "Zoom out", () => view.zoom(1 / 0.6)),
        button("+", "Zoom in", () => view.zoom(0.6)),
        button("▸", "Later", () => view.pan(0.3)),
        reset,
      ),
      make(
        "details",
        { class: "keys" },
        make("summary", {}, "Keys"),
        make(
          "p",
          {},
          "Drag zooms in, double click or Esc shows everything. On a chosen chart the wheel zooms; Shift and drag moves. Keys: + − zoom, ← → move the crosshair, Shift ← → move the view, PgUp PgDn a screen, Home End. On a touch screen: two fingers zoom, one finger reads.",
        ),
      ),
    );
  }
}

Theme.start();
const page = new Page();
window.unbloat = { page, timings };
