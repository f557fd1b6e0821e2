/**
 * The matrix of weights on a canvas as large as what is seen of it: scrolling draws another part,
 * and the pieces beside rows and columns stay in sight.
 */
class Matrix {
  #box = element("matrix");
  #canvas = element("cells");
  #ink = this.#canvas.getContext("2d");
  #tip = new Tip();
  #attention = null;
  #pointed = { target: -1, source: -1 };

  /** point(target, source) is called with the cell under the pointer, or -1 and -1. */
  constructor(point) {
    this.point = point;
    const pointAt = (event) => point(...this.#cellAt(event));
    // A finger that lifts leaves, but its reader wants to look on.
    const leave = (event) => event.pointerType === "touch" || point(-1, -1);
    this.#box.addEventListener("scroll", () => this.#paint());
    this.#box.addEventListener("pointermove", pointAt);
    this.#box.addEventListener("pointerdown", pointAt);
    this.#box.addEventListener("pointerleave", leave);
    this.#box.addEventListener("blur", () => point(-1, -1));
    this.#box.addEventListener("keydown", (event) => this.#walk(event));
    new ResizeObserver(() => this.#fit()).observe(this.#box.parentElement);
  }

  /** Shows another alignment. */
  show(attention) {
    this.#attention = attention;
    this.#pointed = { target: -1, source: -1 };
    this.#box.ariaLabel =
      `Attention of ${attention.target.length} pieces of the ${attention.targetName} (rows) on ` +
      `${attention.source.length} pieces of the ${attention.sourceName} (columns); the arrow keys ` +
      "move from cell to cell";
    this.#box.scrollTo(0, 0);
    this.#fit();
  }

  /** Draws the weights, and a frame round what is pointed at. */
  draw(pointed) {
    this.#pointed = pointed;
    this.#paint();
  }

  #fit() {
    if (!this.#attention) return;
    this.#measure();
    this.#paint();
  }

  /** Room for the labels, size of a cell, and how far the picture reaches beyond what is seen. */
  #measure() {
    const { source, target } = this.#attention;
    const style = getComputedStyle(this.#box);
    this.font = `13px ${style.getPropertyValue("--sans")}`;
    this.#ink.font = `600 ${this.font}`; // as wide as a label gets
    const widthOf = ({ text }) => this.#ink.measureText(text).width;
    const longest = (pieces) => Math.min(110, Math.max(...pieces.map(widthOf)));
    this.left = longest(target) + 22;
    const slanted = longest(source) * Math.SQRT1_2;
    this.top = slanted + 22;
    this.right = slanted + 8; // the last column's label leans out
    const room = this.#box.parentElement.clientWidth - this.left - this.right - 2;
    this.cell = Math.floor(Math.min(36, Math.max(20, room / source.length)));
    const width = this.left + source.length * this.cell + this.right;
    const height = this.top + target.length * this.cell + 10;
    this.height = Math.min(parseFloat(style.maxHeight) || height, height);
    // The canvas stays where it is; the extent below it gives the rest of the way to scroll.
    element("extent").style.width = `${width}px`;
    element("extent").style.height = `${height - this.height}px`;
    this.#canvas.style.width = 0;
    this.width = this.#box.clientWidth;
    this.#canvas.style.width = `${this.width}px`;
    this.#canvas.style.height = `${this.height}px`;
    const dense = devicePixelRatio;
    this.#canvas.width = Math.round(this.width * dense);
    this.#canvas.height = Math.round(this.height * dense);
    this.#ink.setTransform(dense, 0, 0, dense, 0, 0);
  }

  #paint() {
    if (!this.#attention) return;
    const { scrollLeft, scrollTop, scrollWidth, clientWidth } = this.#box;
    const { left, top, cell, width, height } = this;
    const { source, target } = this.#attention;
    const [x0, y0] = [left - scrollLeft, top - scrollTop];
    const style = getComputedStyle(this.#box);
    const color = (name) => style.getPropertyValue(name).trim();
    const clipped = (x, y, w, h, paint) => {
      this.#ink.save();
      this.#ink.beginPath();
      this.#ink.rect(x, y, w, h);
      this.#ink.clip();
      paint();
      this.#ink.restore();
    };
    const columns = [
      Math.max(0, Math.floor(scrollLeft / cell)),
      Math.min(source.length, Math.ceil((width - x0) / cell)),
    ];
    const rows = [
      Math.max(0, Math.floor(scrollTop / cell)),
      Math.min(target.length, Math.ceil((height - y0) / cell)),
    ];
    this.#ink.clearRect(0, 0, width, height);
    clipped(left, top, width - left, height - top, () => {
      this.#ink.translate(x0, y0);
      this.#paintCells(rows, columns, color);
      this.#paintFrame(color("--ink"));
    });
    this.#ink.textBaseline = "middle";
    clipped(0, top, left, height - top, () => {
      this.#ink.textAlign = "right";
      for (let t = rows[0]; t < rows[1]; t++) {
        const on = t === this.#pointed.target;
        this.#paintLabel(target[t], on, left - 9, y0 + (t + 0.5) * cell, 0, color);
      }
    });
    clipped(left, 0, width - left, top, () => {
      this.#ink.textAlign = "left";
      // Labels lean to the right: some from the left of what is seen lean in.
      for (let s = Math.max(0, columns[0] - 6); s < columns[1]; s++) {
        const on = s === this.#pointed.source;
        this.#paintLabel(source[s], on, x0 + (s + 0.5) * cell, top - 9, -Math.PI / 4, color);
      }
    });
    this.#canvas.classList.toggle("more", scrollLeft + clientWidth < scrollWidth - 1);
    this.#note(x0, y0);
  }

  #paintCells([t0, t1], [s0, s1], color) {
    const { most, source, target } = this.#attention;
    const { cell } = this;
    this.#ink.fillStyle = color("--cell");
    for (let t = t0; t < t1; t++) {
      for (let s = s0; s < s1; s++) {
        this.#ink.globalAlpha = this.#attention.weight(t, s) / (most || 1);
        this.#ink.fillRect(s * cell, t * cell, cell - 1, cell - 1);
      }
    }
    this.#ink.globalAlpha = 1;
    this.#ink.fillStyle = color("--line");
    const [right, bottom] = [source.length * cell, target.length * cell];
    for (let s = s0; s < s1; s++) {
      if (source[s].starts) this.#ink.fillRect(s * cell - 1, 0, 1, bottom);
    }
    for (let t = t0; t < t1; t++) {
      if (target[t].starts) this.#ink.fillRect(0, t * cell - 1, right, 1);
    }
  }

  /** Frames a cell and tints its row and column, or frames a whole row or column. */
  #paintFrame(color) {
    const { target: t, source: s } = this.#pointed;
    const { cell } = this;
    const { source, target } = this.#attention;
    const [right, bottom] = [source.length * cell, target.length * cell];
    this.#ink.strokeStyle = this.#ink.fillStyle = color;
    this.#ink.lineWidth = 1.5;
    const frame = (x, y, w, h) => this.#ink.strokeRect(x, y, w - 1, h - 1);
    if (t >= 0 && s >= 0) {
      this.#ink.globalAlpha = 0.07;
      this.#ink.fillRect(0, t * cell, right - 1, cell - 1);
      this.#ink.fillRect(s * cell, 0, cell - 1, bottom - 1);
      this.#ink.globalAlpha = 1;
      frame(s * cell, t * cell, cell, cell);
    } else if (t >= 0) {
      frame(0, t * cell, right, cell);
    } else if (s >= 0) {
      frame(s * cell, 0, cell, bottom);
    }
  }

  #paintLabel({ named, text }, on, x, y, angle, color) {
    this.#ink.save();
    this.#ink.translate(x, y);
    this.#ink.rotate(angle);
    this.#ink.font = `${named ? "italic " : ""}${on ? "600 " : ""}${this.font}`;
    this.#ink.fillStyle = color(on ? "--accent" : named ? "--soft" : "--ink");
    let shown = text;
    while (this.#ink.measureText(shown).width > 112) {
      shown = `${[...shown].slice(0, -2).join("")}…`;
    }
    this.#ink.fillText(shown, 0, 0);
    this.#ink.restore();
  }

