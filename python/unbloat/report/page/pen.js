// Two pens with the same strokes: one paints on a canvas, the other writes SVG. Whatever is drawn is drawn through
// them, so that an exported picture is the picture on the screen.
const THEMES = {
  light: {
    paper: "#ffffff",
    ink: "#1b2430",
    muted: "#5b6675",
    grid: "#e6eaef",
    axis: "#aeb7c2",
    blue: "#0b62a8",
    sky: "#4aa3d8",
    green: "#00795a",
    orange: "#c25a00",
    red: "#c4232f",
    purple: "#9a3f86",
    yellow: "#a87b00",
  },
  dark: {
    paper: "#161b22",
    ink: "#e8edf3",
    muted: "#98a4b3",
    grid: "#262d37",
    axis: "#4a5563",
    blue: "#5fb2f2",
    sky: "#3d7fb0",
    green: "#2fc79a",
    orange: "#ff9d4d",
    red: "#ff6b6b",
    purple: "#dd8fc9",
    yellow: "#f0c94a",
  },
};

// Limits: a colour that colour-blind eyes can distinguish, and a pattern (strokes in a tile of 8 × 8) for everyone else.
const LIMIT_LOOKS = {
  zero_window: {
    fill: "#7a1420",
    ink: "#ffffff",
    tile: "M0 8L8 0M-2 2L2 -2M6 10L10 6M0 0L8 8M-2 6L2 10M6 -2L10 2",
  },
  timeout: { fill: "#3b3b3b", ink: "#ffffff", tile: "M4 0V8M0 4H8" },
  receive_window: { fill: "#d55e00", ink: "#ffffff", tile: "M0 8L8 0M-2 2L2 -2M6 10L10 6" },
  application: { fill: "#7cc4ea", ink: "#0d2233", tile: "M0 4H8" },
  slow_start: { fill: "#f0e060", ink: "#3a3300", tile: "M4 0V8" },
  bufferbloat: { fill: "#cc79a7", ink: "#2a0a1d", tile: "M0 0L8 8M-2 6L2 10M6 -2L10 2" },
  bottleneck: { fill: "#009e73", ink: "#ffffff", tile: "" },
  congestion_window: { fill: "#0b62a8", ink: "#ffffff", tile: "M0 2H8M0 6H8" },
  unknown: { fill: "#a8b0ba", ink: "#1b2430", tile: "M1 4H3M5 4H7" },
};
const SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

// A text without a style of its own.
const TEXT = {
  color: "ink",
  size: 11,
  anchor: "start",
  weight: 400,
  turn: 0,
  baseline: "middle",
};

class CanvasPen {
  constructor(context, theme) {
    this.c = context;
    this.theme = theme;
    this.tiles = new Map();
  }
  color(name) {
    return this.theme[name] || name;
  }

  clip(x, y, w, h, draw) {
    this.c.save();
    this.c.beginPath();
    this.c.rect(x, y, w, h);
    this.c.clip();
    draw();
    this.c.restore();
  }

  style({ color, width = 1, dash = [], alpha = 1 }) {
    const c = this.c;
    c.strokeStyle = this.color(color);
    c.fillStyle = this.color(color);
    c.lineWidth = width;
    c.globalAlpha = alpha;
    c.setLineDash(dash);
    c.lineJoin = "round";
  }

  trace(points, closed) {
    const c = this.c;
    c.beginPath();
    let drawing = false;
    for (let i = 0; i < points.length; i += 2) {
      if (Number.isNaN(points[i + 1])) {
        drawing = false;
        continue;
      }
      if (drawing) c.lineTo(points[i], points[i + 1]);
      else c.moveTo(points[i], points[i + 1]);
      drawing = true;
    }
    if (closed) c.closePath();
  }

  // x, y, x, y …; NaN lifts the pen.
  line(points, style) {
    this.style(style);
    this.trace(points);
    this.c.stroke();
    this.c.globalAlpha = 1;
  }
  polygon(points, style) {
    this.style(style);
    this.trace(points, true);
    this.c.fill();
    this.c.globalAlpha = 1;
  }

