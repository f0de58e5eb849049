// Packed tables → typed arrays, when a connection is opened. See report/encode.py for the other side.
const TYPES = {
  i1: Int8Array,
  i2: Int16Array,
  i4: Int32Array,
  f4: Float32Array,
  f8: Float64Array,
  u1: Uint8Array,
};

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

async function openTable(index, place) {
  const about = index[place];
  if (!about) return null;
  const buffer = await inflate(fromBase64(document.getElementById(place).textContent.trim()));
  const table = { rows: about.rows, factor: about.factor };
  for (const column of about.columns) {
    const stored = new TYPES[column.type](buffer, column.offset, about.rows);
    const by = column.divide || 1;
    if (column.first === undefined) {
      table[column.name] = by === 1 ? stored : stored.map((value) => value / by);
      continue;
    }
    const values = new Float64Array(about.rows);
    let sum = column.first;
    for (let i = 0; i < about.rows; i += 1) {
      sum += stored[i];
      values[i] = sum / by;
    }
    table[column.name] = values;
  }
  return table;
}

// First index whose value is above x, in ascending values.
function after(values, x, from = 0, to = values.length) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (values[middle] <= x) from = middle + 1;
    else to = middle;
  }
  return from;
}

// Smallest and largest of any range in a few steps: blocks of 64, blocks of blocks, and so on up.
class Pyramid {
  constructor(low, high = low) {
    this.levels = [{ low, high }];
    while (this.levels[this.levels.length - 1].low.length > 128) {
      const below = this.levels[this.levels.length - 1];
      const length = Math.ceil(below.low.length / 64);
      const level = { low: new Float64Array(length), high: new Float64Array(length) };
      for (let i = 0; i < length; i += 1) {
        let small = Infinity,
          large = -Infinity;
        for (let j = i * 64; j < Math.min((i + 1) * 64, below.low.length); j += 1) {
          if (below.low[j] < small) small = below.low[j];
          if (below.high[j] > large) large = below.high[j];
        }
        level.low[i] = small;
        level.high[i] = large;
      }
      this.levels.push(level);
    }
    this.small = Infinity;
    this.large = -Infinity;
  }

  // Sets small and large to those of rows from ≤ i < to; NaN is passed over.
  range(from, to) {
    this.small = Infinity;
    this.large = -Infinity;
    let depth = 0;
    while (from < to) {
      const level = this.levels[depth];
      const up = depth + 1 < this.levels.length;
      const first = up ? Math.min(to, Math.ceil(from / 64) * 64) : to;
      const last = up ? Math.max(first, Math.floor(to / 64) * 64) : to;
      this.scan(level, from, first);
      if (!up) return;
      this.scan(level, last, to);
      from = first / 64;
      to = last / 64;
      depth += 1;
      if (first >= last) return;
    }
  }

  scan(level, from, to) {
    for (let i = from; i < to; i += 1) {
      if (level.low[i] < this.small) this.small = level.low[i];
      if (level.high[i] > this.large) this.large = level.high[i];
    }
  }
}

// Bins in which nothing happened are not stored: they are put back as bins without bytes, so that a pause is a
// pause and no slope. One bin at each end of the gap is enough.
function withPauses(table) {
  const t = table.t_s,
    span = table.span_s,
    rows = table.rows;
  const at = [];
  for (let i = 0; i + 1 < rows; i += 1) if (t[i + 1] - t[i] > span[i] * 1.5) at.push(i);
  if (!at.length) return table;
  const longer = { ...table, rows: rows + 2 * at.length };
  const zero = new Set(["sent_bytes", "delivered_bytes", "retransmissions", "window_full_s"]);
  for (const [name, values] of Object.entries(table)) {
    if (!ArrayBuffer.isView(values)) continue;
    const out = new values.constructor(longer.rows);
    let place = 0,
      next = 0;
    for (let i = 0; i < rows; i += 1) {
      out[place] = values[i];
      place += 1;
      if (at[next] !== i) continue;
      const ends = t[i] + span[i],
        gap = t[i + 1] - ends,
        bin = Math.min(span[i], gap / 2);
      const fill =
        name === "t_s"
          ? [ends, t[i + 1] - bin]
          : name === "span_s"
            ? [gap - bin, bin]
            : name === "limit"
              ? [255, 255]
              : zero.has(name)
                ? [0, 0]
                : [NaN, NaN];
      out[place] = fill[0];
      out[place + 1] = fill[1];
      place += 2;
      next += 1;
    }
    longer[name] = out;
  }
  return longer;
}