  /** Says beside the pointed cell, where it is in sight, what it is. */
  #note(x0, y0) {
    const { target: t, source: s } = this.#pointed;
    const { left, top, cell } = this;
    const [x, y] = [x0 + (s + 0.5) * cell, y0 + t * cell];
    if (t < 0 || s < 0 || x < left || x > this.width || y < top - cell / 2 || y > this.height) {
      this.#tip.hide();
      return;
    }
    const { source, target } = this.#attention;
    this.#tip.show(
      x,
      y,
      cell,
      make("bdi", { textContent: target[t].text }),
      " ← ",
      make("bdi", { textContent: source[s].text }),
      " ",
      make("b", { textContent: this.#attention.weight(t, s).toFixed(3) }),
    );
  }

  #cellAt(event) {
    if (!this.#attention) return [-1, -1];
    const { left, top, cell } = this;
    const box = this.#box.getBoundingClientRect();
    const x = event.clientX - box.left - this.#box.clientLeft;
    const y = event.clientY - box.top - this.#box.clientTop;
    const within = (index, count) => (index < count ? index : -1);
    const { source, target } = this.#attention;
    const s = within(Math.floor((x - left + this.#box.scrollLeft) / cell), source.length);
    const t = within(Math.floor((y - top + this.#box.scrollTop) / cell), target.length);
    // Beside the matrix stand the pieces: a label is its whole row or column.
    if (x < left) return y < top ? [-1, -1] : [t, -1];
    if (y < top) return [-1, s];
    return t >= 0 && s >= 0 ? [t, s] : [-1, -1];
  }

  #walk(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[event.key];
    if (!step || !this.#attention) return;
    event.preventDefault();
    const { target, source } = this.#attention;
    const { cell, left, top, width, height } = this;
    const within = (value, count) => Math.min(count - 1, Math.max(0, value));
    const t = within(this.#pointed.target + step[0], target.length);
    const s = within(this.#pointed.source + step[1], source.length);
    const inSight = (from, start, end) => Math.min(start, Math.max(from, end));
    this.#box.scrollTo(
      inSight(this.#box.scrollLeft, s * cell, left + (s + 1) * cell - width + 2),
      inSight(this.#box.scrollTop, t * cell, top + (t + 1) * cell - height + 2),
    );
    this.point(t, s);
  }
}
