/**
 * Two lines of pieces, the links between them, and the matrix; all of them show what is pointed at.
 */
class Picture {
  constructor() {
    this.attention = null;
    this.pointed = { target: -1, source: -1 };
    this.matrix = new Matrix((target, source) => this.point(target, source));
    for (const side of ["source", "target"]) this.#listen(side);
    new ResizeObserver(() => this.#draw()).observe(element("links"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
  }

  /** Shows another alignment. */
  show(attention) {
    this.attention = attention;
    element("row-name").textContent = attention.targetName;
    element("column-name").textContent = attention.sourceName;
    for (const side of ["source", "target"]) {
      element(`${side}-name`).textContent = capitalized(attention[`${side}Name`]);
      const chips = attention[side].map(({ text, starts, named }, index) =>
        make("button", {
          type: "button",
          className: ["piece", starts && "starts", named && "named"].filter(Boolean).join(" "),
          textContent: text,
          tabIndex: index === 0 ? 0 : -1,
        }),
      );
      // Words part at spaces, so that lines break there and copies have them.
      element(side).replaceChildren(
        ...chips.flatMap((chip) => (chip.matches(".starts") ? [" ", chip] : [chip])),
      );
    }
    this.matrix.show(attention);
    this.point(-1, -1);
  }

  /** Draws again after the choice of layer or head. */
  refresh() {
    element("most").textContent = this.attention.most.toFixed(2);
    this.point(this.pointed.target, this.pointed.source);
  }

  /** Points at a piece of the translation, one of the source, both (a cell), or (-1) at nothing. */
  point(target, source) {
    this.pointed = { target, source };
    this.#draw();
  }

  #listen(side) {
    const line = element(side);
    const chipOf = (event) => event.target.closest(".piece");
    const pointAt = (chip) => {
      const index = [...line.children].indexOf(chip);
      this.point(...(side === "target" ? [index, -1] : [-1, index]));
    };
    const enter = (event) => chipOf(event) && pointAt(chipOf(event));
    line.addEventListener("pointerover", enter);
    line.addEventListener("focusin", enter);
    // A finger that lifts leaves, but its reader wants to look on.
    const leave = (event) => event.pointerType === "touch" || this.point(-1, -1);
    line.addEventListener("pointerleave", leave);
    line.addEventListener("focusout", () => this.point(-1, -1));
    line.addEventListener("keydown", (event) => {
      const chips = [...line.children];
      const index = chips.indexOf(chipOf(event));
      const forward = getComputedStyle(line).direction === "rtl" ? -1 : 1;
      const places = {
        ArrowRight: index + forward,
        ArrowLeft: index - forward,
        Home: 0,
        End: chips.length - 1,
      };
      const next = chips[places[event.key]];
      if (!next) return;
      event.preventDefault();
      chips[index].tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  }

  #draw() {
    if (!this.attention) return;
    this.#light();
    this.#link();
    this.#tell();
    this.matrix.draw(this.pointed);
  }

  /** Colors the pieces that the pointed one looks at, or that look at it. */
  #light() {
    const { target, source } = this.pointed;
    const set = (chip, on, weight) => {
      chip.classList.toggle("on", on);
      chip.style.setProperty("--weight", weight.toFixed(3));
    };
    [...element("source").children].forEach((chip, s) => {
      const lit = target >= 0 && (source < 0 || s === source);
      set(chip, s === source, lit ? this.attention.weight(target, s) : 0);
    });
    [...element("target").children].forEach((chip, t) => {
      const lit = source >= 0 && target < 0;
      set(chip, t === target, lit ? this.attention.weight(t, source) : 0);
    });
  }

  /** Draws the links of the pointed piece; if none is, the strong ones of all, faintly. */
  #link() {
    const { target, source } = this.pointed;
    const idle = target < 0 && source < 0;
    const box = element("links").getBoundingClientRect();
    const places = (side, edge) =>
      [...element(side).children].map((chip) => {
        const { left, width, [edge]: y } = chip.getBoundingClientRect();
        return [left + width / 2 - box.left, y - box.top];
      });
    const above = places("source", "bottom");
    const below = places("target", "top");
    const paths = [];
    for (let t = 0; t < below.length; t++) {
      if (target >= 0 && t !== target) continue;
      for (let s = 0; s < above.length; s++) {
        if (source >= 0 && s !== source) continue;
        const weight = this.attention.weight(t, s);
        if (weight < (idle ? 0.15 : 0.02)) continue;
        const [[x0, y0], [x1, y1]] = [above[s], below[t]];
        const bend = (y1 - y0) / 2;
        const opacity = idle ? 0.45 * weight : 0.15 + 0.75 * weight;
        const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
        path.setAttribute("d", `M${x0} ${y0}C${x0} ${y0 + bend} ${x1} ${y1 - bend} ${x1} ${y1}`);
        path.setAttribute("stroke-width", (0.75 + 4 * weight).toFixed(2));
        path.setAttribute("stroke-opacity", opacity.toFixed(2));
        paths.push(path);
      }
    }
    element("curves").replaceChildren(...paths);
  }

  /** Says in words what is pointed at. */
  #tell() {
    const { target, source } = this.pointed;
    const { attention } = this;
    const toSource = (s) => [attention.source[s], attention.weight(target, s)];
    const fromTarget = (t) => [attention.target[t], attention.weight(t, source)];
    let words = ["Point at a piece or a cell."];
    if (target >= 0) {
      const found = source >= 0 ? [toSource(source)] : strongest(attention.source, toSource);
      words = [quoted(attention.target[target]), " looks at ", ...listed(found)];
    } else if (source >= 0) {
      const found = strongest(attention.target, fromTarget);
      words = [quoted(attention.source[source]), " is looked at by ", ...listed(found)];
    }
    element("readout").replaceChildren(...words);
  }
}

function capitalized(name) {
  return name[0].toUpperCase() + name.slice(1);
}

/** The three greatest of [piece, weight], those that would not round to 0.00. */
function strongest(pieces, weighed) {
  const found = [...pieces.keys()].map(weighed).sort(([, a], [, b]) => b - a);
  return found.slice(0, 3).filter(([, weight]) => weight >= 0.005);
}

function quoted({ text, named }) {
  return make("b", { dir: "auto", textContent: named ? text : `“${text}”` });
}

function listed(found) {
  if (!found.length) return ["nothing in particular"];
  return found.flatMap(([piece, weight], index) => [
    index ? ", " : "",
    quoted(piece),
    " ",
    make("span", { className: "weight", textContent: weight.toFixed(3) }),
  ]);
}
