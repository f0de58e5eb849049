// How each mark of a chart is drawn. A frame has the plot's box and scales: x(t), y(v), t0, t1, pen, and the layer
// (one flow on the report, several on the compare page). `extent` says which values of a mark are in sight.

// A column between t0 and t1 as points: every sample while there are fewer than two per pixel, else first, smallest,
// largest and last of each pixel column.
function curve(frame, t, values, pyramid, step, spans) {
  const { t0, t1, x, y } = frame;
  // One bin more on either side: a line leaves the picture, it does not end in it.
  const from = Math.max(after(t, t0) - 2, 0),
    to = Math.min(after(t, t1) + 2, t.length);
  const points = [];
  if (to - from <= 2 * frame.w) {
    for (let i = from; i < to; i += 1) {
      const v = y(values[i]);
      // A bin speaks for its whole length: a line passes through its middle, a staircase covers it.
      if (step) {
        points.push(
          x(t[i]),
          v,
          x(
            i + 1 < t.length
              ? Math.min(t[i + 1], t[i] + (spans ? spans[i] : Infinity))
              : t[i] + (spans ? spans[i] : 0),
          ),
          v,
        );
      } else points.push(x(t[i] + (spans ? spans[i] / 2 : 0)), v);
    }
    return points;
  }
  const columns = Math.ceil(frame.w);
  let i = from;
  for (let column = 0; column < columns && i < to; column += 1) {
    const end = Math.min(after(t, t0 + ((column + 1) / columns) * (t1 - t0), i, to), to);
    if (end === i) continue;
    pyramid.range(i, end);
    const px = frame.left + column + 0.5;
    if (pyramid.small === Infinity) points.push(px, NaN);
    else if (end - i === 1) points.push(px, y(values[i]));
    else
      points.push(
        px,
        y(values[i]),
        px,
        y(pyramid.small),
        px,
        y(pyramid.large),
        px,
        y(values[end - 1]),
      );
    i = end;
  }
  return points;
}

function under(points, base) {
  const parts = [];
  let part = [];
  const close = () => {
    if (part.length > 2) parts.push([part[0], base, ...part, part[part.length - 2], base]);
    part = [];
  };
  for (let i = 0; i < points.length; i += 2) {
    if (Number.isNaN(points[i + 1])) close();
    else part.push(points[i], points[i + 1]);
  }
  close();
  return parts;
}

// Samples with nothing beside them would be invisible as a line: they become dots, and gaps of at most `widest` pixels
// a faint stroke.
function gaps(points, widest = Infinity) {
  const bridges = [],
    alone = [];
  let last = -1;
  for (let i = 0; i < points.length; i += 2) {
    if (Number.isNaN(points[i + 1])) continue;
    const before = i >= 2 && !Number.isNaN(points[i - 1]),
      after = i + 3 < points.length && !Number.isNaN(points[i + 3]);
    if (!before && last >= 0 && points[i] - points[last] <= widest)
      bridges.push(points[last], points[last + 1], points[i], points[i + 1]);
    if (!before && !after) alone.push(points[i], points[i + 1]);
    last = i;
  }
  return { bridges, alone };
}

const visibleRows = (t, t0, t1) => [
  Math.max(after(t, t0) - 1, 0),
  Math.min(after(t, t1) + 1, t.length),
];

function thinPoints(xs, ys, grain) {
  // No more than one mark per square of this many pixels: more cannot be distinguished.
  const seen = new Set(),
    points = [];
  for (let i = 0; i < xs.length; i += 1) {
    const key = Math.round(xs[i] / grain) * 100003 + Math.round(ys[i] / grain);
    if (seen.has(key)) continue;
    seen.add(key);
    points.push(xs[i], ys[i]);
  }
  return points;
}

