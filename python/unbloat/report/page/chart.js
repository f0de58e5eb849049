// One chart: its spec, the layers it draws, its scales. `draw` takes any pen.
const LAYER_LOOKS = [
  { color: "blue", dash: [] },
  { color: "orange", dash: [7, 3] },
  { color: "green", dash: [2, 2] },
  { color: "purple", dash: [9, 3, 2, 3] },
  { color: "red", dash: [4, 2] },
  { color: "yellow", dash: [12, 4] },
  { color: "sky", dash: [1, 3] },
  { color: "muted", dash: [6, 2, 1, 2] },
];

class Chart {
  constructor(spec, layers, view, words) {
    this.spec = spec;
    this.layers = layers;
    this.view = view;
    this.words = words;
    this.hidden = new Set();
    this.overlaid = layers.length > 1;
    this.marks = spec.marks
      .flatMap((mark) => (mark.mark === "many" ? this.curves(mark) : [mark]))
      .filter(
        (mark) =>
          !this.overlaid || mark.overlay || ["constant", "ribbon", "histogram"].includes(mark.mark),
      )
      .filter((mark) => this.layers.some((layer) => this.holds(mark, layer.data)));
  }

  // One mark for each curve of the whole run that any layer has.
  curves(many) {
    const labels = [];
    for (const { data } of this.layers)
      for (const one of data.series)
        if (one.table === many.table && !labels.includes(one.label)) labels.push(one.label);
    return labels.map((label, i) => {
      const look = LAYER_LOOKS[(i + 1) % LAYER_LOOKS.length];
      return {
        mark: "serie",
        table: many.table,
        label,
        color: look.color,
        dash: i ? LAYER_LOOKS[i % LAYER_LOOKS.length].dash : [],
        width: 1.5,
        overlay: true,
        // Several curves of a layer differ by their dashes, layers by their colour.
        solid: i === 0 && labels.length > 1,
      };
    });
  }

  // Whether a layer has anything for a mark: a legend without ink would be a riddle.
  holds(mark, data) {
    if (mark.mark === "level") return Number.isFinite(MARKS.level.value(mark, data));
    if (mark.mark === "points") return data.eventsOf(mark.kinds).t_s.length > 0;
    if (mark.mark === "spans") return data.eventsOf([mark.kind]).t_s.length > 0;
    if (mark.mark === "ticks") return Boolean(data[mark.kind] && data[mark.kind].rows);
    if (mark.mark === "stairs") return Boolean(data.ack && data.ack.rows);
    if (mark.mark === "serie") return Boolean(data.curve(mark.table, mark.label));
    if (mark.mark === "line" && typeof mark.column === "string")
      return Boolean(data.samples) && data.has(`samples.${mark.column}`);
    return mark.mark === "constant" || Boolean(data.samples);
  }

  // A layer that lacks one of the columns cannot be drawn; the page says which.
  missing() {
    return this.spec.needs.filter((need) => !this.layers.some((layer) => layer.data.has(need)));
  }

  shown() {
    return this.marks.filter((mark) => !this.hidden.has(mark.label));
  }

  height() {
    return this.spec.unit === "limit" ? 32 + 34 * this.layers.length : this.spec.height;
  }

  extent() {
    let low = Infinity,
      high = -Infinity;
    const { t0, t1 } = this.view;
    for (const layer of this.layers) {
      for (const mark of this.shown()) {
        if (!this.holds(mark, layer.data)) continue;
        const [small, large] = MARKS[mark.mark].extent(mark, layer.data, t0, t1);
        if (small < low) low = small;
        if (large > high) high = large;
      }
    }
    const levels = this.shown().filter((mark) => mark.mark === "level" && !this.overlaid);
    if (this.spec.floor !== null) low = this.spec.floor;
    // Nothing but zeros or gaps in sight: the levels alone say where one is.
    if (!(high > 0))
      high = Math.max(high, ...levels.map((mark) => MARKS.level.value(mark, this.layers[0].data)));
    if (!(high > -Infinity)) {
      high = 1;
      low = 0;
    }
    // A level just above the curves is worth the room; one far above would flatten them.
    for (const mark of levels) {
      const value = MARKS.level.value(mark, this.layers[0].data);
      if (value > high && value < high * 1.6) high = value;
    }
    if (low === Infinity) low = 0;
    if (!(high > low)) high = low + (Math.abs(low) || 1);
    const room = (high - low) * 0.06;
    return [this.spec.floor !== null ? low : low - room, high + room];
  }