  // x, y, x, y: separate strokes.
  strokes(ends, style) {
    this.style(style);
    const c = this.c;
    c.beginPath();
    for (let i = 0; i < ends.length; i += 4) {
      c.moveTo(ends[i], ends[i + 1]);
      c.lineTo(ends[i + 2], ends[i + 3]);
    }
    c.stroke();
    c.globalAlpha = 1;
  }

  box(x, y, w, h, style) {
    this.style(style);
    this.c.fillRect(x, y, w, h);
    if (style.tile) {
      this.c.globalAlpha = 0.28;
      this.c.fillStyle = this.tile(style.tile, style.ink);
      this.c.fillRect(x, y, w, h);
    }
    this.c.globalAlpha = 1;
  }

  tile(path, ink) {
    if (!this.tiles.has(path)) {
      const small = document.createElement("canvas");
      small.width = 8;
      small.height = 8;
      const c = small.getContext("2d");
      c.strokeStyle = ink;
      c.lineWidth = 1.2;
      c.stroke(new Path2D(path));
      this.tiles.set(path, this.c.createPattern(small, "repeat"));
    }
    return this.tiles.get(path);
  }

  marks(points, shape, size, style) {
    this.style(style);
    const c = this.c;
    c.beginPath();
    for (let i = 0; i < points.length; i += 2) markPath(c, shape, points[i], points[i + 1], size);
    if (shape === "cross") c.stroke();
    else if (shape === "circle") c.stroke();
    else c.fill();
    c.globalAlpha = 1;
  }

  text(x, y, words, style) {
    const { color, size, anchor, weight, turn, baseline } = { ...TEXT, ...style };
    const c = this.c;
    c.save();
    c.translate(x, y);
    if (turn) c.rotate(turn);
    c.fillStyle = this.color(color);
    c.font = `${weight} ${size}px ${SANS}`;
    c.textAlign = anchor === "middle" ? "center" : anchor;
    c.textBaseline = baseline;
    c.fillText(words, 0, 0);
    c.restore();
  }

  measure(words, size, weight = 400) {
    this.c.font = `${weight} ${size}px ${SANS}`;
    return this.c.measureText(words).width;
  }
}

function markPath(c, shape, x, y, r) {
  if (shape === "circle" || shape === "dot") {
    c.moveTo(x + r, y);
    c.arc(x, y, r, 0, 2 * Math.PI);
  } else if (shape === "diamond") {
    c.moveTo(x, y - r);
    c.lineTo(x + r, y);
    c.lineTo(x, y + r);
    c.lineTo(x - r, y);
    c.closePath();
  } else if (shape === "triangle") {
    c.moveTo(x, y - r);
    c.lineTo(x + r, y + r);
    c.lineTo(x - r, y + r);
    c.closePath();
  } else {
    c.moveTo(x - r, y - r);
    c.lineTo(x + r, y + r);
    c.moveTo(x - r, y + r);
    c.lineTo(x + r, y - r);
  }
}