const MARKS = {
  line: {
    extent(mark, data, t0, t1) {
      const [from, to] = visibleRows(data.samples.t_s, t0, t1);
      const pyramid = data.pyramid(mark.column);
      pyramid.range(from, to);
      return [pyramid.small, pyramid.large];
    },
    draw(mark, frame, data) {
      const points = curve(
        frame,
        data.samples.t_s,
        data.column(mark.column),
        data.pyramid(mark.column),
        mark.step,
        data.samples.span_s,
      );
      const color = frame.color || mark.color;
      const { bridges, alone } = mark.bridge_s
        ? gaps(points, (mark.bridge_s * frame.w) / (frame.t1 - frame.t0))
        : { bridges: [], alone: [] };
      if (bridges.length) frame.pen.strokes(bridges, { color, width: 1, alpha: 0.35 });
      if (alone.length) frame.pen.marks(alone, "dot", 1.6, { color });
      if (mark.area && !frame.overlaid)
        for (const part of under(points, frame.bottom))
          frame.pen.polygon(part, { color, alpha: 0.13 });
      frame.pen.line(points, {
        color,
        width: mark.width,
        dash: frame.overlaid && !mark.dash.length ? frame.dash : mark.dash,
        alpha: frame.overlaid && mark.dash.length ? 0.7 : 1,
      });
    },
    read(mark, data, t) {
      const i = data.binAt(t);
      return i < 0 ? NaN : data.column(mark.column)[i];
    },
  },
  serie: {
    extent(mark, data, t0, t1) {
      const curve = data.curve(mark.table, mark.label),
        [from, to] = visibleRows(curve.t_s, t0, t1);
      const pyramid = data.heights(curve);
      pyramid.range(from, to);
      return [pyramid.small, pyramid.large];
    },
    draw(mark, frame, data) {
      const one = data.curve(mark.table, mark.label),
        color = frame.color || mark.color;
      const points = curve(frame, one.t_s, one.value, data.heights(one), false, one.span_s);
      const { alone } = gaps(points);
      if (alone.length) frame.pen.marks(alone, "dot", 1.6, { color });
      frame.pen.line(points, {
        color,
        width: mark.width,
        dash: frame.overlaid && !mark.dash.length && !mark.solid ? frame.dash : mark.dash,
      });
    },
    read(mark, data, t) {
      const one = data.curve(mark.table, mark.label),
        i = after(one.t_s, t) - 1;
      return i < 0 ? NaN : one.value[i];
    },
  },
  band: {
    extent(mark, data, t0, t1) {
      const [from, to] = visibleRows(data.samples.t_s, t0, t1);
      const pyramid = data.pyramid(mark.high);
      pyramid.range(from, to);
      return [pyramid.large, pyramid.large];
    },
    draw(mark, frame, data) {
      const s = data.samples;
      const low = curve(
        frame,
        s.t_s,
        data.column(mark.low),
        data.pyramid(mark.low),
        false,
        s.span_s,
      );
      const high = curve(
        frame,
        s.t_s,
        data.column(mark.high),
        data.pyramid(mark.high),
        false,
        s.span_s,
      );
      const lows = [],
        highs = [];
      const close = () => {
        if (lows.length > 2) {
          const back = [];
          for (let i = lows.length - 2; i >= 0; i -= 2) back.push(lows[i], lows[i + 1]);
          frame.pen.polygon([...highs, ...back], { color: mark.color, alpha: 0.25 });
        } else if (lows.length)
          frame.pen.strokes([lows[0], lows[1], highs[0], highs[1]], {
            color: mark.color,
            alpha: 0.4,
            width: 2,
          });
        lows.length = 0;
        highs.length = 0;
      };
      if (low.length !== high.length) return;
      for (let i = 0; i < low.length; i += 2) {
        if (Number.isNaN(low[i + 1]) || Number.isNaN(high[i + 1])) close();
        else {
          lows.push(low[i], low[i + 1]);
          highs.push(high[i], high[i + 1]);
        }
      }
      close();
    },
    read(mark, data, t) {
      const i = data.binAt(t);
      return i < 0 ? [NaN, NaN] : [data.column(mark.low)[i], data.column(mark.high)[i]];
    },
  },
  level: {
    value: (mark, data) =>
      isFigure(data.figures[mark.figure]) ? data.figures[mark.figure] + mark.plus : NaN,
    extent: () => [NaN, NaN],
    draw(mark, frame, data) {
      const value = this.value(mark, data);
      if (!Number.isFinite(value)) return;
      const y = frame.y(value);
      if (y < frame.top || y > frame.bottom) return;
      frame.pen.strokes([frame.left, y, frame.right, y], {
        color: mark.color,
        dash: mark.dash,
        width: 1.25,
      });
    },
    read(mark, data) {
      return this.value(mark, data);
    },
  },
  constant: {
    extent: (mark) => [mark.value * 1.04, mark.value * 1.04],
    draw(mark, frame) {
      const y = frame.y(mark.value);
      frame.pen.strokes([frame.left, y, frame.right, y], {
        color: mark.color,
        dash: mark.dash,
        width: 1.25,
      });
    },
    read: (mark) => mark.value,
  },
  spans: {
    extent: () => [NaN, NaN],
    draw(mark, frame, data) {
      const events = data.eventsOf([mark.kind]);
      let lastEnd = -Infinity,
        start = 0;
      const flush = () => {
        if (lastEnd > -Infinity)
          frame.pen.box(start, frame.top, Math.max(lastEnd - start, 1), frame.h, {
            color: mark.color,
            alpha: 0.1,
          });
      };
      for (let i = 0; i < events.t_s.length; i += 1) {
        const from = frame.x(events.t_s[i]),
          to = frame.x(events.t_s[i] + (events.value[i] || 0));
        if (to < frame.left || from > frame.right) continue;
        if (from <= lastEnd + 1) {
          lastEnd = Math.max(lastEnd, to);
          continue;
        }
        flush();
        start = from;
        lastEnd = to;
      }
      flush();
    },
    read(mark, data, t) {
      const events = data.eventsOf([mark.kind]);
      const i = after(events.t_s, t) - 1;
      return i >= 0 && t <= events.t_s[i] + events.value[i]
        ? `for ${asSeconds(events.value[i])}`
        : null;
    },
  },
  points: {
    extent: () => [NaN, NaN],
    draw(mark, frame, data) {
      const events = data.eventsOf(mark.kinds);
      const [from, to] = [after(events.t_s, frame.t0 - 1e-9), after(events.t_s, frame.t1)];
      const xs = [],
        ys = [];
      for (let i = from; i < to; i += 1) {
        xs.push(frame.x(events.t_s[i]));
        ys.push(
          mark.at === "bottom"
            ? frame.bottom - 4
            : mark.at === "top"
              ? frame.top + 5
              : frame.y(events.seq[i]),
        );
      }
      frame.pen.marks(
        thinPoints(xs, ys, mark.at === "sequence" ? 7 : 4),
        mark.shape,
        mark.at === "sequence" ? 4 : 3,
        { color: mark.color, width: 1.5 },
      );
    },
    read: () => null,
  },
  ticks: {
    extent(mark, data, t0, t1) {
      const table = data[mark.kind];
      if (!table || !table.rows) return [NaN, NaN];
      const [from, to] = [after(table.t_s, t0 - 1e-9), after(table.t_s, t1)];
      const edges = data.edges(mark.kind);
      edges.range(from, to);
      return [edges.small, edges.large];
    },
    draw(mark, frame, data) {
      const table = data[mark.kind];
      if (!table || !table.rows) return;
      const { t0, t1, x, y } = frame;
      const from = after(table.t_s, t0 - 1e-9),
        to = after(table.t_s, t1);
      const ends = [],
        least = mark.width > 1 ? 3 : 1;
      const add = (px, low, high) => {
        const a = y(low),
          b = y(high);
        // A tick that is shorter than it could be seen keeps a visible length.
        ends.push(
          px,
          a + Math.max(0, (least - (a - b)) / 2),
          px,
          b - Math.max(0, (least - (a - b)) / 2),
        );
      };
      if (to - from <= 3 * frame.w) {
        for (let i = from; i < to; i += 1) add(x(table.t_s[i]), table.from_seq[i], table.to_seq[i]);
        const near = to - from < frame.w / 6;
        frame.pen.strokes(ends, {
          color: mark.color,
          width: near ? Math.max(mark.width, 2) : mark.width,
        });
        return;
      }
      const edges = data.edges(mark.kind),
        columns = Math.ceil(frame.w * 2);
      let i = from;
      for (let column = 0; column < columns && i < to; column += 1) {
        const end = Math.min(
          after(table.t_s, t0 + ((column + 1) / columns) * (t1 - t0), i, to),
          to,
        );
        if (end === i) continue;
        edges.range(i, end);
        add(frame.left + (column + 0.5) / 2, edges.small, edges.large);
        i = end;
      }
      frame.pen.strokes(ends, { color: mark.color, width: mark.width });
    },
    read(mark, data, t) {
      if (mark.kind !== "data" || !data.data) return null;
      const i = after(data.data.t_s, t) - 1;
      return i < 0 ? NaN : data.data.to_seq[i];
    },
  },
  stairs: {
    column: (mark) => (mark.edge === "ack" ? "from_seq" : "to_seq"),
    extent(mark, data, t0, t1) {
      if (!data.ack) return [NaN, NaN];
      const [from, to] = visibleRows(data.ack.t_s, t0, t1);
      const side = data.side("ack", this.column(mark));
      side.range(from, to);
      return [side.small, side.large];
    },
    draw(mark, frame, data) {
      if (!data.ack) return;
      const points = curve(
        frame,
        data.ack.t_s,
        data.ack[this.column(mark)],
        data.side("ack", this.column(mark)),
        true,
        null,
      );
      frame.pen.line(points, { color: mark.color, width: 1.5 });
    },
    read(mark, data, t) {
      if (!data.ack) return NaN;
      const i = after(data.ack.t_s, t) - 1;
      return i < 0 ? NaN : data.ack[this.column(mark)][i];
    },
  },
  ribbon: {
    extent: () => [NaN, NaN],
    // Neighbouring bins with the same limit, as pixels; where bins are narrower than pixels the longest wins.
    runs(frame, data) {
      const s = data.samples,
        [from, to] = visibleRows(s.t_s, frame.t0, frame.t1);
      const runs = [];
      let pixel = null;
      const push = (left, right, limit) => {
        const last = runs[runs.length - 1];
        if (last && last.limit === limit && left - last.right < 1.5)
          last.right = Math.max(last.right, right);
        else runs.push({ left, right, limit });
      };
      const flush = () => {
        if (pixel) push(pixel.at, pixel.at + 1, pixel.tally.indexOf(Math.max(...pixel.tally)));
        pixel = null;
      };
      for (let i = from; i < to; i += 1) {
        const limit = s.limit[i];
        if (limit === 255) continue;
        const left = frame.x(s.t_s[i]),
          right = frame.x(s.t_s[i] + s.span_s[i]);
        if (right - left >= 1) {
          flush(); // what is left of it comes before
          push(left, right, limit);
          continue;
        }
        const at = Math.floor(left);
        if (!pixel || pixel.at !== at) {
          flush();
          pixel = { at, tally: new Array(Object.keys(LIMIT_LOOKS).length).fill(0) };
        }
        pixel.tally[limit] += s.span_s[i];
      }
      flush();
      return runs;
    },
    draw(mark, frame, data) {
      const names = Object.keys(LIMIT_LOOKS);
      for (const run of this.runs(frame, data)) {
        const look = LIMIT_LOOKS[names[run.limit]];
        if (!look) continue;
        const left = Math.max(run.left, frame.left),
          right = Math.min(run.right, frame.right);
        frame.pen.box(left, frame.top, Math.max(right - left, 0.5), frame.h, {
          color: look.fill,
          tile: look.tile,
          ink: look.ink,
        });
        const words = frame.words[names[run.limit]].short;
        const wide = frame.pen.measure(words, 11, 600);
        if (wide + 14 < right - left) {
          const middle = (left + right) / 2,
            y = frame.top + frame.h / 2;
          frame.pen.box(middle - wide / 2 - 4, y - 8, wide + 8, 16, {
            color: look.fill,
            alpha: 0.9,
          });
          frame.pen.text(middle, y + 0.5, words, {
            color: look.ink,
            size: 11,
            weight: 600,
            anchor: "middle",
          });
        }
      }
    },
    read(mark, data, t) {
      const i = data.binAt(t);
      return i < 0 || data.samples.limit[i] === 255
        ? null
        : Object.keys(LIMIT_LOOKS)[data.samples.limit[i]];
    },
  },
};
