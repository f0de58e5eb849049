// The table of connections: sorted by bytes, sortable, filterable, walked with the arrow keys.
const COLUMNS = [
  { name: "id", head: "#", value: (c) => c.id, text: (c) => String(c.id), kind: "number" },
  { name: "ends", head: "Connection", value: (c) => c.words, text: null, kind: "text" },
  { name: "bytes", head: "Bytes", value: (c) => c.bytes, text: null, kind: "number" },
  {
    name: "start",
    head: "Start",
    value: (c) => c.start_s,
    text: (c) => asSeconds(c.start_s),
    kind: "number",
    minor: true,
  },
  {
    name: "duration",
    head: "Duration",
    value: (c) => c.duration_s,
    text: (c) => asSeconds(c.duration_s),
    kind: "number",
    minor: true,
  },
  {
    name: "goodput",
    head: "Goodput",
    value: (c) => c.main && c.main.goodput_bps,
    text: (c) => asRate(c.main && c.main.goodput_bps),
    kind: "number",
  },
  {
    name: "rtt",
    head: "RTT min → p95",
    value: (c) => {
      const flow = rttFlow(c);
      return flow && (flow.rtt_ms_p95 ?? flow.rtt_bound_ms_p95 ?? flow.initial_rtt_ms);
    },
    text: (c) => rttText(rttFlow(c)),
    kind: "number",
  },
  {
    name: "retransmissions",
    head: "Retrans",
    value: (c) => c.main && c.main.retransmissions,
    text: (c) => (c.proto === "tcp" ? asCount(c.main && c.main.retransmissions) : NOTHING),
    kind: "number",
    minor: true,
  },
  {
    name: "limit",
    head: "Mostly held back by",
    value: (c) => c.main && (wordsForNoLimit(c) ?? c.main.limit),
    text: null,
    kind: "text",
    minor: true,
  },
  {
    name: "grade",
    head: "Grade",
    value: (c) =>
      c.main && c.main.grade ? ["A+", "A", "B", "C", "D", "F"].indexOf(c.main.grade) : null,
    text: null,
    kind: "number",
  },
];
const TOO_SHORT = "too short to judge";
const LACKS = { data: "data missing", acks: "ACKs missing" };
const LACKING = { data: "most of its data", acks: "most of its ACKs" };
const wordsForNoLimit = (c) =>
  c.main.capture_lacks
    ? LACKS[c.main.capture_lacks]
    : c.main.too_short
      ? TOO_SHORT
      : c.proto === "tcp" && !c.main.data_packets
        ? "no data"
        : null;
// From this base RTT on games feel the path itself, whatever the grade of the added delay.
const LONG_PATH_MS = 100;
const gradeSub = (flow) =>
  flow.rtt_ms_min > LONG_PATH_MS
    ? `by added delay alone, base RTT ${asMs(flow.rtt_ms_min)}`
    : "by added delay under load";
const FIRST_ROWS = 12,
  MORE_ROWS = 100;

const hasRtt = (flow) =>
  Boolean(flow) && (isFigure(flow.rtt_bound_ms_p95) || isFigure(flow.rtt_ms_min));
// The RTT of the path: of the main direction, else of the other one, else of the handshake.
const rttFlow = (c) => (hasRtt(c.main) || !c.main ? c.main : (c.sides.find(hasRtt) ?? c.main));
const rttText = (flow) => {
  if (!flow) return NOTHING;
  const first = asMs(flow.initial_rtt_ms);
  if (isFigure(flow.rtt_bound_ms_p95)) {
    const high = asMs(flow.rtt_bound_ms_p95);
    if (!isFigure(flow.initial_rtt_ms)) return `≤ ${high}`;
    return first === high ? high : `${first} → ≤ ${high}`;
  }
  if (!isFigure(flow.rtt_ms_min)) return first;
  const low = asMs(flow.rtt_ms_min),
    high = asMs(flow.rtt_ms_p95);
  return low === high ? low : `${low} → ${high}`;
};
const gradeClass = (grade) => `grade grade-${grade === "A+" ? "Ap" : grade}`;