// Everything of one flow, ready to be drawn. `shift` moves its time axis (compare page).
class FlowData {
  static async open(index, kinds, key, figures, shift = 0, series = []) {
    const names = ["samples", "events", "data", "again", "ack", "sack"];
    const [samples, ...rest] = await Promise.all(
      names.map((name) => openTable(index, `${key}-${name}`)),
    );
    const data = new FlowData();
    data.figures = figures;
    data.kinds = kinds;
    data.samples = samples && withPauses(samples);
    [data.events, data.data, data.again, data.ack, data.sack] = rest;
    for (const table of [data.samples, ...rest]) {
      if (table && shift) for (let i = 0; i < table.rows; i += 1) table.t_s[i] -= shift;
    }
    data.series = await Promise.all(
      series.map(async (about) => {
        const curve = await openTable(index, about.place);
        if (curve && shift) for (let i = 0; i < curve.rows; i += 1) curve.t_s[i] -= shift;
        return {
          ...about,
          ...(curve || {
            rows: 0,
            t_s: new Float64Array(0),
            value: new Float32Array(0),
            span_s: new Float32Array(0),
          }),
        };
      }),
    );
    if (data.samples) data.rates();
    for (const table of [data.data, data.again, data.sack, data.ack]) {
      if (!table) continue;
      table.to_seq = Float64Array.from(table.from_seq, (from, i) => from + table.length[i]);
    }
    data.splitLate();
    data.cache = new Map();
    return data;
  }

  rates() {
    const s = this.samples;
    // Bins of a delay alone have no bytes.
    if (!s.sent_bytes) return;
    s.sent_bps = Float64Array.from(s.sent_bytes, (bytes, i) =>
      s.span_s[i] > 0 ? (bytes * 8) / s.span_s[i] : NaN,
    );
    s.goodput_bps = Float64Array.from(s.delivered_bytes, (bytes, i) =>
      s.span_s[i] > 0 ? (bytes * 8) / s.span_s[i] : NaN,
    );
  }

  // Late segments that were not sent again are distinguished from retransmissions by the events of the same time and place.
  splitLate() {
    this.late = null;
    if (!this.again || !this.events) return;
    const late = new Set();
    const wanted = ["out_of_order", "ambiguous"].map((name) => this.kinds.indexOf(name));
    for (let i = 0; i < this.events.rows; i += 1) {
      if (wanted.includes(this.events.kind[i])) late.add(Math.round(this.events.t_s[i] * 1e6));
    }
    if (!late.size) return;
    const parts = [[], []];
    for (let i = 0; i < this.again.rows; i += 1)
      parts[late.has(Math.round(this.again.t_s[i] * 1e6)) ? 1 : 0].push(i);
    const take = (rows) => ({
      ...this.again,
      rows: rows.length,
      t_s: Float64Array.from(rows, (i) => this.again.t_s[i]),
      from_seq: Float64Array.from(rows, (i) => this.again.from_seq[i]),
      to_seq: Float64Array.from(rows, (i) => this.again.to_seq[i]),
    });
    const all = this.again;
    [this.again, this.late] = [take(parts[0]), { ...all, ...take(parts[1]) }];
  }

  has(need) {
    const [table, column] = need.split(".");
    if (
      [
        "queues",
        "probes",
        "transfer_goodput",
        "transfer_rtt",
        "modem_buffer",
        "modem_rates",
      ].includes(table)
    )
      return this.series.some((one) => one.table === table);
    if (table === "segments") return Boolean(this.data || this.ack || this.again);
    const rows = this[table];
    if (!rows || !rows.rows) return false;
    if (!rows[column]) return false;
    return (
      !(rows[column] instanceof Float32Array) || rows[column].some((value) => !Number.isNaN(value))
    );
  }

  // A curve of the whole run, by its table and label.
  curve(table, label) {
    return this.series.find((one) => one.table === table && one.label === label);
  }

  heights(curve) {
    return this.once(`series ${curve.place}`, () => new Pyramid(curve.value));
  }

  once(name, make) {
    if (!this.cache.has(name)) this.cache.set(name, make());
    return this.cache.get(name);
  }

  // A column of samples, or a ratio of two.
  column(of) {
    if (typeof of === "string") return this.samples[of];
    return this.once(`${of.over}/${of.under}`, () => {
      const over = this.samples[of.over],
        under = this.samples[of.under];
      return Float64Array.from(over, (value, i) =>
        under[i] > 0 ? Math.min((of.times * value) / under[i], of.at_most ?? Infinity) : NaN,
      );
    });
  }

  pyramid(of) {
    const name = typeof of === "string" ? of : `${of.over}/${of.under}`;
    return this.once(`pyramid ${name}`, () => new Pyramid(this.column(of)));
  }

  edges(kind) {
    return this.once(`edges ${kind}`, () => new Pyramid(this[kind].from_seq, this[kind].to_seq));
  }

  side(kind, column) {
    return this.once(`side ${kind} ${column}`, () => new Pyramid(this[kind][column]));
  }

  // The bin that holds time t, or -1.
  binAt(t) {
    const s = this.samples;
    if (!s) return -1;
    const i = after(s.t_s, t) - 1;
    return i >= 0 && t <= s.t_s[i] + s.span_s[i] * 1.0001 ? i : -1;
  }

  eventsOf(names) {
    return this.once(`events ${names.join()}`, () => {
      const places = names.map((name) => this.kinds.indexOf(name));
      const rows = [];
      if (this.events)
        for (let i = 0; i < this.events.rows; i += 1)
          if (places.includes(this.events.kind[i])) rows.push(i);
      const take = (column) => Float64Array.from(rows, (i) => this.events[column][i]);
      return this.events
        ? { t_s: take("t_s"), value: take("value"), seq: take("seq") }
        : { t_s: new Float64Array(0), value: new Float64Array(0), seq: new Float64Array(0) };
    });
  }
}
