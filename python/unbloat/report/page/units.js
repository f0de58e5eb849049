// Figures as a person reads them: the same words as on the terminal. Mbit/s is 10⁶ bit/s, MB is 10⁶ bytes.
const NOTHING = "–";
const isFigure = (value) => typeof value === "number" && Number.isFinite(value);

function placed(value) {
  const size = Math.abs(value);
  if (size >= 999.5) return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
  if (size >= 99.5) return value.toFixed(0);
  if (size >= 0.995) return value.toFixed(1);
  return value === 0 ? "0" : String(Number(value.toPrecision(2)));
}

function scaled(value, unit) {
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let step = 0;
  while (Math.abs(value) >= 999.5 && step < prefixes.length - 1) {
    value /= 1000;
    step += 1;
  }
  return `${step ? placed(value) : value.toFixed(0)} ${prefixes[step]}${unit}`;
}

const asBytes = (value) => (isFigure(value) ? scaled(value, "B").replace(" kB", " KB") : NOTHING);
const asRate = (value) => (isFigure(value) ? scaled(value, "bit/s") : NOTHING);
const asCount = (value) =>
  isFigure(value) ? value.toLocaleString("en-US", { maximumFractionDigits: 0 }) : NOTHING;

function asMs(value) {
  if (!isFigure(value)) return NOTHING;
  if (Math.abs(value) >= 1000)
    return `${(value / 1000).toFixed(Math.abs(value) >= 9950 ? 1 : 2)} s`;
  return `${Math.abs(value) < 10 ? placed(value) : value.toFixed(0)} ms`;
}

function asSeconds(value) {
  if (!isFigure(value)) return NOTHING;
  if (value === 0) return "0 s";
  if (Math.abs(value) < 1) return asMs(value * 1000);
  if (value < 600) return `${value.toFixed(1)} s`;
  const minutes = Math.round(value / 60);
  return minutes >= 60
    ? `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`
    : `${minutes} min`;
}

function asPercent(value) {
  if (!isFigure(value)) return NOTHING;
  if (value > 0 && value < 0.1) return "< 0.1 %";
  return `${(value > 0 && value < 10) || (value > 99 && value < 100) ? value.toFixed(1) : value.toFixed(0)} %`;
}

const asShare = (value) => (isFigure(value) ? asPercent(value * 100) : NOTHING);

// The unit of a figure is in its name; `statistic` is what follows the unit (_p95, _max).
function asFigure(name, value) {
  if (value === null || value === undefined) return NOTHING;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (name === "limit" || name === "rtt_method" || name === "vantage")
    return String(value).replaceAll("_", " ");
  if (typeof value !== "number") return String(value);
  const bare = name.replace(
    /_(count|min|p50|p95|p99|max|mean|last|before|after|first|median)$/,
    "",
  );
  if (/_(count)$/.test(name)) return asCount(value);
  if (/(_share|loss_rate)$/.test(bare) || /^share_/.test(name)) return asShare(value);
  if (/_pct$/.test(bare)) return asPercent(value);
  if (/_ms$/.test(bare)) return asMs(value);
  if (/_bps$/.test(bare)) return asRate(value);
  if (/bytes$/.test(bare)) return asBytes(value);
  if (/_s$/.test(bare)) return asSeconds(value);
  if (/_over_/.test(bare)) return `${placed(value)} ×`;
  return Number.isInteger(value) ? asCount(value) : placed(value);
}

// A figure's name in words, without its unit: queue_ms_p95 → queue p95.
const inWords = (name) => name.replace(/_(ms|bps|s|bytes|pct)(?=_|$)/g, "").replaceAll("_", " ");

// Steps of 1, 2 or 5 · 10ⁿ.
function niceStep(span, wanted) {
  const rough = span / Math.max(wanted, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const digit = rough / power;
  return (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10) * power;
}

function ticksBetween(low, high, wanted) {
  if (!(high > low)) return [low];
  const step = niceStep(high - low, wanted);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1)
    ticks.push(n === 0 ? 0 : n * step);
  return ticks;
}

// How an axis of a unit is labelled when its largest value is `top`: divisor, words, digits.
function axisUnit(unit, top) {
  if (unit === "ms") return top >= 5000 ? { by: 1000, words: "s" } : { by: 1, words: "ms" };
  if (unit === "%") return { by: 1, words: "%" };
  if (unit === "share") return { by: 0.01, words: "%" };
  const names =
    unit === "bit/s"
      ? ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]
      : ["B", "KB", "MB", "GB", "TB"];
  let step = 0;
  while (top >= 1500 && step < names.length - 1) {
    top /= 1000;
    step += 1;
  }
  return { by: 1000 ** step, words: names[step] };
}

function tickText(value, step) {
  const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(Math.abs(step)) + 1e-9)));
  return (value || 0).toLocaleString("en-US", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

function timeText(t, span) {
  const digits = span > 100 ? 1 : span > 10 ? 2 : span > 1 ? 3 : span > 0.1 ? 4 : 6;
  return `${t.toFixed(digits)} s`;
}

function valueText(unit, value) {
  if (unit === "bit/s") return asRate(value);
  if (unit === "ms") return asMs(value);
  if (unit === "%") return asPercent(value);
  if (unit === "share") return asShare(value);
  return asBytes(value);
}