function limitChip(name, words) {
  const look = LIMIT_LOOKS[name];
  if (!look) return make("span", {}, NOTHING);
  const canvas = make("canvas", { width: 32, height: 24, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  context.scale(2, 2);
  new CanvasPen(context, Theme.colors).box(0, 0, 16, 12, {
    color: look.fill,
    tile: look.tile,
    ink: look.ink,
  });
  return make("span", { class: "chip", title: words[name].meaning }, canvas, words[name].short);
}

class ConnectionTable {
  constructor(element, filter, note, rows, total, words, choose) {
    Object.assign(this, { element, note, rows, total, words, choose });
    this.sort = { name: "bytes", down: true };
    this.limit = FIRST_ROWS;
    this.wanted = "";
    this.chosen = null;
    filter.addEventListener("input", () => {
      this.wanted = filter.value.trim().toLowerCase();
      this.limit = FIRST_ROWS;
      this.fill();
    });
    this.fill();
  }

  matching() {
    const terms = this.wanted.split(/\s+/).filter(Boolean);
    const column = COLUMNS.find((one) => one.name === this.sort.name);
    const way = this.sort.down ? -1 : 1;
    return this.rows
      .filter((row) => terms.every((term) => row.search.includes(term)))
      .sort((a, b) => {
        const x = column.value(a),
          y = column.value(b);
        // What was never measured comes last either way.
        const none = (v) => v === null || v === undefined;
        if (none(x) || none(y)) return none(x) - none(y) || a.id - b.id;
        return (x < y ? -1 : x > y ? 1 : 0) * way || a.id - b.id;
      });
  }

  fill() {
    const rows = this.matching();
    const head = make(
      "tr",
      {},
      ...COLUMNS.map((column) =>
        make(
          "th",
          {
            scope: "col",
            class: `${column.kind}${column.minor ? " minor" : ""}`,
            "aria-sort":
              this.sort.name === column.name
                ? this.sort.down
                  ? "descending"
                  : "ascending"
                : "none",
          },
          make(
            "button",
            { type: "button", onclick: () => this.sortBy(column) },
            column.head,
            make(
              "span",
              { class: "arrow", "aria-hidden": "true" },
              this.sort.name === column.name ? (this.sort.down ? " ▾" : " ▴") : "",
            ),
          ),
        ),
      ),
    );
    const shown = rows.slice(0, this.limit);
    const body = make("tbody", {}, ...shown.map((row) => this.row(row)));
    this.element.replaceChildren(make("thead", {}, head), body);
    const left = rows.length - shown.length;
    this.note.replaceChildren(
      `${asCount(shown.length)} of ${asCount(this.total.connections)} connections`,
      this.total.unlisted
        ? `; the ${asCount(this.total.unlisted)} smallest (${asBytes(this.total.unlisted_bytes)}) are not listed`
        : "",
      ". ",
      left > 0
        ? make(
            "button",
            {
              type: "button",
              class: "quiet",
              onclick: () => {
                this.limit += MORE_ROWS;
                this.fill();
              },
            },
            `Show ${Math.min(left, MORE_ROWS)} more`,
          )
        : "",
    );
    this.mark();
  }

  sortBy(column) {
    const same = this.sort.name === column.name;
    this.sort = {
      name: column.name,
      down: same ? !this.sort.down : column.kind === "number" && column.name !== "id",
    };
    this.fill();
    const place = COLUMNS.indexOf(column);
    this.element.querySelectorAll("th button")[place].focus();
  }

  row(row) {
    const cells = COLUMNS.map((column) => {
      const cell = make("td", {
        class: `${column.kind}${column.minor ? " minor" : ""} c-${column.name}`,
      });
      if (column.name === "ends")
        cell.append(
          make("span", { class: "proto" }, row.proto.toUpperCase()),
          make(
            "span",
            { class: "ends" },
            row.a,
            make("wbr"),
            make("span", { class: "way" }, row.towardsA ? " ← " : " → "),
            row.b,
          ),
        );
      else if (column.name === "bytes")
        cell.append(
          make("span", {}, asBytes(row.bytes)),
          make(
            "span",
            { class: "sharebar", "aria-hidden": "true" },
            make("i", { style: `width:${(row.share * 100).toFixed(1)}%` }),
          ),
          make("small", {}, asShare(row.share)),
        );
      else if (column.name === "limit")
        cell.append(
          row.main && row.main.limit
            ? limitChip(row.main.limit, this.words)
            : column.value(row) || NOTHING,
        );
      else if (column.name === "grade")
        cell.append(
          row.main && row.main.grade
            ? make("span", { class: gradeClass(row.main.grade) }, row.main.grade)
            : NOTHING,
        );
      else cell.append(column.text(row));
      return cell;
    });
    const element = make(
      "tr",
      {
        "data-id": String(row.id),
        tabindex: "-1",
        class: row.charted ? "charted" : "",
        "aria-label": `Connection ${row.id}: ${row.words}, ${asBytes(row.bytes)}`,
        onclick: () => this.choose(row.id),
        onkeydown: (event) => this.key(event, element),
      },
      ...cells,
    );
    return element;
  }

  key(event, element) {
    const rows = [...this.element.tBodies[0].rows],
      place = rows.indexOf(element);
    const target = {
      ArrowDown: rows[place + 1],
      ArrowUp: rows[place - 1],
      Home: rows[0],
      End: rows[rows.length - 1],
    }[event.key];
    if (target) {
      event.preventDefault();
      target.focus();
      this.choose(Number(target.dataset.id));
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.choose(Number(element.dataset.id), true);
    }
  }

  // One row can be reached with Tab: the chosen one, else the first.
  mark(id = this.chosen) {
    this.chosen = id;
    const rows = [...this.element.tBodies[0].rows];
    let found = false;
    for (const row of rows) {
      const here = Number(row.dataset.id) === id;
      found = found || here;
      row.tabIndex = here ? 0 : -1;
      row.classList.toggle("chosen", here);
      if (here) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
    if (!found && rows.length) rows[0].tabIndex = 0;
  }
}
