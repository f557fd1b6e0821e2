/** The note beside the cell that is pointed at; what it says, the readout says to all readers. */
class Tip {
  #box = element("tip");

  /** Stands above the cell whose upper middle is (x, y) in the frame, or below where that fails. */
  show(x, y, cell, ...words) {
    this.#box.replaceChildren(...words);
    this.#box.hidden = false;
    const { offsetWidth: width, offsetHeight: height, offsetParent: frame } = this.#box;
    const left = Math.max(0, Math.min(frame.clientWidth - width, x - width / 2));
    const top = y - height - 6 < 0 ? y + cell + 6 : y - height - 6;
    this.#box.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  }

  hide() {
    this.#box.hidden = true;
  }
}