  draw(pen, width, height, { title = "", about = "", top = 10 } = {}) {
    if (this.spec.unit === "share")
      return drawHistogram(this, pen, width, height, { title, about, top });
    const narrow = width < 520;
    const left =
      this.spec.unit === "limit"
        ? this.overlaid
          ? narrow
            ? 70
            : 110
          : narrow
            ? 46
            : 60
        : narrow
          ? 46
          : 60;
    const right = width - 12,
      bottom = height - 26;
    const { t0, t1 } = this.view;
    const [low, high] = this.spec.unit === "limit" ? [0, 1] : this.extent();
    const base = {
      pen,
      left,
      right,
      top,
      bottom,
      w: right - left,
      h: bottom - top,
      t0,
      t1,
      words: this.words,
      overlaid: this.overlaid,
      x: (t) => left + ((t - t0) / (t1 - t0)) * (right - left),
      y: (v) => bottom - ((v - low) / (high - low)) * (bottom - top),
    };
    this.frame = base;
    this.axes(pen, base, low, high, narrow);
    if (this.spec.unit === "limit") this.rows(pen, base);
    else {
      pen.clip(left, top, base.w, base.h, () => {
        for (const mark of this.shown()) {
          this.layers.forEach((layer, place) => {
            const look = LAYER_LOOKS[place % LAYER_LOOKS.length];
            const frame = this.overlaid
              ? { ...base, color: mark.mark === "constant" ? null : look.color, dash: look.dash }
              : base;
            if ((mark.mark === "constant" && place > 0) || !this.holds(mark, layer.data)) return;
            MARKS[mark.mark].draw(mark, frame, layer.data);
          });
        }
      });
    }
    pen.strokes([left, bottom, right, bottom], { color: "axis" });
    if (title) this.heading(pen, width, title, about);
    return base;
  }

  rows(pen, base) {
    const each = base.h / this.layers.length;
    this.layers.forEach((layer, place) => {
      const frame = {
        ...base,
        top: base.top + place * each + 1,
        bottom: base.top + (place + 1) * each - 2,
      };
      frame.h = frame.bottom - frame.top;
      if (this.overlaid) {
        let words = layer.label;
        while (words.length > 3 && pen.measure(words, 11, 600) > base.left - 12)
          words = `${words.slice(0, -2)}…`;
        pen.text(base.left - 8, frame.top + frame.h / 2, words, {
          anchor: "end",
          size: 11,
          weight: 600,
        });
      }
      pen.clip(base.left, frame.top, base.w, frame.h, () => {
        for (const mark of this.shown()) MARKS[mark.mark].draw(mark, frame, layer.data);
      });
    });
  }

  axes(pen, frame, low, high, narrow) {
    const { left, right, top, bottom, t0, t1 } = frame;
    const steps = ticksBetween(t0, t1, Math.max(3, Math.floor(frame.w / (narrow ? 52 : 100))));
    const step = steps.length > 1 ? steps[1] - steps[0] : t1 - t0;
    const upright = [];
    for (const t of steps) upright.push(frame.x(t), top, frame.x(t), bottom);
    pen.strokes(upright, { color: "grid" });
    steps.forEach((t, i) => {
      const words = `${tickText(t, step)}${i === steps.length - 1 ? " s" : ""}`;
      const px = frame.x(t),
        half = pen.measure(words, 11) / 2;
      pen.text(Math.min(Math.max(px, left + half - 6), right - half + 8), bottom + 14, words, {
        color: "muted",
        anchor: "middle",
      });
    });
    if (this.spec.unit === "limit") return;
    const axis = axisUnit(this.spec.unit, Math.max(Math.abs(high), Math.abs(low)));
    const marks = ticksBetween(
      low / axis.by,
      high / axis.by,
      Math.max(3, Math.floor(frame.h / 34)),
    );
    const gap = marks.length > 1 ? marks[1] - marks[0] : high / axis.by;
    const lines = [];
    for (const v of marks) lines.push(left, frame.y(v * axis.by), right, frame.y(v * axis.by));
    pen.strokes(lines, { color: "grid" });
    for (const v of marks)
      pen.text(left - 7, frame.y(v * axis.by), tickText(v, gap), { color: "muted", anchor: "end" });
    const words = this.spec.unit === "sequence" ? `${axis.words} sent` : axis.words;
    pen.text(narrow ? 8 : 11, (top + bottom) / 2, words, {
      color: "muted",
      anchor: "middle",
      turn: -Math.PI / 2,
    });
  }

