// The visible time and the crosshair, shared by all charts; mouse, touch and keys that move them.
class View {
  constructor(from, to) {
    this.first = from;
    this.last = to > from ? to : from + 1;
    this.t0 = this.first;
    this.t1 = this.last;
    this.at = null;
    this.onRange = [];
    this.onCross = [];
    this.waiting = false;
  }

  get zoomed() {
    return this.t0 > this.first || this.t1 < this.last;
  }

  // Never narrower than 20 µs: captures hold nothing finer.
  show(t0, t1) {
    const span = Math.min(Math.max(t1 - t0, 2e-5), this.last - this.first);
    const from = Math.min(Math.max(t0, this.first), this.last - span);
    if (from === this.t0 && from + span === this.t1) return;
    this.t0 = from;
    this.t1 = from + span;
    this.later();
  }

  // A span of interest with a little room, cut off where the capture ends.
  frame(from, to) {
    const pad = Math.max((to - from) * 0.03, 0.01);
    this.show(Math.max(from - pad, this.first), Math.min(to + pad, this.last));
  }

  reset() {
    this.show(this.first, this.last);
  }
  zoom(factor, around = (this.t0 + this.t1) / 2) {
    this.show(around - (around - this.t0) * factor, around + (this.t1 - around) * factor);
  }
  pan(share) {
    const by = (this.t1 - this.t0) * share;
    this.show(this.t0 + by, this.t1 + by);
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      for (const act of this.onRange) act();
    });
  }

  cross(t) {
    if (this.at === t) return;
    this.at = t;
    if (this.crossing) return;
    this.crossing = true;
    requestAnimationFrame(() => {
      this.crossing = false;
      for (const act of this.onCross) act();
    });
  }
}

// Drag zooms, Shift and drag pans, wheel zooms on the chart that was chosen or with Ctrl, two fingers pinch, one
// finger reads; double click and Esc show everything again.
function steer(element, chart, view, selection) {
  const timeAt = (clientX) => {
    const frame = chart.frame,
      box = element.getBoundingClientRect();
    const share = (clientX - box.left - frame.left) / frame.w;
    return view.t0 + Math.min(Math.max(share, 0), 1) * (view.t1 - view.t0);
  };
  const pointers = new Map();
  let drag = null,
    pinch = null;

  element.addEventListener("pointerdown", (event) => {
    if (!chart.frame || (event.pointerType === "mouse" && event.button !== 0)) return;
    pointers.set(event.pointerId, event.clientX);
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()].map(timeAt);
      pinch = { a, b };
      drag = null;
      selection.hidden = true;
    } else if (event.pointerType === "mouse" || event.pointerType === "pen") {
      element.setPointerCapture(event.pointerId);
      drag = {
        x: event.clientX,
        t: timeAt(event.clientX),
        t0: view.t0,
        t1: view.t1,
        pan: event.shiftKey,
      };
    }
    view.cross(timeAt(event.clientX));
  });
  element.addEventListener("pointermove", (event) => {
    if (!chart.frame) return;
    if (pointers.has(event.pointerId)) pointers.set(event.pointerId, event.clientX);
    if (pinch && pointers.size === 2) {
      // The times under both fingers stay under them.
      const box = element.getBoundingClientRect(),
        frame = chart.frame;
      const [left, right] = [...pointers.values()].map(
        (x) => (x - box.left - frame.left) / frame.w,
      );
      if (Math.abs(right - left) > 0.03) {
        const span = (pinch.b - pinch.a) / (right - left),
          from = pinch.a - left * span;
        if (span > 0) view.show(from, from + span);
      }
      return;
    }
    if (drag && drag.pan) {
      const by = ((event.clientX - drag.x) / chart.frame.w) * (drag.t1 - drag.t0);
      view.show(drag.t0 - by, drag.t1 - by);
      return;
    }
    if (drag && Math.abs(event.clientX - drag.x) > 4) {
      const box = element.getBoundingClientRect(),
        frame = chart.frame;
      const a = Math.min(Math.max(drag.x - box.left, frame.left), frame.right);
      const b = Math.min(Math.max(event.clientX - box.left, frame.left), frame.right);
      selection.hidden = false;
      selection.style.left = `${Math.min(a, b)}px`;
      selection.style.width = `${Math.abs(b - a)}px`;
      selection.style.top = `${frame.top}px`;
      selection.style.height = `${frame.h}px`;
    }
    view.cross(timeAt(event.clientX));
  });
  const release = (event) => {
    pointers.delete(event.pointerId);
    if (pointers.size < 2) pinch = null;
    selection.hidden = true;
    if (drag && !drag.pan && event.type === "pointerup" && Math.abs(event.clientX - drag.x) > 4) {
      const other = timeAt(event.clientX);
      view.show(Math.min(drag.t, other), Math.max(drag.t, other));
    }
    drag = null;
  };
  element.addEventListener("pointerup", release);
  element.addEventListener("pointercancel", release);
  element.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse" && !drag) view.cross(null);
  });
  element.addEventListener("dblclick", () => view.reset());
  element.addEventListener(
    "wheel",
    (event) => {
      if (!chart.frame) return;
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (sideways && view.zoomed) {
        event.preventDefault();
        view.pan(event.deltaX / 800);
        return;
      }
      if (!(event.ctrlKey || event.metaKey || event.altKey || document.activeElement === element))
        return;
      event.preventDefault();
      view.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 150), timeAt(event.clientX));
    },
    { passive: false },
  );
  element.addEventListener("keydown", (event) => {
    const centre =
      view.at !== null && view.at >= view.t0 && view.at <= view.t1
        ? view.at
        : (view.t0 + view.t1) / 2;
    const move = (share) =>
      view.cross(Math.min(Math.max(centre + share * (view.t1 - view.t0), view.t0), view.t1));
    const keys = {
      "+": () => view.zoom(0.6, centre),
      "=": () => view.zoom(0.6, centre),
      "-": () => view.zoom(1 / 0.6, centre),
      ArrowLeft: () => (event.shiftKey ? view.pan(-0.15) : move(-0.01)),
      ArrowRight: () => (event.shiftKey ? view.pan(0.15) : move(0.01)),
      PageUp: () => view.pan(-0.8),
      PageDown: () => view.pan(0.8),
      Home: () => view.show(view.first, view.first + view.t1 - view.t0),
      End: () => view.show(view.last - view.t1 + view.t0, view.last),
      Escape: () => {
        view.reset();
        view.cross(null);
      },
      0: () => view.reset(),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
}
