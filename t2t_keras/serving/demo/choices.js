/** The choice of layer and head, which stays when the picture shows another attention. */
class Choices {
  #chosen = { layer: null, head: -1 }; // null: the last layer, whatever its number

  constructor(picture) {
    this.picture = picture;
  }

  /** Shows an attention in the picture, in the layer and head that are chosen. */
  show(attention) {
    this.#offer("layer", "layers", attention.layers);
    this.#offer("head", "heads", attention.heads);
    this.#choose(attention);
    this.picture.show(attention);
    this.picture.refresh();
  }

  #choose(attention) {
    const { layer, head } = this.#chosen;
    attention.choose(layer ?? attention.layers - 1, head);
  }

  /** Offers so many layers or heads and their mean; a choice that is not among them is undone. */
  #offer(name, id, count) {
    if (element(id).children.length === count + 1) return;
    if (this.#chosen[name] >= count) this.#chosen[name] = null;
    const shown = this.#chosen[name] ?? count - 1;
    const labels = [...Array(count).keys(), -1].map((index) => {
      const input = make("input", { type: "radio", name, value: index, checked: index === shown });
      input.addEventListener("change", () => {
        this.#chosen[name] = index;
        this.#choose(this.picture.attention);
        this.picture.refresh();
      });
      const label = index < 0 ? "mean" : index + 1;
      return make("label", {}, input, make("span", { textContent: label }));
    });
    element(id).replaceChildren(...labels);
  }
}