// XML 1.0 allows no control characters.
const xml = (text) =>
  String(text)
    .replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`)
    // eslint-disable-next-line no-control-regex
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "");
const short = (value) => String(Math.round(value * 100) / 100);

class SvgPen {
  // `name` begins every id, so that several pictures can stand in one document.
  constructor(width, height, theme, measure, name) {
    this.w = width;
    this.h = height;
    this.theme = theme;
    this.parts = [];
    this.defs = [];
    this.known = new Map();
    this.measure = measure;
    this.name = name;
  }
  color(name) {
    return this.theme[name] || name;
  }

  define(key, make) {
    if (!this.known.has(key)) {
      const id = `${this.name}-${this.known.size}`;
      this.known.set(key, id);
      this.defs.push(make(id));
    }
    return this.known.get(key);
  }

  clip(x, y, w, h, draw) {
    const id = this.define(
      `clip ${x} ${y} ${w} ${h}`,
      (name) =>
        `<clipPath id="${name}"><rect x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}"/></clipPath>`,
    );
    this.parts.push(`<g clip-path="url(#${id})">`);
    draw();
    this.parts.push("</g>");
  }

  stroke({ color, width = 1, dash = [], alpha = 1 }) {
    return `fill="none" stroke="${this.color(color)}" stroke-width="${short(width)}"${dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : ""}${alpha < 1 ? ` stroke-opacity="${alpha}"` : ""} stroke-linejoin="round"`;
  }

  fill({ color, alpha = 1 }) {
    return `fill="${this.color(color)}"${alpha < 1 ? ` fill-opacity="${alpha}"` : ""}`;
  }

  path(points, closed) {
    let d = "",
      drawing = false;
    for (let i = 0; i < points.length; i += 2) {
      if (Number.isNaN(points[i + 1])) {
        drawing = false;
        continue;
      }
      d += `${drawing ? "L" : "M"}${short(points[i])} ${short(points[i + 1])}`;
      drawing = true;
    }
    return closed && d ? `${d}Z` : d;
  }

  line(points, style) {
    const d = this.path(points);
    if (d) this.parts.push(`<path d="${d}" ${this.stroke(style)}/>`);
  }
  polygon(points, style) {
    const d = this.path(points, true);
    if (d) this.parts.push(`<path d="${d}" ${this.fill(style)}/>`);
  }

  strokes(ends, style) {
    if (!ends.length) return;
    let d = "";
    for (let i = 0; i < ends.length; i += 4) {
      d +=
        ends[i] === ends[i + 2]
          ? `M${short(ends[i])} ${short(ends[i + 1])}V${short(ends[i + 3])}`
          : `M${short(ends[i])} ${short(ends[i + 1])}L${short(ends[i + 2])} ${short(ends[i + 3])}`;
    }
    this.parts.push(`<path d="${d}" ${this.stroke(style)}/>`);
  }

  box(x, y, w, h, style) {
    const frame = `x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}"`;
    this.parts.push(`<rect ${frame} ${this.fill(style)}/>`);
    if (!style.tile) return;
    const id = this.define(
      `tile ${style.tile}`,
      (name) =>
        `<pattern id="${name}" width="8" height="8" patternUnits="userSpaceOnUse"><path d="${style.tile}" stroke="${style.ink}" stroke-width="1.2" stroke-opacity="0.28" fill="none"/></pattern>`,
    );
    this.parts.push(`<rect ${frame} fill="url(#${id})"/>`);
  }

  marks(points, shape, size, style) {
    if (!points.length) return;
    let d = "";
    const pen = {
      moveTo: (x, y) => {
        d += `M${short(x)} ${short(y)}`;
      },
      lineTo: (x, y) => {
        d += `L${short(x)} ${short(y)}`;
      },
      closePath: () => {
        d += "Z";
      },
      arc: (x, y, r) => {
        d += `A${r} ${r} 0 1 1 ${short(x - r)} ${short(y)}A${r} ${r} 0 1 1 ${short(x + r)} ${short(y)}`;
      },
    };
    for (let i = 0; i < points.length; i += 2) markPath(pen, shape, points[i], points[i + 1], size);
    this.parts.push(
      `<path d="${d}" ${shape === "cross" || shape === "circle" ? this.stroke(style) : this.fill(style)}/>`,
    );
  }

  text(x, y, words, style) {
    const { color, size, anchor, weight, turn, baseline } = { ...TEXT, ...style };
    const down = baseline === "middle" ? size * 0.35 : baseline === "top" ? size * 0.8 : 0;
    const turned = turn
      ? ` transform="rotate(${short((turn * 180) / Math.PI)} ${short(x)} ${short(y)})"`
      : "";
    this.parts.push(
      `<text x="${short(x)}" y="${short(y + down)}"${turned} fill="${this.color(color)}" font-size="${size}" text-anchor="${anchor}"${weight !== 400 ? ` font-weight="${weight}"` : ""}>${xml(words)}</text>`,
    );
  }

  finish(title, about) {
    return `<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="${this.w}" height="${this.h}" viewBox="0 0 ${this.w} ${this.h}" role="img" font-family="${xml(SANS)}"><title>${xml(title)}</title><desc>${xml(about)}</desc><defs>${this.defs.join("")}</defs><rect width="100%" height="100%" fill="${this.theme.paper}"/>${this.parts.join("")}</svg>\n`;
  }
}
