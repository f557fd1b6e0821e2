/**
 * A translation in words. Those that the model is unsure of are marked, and each word shows its
 * probability and the part of the source that its tokens attend to most.
 */
class Words {
  static #doubtful = 0.2; // probabilities below which words are marked
  static #unsure = 0.5;
  static #segmenter = new Intl.Segmenter(undefined, { granularity: "word" });

  constructor() {
    this.box = element("translation");
    this.source = element("source-text");
    this.readout = element("word");
  }

  /** Shows a translation of a sentence; tokens are null where the model does not tell them. */
  show(sentence, { text, tokens = null }) {
    written(this.box, text);
    element("words").hidden = !tokens || !text;
    if (element("words").hidden) return;
    this.sentence = this.#split(sentence);
    this.box.replaceChildren(...this.#split(text).map((part) => this.#word(part, tokens)));
    this.#point(null);
  }

  /** Words and what is between them: {text, begin, end in code points, isWord}. */
  #split(text) {
    let end = 0;
    return [...Words.#segmenter.segment(text)].map(({ segment, isWordLike }) => {
      const begin = end;
      end += [...segment].length;
      return { text: segment, begin, end, isWord: isWordLike };
    });
  }

  #word(part, tokens) {
    const own = tokens.filter(([begin, end]) => begin < part.end && part.begin < end);
    if (!part.isWord || !own.length) return part.text;
    const probability = Math.exp(own.reduce((sum, token) => sum + token[2], 0));
    const word = make("span", { className: "word", textContent: part.text });
    if (probability < Words.#unsure) {
      word.classList.add(probability < Words.#doubtful ? "doubtful" : "unsure");
      word.tabIndex = 0;
    }
    const spans = own.map((token) => token.slice(3)).filter(([begin, end]) => begin < end);
    for (const kind of ["pointerenter", "focus"]) {
      word.addEventListener(kind, () => this.#point({ word, probability, spans }));
    }
    for (const kind of ["pointerleave", "blur"]) {
      word.addEventListener(kind, () => this.#point(null));
    }
    return word;
  }

  /** Marks the source of a word, or of none. */
  #point(pointed) {
    for (const other of this.box.querySelectorAll(".pointed")) other.classList.remove("pointed");
    const spans = pointed?.spans ?? [];
    const isMarked = (part) => spans.some(([begin, end]) => begin < part.end && part.begin < end);
    const marked = this.sentence.filter(isMarked);
    this.source.replaceChildren(
      ...this.sentence.map((part) =>
        marked.includes(part) ? make("mark", { textContent: part.text }) : part.text,
      ),
    );
    if (!pointed) {
      const count = this.box.querySelectorAll(".unsure, .doubtful").length;
      const words = count === 1 ? "1 word is" : `${count} words are`;
      this.readout.textContent = count
        ? `${words} less likely than not. Point at a word for its probability and source.`
        : "Point at a word for its probability and source.";
      return;
    }
    pointed.word.classList.add("pointed");
    const sources = marked.map((part) => `“${part.text}”`);
    this.readout.textContent =
      `“${pointed.word.textContent}” has probability ${pointed.probability.toFixed(3)}` +
      (sources.length ? `, from ${sources.join(" and ")}` : "");
  }
}