  heading(pen, width, title, about) {
    pen.text(14, 20, title, { size: 15, weight: 600 });
    pen.text(14, 39, about, { size: 11, color: "muted" });
    let x = 14,
      y = 58;
    for (const entry of this.legend()) {
      const wide = 22 + pen.measure(entry.label, 11) + 14;
      if (x + wide > width - 10) {
        x = 14;
        y += 17;
      }
      drawKey(pen, x, y, entry);
      pen.text(x + 22, y, entry.label, { size: 11 });
      x += wide;
    }
  }

  // How much room title and legend take on an exported picture.
  headroom(pen, width) {
    let x = 14,
      rows = 1;
    for (const entry of this.legend()) {
      const wide = 36 + pen.measure(entry.label, 11);
      if (x + wide > width - 10) {
        x = 14;
        rows += 1;
      }
      x += wide;
    }
    return 58 + rows * 17;
  }

  legend() {
    if (this.spec.unit === "limit") {
      const present = new Set();
      for (const layer of this.layers)
        if (layer.data.samples) for (const code of layer.data.samples.limit) present.add(code);
      return Object.entries(LIMIT_LOOKS)
        .filter((_, code) => present.has(code))
        .map(([name, look]) => ({ key: "limit", look, label: this.words[name].short, name }));
    }
    if (!this.overlaid)
      return this.shown().map((mark) => ({ key: mark.mark, mark, label: mark.label }));
    const lines = this.shown().filter((mark) => mark.mark === "line" || mark.mark === "serie");
    const entries = this.layers.map((layer, place) => ({
      key: "line",
      label: layer.label,
      mark: { color: LAYER_LOOKS[place % 6].color, dash: LAYER_LOOKS[place % 6].dash, width: 2 },
    }));
    for (const mark of lines)
      if (mark.dash.length || mark.solid)
        entries.push({ key: "line", label: mark.label, mark: { ...mark, color: "muted" } });
    for (const mark of this.shown())
      if (mark.mark === "constant") entries.push({ key: "level", label: mark.label, mark });
    return entries;
  }

  // What each mark says at time t, for the read-out.
  read(t) {
    const found = [];
    this.layers.forEach((layer, place) => {
      for (const mark of this.shown()) {
        if (
          ["level", "constant"].includes(mark.mark) ||
          !MARKS[mark.mark] ||
          !MARKS[mark.mark].read ||
          !this.holds(mark, layer.data)
        )
          continue;
        const value = MARKS[mark.mark].read(mark, layer.data, t);
        if (value === null) continue;
        const words =
          mark.mark === "ribbon"
            ? this.words[value].short
            : Array.isArray(value)
              ? `${valueText(this.spec.unit, value[0])} – ${valueText(this.spec.unit, value[1])}`
              : typeof value === "string"
                ? value
                : valueText(this.spec.unit, value);
        const lines = this.shown().filter(
          (other) => other.mark === "line" || other.mark === "serie",
        ).length;
        const label = this.overlaid
          ? lines > 1
            ? `${layer.label}, ${mark.label}`
            : layer.label
          : mark.label;
        found.push({
          label,
          words,
          value,
          column: mark.column,
          color: this.overlaid ? LAYER_LOOKS[place % 6].color : mark.color,
        });
      }
    });
    return found;
  }

