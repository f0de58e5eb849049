// Pictures of a chart: the same drawing code, on paper of a fixed size, in the light theme.
const PICTURE = { width: 1000, extra: 40 };

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function pictureSize(chart, measure) {
  const room = chart.headroom({ measure }, PICTURE.width);
  return [
    PICTURE.width,
    room + chart.height() + (chart.spec.unit === "limit" ? 10 : PICTURE.extra),
    room,
  ];
}

const ruler = document.createElement("canvas").getContext("2d");
function measureWords(words, size, weight = 400) {
  ruler.font = `${weight} ${size}px ${SANS}`;
  return ruler.measureText(words).width;
}

function asSvg(chart, about) {
  const [width, height, top] = pictureSize(chart, measureWords);
  const pen = new SvgPen(width, height, THEMES.light, measureWords, chart.spec.name);
  chart.draw(pen, width, height, { title: chart.spec.title, about, top });
  return pen.finish(`${chart.spec.title} – ${about}`, chart.spec.about);
}

function asPng(chart, about) {
  const [width, height, top] = pictureSize(chart, measureWords);
  const canvas = document.createElement("canvas");
  canvas.width = width * 2;
  canvas.height = height * 2;
  const context = canvas.getContext("2d");
  context.scale(2, 2);
  context.fillStyle = THEMES.light.paper;
  context.fillRect(0, 0, width, height);
  chart.draw(new CanvasPen(context, THEMES.light), width, height, {
    title: chart.spec.title,
    about,
    top,
  });
  return new Promise((done) => {
    canvas.toBlob(done, "image/png");
  });
}