  // Smallest, mean and largest of each curve in sight: the chart as a table.
  summary() {
    const rows = [];
    const { t0, t1 } = this.view;
    for (const layer of this.layers) {
      for (const mark of this.marks.filter((one) => one.mark === "line" || one.mark === "serie")) {
        if (!layer.data.samples || !this.holds(mark, layer.data)) continue;
        const own = mark.mark === "serie" ? layer.data.curve(mark.table, mark.label) : null;
        const t = own ? own.t_s : layer.data.samples.t_s,
          values = own ? own.value : layer.data.column(mark.column);
        // Moments (probes) count alike.
        const span = own ? own.span_s.map((length) => length || 1) : layer.data.samples.span_s;
        let sum = 0,
          time = 0,
          low = Infinity,
          high = -Infinity;
        for (let i = after(t, t0 - 1e-9); i < t.length && t[i] < t1; i += 1) {
          if (Number.isNaN(values[i])) continue;
          sum += values[i] * span[i];
          time += span[i];
          if (values[i] < low) low = values[i];
          if (values[i] > high) high = values[i];
        }
        const say = (value) => (time > 0 ? valueText(this.spec.unit, value) : NOTHING);
        rows.push([
          this.overlaid ? `${layer.label}: ${mark.label}` : mark.label,
          say(low),
          say(sum / time),
          say(high),
        ]);
      }
    }
    return rows;
  }
}

function drawKey(pen, x, y, entry) {
  if (entry.key === "limit") {
    pen.box(x, y - 6, 16, 12, {
      color: entry.look.fill,
      tile: entry.look.tile,
      ink: entry.look.ink,
    });
    return;
  }
  const mark = entry.mark,
    color = mark.color;
  if (entry.key === "points") pen.marks([x + 8, y], mark.shape, 4, { color, width: 1.5 });
  else if (entry.key === "band" || entry.key === "histogram")
    pen.box(x, y - 5, 16, 10, { color, alpha: 0.35 });
  else if (entry.key === "spans") pen.box(x, y - 5, 16, 10, { color, alpha: 0.2 });
  else if (entry.key === "ticks")
    pen.strokes(
      [x + 4, y - 5, x + 4, y + 1, x + 8, y - 2, x + 8, y + 4, x + 12, y - 6, x + 12, y],
      { color, width: 2 },
    );
  else if (entry.key === "stairs")
    pen.line([x, y + 4, x + 6, y + 4, x + 6, y - 1, x + 12, y - 1, x + 12, y - 5, x + 16, y - 5], {
      color,
      width: 1.5,
    });
  else
    pen.line([x, y, x + 16, y], {
      color,
      width: Math.max(mark.width || 1.5, 2),
      dash: mark.dash || [],
    });
}

// Delay on a logarithmic axis: from LAN to bloated phone the same shape is the same story.
function drawHistogram(chart, pen, width, height, { title, about, top }) {
  const narrow = width < 520;
  const left = narrow ? 46 : 60,
    right = width - 14,
    bottom = height - 40;
  const { t0, t1 } = chart.view;
  const mark = chart.marks[0];
  const frame = { pen, left, right, top, bottom, w: right - left, h: bottom - top };
  chart.frame = null;
  const bins = narrow ? 32 : 56;
  const sets = chart.layers.map((layer) => {
    if (!layer.data.samples || !mark) return null;
    const t = layer.data.samples.t_s,
      all = layer.data.column(mark.column),
      values = [];
    for (let i = after(t, t0 - 1e-9); i < t.length && t[i] < t1; i += 1)
      if (all[i] > 0) values.push(all[i]);
    return values.sort((a, b) => a - b);
  });
  let low = Infinity,
    high = -Infinity;
  for (const values of sets)
    if (values && values.length) {
      low = Math.min(low, values[0]);
      high = Math.max(high, values[values.length - 1]);
    }
  const quantiles = [];
  if (!chart.overlaid && mark) {
    for (const name of ["p50", "p95", "p99"]) {
      const value = chart.layers[0].data.figures[`${mark.quantiles}_${name}`];
      if (value > 0) {
        quantiles.push([name, value]);
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
  }
  if (title) chart.heading(pen, width, title, about);
  if (!(high > 0)) {
    pen.text((left + right) / 2, (top + bottom) / 2, "no sample in the visible time", {
      color: "muted",
      anchor: "middle",
      size: 12,
    });
    return frame;
  }
  low *= 0.92;
  high *= 1.08;
  if (high / low < 1.5) {
    low *= 0.8;
    high *= 1.25;
  }
  const x = (ms) => left + (Math.log(ms / low) / Math.log(high / low)) * frame.w;
  const tallies = sets.map((values) => {
    const tally = new Float64Array(bins);
    if (values)
      for (const ms of values)
        tally[Math.min(bins - 1, Math.floor((Math.log(ms / low) / Math.log(high / low)) * bins))] +=
          1 / values.length;
    return tally;
  });
  const y = (share) => bottom - share * frame.h;
  for (let tenth = 0; tenth <= 4; tenth += 1) {
    pen.strokes([left, y(tenth / 4), right, y(tenth / 4)], { color: "grid" });
    pen.text(left - 7, y(tenth / 4), String(tenth * 25), { color: "muted", anchor: "end" });
  }
  pen.text(narrow ? 8 : 11, (top + bottom) / 2, `% of ${mark.of}`, {
    color: "muted",
    anchor: "middle",
    turn: -Math.PI / 2,
  });
  const powers = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
    for (const digit of Math.log10(high / low) > 1.3 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9])
      powers.push(power * digit);
  }
  let lastEnd = -Infinity;
  for (const ms of powers.filter((value) => value >= low && value <= high)) {
    const words = asMs(ms)
        .replace(/\.0+(?= )/, "")
        .replace(/(\.\d)0 s/, "$1 s"),
      half = pen.measure(words, 11) / 2;
    pen.strokes([x(ms), top, x(ms), bottom], { color: "grid" });
    if (x(ms) - half < lastEnd + 8 || x(ms) + half > width) continue;
    pen.text(x(ms), bottom + 13, words, { color: "muted", anchor: "middle" });
    lastEnd = x(ms) + half;
  }
  // Bars share the axis with the running sum, stretched so that the highest reaches four fifths.
  const peak = Math.max(...tallies.map((tally) => Math.max(...tally)));
  tallies.forEach((tally, place) => {
    const look = LAYER_LOOKS[place % 6],
      color = chart.overlaid ? look.color : mark.color;
    if (!sets[place] || !sets[place].length) return;
    const step = frame.w / bins;
    if (!chart.overlaid)
      for (let i = 0; i < bins; i += 1)
        if (tally[i] > 0)
          pen.box(
            left + i * step + 0.5,
            y((tally[i] / peak) * 0.8),
            Math.max(step - 1, 1),
            bottom - y((tally[i] / peak) * 0.8),
            { color, alpha: 0.35 },
          );
    const points = [left, bottom],
      values = sets[place],
      every = Math.max(1, Math.floor(values.length / 600));
    for (let i = 0; i < values.length; i += every)
      points.push(x(values[i]), y(i / values.length), x(values[i]), y((i + 1) / values.length));
    points.push(x(values[values.length - 1]), y(1), right, y(1));
    pen.line(points, { color, width: 1.75, dash: chart.overlaid ? look.dash : [] });
  });
  pen.strokes([left, bottom, right, bottom], { color: "axis" });
  let lastRight = -Infinity,
    row = 0;
  for (const [name, ms] of quantiles) {
    pen.strokes([x(ms), top, x(ms), bottom], { color: "ink", dash: [3, 3], alpha: 0.6 });
    const words = `${name} ${asMs(ms)}`,
      wide = pen.measure(words, 11, 600);
    const turned = x(ms) + wide + 8 > right;
    const begins = turned ? x(ms) - 4 - wide : x(ms) + 4;
    row = begins < lastRight + 6 ? row + 1 : 0;
    lastRight = begins + wide;
    pen.text(x(ms) + (turned ? -4 : 4), top + 8 + 14 * row, words, {
      size: 11,
      weight: 600,
      anchor: turned ? "end" : "start",
    });
  }
  pen.text((left + right) / 2, bottom + 30, mark.axis, {
    color: "muted",
    anchor: "middle",
  });
  return frame;
}
